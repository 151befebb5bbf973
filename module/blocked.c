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
#include "settings.h"
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

typedef enum parked_answer { WAITING, GRANTED, REFUSED, SENT_AWAY } parked_answer;

typedef struct parked {
    waiter place; /* must be the first member */
    RedisModuleBlockedClient *client;
    parked_answer answer;
    bool is_delivered;
    bool is_due;
    int64_t not_before_us; /* earliest delivery of a postponed reply; 0: not postponed */
    int64_t answered_us;   /* when the reply was decided */
    struct parked *due_prev, *due_next; /* list of due clients; due_next also: all told */
    struct parked *next;                /* in a bucket of told clients, or in the list to_close */
    lease_ref hold;                     /* hold, fence and lease_end_us: only for GRANTED */
    int64_t fence;
    int64_t lease_end_us;
    const char *error; /* only for SENT_AWAY */
    char token[];
} parked;

static parked *due_first, *due_last, *told_first, *to_close;
static parked *told[TOLD_BUCKETS];
static int64_t parked_count, due_count;
static bool is_following_loop, is_awake;
static int idle_turns; /* turns since the last client waited */
static char key_prefix[KEY_MAX];
static RedisModuleString *nobodys_key;
static uint32_t suffixes[CLUSTER_SLOTS];

/* -- clients whose reply is due before the server sleeps */

static void due_add(parked *added) {
    added->is_due = true;
    due_count++;
    added->due_prev = due_last;
    added->due_next = NULL;
    if (due_last != NULL)
        due_last->due_next = added;
    else
        due_first = added;
    due_last = added;
    if (!is_awake) server_alarm(0); /* the server may have passed the point of delivery */
}

static void due_remove(parked *removed) {
    if (!removed->is_due) return;
    removed->is_due = false;
    due_count--;
    if (removed->due_prev != NULL)
        removed->due_prev->due_next = removed->due_next;
    else
        due_first = removed->due_next;
    if (removed->due_next != NULL)
        removed->due_next->due_prev = removed->due_prev;
    else
        due_last = removed->due_prev;
}

static void answer_soon(parked *client, parked_answer answer) {
    if (answer == GRANTED)
        queues_leave(&client->place);
    else
        queues_give_up(&client->place);
    client->answer = answer;
    client->answered_us = server_boot_us();
    due_add(client);
}

bool blocked_has_enough(void) {
    return due_count >= DUE_ENOUGH;
}

/* -- the reply */

static int reply(RedisModuleCtx *ctx, const parked *client) {
    if (client->answer == SENT_AWAY) return RedisModule_ReplyWithError(ctx, client->error);
    if (client->answer == GRANTED) return RedisModule_ReplyWithLongLong(ctx, client->fence);
    return RedisModule_ReplyWithNull(ctx);
}

/* True: the reply has to wait for a later turn. */
static bool is_postponed(parked *client, int64_t now_us) {
    if (client->answer != GRANTED) return false;
    int64_t late_us = now_us - client->answered_us;
    if (client->not_before_us == 0 && late_us >= LONG_TURN_US) {
        int64_t pause_us = late_us / 4;
        if (pause_us < POSTPONE_MIN_US) pause_us = POSTPONE_MIN_US;
        if (pause_us > POSTPONE_MAX_US) pause_us = POSTPONE_MAX_US;
        client->not_before_us = now_us + pause_us;
    }
    if (now_us >= client->not_before_us) return false;
    server_alarm(client->not_before_us);
    return true;
}

static void deliver(parked *client, int64_t now_us) {
    due_remove(client);
    /* A holder must get at least a part of the lease. work.c ends the lock itself. */
    if (client->answer == GRANTED && now_us >= client->lease_end_us) client->answer = REFUSED;
    RedisModuleCtx *ctx = RedisModule_GetThreadSafeContext(client->client);
    reply(ctx, client);
    RedisModule_FreeThreadSafeContext(ctx);
    client->is_delivered = true;
    RedisModule_UnblockClient(client->client, NULL);
}

/* Delivers as many replies as one turn should have; the rest follows in the next turn. */
static void deliver_due(void) {
    int64_t now_us = due_first == NULL ? 0 : server_boot_us();
    int delivered = 0;
    for (parked *entry = due_first, *next; entry != NULL; entry = next) {
        next = entry->due_next;
        if (delivered == DUE_ENOUGH) {
            server_alarm(0);
            return;
        }
        if (is_postponed(entry, now_us)) continue;
        deliver(entry, now_us);
        delivered++;
    }
}

/* -- clients told in the current turn */

static parked **told_bucket(uint64_t client) {
    return &told[client % TOLD_BUCKETS];
}

static void told_add(parked *client) {
    parked **bucket = told_bucket(client->place.client);
    client->next = *bucket;
    *bucket = client;
    client->due_next = told_first;
    told_first = client;
}

static void told_forget_all(void) {
    while (told_first != NULL) {
        parked *entry = told_first;
        told_first = entry->due_next;
        *told_bucket(entry->place.client) = NULL;
        RedisModule_Free(entry);
    }
}

/* Does the core close the connection after its replies are sent, as after QUIT? CLIENT LIST then
 * shows the flag c. */
