/* SPDX-License-Identifier: BSD-3-Clause */
/* work.c - see work.h.
 *
 * Redis tells the module about a lost key or client in the midst of its own work. A write there
 * would reach the replicas before the change that caused it. So the callbacks only take a note, and
 * the work happens here, in stages:
 *
 *   waits       end the waits whose time is over: null
 *   sweep       drop lease entries of flushed databases
 *   strays      find locks under unknown names (strays.h)
 *   sessions    end the sessions that a demotion has forgotten; let the sessions of a closed
 *               connection go away, if they are many; end the sessions that were not heard of in
 *               time, and answer parked calls
 *   clock       tell replicas, files and other nodes the clock of fences
 *   at work     what hangs on sessions that have ended, gone away or come back
 *   holders     end the locks of holders that were never told of the grant: the stage before takes
 *               grants back
 *   leases      end the leases whose time is over
 *   queues      settle the queues whose lock may be free: marked queues, all queues after FLUSHDB
 *               or SWAPDB, and queues whose lock is to be looked at again
 *   watches     look at watched locks that have changed hands, or whose slot may have moved
 *
 * The last stages change locks. A replica skips them; a master postpones them while Redis
 * itself could not write. Each stage has a portion of time per turn of the event loop; then other
 * clients are served. */
#include "work.h"

#include "blocked.h"
#include "fences.h"
#include "leases.h"
#include "lock_store.h"
#include "losses.h"
#include "mailbox.h"
#include "queues.h"
#include "server.h"
#include "sessions.h"
#include "stats.h"
#include "strays.h"
#include "ties.h"
#include "transition_all.h"
#include "waiters.h"
#include "watches.h"

enum {
    PORTION_US = 1000,
    SLICE_US = 100,
    PAUSE_US = 500,
    RETRY_US = 10000,
    SENT_AWAY_MAX = 256,
    REFUSED_MAX = 16,
    FOREIGN_SLOT_US = 1000000,
    WATCHED_SLOTS_US = 1000000,
    WATCHED_SLOTS_MOST = 512,
};

#define TRYAGAIN_MOVING "TRYAGAIN the slot of this lock is moving to another server"

static int64_t earlier(int64_t one, int64_t other) {
    return one < other ? one : other;
}

/* Has the work done enough in the current turn of the event loop? */
static bool is_enough(int64_t now_us, int64_t until_us) {
    return now_us >= until_us || blocked_has_enough();
}

/* -- waits */

static bool end_waits(int64_t until_us) {
    waiter *first;
    while ((first = queues_first_end()) != NULL) {
        int64_t now_us = server_boot_us();
        if (first->end.key > now_us) return false;
        if (is_enough(now_us, until_us)) return true;
        stats_count(STATS_WAIT_TIMEOUTS);
        waiters_end(first, WAITERS_TIMEOUT);
    }
    return false;
}

static void forget_flushed(lease_ref hold) {
    lease_place place;
    stats_count(STATS_FORCED);
    if (ties_session(hold) == NULL || !leases_find(hold, &place)) {
        ties_forget(hold);
        return;
    }
    lock_token token = {place.token, place.token_length};
    ties_lose(hold, place.db, place.name, token, "flushed");
    RedisModule_FreeString(NULL, place.name);
}

/* -- holds */

/* Opens the lock of the hold. False: the lock is gone, and so is the lease entry. If the lease
 * entry has outlived the lock, the lock was flushed. */
static bool open_hold(lock_entry *entry, RedisModuleCtx *ctx, lease_ref hold) {
    lease_place place;
    if (!leases_find(hold, &place)) return false;
    lock_token token = {place.token, place.token_length};
    RedisModule_SelectDb(ctx, place.db);
    bool is_open = lock_store_open(entry, ctx, place.name, LOCK_WRITE);
    if (is_open && token.length > 0) lock_store_find(entry, token);
    if (is_open && entry->is_held && entry->hold.id == hold.id) return true;
    if (is_open) lock_store_close(entry);
    RedisModule_FreeString(NULL, place.name);
    if (leases_tie(hold) != NULL) forget_flushed(hold);
    leases_drop(hold);
    return false;
}

static void close_hold(lock_entry *entry) {
    RedisModuleString *name = entry->name;
    transition_close(entry);
    RedisModule_FreeString(NULL, name);
}

/* May the lock end now, and may another client get it? Only a grant needs the permission of the
 * core: the core itself expires its keys in any case. But a lock in a slot that is still being
 * imported is not ours to end, also if the server refuses all writes. */
