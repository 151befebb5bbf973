/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_world.h - a world in which time is faked, for the tests of waiting.c.
 *
 * The clock of the world moves only while somebody sleeps and while the backend takes its time. The
 * backend follows a script, one step for each request; the last step is repeated. It keeps the
 * contract of backend.h: it is never later than its limit, and a claim that was sent stays sent.
 * Like single.c it sets asked_us whatever comes back. */
#ifndef DLOCK_WAITING_WORLD_H
#define DLOCK_WAITING_WORLD_H

#include "deadline.h"
#include "unit.h"
#include "waiting.h"

#define START_US INT64_C(5000000)
#define MS       INT64_C(1000)
#define SECOND   INT64_C(1000000)
#define YEAR     (365 * 24 * 3600 * SECOND)

enum { STEPS_MAX = 8, SEEN_MAX = 64, CALLS_MAX = 3000000, FENCE = 7, LEASE_MS = 10000 };

typedef struct step {
    dlock_status status;
    int64_t takes_us;
    bool is_passing, is_sent;
} step;

typedef struct call {
    int64_t begun_us, limit_us;
    uint32_t wait_ms; /* of an acquire */
} call;

typedef struct script {
    step steps[STEPS_MAX];
    size_t count;
    size_t calls;
    call seen[SEEN_MAX]; /* the first of them */
    int64_t last_us;     /* when the last one began */
} script;

typedef struct sleep {
    int64_t at_us;
    int wake_fd;
} sleep;

static struct {
    int64_t now_us;
    uint64_t chance;
    bool is_chance_random;
    int64_t nap_us; /* 0, or how long a sleep is at most: then it returns early */
    size_t sleeps;
    sleep slept[SEEN_MAX];
    int64_t slept_last_until_us;

    script acquire, extend, release;
    uint32_t lease_ms;  /* that was asked for last */
    int64_t free_at_us; /* an acquire that ends after this time is granted */

    int64_t cancel_at_us;
    atomic_bool is_canceled;
} world;

/* -- the environment */

static inline void pass(int64_t until_us) {
    if (world.now_us < world.cancel_at_us && until_us >= world.cancel_at_us)
        atomic_store(&world.is_canceled, true);
    if (until_us > world.now_us) world.now_us = until_us;
}

static inline int64_t fake_now_us(const environment *self) {
    (void)self;
    return world.now_us;
}

static inline void fake_sleep_until(const environment *self, int64_t at_us, int wake_fd) {
    (void)self;
    if (world.sleeps < SEEN_MAX) world.slept[world.sleeps] = (sleep){at_us, wake_fd};
    world.sleeps++;
    world.slept_last_until_us = at_us;
    if (world.nap_us > 0) at_us = deadline_earlier(at_us, world.now_us + world.nap_us);
    /* A cancel wakes only who listens. */
    bool is_woken = wake_fd >= 0 && world.now_us < world.cancel_at_us;
    pass(is_woken ? deadline_earlier(at_us, world.cancel_at_us) : at_us);
}

static inline uint64_t fake_chance(const environment *self) {
    (void)self;
    return world.is_chance_random ? unit_random() : world.chance;
}

static const environment env = {fake_now_us, fake_sleep_until, fake_chance, NULL, NULL};

/* -- the backend */

static inline dlock_status follow(script *by, claim *of, uint32_t wait_ms, int64_t limit_us) {
    step now = by->steps[by->calls < by->count ? by->calls : by->count - 1];
    call seen = {world.now_us, limit_us, wait_ms};
    if (by->calls < SEEN_MAX) by->seen[by->calls] = seen;
    by->last_us = world.now_us;
    /* Who asks for ever without a pause must fail, not hang. */
    if (++by->calls > CALLS_MAX) now = (step){.status = DLOCK_NO_MEMORY};
    of->call.asked_us = world.now_us;
    of->is_passing = now.is_passing;
    of->is_sent = of->is_sent || now.is_sent;
    pass(deadline_earlier(world.now_us + now.takes_us, limit_us));
    return now.status;
}

