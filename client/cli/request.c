/* SPDX-License-Identifier: BSD-3-Clause */
/* request.c - see request.h. */
#include "request.h"

#include "complain.h"
#include "config_file.h"
#include "duration.h"
#include "keep.h"
#include "secret.h"
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { FLAG, TEXT, NUMBER, DURATION, PATIENCE, URL } kind;

typedef struct row {
    const char *name;
    char letter; /* or 0 */
    const char *value;
    unsigned commands;
    kind is_a;
    size_t offset;
    const char *help;
} row;

#define AT(field) offsetof(request, field)

/* PATIENCE is a duration or "forever". */
static const row rows[] = {
    {"wait", 'w', "TIME", FOR_RUN | FOR_ACQUIRE | FOR_WAIT, PATIENCE, AT(wait_ms),
     "how long to wait; default forever"},
    {"nonblock", 'n', NULL, FOR_RUN | FOR_ACQUIRE | FOR_WAIT, FLAG, AT(is_tried_once),
     "try once, do not wait"},
    {"lease", 'l', "TIME", FOR_RUN | FOR_ACQUIRE | FOR_EXTEND, DURATION, AT(lease_ms),
     "how long the lock lives by itself; default 30s"},
    {"session", 's', NULL, FOR_RUN, FLAG, AT(is_session), "the lock also ends with our connection"},
    {"min-replicas", 0, "N", FOR_RUN | FOR_ACQUIRE, NUMBER, AT(min_replicas),
     "replicas that must have it before it counts"},
    {"grace", 0, "TIME", FOR_RUN, DURATION, AT(grace_ms),
     "from SIGTERM to SIGKILL; default lease / 6"},
    {"conflict-exit-code", 'E', "N", FOR_RUN | FOR_ACQUIRE | FOR_WAIT, NUMBER, AT(busy_code),
     "when it is held by another; default 1"},
    {"held-longer", 0, "TIME", FOR_LIST | FOR_TOP, DURATION, AT(held_longer_ms),
     "only those that are held for longer"},
    {"waiters", 0, NULL, FOR_LIST | FOR_TOP, FLAG, AT(is_waited_for),
     "only those that somebody waits for"},
    {"sort", 0, "KEY", FOR_TOP, TEXT, AT(sort), "waiters (default), age, ttl or name"},
    {"interval", 'i', "TIME", FOR_TOP, DURATION, AT(interval_ms), "between two looks; default 1s"},
    {"rounds", 'r', "N", FOR_TOP, NUMBER, AT(rounds), "end after so many looks"},
    {"threads", 't', "N", FOR_BENCH, NUMBER, AT(threads), "that want the hot lock; default 8"},
    {"duration", 'd', "TIME", FOR_BENCH, DURATION, AT(duration_ms), "of each scenario; default 3s"},
    {"json", 'j', NULL, FOR_ALL & ~(unsigned)FOR_RUN, FLAG, AT(is_json), "print JSON"},
    {"url", 'u', "URL", FOR_ALL, URL, AT(urls), "default redis://127.0.0.1:6379"},
    {"prefix", 0, "TEXT", FOR_ALL, TEXT, AT(prefix), "put before every name"},
    {"password-file", 0, "FILE", FOR_ALL, TEXT, AT(password_file),
     "its first line is the password"},
    {"tls-ca-file", 0, "FILE", FOR_ALL, TEXT, AT(tls_ca_file), "rediss://: who signs servers"},
    {"tls-cert-file", 0, "FILE", FOR_ALL, TEXT, AT(tls_cert_file), "our own certificate"},
    {"tls-key-file", 0, "FILE", FOR_ALL, TEXT, AT(tls_key_file), "and its key"},
    {"connect-timeout", 0, "TIME", FOR_ALL, DURATION, AT(connect_timeout_ms), "default 1s"},
    {"io-timeout", 0, "TIME", FOR_ALL, DURATION, AT(io_timeout_ms),
     "for the answer to one command; default 1s"},
    {"password", 0, NULL, 0, TEXT, AT(password), NULL}, /* only in the file */
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]), GIVEN_MAX = 64 };

/* -- values */

static bool set_number(const char *text, int64_t *to) {
    char *end;
    long number = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number > INT32_MAX) return false;
    *to = number;
    return true;
}

