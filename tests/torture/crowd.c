/* SPDX-License-Identifier: BSD-3-Clause */
/* crowd.c - a worker of the torture with thousands of waits and kept locks, and one thread.
 *
 *   crowd url=redis://... history=FILE threads=MEMBERS names=NAMES ...
 *
 * Each member wants one name, over and over: it starts an acquire that waits, keeps the lock for a
 * while by the session of the process, and gives it back. In the history a member is a thread. The
 * lease of the client is the timeout of its session (client/README.md, Sessions). */
#include "visit.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 4096, MS_NS = 1000000, HOLD_MS = 800, PAUSE_MS = 200, POLL_MS = 4 };
enum { WAIT_MS = 5000, LOOK_MS = 50 };

typedef enum member_state { IDLE, WAITING, HOLDING, RELEASING } member_state;

typedef struct member {
    dlock_lock *lock;
    uint32_t name;
    unsigned number;
    member_state state;
    int64_t due_ns;  /* IDLE: the next acquire; HOLDING: the release */
    int64_t look_ns; /* HOLDING: the next look at how long it is certain, as heartbeats go on */
} member;

static member members[MEMBERS_MAX];
static uint64_t dice;

static int64_t roll_ms(uint64_t most_ms) {
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (int64_t)((dice >> 11) % most_ms) * MS_NS;
}

static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg;
    uint32_t number = (uint32_t)strtoul(name + 2, NULL, 10); /* {k12} */
    if (event == DLOCK_EVENT_SUSPECT || event == DLOCK_EVENT_LOST)
        history_add(RECORD_EVENT, UINT16_MAX, (uint32_t)'k' << 16 | number, (int)why, event, 0);
}

static int64_t certain_until(const member *member) {
    int64_t now = now_ns(), remaining_ms = dlock_remaining_ms(member->lock);
    return remaining_ms > 0 ? now + remaining_ms * MS_NS : 0;
}

static void look(member *member) {
    history_add(RECORD_SAMPLE, member->number, member->name, 0, 0, certain_until(member));
    member->look_ns = now_ns() + (int64_t)LOOK_MS * MS_NS;
}

static void on_acquired(void *arg, dlock_lock *lock, dlock_status status) {
    member *member = arg;
    bool is_held = status == DLOCK_OK;
    if (is_held) visit_record_token(lock, member->number, member->name);
    history_add(RECORD_ACQUIRED, member->number, member->name, (int)status,
                is_held ? (int64_t)dlock_fence(lock) : 0, is_held ? certain_until(member) : 0);
    member->state = is_held ? HOLDING : IDLE;
    member->due_ns = now_ns() + roll_ms(is_held ? HOLD_MS : PAUSE_MS);
}

static void on_released(void *arg, dlock_lock *lock, dlock_status status) {
    member *member = arg;
    (void)lock;
    history_add(RECORD_RELEASED, member->number, member->name, (int)status, 0, 0);
    member->state = IDLE;
    member->due_ns = now_ns() + roll_ms(PAUSE_MS);
}

/* A call that cannot be started ends the worker: there is no memory. */
static void go_on(member *member) {
    dlock_status status;
    if (member->state == IDLE) {
        member->state = WAITING;
        history_add(RECORD_ACQUIRE, member->number, member->name, 0, WAIT_MS, 0);
        status = dlock_acquire_start(member->lock, WAIT_MS, on_acquired, member);
    } else {
        member->state = RELEASING;
        look(member);
        history_add(RECORD_RELEASE, member->number, member->name, 0, 0, 0);
        status = dlock_release_start(member->lock, on_released, member);
    }
    if (status == DLOCK_OK) return;
    fprintf(stderr, "crowd: %s\n", dlock_status_name(status));
    exit(1);
}

static dlock_client *make_client(const settings *settings) {
    dlock_client *client;
    dlock_client_options options = worker_options(settings, on_event);
    dlock_lock_options defaults = *options.lock_defaults;
    defaults.renew = DLOCK_YES;
    options.lock_defaults = &defaults;
    if (dlock_client_new(&client, &options) != DLOCK_OK) exit(1);
    return client;
}

/* Locks with even numbers ask for replicas, where there are some, and are extended one by one then;
 * the session keeps the others. */
static void make_members(const settings *settings, dlock_client *client) {
    dlock_lock_options with_replicas;
    dlock_lock_options_init(&with_replicas);
    with_replicas.min_replicas = settings->replicas;
    for (unsigned i = 0; i < settings->threads; i++) {
        char key[KEY_SIZE];
        unsigned number = i % settings->names;
        visit_key(key, 'k', number);
        members[i] = (member){.number = i,
                              .name = (uint32_t)'k' << 16 | number,
                              .due_ns = now_ns() + roll_ms(PAUSE_MS)};
        const dlock_lock_options *options = number % 2 == 0 ? &with_replicas : NULL;
        if (dlock_lock_new(&members[i].lock, client, key, options) != DLOCK_OK) exit(1);
    }
}

int main(int argc, char **argv) {
    settings settings;
    worker_begin(&settings, argc, argv, MEMBERS_MAX);
    dice = (settings.seed * 1000003 + settings.process + 1) * 0x9e3779b97f4a7c15u | 1;
    dlock_client *client = make_client(&settings);
    make_members(&settings, client);
    struct pollfd source = {.fd = dlock_client_fd(client), .events = POLLIN};
    while (!worker_is_over) {
        int64_t now = now_ns();
        for (unsigned i = 0; i < settings.threads; i++) {
            member *member = &members[i];
            if ((member->state == IDLE || member->state == HOLDING) && member->due_ns <= now)
                go_on(member);
            else if (member->state == HOLDING && member->look_ns <= now)
                look(member);
        }
        poll(&source, 1, POLL_MS);
        dlock_client_dispatch(client);
    }
    for (unsigned i = 0; i < settings.threads; i++) {
        if (members[i].state == HOLDING)
            history_add(RECORD_RELEASE, members[i].number, members[i].name, 0, 0, 0);
        dlock_lock_free(members[i].lock);
    }
    history_add(RECORD_END, 0, 0, 0, 0, 0);
    dlock_client_free(client);
    history_look();
    history_add(RECORD_FREED, 0, 0, 0, 0, 0);
    return 0;
}
