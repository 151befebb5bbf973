/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot_world.h - the local layer before a service that is faked, in a world with one thread.
 *
 * A handle is a call with its slots, as the API has it. Calls of several handles go on at a time:
 * start_acquire() leaves a call suspended in the local queue, and go_on() advances it. The service
 * grants with its next fence, unless it has a status to say; and it counts. */
#ifndef DLOCK_HOTSPOT_WORLD_H
#define DLOCK_HOTSPOT_WORLD_H

#include "fake_time.h"
#include "handlers/hotspot.h"
#include "lease/lease.h"

enum { HANDLES = 64, LEASE_MS = 10000, WAIT_MS = 1000, NAMES = 100 };

typedef struct handle {
    call call;
    void *slots[2];
    char name[16], token[DLOCK_TOKEN_SIZE];
    dlock_mode mode;
    dlock_status status; /* of the last call that is done */
    bool is_waiting;     /* a call is suspended */
} handle;

static struct {
    /* The service. */
    dlock_status says;
    int64_t takes_us;
    uint32_t attempts_each;
    int acquires, releases, extends;
    uint64_t fence;          /* the last one */
    bool has_no_runs;        /* of fences */
    handle *tries_meanwhile; /* while it is about to answer a release */
    bool is_asked;           /* false: a handler before it answers, so that nobody was asked */
    bool is_withdrawing;     /* as waiting.c does after a failure */
    bool is_token_varied;    /* by each acquire */

    deployment deployment;
    hotspot layer;
    chain *all;
    handle handles[HANDLES];
    size_t taken;
    int tokens;
} world;

/* -- the service */

static inline void try(handle *handle);

/* The release is on its way; before the reply comes, somebody else tries. */
static inline void tell_sent(call *call) {
    call->attempt.arg = call;
    loop_lock(call->loop);
    if (call->attempt.on_sent != NULL) call->attempt.on_sent(&call->attempt);
    loop_unlock(call->loop);
    handle *other = world.tries_meanwhile;
    world.tries_meanwhile = NULL;
    if (other != NULL) try(other);
}

/* With a run of fences, as far as one is wanted and the service has it. */
static inline void grant(call *call) {
    if (world.has_no_runs) call->attempt.fences = 0;
    call->pub.fence = world.fence + 1;
    world.fence += call->attempt.fences > 0 ? call->attempt.fences : 1;
}

static inline dlock_step serve(void *arg, dlock_call *pub) {
    (void)arg;
    call *call = call_of(pub);
    int64_t asked_us = fake.now_us;
    fake.now_us += world.takes_us;
    pub->status = world.says;
    if (pub->status == DLOCK_OK && pub->operation != DLOCK_RELEASING) pub->asked_us = asked_us;
    if (pub->operation == DLOCK_RELEASING) {
        world.releases++;
        tell_sent(call);
    } else if (pub->operation == DLOCK_EXTENDING) {
        world.extends++;
    } else {
        world.acquires++;
        if (world.is_asked && pub->remote_us == 0) pub->remote_us = asked_us;
        if (world.is_asked) pub->attempts += world.attempts_each;
        if (world.is_asked && world.is_token_varied)
            text_copy(pub->token, DLOCK_TOKEN_SIZE, "another");
        if (pub->status == DLOCK_OK) grant(call);
        if (pub->status != DLOCK_OK && world.is_withdrawing) call->attempt.fate = TOKEN_UNHELD;
    }
    return DLOCK_ANSWER;
}

/* -- setting the stage */

static inline void begin(hotspot layer) {
    memset(&world, 0, sizeof(world));
    static const deployment_table table = {0};
    world.deployment.table = &table;
    world.deployment.loop = fake_begin();
    world.attempts_each = 1;
    world.is_asked = true;
    world.is_withdrawing = true;
    world.layer = layer;
    world.layer.deployment = &world.deployment;
    hot_names_init(&world.layer.names, layer.names.auto_max);
    world.all = chain_new(2);
    dlock_handler local = hotspot_handler(&world.layer);
    dlock_handler remote = {
        .struct_size = sizeof(remote), .order = DLOCK_ORDER_WAITING, .enter = serve};
    chain_add(world.all, local, true);
    chain_add(world.all, remote, true);
}

