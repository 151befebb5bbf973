/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.h - the words of a worker's command line: NAME=VALUE, url= up to five times.
 * source=ADDRESS is for source.h at once. */
#pragma once

#include "update.h"

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

/* Ends the process with a line on stderr if a word is wrong. */
void settings_read(settings *settings, int argc, char **argv);
