/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_test.c - all that waiting does, in a world where time is faked.
 *
 * The clock of the world moves only while somebody sleeps and while the backend takes its time. The
 * backend follows a script, one step for each request; the last step is repeated. It keeps the
 * contract of backend.h: it is never later than its limit, and a claim that was sent stays sent.
 * Like single.c it sets asked_us whatever comes back. */
#include "waiting.h"

#include "deadline.h"
#include "unit.h"
#include "validity.h"
#include <poll.h>

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

static void pass(int64_t until_us) {
    if (world.now_us < world.cancel_at_us && until_us >= world.cancel_at_us)
        atomic_store(&world.is_canceled, true);
    if (until_us > world.now_us) world.now_us = until_us;
}

static int64_t fake_now_us(const environment *self) {
    (void)self;
    return world.now_us;
}

static void fake_sleep_until(const environment *self, int64_t at_us, int wake_fd) {
    (void)self;
    if (world.sleeps < SEEN_MAX) world.slept[world.sleeps] = (sleep){at_us, wake_fd};
    world.sleeps++;
    world.slept_last_until_us = at_us;
    if (world.nap_us > 0) at_us = deadline_earlier(at_us, world.now_us + world.nap_us);
    /* A cancel wakes only who listens. */
    bool is_woken = wake_fd >= 0 && world.now_us < world.cancel_at_us;
    pass(is_woken ? deadline_earlier(at_us, world.cancel_at_us) : at_us);
}

static uint64_t fake_chance(const environment *self) {
    (void)self;
    return world.is_chance_random ? unit_random() : world.chance;
}

static const environment env = {fake_now_us, fake_sleep_until, fake_chance, NULL, NULL};

/* -- the backend */

