/* SPDX-License-Identifier: BSD-3-Clause */
/* blocked.c - see blocked.h. A client that waits goes through four states:
 *
 *   WAITING    in a queue. The client is blocked "on keys", without a timeout of the core
 *   due        out of the queue, reply decided: deliver() runs just before the server sleeps
 *   delivered  the reply is in the reply buffer of the blocked client, and the core is asked to
 *              unblock it; the core appends the buffer to the output of the connection
 *   told       the core has appended the reply; remembered until the server has slept once
 *
 * Before delivery, anything that unblocks the client (CLIENT UNBLOCK, a closed connection, a moved
 * slot, a change of role) ends in on_unblock() or on_disconnect(), and a grant is abandoned. After
 * delivery, on_free() learns from the core whether the reply was appended. If the core frees the
 * connection before the server has slept, no byte of the reply was sent, and blocked_client_gone()
 * abandons the grant. The exception is a connection to be closed after its replies. None of these
 * rules depends on the version of the server.
 *
 * The module does not use the timeout of the core. The core's timeout is late, and on some servers
 * the reply is lost when the timeout meets an unblocking in the same turn. CLIENT UNBLOCK in the
 * turn between delivered and told also loses the reply on some servers: the module then closes the
 * connection, so that no client hangs. The module cannot tell whether CLIENT UNBLOCK has sent an
 * error instead, so a connection that got UNBLOCKED in this turn is closed too.
 *
 * Clients block on a key with a random name, which nobody creates. In a cluster the key is in the
 * slot of the lock, so that the core can redirect clients whose slot moves away. If clients blocked
 * on the name of the lock, the core would walk over all waiters whenever another client creates the
 * key. */
#include "blocked.h"

#include "cluster_slot.h"
#include "server.h"
#include "sessions.h"
#include "stats.h"
#include <stdio.h>
#include <string.h>

enum { RANDOM_SIZE = 32, KEY_MAX = 64, TOLD_BUCKETS = 1024 };

/* The core needs about ten microseconds to unblock a client. */
enum { DUE_ENOUGH = 128 };

/* Follow the event loop for so many turns after the last waiter: a lock that changes hands
 * quickly is without waiters again and again. */
enum { IDLE_TURNS = 64 };

/* A long turn can hide a closed connection. A grant then waits for another quarter of that time,
 * within these bounds, so that the server and its I/O threads can read from the connections. */
enum { LONG_TURN_US = 5000, POSTPONE_MIN_US = 4000, POSTPONE_MAX_US = 50000 };

typedef enum blocked_answer { WAITING, GRANTED, REFUSED, SENT_AWAY } blocked_answer;

typedef struct blocked_wait {
    waiter waiter; /* must be the first member */
    RedisModuleBlockedClient *handle;
    blocked_answer answer;
    bool is_delivered;
    bool is_due;
    int64_t not_before_us;     /* earliest delivery of a postponed reply; 0: not postponed */
    int64_t answered_us;       /* when the reply was decided */
    list_node node;            /* in the list due, told_now or to_close */
    struct blocked_wait *next; /* in a bucket of told clients */
    int64_t fence;             /* fence and lease_end_us: only for GRANTED */
    int64_t lease_end_us;
    const char *error;       /* only for SENT_AWAY */
    RedisModuleString *user; /* NULL: not in the ACL */
    char token[];
} blocked_wait;

static list due, told_now, to_close;
static blocked_wait *told[TOLD_BUCKETS];
static int64_t parked_count, due_count;
static bool is_following_loop, is_awake;
static int idle_turns; /* turns since the last client waited */
static char key_prefix[KEY_MAX];
static RedisModuleString *nobodys_key;
static uint32_t suffixes[CLUSTER_SLOTS];

/* -- clients whose reply is due before the server sleeps */

static void due_add(blocked_wait *added) {
    added->is_due = true;
    due_count++;
    list_append(&due, &added->node);
    if (!is_awake) server_alarm(0); /* the server may have passed the point of delivery */
}

