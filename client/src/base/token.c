/* SPDX-License-Identifier: BSD-3-Clause */
/* token.c - see token.h.
 *
 * The longest token: HOST_MAX, a pid of 20 digits, TOKEN_OWNER_MAX, 32 hexadecimal digits, three
 * colons: 183 bytes, which leaves room for the ~ and the number of token_vary(). */
#include "base/token.h"

#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKEN_RANDOM_BYTES = 16, HOST_MAX = 64 };

void token_source_init(token_source *source) {
    char host[HOST_MAX + 1] = "";
    *source = (token_source){.mutex = PTHREAD_MUTEX_INITIALIZER};
    if (gethostname(host, sizeof(host)) != 0) host[0] = '\0';
    host[HOST_MAX] = '\0'; /* gethostname() may cut a name without a NUL */
    snprintf(source->prefix, sizeof(source->prefix), "%s:%ld:", host, (long)getpid());
}

size_t token_source_room(const token_source *source, const char *owner) {
    size_t owner_size = owner == NULL ? 0 : strlen(owner) + strlen(":");
    return strlen(source->prefix) + owner_size + 2 * TOKEN_RANDOM_BYTES + strlen("~") +
           TEXT_NUMBER_SIZE;
}

bool token_source_take(token_source *source, const char *owner, char *token) {
    text_copy(token, TOKEN_MAX + 1, source->prefix);
    if (owner != NULL && owner[0] != '\0') {
        text_append(token, TOKEN_MAX + 1, owner);
        text_append(token, TOKEN_MAX + 1, ":");
    }
    pthread_mutex_lock(&source->mutex);
    if (source->unused == 0 && getentropy(source->bytes, sizeof(source->bytes)) == 0)
        source->unused = sizeof(source->bytes);
    bool is_taken = source->unused > 0;
    if (is_taken) {
        source->unused -= TOKEN_RANDOM_BYTES;
        text_put_hex(token + strlen(token), source->bytes + source->unused, TOKEN_RANDOM_BYTES);
    }
    pthread_mutex_unlock(&source->mutex);
    return is_taken;
}

/* An owner with a ~ is not mistaken for a number: the random digits follow after a colon. */
void token_vary(char *token) {
    char *mark = strrchr(token, '~');
    bool has_number = mark != NULL && mark[1] != '\0';
    bool is_varied = has_number && mark[1 + strspn(mark + 1, "0123456789")] == '\0';
    uint64_t number = is_varied ? strtoull(mark + 1, NULL, 10) : 1;
    if (!is_varied) mark = token + strlen(token);
    if (mark + 1 + TEXT_NUMBER_SIZE > token + TOKEN_MAX + 1) return;
    *mark = '~';
    text_put_number(mark + 1, number + 1);
}
