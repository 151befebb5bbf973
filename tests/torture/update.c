/* SPDX-License-Identifier: BSD-3-Clause */
/* update.c - read, modify, write on a value in Redis.
 *
 *   read    GET, dlock_guarded(GET), or the script that also writes the fence: from then on no
 *           earlier holder can write
 *   modify  the caller's work; a pause of the process that falls in here outlives the lease
 *   write   SET, the script that compares the fence, or dlock_guarded(SET)
 *
 * One update for each acquisition: a write whose reply never came can still arrive while the lock
 * is held, and would then undo a second update by the same token. */
#include "update.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { TIMEOUT_MS = 400, TRIES = 2, ID_TEXT = 24, THREAD_BITS = 8, COUNT_BITS = 32 };

static const char ENTER[] =
    "if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then return -1 end "
    "redis.call('HSET', KEYS[1], 'fence', ARGV[1]) "
    "return redis.call('HGET', KEYS[1], 'value') or '0'";
static const char WRITE[] =
    "if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then return -1 end "
    "redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2]) return 1";

void store_init(store *store, const char *host, int port, unsigned process, unsigned thread) {
    store->host = host;
    store->port = port;
    store->connection = NULL;
    store->last_id = (((uint64_t)process << THREAD_BITS) | thread) << COUNT_BITS;
}

void store_close(store *store) {
    if (store->connection != NULL) redisFree(store->connection);
    store->connection = NULL;
}

static bool open_store(store *store) {
    if (store->connection != NULL) return true;
    struct timeval timeout = {.tv_usec = TIMEOUT_MS * 1000};
    store->connection = redisConnectWithTimeout(store->host, store->port, timeout);
    if (store->connection != NULL && store->connection->err == 0) {
        redisSetTimeout(store->connection, timeout);
        return true;
    }
    store_close(store);
    return false;
}

/* NULL: no reply. Such a connection is closed, as the reply may come later. */
static redisReply *call(store *store, int argc, const char **argv) {
    if (!open_store(store)) return NULL;
    redisReply *reply = redisCommandArgv(store->connection, argc, argv, NULL);
    if (reply == NULL) store_close(store);
    return reply;
}

static update_result guarded_read(const update *update, uint64_t *id) {
    char text[ID_TEXT];
    dlock_reply reply;
    dlock_reply_init(&reply, text, sizeof(text));
    const char *get[] = {"GET", update->data_key};
    if (dlock_guarded(update->lock, 2, get, NULL, &reply) != DLOCK_OK) return UPDATE_NOT_BEGUN;
    *id = reply.kind == DLOCK_REPLY_TEXT ? strtoull(text, NULL, 10) : 0;
    return UPDATE_DONE;
}

update_result update_guarded(dlock_lock *lock, size_t argc, const char **argv) {
    switch (dlock_guarded(lock, argc, argv, NULL, NULL)) {
    case DLOCK_OK:
        return UPDATE_DONE;
    case DLOCK_LOST:
    case DLOCK_UNREACHABLE:
    case DLOCK_REFUSED:
        return UPDATE_REFUSED;
    default:
        return UPDATE_IN_DOUBT;
    }
}

static update_result guarded_write(const update *update, const char *id) {
    const char *set[] = {"SET", update->data_key, id};
    return update_guarded(update->lock, 3, set);
}

static update_result read_value(store *store, const update *update, uint64_t *id) {
    if (update->way == UPDATE_GUARD && !update->is_raw) return guarded_read(update, id);
    char fence[ID_TEXT];
    snprintf(fence, sizeof(fence), "%" PRIu64, update->fence);
    const char *get[] = {"GET", update->data_key};
    const char *enter[] = {"EVAL", ENTER, "1", update->data_key, fence};
    redisReply *reply = update->way == UPDATE_FENCE ? call(store, 5, enter) : call(store, 2, get);
    update_result result = UPDATE_NOT_BEGUN;
    if (reply != NULL && (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL)) {
        *id = reply->type == REDIS_REPLY_STRING ? strtoull(reply->str, NULL, 10) : 0;
        result = UPDATE_DONE;
    }
    if (reply != NULL) freeReplyObject(reply);
    return result;
}

static update_result judge(const redisReply *reply) {
    if (reply == NULL) return UPDATE_IN_DOUBT;
    if (reply->type == REDIS_REPLY_STATUS) return UPDATE_DONE;
    if (reply->type == REDIS_REPLY_INTEGER)
        return reply->integer == 1 ? UPDATE_DONE : UPDATE_REFUSED;
    return UPDATE_REFUSED; /* NOTHELD, or a server that loads, is a replica or is out of memory */
}

update_result store_write(store *store, int argc, const char **argv) {
    redisReply *reply = call(store, argc, argv);
    update_result result = judge(reply);
    if (reply != NULL) freeReplyObject(reply);
    return result;
}

bool store_get(store *store, const char *key, char *value, size_t size) {
    const char *get[] = {"GET", key};
    redisReply *reply = call(store, 2, get);
    bool is_read =
        reply != NULL && (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL);
    if (is_read) snprintf(value, size, "%s", reply->type == REDIS_REPLY_STRING ? reply->str : "");
    if (reply != NULL) freeReplyObject(reply);
    return is_read;
}

static update_result write_value(store *store, const update *update, uint64_t id) {
    char text[ID_TEXT], fence[ID_TEXT];
    snprintf(text, sizeof(text), "%" PRIu64, id);
    snprintf(fence, sizeof(fence), "%" PRIu64, update->fence);
    const char *set[] = {"SET", update->data_key, text};
    const char *write[] = {"EVAL", WRITE, "1", update->data_key, fence, text};
    const char *token = update->is_raw ? dlock_token(update->lock) : "";
    const char *guard[] = {"DLOCK.GUARD", update->lock_key, token, "SET", update->data_key, text};
    if (update->way == UPDATE_GUARD && !update->is_raw) return guarded_write(update, text);
    return update->way == UPDATE_GUARD   ? store_write(store, 6, guard)
           : update->way == UPDATE_FENCE ? store_write(store, 6, write)
                                         : store_write(store, 3, set);
}

void update_work(int64_t work_ns) {
    struct timespec pause = {.tv_sec = work_ns / 1000000000, .tv_nsec = work_ns % 1000000000};
    if (work_ns > 0) nanosleep(&pause, NULL);
}

/* An update in doubt is sent again with the same id: done twice in a row it does no harm. A refusal
 * of the repetition says nothing about the first try, so the doubt stays. */
static update_result write_surely(store *store, const update *update, uint64_t id) {
    update_result result = write_value(store, update, id);
    for (int i = 1; i < TRIES && result == UPDATE_IN_DOUBT; i++) {
        if (update->way == UPDATE_BARE && !update->is_held(update->arg)) break;
        if (write_value(store, update, id) == UPDATE_DONE) result = UPDATE_DONE;
    }
    return result;
}

update_result store_update(store *store, const update *update) {
    uint64_t before = 0;
    if (read_value(store, update, &before) != UPDATE_DONE) return UPDATE_NOT_BEGUN;
    if (!update->is_raw && !update->is_held(update->arg)) return UPDATE_NOT_BEGUN;
    update_work(update->work_ns);
    uint64_t id = ++store->last_id;
    history_add(RECORD_WRITE, update->thread, update->name, 0, (int64_t)id, (int64_t)before);
    update_result result = write_surely(store, update, id);
    history_add(RECORD_WRITTEN, update->thread, update->name, result, (int64_t)id, 0);
    return result;
}