static void due_remove(blocked_wait *removed) {
    if (!removed->is_due) return;
    removed->is_due = false;
    due_count--;
    list_remove(&due, &removed->node);
}

static void answer_soon(blocked_wait *wait, blocked_answer answer) {
    if (answer == GRANTED)
        queues_leave(&wait->waiter);
    else
        queues_give_up(&wait->waiter);
    wait->answer = answer;
    wait->answered_us = server_boot_us();
    due_add(wait);
}

bool blocked_has_enough(void) {
    return due_count >= DUE_ENOUGH;
}

/* -- the reply */

static int reply(RedisModuleCtx *ctx, const blocked_wait *wait) {
    if (wait->answer == SENT_AWAY) return RedisModule_ReplyWithError(ctx, wait->error);
    if (wait->answer == GRANTED) return RedisModule_ReplyWithLongLong(ctx, wait->fence);
    return RedisModule_ReplyWithNull(ctx);
}

/* True: the reply has to wait for a later turn. */
static bool is_postponed(blocked_wait *wait, int64_t now_us) {
    if (wait->answer != GRANTED) return false;
    int64_t late_us = now_us - wait->answered_us;
    if (wait->not_before_us == 0 && late_us >= LONG_TURN_US) {
        int64_t pause_us = late_us / 4;
        if (pause_us < POSTPONE_MIN_US) pause_us = POSTPONE_MIN_US;
        if (pause_us > POSTPONE_MAX_US) pause_us = POSTPONE_MAX_US;
        wait->not_before_us = now_us + pause_us;
    }
    if (now_us >= wait->not_before_us) return false;
    server_alarm(wait->not_before_us);
    return true;
}

static void deliver(blocked_wait *wait, int64_t now_us) {
    due_remove(wait);
    /* A holder must get at least a part of the lease. work.c ends the lock itself. */
    if (wait->answer == GRANTED && now_us >= wait->lease_end_us) wait->answer = REFUSED;
    RedisModuleCtx *ctx = RedisModule_GetThreadSafeContext(wait->handle);
    reply(ctx, wait);
    RedisModule_FreeThreadSafeContext(ctx);
    wait->is_delivered = true;
    RedisModule_UnblockClient(wait->handle, NULL);
}

/* Delivers as many replies as one turn should have; the rest follows in the next turn. */
static void deliver_due(void) {
    int64_t now_us = list_is_empty(&due) ? 0 : server_boot_us();
    int delivered = 0;
    for (list_node *node = due.first, *next; node != NULL; node = next) {
        blocked_wait *wait = LIST_OBJECT(node, blocked_wait, node);
        next = node->next;
        if (delivered == DUE_ENOUGH) {
            server_alarm(0);
            return;
        }
        if (is_postponed(wait, now_us)) continue;
        deliver(wait, now_us);
        delivered++;
    }
}

/* -- clients told in the current turn */

static blocked_wait **told_bucket(uint64_t client) {
    return &told[client % TOLD_BUCKETS];
}

static void told_add(blocked_wait *wait) {
    blocked_wait **bucket = told_bucket(wait->waiter.client);
    wait->next = *bucket;
    *bucket = wait;
    list_append(&told_now, &wait->node);
}

static void free_wait(blocked_wait *wait) {
    queues_forget(&wait->waiter);
    if (wait->user != NULL) RedisModule_FreeString(NULL, wait->user);
    RedisModule_Free(wait);
}

static void told_forget_all(void) {
    while (!list_is_empty(&told_now)) {
        blocked_wait *wait = LIST_OBJECT(told_now.first, blocked_wait, node);
        list_remove(&told_now, &wait->node);
        *told_bucket(wait->waiter.client) = NULL;
        free_wait(wait);
    }
}

/* May the core have sent the replies before it closed the connection, as after QUIT? CLIENT LIST
 * then shows the flag c. Where an operator has renamed CLIENT, the answer is always yes: a lock
 * that nobody uses until its lease ends is better than two holders. */
