/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.c - see transition.h.
 *
 *   acquire    free: grant. Shared, with room for the request, and nobody waits: join. Held by the
 *              same token: the same fence again, or a higher one if the request asks for it. Held
 *              by other tokens: refuse, or wait
 *   release    one holder leaves, and the first waiters get the lock in the same step, as many as
 *              there is room for; without holders and waiters, the key goes
 *   end        the same when a lease or a session ends (called by work.c)
 *   serve      the same when there is room for another reason: DEL, or a waiter has left its queue
 *
 * Order within a step: judge, then the keyspace, then the replication stream, then counters and the
 * waiter's reply; keyspace events follow when the key is closed. A refused request changes neither
 * the keyspace nor the stream.
 *
 * A lock whose lease has ended is removed by the next command on it, or by work.c. */
#include "transition.h"

#include "blocked.h"
#include "fence.h"
#include "queues.h"
#include "replicate.h"
#include "server.h"
#include "sessions.h"
#include "settings.h"
#include "stats.h"

/* Redis does not tell the module when a plain string goes away, or when an operator has set a TTL
 * on a lock. So the module looks at a lock while clients wait; the more names are waited for, the
 * more seldom it looks at each. */
enum { STRING_LOOK_US = 5000, LOCK_LOOK_US = 200000, LOOK_PER_QUEUE_US = 50 };

static void watch(const lock_entry *entry, wait_queue *waiting) {
    int64_t pause_us = queues_count() * LOOK_PER_QUEUE_US;
    if (entry->held.kind == LOCK_KIND_STRING) {
        pause_us += STRING_LOOK_US;
    } else {
        int64_t ttl_ms = lock_store_key_ttl_ms(entry);
        pause_us += LOCK_LOOK_US;
        if (ttl_ms >= 0 && ttl_ms < pause_us / 1000) pause_us = (ttl_ms + 1) * 1000;
    }
    queues_set_look(waiting, entry->now_us + pause_us);
}

void transition_watch(lock_entry *entry) {
    wait_queue *waiting = queues_find(entry->db, entry->name);
    if (waiting != NULL && entry->is_held) watch(entry, waiting);
}

typedef enum grant_kind { GRANT_ALONE, GRANT_JOINING } grant_kind;

/* argv: the arguments of the running command if it asks for the grant itself, so that the
 * replication stream can use them; else NULL. */
static void grant(lock_entry *entry, const lock_request *request, uint64_t client, grant_kind kind,
                  RedisModuleString **argv, const char *event) {
    fence_time now = {.wall_us = server_wall_us(), .boot_us = entry->now_us};
    lock_state granted = {
        .kind = LOCK_KIND_LOCK,
        .is_shared = request->is_shared,
        .token = request->token,
        .fence = fence_next(now, request->fence),
        .lease_ms = request->lease_ms,
    };
    if (kind == GRANT_ALONE)
        lock_store_put(entry, &granted);
    else
        lock_store_join(entry, &granted);
    replicate_state(entry->ctx, argv, entry->argc, entry->name, &granted);
    if (request->is_session) sessions_bind(entry->hold, client);
    stats_count(STATS_GRANTED);
    lock_store_notify(entry, event);
}

/* The first waiter from here on whose wait is not over, or NULL. work.c refuses the others, in
 * portions. */
static waiter *skip_ended(const lock_entry *entry, waiter *first) {
    while (first != NULL && first->end.at_us <= entry->now_us)
        first = first->next;
    return first;
}

static waiter *first_waiter(const lock_entry *entry) {
    const wait_queue *waiting = queues_find(entry->db, entry->name);
    return waiting == NULL ? NULL : skip_ended(entry, waiting->first);
}

static bool has_room(const lock_entry *entry, const lock_request *request) {
    return lock_has_room(&entry->held, lock_store_holder_count(entry), request,
                         settings.max_holders);
}

static void renew(lock_entry *entry, int64_t lease_ms) {
    lock_store_renew(entry, lease_ms);
    replicate_state(entry->ctx, entry->argv, entry->argc, entry->name, &entry->held);
    lock_store_notify(entry, "dlock.extend");
}

/* Raises the fence of the holder. */
static void lift_fence(lock_entry *entry, const lock_request *request, bool is_renewed) {
    fence_time now = {.wall_us = server_wall_us(), .boot_us = entry->now_us};
    lock_store_set_fence(entry, fence_next(now, request->fence));
    if (is_renewed) lock_store_renew(entry, request->lease_ms);
    replicate_state(entry->ctx, NULL, 0, entry->name, &entry->held);
    lock_store_notify(entry, "dlock.extend");
}

/* The holder asked again, maybe because the connection of the grant is dead. The hold gets a new
 * id: cleaning up after the dead connection refers to the old id, and does not end the hold. */
static void reacquire(lock_entry *entry, const lock_request *request, uint64_t client) {
    uint64_t old_id = entry->hold.id;
    lock_store_renew_hold(entry);
    if (request->is_session) {
        sessions_forget(old_id);
        sessions_bind(entry->hold, client);
    } else {
        sessions_rename(old_id, entry->hold);
    }
    stats_count(STATS_REACQUIRED);
}

