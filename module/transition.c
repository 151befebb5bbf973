/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.c - see transition.h.
 *
 *   acquire    free: grant. Held by the same token: the same fence again, or a higher one if the
 *              request asks for it. Held by another token: refuse, or wait
 *   release    the first waiter becomes the holder in the same step; without waiters, the key goes
 *   end        the same when a lease or a session ends (called by work.c)
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

/* is_command: the running command asks for the grant itself, so that the replication stream can
 * use the arguments of the command. */
static void grant(lock_entry *entry, const lock_request *request, uint64_t client, bool is_command,
                  const char *event) {
    fence_time now = {.wall_us = server_wall_us(), .boot_us = entry->now_us};
    lock_state granted = {
        .kind = LOCK_KIND_LOCK,
        .token = request->token,
        .fence = fence_next(now, request->fence),
        .lease_ms = request->lease_ms,
    };
    lock_store_put(entry, &granted);
    replicate_state(entry->ctx, is_command ? entry->argv : NULL, entry->argc, entry->name,
                    &granted);
    if (request->is_session) sessions_bind(entry->hold, client);
    stats_count(STATS_GRANTED);
    lock_store_notify(entry, event);
}

/* The first waiter whose wait is not over, or NULL. work.c refuses earlier ones, in portions. */
static waiter *first_waiter(const lock_entry *entry) {
    const wait_queue *waiting = queues_find(entry->db, entry->name);
    waiter *first = waiting == NULL ? NULL : waiting->first;
    while (first != NULL && first->end.at_us <= entry->now_us)
        first = first->next;
    return first;
}

static void hand_over(lock_entry *entry, waiter *next) {
    grant(entry, &next->request, next->client, false, "dlock.handover");
    stats_count(STATS_HANDED_OVER);
    blocked_grant(next, entry->hold, entry->held.fence, entry->now_us + entry->held.left_us);
    transition_watch(entry);
}

void transition_hand_over(lock_entry *entry) {
    waiter *next = first_waiter(entry);
    if (next != NULL) hand_over(entry, next);
}

bool transition_is_over(const lock_entry *entry) {
    return entry->is_held && entry->held.kind == LOCK_KIND_LOCK && entry->held.left_us <= 0 &&
           server_decides(entry->ctx);
}

void transition_end(lock_entry *entry, transition_reason reason, bool may_grant) {
    bool is_expired = reason == LEASE_ENDED;
    sessions_forget(entry->hold.id);
    stats_count(is_expired ? STATS_EXPIRED : STATS_SESSION_RELEASES);
    waiter *next = may_grant ? first_waiter(entry) : NULL;
    if (next == NULL) {
        replicate_release(entry->ctx, entry->name, entry->held.token);
        lock_store_remove(entry);
    }
    lock_store_notify(entry, is_expired ? "dlock.expire" : "dlock.release");
    if (next != NULL) hand_over(entry, next);
    wait_queue *waiting = may_grant ? NULL : queues_find(entry->db, entry->name);
    if (waiting != NULL) queues_mark(waiting);
}

/* On a server that does not decide, a lock is held until the master says otherwise. */
static void end_if_over(lock_entry *entry) {
    if (!entry->is_held || entry->held.kind != LOCK_KIND_LOCK || entry->held.left_us > 0) return;
    if (server_decides(entry->ctx))
        transition_end(entry, LEASE_ENDED, true);
    else
        entry->held.left_us = 1;
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
static void reacquire(lock_entry *entry, const lock_request *request) {
    uint64_t old_id = entry->hold.id;
    lock_store_renew_hold(entry);
    if (request->is_session) {
        sessions_forget(old_id);
        sessions_bind(entry->hold, RedisModule_GetClientId(entry->ctx));
    } else {
        sessions_rename(old_id, entry->hold);
    }
    stats_count(STATS_REACQUIRED);
}

int64_t transition_acquire(lock_entry *entry, const lock_request *request) {
    end_if_over(entry);
    if (!entry->is_held) transition_hand_over(entry); /* free: waiters come first */
    lock_verdict verdict = lock_judge_acquire(lock_store_held(entry), request);
    switch (verdict) {
    case LOCK_GRANT:
        grant(entry, request, request->is_session ? RedisModule_GetClientId(entry->ctx) : 0, true,
              "dlock.acquire");
        return entry->held.fence;
    case LOCK_RENEW:
    case LOCK_KEEP:
        if (request->fence > entry->held.fence)
            lift_fence(entry, request, verdict == LOCK_RENEW);
        else if (verdict == LOCK_RENEW)
            renew(entry, request->lease_ms);
        reacquire(entry, request);
        return entry->held.fence;
    case LOCK_REFUSE:
        break;
    }
    stats_count(STATS_CONTENDED);
    return 0;
}

void transition_wait_or_reply(lock_entry *entry, const lock_request *request) {
    if (!blocked_park_or_reply(entry->ctx, entry->name, request)) return;
    wait_queue *waiting = queues_find(entry->db, entry->name);
    if (waiting->look.at_us == SERVER_NEVER) watch(entry, waiting);
}

static void end_wait(const lock_entry *entry, lock_token token) {
    wait_queue *waiting = queues_find(entry->db, entry->name);
    waiter *found = waiting == NULL ? NULL : queues_find_token(waiting, token);
    if (found != NULL) blocked_refuse(found);
}

/* The fence is the time of the grant, unless it runs ahead of the clock. */
static void count_hold(const lock_state *held) {
    int64_t held_us = server_wall_us() - held->fence;
    if (held->kind == LOCK_KIND_LOCK && held_us >= 0) stats_add(&stats_hold_us, held_us);
}

bool transition_release(lock_entry *entry, lock_token token) {
    end_if_over(entry);
    if (!lock_is_held_by(lock_store_held(entry), token)) {
        end_wait(entry, token);
        stats_count(STATS_REFUSED);
        return false;
    }
    count_hold(&entry->held);
    sessions_forget(entry->hold.id);
    stats_count(STATS_RELEASED);
    waiter *next = first_waiter(entry);
    if (next != NULL && server_is_replaying(entry->ctx)) next = NULL; /* the master decides */
    if (next == NULL) {
        lock_store_remove(entry);
        replicate_command(entry->ctx);
    }
    lock_store_notify(entry, "dlock.release");
    if (next != NULL) hand_over(entry, next);
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
    if (!lock_is_held_by(lock_store_held(entry), request->token)) {
        stats_count(STATS_REFUSED);
        return false;
    }
    if (entry->held.kind == LOCK_KIND_STRING)
        extend_string(entry, request->lease_ms);
    else if (entry->held.left_us < request->lease_ms * 1000)
        renew(entry, request->lease_ms);
    stats_count(STATS_EXTENDED);
    return true;
}

void transition_apply(lock_entry *entry, const lock_state *state) {
    bool is_same = entry->is_held && entry->held.kind == LOCK_KIND_LOCK &&
                   lock_is_held_by(&entry->held, state->token);
    if (is_same) {
        lock_store_set_fence(entry, state->fence);
        lock_store_renew(entry, state->lease_ms);
    } else {
        if (entry->is_held) sessions_forget(entry->hold.id);
        lock_store_put(entry, state);
    }
    fence_raise(state->fence);
    replicate_command(entry->ctx);
    lock_store_notify(entry, is_same ? "dlock.extend" : "dlock.acquire");
}
