/* SPDX-License-Identifier: BSD-3-Clause */
/* transition_all.c - see transition_all.h.
 *
 *   acquire   judge the request by each lock; if none refuses it, it becomes a holder of all
 *   wait      one waiter, with a place in the queue of each name and one arrival (queues.h)
 *   release   leave each lock that the token holds, then hand all of them on
 *   serve     a waiter for several names that is first in all its lines, and to which all locks
 *             would be given, gets them all
 *
 * Who may be served is found in two steps. transition.c, which sees one lock, finds that the first
 * waiter in its line is for several names, and sets it ready. When the key is closed again, the
 * waiter is looked at here, with all its locks open. A look costs O(names of the request). It is
 * due only when one of the locks has become free for the waiter, or when the waiter has become
 * first in one more line: then the queue is served by transition.c, or is marked (queues.c).
 *
 * Order within a step: as in transition.c, with one command in the stream for all locks. Only a
 * token that has held some of the locks before is replicated one by one, in a transaction: its
 * leases may differ. */
#include "transition_all.h"

#include "fences.h"
#include "replicate.h"
#include "server.h"
#include "stats.h"
#include "waiters.h"

#define TRYAGAIN_MOVING "TRYAGAIN the slot of these locks is moving to another server"

enum { RETRY_US = 10000 };

/* How many locks one step looks at. A long run of shared waiters goes on in the next turn: a
 * thousand of them with 64 names each take a tenth of a second. */
enum { LOOKS_MAX = 4096 };

/* -- open and close */

static void close_keys(lock_set *set, int count) {
    for (int i = 0; i < count; i++)
        lock_store_close_key(&set->entries[i]);
    for (int i = 0; i < count; i++)
        lock_store_tell(&set->entries[i]);
}

bool transition_all_open(lock_set *set, RedisModuleCtx *ctx, RedisModuleString **names, int count,
                         lock_access access) {
    set->ctx = ctx;
    set->argv = NULL;
    set->argc = 0;
    set->names = (wait_names){
        .db = RedisModule_GetSelectedDb(ctx), .names = names, .count = count, .is_all = true};
    for (int i = 0; i < count; i++)
        if (!lock_store_open(&set->entries[i], ctx, names[i], access)) {
            close_keys(set, i);
            return false;
        }
    for (int i = 1; i < count; i++)
        set->entries[i].now_us = set->entries[0].now_us;
    return true;
}

/* -- grant */

/* Does the token hold all locks with one fence? */
static bool has_common_fence(const lock_set *set, const bool is_held[]) {
    for (int i = 0; i < set->names.count; i++)
        if (!is_held[i] || set->entries[i].held.fence != set->entries[0].held.fence) return false;
    return true;
}

static void grant_new(lock_set *set, const lock_request *request, uint64_t client, int64_t fence,
                      const char *event) {
    for (int i = 0; i < set->names.count; i++)
        transition_grant_part(&set->entries[i], request, client, fence, event);
    replicate_states(set->ctx, set->argv, set->argc, set->names.names, set->names.count,
                     &set->entries[0].held);
}

/* Some of the locks, or all, have the token already: is_held says which. They keep their fence only
 * if all have the same one, and if the request asks for no other. */
static void grant_again(lock_set *set, const lock_request *request, const bool is_held[],
                        uint64_t client, const char *event) {
    bool is_kept =
        has_common_fence(set, is_held) && !transition_needs_fence(&set->entries[0], request);
    int64_t fence =
        is_kept ? set->entries[0].held.fence : fences_next(request, set->entries[0].now_us);
    for (int i = 0; i < set->names.count; i++) {
        lock_entry *entry = &set->entries[i];
        if (is_held[i]) {
            transition_grant_again(entry, request, client, fence);
        } else {
            transition_grant_part(entry, request, client, fence, event);
            replicate_state(set->ctx, NULL, 0, entry->name, &entry->held);
        }
    }
}

/* held_count: how many locks have the token already; is_held says which. */
static void grant(lock_set *set, const lock_request *request, const bool is_held[], int held_count,
                  uint64_t client, const char *event) {
    if (held_count > 0)
        grant_again(set, request, is_held, client, event);
    else
        grant_new(set, request, client, fences_next(request, set->entries[0].now_us), event);
}

