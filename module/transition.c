/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.c - see transition.h.
 *
 *   acquire    free: grant. Ours already: the same fence again, or if it is to be more, a new
 *              one. Else no, or wait.
 *   release    the first waiter becomes the holder in the same step, else the key goes away
 *   settle     it ended otherwise (DEL, expiry, lost session...): called by deferred.h soon after
 *
 * Order within a step: judge, then the keyspace, then the replication stream, then counters, events
 * and the waiter's answer. A refused request leaves before the first of them. */
#include "transition.h"

#include "deferred.h"
#include "fence.h"
#include "replicate.h"
#include "sessions.h"
#include "stats.h"
#include "waiters.h"
#include "wall_clock.h"

/* Nobody tells us when a plain string goes away, so while somebody waits for one we look. The more
 * names are waited for, the more seldom each is looked at. */
enum { STRING_LOOK_MS = 5, STRING_LOOKS_PER_MS = 20 };

#define TRYAGAIN_MOVING "TRYAGAIN the slot of this lock is moving to another server"

static void notify(const lock_entry *entry, const char *event) {
    RedisModule_NotifyKeyspaceEvent(entry->ctx, REDISMODULE_NOTIFY_MODULE, event, entry->name);
}

/* Somebody waits: be there when the lease ends, without waiting for the core to notice. */
static void watch_expiry(const lock_entry *entry) {
    if (!entry->is_held || waiters_total() == 0) return;
    if (entry->held.kind == LOCK_KIND_STRING) {
        int64_t pause_ms = STRING_LOOK_MS + waiters_queue_count() / STRING_LOOKS_PER_MS;
        waiters_look_again(entry->db, entry->name, wall_clock_ms() + pause_ms);
    } else if (entry->held.expires_ms != LOCK_NO_EXPIRY) {
        waiters_look_again(entry->db, entry->name, entry->held.expires_ms + 1);
    }
}

/* Always one that nobody has: grants are known by their fence. */
static int64_t new_fence(const lock_request *request, int64_t now_us) {
    return fence_next(request->fence > now_us ? request->fence : now_us);
}

static int64_t grant(lock_entry *entry, const lock_request *request, uint64_t client,
                     int64_t now_us, const char *event) {
    int64_t now_ms = now_us / 1000;
    lock_state granted = {
        .kind = LOCK_KIND_LOCK,
        .token = request->token,
        .fence = new_fence(request, now_us),
        .since_ms = now_ms,
        .lease_ms = request->lease_ms,
        .expires_ms = now_ms + request->lease_ms,
    };
    lock_store_put(entry, &granted);
    replicate_state(entry->ctx, entry->argv, entry->name, &granted);
    if (request->is_session) sessions_bind(granted.fence, client, entry->db, entry->name);
    stats_count(STATS_ACQUIRED);
    notify(entry, event);
    return granted.fence;
}

static waiter *first_waiter(const lock_entry *entry) {
    return waiters_first(entry->db, entry->name);
}

/* next, the first waiter, becomes the holder, over what is there. */
static void hand_over(lock_entry *entry, waiter *next, int64_t now_us) {
    int64_t fence =
        grant(entry, waiter_request(next), waiter_client(next), now_us, "dlock.handover");
    stats_count(STATS_HANDED_OVER);
    waiters_answer(next, fence);
    watch_expiry(entry);
}

static void renew(lock_entry *entry, int64_t lease_ms, int64_t now_ms) {
    lock_store_renew(entry, lease_ms, now_ms + lease_ms);
    if (entry->held.kind == LOCK_KIND_STRING)
        replicate_string_expiry(entry->ctx, entry->name, entry->held.expires_ms);
    else
        replicate_state(entry->ctx, entry->argv, entry->name, &entry->held);
    notify(entry, "dlock.extend");
    watch_expiry(entry);
}

/* The holder asked again, maybe because the connection on which it was granted the lock is dead:
 * then nothing that is under way because of that death may take the lock from it. */
static int64_t reacquire(const lock_entry *entry, const lock_request *request) {
    int64_t fence = entry->held.fence;
    stats_count(STATS_REACQUIRED);
    waiters_confirm(fence);
    if (request->is_session)
        sessions_bind(fence, RedisModule_GetClientId(entry->ctx), entry->db, entry->name);
    else if (sessions_client(fence) == 0)
        deferred_cancel(fence);
    return fence;
}

/* The holder's fence is too small for it. What knows the grant by its fence is told the new one. */
static void lift_fence(lock_entry *entry, const lock_request *request, bool is_renewed,
                       int64_t now_us) {
    int64_t old = entry->held.fence;
    uint64_t client = sessions_client(old);
    lock_state lifted = entry->held;
    lifted.fence = new_fence(request, now_us);
    if (is_renewed) {
        lifted.lease_ms = request->lease_ms;
        lifted.expires_ms = now_us / 1000 + request->lease_ms;
    }
    waiters_confirm(old);
    sessions_forget(old);
    if (client == 0) deferred_cancel(old);
    lock_store_put(entry, &lifted);
    replicate_state(entry->ctx, entry->argv, entry->name, &entry->held);
    if (client != 0) sessions_bind(lifted.fence, client, entry->db, entry->name);
    notify(entry, "dlock.extend");
    watch_expiry(entry);
}

