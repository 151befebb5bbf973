/* SPDX-License-Identifier: BSD-3-Clause */
/* waiters.c - see waiters.h.
 *
 *   park       a command found the lock held: append to the name's queue, note when its wait ends
 *   answer     transition.c has made the first one the holder: unlink it, unblock its client
 *   forget     its time is over, it was unblocked by hand, or its connection went away
 *
 * The client is blocked "on keys", without a timeout of the core, and unblocked by hand; the core
 * then calls on_unblock() (at once on 7.0, before it sleeps on newer servers), which only formats
 * the answer that is already decided. This survives a CLIENT UNBLOCK in the same turn of the event
 * loop as a grant, and lets the core redirect clients whose cluster slot moves away. The core's own
 * timeout would lose the answer in that race, and be late.
 *
 * Invariants: a queue exists only while somebody waits in it, and has at most one timer. A
 * waiter is in a queue and has a deadline, or it is in the list of the answered until the core
 * frees it. A timer is set for the first of the deadlines or earlier: who leaves does not touch
 * it, so that a lock that changes hands quickly costs no timers. */
#include "waiters.h"

#include "deadlines.h"
#include "deferred.h"
#include "sessions.h"
#include "settings.h"
#include "stats.h"
#include "wall_clock.h"
#include <string.h>

enum { REDIS_7_2 = 0x00070200, ENDS_AT_FIRST = 64 };

typedef struct queue queue;

typedef enum waiter_state { WAITING, GRANTED, CONFIRMED, TIMED_OUT, SENT_AWAY, GONE } waiter_state;

struct waiter {
    deadline end;        /* of its wait, monotonic; must be the first member */
    waiter *prev, *next; /* in the queue, or among the answered */
    queue *in;           /* NULL once it has left the queue */
    RedisModuleBlockedClient *client;
    uint64_t client_id;
    lock_request request; /* its token is the copy at the end */
    int db;
    RedisModuleString *name;
    uint64_t parked_us; /* monotonic */
    bool is_written;    /* by on_unblock(), to the client itself */
    bool is_due;        /* its client is to be unblocked before the server sleeps */
    waiter_state state;
    int64_t fence;     /* of the answer; 0 is null */
    const char *error; /* of SENT_AWAY */
    char token[];
};

struct queue {
    int db;
    RedisModuleString *name;
    waiter *first, *last;
    int64_t length;
    RedisModuleTimerID timer;
    int64_t timer_at_ms; /* 0: no timer */
};

static deadlines ends;
static size_t ends_capacity;
static RedisModuleTimerID ends_timer;
static uint64_t ends_timer_us; /* 0: no timer */

static RedisModuleDict **queues_by_db;
static int db_count;
static int64_t total, queue_count;
static waiter *answered;
static waiters_last_look_fn last_look_fn;
static RedisModuleString *nobodys_key;
static bool is_following_loop, is_awake, is_turn_known;

/* -- queues */

static queue *find_queue(int db, const RedisModuleString *name) {
    if (total == 0 || db >= db_count || queues_by_db[db] == NULL) return NULL;
    return RedisModule_DictGet(queues_by_db[db], (RedisModuleString *)name, NULL);
}

static queue *make_queue(int db, const RedisModuleString *name) {
    if (db >= db_count) {
        queues_by_db = RedisModule_Realloc(queues_by_db, sizeof(*queues_by_db) * ((size_t)db + 1));
        memset(queues_by_db + db_count, 0, sizeof(*queues_by_db) * (size_t)(db + 1 - db_count));
        db_count = db + 1;
    }
    if (queues_by_db[db] == NULL) queues_by_db[db] = RedisModule_CreateDict(NULL);

    queue *made = RedisModule_Calloc(1, sizeof(*made));
    made->db = db;
    made->name = RedisModule_CreateStringFromString(NULL, name);
    RedisModule_DictSet(queues_by_db[db], made->name, made);
    queue_count++;
    return made;
}

static void stop_queue_timer(queue *of) {
    if (of->timer_at_ms != 0) deferred_stop_timer(of->timer);
    of->timer_at_ms = 0;
}

static void free_queue(queue *old) {
    stop_queue_timer(old);
    RedisModule_DictDel(queues_by_db[old->db], old->name, NULL);
    RedisModule_FreeString(NULL, old->name);
    RedisModule_Free(old);
    queue_count--;
}

