/* SPDX-License-Identifier: BSD-3-Clause */
/* keep.h - strings that live as long as the program. */
#ifndef DLOCK_CLI_KEEP_H
#define DLOCK_CLI_KEEP_H

#include <stddef.h>

/* A copy, or room for size bytes. Without memory the program ends. */
char *keep(const char *text);
char *keep_room(size_t size);

#endif
