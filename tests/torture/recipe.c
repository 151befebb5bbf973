/* SPDX-License-Identifier: BSD-3-Clause */
/* recipe.c - a worker for comparison: the lock that most programs have, SET NX PX and a script.
 *
 *   recipe url=unused history=FILE data_port=PORT [threads=8] [names=4] [lease_ms=600] ...
 *
 *   acquire  SET key token NX PX lease; try again after 10 to 20 ms until the wait is over
 *   hold     read, modify, write on the value that the lock protects (update.h)
 *   release  the script that deletes the key if its value is still our token
 *
 * The worker is as careful as such a program can be: it counts the lease from before its request,
 * and does not begin a write after that. The words and the history are those of worker.c. */
#include "settings.h"
#include "visit.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { MS_NS = 1000000, WAIT_MS = 1000, PAUSE_MS = 10, TOKEN_SIZE = 48 };

static const char RELEASE[] =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

typedef struct user {
    const settings *settings;
    unsigned thread, count;
    unsigned dice;
    redisContext *connection;
    store store;
    int64_t until_ns; /* of the lock that is held: the end of its lease */
} user;

static void nap(int64_t ns) {
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

static unsigned roll(user *user, unsigned sides) {
    return (unsigned)rand_r(&user->dice) % sides;
}

/* NULL: no reply. */
static redisReply *call(user *user, int argc, const char **argv) {
    const settings *settings = user->settings;
    struct timeval timeout = {.tv_usec = (suseconds_t)settings->io_timeout_ms * 1000};
    if (user->connection == NULL) {
        user->connection =
            redisConnectWithTimeout(settings->data_host, settings->data_port, timeout);
        if (user->connection == NULL) return NULL;
        redisSetTimeout(user->connection, timeout);
    }
    redisReply *reply =
        user->connection->err != 0 ? NULL : redisCommandArgv(user->connection, argc, argv, NULL);
    if (reply == NULL) {
        redisFree(user->connection);
        user->connection = NULL;
    }
    return reply;
}

static bool try_once(user *user, const char *key, const char *token) {
    char lease[16];
    snprintf(lease, sizeof(lease), "%u", user->settings->lease_ms);
    const char *set[] = {"SET", key, token, "NX", "PX", lease};
    int64_t sent_ns = now_ns();
    redisReply *reply = call(user, 6, set);
    bool is_granted = reply != NULL && reply->type == REDIS_REPLY_STATUS;
    if (reply != NULL) freeReplyObject(reply);
    user->until_ns = sent_ns + (int64_t)user->settings->lease_ms * MS_NS;
    return is_granted && now_ns() < user->until_ns;
}

static void release(user *user, uint32_t name, const char *key, const char *token) {
    const char *eval[] = {"EVAL", RELEASE, "1", key, token};
    history_add(RECORD_RELEASE, user->thread, name, 0, 0, 0);
    redisReply *reply = call(user, 5, eval);
    if (reply != NULL) freeReplyObject(reply);
    history_add(RECORD_RELEASED, user->thread, name, 0, 0, 0);
}

static bool is_held(void *arg) {
    const user *user = arg;
    return now_ns() < user->until_ns;
}

static void hold(user *user, uint32_t name, const char *key) {
    char data_key[KEY_SIZE + sizeof(":data")];
    snprintf(data_key, sizeof(data_key), "%s:data", key);
    const settings *settings = user->settings;
    update update = {.way = UPDATE_BARE,
                     .thread = user->thread,
                     .name = name,
                     .data_key = data_key,
                     .is_held = is_held,
                     .arg = user};
    if (settings->work_us > 0) update.work_ns = roll(user, (unsigned)settings->work_us) * 1000;
    if (settings->pause_every > 0 && roll(user, (unsigned)settings->pause_every) == 0)
        update.work_ns = (int64_t)(settings->lease_ms + roll(user, settings->lease_ms)) * MS_NS;
    store_update(&user->store, &update);
}

static void visit(user *user) {
    unsigned number = roll(user, user->settings->names);
    uint32_t name = (uint32_t)'g' << 16 | number;
    char key[KEY_SIZE], token[TOKEN_SIZE];
    visit_key(key, 'g', number);
    snprintf(token, sizeof(token), "%d:%u:%u", (int)getpid(), user->thread, user->count++);
    history_add(RECORD_ACQUIRE, user->thread, name, 0, WAIT_MS, 0);
    int64_t deadline = now_ns() + (int64_t)WAIT_MS * MS_NS;
    bool is_granted;
    while (!(is_granted = try_once(user, key, token)) && now_ns() < deadline && !worker_is_over)
        nap((PAUSE_MS + roll(user, PAUSE_MS)) * MS_NS);
    history_add(RECORD_ACQUIRED, user->thread, name, is_granted ? DLOCK_OK : DLOCK_TIMEOUT, 0,
                is_granted ? user->until_ns : 0);
    if (!is_granted) return;
    hold(user, name, key);
    release(user, name, key, token);
}

static void *work(void *arg) {
    user *user = arg;
    while (!worker_is_over)
        visit(user);
    if (user->connection != NULL) redisFree(user->connection);
    store_close(&user->store);
    history_look();
    return NULL;
}

int main(int argc, char **argv) {
    static user users[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    settings settings;
    worker_begin(&settings, argc, argv, THREADS_MAX);
    for (unsigned i = 0; i < settings.threads; i++) {
        users[i] = (user){.settings = &settings,
                          .thread = i,
                          .dice = (unsigned)settings.seed * 1009 + settings.process * 31 + i};
        store_init(&users[i].store, settings.data_host, settings.data_port, settings.process, i);
        pthread_create(&threads[i], NULL, work, &users[i]);
    }
    for (unsigned i = 0; i < settings.threads; i++)
        pthread_join(threads[i], NULL);
    history_add(RECORD_END, 0, 0, 0, 0, 0);
    history_look();
    history_add(RECORD_FREED, 0, 0, 0, 0, 0);
    return 0;
}