static bool is_closed_after_reply(RedisModuleCtx *ctx, uint64_t client) {
    static const char field[] = " flags=";
    RedisModuleCallReply *reply =
        RedisModule_Call(ctx, "CLIENT", "ccl", "LIST", "ID", (long long)client);
    if (reply == NULL) return true;
    RedisModuleString *line = RedisModule_CreateStringFromCallReply(reply);
    const char *flags = line == NULL ? NULL : strstr(RedisModule_StringPtrLen(line, NULL), field);
    bool is_flagged =
        flags != NULL && flags[strlen(field) + strcspn(flags + strlen(field), " c")] == 'c';
    if (line != NULL) RedisModule_FreeString(ctx, line);
    RedisModule_FreeCallReply(reply);
    return is_flagged;
}

void blocked_client_gone(RedisModuleCtx *ctx, uint64_t client) {
    if (list_is_empty(&told_now)) return;
    for (blocked_wait *wait = *told_bucket(client); wait != NULL; wait = wait->next)
        if (wait->waiter.client == client && !is_closed_after_reply(ctx, client))
            queues_abandon(&wait->waiter);
}

/* -- the event loop */

static void on_event_loop(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent,
                          void *data) {
    (void)ctx, (void)event, (void)data;
    is_awake = subevent == REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP;
    if (!is_awake) {
        deliver_due();
        return;
    }
    told_forget_all();
    if (parked_count == 0 && ++idle_turns == IDLE_TURNS) server_alarm(0); /* for blocked_tidy() */
}

/* Follow the event loop only while clients wait, and a little longer: the callback costs time in
 * every turn. Must not be called from within the event itself. */
static void follow_event_loop(bool is_wanted) {
    if (is_wanted == is_following_loop) return;
    is_following_loop = is_wanted;
    is_awake = false; /* not known yet */
    RedisModule_SubscribeToServerEvent(server_context(), RedisModuleEvent_EventLoop,
                                       is_wanted ? on_event_loop : NULL);
}

/* -- callbacks of the core */

/* The key was created: a client has guessed the random name. The waiter stays blocked. */
static int on_key_ready(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)ctx, (void)argv, (void)argc;
    return REDISMODULE_ERR;
}

/* The core calls on_unblock() in two cases. After our own unblocking, nothing is left to write.
 * After CLIENT UNBLOCK, the client needs a reply now: the wait ends, even if the client was granted
 * the lock in the same turn. */
static int on_unblock(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    blocked_wait *wait = RedisModule_GetBlockedClientPrivateData(ctx);
    if (wait->is_delivered) return REDISMODULE_OK;
    due_remove(wait);
    if (wait->answer == WAITING) {
        stats_count(STATS_WAIT_TIMEOUTS);
        queues_give_up(&wait->waiter);
        wait->answer = REFUSED;
    } else if (wait->answer == GRANTED) {
        queues_abandon(&wait->waiter);
        wait->answer = REFUSED;
    }
    return reply(ctx, wait);
}

/* The connection is lost, or the core has sent an error to the client: CLIENT UNBLOCK id ERROR,
 * a cluster redirect, demotion to replica. */
static void on_disconnect(RedisModuleCtx *ctx, RedisModuleBlockedClient *handle) {
    (void)handle;
    blocked_wait *wait = RedisModule_GetBlockedClientPrivateData(ctx);
    if (wait->is_delivered) return; /* on_free() decides */
    due_remove(wait);
    if (wait->answer == WAITING) queues_give_up(&wait->waiter);
    if (wait->answer == GRANTED) queues_abandon(&wait->waiter);
    wait->answer = REFUSED;
}

/* The last call of the core for a blocked client. */
static void on_free(RedisModuleCtx *ctx, void *privdata) {
    blocked_wait *wait = privdata;
    bool is_dropped = wait->is_delivered && RedisModule_BlockedClientDisconnected(ctx);
    bool is_granted = wait->is_delivered && wait->answer == GRANTED;
    if (is_dropped && is_granted) queues_abandon(&wait->waiter);
    if (is_dropped) {
        list_append(&to_close, &wait->node);
        server_alarm(0);
    } else if (is_granted) {
        told_add(wait);
    } else {
        free_wait(wait);
    }
    parked_count--;
}

