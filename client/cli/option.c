/* SPDX-License-Identifier: BSD-3-Clause */
/* option.c - see option.h.
 *
 *   rows      one option each. To add an option: a field in request.h, a row here
 *   look-up   by the key of a file, and by the value of getopt_long(3)
 *   strings   that live as long as the program: linked, so that LeakSanitizer finds none
 *   values    from text to the field of the request
 *
 * Options that only choose how a lock is held (--session, --shared, --min-replicas) stand
 * together. */
#include "option.h"

#include "complain.h"
#include "text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(request, field)

enum { TAKING = FOR_RUN | FOR_ACQUIRE, WAITING = TAKING | FOR_WAIT, LONG_VALUE = 256 };

static const option_row rows[] = {
    {"wait", 'w', "TIME", WAITING, OPTION_PATIENCE, AT(wait_ms),
     "how long to wait, or forever; default 10m"},
    {"nonblock", 'n', NULL, WAITING, OPTION_FLAG, AT(is_tried_once), "try once, do not wait"},
    {"lease", 'l', "TIME", TAKING | FOR_EXTEND, OPTION_DURATION, AT(lease_ms),
     "lifetime without renewal; default 30s"},
    {"session", 's', NULL, FOR_RUN, OPTION_FLAG, AT(is_session),
     "the lock also ends when the connection ends"},
    {"shared", 0, NULL, TAKING, OPTION_FLAG, AT(is_shared),
     "share the lock with other shared holders"},
    {"slots", 0, "N", TAKING, OPTION_NUMBER, AT(slots), "share the lock, with at most N holders"},
    {"min-replicas", 0, "N", TAKING, OPTION_NUMBER, AT(min_replicas),
     "how many replicas must have the lock"},
    {"at-least", 0, "TIME", FOR_RUN, OPTION_DURATION, AT(at_least_ms),
     "keep the lock at least this long"},
    {"grace", 0, "TIME", FOR_RUN, OPTION_DURATION, AT(grace_ms),
     "SIGTERM to SIGKILL; default lease/6, at most 5s"},
    {"pass-url", 0, NULL, FOR_RUN, OPTION_FLAG, AT(is_url_passed),
     "DLOCK_URL of the command has the passwords too"},
    {"conflict-exit-code", 'E', "N", WAITING, OPTION_NUMBER, AT(busy_code),
     "exit code if another holds the lock; default 1"},
    {"verbose", 'v', NULL, WAITING, OPTION_FLAG, AT(is_verbose),
     "print who holds the lock, and why the wait ended"},
    {"quiet", 'q', NULL, WAITING, OPTION_FLAG, AT(is_quiet),
     "do not print that the wait has ended"},
    {"force", 'f', NULL, FOR_RELEASE, OPTION_FLAG_ONCE, AT(is_forced),
     "take the lock from its holder, without a token"},
    {"yes", 'y', NULL, FOR_RELEASE, OPTION_FLAG_ONCE, AT(is_sure), "with --force: do not ask"},
    {"held-longer", 0, "TIME", FOR_LIST | FOR_TOP, OPTION_DURATION, AT(held_longer_ms),
     "only locks that are held for longer"},
    {"waiters", 0, NULL, FOR_LIST | FOR_TOP, OPTION_FLAG, AT(is_waited_for),
     "only locks with waiters"},
    {"names", 0, NULL, FOR_LIST, OPTION_FLAG, AT(is_names_only), "print only names, one per line"},
    {"sort", 0, "KEY", FOR_TOP, OPTION_TEXT, AT(sort), "waiters (default), age, ttl or name"},
    {"interval", 'i', "TIME", FOR_TOP, OPTION_DURATION, AT(interval_ms),
     "time between two refreshes; default 1s"},
    {"rounds", 'r', "N", FOR_TOP | FOR_WATCH, OPTION_NUMBER, AT(rounds),
     "end after this many refreshes or lines"},
    {"busiest", 'b', "N", FOR_METRICS, OPTION_NUMBER, AT(busiest),
     "name the N locks with most waiters; default 10"},
    {"output", 'o', "FILE", FOR_METRICS, OPTION_TEXT, AT(output),
     "replace the file in one step, for node_exporter"},
    {"format", 0, "F", FOR_METRICS, OPTION_TEXT, AT(format),
     "openmetrics or prometheus; see dlock(1)"},
    {"http", 0, NULL, FOR_METRICS, OPTION_FLAG, AT(is_http),
     "reply to one HTTP request, stdin to stdout"},
    {"threads", 't', "N", FOR_BENCH, OPTION_NUMBER, AT(threads),
     "how many threads want the hot lock; default 8"},
    {"duration", 'd', "TIME", FOR_BENCH, OPTION_DURATION, AT(duration_ms),
     "time for each measurement; default 3s"},
    {"json", 'j', NULL, FOR_ALL & ~(unsigned)(FOR_RUN | FOR_METRICS), OPTION_FLAG, AT(is_json),
     "print JSON"},
    {"url", 'u', "URL", FOR_ALL, OPTION_URL, AT(urls),
     "the server; default redis://127.0.0.1:6379"},
    {"prefix", 0, "TEXT", FOR_ALL, OPTION_TEXT, AT(prefix), "is put before every name"},
    {"password-file", 0, "FILE", FOR_ALL, OPTION_TEXT, AT(password_file),
     "the first line of the file is the password"},
    {"tls-ca-file", 0, "FILE", FOR_ALL, OPTION_TEXT, AT(tls_ca_file),
     "rediss://: the authorities that sign servers"},
    {"tls-cert-file", 0, "FILE", FOR_ALL, OPTION_TEXT, AT(tls_cert_file),
     "the certificate of the client"},
    {"tls-key-file", 0, "FILE", FOR_ALL, OPTION_TEXT, AT(tls_key_file),
     "the key of that certificate"},
    {"connect-timeout", 0, "TIME", FOR_ALL, OPTION_DURATION, AT(connect_timeout_ms),
     "time to connect; default 1s"},
    {"io-timeout", 0, "TIME", FOR_ALL, OPTION_DURATION, AT(io_timeout_ms),
     "time for the reply to one command; default 1s"},
    {"password", 0, NULL, 0, OPTION_TEXT, AT(password), NULL},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Room for --help and the end of the list, and for two characters of each letter. */
_Static_assert(ROWS + 2 <= OPTION_ROWS_MAX, "option.h has too little room");

/* -- look-up */

const option_row *option_of_key(const char *key) {
    for (int i = 0; i < ROWS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s", rows[i].name);
        for (char *c = name; *c != '\0'; c++)
            if (*c == '-') *c = '_';
        if (strcmp(name, key) == 0) return &rows[i];
    }
    return NULL;
}

void option_list(unsigned bit, struct option longs[OPTION_ROWS_MAX], char shorts[OPTION_ROWS_MAX]) {
    size_t length = 0;
    int count = 0;
    if (bit == FOR_RUN) shorts[length++] = '+'; /* the command has options of its own */
    shorts[length++] = 'h';
    for (int i = 0; i < ROWS; i++) {
        if ((rows[i].commands & bit) == 0) continue;
        int has_value = rows[i].value != NULL ? required_argument : no_argument;
        longs[count++] = (struct option){rows[i].name, has_value, NULL, LONG_VALUE + i};
        if (rows[i].letter == 0) continue;
        shorts[length++] = rows[i].letter;
        if (has_value) shorts[length++] = ':';
    }
    longs[count++] = (struct option){"help", no_argument, NULL, 'h'};
    longs[count] = (struct option){0};
    shorts[length] = '\0';
}

const option_row *option_of_value(int value, unsigned bit) {
    if (value >= LONG_VALUE) return &rows[value - LONG_VALUE];
    for (int i = 0; i < ROWS; i++)
        if (rows[i].letter == value && (rows[i].commands & bit) != 0) return &rows[i];
    return NULL;
}

void option_show_help(unsigned bit) {
    for (int i = 0; i < ROWS; i++) {
        const option_row *row = &rows[i];
        if ((row->commands & bit) == 0) continue;
        char words[40];
        snprintf(words, sizeof(words), "%c%c%c --%s%s%s", row->letter ? '-' : ' ',
                 row->letter ? row->letter : ' ', row->letter ? ',' : ' ', row->name,
                 row->value ? " " : "", row->value ? row->value : "");
        printf("  %-29s %s\n", words, row->help);
    }
    printf("  -h, --help%19s show this\n", "");
}

/* -- strings */

typedef struct kept {
    struct kept *next;
    char text[];
} kept;

static kept *last;

char *keep_room(size_t size) {
    kept *made = malloc(sizeof(*made) + size);
    if (made == NULL) {
        complain("no memory");
        exit(EXIT_CODE_NO_RESOURCES);
    }
    made->next = last;
    last = made;
    return made->text;
}

char *keep(const char *text) {
    size_t size = strlen(text) + 1;
    return memcpy(keep_room(size), text, size);
}

/* -- values */

static bool set_number(const char *text, int64_t *field) {
    char *end;
    long number = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number > INT32_MAX) return false;
    *field = number;
    return true;
}

