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

#include "fences.h"
#include "mailbox.h"
#include "queues.h"
#include "replicate.h"
#include "server.h"
#include "sessions.h"
#include "settings.h"
#include "stats.h"
#include "ties.h"
#include "waiters.h"

/* Redis does not tell the module when a plain string goes away, or when an operator has set a TTL
 * on a lock. So the module looks at a lock while clients wait; the more names are waited for, the
 * more seldom it looks at each. */
enum { STRING_LOOK_US = 5000, LOCK_LOOK_US = 200000, LOOK_PER_QUEUE_US = 50 };

/* How many waiters whose wait is over one step passes over. */
enum { PASSED_MAX = 256 };

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

/* The hold in the entry ends with the session of the request from now on. A limit does not take
 * away what is left of an earlier lease. */
static void tie(lock_entry *entry, const lock_request *request, uint64_t client) {
    if (request->via == NULL) {
        ties_bind_to_client(entry->hold, client);
        return;
    }
    int64_t limit_us = request->limit_ms * INT64_C(1000);
    if (limit_us > 0 && limit_us < entry->held.left_us) limit_us = entry->held.left_us;
    ties_bind(entry->hold, request->via, request->grace_ms,
              limit_us == 0 ? SERVER_NEVER : entry->now_us + limit_us);
}

typedef enum grant_kind { GRANT_ALONE, GRANT_JOINING } grant_kind;

/* Makes the holder that replicate_state() tells of next. */
static ALWAYS_INLINE void store(lock_entry *entry, const lock_request *request, uint64_t client,
                                grant_kind kind, int64_t fence, const char *event) {
    lock_state granted = {
        .kind = LOCK_KIND_LOCK,
        .is_shared = request->is_shared,
        .token = request->token,
        .fence = fence,
        .lease_ms = request->lease_ms,
    };
    if (kind == GRANT_ALONE)
        lock_store_put(entry, &granted);
    else
        lock_store_join(entry, &granted);
    if (request->is_session) tie(entry, request, client);
    stats_count(STATS_GRANTED);
    lock_store_notify(entry, event);
}

/* argv: the arguments of the running command if it asks for the grant itself, so that the
 * replication stream can use them; else NULL. */
static void grant(lock_entry *entry, const lock_request *request, uint64_t client, grant_kind kind,
                  RedisModuleString **argv, const char *event) {
    store(entry, request, client, kind, fences_next(request, entry->now_us), event);
    replicate_state(entry->ctx, argv, entry->argc, entry->name, &entry->held);
}

void transition_grant_part(lock_entry *entry, const lock_request *request, uint64_t client,
                           int64_t fence, const char *event) {
    store(entry, request, client, entry->is_held ? GRANT_JOINING : GRANT_ALONE, fence, event);
}

#define NOPERM "NOPERM the permission to take this lock was withdrawn during the wait"

/* Once for all looks at the waiter in one step. A waiter for several names is looked at by each of
 * its locks, and is ready after the first look, until the end of the step. */
static bool is_permitted(lock_entry *entry, waiter *first) {
    if (entry->permitted == first || queues_is_ready(first)) return true;
    if (!waiters_is_permitted(first)) return false;
    entry->permitted = first;
    return true;
}

/* A queue with very many waiters to pass over is looked at again in the next turn. */
waiter *transition_next_waiter(lock_entry *entry) {
    wait_queue *waiting = queues_find(entry->db, entry->name);
    for (int passed = 0; waiting != NULL; passed++) {
        waiter *first = queues_first(waiting);
        if (first == NULL) return NULL;
        bool is_over = first->end.key <= entry->now_us;
        bool is_away = first->request.via != NULL &&
                       !sessions_may_be_granted(first->request.via, entry->now_us);
        if (!is_over && !is_away && is_permitted(entry, first)) return first;
        if (passed == PASSED_MAX) {
            queues_mark(waiting);
            return NULL;
        }
        if (is_over) {
            stats_count(STATS_WAIT_TIMEOUTS);
            waiters_end(first, WAITERS_TIMEOUT);
        } else if (is_away) {
            session_waits_pass_over(first);
        } else {
            waiters_send_away(first, NOPERM);
        }
        waiting = queues_find(entry->db, entry->name);
    }
    return NULL;
}

