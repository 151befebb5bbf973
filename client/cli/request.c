/* SPDX-License-Identifier: BSD-3-Clause */
/* request.c - see request.h.
 *
 *   read    the command line first: --help and mistakes need no file, and a URL with a password
 *           disappears from the list of processes at once
 *   files   lines "key = value", empty lines, and comments that begin with #
 *   apply   defaults, files, DLOCK_URL, options, each over the one before. The first URL of a
 *           source replaces those of earlier sources
 *   check   values that do not go together, and the number of words */
#include "request.h"

#include "complain.h"
#include "option.h"
#include "url.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEM_FILE "/etc/dlock/config"

/* A wait has a limit unless the user wants none: jobs that wait for ever behind a holder that hangs
 * would pile up unnoticed. */
enum { WAIT_MS = 10 * 60 * 1000, WAIT_NOT_GIVEN = -2, GIVEN_MAX = 64, PATH_SIZE = 4096 };
_Static_assert(WAIT_NOT_GIVEN != DLOCK_WAIT_FOREVER, "both have to be known");

/* An option on the command line. */
typedef struct given {
    const option_row *row;
    const char *text;
} given;

/* A source of settings. */
typedef struct source {
    request *request;
    bool has_url;
} source;

static bool set(source *source, const option_row *row, const char *text) {
    bool is_url = row->kind == OPTION_URL;
    if (is_url && !source->has_url) source->request->url_count = 0;
    source->has_url = source->has_url || is_url;
    return option_set(source->request, row, text);
}

/* -- the command line */

static void show_help(const subcommand *subcommand) {
    printf("usage: dlock %s [option...]%s%s\n%s\n\n", subcommand->name,
           subcommand->synopsis[0] == '\0' ? "" : " ", subcommand->synopsis, subcommand->summary);
    option_show_help(subcommand->bit);
    if (subcommand->note != NULL) printf("\n%s\n", subcommand->note);
    printf("\nThe manual is dlock(1).\n");
}

/* False: *code is the exit code. */
static bool read_options(given givens[GIVEN_MAX], int *count, const subcommand *subcommand,
                         int argc, char **argv, int *code) {
    struct option longs[OPTION_ROWS_MAX];
    char shorts[OPTION_ROWS_MAX];
    option_list(subcommand->bit, longs, shorts);
    int value;
    *count = 0;
    while ((value = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const option_row *row = option_of_value(value, subcommand->bit);
        if (value == 'h') show_help(subcommand);
        *code = value == 'h' ? EXIT_CODE_OK : EXIT_CODE_USAGE;
        if (row != NULL && *count == GIVEN_MAX) complain("more than %d options", GIVEN_MAX);
        if (row == NULL || *count == GIVEN_MAX) return false;
        const char *text = optarg == NULL ? "yes" : optarg;
        if (row->kind == OPTION_URL) text = secret_take(optarg);
        givens[(*count)++] = (given){row, text};
    }
    return true;
}

/* -- configuration files */

/* False: there is no home. */
static bool find_user_file(char path[PATH_SIZE]) {
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int length = PATH_SIZE;
    if (base != NULL && base[0] == '/') /* XDG says that relative paths are ignored */
        length = snprintf(path, PATH_SIZE, "%s/dlock/config", base);
    else if (home != NULL && home[0] != '\0')
        length = snprintf(path, PATH_SIZE, "%s/.config/dlock/config", home);
    return length < PATH_SIZE;
}

static char *trim(char *text) {
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL)
        text[--length] = '\0';
    return text;
}