/* -- public */

void blocked_init(void) {
    char random[RANDOM_SIZE];
    RedisModule_GetRandomHexChars(random, sizeof(random));
    int length = snprintf(key_prefix, sizeof(key_prefix), "dlock:%.*s:", RANDOM_SIZE, random);
    nobodys_key = RedisModule_CreateString(NULL, key_prefix, (size_t)length);
    if (server_is_cluster()) cluster_slot_find_suffixes(key_prefix, (size_t)length, suffixes);
}

static RedisModuleString *make_key_to_block_on(RedisModuleString *name) {
    if (!server_is_cluster()) return RedisModule_HoldString(NULL, nobodys_key);
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(name, &length);
    return RedisModule_CreateStringPrintf(NULL, "%s%u", key_prefix,
                                          suffixes[cluster_slot(bytes, length)]);
}

static blocked_wait *make_wait(RedisModuleCtx *ctx, const lock_request *request) {
    blocked_wait *made = RedisModule_Calloc(1, sizeof(*made) + request->token.length);
    memcpy(made->token, request->token.bytes, request->token.length);
    made->waiter.request = *request;
    made->waiter.request.token.bytes = made->token;
    made->waiter.client = RedisModule_GetClientId(ctx);
    made->user = server_user(ctx);
    made->waiter.parked_us = server_boot_us();
    made->waiter.end.key = made->waiter.parked_us + request->wait_ms * INT64_C(1000);
    return made;
}

bool blocked_is_full(void) {
    return parked_count >= server_max_parked();
}

/* Valkey 8.1 and newer do not block a client that has subscribed to a channel, as RESP3 allows. */
bool blocked_park_or_reply(RedisModuleCtx *ctx, const wait_names *names,
                           const lock_request *request, waiter *older) {
    blocked_wait *wait = make_wait(ctx, request);
    RedisModuleString *key = make_key_to_block_on(names->names[0]);
    wait->handle =
        RedisModule_BlockClientOnKeys(ctx, on_key_ready, on_unblock, on_free, 0, &key, 1, wait);
    RedisModule_FreeString(NULL, key);
    if (wait->handle == NULL) {
        free_wait(wait);
        RedisModule_ReplyWithNull(ctx);
        return false;
    }
    RedisModule_SetDisconnectCallback(wait->handle, on_disconnect);
    parked_count++;
    idle_turns = 0;
    follow_event_loop(true);
    if (older != NULL)
        queues_replace(older, names, &wait->waiter);
    else
        queues_append(names, &wait->waiter);
    return true;
}

void blocked_supersede(waiter *older) {
    ((blocked_wait *)older)->answer = REFUSED;
    due_add((blocked_wait *)older);
}

bool blocked_is_permitted(waiter *waiting) {
    RedisModuleString *user = ((const blocked_wait *)waiting)->user;
    return user == NULL || queues_is_permitted(waiting, user);
}

void blocked_grant(waiter *granted, int64_t fence, int64_t lease_end_us) {
    blocked_wait *wait = (blocked_wait *)granted;
    wait->fence = fence;
    wait->lease_end_us = lease_end_us;
    answer_soon(wait, GRANTED);
    stats_add(&stats_wait_us, wait->answered_us - granted->parked_us);
}

void blocked_refuse(waiter *refused) {
    answer_soon((blocked_wait *)refused, REFUSED);
}

void blocked_send_away(waiter *sent, const char *error) {
    ((blocked_wait *)sent)->error = error;
    answer_soon((blocked_wait *)sent, SENT_AWAY);
}

void blocked_tidy(RedisModuleCtx *ctx) {
    if (parked_count == 0 && idle_turns >= IDLE_TURNS) follow_event_loop(false);
    while (!list_is_empty(&to_close)) {
        blocked_wait *wait = LIST_OBJECT(to_close.first, blocked_wait, node);
        list_remove(&to_close, &wait->node);
        RedisModule_DeauthenticateAndCloseClient(ctx, wait->waiter.client);
        free_wait(wait);
    }
}
