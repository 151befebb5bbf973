/* SPDX-License-Identifier: BSD-3-Clause */
/* random.c - see random.h. */
#include "random.h"

#include "text.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { TOKEN_RANDOM_BYTES = 16, TOKENS_AT_ONCE = 64, HOST_MAX = 64, PREFIX_SIZE = 100 };

struct token_source {
    char prefix[PREFIX_SIZE];
    pthread_mutex_t mutex;
    size_t left; /* of the bytes, from the first on; a whole number of tokens */
    unsigned char bytes[TOKEN_RANDOM_BYTES * TOKENS_AT_ONCE];
};

bool random_fill(void *bytes, size_t size) {
    char *at = bytes;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

token_source *token_source_new(void) {
    token_source *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    char host[HOST_MAX + 1] = "";
    if (gethostname(host, sizeof(host)) != 0) host[0] = '\0';
    host[HOST_MAX] = '\0'; /* it may have been cut without an end */
    snprintf(made->prefix, sizeof(made->prefix), "%s:%ld:", host, (long)getpid());
    pthread_mutex_init(&made->mutex, NULL);
    return made;
}

void token_source_free(token_source *old) {
    if (old == NULL) return;
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

bool token_source_take(token_source *from, char token[TOKEN_MAX + 1]) {
    unsigned char chosen[TOKEN_RANDOM_BYTES];
    pthread_mutex_lock(&from->mutex);
    bool is_filled = from->left > 0 || random_fill(from->bytes, sizeof(from->bytes));
    if (is_filled) {
        if (from->left == 0) from->left = sizeof(from->bytes);
        from->left -= sizeof(chosen);
        memcpy(chosen, from->bytes + from->left, sizeof(chosen));
    }
    pthread_mutex_unlock(&from->mutex);
    if (!is_filled) return false;
    text_copy(token, sizeof(from->prefix), from->prefix);
    text_put_hex(token + strlen(token), chosen, sizeof(chosen));
    return true;
}

size_t token_base_length(const char *token) {
    const char *end = token + strlen(token), *mark = end;
    while (mark > token && mark[-1] >= '0' && mark[-1] <= '9')
        mark--;
    bool is_varied = mark < end && mark > token && mark[-1] == '~';
    return (size_t)((is_varied ? mark - 1 : end) - token);
}

void token_vary(char token[TOKEN_MAX + 1]) {
    char digits[TEXT_NUMBER_SIZE];
    char *mark = token + token_base_length(token);
    uint64_t number = *mark == '~' ? strtoull(mark + 1, NULL, 10) : 1;
    if ((size_t)(mark - token) + sizeof(digits) + 1 > TOKEN_MAX + 1) return;
    *mark = '~';
    text_put_number(digits, number + 1);
    memcpy(mark + 1, digits, strlen(digits) + 1);
}