/* The holder in the entry has the token and the mode of the request. */
static void grant_again(lock_entry *entry, const lock_request *request, uint64_t client) {
    bool is_renewed = lock_restarts(&entry->held, request->lease_ms);
    if (request->fence > entry->held.fence)
        lift_fence(entry, request, is_renewed);
    else if (is_renewed)
        renew(entry, request->lease_ms);
    reacquire(entry, request, client);
}

/* Gives the lock to the first waiters: to one exclusive waiter, or to shared ones as long as there
 * is room. is_free: the lock is free, or its last holder is about to be replaced. RENAME, RESTORE
 * and SWAPDB can bring a lock that the token of a waiter holds already. */
static void serve(lock_entry *entry, bool is_free) {
    waiter *next = first_waiter(entry), *after;
    for (; next != NULL; next = after) {
        if (!is_free && !has_room(entry, &next->request)) break;
        after = skip_ended(entry, next->next);
        if (!is_free) entry->now_us = server_boot_us(); /* a long run takes milliseconds */
        if (!is_free && lock_store_find(entry, next->request.token))
            grant_again(entry, &next->request, next->client);
        else
            grant(entry, &next->request, next->client, is_free ? GRANT_ALONE : GRANT_JOINING, NULL,
                  "dlock.handover");
        is_free = false;
        stats_count(STATS_HANDED_OVER);
        blocked_grant(next, entry->hold, entry->held.fence, entry->now_us + entry->held.left_us);
    }
    transition_watch(entry);
}

bool transition_is_over(const lock_entry *entry) {
    return entry->is_held && entry->held.kind == LOCK_KIND_LOCK && entry->held.left_us <= 0 &&
           server_decides(entry->ctx);
}

/* The holder in the entry leaves. follower: the waiter that will get the lock in the same step if
 * this was the last holder; NULL: none. is_command: the running command is its RELEASE.
 *
 * A follower replaces the last holder in place, here and, by one command, on the replicas. But a
 * shared follower would join a shared holder there, so the stream has to remove that one. */
static void leave(lock_entry *entry, const waiter *follower, bool is_command) {
    bool is_replaced = follower != NULL && lock_store_holder_count(entry) == 1;
    if (!is_replaced || (entry->held.is_shared && follower->request.is_shared)) {
        if (is_command)
            replicate_command(entry->ctx);
        else
            replicate_release(entry->ctx, entry->name, entry->held.token);
    }
    if (!is_replaced) lock_store_remove(entry);
}

static void end_hold(lock_entry *entry, transition_reason reason, const waiter *follower) {
    bool is_expired = reason == LEASE_ENDED;
    stats_count(is_expired ? STATS_EXPIRED : STATS_SESSION_RELEASES);
    lock_store_notify(entry, is_expired ? "dlock.expire" : "dlock.release");
    leave(entry, follower, false);
}

void transition_end(lock_entry *entry, transition_reason reason, bool may_grant) {
    bool is_last = lock_store_holder_count(entry) == 1;
    end_hold(entry, reason, may_grant ? first_waiter(entry) : NULL);
    if (may_grant) {
        serve(entry, is_last);
        return;
    }
    wait_queue *waiting = queues_find(entry->db, entry->name);
    if (waiting != NULL) queues_mark(waiting);
}

/* For several holders. */
static void end_all_over(lock_entry *entry) {
    lock_holder **over;
    int64_t count = lock_store_find_over(entry, &over);
    bool is_free = count == lock_store_holder_count(entry);
    const waiter *follower = is_free ? first_waiter(entry) : NULL;
    for (int64_t i = 0; i < count; i++) {
        lock_store_select(entry, over[i]);
        end_hold(entry, LEASE_ENDED, follower);
    }
    RedisModule_Free(over);
    if (count > 0) serve(entry, is_free);
}

/* On a server that does not decide, a lock is held until the master says otherwise. */
static void end_if_over(lock_entry *entry) {
    if (!entry->is_held || entry->held.kind != LOCK_KIND_LOCK) return;
    if (lock_store_may_be_over(entry)) {
        if (server_decides(entry->ctx)) end_all_over(entry);
    } else if (entry->held.left_us <= 0) {
        if (server_decides(entry->ctx))
            transition_end(entry, LEASE_ENDED, true);
        else
            entry->held.left_us = 1;
    }
}

bool transition_can_serve(lock_entry *entry) {
    if (!entry->is_held || transition_is_over(entry)) return true;
    if (lock_store_may_be_over(entry)) return true;
    const waiter *first = first_waiter(entry);
    return first != NULL && has_room(entry, &first->request);
}

void transition_serve(lock_entry *entry) {
    end_if_over(entry);
    serve(entry, !entry->is_held);
}

/* After end_if_over(): does the token hold the lock? */
static bool find_holder(lock_entry *entry, lock_token token) {
    if (!lock_store_find(entry, token)) return false;
    if (entry->held.kind == LOCK_KIND_LOCK && entry->held.left_us <= 0) entry->held.left_us = 1;
    return true;
}

