/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_world.h - a deployment that follows a script, for the tests of waiting.c.
 *
 * One step for each attempt, and the last step is repeated. As deployment.h says, an attempt is
 * done by its limit, and on_done never comes from within start(). asked_us is set whatever comes
 * back. */
#ifndef DLOCK_WAITING_WORLD_H
#define DLOCK_WAITING_WORLD_H

#include "fake_time.h"
#include "handlers/waiting.h"

enum { STEPS_MAX = 8, SEEN_MAX = 64, CALLS_MAX = 3000000, FENCE = 7, LEASE_MS = 10000 };
enum { IO_MS = 200, CONNECT_MS = 1000 };

typedef struct step {
    dlock_status status;
    int64_t takes_us;
    bool is_transient, may_hold, is_split;
} step;

typedef struct seen_attempt {
    int64_t begun_us, limit_us, wait_until_us;
    char token[DLOCK_TOKEN_SIZE];
} seen_attempt;

typedef struct steps {
    step each[STEPS_MAX];
    size_t count;
} steps;

typedef struct script {
    steps steps;
    size_t calls;
    seen_attempt seen[SEEN_MAX]; /* the first of them */
    int64_t last_us;             /* when the last one began */
} script;

static struct {
    loop *loop;
    deployment deployment;
    call call;
    void *slots[1];

    script acquire, extend, release;
    int64_t free_at_us; /* an acquire that ends after this time is granted */
    bool is_token_varied;
    uint32_t granted_lease_ms, extended_lease_ms; /* 0: as asked for */

    loop_timer done; /* of the attempt under way */
    step now;
    bool is_under_way;
    int abandoned, sent;
} world;

/* -- the deployment */

static inline script *script_for(const attempt *attempt) {
    return attempt->operation == DLOCK_ACQUIRING   ? &world.acquire
           : attempt->operation == DLOCK_EXTENDING ? &world.extend
                                                   : &world.release;
}

static inline void on_fake_done(loop_timer *timer) {
    (void)timer;
    attempt *attempt = &world.call.attempt;
    bool is_acquire = attempt->operation == DLOCK_ACQUIRING;
    dlock_status status = world.now.status;
    if (is_acquire && fake.now_us >= world.free_at_us) status = DLOCK_OK;
    attempt->status = status;
    attempt->is_transient = world.now.is_transient;
    attempt->is_split = world.now.is_split;
    if (is_acquire && world.now.may_hold) attempt->fate = TOKEN_IN_DOUBT;
    attempt->cause = status == DLOCK_OK ? text_nothing : "as scripted";
    if (is_acquire && status == DLOCK_OK) attempt->fence = FENCE;
    if (status == DLOCK_OK && world.granted_lease_ms != 0)
        attempt->lease_ms = world.granted_lease_ms;
    if (!is_acquire && status == DLOCK_OK && world.extended_lease_ms != 0)
        attempt->lease_ms = world.extended_lease_ms;
    world.is_under_way = false;
    attempt->on_done(attempt);
}

static inline void fake_start(deployment *deployment, attempt *attempt) {
    script *script = script_for(attempt);
    CHECK(attempt == &world.call.attempt && !world.is_under_way);
    CHECK(is_text(attempt->name, "name"));
    if (script->calls > 0 && world.is_token_varied) text_append(attempt->token, 100, "~");
    if (script->calls < SEEN_MAX) {
        seen_attempt *seen = &script->seen[script->calls];
        *seen = (seen_attempt){fake.now_us, attempt->limit_us, attempt->wait_until_us, ""};
        text_copy(seen->token, sizeof(seen->token), attempt->token);
    }
    const steps *steps = &script->steps;
    world.now = steps->each[script->calls < steps->count ? script->calls : steps->count - 1];
    /* A call that tries for ever without a pause must fail, not hang. */
    if (++script->calls > CALLS_MAX) world.now = (step){.status = DLOCK_NO_MEMORY};
    script->last_us = fake.now_us;
    attempt->asked_us = fake.now_us;
    world.is_under_way = true;
    world.done.on_due = on_fake_done;
    int64_t due_us = deadline_earlier(fake.now_us + world.now.takes_us, attempt->limit_us);
    loop_set_timer(deployment->loop, &world.done, due_us);
    if (attempt->on_sent != NULL) attempt->on_sent(attempt);
}