/* Would a new request overtake somebody? After transition_next_waiter(). */
static bool has_line(const lock_entry *entry) {
    const wait_queue *waiting = queues_find(entry->db, entry->name);
    return waiting != NULL && queues_first(waiting) != NULL;
}

bool transition_has_room(const lock_entry *entry, const lock_request *request) {
    return lock_has_room(&entry->held, lock_store_holder_count(entry), request,
                         settings.max_holders);
}

/* A hold of a session is stored with another lease than the running command asks for. */
static void renew(lock_entry *entry, int64_t lease_ms) {
    bool is_kept = ties_keeper(entry->hold) != NULL;
    lock_store_renew(entry, lease_ms);
    replicate_state(entry->ctx, is_kept ? NULL : entry->argv, entry->argc, entry->name,
                    &entry->held);
    lock_store_notify(entry, "dlock.extend");
}

/* Does a request of the holder change the stored lease? *lease_ms: the length asked for, and then
 * the one to store. The end of a hold of a session is that of the session; replicas and files have
 * the hold with a lease as long as the timeout, or shorter. */
static bool is_renewed_by(const lock_entry *entry, int64_t *lease_ms) {
    const session *keeper = ties_keeper(entry->hold);
    if (keeper == NULL) return lock_restarts(&entry->held, *lease_ms);
    if (*lease_ms > keeper->timeout_ms) *lease_ms = keeper->timeout_ms;
    return *lease_ms > entry->held.lease_ms;
}

/* Gives the holder a new fence, or a new run of fences. Renews its lease unless lease_ms is 0. */
static void lift_fence(lock_entry *entry, int64_t fence, int64_t lease_ms) {
    lock_store_set_fence(entry, fence);
    if (lease_ms > 0) lock_store_renew(entry, lease_ms);
    replicate_state(entry->ctx, NULL, 0, entry->name, &entry->held);
    lock_store_notify(entry, "dlock.extend");
}

/* The holder asked again, maybe because the connection of the grant is dead. The hold gets a new
 * id: cleaning up after the dead connection refers to the old id, and does not end the hold. */
static void reacquire(lock_entry *entry, const lock_request *request, uint64_t client) {
    lock_store_renew_hold(entry);
    ties_rename(entry->hold);
    if (request->is_session)
        tie(entry, request, client);
    else
        ties_extend(entry->hold, entry->now_us + request->lease_ms * 1000);
    stats_count(STATS_REACQUIRED);
}

/* The tie comes first: a hold that is loosened from its session gets the lease of the request. */
void transition_grant_again(lock_entry *entry, const lock_request *request, uint64_t client,
                            int64_t fence) {
    reacquire(entry, request, client);
    int64_t lease_ms = request->lease_ms;
    bool is_renewed = is_renewed_by(entry, &lease_ms);
    if (fence != entry->held.fence)
        lift_fence(entry, fence, is_renewed ? lease_ms : 0);
    else if (is_renewed)
        renew(entry, lease_ms);
}

bool transition_needs_fence(const lock_entry *entry, const lock_request *request) {
    return request->fences > 0 || request->fence > entry->held.fence;
}

/* The holder in the entry has the token and the mode of the request. */
static void grant_again(lock_entry *entry, const lock_request *request, uint64_t client) {
    int64_t fence = transition_needs_fence(entry, request) ? fences_next(request, entry->now_us)
                                                           : entry->held.fence;
    transition_grant_again(entry, request, client, fence);
}

/* Gives the lock to the first waiters: to one exclusive waiter, or to shared ones as long as there
 * is room. A waiter for several names is served later in the same step, by transition_all.c; until
 * then, and while one of its other locks is held, nobody behind it gets the lock. is_free: the lock
 * is free, or its last holder is about to be replaced. RENAME, RESTORE and SWAPDB can bring a lock
 * that the token of a waiter holds already. */
