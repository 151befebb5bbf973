/* SPDX-License-Identifier: BSD-3-Clause */
/* random.h - random bytes from the kernel, and the tokens made of them. */
#ifndef DLOCK_RANDOM_H
#define DLOCK_RANDOM_H

#include <stdbool.h>
#include <stddef.h>

enum { TOKEN_MAX = 256 };

/* False: the kernel has none to give. */
bool random_fill(void *bytes, size_t size);

/* Makes tokens: host:pid:32 hexadecimal digits. Asks the kernel for many random bytes at a time. */
typedef struct token_source token_source;

/* NULL: no memory. */
token_source *token_source_new(void);
void token_source_free(token_source *old);

/* False: no random bytes. */
bool token_source_take(token_source *from, char token[TOKEN_MAX + 1]);

/* Another one, that was not used yet: token, token~2, token~3 ... */
void token_vary(char token[TOKEN_MAX + 1]);

/* Of the part that stays the same then. */
size_t token_base_length(const char *token);

#endif