/* Several may be in one, with blanks between them. */
static bool add_urls(request *to, const char *text) {
    char *rest = NULL;
    for (char *each = strtok_r(keep(text), " \t", &rest); each != NULL;
         each = strtok_r(NULL, " \t", &rest)) {
        if (to->url_count == REQUEST_URLS_MAX) return false;
        to->urls[to->url_count++] = each;
    }
    return to->url_count > 0;
}

static bool set(request *to, const row *option, const char *text) {
    void *field = (char *)to + option->offset;
    switch (option->is_a) {
    case FLAG:
        *(bool *)field = strcmp(text, "yes") == 0;
        return *(bool *)field || strcmp(text, "no") == 0;
    case TEXT:
        *(const char **)field = text;
        return true;
    case NUMBER:
        return set_number(text, field);
    case PATIENCE:
        if (strcmp(text, "forever") == 0) {
            *(int64_t *)field = DLOCK_WAIT_FOREVER;
            return true;
        }
        return duration_parse(text, field);
    case DURATION:
        return duration_parse(text, field);
    case URL:
        return add_urls(to, text);
    }
    return false;
}

static const char *describe(kind wanted) {
    switch (wanted) {
    case FLAG:
        return "yes or no";
    case NUMBER:
        return "a number";
    case DURATION:
        return "a time such as 500ms, 5s or 2m";
    case PATIENCE:
        return "a time such as 500ms, 5s or 2m, or forever";
    case URL:
        return "a URL, or there are too many";
    case TEXT:
        break;
    }
    return "text";
}

/* -- the file */

static bool set_from_file(void *arg, const char *key, const char *value, const char **wrong) {
    for (int i = 0; i < ROWS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s", rows[i].name);
        for (char *c = name; *c != '\0'; c++)
            if (*c == '-') *c = '_';
        if (strcmp(name, key) != 0) continue;
        *wrong = describe(rows[i].is_a);
        return set(arg, &rows[i], value);
    }
    *wrong = "a known key";
    return false;
}

/* -- the command line */

typedef struct given {
    const row *option;
    const char *text;
} given;

static void show_help(const subcommand *of) {
    printf("usage: dlock %s [option...] %s\n%s\n\n", of->name, of->synopsis, of->summary);
    for (int i = 0; i < ROWS; i++) {
        const row *each = &rows[i];
        if ((each->commands & of->bit) == 0) continue;
        char words[40];
        snprintf(words, sizeof(words), "%c%c%c --%s%s%s", each->letter ? '-' : ' ',
                 each->letter ? each->letter : ' ', each->letter ? ',' : ' ', each->name,
                 each->value ? " " : "", each->value ? each->value : "");
        printf("  %-29s %s\n", words, each->help);
    }
    printf("  -h, --help%19s show this\n\nThe whole story is in dlock(1).\n", "");
}

/* Those of the subcommand, for getopt_long(3): its val is the number of the row. */
static void list_options(unsigned bit, struct option longs[ROWS + 2], char shorts[2 * ROWS + 3]) {
    size_t length = 0;
    int count = 0;
    shorts[length++] = '+';
    shorts[length++] = 'h';
    if (bit != FOR_RUN) length--, shorts[0] = 'h'; /* only a command has options of its own */
    for (int i = 0; i < ROWS; i++) {
        if ((rows[i].commands & bit) == 0) continue;
        int has_value = rows[i].value != NULL ? required_argument : no_argument;
        longs[count++] = (struct option){rows[i].name, has_value, NULL, 256 + i};
        if (rows[i].letter == 0) continue;
        shorts[length++] = rows[i].letter;
        if (has_value) shorts[length++] = ':';
    }
    longs[count++] = (struct option){"help", no_argument, NULL, 'h'};
    longs[count] = (struct option){0};
    shorts[length] = '\0';
}

static const row *find_row(int value, unsigned bit) {
    if (value >= 256) return &rows[value - 256];
    for (int i = 0; i < ROWS; i++)
        if (rows[i].letter == value && (rows[i].commands & bit) != 0) return &rows[i];
    return NULL;
}

/* What others could see in the list of processes is taken from there. */
static const char *take_url(char *argument) {
    const char *copy = keep(argument);
    if (strchr(argument, '@') != NULL) memset(argument, '*', strlen(argument));
    return copy;
}

