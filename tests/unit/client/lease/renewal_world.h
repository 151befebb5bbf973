/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal_world.h - locks that are kept, a deployment that does what the test says, and a session
 * whose events the test tells; see also fake_loop.h. */
#ifndef DLOCK_RENEWAL_WORLD_H
#define DLOCK_RENEWAL_WORLD_H

#include "fake_loop.h"

#define presence_leave   fake_presence_leave
#define presence_is_open fake_presence_is_open
#define withdrawals_add  fake_withdrawals_add
#define renewal_init     tested_renewal_init
#define renewal_begin    tested_renewal_begin
#define renewal_end      tested_renewal_end
#define renewal_pause    tested_renewal_pause
#define renewal_resume   tested_renewal_resume

#include "deployment/life.c"
#include "lease/renewal.c"
#include "unit.h"

enum { LEASE_MS = 10000, EVERY_MS = 3000, IO_MS = 200, CONNECT_MS = 300, SESSION_MS = 9000 };
enum { LOCKS = 3000, FENCE = 77 };

typedef struct lock {
    lease lease;
    lease_links links;
    attempt attempt;
    watched_lock watched;
    kept_lock kept;
    tie tie;
    bool is_running, is_abandoned;
    int starts, told_sooner;
    int64_t started_us;
} lock;

static lock locks[LOCKS];
static renewal tested;
static int starts, withdrawals_added;
static uint32_t withdrawn_for_ms;
static session_life *life; /* of the session */
static bool is_open;       /* has the session a connection? */

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

static inline struct presence *fake_presence(void) {
    return (struct presence *)(void *)&is_open; /* any address: nothing looks behind it */
}

void presence_leave(guest *guest) {
    guest->presence = NULL;
}

bool presence_is_open(const guest *guest) {
    CHECK(guest->presence != NULL);
    return is_open;
}

void withdrawals_add(deployment *deployment, const attempt *withdrawn_attempt, uint32_t lease_ms) {
    const char *name = withdrawn_attempt->name, *token = withdrawn_attempt->token;
    CHECK(deployment->loop == &fake_loop);
    withdrawn_for_ms = lease_ms;
    CHECK(strcmp(name, "name") == 0 && strcmp(token, "token") == 0);
    withdrawals_added++;
}

void notifier_look(watched_lock *watched) {
    container_of(watched, struct lock, watched)->told_sooner++;
}

/* -- what tests do */

static const deployment_table table = {.start = fake_start, .abandon = fake_abandon};
static deployment fake_deployment = {.table = &table,
                                     .loop = &fake_loop,
                                     .io_timeout_ms = IO_MS,
                                     .connect_timeout_ms = CONNECT_MS,
                                     .session_ms = SESSION_MS};

static inline void begin_world(void) {
    fake_loop_reset();
    memset(locks, 0, sizeof(locks));
    starts = withdrawals_added = 0;
    is_open = true;
    atomic_store(&fake_deployment.renewed, 0);
    life = life_begin(&fake_deployment, T0_US);
    renewal_init(&tested, &fake_deployment);
}

static inline void init(lock *lock, const lease_rule *rule) {
    lease_init(&lock->lease, rule);
    lease_link(&lock->lease, &lock->links);
    lock->links.watched = &lock->watched;
    lock->attempt.name = "name";
    static char token[] = "token";
    lock->attempt.token = token;
    lock->lease.fence = FENCE;
    lock->kept = (kept_lock){.lease = &lock->lease, .attempt = &lock->attempt};
}

static inline void init_renewed(lock *lock) {
    init(lock,
         &(lease_rule){.lease_ms = LEASE_MS, .renew_every_ms = EVERY_MS, .io_timeout_ms = IO_MS});
}

static inline void hold(lock *lock) {
    lease_begin(&lock->lease, fake_loop.now_us, lock->lease.rule.lease_ms, fake_loop.now_us);
    renewal_begin(&tested, &lock->kept);
}

/* The attempt that took the lock has tied it. */
static inline void tie_lock(lock *lock, bool is_endless, bool is_momentary) {
    lock->tie = (tie){.is_endless = is_endless,
                      .is_momentary = is_momentary,
                      .life = life_share(life),
                      .guest = {.table = &tie_table, .presence = fake_presence()}};
    lock->attempt.terms.tie = &lock->tie;
}

/* One lock that is renewed. */
static inline lock *begin(void) {
    begin_world();
    init_renewed(&locks[0]);
    hold(&locks[0]);
    return &locks[0];
}

/* One lock that lasts as long as the session. */
static inline lock *begin_endless(void) {
    begin_world();
    init(&locks[0], &(lease_rule){.lease_ms = SESSION_MS,
                                  .renew_every_ms = SESSION_MS / 3,
                                  .io_timeout_ms = IO_MS});
    tie_lock(&locks[0], true, false);
    hold(&locks[0]);
    return &locks[0];
}

/* One lock that is renewed, and ends with the connection of the session as well. */
static inline lock *begin_momentary(void) {
    begin_world();
    init_renewed(&locks[0]);
    tie_lock(&locks[0], false, true);
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

/* -- what the session tells */

static inline const guest_table *table_of(lock *lock) {
    return lock->tie.guest.table;
}

static inline void begin_life(void) {
    life_free(life);
    life = life_begin(&fake_deployment, fake_loop.now_us);
}

static inline void beat(void) {
    if (!life_renew(life, fake_loop.now_us)) begin_life();
}

static inline void end_connection(lock *lock) {
    if (table_of(lock)->on_away != NULL) table_of(lock)->on_away(&lock->tie.guest);
}

static inline void open_again(lock *lock, bool is_new) {
    if (is_new)
        begin_life();
    else
        beat();
    table_of(lock)->on_open(&lock->tie.guest, is_new);
}

static inline void tell_lost(lock *lock, const char *why) {
    reply text = {.kind = REPLY_TEXT, .text = why, .length = strlen(why)};
    session_event event = {.kind = EVENT_LOST, .why = &text};
    table_of(lock)->on_event(&lock->tie.guest, &event);
}

/* The attempt has tied the lock again; as routed.c leaves the guest. */
static inline void grant_tie(lock *lock, uint64_t fence) {
    lock->tie.guest.presence = fake_presence();
    lock->tie.guest.table = &tie_table;
    life_free(lock->tie.life);
    lock->tie.life = life_share(life);
    lock->attempt.fence = fence;
    answer(lock, DLOCK_OK);
}

static inline dlock_state state_of(const lock *lock) {
    return lease_state(&lock->lease, fake_loop.now_us);
}

static inline void end(void) {
    for (int i = 0; i < LOCKS; i++) {
        renewal_end(&locks[i].kept);
        lease_end(&locks[i].lease);
        life_free(locks[i].tie.life);
        CHECK(!locks[i].is_running);
    }
    life_free(life);
    CHECK(heap_first(&fake_loop.timers) == NULL);
}

#endif