static dlock_status follow(script *by, claim *of, uint32_t wait_ms, int64_t limit_us) {
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

static dlock_status fake_acquire(backend *self, claim *of, uint32_t wait_ms, int64_t limit_us) {
    (void)self;
    dlock_status status = follow(&world.acquire, of, wait_ms, limit_us);
    world.lease_ms = of->call.lease_ms;
    if (world.now_us >= world.free_at_us) status = DLOCK_OK;
    if (status == DLOCK_OK) of->call.fence = FENCE;
    return status;
}

static dlock_status fake_extend(backend *self, claim *of, int64_t limit_us) {
    (void)self;
    CHECK_EQUAL(of->call.lease_ms, world.lease_ms);
    return follow(&world.extend, of, 0, limit_us);
}

static dlock_status fake_release(backend *self, claim *of, int64_t limit_us) {
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

static script script_of(const step *steps, size_t count) {
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

static step for_good(dlock_status status) {
    return (step){.status = status};
}

static step slowly(step slow, int64_t takes_us) {
    slow.takes_us = takes_us;
    return slow;
}

static claim begin(script acquires, int64_t wait_ms) {
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

static claim begin_release(script releases) {
    claim of = begin(SCRIPT(busy), 0);
    world.release = releases;
    return of;
}

static dlock_status acquire(claim *of, const waiting_rule *rule) {
    return waiting_acquire(&service, of, rule, &env);
}

static dlock_status release(claim *of, const waiting_rule *rule) {
    return waiting_release(&service, of, rule, &env);
}

static int64_t after_start_us(int64_t time_us) {
    return time_us - START_US;
}

static void check_begun(const script *by, size_t number, int64_t expected_us) {
    CHECK(number < by->calls);
    CHECK_EQUAL(after_start_us(by->seen[number].begun_us), expected_us);
}

#define CHECK_CALLS(by, expected) CHECK_EQUAL((int64_t)(by).calls, expected)

/* -- one attempt */

static void a_free_lock_is_granted_at_once(void) {
    claim of = begin(SCRIPT(granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.acquire, 1);
    CHECK_CALLS(world.extend, 0);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK(of.call.fence == FENCE);
    CHECK_EQUAL(of.call.asked_us, START_US);
    CHECK_EQUAL(of.call.attempts, 1);
    CHECK_EQUAL(of.call.remote_us, START_US);
    CHECK(!of.is_sent);
}

static void without_a_wait_a_held_lock_is_busy_after_one_attempt(void) {
    claim of = begin(SCRIPT(busy, granted), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK_EQUAL(world.now_us, START_US);
}

static void without_a_wait_a_slow_service_is_asked_once_and_no_timeout(void) {
    claim of = begin(SCRIPT(slowly(busy, 150 * MS), granted), 0);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void without_a_wait_even_a_slow_grant_is_a_grant(void) {
    claim of = begin(SCRIPT(slowly(granted, 199 * MS)), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
}

static void without_a_wait_a_failure_that_passes_is_not_tried_again(void) {
    claim of = begin(SCRIPT(unreachable, granted), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 1);
    of = begin(SCRIPT(in_doubt, granted), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 1);
    CHECK(of.is_sent);
}

static void with_a_deadline_in_the_past_it_asks_once(void) {
    claim of = begin(SCRIPT(busy, granted), 0);
    of.call.deadline_us = START_US - 1;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 200 * MS);
}

static void the_service_has_one_io_timeout_beyond_the_deadline(void) {
    claim of = begin(SCRIPT(granted), 0);
    acquire(&of, &spin);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 200 * MS);
    of = begin(SCRIPT(busy, granted), 5000);
    acquire(&of, &spin);
    CHECK_EQUAL(after_start_us(world.acquire.seen[0].limit_us), 5200 * MS);
    CHECK_EQUAL(after_start_us(world.acquire.seen[1].limit_us), 5200 * MS);
    of = begin(SCRIPT(granted), DLOCK_WAIT_FOREVER);
    acquire(&of, &spin);
    CHECK_EQUAL(world.acquire.seen[0].limit_us, DEADLINE_NEVER);
}

/* -- until the deadline */

static void a_lock_that_stays_busy_is_a_timeout_at_the_deadline(void) {
    claim of = begin(SCRIPT(busy), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 100);
    CHECK_EQUAL(of.call.attempts, 100);
    CHECK_EQUAL(of.call.remote_us, START_US);
    CHECK_EQUAL(after_start_us(world.now_us), 1000 * MS);
    CHECK(!of.is_sent);
}

static void a_lock_that_becomes_free_is_granted(void) {
    claim of = begin(SCRIPT(busy, busy, busy, granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_EQUAL(of.call.attempts, 4);
    CHECK_EQUAL(after_start_us(of.call.remote_us), 0);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 30 * MS);
    CHECK_EQUAL(after_start_us(world.now_us), 30 * MS);
}

static void an_answer_after_the_deadline_is_a_timeout_at_once(void) {
    claim of = begin(SCRIPT(slowly(busy, 150 * MS), granted), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void an_answer_just_at_the_deadline_is_a_timeout_at_once(void) {
    claim of = begin(SCRIPT(slowly(busy, 100 * MS), granted), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_grant_after_the_deadline_is_a_grant(void) {
    claim of = begin(SCRIPT(slowly(granted, 150 * MS)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
}

static void the_last_pause_ends_at_the_deadline_and_no_attempt_follows(void) {
    claim of = begin(SCRIPT(busy), 25);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 3);
    check_begun(&world.acquire, 2, 20 * MS);
    CHECK_EQUAL((int64_t)world.sleeps, 3);
    CHECK_EQUAL(after_start_us(world.slept[2].at_us), 25 * MS);
    CHECK_EQUAL(after_start_us(world.now_us), 25 * MS);
}

static void an_attempt_may_begin_just_before_the_deadline(void) {
    claim of = begin(SCRIPT(busy, granted), 10);
    of.call.deadline_us = START_US + 10 * MS + 1;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

static void no_attempt_begins_at_the_deadline(void) {
    claim of = begin(SCRIPT(busy, granted), 10);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
}

/* -- the pause */

static void the_pause_is_counted_from_the_answer(void) {
    claim of = begin(SCRIPT(slowly(busy, 3 * MS), granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 13 * MS);
}

static void the_shortest_pause_is_the_minimum(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    world.chance = 0;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

static void the_longest_pause_is_just_below_minimum_and_random(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    world.chance = 10 * MS - 1;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 20 * MS - 1);
}

static void each_pause_has_a_chance_of_its_own(void) {
    claim of = begin(SCRIPT(busy), 1000);
    world.is_chance_random = true;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    int different = 0;
    int64_t before_us = 0;
    for (size_t i = 1; i < world.acquire.calls && i < SEEN_MAX; i++) {
        int64_t pause_us = world.acquire.seen[i].begun_us - world.acquire.seen[i - 1].begun_us;
        CHECK(pause_us >= 10 * MS && pause_us < 20 * MS);
        different += pause_us != before_us;
        before_us = pause_us;
    }
    CHECK(world.acquire.calls > 50);
    CHECK(different > 40);
}

static void pauses_double_up_to_the_maximum(void) {
    waiting_rule rule = {.pause = {.min_ms = 10, .max_ms = 100}, .io_timeout_ms = 200};
    claim of = begin(SCRIPT(busy), 1000);
    CHECK_EQUAL(acquire(&of, &rule), DLOCK_TIMEOUT);
    const int64_t begun_ms[] = {0, 10, 30, 70, 150, 250, 350, 450};
    for (size_t i = 0; i < sizeof(begun_ms) / sizeof(begun_ms[0]); i++)
        check_begun(&world.acquire, i, begun_ms[i] * MS);
}

static void a_grown_pause_is_clipped_to_the_time_left(void) {
    waiting_rule rule = {.pause = {.min_ms = 10, .max_ms = 10000}, .io_timeout_ms = 200};
    claim of = begin(SCRIPT(busy), 100);
    CHECK_EQUAL(acquire(&of, &rule), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 4); /* at 0, 10, 30 and 70 */
    CHECK_EQUAL(after_start_us(world.now_us), 100 * MS);
}

static void a_sleep_that_returns_early_is_resumed(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    world.nap_us = 3 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
    CHECK_EQUAL((int64_t)world.sleeps, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK_EQUAL(after_start_us(world.slept[i].at_us), 10 * MS);
}

/* -- the server waits */

static void the_server_is_asked_to_wait_only_if_there_is_time(void) {
    claim of = begin(SCRIPT(busy), 0);
    acquire(&of, &parked);
    CHECK_EQUAL(world.acquire.seen[0].wait_ms, 0);
    of = begin(SCRIPT(busy), 0);
    of.call.deadline_us = START_US + 1;
    acquire(&of, &parked);
    CHECK(world.acquire.seen[0].wait_ms > 0);
    of = begin(SCRIPT(granted), DLOCK_WAIT_FOREVER);
    acquire(&of, &parked);
    CHECK(world.acquire.seen[0].wait_ms > 0);
}

static void who_spins_never_asks_the_server_to_wait(void) {
    claim of = begin(SCRIPT(busy), 1000);
    acquire(&of, &spin);
    for (size_t i = 0; i < world.acquire.calls && i < SEEN_MAX; i++)
        CHECK_EQUAL(world.acquire.seen[i].wait_ms, 0);
}

static void the_server_waits_in_slices_without_a_pause_between(void) {
    claim of = begin(SCRIPT(slowly(busy, 30 * SECOND)), 100000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 4);
    for (size_t i = 0; i < 4; i++) {
        check_begun(&world.acquire, i, (int64_t)i * 30 * SECOND);
        CHECK_EQUAL(world.acquire.seen[i].wait_ms, 30000);
    }
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK_EQUAL(after_start_us(world.now_us), 100200 * MS);
}

static void a_busy_that_came_at_once_though_the_server_was_to_wait_is_paused_after(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_EQUAL((int64_t)world.sleeps, 1);
    check_begun(&world.acquire, 1, 10 * MS);
}

/* So that a server that does not wait is not asked more often than by who spins. */
static void a_server_has_waited_if_it_took_the_shortest_pause(void) {
    claim of = begin(SCRIPT(slowly(busy, 10 * MS - 1), granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 20 * MS - 1);
    of = begin(SCRIPT(slowly(busy, 10 * MS), granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
}

static void each_slice_is_measured_for_itself(void) {
    claim of = begin(SCRIPT(slowly(busy, 500 * MS), busy, granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 500 * MS);
    check_begun(&world.acquire, 2, 510 * MS);
}

static void who_spins_pauses_however_slow_the_answer_was(void) {
    claim of = begin(SCRIPT(slowly(busy, 100 * MS), granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 110 * MS);
}

static void a_failure_is_paused_after_however_slow_it_was(void) {
    claim of = begin(SCRIPT(slowly(unreachable, 100 * MS), granted), 1000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    check_begun(&world.acquire, 1, 110 * MS);
}

/* -- failures */

static void a_failure_that_passes_is_tried_again(void) {
    claim of = begin(SCRIPT(unreachable, refused_now, in_doubt, busy, unreachable, granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_EQUAL(of.call.attempts, 6);
    for (size_t i = 0; i < 6; i++)
        check_begun(&world.acquire, i, (int64_t)i * 10 * MS);
}

static void a_failure_that_stays_is_returned_at_once(void) {
    const dlock_status all[] = {DLOCK_REFUSED,    DLOCK_PROTOCOL,  DLOCK_INVALID,
                                DLOCK_NO_MEMORY,  DLOCK_IN_DOUBT,  DLOCK_UNREACHABLE,
                                DLOCK_QUEUE_FULL, DLOCK_NO_QUORUM, DLOCK_CANCELED};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        claim of = begin(SCRIPT(for_good(all[i]), granted), 1000);
        CHECK_EQUAL(acquire(&of, &spin), all[i]);
        CHECK_CALLS(world.acquire, 1);
        CHECK_EQUAL((int64_t)world.sleeps, 0);
    }
}

static void a_failure_that_stays_ends_a_wait_that_went_on(void) {
    claim of = begin(SCRIPT(busy, unreachable, for_good(DLOCK_REFUSED), granted), 1000);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_REFUSED);
    CHECK_CALLS(world.acquire, 3);
}

static void a_failure_that_lasts_until_the_deadline_is_what_is_returned(void) {
    claim of = begin(SCRIPT(unreachable), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 10);
    CHECK_EQUAL(after_start_us(world.now_us), 100 * MS);
    CHECK(!of.is_sent);
    of = begin(SCRIPT(refused_now), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_REFUSED);
    of = begin(SCRIPT(slowly(unreachable, 150 * MS)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.acquire, 1);
}

static void unreachable_after_something_was_sent_is_in_doubt(void) {
    claim of = begin(SCRIPT(in_doubt, unreachable), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 10);
    CHECK(of.is_sent);
    /* The other way out: the answer came after the deadline. */
    of = begin(SCRIPT(in_doubt, slowly(unreachable, 150 * MS)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 2);
}

/* dlock.h: DLOCK_UNREACHABLE is "nothing was sent". */
static void unreachable_for_good_after_something_was_sent_is_in_doubt(void) {
    claim of = begin(SCRIPT(in_doubt, for_good(DLOCK_UNREACHABLE)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.acquire, 2);
    CHECK(of.is_sent);
}

static void no_quorum_is_tried_again_while_time_is_left(void) {
    claim of = begin(SCRIPT(no_quorum, no_quorum, granted), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    of = begin(SCRIPT(no_quorum), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_NO_QUORUM);
    CHECK_CALLS(world.acquire, 10);
    of = begin(SCRIPT(no_quorum), 0);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_NO_QUORUM);
    CHECK_CALLS(world.acquire, 1);
}

/* There was no time left to ask enough of them. */
static void no_quorum_at_the_end_says_less_than_what_was_said_before(void) {
    claim of = begin(SCRIPT(busy, slowly(no_quorum, 150 * MS)), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
}

static void a_timeout_after_something_was_sent_is_still_to_be_withdrawn(void) {
    claim of = begin(SCRIPT(in_doubt, busy), 100);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_TIMEOUT);
    CHECK(of.is_sent);
}

/* -- cancelling */

static void a_wait_that_was_cancelled_before_asks_nobody(void) {
    claim of = begin(SCRIPT(granted), 1000);
    atomic_store(&world.is_canceled, true);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 0);
    CHECK_EQUAL(of.call.attempts, 0);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_cancel_ends_the_pause_at_once(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    world.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 1);
    CHECK_EQUAL(world.slept[0].wake_fd, of.stop.fd);
    CHECK_EQUAL(after_start_us(world.now_us), 4 * MS);
}

static void a_cancel_at_the_end_of_the_last_pause_is_a_cancel(void) {
    claim of = begin(SCRIPT(busy), 10);
    world.cancel_at_us = START_US + 10 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
}

static void a_cancel_during_an_attempt_is_seen_before_the_pause(void) {
    claim of = begin(SCRIPT(slowly(busy, 5 * MS), granted), 1000);
    world.cancel_at_us = START_US + 2 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_cancel_during_a_slice_is_seen_after_it(void) {
    claim of = begin(SCRIPT(slowly(busy, 30 * SECOND)), DLOCK_WAIT_FOREVER);
    world.cancel_at_us = START_US + 50 * SECOND;
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 2);
}

static void a_cancel_does_not_undo_a_grant(void) {
    claim of = begin(SCRIPT(slowly(granted, 5 * MS)), 1000);
    world.cancel_at_us = START_US + 2 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
}

static void a_cancel_after_something_was_sent_leaves_it_to_be_withdrawn(void) {
    claim of = begin(SCRIPT(in_doubt), 1000);
    world.cancel_at_us = START_US + 25 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_CANCELED);
    CHECK_CALLS(world.acquire, 3);
    CHECK(of.is_sent);
}

static void a_claim_that_cannot_be_cancelled_waits(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    of.stop = (interrupt){.fd = -1};
    world.cancel_at_us = START_US + 4 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_EQUAL(world.slept[0].wake_fd, -1);
}

/* Else the next sleep would return at once, and the next, until the pause is over. */
static void a_wake_for_nothing_is_drained_and_the_pause_goes_on(void) {
    claim of = begin(SCRIPT(busy, granted), 1000);
    interrupt_stock *stock = interrupt_stock_new();
    of.stop.fd = interrupt_stock_take(stock);
    interrupt_wake(of.stop.fd);
    world.nap_us = 3 * MS;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    check_begun(&world.acquire, 1, 10 * MS);
    struct pollfd look = {.fd = of.stop.fd, .events = POLLIN};
    CHECK_EQUAL(poll(&look, 1, 0), 0);
    interrupt_stock_give(stock, of.stop.fd);
    interrupt_stock_free(stock);
}

/* -- for ever */

static void for_ever_is_a_year_if_need_be(void) {
    waiting_rule rule = spin;
    rule.pause.max_ms = 60000;
    claim of = begin(SCRIPT(busy, unreachable, busy), DLOCK_WAIT_FOREVER);
    world.is_chance_random = true;
    world.free_at_us = START_US + YEAR;
    CHECK_EQUAL(acquire(&of, &rule), DLOCK_OK);
    CHECK(after_start_us(world.now_us) >= YEAR);
    CHECK(after_start_us(world.now_us) <= YEAR + 60 * SECOND);
    CHECK(of.call.attempts > 365 * 24 * 60);
    CHECK_EQUAL(of.call.attempts, (int64_t)world.acquire.calls);
    CHECK_EQUAL(of.call.remote_us, START_US);
    CHECK_EQUAL(of.call.asked_us, world.now_us);
}

static void for_ever_is_a_year_of_slices_if_need_be(void) {
    claim of = begin(SCRIPT(slowly(busy, 30 * SECOND)), DLOCK_WAIT_FOREVER);
    world.free_at_us = START_US + YEAR;
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_EQUAL(after_start_us(world.now_us), YEAR);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK_EQUAL(of.call.attempts, 365 * 24 * 3600 / 30);
}

/* A pause of 1 ms, which the options allow, makes 2^32 attempts in 50 days. */
static void the_first_attempt_stays_the_first_however_many_follow(void) {
    claim of = begin(SCRIPT(busy, busy, busy, granted), DLOCK_WAIT_FOREVER);
    of.call.attempts = UINT32_MAX - 1;
    of.call.remote_us = 1;
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_OK);
    CHECK_EQUAL(of.call.remote_us, 1);
    CHECK(of.call.attempts >= UINT32_MAX - 1);
}

/* -- the grant */

static void a_grant_that_was_not_waited_for_is_not_extended(void) {
    claim of = begin(SCRIPT(slowly(granted, 1 * SECOND)), 60000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.extend, 0);
    CHECK_EQUAL(of.call.asked_us, START_US);
}

static void a_grant_after_more_than_a_tenth_of_the_lease_is_extended(void) {
    claim of = begin(SCRIPT(slowly(granted, 1 * SECOND + 1)), 60000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 1);
    CHECK_CALLS(world.extend, 1);
    CHECK_EQUAL(after_start_us(world.extend.seen[0].limit_us), 1 * SECOND + 1 + 200 * MS);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 1 * SECOND + 1);
    CHECK(of.call.fence == FENCE);
}

static void a_grant_after_more_than_the_lease_is_a_grant_once_it_is_extended(void) {
    claim of = begin(SCRIPT(slowly(granted, 25 * SECOND)), 60000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 25 * SECOND);
    CHECK(!of.is_sent);
}

static void only_the_last_attempt_counts_as_the_wait(void) {
    claim of = begin(SCRIPT(slowly(busy, 30 * SECOND), granted), 60000);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.extend, 0);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 30 * SECOND);
}

static void a_grant_that_was_lost_when_extended_is_asked_for_again(void) {
    claim of = begin(SCRIPT(slowly(granted, 25 * SECOND), granted), 60000);
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 2);
    CHECK_CALLS(world.extend, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
    CHECK_EQUAL(after_start_us(of.call.asked_us), 25 * SECOND);
}

static void a_grant_that_was_lost_at_the_end_is_a_timeout(void) {
    claim of = begin(SCRIPT(slowly(granted, 60 * SECOND), granted), 60000);
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_TIMEOUT);
    CHECK_CALLS(world.acquire, 1);
    CHECK(!of.is_sent);
}

static void a_grant_that_was_lost_without_a_wait_is_busy(void) {
    claim of = begin(SCRIPT(slowly(granted, 150 * MS), granted), 0);
    of.call.lease_ms = 1000;
    world.extend = SCRIPT(lost);
    CHECK_EQUAL(acquire(&of, &spin), DLOCK_BUSY);
    CHECK_CALLS(world.acquire, 1);
}

static void a_grant_that_could_not_be_extended_counts_from_when_it_was_asked_for(void) {
    const step failures[] = {unreachable, in_doubt, for_good(DLOCK_REFUSED),
                             for_good(DLOCK_CANCELED)};
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        claim of = begin(SCRIPT(busy, slowly(granted, 2 * SECOND)), 60000);
        world.extend = SCRIPT(failures[i]);
        CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
        CHECK_CALLS(world.acquire, 2);
        CHECK_CALLS(world.extend, 1);
        CHECK_EQUAL(after_start_us(of.call.asked_us), 10 * MS);
    }
}

static void a_grant_is_one_until_just_before_its_validity_ends(void) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    claim of = begin(SCRIPT(slowly(granted, valid_us - 1)), 9000);
    of.call.deadline_us = START_US + valid_us - 1;
    world.extend = SCRIPT(unreachable);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
}

static void a_grant_whose_lease_is_over_is_none_and_is_to_be_withdrawn(void) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    claim of = begin(SCRIPT(slowly(granted, valid_us)), 0);
    of.call.deadline_us = START_US + valid_us;
    world.extend = SCRIPT(for_good(DLOCK_REFUSED));
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_LOST);
    CHECK_CALLS(world.acquire, 1);
    CHECK(of.is_sent);
    const char *cause = "the lease had ended before the answer came";
    CHECK_BYTES(of.call.cause, strlen(of.call.cause), cause, strlen(cause));
}

static void a_grant_whose_extension_took_longer_than_the_lease_is_none(void) {
    claim of = begin(SCRIPT(slowly(granted, 25 * SECOND), busy), 60000);
    of.call.lease_ms = 100; /* and the extension takes an I/O timeout */
    world.extend = SCRIPT(slowly(granted, 10 * SECOND));
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_TIMEOUT);
    CHECK(of.is_sent);
}

static void a_lease_shorter_than_the_allowance_is_never_granted(void) {
    claim of = begin(SCRIPT(granted), 0);
    of.call.lease_ms = 2;
    CHECK(acquire(&of, &spin) != DLOCK_OK);
    CHECK(of.is_sent);
}

static void a_lock_whose_lease_was_over_is_asked_for_again(void) {
    claim of = begin(SCRIPT(slowly(granted, 25 * SECOND), busy, granted), 60000);
    world.extend = SCRIPT(unreachable);
    CHECK_EQUAL(acquire(&of, &parked), DLOCK_OK);
    CHECK_CALLS(world.acquire, 3);
    CHECK_EQUAL((int64_t)world.sleeps, 2); /* the server has waited for neither */
    CHECK_EQUAL(of.call.asked_us, world.now_us);
}

/* -- anything may happen */

static step any_step(void) {
    const step all[] = {granted,     busy,     busy,        busy,
                        unreachable, in_doubt, refused_now, for_good(DLOCK_REFUSED)};
    step made = all[unit_random() % (sizeof(all) / sizeof(all[0]))];
    made.takes_us = unit_random_within(0, 100 * MS);
    if (unit_random() % 4 == 0) made.takes_us = unit_random_within(0, 30 * SECOND);
    return made;
}

static script any_script(void) {
    script made = {.count = STEPS_MAX};
    for (size_t i = 0; i < STEPS_MAX; i++)
        made.steps[i] = any_step();
    return made;
}

static void check_promises(const claim *of, dlock_status status, bool is_only_try) {
    const script *asked = &world.acquire;
    CHECK(asked->calls >= 1);
    CHECK_EQUAL(of->call.attempts, (int64_t)asked->calls);
    if (is_only_try) CHECK_EQUAL((int64_t)asked->calls, 1);
    if (asked->calls > 1) CHECK(asked->last_us < of->call.deadline_us);
    if (world.sleeps > 0) CHECK(world.slept_last_until_us <= of->call.deadline_us);
    int64_t from_us = is_only_try ? START_US : of->call.deadline_us;
    CHECK(world.now_us <= from_us + 200 * MS);
    if (status == DLOCK_OK)
        CHECK(world.now_us < validity_end_us(of->call.asked_us, of->call.lease_ms));
    if (status == DLOCK_BUSY) CHECK(is_only_try);
    if (status == DLOCK_TIMEOUT) CHECK(!is_only_try);
    if (status == DLOCK_UNREACHABLE) CHECK(!of->is_sent);
    if (status == DLOCK_IN_DOUBT) CHECK(of->is_sent);
}

static void whatever_happens_the_promises_are_kept(void) {
    for (int i = 0; i < 50000; i++) {
        bool is_only_try = unit_random() % 8 == 0;
        int64_t wait_ms = is_only_try ? 0 : unit_random_within(1, 60000);
        waiting_rule rule = unit_random() % 2 == 0 ? spin : parked;
        if (unit_random() % 2 == 0) rule.pause.max_ms = (uint32_t)unit_random_within(1, 5000);
        claim of = begin(any_script(), wait_ms);
        world.extend = any_script();
        world.extend.steps[unit_random() % STEPS_MAX].status = DLOCK_LOST;
        world.is_chance_random = true;
        if (unit_random() % 4 == 0) world.nap_us = 7 * MS;
        of.stop.fd = -1;
        of.call.lease_ms = (uint32_t)unit_random_within(1, 20000);
        check_promises(&of, acquire(&of, &rule), is_only_try);
    }
}

/* -- release */

static void a_release_is_asked_for_once(void) {
    claim of = begin_release(SCRIPT(granted, lost));
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL(after_start_us(world.release.seen[0].limit_us), 200 * MS);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_lock_that_was_lost_before_the_release_is_lost(void) {
    claim of = begin_release(SCRIPT(lost, granted));
    CHECK_EQUAL(release(&of, &spin), DLOCK_LOST);
    CHECK_CALLS(world.release, 1);
}

static void a_release_that_failed_for_good_is_not_repeated(void) {
    const dlock_status all[] = {DLOCK_REFUSED, DLOCK_PROTOCOL, DLOCK_NO_MEMORY, DLOCK_IN_DOUBT};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        claim of = begin_release(SCRIPT(for_good(all[i]), granted));
        CHECK_EQUAL(release(&of, &spin), all[i]);
        CHECK_CALLS(world.release, 1);
    }
}

static void a_release_that_failed_is_repeated_after_a_pause(void) {
    claim of = begin_release(SCRIPT(slowly(unreachable, 30 * MS), refused_now, granted));
    world.nap_us = 3 * MS; /* sleeps return early */
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 3);
    check_begun(&world.release, 1, 40 * MS);
    check_begun(&world.release, 2, 50 * MS);
    for (size_t i = 0; i < 3; i++)
        CHECK_EQUAL(after_start_us(world.release.seen[i].limit_us), 200 * MS);
}

static void lost_after_a_lost_answer_means_that_the_release_had_worked(void) {
    claim of = begin_release(SCRIPT(in_doubt, lost));
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 2);
    of = begin_release(SCRIPT(in_doubt, unreachable, lost));
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    CHECK_CALLS(world.release, 3);
}

static void lost_after_too_few_have_heard_it_means_that_the_release_had_worked(void) {
    claim of = begin_release(SCRIPT(no_quorum, lost));
    of.call.asked_us = START_US;
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
}

static void lost_after_nothing_was_sent_is_lost(void) {
    claim of = begin_release(SCRIPT(unreachable, refused_now, lost));
    CHECK_EQUAL(release(&of, &spin), DLOCK_LOST);
    CHECK_CALLS(world.release, 3);
}

static void a_release_gives_up_within_one_io_timeout(void) {
    claim of = begin_release(SCRIPT(unreachable));
    CHECK_EQUAL(release(&of, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.release, 20);
    check_begun(&world.release, 19, 190 * MS);
    CHECK(after_start_us(world.now_us) <= 200 * MS);
    of = begin_release(SCRIPT(refused_now));
    CHECK_EQUAL(release(&of, &spin), DLOCK_REFUSED);
    CHECK(after_start_us(world.now_us) <= 200 * MS);
}

static void a_release_whose_answer_never_came_is_in_doubt(void) {
    claim of = begin_release(SCRIPT(slowly(in_doubt, 200 * MS)));
    CHECK_EQUAL(release(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL(after_start_us(world.now_us), 200 * MS);
}

static void a_release_that_was_once_in_doubt_stays_so(void) {
    claim of = begin_release(SCRIPT(in_doubt, unreachable));
    CHECK_EQUAL(release(&of, &spin), DLOCK_IN_DOUBT);
    CHECK_CALLS(world.release, 20);
}

static void a_release_that_has_no_time_for_a_pause_is_tried_once(void) {
    waiting_rule rule = spin;
    rule.io_timeout_ms = 10;
    claim of = begin_release(SCRIPT(unreachable));
    CHECK_EQUAL(release(&of, &rule), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL((int64_t)world.sleeps, 0);
}

static void a_cancel_does_not_stop_a_release(void) {
    claim of = begin_release(SCRIPT(unreachable, granted));
    atomic_store(&world.is_canceled, true);
    CHECK_EQUAL(release(&of, &spin), DLOCK_OK);
    check_begun(&world.release, 1, 10 * MS);
    CHECK_EQUAL(world.slept[0].wake_fd, -1);
}

static void run_acquires(void) {
    UNIT_RUN(a_free_lock_is_granted_at_once);
    UNIT_RUN(without_a_wait_a_held_lock_is_busy_after_one_attempt);
    UNIT_RUN(without_a_wait_a_slow_service_is_asked_once_and_no_timeout);
    UNIT_RUN(without_a_wait_even_a_slow_grant_is_a_grant);
    UNIT_RUN(without_a_wait_a_failure_that_passes_is_not_tried_again);
    UNIT_RUN(with_a_deadline_in_the_past_it_asks_once);
    UNIT_RUN(the_service_has_one_io_timeout_beyond_the_deadline);
    UNIT_RUN(a_lock_that_stays_busy_is_a_timeout_at_the_deadline);
    UNIT_RUN(a_lock_that_becomes_free_is_granted);
    UNIT_RUN(an_answer_after_the_deadline_is_a_timeout_at_once);
    UNIT_RUN(an_answer_just_at_the_deadline_is_a_timeout_at_once);
    UNIT_RUN(a_grant_after_the_deadline_is_a_grant);
    UNIT_RUN(the_last_pause_ends_at_the_deadline_and_no_attempt_follows);
    UNIT_RUN(an_attempt_may_begin_just_before_the_deadline);
    UNIT_RUN(no_attempt_begins_at_the_deadline);
    UNIT_RUN(the_pause_is_counted_from_the_answer);
    UNIT_RUN(the_shortest_pause_is_the_minimum);
    UNIT_RUN(the_longest_pause_is_just_below_minimum_and_random);
    UNIT_RUN(each_pause_has_a_chance_of_its_own);
    UNIT_RUN(pauses_double_up_to_the_maximum);
    UNIT_RUN(a_grown_pause_is_clipped_to_the_time_left);
    UNIT_RUN(a_sleep_that_returns_early_is_resumed);
    UNIT_RUN(the_server_is_asked_to_wait_only_if_there_is_time);
    UNIT_RUN(who_spins_never_asks_the_server_to_wait);
    UNIT_RUN(the_server_waits_in_slices_without_a_pause_between);
    UNIT_RUN(a_busy_that_came_at_once_though_the_server_was_to_wait_is_paused_after);
    UNIT_RUN(a_server_has_waited_if_it_took_the_shortest_pause);
    UNIT_RUN(each_slice_is_measured_for_itself);
    UNIT_RUN(who_spins_pauses_however_slow_the_answer_was);
    UNIT_RUN(a_failure_is_paused_after_however_slow_it_was);
}

static void run_failures_and_cancels(void) {
    UNIT_RUN(a_failure_that_passes_is_tried_again);
    UNIT_RUN(a_failure_that_stays_is_returned_at_once);
    UNIT_RUN(a_failure_that_stays_ends_a_wait_that_went_on);
    UNIT_RUN(a_failure_that_lasts_until_the_deadline_is_what_is_returned);
    UNIT_RUN(unreachable_after_something_was_sent_is_in_doubt);
    UNIT_RUN(unreachable_for_good_after_something_was_sent_is_in_doubt);
    UNIT_RUN(no_quorum_is_tried_again_while_time_is_left);
    UNIT_RUN(no_quorum_at_the_end_says_less_than_what_was_said_before);
    UNIT_RUN(a_timeout_after_something_was_sent_is_still_to_be_withdrawn);
    UNIT_RUN(a_wait_that_was_cancelled_before_asks_nobody);
    UNIT_RUN(a_cancel_ends_the_pause_at_once);
    UNIT_RUN(a_cancel_at_the_end_of_the_last_pause_is_a_cancel);
    UNIT_RUN(a_cancel_during_an_attempt_is_seen_before_the_pause);
    UNIT_RUN(a_cancel_during_a_slice_is_seen_after_it);
    UNIT_RUN(a_cancel_does_not_undo_a_grant);
    UNIT_RUN(a_cancel_after_something_was_sent_leaves_it_to_be_withdrawn);
    UNIT_RUN(a_claim_that_cannot_be_cancelled_waits);
    UNIT_RUN(a_wake_for_nothing_is_drained_and_the_pause_goes_on);
    UNIT_RUN(for_ever_is_a_year_if_need_be);
    UNIT_RUN(for_ever_is_a_year_of_slices_if_need_be);
    UNIT_RUN(the_first_attempt_stays_the_first_however_many_follow);
}

static void run_grants(void) {
    UNIT_RUN(a_grant_that_was_not_waited_for_is_not_extended);
    UNIT_RUN(a_grant_after_more_than_a_tenth_of_the_lease_is_extended);
    UNIT_RUN(a_grant_after_more_than_the_lease_is_a_grant_once_it_is_extended);
    UNIT_RUN(only_the_last_attempt_counts_as_the_wait);
    UNIT_RUN(a_grant_that_was_lost_when_extended_is_asked_for_again);
    UNIT_RUN(a_grant_that_was_lost_at_the_end_is_a_timeout);
    UNIT_RUN(a_grant_that_was_lost_without_a_wait_is_busy);
    UNIT_RUN(a_grant_that_could_not_be_extended_counts_from_when_it_was_asked_for);
    UNIT_RUN(a_grant_is_one_until_just_before_its_validity_ends);
    UNIT_RUN(a_grant_whose_lease_is_over_is_none_and_is_to_be_withdrawn);
    UNIT_RUN(a_grant_whose_extension_took_longer_than_the_lease_is_none);
    UNIT_RUN(a_lease_shorter_than_the_allowance_is_never_granted);
    UNIT_RUN(a_lock_whose_lease_was_over_is_asked_for_again);
    UNIT_RUN(whatever_happens_the_promises_are_kept);
}

static void run_releases(void) {
    UNIT_RUN(a_release_is_asked_for_once);
    UNIT_RUN(a_lock_that_was_lost_before_the_release_is_lost);
    UNIT_RUN(a_release_that_failed_for_good_is_not_repeated);
    UNIT_RUN(a_release_that_failed_is_repeated_after_a_pause);
    UNIT_RUN(lost_after_a_lost_answer_means_that_the_release_had_worked);
    UNIT_RUN(lost_after_too_few_have_heard_it_means_that_the_release_had_worked);
    UNIT_RUN(lost_after_nothing_was_sent_is_lost);
    UNIT_RUN(a_release_gives_up_within_one_io_timeout);
    UNIT_RUN(a_release_whose_answer_never_came_is_in_doubt);
    UNIT_RUN(a_release_that_was_once_in_doubt_stays_so);
    UNIT_RUN(a_release_that_has_no_time_for_a_pause_is_tried_once);
    UNIT_RUN(a_cancel_does_not_stop_a_release);
}

int main(void) {
    run_acquires();
    run_failures_and_cancels();
    run_grants();
    run_releases();
    return unit_summary();
}
