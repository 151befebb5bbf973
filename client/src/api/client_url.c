/* SPDX-License-Identifier: BSD-3-Clause */
/* client_url.c - a client from a text with URLs. Uses the public API and error.h alone. */
#include "api/error.h"
#include <stdlib.h>

#define VARIABLE "DLOCK_URL"
#define BLANKS   " \t\r\n"

enum { URLS_MAX = 16 }; /* one more than a client accepts, so that dlock_client_new() says so */

/* Cuts the text at blanks. The result is the number of URLs. */
static size_t split(char *text, const char *urls[URLS_MAX]) {
    size_t count = 0;
    char *rest = NULL;
    for (char *url = strtok_r(text, BLANKS, &rest); url != NULL && count < URLS_MAX;
         url = strtok_r(NULL, BLANKS, &rest))
        urls[count++] = url;
    return count;
}

dlock_status dlock_client_new_url(dlock_client **out, const char *url) {
    *out = NULL;
    bool is_variable = url == NULL;
    if (is_variable) url = getenv(VARIABLE);
    if (url == NULL || url[strspn(url, BLANKS)] == '\0')
        return error_set(DLOCK_INVALID, is_variable ? VARIABLE " is not set" : "no URL is given");
    char *copy = strdup(url);
    if (copy == NULL) return error_set(DLOCK_NO_MEMORY, "");
    const char *urls[URLS_MAX];
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.url_count = split(copy, urls);
    options.urls = urls;
    dlock_status status = dlock_client_new(out, &options);
    free(copy);
    return status;
}