/* False: complained. Never shows a value, which may be a secret. */
static bool read_line(source *source, char *line, const char *path, int number, bool *has_secret) {
    char *key = trim(line), *equals = strchr(key, '=');
    if (key[0] == '\0' || key[0] == '#') return true;
    if (equals == NULL) {
        complain("%s, line %d: not of the form key = value", path, number);
        return false;
    }
    *equals = '\0';
    key = trim(key);
    const char *value = keep(trim(equals + 1));
    const option_row *row = option_of_key(key);
    if (strcmp(key, "password") == 0 || secret_is_in_text(value)) *has_secret = true;
    if (row != NULL && row->kind != OPTION_FLAG_ONCE && set(source, row, value)) return true;
    complain("%s, line %d: %s: not %s", path, number, key,
             row == NULL ? "a known key" : option_describe(row));
    return false;
}

/* A missing file is no mistake. A file that is there and cannot be read is one, as the tool would
 * then use another service than its users expect. False: complained. */
static bool read_file(request *request, const char *path, bool is_system) {
    source source = {.request = request};
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        if (errno == ENOENT || errno == ENOTDIR) return true;
        complain("%s: %s", path, strerror(errno));
        return false;
    }
    char *line = NULL;
    size_t size = 0;
    bool is_right = true, has_secret = false;
    for (int number = 1; is_right && getline(&line, &size, file) >= 0; number++)
        is_right = read_line(&source, line, path, number, &has_secret);
    if (is_right && !feof(file)) { /* a folder, for example */
        complain("%s: %s", path, strerror(errno));
        is_right = false;
    }
    if (has_secret) secret_warn_if_open(fileno(file), path, is_system);
    free(line);
    fclose(file);
    return is_right;
}

/* -- the sources */

static void set_defaults(request *request) {
    *request = (struct request){.connect_timeout_ms = 1000,
                                .io_timeout_ms = 1000,
                                .wait_ms = WAIT_NOT_GIVEN,
                                .lease_ms = 30000,
                                .grace_ms = -1,
                                .slots = -1,
                                .busy_code = EXIT_CODE_BUSY,
                                .sort = "waiters",
                                .interval_ms = 1000,
                                .busiest = 10,
                                .threads = 8,
                                .duration_ms = 3000};
}

static bool apply_files(request *request) {
    const char *system = getenv("DLOCK_SYSTEM_CONFIG");
    char path[PATH_SIZE];
    return read_file(request, system != NULL ? system : SYSTEM_FILE, true) &&
           (!find_user_file(path) || read_file(request, path, false));
}

static bool apply_environment(request *request) {
    source source = {.request = request};
    const char *url = getenv("DLOCK_URL");
    if (url == NULL || url[0] == '\0') return true;
    if (set(&source, option_of_key("url"), url)) return true;
    complain("DLOCK_URL needs 1 to 15 URLs");
    return false;
}

static bool is_given(const char *name, const given givens[], int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(givens[i].row->name, name) == 0) return true;
    return false;
}

/* URLs come first, so that their parameters do not go over other options. */
static bool apply_options(request *request, const given givens[], int count, bool is_url) {
    source source = {.request = request};
    for (int i = 0; i < count; i++) {
        if ((givens[i].row->kind == OPTION_URL) != is_url) continue;
        if (set(&source, givens[i].row, givens[i].text)) continue;
        complain("--%s needs %s", givens[i].row->name, option_describe(givens[i].row));
        return false;
    }
    return true;
}

/* -- checks */

static const char *find_lease_mistake(const request *request) {
    if (request->lease_ms < 100) return "--lease, or lease_ms in the URL, is less than 100ms";
    if (request->lease_ms > UINT32_MAX) return "--lease is more than 49 days";
    return NULL;
}

static const char *find_run_mistake(const request *request) {
    if (request->at_least_ms > UINT32_MAX) return "--at-least is more than 49 days";
    if (request->at_least_ms > 0 && (request->is_session || request->is_session_by_url))
        return "--at-least does not go with --session, which ends with the process";
    if (request->grace_ms > request->lease_ms / 2) return "--grace is more than half of --lease";
    return NULL;
}

static const char *find_acquire_mistake(const request *request) {
    if (!request->is_session_by_url) return NULL;
    return "session=yes in the URL: the lock would end with this command";
}

