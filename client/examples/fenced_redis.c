/* SPDX-License-Identifier: BSD-3-Clause */
/* fenced_redis.c - a hash in Redis with a field for the fence.
 *
 *   cc -o fenced_redis fenced_writer.c fenced_redis.c $(pkg-config --cflags --libs dlock hiredis)
 *   ./fenced_redis redis://127.0.0.1:6379 127.0.0.1:6379/notes "some text"
 *
 * A script looks and writes; nothing runs in between. The data need not be on the server that has
 * the locks. Fence and text are in one key, so that they are on one server of a cluster, and are
 * lost together if they are lost. */
#include "fenced_store.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>

/* A fence fits into a number of Lua until the year 2255. */
#define CHECK                                                                                      \
    "if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1])"                   \
    " then return 0 end "
#define WRITE                                                                                      \
    "redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'text', ARGV[2]) "                              \
    "return 1"

static store_answer explain(const char *where, const redisContext *redis, const redisReply *reply) {
    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER)
        return reply->integer == 1 ? STORE_WRITTEN : STORE_REFUSED;
    const char *why = reply != NULL ? reply->str : redis != NULL ? redis->errstr : "no memory";
    fprintf(stderr, "%s: %s\n", where, why);
    return STORE_FAILED;
}

store_answer store_write(const char *where, const char *text, uint64_t fence, bool is_fenced) {
    const char *script = is_fenced ? CHECK WRITE : WRITE;
    char host[256], key[256];
    int port;
    if (sscanf(where, "%255[^:]:%d/%255s", host, &port, key) != 3) {
        fprintf(stderr, "%s: a store in Redis is HOST:PORT/KEY\n", where);
        return STORE_FAILED;
    }
    redisContext *redis = redisConnect(host, port);
    redisReply *reply = NULL;
    if (redis != NULL && redis->err == 0)
        reply = redisCommand(redis, "EVAL %s 1 %s %" PRIu64 " %s", script, key, fence, text);
    store_answer answer = explain(where, redis, reply);
    if (reply != NULL) freeReplyObject(reply);
    if (redis != NULL) redisFree(redis);
    return answer;
}
