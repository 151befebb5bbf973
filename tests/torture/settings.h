/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.h - the words of a worker's command line: NAME=VALUE, url= up to five times.
 * source=ADDRESS is for source.h at once. */
#pragma once

#include "dlock.h"
#include "update.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

enum { URLS_MAX = 5, NAMES_MAX = 4096 };

typedef struct settings {
    const char *urls[URLS_MAX];
    size_t url_count;
    const char *history; /* the file to be made */
    const char *kinds;   /* which kinds of locks, see visit.h; a letter twice: twice as often */
    unsigned process;    /* the number of this worker, part of every update's id */
    unsigned threads;
    unsigned names; /* of each kind */
    uint64_t seed;
    uint32_t io_timeout_ms;
    uint32_t lease_ms;
    uint32_t replicas;     /* min_replicas of the locks with an even number */
    const char *data_host; /* where the values of guarded locks are */
    int data_port;
    update_way way;
    int64_t work_us; /* a lock is held up to so long; 0: mostly for no time */
    uint64_t
        pause_every; /* one update of so many sleeps beyond the lease before it writes; 0: none */
} settings;

/* A session lives for so many leases: its timeout is the lease of the client. */
enum { SESSION_LEASES = 2 };

/* Reads the words, opens the history and watches for stalls. Ends the process with a line on stderr
 * if a word is wrong. */
void worker_begin(settings *settings, int argc, char **argv, unsigned threads_max);

/* Of the worker's only client. */
dlock_client_options worker_options(const settings *settings, dlock_event_fn on_event);

/* SIGTERM has come. */
extern volatile sig_atomic_t worker_is_over;
