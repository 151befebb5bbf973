/* SPDX-License-Identifier: BSD-3-Clause */
/* exit_code.c - see exit_code.h. */
#include "exit_code.h"

exit_code exit_code_of(dlock_status status) {
    switch (status) {
    case DLOCK_OK:
        return EXIT_CODE_OK;
    case DLOCK_BUSY:
    case DLOCK_TIMEOUT:
    case DLOCK_NOT_HELD:
        return EXIT_CODE_BUSY;
    case DLOCK_LOST:
        return EXIT_CODE_LOST;
    case DLOCK_QUEUE_FULL:
    case DLOCK_NO_QUORUM:
    case DLOCK_NO_REPLICAS:
    case DLOCK_LIMITED:
    case DLOCK_IN_DOUBT:
        return EXIT_CODE_IN_DOUBT;
    case DLOCK_UNREACHABLE:
        return EXIT_CODE_UNREACHABLE;
    case DLOCK_REFUSED:
        return EXIT_CODE_REFUSED;
    case DLOCK_PROTOCOL:
    case DLOCK_NO_MODULE:
        return EXIT_CODE_PROTOCOL;
    case DLOCK_INVALID:
        return EXIT_CODE_USAGE;
    case DLOCK_NO_MEMORY:
        return EXIT_CODE_NO_RESOURCES;
    case DLOCK_CANCELED:
        break;
    }
    return EXIT_CODE_INTERNAL;
}
