/* SPDX-License-Identifier: BSD-3-Clause */
/* mailbox.c - see mailbox.h.
 *
 * The module unblocks the client of a parked call at once, and the core asks for the reply later,
 * before the server sleeps: on_reply() then writes all events of the turn. If the connection is
 * gone by then, the core does not ask. CLIENT UNBLOCK and a demotion answer the client without us;
 * the call is then freed when the module unblocks it, at the latest when a third of the timeout is
 * over. What becomes of a reply does not matter: an event stays until it is acknowledged.
 *
 * CLIENT UNBLOCK between the unblocking by the module and the reply loses the reply on some
 * servers. The module then closes the connection, so that its client does not wait for ever. */
#include "mailbox.h"

#include "settings.h"
#include "stats.h"

enum { EVENTS_PER_REPLY = 1000 };

/* The core needs some ten microseconds to unblock a client. */
enum { ANSWERED_ENOUGH = 128 };

typedef struct session_call {
    list_node node; /* in the list of parked calls */
    session *owner; /* NULL: another call has taken its place, or the session has ended */
    RedisModuleBlockedClient *blocked;
    uint64_t client;
    int64_t born;
    int64_t arrived_us;
    bool is_answered;
    bool is_dropped; /* the core has unblocked or lost the client after the answer */
    bool has_ended;  /* the session */
} session_call;

static list calls; /* parked */
static int64_t count;
static int64_t answered_count; /* of calls that the core has not unblocked yet */

void mailbox_add(session *session, event *added) {
    added->number = ++session->last_number;
    list_append(&session->mailbox, &added->node);
    session->event_count++;
    count++;
    stats_count(STATS_EVENTS);
    mailbox_answer(session);
}

void mailbox_remove(session *session, event *removed) {
    if (session->untaken == &removed->node) session->untaken = removed->node.prev;
    list_remove(&session->mailbox, &removed->node);
    removed->number = 0;
    session->event_count--;
    count--;
}

void mailbox_acknowledge(session *session, int64_t number) {
    if (number > session->written) number = session->written;
    for (const event *first; (first = LIST_OBJECT(session->mailbox.first, event, node)) != NULL;) {
        if (first->number > number) return;
        mailbox_forget_first(session);
    }
}

bool mailbox_forget_first(session *session) {
    event *first = LIST_OBJECT(session->mailbox.first, event, node);
    if (first == NULL) return false;
    mailbox_remove(session, first);
    first->kind->forget(first);
    return true;
}

void mailbox_write(RedisModuleCtx *ctx, session *session, int64_t arrived_us) {
    RedisModule_ReplyWithArray(ctx, 2);
    RedisModule_ReplyWithLongLong(ctx, session->born);
    RedisModule_ReplyWithArray(ctx, REDISMODULE_POSTPONED_LEN);
    long written = 0;
    for (list_node *node = session->mailbox.first; node != NULL; node = node->next) {
        const event *each = LIST_OBJECT(node, event, node);
        if (written == EVENTS_PER_REPLY) break;
        each->kind->write(ctx, each, arrived_us);
        if (each->number > session->written) session->written = each->number;
        written++;
    }
    RedisModule_ReplySetArrayLength(ctx, written);
}

/* -- the parked call */

static void write_nothing(RedisModuleCtx *ctx, int64_t born) {
    RedisModule_ReplyWithArray(ctx, 2);
    RedisModule_ReplyWithLongLong(ctx, born);
    RedisModule_ReplyWithEmptyArray(ctx);
}

static int on_reply(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    session_call *call = RedisModule_GetBlockedClientPrivateData(ctx);
    if (call->has_ended) return RedisModule_ReplyWithError(ctx, SESSION_NONE);
    if (call->owner == NULL)
        write_nothing(ctx, call->born);
    else
        mailbox_write(ctx, call->owner, call->arrived_us);
    return REDISMODULE_OK;
}

/* CLIENT UNBLOCK, before the module has answered the call. An older call of the client may still
 * be in the list, for another session: CLIENT UNBLOCK has ended that one, too. */
static int on_timeout(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    uint64_t client = RedisModule_GetClientId(ctx);
    const session_call *call = LIST_OBJECT(calls.last, session_call, node);
    while (call != NULL && call->client != client)
        call = LIST_OBJECT(call->node.prev, session_call, node);
    write_nothing(ctx, call == NULL ? 0 : call->born);
    return REDISMODULE_OK;
}

/* The core knows the call only after the answer. */
static void on_disconnect(RedisModuleCtx *ctx, RedisModuleBlockedClient *handle) {
    (void)handle;
    session_call *call = RedisModule_GetBlockedClientPrivateData(ctx);
    if (call != NULL) call->is_dropped = true;
}

static void on_free(RedisModuleCtx *ctx, void *privdata) {
    session_call *call = privdata;
    if (call->is_dropped) RedisModule_DeauthenticateAndCloseClient(ctx, call->client);
    if (call->owner != NULL) call->owner->call = NULL;
    answered_count--;
    list_remove(&calls, &call->node);
    RedisModule_Free(call);
}

static void answer(session_call *call) {
    if (call->is_answered) return;
    call->is_answered = true;
    answered_count++;
    RedisModule_UnblockClient(call->blocked, call);
}

bool mailbox_park(RedisModuleCtx *ctx, session *session, int64_t arrived_us) {
    session_call *made = RedisModule_Calloc(1, sizeof(*made));
    made->owner = session;
    made->born = session->born;
    made->arrived_us = arrived_us;
    made->client = RedisModule_GetClientId(ctx);
    made->blocked = RedisModule_BlockClient(ctx, on_reply, on_timeout, on_free, 0);
    if (made->blocked == NULL) {
        RedisModule_Free(made);
        return false;
    }
    RedisModule_SetDisconnectCallback(made->blocked, on_disconnect);
    list_append(&calls, &made->node);
    session->call = made;
    return true;
}

void mailbox_answer(session *session) {
    if (session->call != NULL) answer(session->call);
}

void mailbox_supersede(session *session) {
    session_call *older = session->call;
    if (older == NULL) return;
    session->call = NULL;
    older->owner = NULL;
    answer(older);
}

void mailbox_end(session *session) {
    if (session->call != NULL) session->call->has_ended = true;
    mailbox_supersede(session);
}

bool mailbox_has_answered_enough(void) {
    return answered_count >= ANSWERED_ENOUGH;
}

int64_t mailbox_count(void) {
    return count;
}

bool mailbox_is_full(const session *session) {
    return session->event_count >= settings.max_events;
}
