/* SPDX-License-Identifier: BSD-3-Clause */
/* client.h - shared by all locks of a client. */
#pragma once
#include "base/token.h"
#include "handlers/access_log.h"
#include "handlers/hotspot.h"
#include "handlers/waiting.h"
#include "lease/name_watch.h"
#include "lease/renewal.h"

/* As in dlock_client_stats. */
typedef struct counters {
    atomic_uint_least64_t acquired, busy, timeouts, queue_full, failures, released, lost;
} counters;

enum { CLIENT_SCOPE_BUCKETS = 64 };

struct dlock_client {
    /* The program has a share until dlock_client_free(); so have each lock, and a dispatch that is
     * under way. The end of the last share ends the client. */
    atomic_size_t shares;
    loop *loop;
    tls_context *tls; /* NULL: no rediss:// */
    deployment *deployment;
    bool has_quorum; /* Redlock: a majority of the servers is enough */
    renewal renewal;
    notifier notifier;
    diagnostics diagnostics;
    notice diagnosed; /* there are lines to tell */
    hotspot hotspot;
    waiting waiting;
    access_log log;
    log_file *log_file; /* NULL: none */
    /* Guarded commands go past all handlers; a call without hot names, past theirs. */
    chain *chain, *cold_chain, *guarded_chain;
    token_source tokens;
    bool has_handlers; /* of the program: these may set tokens */
    char *prefix;
    char name[TOKEN_MAX]; /* of connections: host:pid:owner, as tokens begin; "": there is none */
    list scopes[CLIENT_SCOPE_BUCKETS]; /* of scope.c: handles of open scopes */
    dlock_lock_options lock_defaults;  /* with a copy of the owner */
    atomic_uint_least64_t command_count;
    counters counters;
};

static inline void client_share(dlock_client *client) {
    atomic_fetch_add(&client->shares, 1);
}

/* Gives a share back; with the last one the client ends. Not locked. */
void client_unshare(dlock_client *client);

/* False: no thread to be had. Not locked. */
bool client_start_background(dlock_client *client);

/* A call with a handle that is NULL. */
#define NO_LOCK   "no lock is given"
#define NO_CLIENT "no client is given"

/* In status.c. "" for DLOCK_OK; else why, or the meaning of the status if why is "". */
const char *error_words(dlock_status status, const char *why);
/* Sets the text of dlock_error() to these words. The result is the status. */
dlock_status error_set(dlock_status status, const char *why);

/* The name behind the prefix, to be freed. NULL: no memory. */
char *client_full_name(const dlock_client *client, const char *name);
