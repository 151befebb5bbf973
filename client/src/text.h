/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - short texts, made without printf(3), which would be most of what a lock costs. Pure. */
#ifndef DLOCK_TEXT_H
#define DLOCK_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_NUMBER_SIZE = 21 }; /* of the largest number, with its end */

/* In decimal, with an end. The result is its length without the end. */
size_t text_put_number(char to[TEXT_NUMBER_SIZE], uint64_t number);

/* Two digits for each byte, with an end. */
void text_put_hex(char *to, const unsigned char *bytes, size_t count);

/* As much as fits, always with an end. */
void text_copy(char *to, size_t size, const char *from);
/* Behind what is there. */
void text_append(char *to, size_t size, const char *more);

uint64_t text_hash(const char *of);

#endif