static const char *find_slots_mistake(const request *request) {
    bool is_wrong = request->slots == 0 || request->slots > INT32_MAX;
    return is_wrong ? "--slots is not 1 to 2147483647" : NULL;
}

static const char *find_wait_mistake(const request *request) {
    return request->busy_code > 255 ? "--conflict-exit-code is more than 255" : NULL;
}

static const char *find_top_mistake(const request *request) {
    return request->interval_ms < 50 ? "--interval is less than 50ms" : NULL;
}

static const char *find_bench_mistake(const request *request) {
    if (request->threads < 1 || request->threads > 1000) return "--threads is not 1 to 1000";
    return request->duration_ms < 100 ? "--duration is less than 100ms" : NULL;
}

static const char *find_metrics_mistake(const request *request) {
    bool is_wrong = request->is_http && request->output != NULL;
    return is_wrong ? "--http does not go with --output" : NULL;
}

/* Only the subcommands that use a value complain about it: files and URLs are for all of them. */
static const struct rule {
    unsigned commands;
    const char *(*find_mistake)(const request *request);
} rules[] = {{FOR_RUN | FOR_ACQUIRE | FOR_EXTEND, find_lease_mistake},
             {FOR_RUN, find_run_mistake},
             {FOR_ACQUIRE, find_acquire_mistake},
             {FOR_RUN | FOR_ACQUIRE, find_slots_mistake},
             {FOR_RUN | FOR_ACQUIRE | FOR_WAIT, find_wait_mistake},
             {FOR_TOP, find_top_mistake},
             {FOR_BENCH, find_bench_mistake},
             {FOR_METRICS, find_metrics_mistake}};

static const char *find_mistake(const request *request, unsigned bit) {
    const char *mistake = NULL;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && mistake == NULL; i++)
        if ((rules[i].commands & bit) != 0) mistake = rules[i].find_mistake(request);
    return mistake;
}

static bool check(const request *request, const subcommand *subcommand) {
    const char *mistake = find_mistake(request, subcommand->bit);
    int words = request->word_count, most = subcommand->words_max;
    if (mistake != NULL) {
        complain("%s", mistake);
        return false;
    }
    if (words >= subcommand->words_min && (most < 0 || words <= most)) return true;
    complain("usage: dlock %s [option...]%s%s; see dlock %s --help", subcommand->name,
             subcommand->synopsis[0] != '\0' ? " " : "", subcommand->synopsis, subcommand->name);
    return false;
}

bool request_read(request *request, const subcommand *subcommand, int argc, char **argv,
                  int *code) {
    static char name[] = "dlock"; /* for the complaints of getopt_long(3) */
    given givens[GIVEN_MAX];
    int count;
    argv[0] = name;
    if (!read_options(givens, &count, subcommand, argc, argv, code)) return false;
    set_defaults(request);
    request->is_http = is_given("http", givens, count);
    *code = EXIT_CODE_CONFIG;
    if (!apply_files(request) || !apply_environment(request)) return false;
    *code = EXIT_CODE_USAGE;
    if (!apply_options(request, givens, count, true)) return false;
    url_parameters_apply(request);
    if (!apply_options(request, givens, count, false)) return false;
    request->words = argv + optind;
    request->word_count = argc - optind;
    if (!check(request, subcommand)) return false;
    if (request->url_count == 0) request->urls[request->url_count++] = "redis://127.0.0.1:6379";
    request->is_patient = request->wait_ms >= 0;
    if (request->wait_ms == WAIT_NOT_GIVEN) request->wait_ms = WAIT_MS;
    if (request->is_tried_once) request->wait_ms = DLOCK_NO_WAIT;
    if (request->grace_ms < 0)
        request->grace_ms = request->lease_ms / 6 < 5000 ? request->lease_ms / 6 : 5000;
    *code = EXIT_CODE_CONFIG;
    return secret_fill_in(request->urls, request->url_count, request->password,
                          request->password_file);
}