static inline void fake_abandon(deployment *deployment, attempt *attempt) {
    CHECK(attempt == &world.call.attempt && world.is_under_way);
    loop_clear_timer(deployment->loop, &world.done);
    world.is_under_way = false;
    world.abandoned++;
}

static const deployment_table table = {.start = fake_start, .abandon = fake_abandon};

/* -- setting the stage */

static waiting spin = {.deployment = &world.deployment, .pause = {.min_ms = 10, .random_ms = 10}};
static const waiting parked = {.is_parked = true, .pause = {.min_ms = 10, .random_ms = 10}};

static inline steps steps_of(const step *first, size_t count) {
    steps made = {.count = count};
    memcpy(made.each, first, count * sizeof(*first));
    return made;
}

#define SCRIPT(...)                                                                                \
    steps_of((const step[]){__VA_ARGS__}, sizeof((const step[]){__VA_ARGS__}) / sizeof(step))

static const step granted = {.status = DLOCK_OK};
static const step busy = {.status = DLOCK_BUSY};
static const step lost = {.status = DLOCK_LOST};
/* As real deployments say so. */
static const step unreachable = {.status = DLOCK_UNREACHABLE, .is_transient = true};
static const step in_doubt = {.status = DLOCK_IN_DOUBT, .is_transient = true, .may_hold = true};
static const step refused_now = {.status = DLOCK_REFUSED, .is_transient = true};
static const step no_quorum = {.status = DLOCK_NO_QUORUM, .is_transient = true};

static const step split = {.status = DLOCK_NO_QUORUM, .is_transient = true, .is_split = true};
static const step split_busy = {.status = DLOCK_BUSY, .is_split = true};

static inline step for_good(dlock_status status) {
    return (step){.status = status};
}

static inline step slowly(step slow, int64_t takes_us) {
    slow.takes_us = takes_us;
    return slow;
}

static inline call *begin(steps acquires, int64_t wait_ms) {
    text_drop(&world.call.pub.cause);
    memset(&world, 0, sizeof(world));
    world.loop = fake_begin();
    world.acquire.steps = acquires;
    world.extend.steps = SCRIPT(granted);
    world.release.steps = SCRIPT(granted);
    world.free_at_us = DEADLINE_NEVER;
    world.deployment = (deployment){.table = &table,
                                    .can_wait = true,
                                    .protocol = &module_protocol,
                                    .loop = world.loop,
                                    .io_timeout_ms = IO_MS,
                                    .connect_timeout_ms = CONNECT_MS};
    static char token[DLOCK_TOKEN_SIZE];
    text_copy(token, sizeof(token), "token");
    world.call = (call){.pub = {.operation = DLOCK_ACQUIRING,
                                .name = "name",
                                .token = token,
                                .cause = text_nothing,
                                .lease_ms = LEASE_MS,
                                .started_us = START_US,
                                .deadline_us = deadline_after_ms(START_US, wait_ms)},
                        .loop = world.loop,
                        .stop = CALL_CANCELABLE,
                        .waiter.cancel = &world.call.cancel,
                        .slots = world.slots};
    world.call.attempt.name = world.call.pub.name;
    world.call.attempt.token = world.call.pub.token;
    loop_note_cancels(world.loop, &world.call.waiter, &world.call.cancel);
    return &world.call;
}

static inline call *begin_release(steps releases) {
    call *call = begin(SCRIPT(busy), 0);
    world.release.steps = releases;
    call->pub.operation = DLOCK_RELEASING;
    call->pub.asked_us = START_US;
    atomic_store(&call->stop, CALL_GOES_ON);
    call->waiter.cancel = NULL;
    return call;
}

static inline call *begin_extend(steps extensions) {
    call *call = begin_release(SCRIPT(busy));
    world.extend.steps = extensions;
    call->pub.operation = DLOCK_EXTENDING;
    call->pub.fence = FENCE;
    return call;
}