static void on_queue_timer(RedisModuleCtx *ctx, void *data) {
    queue *of = data;
    of->timer_at_ms = 0; /* it is gone with this call; stopping it would be an error */
    RedisModuleString *name = RedisModule_CreateStringFromString(NULL, of->name);
    deferred_settle_now(ctx, of->db, name); /* may free the queue */
    RedisModule_FreeString(NULL, name);
}

/* -- deadlines */

static void on_deadline(RedisModuleCtx *ctx, void *data);

/* A timer for the first of them, unless there is one that comes early enough. */
static void set_ends_timer(uint64_t now_us) {
    deadline *first = deadlines_first(&ends);
    if (first == NULL || (ends_timer_us != 0 && ends_timer_us <= first->at_us)) return;
    if (ends_timer_us != 0) deferred_stop_timer(ends_timer);
    int64_t left_us = (int64_t)(first->at_us - now_us);
    ends_timer = deferred_set_timer((left_us + 999) / 1000, on_deadline, NULL);
    ends_timer_us = first->at_us;
}

/* Timers follow the wall clock: one that was set back leaves ours late, by any time. */
static void catch_up(void) {
    deadline *first = deadlines_first(&ends);
    uint64_t now_us = RedisModule_MonotonicMicroseconds();
    if (first == NULL || now_us <= first->at_us) return;
    deferred_stop_timer(ends_timer);
    ends_timer_us = 0;
    set_ends_timer(now_us);
}

static void add_end(waiter *who) {
    if (ends.count == ends_capacity) {
        ends_capacity = ends_capacity == 0 ? ENDS_AT_FIRST : ends_capacity * 2;
        ends.heap = RedisModule_Realloc(ends.heap, sizeof(ends.heap[0]) * ends_capacity);
    }
    deadlines_add(&ends, &who->end);
    set_ends_timer(who->parked_us);
}

static void remove_end(waiter *who) {
    deadlines_remove(&ends, &who->end);
    if (ends.count > 0 || ends_capacity == ENDS_AT_FIRST) return;
    RedisModule_Free(ends.heap);
    ends = (deadlines){0};
    ends_capacity = 0;
}

/* -- one waiter */

static void append(queue *to, waiter *added) {
    added->in = to;
    added->prev = to->last;
    if (to->last != NULL)
        to->last->next = added;
    else
        to->first = added;
    to->last = added;
    to->length++;
    total++;
}

/* Out of its queue, which goes with its last waiter. */
static void leave(waiter *who) {
    queue *from = who->in;
    if (who->prev != NULL)
        who->prev->next = who->next;
    else
        from->first = who->next;
    if (who->next != NULL)
        who->next->prev = who->prev;
    else
        from->last = who->prev;
    who->prev = who->next = NULL;
    who->in = NULL;
    from->length--;
    total--;
    if (from->first == NULL) free_queue(from);
    remove_end(who);
}

static void add_answered(waiter *who) {
    who->next = answered;
    if (answered != NULL) answered->prev = who;
    answered = who;
}

static void remove_answered(waiter *who) {
    if (who->prev != NULL)
        who->prev->next = who->next;
    else if (answered == who)
        answered = who->next;
    if (who->next != NULL) who->next->prev = who->prev;
}

static void unblock(waiter *who, waiter_state state) {
    who->state = state;
    leave(who);
    add_answered(who);
    who->is_due = true;
    if (!is_awake || !is_turn_known) deferred_end_sleep();
}

/* Who was answered in this turn of the event loop is unblocked at its end, just before the core
 * frees it: until then 7.0 would let a CLIENT UNBLOCK ERROR add a second answer, and with a turn in
 * between a client that got its answer and closed its connection would look as if it had not. */
static void on_event_loop(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent,
                          void *data) {
    (void)ctx, (void)event, (void)data;
    is_turn_known = true;
    is_awake = subevent == REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP;
    if (is_awake) catch_up();
    for (waiter *each = answered; each != NULL && !is_awake; each = each->next) {
        if (!each->is_due) continue;
        each->is_due = false;
        RedisModule_UnblockClient(each->client, NULL);
    }
}