static server_write ask(const lock_entry *entry) {
    if (entry->holder->is_copy) return SERVER_NOT_OURS; /* since the slot is not here yet */
    bool is_waited_for = queues_find(entry->db, entry->name) != NULL;
    if (!is_waited_for && !server_is_cluster()) return SERVER_MAY_WRITE;
    return server_may_write(entry->ctx, entry->name);
}

/* Sends a long queue away in portions: the queue stays marked. */
static void send_away(int db, RedisModuleString *name, const char *error) {
    wait_queue *waiting = queues_find(db, name);
    for (int sent = 0; waiting != NULL; sent++) {
        waiter *first = queues_first(waiting);
        if (first == NULL) return;
        if (sent == SENT_AWAY_MAX) {
            queues_mark(waiting);
            return;
        }
        waiters_send_away(first, error);
        waiting = queues_find(db, name);
    }
}

/* The session of the hold has ended, or its holder was never told of it. */
static void end_gone_holder(RedisModuleCtx *ctx, lease_ref hold) {
    lock_entry entry;
    if (!open_hold(&entry, ctx, hold)) return;
    server_write permission = ask(&entry);
    if (permission != SERVER_NOT_OURS)
        transition_end(&entry, HOLDER_GONE, permission == SERVER_MAY_WRITE);
    close_hold(&entry);
}

static bool end_abandoned(RedisModuleCtx *ctx, int64_t until_us) {
    lease_ref hold;
    while (!is_enough(server_boot_us(), until_us)) {
        if (!ties_take_abandoned(&hold)) return false;
        end_gone_holder(ctx, hold);
    }
    return true;
}

static void end_lease(lock_entry *entry) {
    server_write permission = ask(entry);
    if (permission != SERVER_NOT_OURS) {
        transition_end(entry, LEASE_ENDED, permission == SERVER_MAY_WRITE);
        return;
    }
    lock_store_set_over(entry, entry->now_us + FOREIGN_SLOT_US);
    send_away(entry->db, entry->name, TRYAGAIN_MOVING);
}

static bool end_leases(RedisModuleCtx *ctx, int64_t until_us) {
    lease_ref hold;
    lock_entry entry;
    int64_t end_us;
    while (leases_first(&hold, &end_us)) {
        int64_t now_us = server_boot_us();
        if (end_us > now_us) return false;
        if (is_enough(now_us, until_us)) return true;
        if (!open_hold(&entry, ctx, hold)) continue;
        if (entry.held.left_us <= 0) end_lease(&entry);
        close_hold(&entry);
    }
    return false;
}

/* -- queues */

/* The first waiter can get the lock. False: the core does not allow a grant now. */
static bool serve(lock_entry *entry) {
    switch (server_may_write(entry->ctx, entry->name)) {
    case SERVER_MAY_WRITE:
        transition_serve(entry);
        return true;
    case SERVER_NOT_OURS:
        send_away(entry->db, entry->name, TRYAGAIN_MOVING);
        return true;
    case SERVER_WRITE_LATER:
        break;
    }
    return false;
}

/* Settles the lock of the queue; the queue may be gone afterwards. False: the core does not allow a
 * grant now, and the queue is due again soon. */
static bool settle(RedisModuleCtx *ctx, wait_queue *waiting) {
    int db = waiting->db;
    RedisModuleString *name = RedisModule_HoldString(NULL, waiting->name);
    queues_set_looked(waiting);
    RedisModule_SelectDb(ctx, db);

    bool is_settled = true;
    lock_entry entry;
    if (!lock_store_open(&entry, ctx, name, LOCK_WRITE)) {
        send_away(db, name, REDISMODULE_ERRORMSG_WRONGTYPE);
    } else {
        transition_next_waiter(&entry);
        if (transition_can_serve(&entry))
            is_settled = serve(&entry);
        else
            transition_watch(&entry);
        transition_close(&entry);
    }
    waiting = queues_find(db, name);
    if (!is_settled && waiting != NULL) queues_set_look(waiting, server_boot_us() + RETRY_US);
    RedisModule_FreeString(NULL, name);
    return is_settled;
}

typedef enum progress { DONE, MORE, REFUSED } progress;

/* REFUSED: the remaining queues have to wait for the core, which refuses all writes. In a cluster
 * some queues are looked at all the same: waiters whose slot has moved away are told so. */
