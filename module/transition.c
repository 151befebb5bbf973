/* SPDX-License-Identifier: BSD-3-Clause */
/* transition.c - see transition.h.
 *
 * Order within a step: judge, then the keyspace, then the replication stream, then counters and
 * keyspace events. A refused request leaves before the first of them. */
#include "transition.h"

#include "fence.h"
#include "replicate.h"
#include "stats.h"
#include "wall_clock.h"

static void notify(const lock_entry *entry, const char *event) {
    RedisModule_NotifyKeyspaceEvent(entry->ctx, REDISMODULE_NOTIFY_MODULE, event, entry->name);
}

static int64_t grant(lock_entry *entry, const lock_request *request, int64_t now_us) {
    int64_t now_ms = now_us / 1000;
    lock_state granted = {
        .kind = LOCK_KIND_LOCK,
        .token = request->token,
        .fence = fence_next(now_us),
        .since_ms = now_ms,
        .lease_ms = request->lease_ms,
        .expires_ms = now_ms + request->lease_ms,
    };
    lock_store_put(entry, &granted);
    replicate_state(entry->ctx, entry->name, &granted);
    stats_count(STATS_ACQUIRED);
    notify(entry, "dlock.acquire");
    return granted.fence;
}

static void renew(lock_entry *entry, int64_t lease_ms, int64_t now_ms) {
    lock_store_renew(entry, lease_ms, now_ms + lease_ms);
    if (entry->held.kind == LOCK_KIND_STRING)
        replicate_string_expiry(entry->ctx, entry->name, entry->held.expires_ms);
    else
        replicate_state(entry->ctx, entry->name, &entry->held);
    notify(entry, "dlock.extend");
}

int64_t transition_acquire(lock_entry *entry, const lock_request *request) {
    int64_t now_us = wall_clock_us();
    switch (lock_judge_acquire(lock_store_held(entry), request, now_us / 1000)) {
    case LOCK_GRANT:
        return grant(entry, request, now_us);
    case LOCK_RENEW:
        renew(entry, request->lease_ms, now_us / 1000);
        stats_count(STATS_REACQUIRED);
        return entry->held.fence;
    case LOCK_KEEP:
        stats_count(STATS_REACQUIRED);
        return entry->held.fence;
    case LOCK_REFUSE:
        break;
    }
    stats_count(STATS_CONTENDED);
    return 0;
}

bool transition_release(lock_entry *entry, lock_token token) {
    if (!lock_is_held_by(lock_store_held(entry), token)) {
        stats_count(STATS_REFUSED);
        return false;
    }
    lock_store_remove(entry);
    replicate_command(entry->ctx);
    stats_count(STATS_RELEASED);
    notify(entry, "dlock.release");
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
