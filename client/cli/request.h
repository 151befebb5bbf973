/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h - everything the user asked for, in one struct. Later sources go over earlier ones:
 *
 *   defaults, /etc/dlock/config, the user's configuration file, DLOCK_URL, parameters of the URLs,
 *   options
 *
 * A new option is a field here and a row in option.c: parsing, --help and the keys of the files are
 * the same rows. */
#ifndef DLOCK_CLI_REQUEST_H
#define DLOCK_CLI_REQUEST_H

#include <dlock.h>
#include <stdbool.h>
#include <stdint.h>

/* The subcommands, as bits: each option has the set of its subcommands. */
enum {
    FOR_RUN = 1,
    FOR_ACQUIRE = 2,
    FOR_RELEASE = 4,
    FOR_EXTEND = 8,
    FOR_WAIT = 16,
    FOR_INFO = 32,
    FOR_LIST = 64,
    FOR_TOP = 128,
    FOR_METRICS = 256,
    FOR_BENCH = 512,
    FOR_WATCH = 1024,
    FOR_SESSION = 2048,
    FOR_ALL = 4095
};

enum { REQUEST_URLS_MAX = 16 };

typedef struct request {
    const char *urls[REQUEST_URLS_MAX];
    int url_count;
    const char *prefix, *password, *password_file;
    const char *tls_ca_file, *tls_cert_file, *tls_key_file;
    int64_t connect_timeout_ms, io_timeout_ms;
    int64_t wait_ms, lease_ms, grace_ms, at_least_ms;
    int64_t min_replicas, busy_code;
    bool is_session, is_url_passed;
    bool is_tried_once;     /* until all sources are read; then wait_ms says so */
    bool is_patient;        /* a service that is not there at first does not end the wait */
    bool is_session_by_url; /* the library makes every lock a session */
    bool is_shared;
    int64_t slots; /* shared, at most so many; negative: not given */
    bool is_verbose, is_quiet, is_json;
    bool is_forced, is_sure; /* of release */
    int64_t held_longer_ms;  /* of list and top: the filter */
    bool is_waited_for;      /* likewise */
    bool is_names_only;      /* of list */
    const char *sort;
    int64_t interval_ms, rounds;
    int64_t busiest; /* of metrics */
    const char *output, *format;
    bool is_http; /* also if request_read() fails after it has read the options */
    int64_t threads, duration_ms;
    /* The words behind the options. */
    int word_count;
    char **words;
} request;

/* A subcommand: the table is in main.c. */
typedef struct subcommand {
    const char *name;
    unsigned bit;
    const char *synopsis; /* behind the options */
    const char *summary;
    const char *note;         /* at the end of --help, or NULL */
    int words_min, words_max; /* negative: any number */
    int (*run)(request *request);
} subcommand;

/* argv[0] is the name of the subcommand. False: *code is the exit code; 0 after --help. */
bool request_read(request *request, const subcommand *subcommand, int argc, char **argv, int *code);

#endif