static progress settle_queues(RedisModuleCtx *ctx, int64_t until_us) {
    int refusals_left = server_is_cluster() ? REFUSED_MAX : 1;
    for (wait_queue *next;;) {
        int64_t now_us = server_boot_us();
        if ((next = queues_first_due(now_us)) == NULL) return DONE;
        if (is_enough(now_us, until_us)) return MORE;
        if (!settle(ctx, next) && --refusals_left == 0) return REFUSED;
    }
}

/* -- sessions and watches */

/* What may be done about the holds of an ended session: end them; only forget the session, since
 * this server does not decide; nothing yet. */
typedef enum ending { END_HOLDS, FORGET_HOLDS, KEEP_HOLDS } ending;

static bool end_next_hold(RedisModuleCtx *ctx, session *session, ending ending) {
    lease_ref hold;
    if (ending == KEEP_HOLDS || !ties_take_hold(session, &hold)) return false;
    if (ending == END_HOLDS && !sessions_is_forgotten(session)) end_gone_holder(ctx, hold);
    return true;
}

/* A hold whose grace is over, and that nobody has ended yet, goes on when its session is back. */
static bool move_next_graced(session *session) {
    lease_ref revived;
    lease_place place;
    if (!ties_move_graced(session, &revived)) return false;
    if (revived.id == 0 || !leases_find(revived, &place)) return true;
    watches_note_return(place.db, place.name);
    RedisModule_FreeString(NULL, place.name);
    return true;
}

/* Does the next piece of work for the session. False: nothing is left to do. */
static bool work_on(RedisModuleCtx *ctx, session *session, ending ending) {
    switch (session->state) {
    case SESSION_PRESENT:
        return session_waits_step_back(session) || move_next_graced(session) ||
               losses_explain(ctx, session);
    case SESSION_AWAY:
        return session_waits_step_aside(session) || move_next_graced(session) ||
               losses_explain(ctx, session);
    case SESSION_ENDED:
        break;
    }
    return end_next_hold(ctx, session, ending) || session_waits_clear(session) ||
           watches_clear(session) || losses_clear(session) || mailbox_forget_first(session);
}

/* True: the time is over, and more is left to do for the session. */
static bool work_on_until(RedisModuleCtx *ctx, session *session, int64_t until_us, ending ending) {
    sessions_end_if_forgotten(session);
    do {
        if (is_enough(server_boot_us(), until_us)) return true;
    } while (work_on(ctx, session, ending));
    return false;
}

/* Visits all sessions with work, one slice of time after the other: a session with very much to do
 * does not hold up the others. True: more is left to do. */
static bool work_on_sessions(RedisModuleCtx *ctx, int64_t until_us, ending ending) {
    const session *last = sessions_last_with_work();
    for (session *first; (first = sessions_first_with_work()) != NULL;) {
        int64_t now_us = server_boot_us();
        if (is_enough(now_us, until_us)) return true;
        if (work_on_until(ctx, first, earlier(now_us + SLICE_US, until_us), ending)) {
            sessions_let_others_work(first);
            continue;
        }
        bool is_last = first == last;
        sessions_set_worked(first);
        if (is_last) break;
    }
    return sessions_first_with_work() != NULL;
}

/* The holder of the lock, or NULL: of several holders, the one that is found first. *fence: the
 * newest one, since another of the holders may have changed. */
static RedisModuleString *find_holder(lock_entry *entry, int64_t *fence) {
    bool is_found = entry->is_held && entry->value == NULL;
    if (entry->is_held && entry->value != NULL) {
        lock_cursor cursor;
        lock_cursor_start(&cursor, entry->value);
        while (!is_found && lock_store_next(entry, &cursor))
            is_found = !transition_is_over(entry);
        lock_cursor_stop(&cursor);
    }
    *fence = is_found && entry->value != NULL ? lock_value_newest_fence(entry->value) : 0;
    return is_found
               ? RedisModule_CreateString(NULL, entry->held.token.bytes, entry->held.token.length)
               : NULL;
}

static void look_at_watched(RedisModuleCtx *ctx, watched *lock) {
    lock_entry entry;
    int64_t fence = 0, holders = 0;
    RedisModuleString *name = watched_name(lock), *holder = NULL;
    RedisModule_SelectDb(ctx, watched_db(lock));
    if (server_is_cluster() && server_may_write(ctx, name) == SERVER_NOT_OURS) {
        watched_set_gone(lock, TRYAGAIN_MOVING);
        return;
    }
    if (lock_store_open(&entry, ctx, name, LOCK_READ)) {
        holder = find_holder(&entry, &fence);
        if (holder != NULL && entry.value != NULL) holders = lock_store_holder_count(&entry);
        lock_store_close(&entry);
    }
    watched_set_holder(lock, holder, fence, holders);
}