int64_t transition_acquire(lock_entry *entry, const lock_request *request) {
    int64_t now_us = wall_clock_us();
    waiter *next = entry->is_held ? NULL : first_waiter(entry);
    if (next != NULL) hand_over(entry, next, now_us); /* it was freed just now: they come first */
    lock_store_read_expiry(entry);
    lock_verdict verdict = lock_judge_acquire(lock_store_held(entry), request, now_us / 1000);
    switch (verdict) {
    case LOCK_GRANT:
        return grant(entry, request, request->is_session ? RedisModule_GetClientId(entry->ctx) : 0,
                     now_us, "dlock.acquire");
    case LOCK_RENEW:
    case LOCK_KEEP:
        if (request->fence > entry->held.fence)
            lift_fence(entry, request, verdict == LOCK_RENEW, now_us);
        else if (verdict == LOCK_RENEW)
            renew(entry, request->lease_ms, now_us / 1000);
        return reacquire(entry, request);
    case LOCK_REFUSE:
        break;
    }
    stats_count(STATS_CONTENDED);
    return 0;
}

void transition_wait_or_reply(lock_entry *entry, const lock_request *request) {
    if (waiters_park_or_reply(entry->ctx, entry->name, request)) watch_expiry(entry);
}

/* The fence is the time of the grant in microseconds, unless the clock had stepped back by then. */
static void count_hold(const lock_state *held, int64_t now_us) {
    if (held->kind == LOCK_KIND_STRING) return;
    bool is_time = held->fence / 1000 == held->since_ms;
    int64_t since_us = is_time ? held->fence : held->since_ms * 1000;
    stats_hold(now_us > since_us ? (uint64_t)(now_us - since_us) : 0);
}

bool transition_release(lock_entry *entry, lock_token token) {
    if (!lock_is_held_by(lock_store_held(entry), token)) {
        stats_count(STATS_REFUSED);
        return false;
    }
    int64_t now_us = wall_clock_us();
    count_hold(&entry->held, now_us);
    sessions_forget(entry->held.fence);
    stats_count(STATS_RELEASED);
    waiter *next = first_waiter(entry);
    if (next == NULL) {
        lock_store_remove(entry);
        replicate_command(entry->ctx);
    }
    notify(entry, "dlock.release");
    if (next != NULL) hand_over(entry, next, now_us);
    return true;
}

bool transition_extend(lock_entry *entry, const lock_request *request) {
    if (!lock_is_held_by(lock_store_held(entry), request->token)) {
        stats_count(STATS_REFUSED);
        return false;
    }
    renew(entry, request->lease_ms, wall_clock_ms());
    stats_count(STATS_EXTENDED);
    return true;
}

void transition_apply(lock_entry *entry, const lock_state *state) {
    bool is_new_holder = !entry->is_held || entry->held.fence != state->fence;
    lock_store_put(entry, state);
    fence_raise(state->fence);
    replicate_command(entry->ctx);
    notify(entry, is_new_holder ? "dlock.acquire" : "dlock.extend");
}

/* Its holder is gone: its session ended, or it died before it heard that it was the holder. */
static void take_back(lock_entry *entry, int64_t now_us) {
    count_hold(&entry->held, now_us);
    stats_count(STATS_SESSION_RELEASES);
    waiter *next = first_waiter(entry);
    if (next == NULL) {
        replicate_release(entry->ctx, entry->name, entry->held.token);
        lock_store_remove(entry);
    }
    notify(entry, "dlock.release");
    if (next != NULL) hand_over(entry, next, now_us);
}

/* In a cluster the key may be gone because it lives on another server by now; the core then
 * refuses us any look at it. */
static bool is_ours(const lock_entry *entry) {
    if (!(RedisModule_GetContextFlags(entry->ctx) & REDISMODULE_CTX_FLAGS_CLUSTER)) return true;
    RedisModuleCallReply *reply = RedisModule_Call(entry->ctx, "EXISTS", "s", entry->name);
    bool is_answered = RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_INTEGER;
    if (reply != NULL) RedisModule_FreeCallReply(reply);
    return is_answered;
}

static void settle(RedisModuleCtx *ctx, RedisModuleString *name, int64_t fence) {
    lock_entry entry;
    if (!lock_store_open(&entry, ctx, name, LOCK_WRITE)) {
        waiters_send_away(RedisModule_GetSelectedDb(ctx), name, REDISMODULE_ERRORMSG_WRONGTYPE);
        return;
    }
    bool is_abandoned =
        entry.is_held && fence != 0 && entry.held.fence == fence && sessions_client(fence) == 0;
    waiter *next = entry.is_held ? NULL : first_waiter(&entry);
    if (is_abandoned)
        take_back(&entry, wall_clock_us());
    else if (next != NULL && is_ours(&entry))
        hand_over(&entry, next, wall_clock_us());
    else if (next != NULL)
        waiters_send_away(entry.db, name, TRYAGAIN_MOVING);
    lock_store_read_expiry(&entry);
    watch_expiry(&entry);
    lock_store_close(&entry);
}

/* A wait is over. The token may hold the lock all the same: granted to it on another connection. */
static int64_t last_look(RedisModuleCtx *ctx, RedisModuleString *name,
                         const lock_request *request) {
    lock_entry entry;
    if (!lock_store_open(&entry, ctx, name, LOCK_READ)) return 0;
    int64_t fence = 0;
    if (lock_is_held_by(lock_store_held(&entry), request->token)) fence = entry.held.fence;
    lock_store_close(&entry);
    return fence;
}

int transition_register(RedisModuleCtx *ctx) {
    waiters_init(last_look);
    return deferred_register(ctx, settle);
}
