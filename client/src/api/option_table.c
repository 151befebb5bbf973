/* SPDX-License-Identifier: BSD-3-Clause */
/* option_table.c - see options.h.
 *
 *   rows    one option each. A new option with a name: a field in dlock.h, a row here, and two rows
 *           in client/REFERENCE.md
 *   take    the text of a URL's parameter becomes the value of a field
 *   fill    fields that are 0 get the value of another struct
 *   check   0 is always allowed, and means the default
 *
 * Functions and pointers (handlers, on_event, ...) have no row, as no URL can name them. Mode and
 * max_holders have none either: a lock must not become shared by a change of a URL. */
#include "api/options.h"

#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>

enum { DAY_MS = 24 * 3600 * 1000 };

/* The server reserves at most 10000 fences at once: one for each thread in a row. */
enum { HAND_ON_MAX = 9999 };

typedef enum option_kind { NUMBER, COUNT, WORD, TEXT } option_kind;

typedef struct row {
    const char *name;
    option_kind kind;
    bool is_lock; /* of dlock_lock_options */
    size_t offset;
    uint32_t min, max;        /* NUMBER (uint32_t), COUNT (size_t), WORD */
    const char *const *words; /* WORD: the values of the enum, from 0 to max */
} row;

#define CLIENT(field) #field, .offset = offsetof(dlock_client_options, field)
#define LOCK(field)   #field, .is_lock = true, .offset = offsetof(dlock_lock_options, field)

#define WORDS(list) .kind = WORD, .words = list, .max = sizeof(list) / sizeof(list[0]) - 1

static const char *const wait_modes[] = {"auto", "spin", "server"};
static const char *const choices[] = {"default", "yes", "no"};
static const char *const modules[] = {"required", "none"};

