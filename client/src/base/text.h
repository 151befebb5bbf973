/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - short texts without printf(3), which would dominate the cost of a lock. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { TEXT_NUMBER_SIZE = 21 }; /* the largest number and a NUL */

/* The number in decimal digits and a NUL. The result is the length without the NUL. */
size_t text_put_number(char text[TEXT_NUMBER_SIZE], uint64_t number);

/* The number of these decimal digits. -1: not all are digits, none is there, or the number is too
 * large. */
int64_t text_read_number(const char *digits, size_t length);

/* Two hexadecimal digits for each byte, and a NUL. */
void text_put_hex(char *text, const unsigned char *bytes, size_t count);

/* Both write as much as fits into size bytes, at least 1, and always a NUL. */
void text_copy(char *text, size_t size, const char *source);
void text_append(char *text, size_t size, const char *more);

/* A text in memory of its own, for texts that are rare: text_nothing ("") or NULL takes none. Cuts
 * what is longer than size. Without memory the text is text_nothing. */
extern const char text_nothing[];
void text_keep(const char **text, size_t size, const char *source);
void text_drop(const char **text);

/* Lists: texts in one piece of memory, each behind the NUL of the text before. The next text; and
 * the bytes of so many texts (0 counts as 1), with their NULs. */
const char *text_behind(const char *text);
size_t text_list_size(const char *first, size_t count);

uint64_t text_hash(const char *text);
uint64_t text_hash_bytes(const char *bytes, size_t count);
