/* SPDX-License-Identifier: BSD-3-Clause */
/* plain_malloc.c - preloaded into a server together with AddressSanitizer's library.
 *
 * Redis 8 calls jemalloc's own functions beside malloc(). The sanitizer replaces malloc(), and
 * ends the server when it meets memory that it has not allocated itself. Here jemalloc's functions
 * call malloc(). */
#include <stdlib.h>

#define JEMALLOC_ZERO 0x40 /* a flag: the memory is filled with zeros */

void *mallocx(size_t size, int flags);
void *rallocx(void *memory, size_t size, int flags);
void dallocx(void *memory, int flags);
void sdallocx(void *memory, size_t size, int flags);

void *mallocx(size_t size, int flags) {
    return flags & JEMALLOC_ZERO ? calloc(1, size) : malloc(size);
}

void *rallocx(void *memory, size_t size, int flags) {
    (void)flags;
    return realloc(memory, size);
}

void dallocx(void *memory, int flags) {
    (void)flags;
    free(memory);
}

void sdallocx(void *memory, size_t size, int flags) {
    (void)size, (void)flags;
    free(memory);
}