/* False: *code is how to end. */
static bool read_options(given all[GIVEN_MAX], int *count, const subcommand *of, int argc,
                         char **argv, int *code) {
    struct option longs[ROWS + 2];
    char shorts[2 * ROWS + 3];
    list_options(of->bit, longs, shorts);
    int value;
    *count = 0;
    while ((value = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const row *option = find_row(value, of->bit);
        if (value == 'h') show_help(of);
        *code = value == 'h' ? EXIT_CODE_OK : EXIT_CODE_USAGE;
        if (option == NULL || *count == GIVEN_MAX) return false;
        const char *text = optarg == NULL ? "yes" : optarg;
        if (option->is_a == URL) text = take_url(optarg);
        all[(*count)++] = (given){option, text};
    }
    return true;
}

static bool apply_options(request *to, const given all[], int count) {
    bool has_url = false;
    for (int i = 0; i < count; i++) {
        bool is_url = all[i].option->is_a == URL;
        if (is_url && !has_url) to->url_count = 0;
        has_url = has_url || is_url;
        if (set(to, all[i].option, all[i].text)) continue;
        complain("--%s wants %s", all[i].option->name, describe(all[i].option->is_a));
        return false;
    }
    return true;
}

/* -- what does not go together */

static const char *find_mistake(const request *asked) {
    if (asked->lease_ms < 100) return "--lease is less than 100ms";
    if (asked->lease_ms > UINT32_MAX) return "--lease is more than 49 days";
    if (asked->grace_ms > asked->lease_ms / 2) return "--grace is more than half of --lease";
    if (asked->busy_code > 255) return "--conflict-exit-code is more than 255";
    if (asked->interval_ms < 50) return "--interval is less than 50ms";
    if (asked->threads < 1 || asked->threads > 1000) return "--threads is not 1 to 1000";
    if (asked->duration_ms < 100) return "--duration is less than 100ms";
    return NULL;
}

static void set_defaults(request *to) {
    *to = (request){.prefix = "",
                    .connect_timeout_ms = 1000,
                    .io_timeout_ms = 1000,
                    .wait_ms = DLOCK_WAIT_FOREVER,
                    .lease_ms = 30000,
                    .grace_ms = -1,
                    .busy_code = EXIT_CODE_BUSY,
                    .sort = "waiters",
                    .interval_ms = 1000,
                    .threads = 8,
                    .duration_ms = 3000};
}

static bool apply_environment(request *to) {
    const char *url = getenv("DLOCK_URL");
    if (url == NULL || url[0] == '\0') return true;
    to->url_count = 0;
    if (add_urls(to, url)) return true;
    complain("DLOCK_URL has no URL, or too many");
    return false;
}

bool request_read(request *to, const subcommand *of, int argc, char **argv, int *code) {
    static char name[] = "dlock"; /* who complains */
    given all[GIVEN_MAX];
    int count;
    argv[0] = name;
    if (!read_options(all, &count, of, argc, argv, code)) return false;
    set_defaults(to);
    *code = EXIT_CODE_CONFIG;
    if (!config_file_read(set_from_file, to) || !apply_environment(to)) return false;
    *code = EXIT_CODE_USAGE;
    if (!apply_options(to, all, count)) return false;
    const char *mistake = find_mistake(to);
    if (mistake != NULL) {
        complain("%s", mistake);
        return false;
    }
    if (to->url_count == 0) to->urls[to->url_count++] = "redis://127.0.0.1:6379";
    if (to->is_tried_once) to->wait_ms = DLOCK_NO_WAIT;
    if (to->grace_ms < 0) to->grace_ms = to->lease_ms / 6 < 5000 ? to->lease_ms / 6 : 5000;
    to->words = argv + optind;
    to->word_count = argc - optind;
    if (to->word_count < of->words_min || (of->words_max >= 0 && to->word_count > of->words_max)) {
        complain("usage: dlock %s [option...] %s; see dlock %s --help", of->name, of->synopsis,
                 of->name);
        return false;
    }
    *code = EXIT_CODE_CONFIG;
    return secret_fill_in(to->urls, to->url_count, to->password, to->password_file);
}
