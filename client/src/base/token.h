/* SPDX-License-Identifier: BSD-3-Clause */
/* token.h - tokens: the identity of a holder, fresh for every acquisition.
 *
 *     host:pid:owner:32 hexadecimal digits     owner: the caller's label, if there is one
 *     ...~2, ...~3                             further attempts, distinct from the first
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { TOKEN_MAX = 256, TOKEN_OWNER_MAX = 64 };

/* Thread-safe. Reads the random bytes of many tokens at a time from the kernel. */
typedef struct token_source {
    char prefix[100]; /* host:pid: */
    pthread_mutex_t mutex;
    size_t unused;            /* bytes, counted from the first; a whole number of tokens */
    unsigned char bytes[256]; /* as many as getentropy(3) gives at a time */
} token_source;

/* Where a token stands at the servers: what it takes to be rid of it. A repeated ACQUIRE can be
 * granted while the first one is still in doubt, so a doubt outlasts a grant, and a higher value
 * includes the lower ones. There is no value for a token that was withdrawn: its RELEASE is the
 * business of a copy (withdrawals_add() of deployment.h), and the token is never acquired again. */
typedef enum token_fate {
    TOKEN_UNHELD,  /* never sent, or refused, or given back: no server holds the lock for it */
    TOKEN_HELD,    /* granted: one RELEASE ends that */
    TOKEN_IN_DOUBT /* an ACQUIRE was sent and not answered: it may be granted now, later or never.
                    * A RELEASE also has to follow wherever replies are overdue */
} token_fate;

void token_source_init(token_source *source);

/* How many bytes a token of this source and owner takes at most, with its NUL and whatever the
 * variant is; not more than TOKEN_MAX + 1. owner: NULL or at most TOKEN_OWNER_MAX bytes. */
size_t token_source_room(const token_source *source, const char *owner);

/* owner: as above. token: token_source_room(). False: no random bytes. */
bool token_source_take(token_source *source, const char *owner, char *token);

/* Changes the token into a fresh variant. token: room as above for a token of a source, else for
 * TOKEN_MAX + 1 bytes. */
void token_vary(char *token);