transition_answer transition_all_acquire(lock_set *set, const lock_request *request) {
    bool is_held[LOCK_NAMES_MAX], is_refused = false, is_other_mode = false;
    int held_count = 0;
    for (int i = 0; i < set->names.count; i++) {
        lock_verdict verdict = transition_judge(&set->entries[i], request);
        is_held[i] = verdict == LOCK_AGAIN;
        held_count += is_held[i];
        is_refused |= verdict == LOCK_REFUSE;
        is_other_mode |= verdict == LOCK_OTHER_MODE;
    }
    if (is_other_mode) return TRANSITION_OTHER_MODE;
    if (is_refused) {
        stats_count(STATS_CONTENDED);
        return held_count > 0 ? TRANSITION_PART : TRANSITION_BUSY;
    }
    bool needs_client = request->is_session && request->via == NULL;
    grant(set, request, is_held, held_count, needs_client ? RedisModule_GetClientId(set->ctx) : 0,
          "dlock.acquire");
    for (int i = 0; i < set->names.count; i++)
        transition_end_own_wait(&set->entries[i], request->token);
    return TRANSITION_HELD;
}

/* -- wait */

/* A held lock may be a plain string, of whose end nobody tells. */
static void watch_all(lock_set *set) {
    for (int i = 0; i < set->names.count; i++)
        transition_watch_new(&set->entries[i]);
}

static bool has_places_or_reply(lock_set *set, const lock_request *request) {
    for (int i = 0; i < set->names.count; i++)
        if (transition_find_waiter(&set->entries[i], request->token) == NULL &&
            !transition_has_place_or_reply(&set->entries[i], request, set->names.count))
            return false;
    return true;
}

/* Does the token wait for one of the locks already? */
static bool is_waiting(lock_set *set, lock_token token) {
    for (int i = 0; i < set->names.count; i++)
        if (transition_find_waiter(&set->entries[i], token) != NULL) return true;
    return false;
}

/* The waiter whose places the request takes over: the one with its token and names. Other waits of
 * the token are over. */
static waiter *find_older(lock_set *set, lock_token token) {
    waiter *older = transition_find_waiter(&set->entries[0], token);
    if (older != NULL && queues_has_names(older, &set->names)) return older;
    for (int i = 0; i < set->names.count; i++)
        transition_end_own_wait(&set->entries[i], token);
    return NULL;
}

/* A token that waits again may ask for something else than before, or may have stood in its own
 * way: it may be served now. */
void transition_all_wait_or_reply(lock_set *set, const lock_request *request) {
    if (!has_places_or_reply(set, request)) return;
    bool is_again = is_waiting(set, request->token);
    waiter *older = find_older(set, request->token);
    if (!transition_park_or_reply(set->ctx, &set->names, request, older)) return;
    if (is_again) queues_set_ready(transition_find_waiter(&set->entries[0], request->token));
    watch_all(set);
}

bool transition_all_has(lock_set *set, lock_token token) {
    for (int i = 0; i < set->names.count; i++) {
        transition_settle(&set->entries[i]);
        if (!transition_has(&set->entries[i], token)) return false;
    }
    return true;
}

/* -- release and apply */

/* The stream has all releases before the first grant that follows. */
int transition_all_release(lock_set *set, lock_token token) {
    int released = 0;
    bool is_waited_for = false;
    for (int i = 0; i < set->names.count; i++) {
        released += transition_release_part(&set->entries[i], token);
        is_waited_for |= queues_find(set->names.db, set->names.names[i]) != NULL;
    }
    if (released == 0) return 0;
    replicate_command(set->ctx);
    if (!is_waited_for || server_is_replaying(set->ctx)) return released; /* the master decides */
    for (int i = 0; i < set->names.count; i++)
        transition_serve_next(&set->entries[i]);
    return released;
}

void transition_all_apply(lock_set *set, const lock_state *state) {
    for (int i = 0; i < set->names.count; i++)
        transition_apply(&set->entries[i], state);
    replicate_command(set->ctx);
}

/* -- serve */

/* Would the lock be given to the waiter, which is first in its line? *is_held: its token has it
 * already, as after RENAME, RESTORE or SWAPDB. */
static bool is_free_for(lock_entry *entry, const lock_request *request, bool *is_held) {
    *is_held = entry->is_held && entry->held.kind == LOCK_KIND_LOCK &&
               lock_store_find(entry, request->token) &&
               entry->held.is_shared == request->is_shared;
    return !entry->is_held || *is_held || transition_has_room(entry, request);
}

