/* SPDX-License-Identifier: BSD-3-Clause */
/* hot_names.h - the names with a local lock, found by name. Names that were found by contention are
 * bounded in number, and the least recently used name makes room. All functions: locked
 * (loop.h). */
#pragma once
#include "base/list.h"
#include "base/token.h"
#include "dlock_spi.h"
#include "net/loop.h"
#include <stdatomic.h>

/* The lock as the service knows it. */
typedef struct hot_lock {
    char token[DLOCK_TOKEN_SIZE];
    uint64_t fence;       /* of the last thread; 0: the service has none */
    uint32_t fences_left; /* of the run that was reserved: for the threads that follow */
    int64_t asked_us;
    uint32_t lease_ms;     /* 0: an extension found the lock lost */
    uint32_t min_replicas; /* this many replicas acknowledged the lease */
    token_fate fate;       /* see deployment.h */
} hot_lock;

typedef struct hot_name {
    list_node node; /* in one of the two lists; in none: removed, so nobody can find the name */
    bool is_found;  /* by contention; else registered */

    /* In hotspot.c. Calls are queued only while the local lock is held. */
    bool is_held;        /* by a call or a handle: not freed */
    struct call *holder; /* of the handle that has the lock; NULL: a call is on its way, or none */
    loop_timer timer;    /* set while calls wait for a holder: the lease of the holder ends */
    list queue;          /* local_place of queued calls */
    uint32_t length;
    hot_lock lock;          /* of the holder */
    uint32_t hand_ons;      /* in a row */
    uint32_t last_hand_ons; /* in the row before, if there was one */
    bool has_row;
    char name[];
} hot_name;

typedef struct hot_names {
    void *root;    /* a tree of tsearch(3) */
    list lists[2]; /* registered names; found by contention: the least recently used first */
    size_t auto_count, auto_max;
    atomic_size_t count; /* of all; may be read without the mutex */
} hot_names;

/* auto_max: how many names may be found by contention. */
void hot_names_init(hot_names *names, size_t auto_max);
/* No local lock is held. All zero is fine. */
void hot_names_free(hot_names *names);

/* NULL: the name has no local lock. */
hot_name *hot_names_find(const hot_names *names, const char *name);

/* Registers the name (with the prefix) until removed. False: no memory. */
bool hot_names_add(hot_names *names, const char *name);
void hot_names_remove(hot_names *names, const char *name);

/* The name was contended. Best effort. */
void hot_names_note(hot_names *names, const char *name);

/* The name was used: other names make room first. */
void hot_names_touch(hot_names *names, hot_name *hot);

/* Nobody holds the local lock any more. A name that nobody can find is freed. */
void hot_name_let_go(hot_name *hot);