static inline dlock_status run(call *call, const waiting *rule) {
    waiting waiting = *rule;
    waiting.deployment = &world.deployment;
    dlock_handler handler = waiting_handler(&waiting);
    chain *chain = chain_new(1);
    chain_add(chain, handler, true);
    chain_begin(call);
    dlock_status status = finish_call(chain, call);
    CHECK(!world.is_under_way);
    free(chain);
    return status;
}

static inline void check_begun(const script *script, size_t number, int64_t expected_us) {
    CHECK(number < script->calls);
    CHECK_EQUAL(after_start_us(script->seen[number].begun_us), expected_us);
}

/* -- an acquire as a row of a table. Times are counted from the start; 0: as usual, or, of the
 * first group of what is expected, not looked at. */

typedef struct scenario {
    const char *name; /* a sentence */
    steps acquire, extend;
    const waiting *rule; /* NULL: spin */
    int64_t wait_ms, deadline_us;
    uint32_t lease_ms;
    uint8_t name_count;
    int64_t cancel_at_us;
    uint64_t chance;

    int64_t second_us, third_us;       /* when these attempts begin */
    int64_t limit_us, parked_until_us; /* of the first attempt */

    dlock_status status;
    int64_t calls, extends, withdrawn, abandoned;
    int64_t ends_us;
    int64_t asked_us; /* of a grant */
} scenario;

static inline const char *cause_of(dlock_status status) {
    return status == DLOCK_OK         ? ""
           : status == DLOCK_CANCELED ? "canceled"
           : status == DLOCK_LOST     ? "the lease had ended before the reply came"
                                      : "as scripted";
}

static inline void play(const scenario *row) {
    unit.name = row->name;
    call *call = begin(row->acquire, row->wait_ms);
    const seen_attempt *first = &world.acquire.seen[0];
    if (row->extend.count > 0) world.extend.steps = row->extend;
    if (row->deadline_us != 0) call->pub.deadline_us = START_US + row->deadline_us;
    if (row->lease_ms != 0) call->pub.lease_ms = row->lease_ms;
    call->attempt.name_count = row->name_count;
    if (row->cancel_at_us != 0) fake.cancel_at_us = START_US + row->cancel_at_us;
    fake.chance = row->chance;
    CHECK_EQUAL(run(call, row->rule == NULL ? &spin : row->rule), row->status);
    if (row->second_us != 0) check_begun(&world.acquire, 1, row->second_us);
    if (row->third_us != 0) check_begun(&world.acquire, 2, row->third_us);
    if (row->limit_us != 0) CHECK_EQUAL(after_start_us(first->limit_us), row->limit_us);
    if (row->parked_until_us != 0)
        CHECK_EQUAL(after_start_us(first->wait_until_us), row->parked_until_us);
    CHECK_EQUAL(world.acquire.calls, row->calls);
    CHECK_EQUAL(call->pub.attempts, row->calls);
    CHECK_EQUAL(world.extend.calls, row->extends);
    CHECK_EQUAL(call->pub.remote_us, row->calls > 0 ? START_US : 0);
    CHECK_EQUAL(fake.withdrawn, row->withdrawn);
    CHECK_EQUAL(world.abandoned, row->abandoned);
    CHECK_EQUAL(after_start_us(fake.now_us), row->ends_us);
    CHECK_TEXT(call->pub.cause, cause_of(row->status));
    if (row->calls > 0) CHECK_TEXT(first->token, "token");
    if (row->withdrawn > 0) CHECK_TEXT(fake.withdrawn_token, "token");
    if (row->withdrawn > 0) CHECK_EQUAL(fake.withdrawn_lease_ms, call->pub.lease_ms);
    if (row->status != DLOCK_OK) return;
    CHECK_EQUAL(after_start_us(call->pub.asked_us), row->asked_us);
    CHECK_EQUAL(call->pub.fence, FENCE);
}

#define PLAY(rows)                                                                                 \
    EACH_ROW(i, rows)                                                                              \
    play(&rows[i])

#define CHECK_CALLS(script, expected) CHECK_EQUAL((int64_t)(script).calls, expected)

#endif
