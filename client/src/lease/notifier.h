/* SPDX-License-Identifier: BSD-3-Clause */
/* notifier.h - the loss notifier: tells the program that a lock is suspect or lost, in time, from
 * the background thread (without threads: from a dispatch). All functions: locked (loop.h). */
#pragma once
#include "lease/lease.h"
#include "net/loop.h"

/* Something to tell, inside the struct of its owner. {0} but for tell. */
typedef struct notice {
    /* Locked before and after; gives the mutex back while the program is told. The notice may be
     * gone after that. */
    void (*tell)(struct notice *notice);
    list_node node;
} notice;

typedef struct notifier {
    loop *loop;
    dlock_event_fn on_event; /* NULL: no lock is watched */
    void *event_arg;
    list pending, notices; /* notice: of locks, and others */
    const notice *told;    /* the program is being told of this; NULL: of nothing */
    pthread_t teller;      /* the thread that tells */
    wakeup was_told;
} notifier;

/* A lock, inside its handle. {0} but for the first two. */
typedef struct watched_lock {
    lease *lease; /* with a lead, and with links */
    const char *name;
    /* Private to notifier.c. */
    notifier *notifier;
    loop_timer timer;
    notice notice;
    dlock_state known; /* to the program; DLOCK_STATE_FREE: the lock is not watched */
} watched_lock;

/* Takes the background work of the loop, so call before the background thread starts, which uses
 * the notifier until loop_free(). */
void notifier_init(notifier *notifier, loop *loop, dlock_event_fn on_event, void *event_arg);

/* Calls tell once from the background thread, which runs; once, however often it is posted
 * before. */
void notifier_post(notifier *notifier, notice *notice);
/* Waits while the program is being told of this notice, unless called from there; the mutex is
 * given back meanwhile. */
void notifier_forget(notifier *notifier, notice *notice);

/* After lease_begin() and loop_start_background(). Each acquisition is told of anew. Does nothing
 * if the lock is watched already. The lease tells from now on what happens to it. */
void notifier_add(notifier *notifier, watched_lock *watched);
/* For the lease: it may end sooner than was known. */
void notifier_look(watched_lock *watched);
/* As notifier_forget(). Does nothing if the lock is not watched. */
void notifier_remove(watched_lock *watched);
