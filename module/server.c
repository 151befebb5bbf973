/* SPDX-License-Identifier: BSD-3-Clause */
/* server.c - see server.h.
 *
 * The alarm. Timers of the server follow the wall clock: if the clock is set back by an hour,
 * each timer is an hour late. So the alarm is a timerfd on CLOCK_BOOTTIME in the server's event
 * loop:
 *
 *   timerfd is readable -> a timer of 0 ms -> the work -> the timerfd is set again
 *
 * The timer is needed because only a timer callback has a context that can write to the keyspace
 * and to the replication stream. The callback runs at the end of the same turn of the event
 * loop. If the wall clock is set back within the turn, the timer is late: so the timerfd is set
 * again at once, to restart a late timer.
 *
 * The probe. server_may_write() calls DLOCK.APPLY on the lock, with the rules for scripts: Redis
 * checks replicas, disk, role and slot before running the command, which then does nothing. The
 * probe uses a command of the module, because an operator may have renamed any other command. */
#include "server.h"

#include "cluster_slot.h"
#include "replicate.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { TIMER_LATE_US = 10000 };

server_functions server_optional;
static RedisModuleCtx *context;
static server_work_fn work_fn;
static int alarm_fd = -1;
static int64_t alarm_us = SERVER_NEVER;
static bool is_timer_set, is_working;
static RedisModuleTimerID timer;
static bool is_cluster, is_probing, may_evict;
static int64_t max_parked;

