/* SPDX-License-Identifier: BSD-3-Clause */
/* exit_code.h - how the tool ends when it is not the command's own doing: as in flock(1) and
 * sysexits.h. The man page has the same table. */
#ifndef DLOCK_CLI_EXIT_CODE_H
#define DLOCK_CLI_EXIT_CODE_H

#include <dlock.h>

typedef enum exit_code {
    EXIT_CODE_OK = 0,
    EXIT_CODE_BUSY = 1,          /* held by another; or not held, when it should be */
    EXIT_CODE_USAGE = 64,        /* EX_USAGE */
    EXIT_CODE_UNREACHABLE = 69,  /* EX_UNAVAILABLE */
    EXIT_CODE_INTERNAL = 70,     /* EX_SOFTWARE */
    EXIT_CODE_NO_RESOURCES = 71, /* EX_OSERR */
    EXIT_CODE_IN_DOUBT = 75,     /* EX_TEMPFAIL; also too few replicas or servers, a full queue */
    EXIT_CODE_PROTOCOL = 76,     /* EX_PROTOCOL: also of a server without the module */
    EXIT_CODE_REFUSED = 77,      /* EX_NOPERM */
    EXIT_CODE_CONFIG = 78,       /* EX_CONFIG */
    EXIT_CODE_LOST = 79,         /* the lock was lost while the command ran */
    EXIT_CODE_CANNOT_RUN = 126,  /* as a shell has it */
    EXIT_CODE_NOT_FOUND = 127,   /* likewise */
    EXIT_CODE_SIGNAL = 128       /* and the number of the signal */
} exit_code;

exit_code exit_code_of(dlock_status status);

#endif
