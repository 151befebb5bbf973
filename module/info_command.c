/* SPDX-License-Identifier: BSD-3-Clause */
/* info_command.c - DLOCK.INFO: the holders of a lock, and who waits for it.
 *
 *   free     null, unless it is asked for waiters and some wait for several names
 *   string   the lock of another client, by SET NX PX: its token and the rest of its TTL
 *   lock     a map for each holder, the number of waiters, and the first of them with WAITERS n
 *
 * The command changes nothing, and a lease that is over is not shown as held. */
#include "info_command.h"

#include "args.h"
#include "fences.h"
#include "queues.h"
#include "ties.h"
#include "transition.h"
#include "watches.h"

static void reply_number(RedisModuleCtx *ctx, const char *field, int64_t value) {
    RedisModule_ReplyWithSimpleString(ctx, field);
    RedisModule_ReplyWithLongLong(ctx, value);
}

static void reply_word(RedisModuleCtx *ctx, const char *field, const char *word) {
    RedisModule_ReplyWithSimpleString(ctx, field);
    RedisModule_ReplyWithSimpleString(ctx, word);
}

static void reply_token(RedisModuleCtx *ctx, lock_token token) {
    RedisModule_ReplyWithSimpleString(ctx, "token");
    RedisModule_ReplyWithStringBuffer(ctx, token.bytes, token.length);
}

/* Rounded up: a lease that has not ended is never shown as 0. */
static int64_t ms_left(int64_t left_us) {
    return left_us <= 0 ? 0 : (left_us + 999) / 1000;
}

static void reply_mode(RedisModuleCtx *ctx, bool is_shared) {
    reply_word(ctx, "mode", is_shared ? "shared" : "exclusive");
}

/* The first bytes of the id of a session; empty: no session. Who knows a whole id could act for its
 * process. */
static void reply_via(RedisModuleCtx *ctx, const session *via) {
    bool is_named = via != NULL && via->id_length > 0;
    RedisModule_ReplyWithSimpleString(ctx, "via");
    RedisModule_ReplyWithStringBuffer(ctx, is_named ? via->id : "",
                                      is_named ? SESSION_ID_SHOWN : 0);
}

static void reply_holder(RedisModuleCtx *ctx, const lock_entry *entry) {
    const lock_state *held = &entry->held;
    bool is_string = held->kind == LOCK_KIND_STRING;
    RedisModule_ReplyWithMap(ctx, 7);
    reply_token(ctx, held->token);
    reply_number(ctx, "fence", held->fence);
    reply_number(ctx, "ttl", is_string ? lock_store_key_ttl_ms(entry) : ms_left(held->left_us));
    reply_number(ctx, "lease", held->lease_ms);
    reply_number(ctx, "since", is_string ? 0 : fence_given_us(held->fence, fences_time()) / 1000);
    const session *tied = ties_session(entry->hold);
    reply_number(ctx, "session", tied == NULL ? 0 : (int64_t)tied->client);
    reply_via(ctx, tied);
}

static void reply_queue(RedisModuleCtx *ctx, const wait_queue *waiting, int64_t shown_max,
                        int64_t now_us) {
    size_t count = 0;
    waiter **shown = NULL;
    if (waiting != NULL) {
        if (shown_max > waiting->length) shown_max = waiting->length;
        shown = RedisModule_Alloc(sizeof(shown[0]) * (size_t)shown_max);
        count = queues_list(waiting, (size_t)shown_max, shown);
    }
    RedisModule_ReplyWithSimpleString(ctx, "queue");
    RedisModule_ReplyWithArray(ctx, (long)count);
    for (size_t i = 0; i < count; i++) {
        const waiter *listed = shown[i];
        RedisModule_ReplyWithMap(ctx, 7);
        reply_token(ctx, listed->request.token);
        reply_mode(ctx, listed->request.is_shared);
        reply_number(ctx, "names", listed->place_count);
        reply_number(ctx, "waited", (now_us - listed->parked_us) / 1000);
        reply_number(ctx, "left", ms_left(listed->end.key - now_us));
        reply_number(ctx, "client", (int64_t)listed->client);
        reply_via(ctx, listed->request.via);
    }
    RedisModule_Free(shown);
}

/* Counts the holders whose lease has not ended, and shows them if is_shown. */
static long visit_holders(RedisModuleCtx *ctx, lock_entry *entry, bool is_shown) {
    long count = 0;
    lock_cursor cursor;
    lock_cursor_start(&cursor, entry->value);
    while (lock_store_next(entry, &cursor)) {
        if (transition_is_over(entry)) continue;
        if (is_shown) reply_holder(ctx, entry);
        count++;
    }
    lock_cursor_stop(&cursor);
    return count;
}

static void reply_lock(RedisModuleCtx *ctx, lock_entry *entry, long holder_count,
                       int64_t waiters_shown) {
    const wait_queue *waiting = queues_find(entry->db, entry->name);
    bool is_string = entry->is_held && entry->value == NULL;
    RedisModule_ReplyWithMap(ctx, waiters_shown > 0 ? 5 : 4);
    reply_word(ctx, "kind", is_string ? "string" : "lock");
    reply_mode(ctx, entry->is_held && entry->held.is_shared);
    RedisModule_ReplyWithSimpleString(ctx, "holders");
    RedisModule_ReplyWithArray(ctx, holder_count);
    if (is_string)
        reply_holder(ctx, entry);
    else if (entry->value != NULL)
        visit_holders(ctx, entry, true);
    reply_number(ctx, "waiters", waiting == NULL ? 0 : waiting->length);
    if (waiters_shown > 0) reply_queue(ctx, waiting, waiters_shown, entry->now_us);
}

/* DLOCK.INFO key [WAITERS n] */
int cmd_info(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    int64_t waiters_shown;
    lock_entry entry;
    if (argc < 2) return RedisModule_WrongArity(ctx); /* a file is loaded without this check */
    if (!args_parse_info_or_reply(ctx, argv + 2, argc - 2, &waiters_shown)) return REDISMODULE_OK;
    if (!lock_store_open(&entry, ctx, argv[1], LOCK_READ))
        return RedisModule_ReplyWithError(ctx, REDISMODULE_ERRORMSG_WRONGTYPE);
    long holder_count = entry.value != NULL ? visit_holders(ctx, &entry, false) : entry.is_held;
    /* A request for several names may wait for a free lock: it waits for another of its names. */
    bool is_waited_for = waiters_shown > 0 && queues_find(entry.db, entry.name) != NULL;
    if (holder_count > 0 || is_waited_for)
        reply_lock(ctx, &entry, holder_count, waiters_shown);
    else
        RedisModule_ReplyWithNull(ctx);
    watches_note_read(entry.db, entry.name);
    lock_store_close(&entry);
    return REDISMODULE_OK;
}