static void set_alarm(int64_t due_us) {
    alarm_us = due_us;
    struct itimerspec spec = {.it_value = {0, 0}}; /* all 0: off */
    if (due_us != SERVER_NEVER) {
        if (due_us < 1) due_us = 1;
        spec.it_value.tv_sec = (time_t)(due_us / 1000000);
        spec.it_value.tv_nsec = (long)(due_us % 1000000) * 1000;
    }
    timerfd_settime(alarm_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void on_timer(RedisModuleCtx *ctx, void *data) {
    (void)data;
    is_timer_set = false;
    is_working = true;
    int64_t due_us = work_fn(ctx);
    is_working = false;
    set_alarm(due_us);
}

static void on_alarm(int fd, void *data, int mask) {
    (void)data, (void)mask;
    uint64_t count;
    if (read(fd, &count, sizeof(count)) < 0 && errno == EAGAIN) return; /* set again */
    if (is_timer_set) RedisModule_StopTimer(context, timer, NULL);
    is_timer_set = true;
    timer = RedisModule_CreateTimer(context, 0, on_timer, NULL);
    set_alarm(server_boot_us() + TIMER_LATE_US);
}

bool server_init(RedisModuleCtx *ctx, server_work_fn work) {
    RedisModule_GetApi("RedisModule_SetCommandACLCategories", &server_optional.set_acl_categories);
    RedisModule_GetApi("RedisModule_GetClientNameById", &server_optional.client_name);
    work_fn = work;
    is_cluster = (RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_CLUSTER) != 0;
    context = RedisModule_GetDetachedThreadSafeContext(ctx);
    alarm_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (context != NULL && alarm_fd >= 0 &&
        RedisModule_EventLoopAdd(alarm_fd, REDISMODULE_EVENTLOOP_READABLE, on_alarm, NULL) ==
            REDISMODULE_OK)
        return true;
    RedisModule_Log(ctx, "warning", "no timer for leases: %s", strerror(errno));
    return false;
}

void server_alarm(int64_t due_us) {
    /* The work, scheduled or running, handles everything due and sets the alarm at the end. */
    if (is_timer_set || is_working || due_us >= alarm_us) return;
    set_alarm(due_us);
}

RedisModuleCtx *server_context(void) {
    return context;
}

bool server_is_cluster(void) {
    return is_cluster;
}

bool server_decides(RedisModuleCtx *ctx) {
    int others = REDISMODULE_CTX_FLAGS_SLAVE | REDISMODULE_CTX_FLAGS_LOADING |
                 REDISMODULE_CTX_FLAGS_REPLICATED;
    return (RedisModule_GetContextFlags(ctx) & others) == 0;
}

bool server_is_replaying(RedisModuleCtx *ctx) {
    int replayed = REDISMODULE_CTX_FLAGS_REPLICATED | REDISMODULE_CTX_FLAGS_LOADING;
    return (RedisModule_GetContextFlags(ctx) & replayed) != 0;
}

bool server_is_importing(RedisModuleCtx *ctx) {
    int others = REDISMODULE_CTX_FLAGS_SLAVE | REDISMODULE_CTX_FLAGS_LOADING;
    int replicated = REDISMODULE_CTX_FLAGS_REPLICATED;
    return is_cluster && (RedisModule_GetContextFlags(ctx) & (others | replicated)) == replicated;
}

/* Why the server refuses the probe, as an errno; 0: it does not. E turns errors into replies.
 * Without E, Valkey 9.1 crashes when the server refuses the probe. */
static int probe(RedisModuleCtx *ctx, const char *format, RedisModuleString *name) {
    errno = 0;
    is_probing = true;
    RedisModuleCallReply *reply =
        RedisModule_Call(ctx, REPLICATE_COMMAND, format, name, "-", "1", "1");
    is_probing = false;
    int reason = errno == 0 ? EIO : errno;
    bool is_allowed = reply != NULL && RedisModule_CallReplyType(reply) != REDISMODULE_REPLY_ERROR;
    if (reply != NULL) RedisModule_FreeCallReply(reply);
    return is_allowed ? 0 : reason;
}

server_write server_may_write(RedisModuleCtx *ctx, RedisModuleString *name) {
    int reason = probe(ctx, "SEsccc", name);
    if (reason == 0) return SERVER_MAY_WRITE;
    return reason == EPERM ? SERVER_NOT_OURS : SERVER_WRITE_LATER;
}

/* Without the rules for scripts (S), Redis looks at the slot only, and not at replicas and disk. */
bool server_has_slot(int db, RedisModuleString *name) {
    if (!is_cluster || !server_decides(context)) return true;
    RedisModule_SelectDb(context, db); /* Redis looks there for the key if the slot is moving on */
    bool is_here = probe(context, "Esccc", name) == 0;
    RedisModule_SelectDb(context, 0);
    return is_here;
}

server_write server_may_write_all(RedisModuleCtx *ctx, RedisModuleString **names, int count) {
    server_write permission = SERVER_MAY_WRITE;
    for (int i = 0; i < count && permission == SERVER_MAY_WRITE; i++)
        permission = server_may_write(ctx, names[i]);
    return permission;
}

/* Redis refuses a command with several keys while the slot moves, unless all of them are here. A
 * command with one key is not refused if the client was sent here (ASKING), and would make the key
 * beside the one at the old node. So all keys are asked about in one command. */
bool server_are_here(RedisModuleCtx *ctx, RedisModuleString **keys, int count) {
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "EXISTS", "Ev", keys, (size_t)count);
    bool are_here = reply != NULL && RedisModule_CallReplyType(reply) != REDISMODULE_REPLY_ERROR;
    if (reply != NULL) RedisModule_FreeCallReply(reply);
    return are_here;
}

static uint16_t slot_of(RedisModuleString *name) {
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(name, &length);
    return cluster_slot(bytes, length);
}

bool server_share_slot(RedisModuleString **names, int count) {
    for (int i = 1; i < count; i++)
        if (slot_of(names[i]) != slot_of(names[0])) return false;
    return true;
}

/* A module may have authenticated the client as a user of its own, who is not in the ACL. */
RedisModuleString *server_user(RedisModuleCtx *ctx) {
    RedisModuleString *name = RedisModule_GetClientUserNameById(ctx, RedisModule_GetClientId(ctx));
    RedisModuleUser *user = name == NULL ? NULL : RedisModule_GetModuleUserFromUserName(name);
    if (user != NULL) {
        RedisModule_FreeModuleUser(user);
        return name;
    }
    if (name != NULL) RedisModule_FreeString(ctx, name);
    return NULL;
}

/* RM_GetCurrentUserName() crashes if there is no user. RM_Call() as the user of the client finds
 * out: it looks for the user first, and only then for the command, which does not exist. */
static bool has_user(RedisModuleCtx *ctx) {
    errno = 0;
    RedisModuleCallReply *reply = RedisModule_Call(ctx, "dlock.nothing", "EC");
    bool is_there = errno != ENOTSUP;
    if (reply != NULL) RedisModule_FreeCallReply(reply);
    return is_there;
}

/* The client of a script is not among those that are found by their id. */
RedisModuleString *server_caller(RedisModuleCtx *ctx) {
    RedisModuleString *name = RedisModule_GetClientUserNameById(ctx, RedisModule_GetClientId(ctx));
    if (name != NULL || !has_user(ctx)) return name;
    return RedisModule_GetCurrentUserName(ctx);
}

/* A selector of the ACL may allow the command for some keys only, so both are checked together.
 * Redis also checks the number of arguments. */
static bool may_run(RedisModuleString *name, RedisModuleString *command, RedisModuleString *key) {
    enum { WORDS = 3 };
    RedisModuleUser *user = RedisModule_GetModuleUserFromUserName(name);
    if (user == NULL) return false;
    RedisModuleString *argv[WORDS] = {command, key, key};
    bool is_allowed = RedisModule_ACLCheckCommandPermissions(user, argv, WORDS) == REDISMODULE_OK;
    RedisModule_FreeModuleUser(user);
    return is_allowed;
}

static RedisModuleString *make_word(const char *word) {
    return RedisModule_CreateString(NULL, word, strlen(word));
}

bool server_user_may_acquire(RedisModuleString *name, RedisModuleString *key) {
    static RedisModuleString *command;
    if (command == NULL) command = make_word("dlock.acquire");
    return may_run(name, command, key);
}

/* The count and the token are not checked, and the token may be any word. */
bool server_user_may_acquire_all(RedisModuleString *name, RedisModuleString **keys, int count) {
    static RedisModuleString *command;
    RedisModuleString *argv[LOCK_NAMES_MAX + 3];
    if (command == NULL) command = make_word("dlock.acquireall");
    RedisModuleUser *user = RedisModule_GetModuleUserFromUserName(name);
    if (user == NULL) return false;
    argv[0] = command;
    argv[1] = RedisModule_CreateStringFromLongLong(NULL, count);
    for (int i = 0; i < count; i++)
        argv[2 + i] = keys[i];
    argv[2 + count] = command;
    bool is_allowed =
        RedisModule_ACLCheckCommandPermissions(user, argv, count + 3) == REDISMODULE_OK;
    RedisModule_FreeString(NULL, argv[1]);
    RedisModule_FreeModuleUser(user);
    return is_allowed;
}

bool server_user_may_watch(RedisModuleString *name, RedisModuleString *key) {
    static RedisModuleString *command;
    if (command == NULL) command = make_word("dlock.watch");
    return may_run(name, command, key);
}

bool server_is_probing(void) {
    return is_probing;
}

bool server_is_frozen(void) {
    return RedisModule_AvoidReplicaTraffic() != 0;
}

bool server_may_evict_locks(void) {
    return may_evict;
}

int64_t server_max_parked(void) {
    return max_parked;
}

static int64_t read_max_parked(RedisModuleCtx *ctx) {
    RedisModuleServerInfoData *info = RedisModule_GetServerInfo(ctx, "clients");
    int error;
    int64_t max_clients = RedisModule_ServerInfoGetFieldSigned(info, "maxclients", &error);
    RedisModule_FreeServerInfo(ctx, info);
    return error == REDISMODULE_OK ? (max_clients * 3 + 3) / 4 : INT64_MAX;
}

/* The key of a lock has no TTL, so the policies volatile-* never evict a lock. */
void server_config_changed(RedisModuleCtx *ctx) {
    bool could_evict = may_evict;
    max_parked = read_max_parked(ctx);
    RedisModuleServerInfoData *info = RedisModule_GetServerInfo(ctx, "memory");
    const char *limit = RedisModule_ServerInfoGetFieldC(info, "maxmemory");
    const char *policy = RedisModule_ServerInfoGetFieldC(info, "maxmemory_policy");
    may_evict = limit != NULL && policy != NULL && strcmp(limit, "0") != 0 &&
                strncmp(policy, "allkeys-", strlen("allkeys-")) == 0;
    RedisModule_FreeServerInfo(ctx, info);
    if (may_evict && !could_evict)
        RedisModule_Log(ctx, "warning",
                        "maxmemory-policy can evict locks, and an evicted lock can be taken twice: "
                        "set a policy of noeviction or volatile-*, or dlock.require-noeviction "
                        "yes");
}

/* Only valkey_version is reliable: elsewhere Valkey calls itself Redis 7.2.4. */
static bool is_valkey_9(RedisModuleCtx *ctx) {
    RedisModuleServerInfoData *info = RedisModule_GetServerInfo(ctx, "server");
    const char *version = RedisModule_ServerInfoGetFieldC(info, "valkey_version");
    bool is_9 = version != NULL && atoi(version) >= 9;
    RedisModule_FreeServerInfo(ctx, info);
    return is_9;
}

/* Valkey 9 moves a slot atomically only if every module says that it can cope. This module can: its
 * keys travel as DLOCK.APPLY, and the waiters of a moved slot are sent away. */
int server_module_options(RedisModuleCtx *ctx) {
    enum { VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION = 1 << 5 };
    return is_valkey_9(ctx) ? VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION : 0;
}
