/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal_world.h - locks that are kept, and a deployment that does what the test says; see also
 * fake_loop.h. */
#ifndef DLOCK_RENEWAL_WORLD_H
#define DLOCK_RENEWAL_WORLD_H

#include "fake_loop.h"

#define own_connection_close fake_connection_close
#define withdrawals_add      fake_withdrawals_add
#define notifier_look        fake_notifier_look
#define renewal_init         tested_renewal_init
#define renewal_begin        tested_renewal_begin
#define renewal_end          tested_renewal_end
#define renewal_pause        tested_renewal_pause
#define renewal_resume       tested_renewal_resume

#include "lease/renewal.c"
#include "unit.h"

enum { LEASE_MS = 10000, EVERY_MS = 3000, IO_MS = 200, CONNECT_MS = 300 };
enum { LOCKS = 3000, FENCE = 77 };

typedef struct fake_own {
    own_connection own;
    bool is_closed;
} fake_own;

typedef struct lock {
    lease lease;
    attempt attempt;
    watched_lock watched;
    kept_lock kept;
    session session;
    fake_own connections[3];
    bool is_running, is_abandoned;
    int starts, told_sooner;
    int64_t started_us;
} lock;

static lock locks[LOCKS];
static renewal tested;
static int starts, withdrawals_added;

/* -- fakes */

static inline lock *lock_of(attempt *attempt) {
    return container_of(attempt, struct lock, attempt);
}

static inline void fake_start(deployment *deployment, attempt *attempt) {
    lock *lock = lock_of(attempt);
    CHECK(deployment->loop == &fake_loop);
    CHECK(!lock->is_running);
    lock->is_running = true;
    lock->is_abandoned = false;
    lock->starts++;
    lock->started_us = fake_loop.now_us;
    starts++;
}

static inline void fake_abandon(deployment *deployment, attempt *attempt) {
    (void)deployment;
    CHECK(lock_of(attempt)->is_running);
    lock_of(attempt)->is_running = false;
    lock_of(attempt)->is_abandoned = true;
}

void own_connection_close(own_connection *own) {
    if (own == NULL) return;
    CHECK(!container_of(own, fake_own, own)->is_closed);
    container_of(own, fake_own, own)->is_closed = true;
}

void withdrawals_add(deployment *deployment, const char *name, const char *token,
                     uint32_t lease_ms) {
    CHECK(deployment->loop == &fake_loop && lease_ms == 1);
    CHECK(strcmp(name, "name") == 0 && strcmp(token, "token") == 0);
    withdrawals_added++;
}

void notifier_look(watched_lock *watched) {
    container_of(watched, struct lock, watched)->told_sooner++;
}

/* -- what tests do */

static const deployment_table table = {.start = fake_start, .abandon = fake_abandon};
static deployment fake_deployment = {
    .table = &table, .loop = &fake_loop, .io_timeout_ms = IO_MS, .connect_timeout_ms = CONNECT_MS};

static inline void begin_world(void) {
    fake_loop_reset();
    memset(locks, 0, sizeof(locks));
    starts = withdrawals_added = 0;
    renewal_init(&tested, &fake_deployment);
}

static inline void init(lock *lock, const lease_rule *rule) {
    lease_init(&lock->lease, rule);
    lock->attempt.name = "name";
    static char token[] = "token";
    lock->attempt.token = token;
    lock->attempt.fence = FENCE;
    lock->kept =
        (kept_lock){.lease = &lock->lease, .attempt = &lock->attempt, .watched = &lock->watched};
}

static inline void init_renewed(lock *lock) {
    init(lock,
         &(lease_rule){.lease_ms = LEASE_MS, .renew_every_ms = EVERY_MS, .io_timeout_ms = IO_MS});
}

static inline void hold(lock *lock) {
    lease_begin(&lock->lease, fake_loop.now_us, lock->lease.rule.lease_ms, fake_loop.now_us);
    renewal_begin(&tested, &lock->kept);
}

static inline void make_session(lock *lock) {
    for (size_t i = 0; i < 3; i++) /* any address: nothing looks behind it */
        lock->connections[i].own.conn = (connection *)(void *)&lock->connections[i];
    lock->session.own = &lock->connections[0].own;
    lock->attempt.terms.session = &lock->session;
}

/* One lock that is renewed. */
static inline lock *begin(void) {
    begin_world();
    init_renewed(&locks[0]);
    hold(&locks[0]);
    return &locks[0];
}

static inline lock *begin_session(void) {
    begin_world();
    init_renewed(&locks[0]);
    make_session(&locks[0]);
    hold(&locks[0]);
    return &locks[0];
}

static inline void answer_with(lock *lock, dlock_status status, bool is_transient) {
    CHECK(lock->is_running);
    lock->is_running = false;
    lock->attempt.status = status;
    lock->attempt.is_transient = is_transient;
    lock->attempt.asked_us = lock->started_us;
    lock->attempt.on_done(&lock->attempt);
}

static inline void answer(lock *lock, dlock_status status) {
    answer_with(lock, status, true);
}

static inline void break_session(lock *lock) {
    own_connection *own = lock->session.own;
    own->conn = NULL;
    CHECK(own->on_broken != NULL);
    if (own->on_broken != NULL) own->on_broken(own->arg);
}

/* The deployment has moved the session to the next connection. */
static inline void grant_move(lock *lock, uint64_t fence) {
    lock->session.own = &lock->connections[1].own;
    lock->attempt.fence = fence;
    answer(lock, DLOCK_OK);
}

static inline dlock_state state_of(const lock *lock) {
    return lease_state(&lock->lease, fake_loop.now_us);
}

static inline void end(void) {
    for (int i = 0; i < LOCKS; i++) {
        renewal_end(&locks[i].kept);
        CHECK(!locks[i].is_running);
    }
    CHECK(heap_first(&fake_loop.timers) == NULL);
}

#endif
