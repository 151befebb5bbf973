/* SPDX-License-Identifier: BSD-3-Clause */
/* losses.c - see losses.h.
 *
 * The core tells the module that a key has lost its value, but not by which command, and within
 * that command the module must not look. So the look comes later: a key that is there again was
 * overwritten. Only of an eviction is the module told, right after the loss. */
#include "losses.h"

#include "server.h"
#include <string.h>

typedef struct loss {
    event event; /* must be the first member */
    list_node in_recent;
    int db;
    RedisModuleString *name;
    const char *why; /* NULL: not known yet */
    size_t token_length;
    char token[];
} loss;

static list recent; /* the unexplained losses of all sessions, in their order */

static void write_loss(RedisModuleCtx *ctx, const event *event, int64_t arrived_us) {
    (void)arrived_us;
    const loss *written = (const loss *)event;
    RedisModule_ReplyWithArray(ctx, 5);
    RedisModule_ReplyWithLongLong(ctx, event->number);
    RedisModule_ReplyWithSimpleString(ctx, "lost");
    RedisModule_ReplyWithString(ctx, written->name);
    RedisModule_ReplyWithStringBuffer(ctx, written->token, written->token_length);
    RedisModule_ReplyWithSimpleString(ctx, written->why);
}

static void forget_loss(event *event) {
    RedisModule_FreeString(NULL, ((loss *)event)->name);
    RedisModule_Free(event);
}

static const event_kind loss_kind = {.write = write_loss, .forget = forget_loss};

void losses_add(session *session, int db, RedisModuleString *name, lock_token token,
                const char *why) {
    loss *made = RedisModule_Calloc(1, sizeof(*made) + token.length);
    made->event.kind = &loss_kind;
    made->db = db;
    made->name = RedisModule_CreateStringFromString(NULL, name);
    made->why = why;
    made->token_length = token.length;
    if (token.length > 0) memcpy(made->token, token.bytes, token.length);
    if (why != NULL) {
        mailbox_add(session, &made->event);
        return;
    }
    list_append(&session->unexplained, &made->event.node);
    list_append(&recent, &made->in_recent);
}

void losses_evicted(int db, const RedisModuleString *name) {
    for (list_node *node = recent.last; node != NULL; node = node->prev) {
        loss *each = LIST_OBJECT(node, loss, in_recent);
        if (each->db != db || RedisModule_StringCompare((RedisModuleString *)name, each->name) != 0)
            return;
        each->why = "evicted";
    }
}

/* The first unexplained loss of the session, which is in no list any more; or NULL. */
static loss *take_first(session *session) {
    loss *first = LIST_OBJECT(session->unexplained.first, loss, event.node);
    if (first == NULL) return NULL;
    list_remove(&session->unexplained, &first->event.node);
    list_remove(&recent, &first->in_recent);
    return first;
}

static const char *explain(RedisModuleCtx *ctx, const loss *loss) {
    RedisModule_SelectDb(ctx, loss->db);
    if (server_is_cluster() && server_may_write(ctx, loss->name) == SERVER_NOT_OURS) return "moved";
    RedisModuleKey *key = RedisModule_OpenKey(ctx, loss->name, REDISMODULE_READ);
    bool is_there = key != NULL && RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_EMPTY;
    if (key != NULL) RedisModule_CloseKey(key);
    return is_there ? "overwritten" : "deleted";
}

bool losses_explain(RedisModuleCtx *ctx, session *session) {
    loss *first = take_first(session);
    if (first == NULL) return false;
    if (first->why == NULL) first->why = explain(ctx, first);
    mailbox_add(session, &first->event);
    return true;
}

bool losses_clear(session *session) {
    loss *first = take_first(session);
    if (first != NULL) forget_loss(&first->event);
    return first != NULL;
}
