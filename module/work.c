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
 *   holders     end the locks of lost holders: the session has ended, or the holder was never told
 *               of the grant
 *   leases      end the leases whose time is over
 *   queues      settle the queues whose lock may be free: marked queues, all queues after FLUSHDB
 *               or SWAPDB, and queues whose lock is to be looked at again
 *
 * The last three stages change locks. A replica skips them; a master postpones them while Redis
 * itself could not write. Each stage has a portion of time per turn of the event loop; then other
 * clients are served. */
#include "work.h"

#include "blocked.h"
#include "leases.h"
#include "lock_store.h"
#include "queues.h"
#include "server.h"
#include "sessions.h"
#include "stats.h"
#include "strays.h"
#include "transition.h"

enum {
    PORTION_US = 1000,
    PAUSE_US = 500,
    RETRY_US = 10000,
    SENT_AWAY_MAX = 256,
    FOREIGN_SLOT_US = 1000000,
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
        if (first->end.at_us > now_us) return false;
        if (is_enough(now_us, until_us)) return true;
        stats_count(STATS_WAIT_TIMEOUTS);
        blocked_refuse(first);
    }
    return false;
}

static void forget_flushed(lease_ref hold) {
    stats_count(STATS_FORCED);
    sessions_forget(hold.id);
}

/* -- holds */

/* Opens the lock of the hold. False: the lock is gone, and so is the lease entry. */
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
    sessions_forget(hold.id);
    leases_drop(hold);
    return false;
}

static void close_hold(lock_entry *entry) {
    RedisModuleString *name = entry->name;
    lock_store_close(entry);
    RedisModule_FreeString(NULL, name);
}

/* May the lock end now, and may another client get it? Only a grant needs the permission of the
 * core: the core itself expires its keys in any case. But a lock in a slot that is still being
 * imported is not ours to end. */
static server_write ask(const lock_entry *entry) {
    bool is_waited_for = queues_find(entry->db, entry->name) != NULL;
    if (!is_waited_for && !server_is_cluster()) return SERVER_MAY_WRITE;
    return server_may_write(entry->ctx, entry->name);
}

/* Sends a long queue away in portions: the queue stays marked. */
static void send_away(int db, RedisModuleString *name, const char *error) {
    wait_queue *waiting;
    for (int i = 0; i < SENT_AWAY_MAX; i++) {
        waiting = queues_find(db, name);
        if (waiting == NULL) return;
        blocked_send_away(waiting->first, error);
    }
    waiting = queues_find(db, name);
    if (waiting != NULL) queues_mark(waiting);
}

static bool end_gone_holders(RedisModuleCtx *ctx, int64_t until_us) {
    lease_ref hold;
    lock_entry entry;
    while (!is_enough(server_boot_us(), until_us)) {
        if (!sessions_take_ended(&hold)) return false;
        if (!open_hold(&entry, ctx, hold)) continue;
        server_write permission = ask(&entry);
        if (permission != SERVER_NOT_OURS)
            transition_end(&entry, HOLDER_GONE, permission == SERVER_MAY_WRITE);
        close_hold(&entry);
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

/* Settles the lock of the queue; the queue may be gone afterwards. False: the queue stays
 * marked, since the core does not allow a grant now. */
static bool settle(RedisModuleCtx *ctx, wait_queue *waiting) {
    int db = waiting->db;
    RedisModuleString *name = RedisModule_HoldString(NULL, waiting->name);
    queues_unmark(waiting);
    queues_set_checked(waiting);
    queues_set_look(waiting, SERVER_NEVER);
    RedisModule_SelectDb(ctx, db);

    bool is_settled = true;
    lock_entry entry;
    if (!lock_store_open(&entry, ctx, name, LOCK_WRITE)) {
        send_away(db, name, REDISMODULE_ERRORMSG_WRONGTYPE);
    } else {
        if (transition_can_serve(&entry))
            is_settled = serve(&entry);
        else
            transition_watch(&entry);
        lock_store_close(&entry);
    }
    if (!is_settled) queues_mark(waiting);
    RedisModule_FreeString(NULL, name);
    return is_settled;
}

static wait_queue *next_queue(void) {
    wait_queue *next = queues_first_dirty();
    if (next == NULL) next = queues_first_unchecked();
    if (next != NULL) return next;
    next = queues_first_look();
    return next != NULL && next->look.at_us <= server_boot_us() ? next : NULL;
}

typedef enum progress { DONE, MORE, REFUSED } progress;

/* REFUSED: the remaining queues have to wait for the core. The core refuses all writes; only in a
 * cluster may the core refuse a grant for one name and allow it for the next, so there every marked
 * queue is tried once. */
static progress settle_queues(RedisModuleCtx *ctx, int64_t until_us) {
    const wait_queue *first_refused = NULL;
    wait_queue *next;
    while ((next = next_queue()) != NULL) {
        if (next == first_refused) return REFUSED;
        if (is_enough(server_boot_us(), until_us)) return MORE;
        if (settle(ctx, next)) continue;
        if (!server_is_cluster()) return REFUSED;
        if (first_refused == NULL) first_refused = next;
    }
    return DONE;
}

/* -- all stages */

static int64_t next_wait(void) {
    const waiter *first = queues_first_end();
    return first == NULL ? SERVER_NEVER : first->end.at_us;
}

static int64_t next_change(void) {
    lease_ref hold;
    int64_t due_us = SERVER_NEVER;
    const wait_queue *look = queues_first_look();
    if (leases_first(&hold, &due_us) && look == NULL) return due_us;
    return look == NULL ? due_us : earlier(due_us, look->look.at_us);
}

/* A replica ends no locks, and only forgets lost holders. A promotion sets the alarm again. */
static int64_t forget_gone_holders(int64_t until_us) {
    lease_ref hold;
    while (sessions_take_ended(&hold))
        if (is_enough(server_boot_us(), until_us)) return 0;
    return SERVER_NEVER;
}

/* Runs the stages that change locks. Returns when the stages are due again. */
static int64_t change_locks(RedisModuleCtx *ctx) {
    if (!server_decides(ctx)) return forget_gone_holders(server_boot_us() + PORTION_US);
    int64_t retry_us = server_boot_us() + RETRY_US;
    if (server_is_frozen()) return retry_us; /* nothing may be written now */

    bool is_more = end_gone_holders(ctx, server_boot_us() + PORTION_US);
    is_more |= end_leases(ctx, server_boot_us() + PORTION_US);
    progress queues = settle_queues(ctx, server_boot_us() + PORTION_US);
    if (is_more || queues == MORE) return 0;
    return queues == REFUSED ? retry_us : next_change();
}

int64_t work_run(RedisModuleCtx *ctx) {
    blocked_tidy(ctx);
    bool is_more = end_waits(server_boot_us() + PORTION_US);
    is_more |= leases_sweep(server_boot_us() + PORTION_US, forget_flushed);
    strays_run(ctx, server_boot_us() + PORTION_US);
    int64_t due_us = change_locks(ctx); /* may find new strays */
    if (is_more) return 0;
    /* Work due within the next half millisecond is done together, at the end of it. */
    int64_t next_us = server_boot_us() + PAUSE_US;
    due_us = earlier(due_us, earlier(next_wait(), strays_due()));
    return due_us > 0 && due_us < next_us ? next_us : due_us;
}