/* Only while somebody waits: it costs every turn of the loop. Not from within the event itself. */
static void follow_event_loop(bool is_wanted) {
    if (is_wanted == is_following_loop) return;
    is_following_loop = is_wanted;
    is_awake = is_wanted; /* most likely; and if it is about to sleep, it is woken up */
    is_turn_known = false;
    RedisModule_SubscribeToServerEvent(deferred_context(), RedisModuleEvent_EventLoop,
                                       is_wanted ? on_event_loop : NULL);
}

static void time_out(RedisModuleCtx *ctx, waiter *who) {
    RedisModule_SelectDb(ctx, who->db);
    who->fence = last_look_fn(ctx, who->name, &who->request);
    stats_count(STATS_WAIT_TIMEOUTS);
    unblock(who, TIMED_OUT);
}

/* Who set the timer may have left, and the wall clock may have jumped. */
static void on_deadline(RedisModuleCtx *ctx, void *data) {
    (void)data;
    ends_timer_us = 0; /* it is gone with this call */
    uint64_t now_us = RedisModule_MonotonicMicroseconds();
    deadline *first;
    while ((first = deadlines_first(&ends)) != NULL && first->at_us <= now_us)
        time_out(ctx, (waiter *)first);
    set_ends_timer(now_us);
}

/* -- what the core calls */

/* The key was created: it is transition.c that decides who gets the lock, so stay. */
static int on_key_ready(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)ctx, (void)argv, (void)argc;
    return REDISMODULE_ERR;
}

static int on_unblock(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    waiter *who = RedisModule_GetBlockedClientPrivateData(ctx);
    bool is_by_core = who->is_due || who->state == WAITING; /* CLIENT UNBLOCK id TIMEOUT */
    who->is_written = is_by_core || RedisModule_GetServerVersion() < REDIS_7_2;
    who->is_due = false;
    if (who->state == WAITING) {
        stats_count(STATS_WAIT_TIMEOUTS);
        who->state = TIMED_OUT;
        leave(who);
        add_answered(who);
    }
    if (who->state == SENT_AWAY) return RedisModule_ReplyWithError(ctx, who->error);
    if (who->fence == 0) return RedisModule_ReplyWithNull(ctx);
    return RedisModule_ReplyWithLongLong(ctx, who->fence);
}

/* The connection is lost, or was given an error by the core: CLIENT UNBLOCK id ERROR, a cluster
 * redirect, demotion to replica. */
static void on_disconnect(RedisModuleCtx *ctx, RedisModuleBlockedClient *client) {
    (void)client;
    waiter *who = RedisModule_GetBlockedClientPrivateData(ctx);
    who->is_due = false;
    if (who->state != WAITING) return; /* on_free() will see that it was not told */
    who->state = GONE;
    leave(who);
    add_answered(who);
}

/* Is the answer on its way? Not when the connection is gone, or when CLIENT UNBLOCK ERROR was
 * faster. Where on_unblock() has written to the client itself, the connection is all that
 * matters. Otherwise newer servers call every client disconnected that they do not answer. */
static bool is_told(RedisModuleCtx *ctx, const waiter *who) {
    if (who->is_written)
        return RedisModule_GetClientInfoById(NULL, who->client_id) == REDISMODULE_OK;
    return RedisModule_GetServerVersion() >= REDIS_7_2 &&
           !RedisModule_BlockedClientDisconnected(ctx);
}

/* The last call for this waiter, shortly before its answer is written to the socket. A holder
 * that was not told is no holder. */
static void on_free(RedisModuleCtx *ctx, void *privdata) {
    waiter *who = privdata;
    if (who->state == GRANTED && !is_told(ctx, who)) {
        sessions_forget(who->fence);
        deferred_settle_soon(who->db, who->name, who->fence);
    }
    remove_answered(who);
    RedisModule_FreeString(NULL, who->name);
    RedisModule_Free(who);
    if (total == 0 && answered == NULL) follow_event_loop(false);
}

static void settle_all(int db) {
    if (db >= db_count || queues_by_db[db] == NULL) return;
    RedisModuleDictIter *each = RedisModule_DictIteratorStartC(queues_by_db[db], "^", NULL, 0);
    queue *of;
    while (RedisModule_DictNextC(each, NULL, (void **)&of) != NULL)
        deferred_settle_soon(of->db, of->name, 0);
    RedisModule_DictIteratorStop(each);
}