/* The first fitting request gets the lock, but never before a client that waits. */
static transition_answer grant_or_refuse(lock_entry *entry, const lock_request *request,
                                         lock_verdict verdict) {
    if (verdict == LOCK_GRANT || (verdict == LOCK_JOIN && first_waiter(entry) == NULL)) {
        grant(entry, request, request->is_session ? RedisModule_GetClientId(entry->ctx) : 0,
              verdict == LOCK_GRANT ? GRANT_ALONE : GRANT_JOINING, entry->argv, "dlock.acquire");
        return TRANSITION_HELD;
    }
    stats_count(STATS_CONTENDED);
    return TRANSITION_BUSY;
}

transition_answer transition_acquire(lock_entry *entry, const lock_request *request) {
    end_if_over(entry);
    if (!entry->is_held) serve(entry, true); /* free: waiters come first */
    find_holder(entry, request->token);
    lock_verdict verdict = lock_judge_acquire(
        lock_store_held(entry), lock_store_holder_count(entry), request, settings.max_holders);
    switch (verdict) {
    case LOCK_AGAIN:
        grant_again(entry, request, RedisModule_GetClientId(entry->ctx));
        return TRANSITION_HELD;
    case LOCK_OTHER_MODE:
        return TRANSITION_OTHER_MODE;
    case LOCK_GRANT:
    case LOCK_JOIN:
    case LOCK_REFUSE:
        break;
    }
    return grant_or_refuse(entry, request, verdict);
}

static waiter *find_waiter(const lock_entry *entry, lock_token token) {
    const wait_queue *waiting = queues_find(entry->db, entry->name);
    return waiting == NULL ? NULL : queues_find_token(waiting, token);
}

bool transition_knows(lock_entry *entry, lock_token token) {
    end_if_over(entry);
    return find_holder(entry, token) || find_waiter(entry, token) != NULL;
}

/* A request that was waiting already may have come with other options, and may fit now. */
void transition_wait_or_reply(lock_entry *entry, const lock_request *request) {
    if (!blocked_park_or_reply(entry->ctx, entry->name, request)) return;
    wait_queue *waiting = queues_find(entry->db, entry->name);
    if (waiting->look.at_us == SERVER_NEVER) watch(entry, waiting);
    const waiter *first = first_waiter(entry);
    if (first != NULL && has_room(entry, &first->request)) queues_mark(waiting);
}

static void end_wait(const lock_entry *entry, lock_token token) {
    waiter *found = find_waiter(entry, token);
    if (found != NULL) blocked_refuse(found);
}

/* The fence is the time of the grant, unless it runs ahead of the clock. */
static void count_hold(const lock_state *held) {
    int64_t held_us = server_wall_us() - held->fence;
    if (held->kind == LOCK_KIND_LOCK && held_us >= 0) stats_add(&stats_hold_us, held_us);
}

bool transition_release(lock_entry *entry, lock_token token) {
    end_if_over(entry);
    if (!find_holder(entry, token)) {
        end_wait(entry, token);
        stats_count(STATS_REFUSED);
        return false;
    }
    count_hold(&entry->held);
    stats_count(STATS_RELEASED);
    lock_store_notify(entry, "dlock.release");
    const waiter *follower = first_waiter(entry);
    if (follower != NULL && server_is_replaying(entry->ctx))
        follower = NULL; /* the master decides */
    bool is_last = lock_store_holder_count(entry) == 1;
    leave(entry, follower, true);
    if (follower != NULL) serve(entry, is_last);
    return true;
}

/* The core expires a plain string, by the wall clock. */
static void extend_string(lock_entry *entry, int64_t lease_ms) {
    int64_t ttl_ms = lock_store_key_ttl_ms(entry);
    if (ttl_ms < 0 || ttl_ms >= lease_ms) return;
    int64_t expires_ms = server_wall_us() / 1000 + lease_ms;
    lock_store_set_string_ttl(entry, expires_ms);
    replicate_string_expiry(entry->ctx, entry->name, expires_ms);
    lock_store_notify(entry, "dlock.extend");
}

bool transition_extend(lock_entry *entry, const lock_request *request) {
    end_if_over(entry);
    if (!find_holder(entry, request->token)) {
        stats_count(STATS_REFUSED);
        return false;
    }
    if (entry->held.kind == LOCK_KIND_STRING)
        extend_string(entry, request->lease_ms);
    else if (lock_restarts(&entry->held, request->lease_ms))
        renew(entry, request->lease_ms);
    stats_count(STATS_EXTENDED);
    return true;
}

void transition_apply(lock_entry *entry, const lock_state *state) {
    bool is_found = lock_store_find(entry, state->token) && entry->value != NULL;
    bool is_shared = entry->value != NULL && lock_value_is_shared(entry->value);
    bool is_same = is_found && is_shared == state->is_shared;
    if (is_same) {
        lock_store_set_fence(entry, state->fence);
        lock_store_renew(entry, state->lease_ms);
    } else if (is_shared && state->is_shared) {
        lock_store_join(entry, state);
    } else {
        lock_store_put(entry, state);
    }
    fence_raise(state->fence);
    replicate_command(entry->ctx);
    lock_store_notify(entry, is_same ? "dlock.extend" : "dlock.acquire");
}