/* Before anything is changed: a lease may be over, or a lock free. */
static bool may_be_free(lock_set *set, const lock_request *request) {
    bool is_held;
    for (int i = 0; i < set->names.count; i++) {
        lock_entry *entry = &set->entries[i];
        if (!transition_is_over(entry) && !lock_store_may_be_over(entry) &&
            !is_free_for(entry, request, &is_held))
            return false;
    }
    return true;
}

/* Does the core allow the grant? It has allowed the running step to write, but in a cluster only
 * for the lock of that step: the others may be at another server already, while the slot moves. */
static bool is_allowed(lock_set *set, waiter *next) {
    if (!server_is_cluster()) return true;
    switch (server_may_write_all(set->ctx, set->names.names, set->names.count)) {
    case SERVER_MAY_WRITE:
        return true;
    case SERVER_NOT_OURS:
        waiters_send_away(next, TRYAGAIN_MOVING);
        break;
    case SERVER_WRITE_LATER:
        queues_set_look(next->first.queue, server_boot_us() + RETRY_US);
        break;
    }
    return false;
}

static void hand_over(lock_set *set, waiter *next, const bool is_held[], int held_count) {
    int64_t left_us = INT64_MAX;
    grant(set, &next->request, is_held, held_count, next->client, "dlock.handover");
    for (int i = 0; i < set->names.count; i++) {
        const lock_entry *entry = &set->entries[i];
        waiter_place(next, i)->hold = entry->hold;
        if (entry->held.left_us < left_us) left_us = entry->held.left_us;
    }
    stats_count_many(STATS_HANDED_OVER, set->names.count);
    waiters_grant(next, lock_first_fence(&set->entries[0].held, &next->request),
                  set->entries[0].now_us + left_us);
    for (int i = 0; i < set->names.count; i++)
        transition_serve_next(&set->entries[i]);
}

/* The waiter is first in all its lines. It stays there while leases end: nobody tells it anything,
 * since its wait is not over, its session is present, and its permission is checked. False: it
 * goes on waiting, or was told something else. */
static bool serve_open(lock_set *set, waiter *next) {
    bool is_held[LOCK_NAMES_MAX];
    int held_count = 0;
    if (transition_next_waiter(&set->entries[0]) != next) return false;
    if (!may_be_free(set, &next->request) || !is_allowed(set, next)) return false;
    for (int i = 0; i < set->names.count; i++) {
        set->entries[i].permitted = next;
        transition_settle(&set->entries[i]);
    }
    for (int i = 0; i < set->names.count; i++) {
        if (!is_free_for(&set->entries[i], &next->request, &is_held[i])) return false;
        held_count += is_held[i];
    }
    hand_over(set, next, is_held, held_count);
    return true;
}

/* The names are held: the waiter may be freed before the last event is sent. */
static void serve(RedisModuleCtx *ctx, waiter *next) {
    lock_set set;
    RedisModuleString *names[LOCK_NAMES_MAX];
    int count = next->place_count;
    if (!queues_is_first_in_all(next)) return;
    for (int i = 0; i < count; i++)
        names[i] = RedisModule_HoldString(NULL, waiter_place(next, i)->name);
    if (transition_all_open(&set, ctx, names, count, LOCK_WRITE)) {
        if (!serve_open(&set, next)) watch_all(&set);
        close_keys(&set, count);
    } else {
        waiters_send_away(next, REDISMODULE_ERRORMSG_WRONGTYPE);
    }
    for (int i = 0; i < count; i++)
        RedisModule_FreeString(NULL, names[i]);
}

static void serve_ready(RedisModuleCtx *ctx) {
    int db = RedisModule_GetSelectedDb(ctx), looks = 0;
    for (waiter *next; (next = queues_take_ready()) != NULL;) {
        looks += next->place_count;
        if (looks > LOOKS_MAX) {
            queues_mark(next->first.queue);
            continue;
        }
        RedisModule_SelectDb(ctx, next->first.queue->db);
        serve(ctx, next);
    }
    RedisModule_SelectDb(ctx, db);
}

void transition_all_close(lock_set *set) {
    close_keys(set, set->names.count);
    if (queues_have_ready()) serve_ready(set->ctx);
}

void transition_close(lock_entry *entry) {
    lock_store_close(entry);
    if (queues_have_ready()) serve_ready(entry->ctx);
}