/* One text may have several URLs, with blanks between them. */
static bool add_urls(request *request, const char *text) {
    char *rest = NULL;
    for (char *url = strtok_r(keep(text), " \t", &rest); url != NULL;
         url = strtok_r(NULL, " \t", &rest)) {
        if (request->url_count == REQUEST_URLS_MAX) return false;
        request->urls[request->url_count++] = url;
    }
    return request->url_count > 0;
}

bool option_set(request *request, const option_row *row, const char *text) {
    void *field = (char *)request + row->offset;
    switch (row->kind) {
    case OPTION_FLAG:
    case OPTION_FLAG_ONCE:
        *(bool *)field = strcmp(text, "yes") == 0;
        return *(bool *)field || strcmp(text, "no") == 0;
    case OPTION_TEXT:
        *(const char **)field = text;
        return true;
    case OPTION_NUMBER:
        return set_number(text, field);
    case OPTION_PATIENCE:
        request->is_tried_once = false; /* of --wait and --nonblock the later one counts */
        if (strcmp(text, "forever") != 0) return duration_parse(text, field);
        *(int64_t *)field = DLOCK_WAIT_FOREVER;
        return true;
    case OPTION_DURATION:
        return duration_parse(text, field);
    case OPTION_URL:
        return add_urls(request, text);
    }
    return false;
}

const char *option_describe(const option_row *row) {
    switch (row->kind) {
    case OPTION_FLAG:
        return "yes or no";
    case OPTION_FLAG_ONCE:
        return "allowed in a file, only on the command line";
    case OPTION_NUMBER:
        return "a number from 0 to 2147483647";
    case OPTION_DURATION:
        return "a time such as 500ms, 5s or 2m";
    case OPTION_PATIENCE:
        return "a time such as 500ms, 5s or 2m, or forever";
    case OPTION_URL:
        return "1 to 15 URLs";
    case OPTION_TEXT:
        break;
    }
    return "text";
}