static void serve(lock_entry *entry, bool is_free) {
    while (is_free || entry->held.is_shared) {
        waiter *next = transition_next_waiter(entry);
        if (next == NULL || (!is_free && !transition_has_room(entry, &next->request))) break;
        if (waiter_is_for_all(next)) {
            queues_set_ready(next);
            break;
        }
        if (!is_free) entry->now_us = server_boot_us(); /* a long run takes milliseconds */
        if (!is_free && lock_store_find(entry, next->request.token))
            grant_again(entry, &next->request, next->client);
        else
            grant(entry, &next->request, next->client, is_free ? GRANT_ALONE : GRANT_JOINING, NULL,
                  "dlock.handover");
        is_free = false;
        entry->permitted = NULL;
        stats_count(STATS_HANDED_OVER);
        next->first.hold = entry->hold;
        waiters_grant(next, lock_first_fence(&entry->held, &next->request),
                      entry->now_us + entry->held.left_us);
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
 * A follower replaces the last holder in place, here and, by one command, on the replicas. But
 * there a shared follower would join a shared holder, and a follower with the same token would only
 * renew the lease: the stream has to remove such a holder first. */
static void leave(lock_entry *entry, const waiter *follower, bool is_command) {
    bool is_replaced =
        follower != NULL && !waiter_is_for_all(follower) && lock_store_holder_count(entry) == 1;
    bool is_joined_there = is_replaced && ((entry->held.is_shared && follower->request.is_shared) ||
                                           lock_is_held_by(&entry->held, follower->request.token));
    if (!is_replaced || is_joined_there) {
        if (is_command)
            replicate_command(entry->ctx);
        else
            replicate_release(entry->ctx, entry->name, entry->held.token);
    }
    if (!is_replaced) lock_store_remove(entry);
}

static void end_hold(lock_entry *entry, transition_reason reason, const waiter *follower) {
    bool is_expired = reason == LEASE_ENDED;
    if (is_expired) ties_lose(entry->hold, entry->db, entry->name, entry->held.token, "expired");
    stats_count(is_expired ? STATS_EXPIRED : STATS_SESSION_RELEASES);
    lock_store_notify(entry, is_expired ? "dlock.expire" : "dlock.release");
    leave(entry, follower, false);
}

void transition_end(lock_entry *entry, transition_reason reason, bool may_grant) {
    bool is_last = lock_store_holder_count(entry) == 1;
    end_hold(entry, reason, may_grant ? transition_next_waiter(entry) : NULL);
    if (may_grant) {
        serve(entry, is_last);
        return;
    }
    wait_queue *waiting = queues_find(entry->db, entry->name);
    if (waiting != NULL) queues_mark(waiting);
}

/* For several holders. A command looks at so many that it sees all of a lock of the usual size;
 * work.c ends the others in portions. */
static void end_all_over(lock_entry *entry) {
    enum { LOOKS = 1024 };
    int looks = LOOKS;
    bool is_changed = false;
    while (entry->value->is_table && lock_store_find_over(entry, &looks)) {
        end_hold(entry, LEASE_ENDED, NULL);
        is_changed = true;
    }
    if (!entry->value->is_table && entry->held.left_us <= 0)
        transition_end(entry, LEASE_ENDED, true);
    else if (is_changed)
        serve(entry, false);
}

/* On a server that does not decide, a lock is held until the master says otherwise. */
void transition_settle(lock_entry *entry) {
    if (!entry->is_held || entry->held.kind != LOCK_KIND_LOCK) return;
    if (lock_store_may_be_over(entry)) {
        if (server_decides(entry->ctx)) end_all_over(entry);
    } else if (entry->held.left_us <= 0) {
        if (server_decides(entry->ctx)) transition_end(entry, LEASE_ENDED, true);
    }
}

bool transition_can_serve(const lock_entry *entry) {
    if (!entry->is_held || transition_is_over(entry)) return true;
    if (lock_store_may_be_over(entry)) return true;
    const wait_queue *waiting = queues_find(entry->db, entry->name);
    const waiter *first = waiting == NULL ? NULL : queues_first(waiting);
    return first != NULL && transition_has_room(entry, &first->request);
}

void transition_serve(lock_entry *entry) {
    transition_settle(entry);
    serve(entry, !entry->is_held);
}

void transition_serve_next(lock_entry *entry) {
    entry->permitted = NULL;
    serve(entry, !entry->is_held);
}

waiter *transition_find_waiter(const lock_entry *entry, lock_token token) {
    const wait_queue *waiting = queues_find(entry->db, entry->name);
    return waiting == NULL ? NULL : queues_find_token(waiting, token);
}

void transition_end_own_wait(const lock_entry *entry, lock_token token) {
    waiter *own = transition_find_waiter(entry, token);
    if (own == NULL) return;
    queues_give_up(own);
    waiters_supersede(own);
}

/* Does the token hold the lock? After transition_settle(), which does not see holders of a table
 * whose session has just ended. */
static bool find_holder(lock_entry *entry, lock_token token) {
    if (!lock_store_find(entry, token)) return false;
    if (!transition_is_over(entry)) return true;
    transition_end(entry, LEASE_ENDED, true);
    return lock_store_find(entry, token);
}

/* The first fitting request gets the lock, but never before a client that waits: a free lock goes
 * to the waiters first. */
lock_verdict transition_judge(lock_entry *entry, const lock_request *request) {
    transition_settle(entry);
    if (!entry->is_held && queues_find(entry->db, entry->name) != NULL) serve(entry, true);
    find_holder(entry, request->token);
    lock_verdict verdict = lock_judge_acquire(
        lock_store_held(entry), lock_store_holder_count(entry), request, settings.max_holders);
    if (verdict == LOCK_JOIN) transition_next_waiter(entry);
    if ((verdict == LOCK_GRANT || verdict == LOCK_JOIN) && has_line(entry)) return LOCK_REFUSE;
    return verdict;
}

transition_answer transition_acquire(lock_entry *entry, const lock_request *request) {
    lock_verdict verdict = transition_judge(entry, request);
    switch (verdict) {
    case LOCK_AGAIN:
        grant_again(entry, request, RedisModule_GetClientId(entry->ctx));
        transition_end_own_wait(entry, request->token);
        return TRANSITION_HELD;
    case LOCK_OTHER_MODE:
        return TRANSITION_OTHER_MODE;
    case LOCK_REFUSE:
        stats_count(STATS_CONTENDED);
        return TRANSITION_BUSY;
    case LOCK_GRANT:
    case LOCK_JOIN:
        break;
    }
    grant(entry, request, request->is_session ? RedisModule_GetClientId(entry->ctx) : 0,
          verdict == LOCK_GRANT ? GRANT_ALONE : GRANT_JOINING, entry->argv, "dlock.acquire");
    transition_end_own_wait(entry, request->token);
    return TRANSITION_HELD;
}

bool transition_has(lock_entry *entry, lock_token token) {
    if (lock_store_find(entry, token) && !transition_is_over(entry)) return true;
    return transition_find_waiter(entry, token) != NULL;
}

bool transition_has_place_or_reply(const lock_entry *entry, const lock_request *request,
                                   int places) {
    const wait_queue *waiting = queues_find(entry->db, entry->name);
    const char *error = NULL;
    if ((waiting == NULL ? 0 : waiting->length) >= settings.max_waiters)
        error = "QUEUEFULL too many wait for this lock (dlock.max-waiters)";
    else if (request->via == NULL && blocked_is_full())
        error = "QUEUEFULL too many clients wait for locks (three quarters of maxclients)";
    else if (queues_waiter_count() + places > settings.max_waiters_in_all)
        error = "QUEUEFULL too many wait for locks of this server (dlock.max-waiters-in-all)";
    else if (request->via != NULL && mailbox_is_full(request->via))
        error = MAILBOX_FULL;
    if (error == NULL) return true;
    stats_count(STATS_QUEUE_FULL);
    RedisModule_ReplyWithError(entry->ctx, error);
    return false;
}

bool transition_park_or_reply(RedisModuleCtx *ctx, const wait_names *names,
                              const lock_request *request, waiter *older) {
    if (request->via != NULL) {
        session_waits_add(names, request, older);
        RedisModule_ReplyWithSimpleString(ctx, "QUEUED");
    } else if (!blocked_park_or_reply(ctx, names, request, older)) {
        return false;
    }
    if (older != NULL) waiters_supersede(older);
    return true;
}

/* A token that waits again may ask for something else than before, for example for a shared lock.
 * So the queue is looked at again if its first waiter fits now. A token that waits for other names
 * as well gives up that wait. */
void transition_wait_or_reply(lock_entry *entry, const lock_request *request) {
    wait_names names = {.db = entry->db, .names = &entry->name, .count = 1};
    waiter *older = transition_find_waiter(entry, request->token);
    if (older == NULL && !transition_has_place_or_reply(entry, request, 1)) return;
    if (older != NULL && !queues_has_names(older, &names)) {
        transition_end_own_wait(entry, request->token);
        older = NULL;
    }
    if (!transition_park_or_reply(entry->ctx, &names, request, older)) return;
    wait_queue *waiting = queues_find(entry->db, entry->name);
    const waiter *first = queues_first(waiting);
    bool is_blocked = first != NULL && waiter_is_for_all(first);
    if (!is_blocked &&
        (!entry->is_held || (first != NULL && transition_has_room(entry, &first->request))))
        queues_mark(waiting);
    else
        transition_watch_new(entry);
}

void transition_watch_new(lock_entry *entry) {
    wait_queue *waiting = queues_find(entry->db, entry->name);
    if (entry->is_held && waiting != NULL && waiting->look.key == SERVER_NEVER)
        watch(entry, waiting);
}

static void end_wait(const lock_entry *entry, lock_token token) {
    waiter *found = transition_find_waiter(entry, token);
    if (found != NULL) waiters_end(found, WAITERS_RELEASED);
}

/* Does token hold the lock, so that it can leave now? Its wait for the lock is over in any case:
 * the token of a grant that was taken back, and is not ended yet, holds and waits. */
static ALWAYS_INLINE bool begin_release(lock_entry *entry, lock_token token) {
    transition_settle(entry);
    end_wait(entry, token);
    if (!find_holder(entry, token)) {
        stats_count(STATS_REFUSED);
        return false;
    }
    fence_time now = {.wall_us = server_wall_us(), .boot_us = entry->now_us};
    if (entry->held.kind == LOCK_KIND_LOCK)
        stats_add(&stats_hold_us, now.wall_us - fence_given_us(entry->held.fence, now));
    stats_count(STATS_RELEASED);
    lock_store_notify(entry, "dlock.release");
    return true;
}

bool transition_release_part(lock_entry *entry, lock_token token) {
    if (!begin_release(entry, token)) return false;
    lock_store_remove(entry);
    return true;
}

bool transition_release(lock_entry *entry, lock_token token) {
    if (!begin_release(entry, token)) return false;
    const waiter *follower = transition_next_waiter(entry);
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

transition_answer transition_extend(lock_entry *entry, const lock_request *request) {
    int64_t lease_ms = request->lease_ms;
    transition_settle(entry);
    if (!find_holder(entry, request->token)) {
        stats_count(STATS_REFUSED);
        return TRANSITION_BUSY;
    }
    if (entry->held.kind == LOCK_KIND_STRING) {
        extend_string(entry, lease_ms);
    } else {
        if (!ties_has_limit(entry->hold)) return TRANSITION_KEPT;
        ties_extend(entry->hold, entry->now_us + lease_ms * 1000);
        if (is_renewed_by(entry, &lease_ms))
            renew(entry, lease_ms);
        else /* so that Redis's WAIT on the same connection tells which replicas have the lock */
            replicate_state(entry->ctx, NULL, 0, entry->name, &entry->held);
    }
    stats_count(STATS_EXTENDED);
    return TRANSITION_HELD;
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
    if (server_is_importing(entry->ctx)) lock_store_set_copy(entry);
    fence_see(state->fence, fences_time());
    lock_store_notify(entry, is_same ? "dlock.extend" : "dlock.acquire");
}