static inline void end(void) {
    for (size_t i = 0; i < HANDLES; i++) {
        CHECK(!world.handles[i].is_waiting);
        text_drop(&world.handles[i].call.pub.cause);
    }
    CHECK_EQUAL(atomic_load(&world.layer.waiting), 0);
    free(world.all);
    hot_names_free(&world.layer.names);
}

/* A handle that nobody uses by now: there are more than a case has at a time. */
static inline handle *handle_of(const char *name) {
    handle *made = &world.handles[world.taken++ % HANDLES];
    text_drop(&made->call.pub.cause);
    memset(made, 0, sizeof(*made));
    text_copy(made->name, sizeof(made->name), name);
    return made;
}

/* -- calls */

static inline void begin_call(handle *handle, dlock_operation operation, uint32_t lease_ms,
                              int64_t wait_ms) {
    call *call = &handle->call;
    dlock_call before = call->pub;
    text_drop(&call->pub.cause);
    call->pub = (dlock_call){.operation = operation,
                             .name = handle->name,
                             .lease_ms = lease_ms,
                             .mode = handle->mode,
                             .started_us = fake.now_us,
                             .deadline_us = deadline_after_ms(fake.now_us, wait_ms),
                             .token = handle->token,
                             .cause = text_nothing};
    call->loop = world.deployment.loop;
    call->slots = handle->slots;
    loop_note_cancels(call->loop, &call->waiter, &call->cancel);
    bool is_acquire = operation == DLOCK_ACQUIRING;
    atomic_store(&call->stop, is_acquire ? CALL_CANCELABLE : CALL_GOES_ON);
    call->waiter.cancel = is_acquire ? &call->cancel : NULL;
    if (operation == DLOCK_ACQUIRING) {
        snprintf(handle->token, sizeof(handle->token), "token %d", ++world.tokens);
    } else {
        call->pub.fence = before.fence;
        call->pub.asked_us = before.asked_us;
    }
    chain_begin(call);
}

/* True: the call is done. */
static inline bool go_on(handle *handle) {
    handle->is_waiting = !chain_advance(world.all, &handle->call);
    if (!handle->is_waiting) handle->status = handle->call.pub.status;
    return !handle->is_waiting;
}

static inline void finish(handle *handle) {
    finish_call(world.all, &handle->call);
    go_on(handle);
}

static inline void start_acquire_for(handle *handle, uint32_t lease_ms, int64_t wait_ms) {
    begin_call(handle, DLOCK_ACQUIRING, lease_ms, wait_ms);
    go_on(handle);
}

/* Must stay in the queue. */
static inline void queue_up(handle *handle) {
    start_acquire_for(handle, LEASE_MS, WAIT_MS);
    CHECK(handle->is_waiting);
}

static inline void acquire(handle *handle) {
    start_acquire_for(handle, LEASE_MS, WAIT_MS);
    finish(handle);
}

static inline void try(handle *handle) {
    start_acquire_for(handle, LEASE_MS, 0);
    CHECK(!handle->is_waiting);
}

static inline void release(handle *handle) {
    begin_call(handle, DLOCK_RELEASING, LEASE_MS, 0);
    finish(handle);
}

static inline void extend_for(handle *handle, uint32_t lease_ms) {
    begin_call(handle, DLOCK_EXTENDING, lease_ms, 0);
    finish(handle);
}

static inline handle *reader_of(const char *name) {
    handle *made = handle_of(name);
    made->mode = DLOCK_SHARED;
    return made;
}

static inline handle *holder_of(const char *name) {
    handle *made = handle_of(name);
    acquire(made);
    CHECK_EQUAL(made->status, DLOCK_OK);
    return made;
}

/* Tries once, with the service saying no. */
static inline void contend(const char *name) {
    dlock_status before = world.says;
    world.says = DLOCK_BUSY;
    try(handle_of(name));
    world.says = before;
}

/* A local lock is known by this: an acquire that only tries is refused without the service. */
static inline bool is_local(const char *name) {
    handle *holder = holder_of(name), *other = handle_of(name);
    int before = world.acquires;
    dlock_status says = world.says;
    world.says = DLOCK_REFUSED;
    try(other);
    world.says = says;
    bool is_so = world.acquires == before;
    release(holder);
    return is_so;
}

/* Has two got the lock of one? Each holder has a fence of its own. */
static inline bool is_same_lock(const handle *one, const handle *two) {
    CHECK(one->call.pub.fence != two->call.pub.fence);
    return is_text(one->call.pub.token, two->call.pub.token);
}

#endif