static inline dlock_status fake_acquire(backend *self, claim *of, uint32_t wait_ms,
                                        int64_t limit_us) {
    (void)self;
    dlock_status status = follow(&world.acquire, of, wait_ms, limit_us);
    world.lease_ms = of->call.lease_ms;
    if (world.now_us >= world.free_at_us) status = DLOCK_OK;
    if (status == DLOCK_OK) of->call.fence = FENCE;
    return status;
}

static inline dlock_status fake_extend(backend *self, claim *of, int64_t limit_us) {
    (void)self;
    CHECK_EQUAL(of->call.lease_ms, world.lease_ms);
    return follow(&world.extend, of, 0, limit_us);
}

static inline dlock_status fake_release(backend *self, claim *of, int64_t limit_us) {
    (void)self;
    return follow(&world.release, of, 0, limit_us);
}

static const backend_table table = {
    .acquire = fake_acquire, .extend = fake_extend, .release = fake_release, .can_wait = true};
static backend service = {&table};

/* -- setting the stage */

static const waiting_rule spin = {.pause = {.min_ms = 10, .random_ms = 10}, .io_timeout_ms = 200};
static const waiting_rule parked = {.is_server_asked_to_wait = true,
                                    .pause = {.min_ms = 10, .random_ms = 10},
                                    .io_timeout_ms = 200};

static inline script script_of(const step *steps, size_t count) {
    script made = {.count = count};
    memcpy(made.steps, steps, count * sizeof(*steps));
    return made;
}

#define SCRIPT(...)                                                                                \
    script_of((const step[]){__VA_ARGS__}, sizeof((const step[]){__VA_ARGS__}) / sizeof(step))

static const step granted = {.status = DLOCK_OK};
static const step busy = {.status = DLOCK_BUSY};
static const step lost = {.status = DLOCK_LOST};
/* What these are like with a real server. */
static const step unreachable = {.status = DLOCK_UNREACHABLE, .is_passing = true};
static const step in_doubt = {.status = DLOCK_IN_DOUBT, .is_passing = true, .is_sent = true};
static const step refused_now = {.status = DLOCK_REFUSED, .is_passing = true};

static const step no_quorum = {.status = DLOCK_NO_QUORUM, .is_passing = true};

static inline step for_good(dlock_status status) {
    return (step){.status = status};
}

static inline step slowly(step slow, int64_t takes_us) {
    slow.takes_us = takes_us;
    return slow;
}

static inline claim begin(script acquires, int64_t wait_ms) {
    memset(&world, 0, sizeof(world));
    world.now_us = START_US;
    world.acquire = acquires;
    world.extend = SCRIPT(granted);
    world.release = SCRIPT(granted);
    world.free_at_us = DEADLINE_NEVER;
    world.cancel_at_us = DEADLINE_NEVER;
    return (claim){.call = {.name = "name",
                            .token = "token",
                            .lease_ms = LEASE_MS,
                            .started_us = START_US,
                            .deadline_us = deadline_after_ms(START_US, wait_ms)},
                   .stop = {99999, &world.is_canceled}}; /* not open: to drain it is harmless */
}

static inline claim begin_release(script releases) {
    claim of = begin(SCRIPT(busy), 0);
    world.release = releases;
    return of;
}

static inline dlock_status acquire(claim *of, const waiting_rule *rule) {
    return waiting_acquire(&service, of, rule, &env);
}

static inline dlock_status release(claim *of, const waiting_rule *rule) {
    return waiting_release(&service, of, rule, &env);
}

static inline int64_t after_start_us(int64_t time_us) {
    return time_us - START_US;
}

static inline void check_begun(const script *by, size_t number, int64_t expected_us) {
    CHECK(number < by->calls);
    CHECK_EQUAL(after_start_us(by->seen[number].begun_us), expected_us);
}

#define CHECK_CALLS(by, expected) CHECK_EQUAL((int64_t)(by).calls, expected)

#endif
