/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz.h - for the targets of this folder: each gets bytes from libFuzzer and aborts if a rule is
 * broken. The sanitizers watch every read and write. */
#ifndef DLOCK_FUZZ_H
#define DLOCK_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly that size, so that the sanitizer sees every read beyond the end. */
static inline char *fuzz_copy(const uint8_t *data, size_t size) {
    char *copy = malloc(size > 0 ? size : 1);
    MUST(copy != NULL);
    if (size > 0) memcpy(copy, data, size);
    return copy;
}

#endif