static const row rows[] = {
    {CLIENT(prefix), .kind = TEXT},
    {CLIENT(connect_timeout_ms), .min = 1, .max = DAY_MS},
    {CLIENT(io_timeout_ms), .min = 1, .max = DAY_MS},
    {CLIENT(wait_mode), WORDS(wait_modes)},
    {CLIENT(spin_min_ms), .min = 1, .max = DAY_MS},
    {CLIENT(spin_random_ms), .min = 1, .max = DAY_MS},
    {CLIENT(spin_max_ms), .min = 1, .max = DAY_MS},
    {CLIENT(hotspot_auto), .min = 1, .max = INT32_MAX},
    {CLIENT(hotspot_queue_max), .min = 1, .max = INT32_MAX},
    {CLIENT(hotspot_hand_on), .min = 1, .max = HAND_ON_MAX},
    {CLIENT(tls_ca_file), .kind = TEXT},
    {CLIENT(tls_cert_file), .kind = TEXT},
    {CLIENT(tls_key_file), .kind = TEXT},
    {CLIENT(access_log_dir), .kind = TEXT},
    {CLIENT(module), WORDS(modules)},
    {CLIENT(access_log_keep), .kind = COUNT, .min = 1, .max = INT32_MAX},
    {LOCK(lease_ms), .min = OPTION_LEASE_MIN_MS, .max = UINT32_MAX},
    {LOCK(renew), WORDS(choices)},
    {LOCK(renew_every_ms), .min = 1, .max = UINT32_MAX},
    {LOCK(max_hold_ms), .min = 1, .max = UINT32_MAX},
    {LOCK(min_replicas), .min = 1, .max = INT32_MAX},
    {LOCK(replica_timeout_ms), .min = 1, .max = DAY_MS},
    {LOCK(session), WORDS(choices)},
    {LOCK(owner), .kind = TEXT},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
_Static_assert((int)ROWS <= (int)OPTION_ROWS_MAX, "options.h has too little room");

static const size_t sizes[] = {[NUMBER] = sizeof(uint32_t),
                               [COUNT] = sizeof(size_t),
                               [WORD] = sizeof(dlock_wait_mode),
                               [TEXT] = sizeof(const char *)};

/* -- take */

static const char *refuse_parameter(url_options *url, const char *name, const char *why) {
    snprintf(url->error, sizeof(url->error), "%s: %s", name, why);
    return url->error;
}

static const char *refuse_range(char text[OPTION_ERROR_SIZE], const row *row) {
    if (row->kind == WORD)
        snprintf(text, OPTION_ERROR_SIZE, "%s is none of the known", row->name);
    else
        snprintf(text, OPTION_ERROR_SIZE, "%s: not %lu to %lu", row->name, (unsigned long)row->min,
                 (unsigned long)row->max);
    return text;
}

static bool is_in_range(const row *row, int64_t value) {
    return value >= row->min && value <= row->max;
}

static const char *read_number_value(url_options *url, const row *row, void *field,
                                     const char *value) {
    int64_t number = text_read_number(value, strlen(value));
    if (!is_in_range(row, number)) return refuse_range(url->error, row);
    if (row->kind == NUMBER)
        *(uint32_t *)field = (uint32_t)number;
    else
        *(size_t *)field = (size_t)number;
    return NULL;
}

static const char *read_word(url_options *url, const row *row, void *field, const char *value) {
    char known[OPTION_ERROR_SIZE / 2] = "not one of";
    for (uint32_t i = 0; i <= row->max; i++) {
        size_t length = strlen(known);
        if (strcmp(value, row->words[i]) == 0) {
            *(int *)field = (int)i;
            return NULL;
        }
        snprintf(known + length, sizeof(known) - length, " %s", row->words[i]);
    }
    return refuse_parameter(url, row->name, known);
}

static const char *keep_text(url_options *url, const row *row, const char **field,
                             const char *value) {
    size_t size = strlen(value) + 1;
    if (size == 1) return refuse_parameter(url, row->name, "the value is missing");
    if (size > sizeof(url->texts) - url->texts_used)
        return refuse_parameter(url, row->name, "too long");
    *field = memcpy(url->texts + url->texts_used, value, size);
    url->texts_used += size;
    return NULL;
}

static bool is_same_value(const row *row, const void *one, const void *other) {
    if (row->kind != TEXT) return memcmp(one, other, sizes[row->kind]) == 0;
    return strcmp(*(const char *const *)one, *(const char *const *)other) == 0;
}

static const char *read_value(url_options *url, const row *row, void *field, const char *value) {
    if (row->kind == WORD) return read_word(url, row, field, value);
    if (row->kind == TEXT) return keep_text(url, row, field, value);
    return read_number_value(url, row, field, value);
}

static void *field_of(url_options *url, const row *row) {
    return (row->is_lock ? (char *)&url->lock : (char *)&url->client) + row->offset;
}

const char *url_options_take(void *arg, const char *name, const char *value) {
    url_options *url = arg;
    for (int i = 0; i < ROWS; i++) {
        const row *row = &rows[i];
        if (strcmp(name, row->name) != 0) continue;
        if (value == NULL) return refuse_parameter(url, name, "badly encoded");
        union {
            uint32_t number;
            size_t count;
            int word;
            const char *text;
        } got = {.count = 0};
        const char *wrong = read_value(url, row, &got, value);
        if (wrong != NULL) return wrong;
        if (url->is_given[i] && !is_same_value(row, field_of(url, row), &got))
            return refuse_parameter(url, name, "given twice, with different values");
        memcpy(field_of(url, row), &got, sizes[row->kind]);
        url->is_given[i] = true;
        return NULL;
    }
    snprintf(url->error, sizeof(url->error), "there is no parameter %.40s", name);
    return url->error;
}

/* -- fill and check */

void options_fill(void *options, const void *defaults, bool is_lock) {
    static const char zeros[sizeof(void *)];
    for (int i = 0; i < ROWS; i++) {
        size_t offset = rows[i].offset, size = sizes[rows[i].kind];
        if (rows[i].is_lock != is_lock || memcmp((char *)options + offset, zeros, size) != 0)
            continue;
        memcpy((char *)options + offset, (const char *)defaults + offset, size);
    }
}

const char *options_check(const void *options, bool is_lock, char text[OPTION_ERROR_SIZE]) {
    for (int i = 0; i < ROWS; i++) {
        const row *row = &rows[i];
        const char *field = (const char *)options + row->offset;
        if (row->is_lock != is_lock) continue;
        int64_t number = row->kind == NUMBER  ? *(const uint32_t *)field
                         : row->kind == COUNT ? (int64_t) * (const size_t *)field
                         : row->kind == WORD  ? *(const int *)field
                                              : 0;
        if (number != 0 && !is_in_range(row, number)) return refuse_range(text, row);
    }
    return NULL;
}
