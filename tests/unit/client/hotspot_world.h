/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot_world.h - the local layer before a service that is faked, in a world with one thread.
 *
 * The clock moves only while somebody sleeps or the service takes its time. What the other threads
 * do meanwhile is done by whoever sleeps: the next of world.meanwhile, with the lock it is about.
 * When nothing is left to be done, the sleeper sleeps until its deadline.
 *
 * A handle is a claim with its slots, like lock.c has it. The service grants with its next fence,
 * unless it has a status to say; and it counts. */
#ifndef DLOCK_HOTSPOT_WORLD_H
#define DLOCK_HOTSPOT_WORLD_H

#include "chain.h"
#include "deadline.h"
#include "hotspot.h"
#include "text.h"
#include "unit.h"

#define START_US INT64_C(5000000)
#define MS       INT64_C(1000)

enum { HANDLES = 64, EVENTS_MAX = 16, LEASE_MS = 10000, WAIT_MS = 1000, NAMES = 100 };

typedef struct handle {
    claim of;
    void *slots[2];
    char name[16];
    dlock_status status; /* of the last call */
} handle;

typedef struct event {
    void (*function)(handle *who);
    handle *who;
} event;

static struct {
    int64_t now_us;
    event meanwhile[EVENTS_MAX];
    size_t planned, done;

    /* The service. */
    dlock_status says;
    int64_t takes_us;
    uint32_t attempts_each;
    int acquires, releases, extends;
    uint64_t fence;
    handle *tries_meanwhile;         /* while it is about to answer a release */
    bool is_asked;                   /* false: one before it answers, so that nobody was asked */
    bool is_token_varied;            /* by each acquire */
    char released[DLOCK_TOKEN_SIZE]; /* the last one */

    hotspot *layer;
    chain *all;
    handle handles[HANDLES];
    size_t taken;
    int tokens;
    atomic_bool is_canceled;
} world;

/* -- the environment */

static inline int64_t fake_now_us(const environment *self) {
    (void)self;
    return world.now_us;
}

static inline void fake_sleep_until(const environment *self, int64_t at_us, int wake_fd) {
    (void)self, (void)wake_fd;
    if (world.done < world.planned) {
        event next = world.meanwhile[world.done++];
        next.function(next.who);
    } else {
        world.now_us = at_us;
    }
}

static const environment env = {.now_us = fake_now_us, .sleep_until = fake_sleep_until};

static inline void meanwhile(void (*function)(handle *who), handle *who) {
    world.meanwhile[world.planned++] = (event){function, who};
}

/* -- the service */

static inline void try(handle *who);

/* It is told of a release; before it answers, somebody else tries. */
static inline void tell_sent(claim *of) {
    if (of->on_sent != NULL) of->on_sent(of->on_sent_arg);
    handle *other = world.tries_meanwhile;
    world.tries_meanwhile = NULL;
    if (other != NULL) try(other);
}

static inline dlock_status serve(void *arg, dlock_call *call, dlock_chain *rest) {
    (void)arg, (void)rest;
    if (world.is_asked && call->remote_us == 0) call->remote_us = world.now_us;
    call->asked_us = world.now_us;
    world.now_us += world.takes_us;
    if (call->operation == DLOCK_RELEASING) {
        world.releases++;
        text_copy(world.released, sizeof(world.released), call->token);
        tell_sent((claim *)call);
        return world.says;
    }
    if (call->operation == DLOCK_EXTENDING) {
        world.extends++;
        return world.says;
    }
    world.acquires++;
    if (world.is_token_varied) text_copy(call->token, sizeof(call->token), "another");
    if (world.is_asked) call->attempts += world.attempts_each;
    if (world.says == DLOCK_OK) call->fence = ++world.fence;
    return world.says;
}

/* -- setting the stage */

static inline void begin(hotspot_rule rule) {
    memset(&world, 0, sizeof(world));
    world.now_us = START_US;
    world.attempts_each = 1;
    world.is_asked = true;
    world.layer = hotspot_new(&rule, &env);
    world.all = chain_new(2);
    dlock_handler local = hotspot_handler(world.layer);
    dlock_handler remote = {
        .struct_size = sizeof(remote), .order = DLOCK_ORDER_WAITING, .handle = serve};
    chain_add(world.all, &local);
    chain_add(world.all, &remote);
}

static inline void end(void) {
    CHECK_EQUAL((int64_t)world.done, (int64_t)world.planned);
    chain_free(world.all);
    hotspot_free(world.layer);
}

/* One that nobody uses by now: there are more than a case has at a time. */
static inline handle *handle_of(const char *name) {
    handle *made = &world.handles[world.taken++ % HANDLES];
    memset(made, 0, sizeof(*made));
    text_copy(made->name, sizeof(made->name), name);
    return made;
}

static inline void begin_call(handle *who, dlock_operation operation, uint32_t lease_ms,
                              int64_t wait_ms) {
    dlock_call before = who->of.call;
    who->of = (claim){.call = {.operation = operation,
                               .name = who->name,
                               .lease_ms = lease_ms,
                               .started_us = world.now_us,
                               .deadline_us = deadline_after_ms(world.now_us, wait_ms)},
                      .stop = {.fd = -1, .is_requested = &world.is_canceled}};
    if (operation != DLOCK_ACQUIRING) {
        who->of.call.fence = before.fence;
        text_copy(who->of.call.token, sizeof(who->of.call.token), before.token);
    }
}

static inline dlock_status acquire_for(handle *who, uint32_t lease_ms, int64_t wait_ms) {
    begin_call(who, DLOCK_ACQUIRING, lease_ms, wait_ms);
    snprintf(who->of.call.token, sizeof(who->of.call.token), "token %d", ++world.tokens);
    return who->status = chain_run(world.all, &who->of, who->slots);
}

static inline void acquire(handle *who) {
    acquire_for(who, LEASE_MS, WAIT_MS);
}

static inline void try(handle *who) {
    acquire_for(who, LEASE_MS, 0);
}

static inline void release(handle *who) {
    begin_call(who, DLOCK_RELEASING, LEASE_MS, 0);
    who->status = chain_run(world.all, &who->of, who->slots);
}

static inline void extend(handle *who) {
    begin_call(who, DLOCK_EXTENDING, LEASE_MS, 0);
    who->status = chain_run(world.all, &who->of, who->slots);
}

static inline void cancel(handle *who) {
    (void)who;
    atomic_store(&world.is_canceled, true);
}

static inline void remove_name(handle *who) {
    hotspot_remove(world.layer, who->name);
}

static inline handle *holder_of(const char *name) {
    handle *made = handle_of(name);
    acquire(made);
    CHECK_EQUAL(made->status, DLOCK_OK);
    return made;
}

/* Asks once, with the service saying no. */
static inline void contend(const char *name) {
    dlock_status before = world.says;
    world.says = DLOCK_BUSY;
    try(handle_of(name));
    world.says = before;
}

/* A local lock is known by this: who only tries is refused without a word to the service. */
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

#endif
