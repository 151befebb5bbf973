/* SPDX-License-Identifier: BSD-3-Clause */
/* url_parameter.c - see url_parameter.h. */
#include "url_parameter.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(request, field)

typedef struct row {
    const char *name;
    enum { NUMBER, FLAG, TEXT } kind;
    size_t offset;
} row;

static const row rows[] = {
    {"lease_ms", NUMBER, AT(lease_ms)},
    {"connect_timeout_ms", NUMBER, AT(connect_timeout_ms)},
    {"io_timeout_ms", NUMBER, AT(io_timeout_ms)},
    {"min_replicas", NUMBER, AT(min_replicas)},
    {"session", FLAG, AT(is_session_by_url)},
    {"prefix", TEXT, AT(prefix)},
    {"tls_ca_file", TEXT, AT(tls_ca_file)},
    {"tls_cert_file", TEXT, AT(tls_cert_file)},
    {"tls_key_file", TEXT, AT(tls_key_file)},
};

/* The text behind name=, up to the next &; NULL: no such parameter. */
static const char *find(const char *url, const char *name) {
    size_t length = strlen(name);
    for (const char *mark = strchr(url, '?'); mark != NULL; mark = strchr(mark + 1, '&'))
        if (strncmp(mark + 1, name, length) == 0 && mark[1 + length] == '=')
            return mark + 2 + length;
    return NULL;
}

/* A text that is no number is left to the library, which refuses the URL by the parameter's
 * name. */
static void set(request *request, const row *row, const char *value) {
    void *field = (char *)request + row->offset;
    bool is_number = value[0] >= '0' && value[0] <= '9';
    if (row->kind == NUMBER && is_number)
        *(int64_t *)field = strtoll(value, NULL, 10);
    else if (row->kind == NUMBER)
        return;
    else if (row->kind == FLAG)
        *(bool *)field = strncmp(value, "yes", 3) == 0;
    else
        *(const char **)field = NULL;
}

void url_parameters_apply(request *request) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *value = NULL;
        for (int n = 0; n < request->url_count && value == NULL; n++)
            value = find(request->urls[n], rows[i].name);
        if (value != NULL) set(request, &rows[i], value);
    }
}
