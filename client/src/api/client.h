/* SPDX-License-Identifier: BSD-3-Clause */
/* client.h - shared by all locks of a client. */
#pragma once
#include "base/token.h"
#include "handlers/access_log.h"
#include "handlers/hotspot.h"
#include "handlers/waiting.h"
#include "lease/hints.h"
#include "lease/renewal.h"

/* As in dlock_client_stats. */
typedef struct counters {
    atomic_uint_least64_t acquired, busy, timeouts, queue_full, failures, released, lost;
} counters;

enum { CLIENT_GUARD_BUCKETS = 64 };

struct dlock_client {
    loop *loop;
    tls_context *tls; /* NULL: no rediss:// */
    deployment *deployment;
    bool has_quorum; /* Redlock: a majority of the servers is enough */
    renewal renewal;
    tracking tracking;
    notifier notifier;
    hotspot hotspot;
    waiting waiting;
    access_log log;
    log_file *log_file;           /* NULL: none */
    chain *chain, *guarded_chain; /* of guarded commands: past all handlers */
    token_source tokens;
    bool has_handlers; /* of the program: these may set tokens */
    char *prefix;
    list guarded[CLIENT_GUARD_BUCKETS]; /* of guard.c: handles of open scopes */
    dlock_lock_options lock_defaults;   /* with a copy of the owner */
    atomic_uint_least64_t command_count;
    counters counters;
};

/* False: no thread to be had. Not locked. */
bool client_start_background(dlock_client *client);

/* In status.c. "" for DLOCK_OK; else why, or the meaning of the status if why is "". */
const char *error_words(dlock_status status, const char *why);
/* Sets the text of dlock_error() to these words. The result is the status. */
dlock_status error_set(dlock_status status, const char *why);

/* The name behind the prefix, to be freed. NULL: no memory. */
char *client_full_name(const dlock_client *client, const char *name);