static bool is_closed_after_reply(RedisModuleCtx *ctx, uint64_t client) {
    static const char field[] = " flags=";
    RedisModuleCallReply *reply =
        RedisModule_Call(ctx, "CLIENT", "ccl", "LIST", "ID", (long long)client);
    RedisModuleString *line = reply == NULL ? NULL : RedisModule_CreateStringFromCallReply(reply);
    const char *flags = line == NULL ? NULL : strstr(RedisModule_StringPtrLen(line, NULL), field);
    bool is_flagged =
        flags != NULL && flags[strlen(field) + strcspn(flags + strlen(field), " c")] == 'c';
    if (line != NULL) RedisModule_FreeString(ctx, line);
    if (reply != NULL) RedisModule_FreeCallReply(reply);
    return is_flagged;
}

void blocked_client_gone(RedisModuleCtx *ctx, uint64_t client) {
    if (told_first == NULL) return;
    for (const parked *entry = *told_bucket(client); entry != NULL; entry = entry->next)
        if (entry->place.client == client && !is_closed_after_reply(ctx, client))
            sessions_abandon(entry->hold);
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
    parked *client = RedisModule_GetBlockedClientPrivateData(ctx);
    if (client->is_delivered) return REDISMODULE_OK;
    due_remove(client);
    if (client->answer == WAITING) {
        stats_count(STATS_WAIT_TIMEOUTS);
        queues_give_up(&client->place);
        client->answer = REFUSED;
    } else if (client->answer == GRANTED) {
        sessions_abandon(client->hold);
        client->answer = REFUSED;
    }
    return reply(ctx, client);
}

/* The connection is lost, or the core has sent an error to the client: CLIENT UNBLOCK id ERROR,
 * a cluster redirect, demotion to replica. */
static void on_disconnect(RedisModuleCtx *ctx, RedisModuleBlockedClient *handle) {
    (void)handle;
    parked *client = RedisModule_GetBlockedClientPrivateData(ctx);
    if (client->is_delivered) return; /* on_free() decides */
    due_remove(client);
    if (client->answer == WAITING) queues_give_up(&client->place);
    if (client->answer == GRANTED) sessions_abandon(client->hold);
    client->answer = REFUSED;
}

/* The last call of the core for a blocked client. */
static void on_free(RedisModuleCtx *ctx, void *privdata) {
    parked *client = privdata;
    bool is_dropped = client->is_delivered && RedisModule_BlockedClientDisconnected(ctx);
    bool is_granted = client->is_delivered && client->answer == GRANTED;
    if (is_dropped && is_granted) sessions_abandon(client->hold);
    if (is_dropped) {
        client->next = to_close;
        to_close = client;
        server_alarm(0);
    } else if (is_granted) {
        told_add(client);
    } else {
        RedisModule_Free(client);
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

static parked *make_parked(RedisModuleCtx *ctx, const lock_request *request) {
    parked *made = RedisModule_Calloc(1, sizeof(*made) + request->token.length);
    memcpy(made->token, request->token.bytes, request->token.length);
    made->place.request = *request;
    made->place.request.token.bytes = made->token;
    made->place.client = RedisModule_GetClientId(ctx);
    made->place.parked_us = server_boot_us();
    made->place.end.at_us = made->place.parked_us + request->wait_ms * 1000;
    return made;
}

bool blocked_park_or_reply(RedisModuleCtx *ctx, RedisModuleString *name,
                           const lock_request *request) {
    int db = RedisModule_GetSelectedDb(ctx);
    wait_queue *joined = queues_find(db, name);
    waiter *older = joined == NULL ? NULL : queues_find_token(joined, request->token);
    int64_t length = joined == NULL ? 0 : joined->length;
    if (older == NULL && length >= settings.max_waiters) {
        stats_count(STATS_QUEUE_FULL);
        RedisModule_ReplyWithError(ctx, "QUEUEFULL too many clients wait for this lock "
                                        "(dlock.max-waiters)");
        return false;
    }

    parked *client = make_parked(ctx, request);
    parked_count++;
    idle_turns = 0;
    follow_event_loop(true);
    if (older != NULL) {
        queues_replace(older, &client->place);
        ((parked *)older)->answer = REFUSED;
        due_add((parked *)older);
    } else {
        queues_append(db, name, &client->place);
    }
    RedisModuleString *key = make_key_to_block_on(name);
    client->client =
        RedisModule_BlockClientOnKeys(ctx, on_key_ready, on_unblock, on_free, 0, &key, 1, client);
    RedisModule_SetDisconnectCallback(client->client, on_disconnect);
    RedisModule_FreeString(NULL, key);
    return true;
}

void blocked_grant(waiter *granted, lease_ref hold, int64_t fence, int64_t lease_end_us) {
    parked *client = (parked *)granted;
    client->hold = hold;
    client->fence = fence;
    client->lease_end_us = lease_end_us;
    answer_soon(client, GRANTED);
    stats_add(&stats_wait_us, client->answered_us - granted->parked_us);
}

void blocked_refuse(waiter *refused) {
    answer_soon((parked *)refused, REFUSED);
}

void blocked_send_away(waiter *sent, const char *error) {
    ((parked *)sent)->error = error;
    answer_soon((parked *)sent, SENT_AWAY);
}

void blocked_tidy(RedisModuleCtx *ctx) {
    if (parked_count == 0 && idle_turns >= IDLE_TURNS) follow_event_loop(false);
    while (to_close != NULL) {
        parked *client = to_close;
        to_close = client->next;
        RedisModuleCallReply *reply =
            RedisModule_Call(ctx, "CLIENT", "ccl", "KILL", "ID", (long long)client->place.client);
        if (reply != NULL) RedisModule_FreeCallReply(reply);
        RedisModule_Free(client);
    }
}