/* Nobody tells the module that the slot of a free lock has moved to another node. So some watched
 * locks are looked at every second. Returns when that is due again. */
static int64_t check_watched_slots(int64_t now_us) {
    static int64_t due_us;
    if (!server_is_cluster() || watches_count() == 0) return SERVER_NEVER;
    if (now_us < due_us) return due_us;
    watches_mark_oldest(WATCHED_SLOTS_MOST);
    due_us = now_us + WATCHED_SLOTS_US;
    return due_us;
}

/* A lock that very many sessions watch is looked at again in the next turn. */
static bool look_at_all_watched(RedisModuleCtx *ctx, int64_t until_us) {
    for (watched *marked; (marked = watches_take_marked()) != NULL;) {
        look_at_watched(ctx, marked);
        do {
            if (server_boot_us() < until_us && !mailbox_has_answered_enough()) continue;
            watched_tell_later(marked);
            return true;
        } while (watched_tell_next(marked));
    }
    return false;
}

/* -- all stages */

static int64_t next_wait(void) {
    const waiter *first = queues_first_end();
    return first == NULL ? SERVER_NEVER : first->end.key;
}

static int64_t next_change(void) {
    lease_ref hold;
    int64_t due_us = SERVER_NEVER;
    leases_first(&hold, &due_us);
    return earlier(due_us, queues_next_look());
}

/* Runs the stages that change locks. Returns when the stages are due again. A replica ends no
 * locks, and only forgets lost holders; a promotion sets the alarm again. */
static int64_t change_locks(RedisModuleCtx *ctx) {
    int64_t retry_us = server_boot_us() + RETRY_US;
    int64_t until_us = server_boot_us() + PORTION_US;
    if (!server_decides(ctx)) {
        lease_ref hold;
        bool is_more = work_on_sessions(ctx, until_us, FORGET_HOLDS);
        while (ties_take_abandoned(&hold)) /* last: the sessions abandon holds, too */
            if (is_enough(server_boot_us(), until_us)) return 0;
        return is_more ? 0 : SERVER_NEVER;
    }
    if (server_is_frozen()) { /* nothing may be written now */
        work_on_sessions(ctx, until_us, KEEP_HOLDS);
        return retry_us;
    }
    if (fences_tell(ctx)) return 0; /* alone: else the stream has a transaction of both */
    bool is_more = work_on_sessions(ctx, until_us, END_HOLDS);
    is_more |= end_abandoned(ctx, server_boot_us() + PORTION_US);
    is_more |= end_leases(ctx, server_boot_us() + PORTION_US);
    progress queues = settle_queues(ctx, server_boot_us() + PORTION_US);
    int64_t slots_us = check_watched_slots(server_boot_us());
    is_more |= look_at_all_watched(ctx, server_boot_us() + PORTION_US);
    /* Later stages have found work for earlier ones. */
    if (is_more || queues == MORE || sessions_have_work() || ties_have_abandoned()) return 0;
    if (queues == REFUSED) return retry_us;
    return earlier(slots_us, earlier(next_change(), fences_due()));
}

int64_t work_run(RedisModuleCtx *ctx) {
    blocked_tidy(ctx);
    bool is_more = end_waits(server_boot_us() + PORTION_US);
    is_more |= !sessions_run_forgotten(server_boot_us() + PORTION_US);
    is_more |= !sessions_run_gone(server_boot_us() + PORTION_US);
    is_more |= !sessions_run_due(server_boot_us() + PORTION_US);
    is_more |= leases_sweep(server_boot_us() + PORTION_US, forget_flushed);
    strays_run(ctx, server_boot_us() + PORTION_US);
    int64_t due_us = change_locks(ctx); /* may find new strays */
    if (is_more) return 0;
    /* Work due within the next half millisecond is done together, at the end of it. */
    int64_t next_us = server_boot_us() + PAUSE_US;
    due_us = earlier(due_us, earlier(next_wait(), earlier(strays_due(), sessions_next_due())));
    return due_us > 0 && due_us < next_us ? next_us : due_us;
}
