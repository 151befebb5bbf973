/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h - what the tool was asked to do: options, environment and configuration file in one
 * struct, an option before the environment, that before the file, that before the default.
 *
 * A new option is a field here and a row in request.c: parsing, --help and the keys of the file are
 * the same rows. */
#ifndef DLOCK_CLI_REQUEST_H
#define DLOCK_CLI_REQUEST_H

#include "exit_code.h"
#include <stdbool.h>
#include <stdint.h>

/* The subcommands, as bits: which of them has an option. */
enum {
    FOR_RUN = 1,
    FOR_ACQUIRE = 2,
    FOR_RELEASE = 4,
    FOR_EXTEND = 8,
    FOR_WAIT = 16,
    FOR_INFO = 32,
    FOR_LIST = 64,
    FOR_TOP = 128,
    FOR_BENCH = 256,
    FOR_ALL = 511
};

enum { REQUEST_URLS_MAX = 16 };

typedef struct request {
    const char *urls[REQUEST_URLS_MAX];
    int url_count;
    const char *prefix, *password, *password_file;
    const char *tls_ca_file, *tls_cert_file, *tls_key_file;
    int64_t connect_timeout_ms, io_timeout_ms;
    int64_t wait_ms, lease_ms, grace_ms;
    int64_t min_replicas, busy_code;
    bool is_session, is_tried_once, is_json;
    int64_t held_longer_ms; /* of list and top: only those */
    bool is_waited_for;
    const char *sort;
    int64_t interval_ms, rounds;
    int64_t threads, duration_ms;
    /* What is left of the command line. */
    int word_count;
    char **words;
} request;

/* A subcommand: the table is in main.c. */
typedef struct subcommand {
    const char *name;
    unsigned bit;
    const char *synopsis; /* behind the options */
    const char *summary;
    int words_min, words_max; /* negative: any number */
    int (*run)(request *asked);
} subcommand;

/* argv[0] is the name of the subcommand. False: *code is how to end; 0 after --help. */
bool request_read(request *to, const subcommand *of, int argc, char **argv, int *code);

#endif