/* -- public */

void waiters_init(waiters_last_look_fn last_look) {
    static const char unlikely[] = "\0dlock: nobody creates this key\0";
    nobodys_key = RedisModule_CreateString(NULL, unlikely, sizeof(unlikely));
    last_look_fn = last_look;
}

/* Whenever a key is created the core walks over all clients that are blocked on it. So we block
 * on one that nobody creates; but in a cluster on the lock's own, so that the core can redirect
 * them. */
static RedisModuleString *key_to_block_on(RedisModuleCtx *ctx, RedisModuleString *name) {
    bool is_cluster = RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_CLUSTER;
    return is_cluster ? name : nobodys_key;
}

bool waiters_park_or_reply(RedisModuleCtx *ctx, RedisModuleString *name,
                           const lock_request *request) {
    int db = RedisModule_GetSelectedDb(ctx);
    queue *in = find_queue(db, name);
    if (waiters_count(db, name) >= settings.max_waiters) {
        stats_count(STATS_QUEUE_FULL);
        RedisModule_ReplyWithError(ctx, "QUEUEFULL too many clients wait for this lock "
                                        "(dlock.max-waiters)");
        return false;
    }
    if (in == NULL) in = make_queue(db, name);

    waiter *who = RedisModule_Calloc(1, sizeof(*who) + request->token.length);
    memcpy(who->token, request->token.bytes, request->token.length);
    who->request = *request;
    who->request.token.bytes = who->token;
    who->db = db;
    who->name = RedisModule_CreateStringFromString(NULL, name);
    who->client_id = RedisModule_GetClientId(ctx);
    who->parked_us = RedisModule_MonotonicMicroseconds();
    who->end.at_us = who->parked_us + (uint64_t)request->wait_ms * 1000;
    append(in, who);
    add_end(who);
    follow_event_loop(true);
    RedisModuleString *key = key_to_block_on(ctx, name);
    who->client =
        RedisModule_BlockClientOnKeys(ctx, on_key_ready, on_unblock, on_free, 0, &key, 1, who);
    RedisModule_SetDisconnectCallback(who->client, on_disconnect);
    return true;
}

waiter *waiters_first(int db, const RedisModuleString *name) {
    queue *of = find_queue(db, name);
    return of == NULL ? NULL : of->first;
}

const lock_request *waiter_request(const waiter *first) {
    return &first->request;
}

uint64_t waiter_client(const waiter *first) {
    return first->client_id;
}

void waiters_answer(waiter *first, int64_t fence) {
    stats_wait(RedisModule_MonotonicMicroseconds() - first->parked_us);
    first->fence = fence;
    unblock(first, GRANTED);
}

void waiters_send_away(int db, const RedisModuleString *name, const char *error) {
    waiter *who;
    while ((who = waiters_first(db, name)) != NULL) {
        who->error = error;
        unblock(who, SENT_AWAY);
    }
}

void waiters_look_again(int db, const RedisModuleString *name, int64_t at_ms) {
    queue *of = find_queue(db, name);
    if (of == NULL || (of->timer_at_ms != 0 && of->timer_at_ms <= at_ms)) return;
    stop_queue_timer(of);
    of->timer = deferred_set_timer(at_ms - wall_clock_ms(), on_queue_timer, of);
    of->timer_at_ms = at_ms;
}

void waiters_confirm(int64_t fence) {
    for (waiter *each = answered; each != NULL; each = each->next)
        if (each->state == GRANTED && each->fence == fence) each->state = CONFIRMED;
}

int64_t waiters_count(int db, const RedisModuleString *name) {
    queue *of = find_queue(db, name);
    return of == NULL ? 0 : of->length;
}

int64_t waiters_queue_count(void) {
    return queue_count;
}

int64_t waiters_total(void) {
    return total;
}

void waiters_flush(int db) {
    if (db >= 0) {
        settle_all(db);
        return;
    }
    for (int each = 0; each < db_count; each++)
        settle_all(each);
}

void waiters_swap(int db, int other_db) {
    settle_all(db);
    settle_all(other_db);
}
