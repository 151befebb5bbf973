/* SPDX-License-Identifier: BSD-3-Clause */
/* fences.c - see fences.h.
 *
 *   next    a grant gets its fence; the alarm is set, so that the clock is told soon
 *   tell    the clock goes to replicas and the append-only file, and over the bus to other nodes
 *   hear    a message of another node raises the clock, unless that node is a day ahead */
#include "fences.h"

#include "replicate.h"
#include "server.h"
#include "settings.h"
#include <stdio.h>
#include <string.h>

enum { TELL_EVERY_US = 5000000, BUS_MESSAGE = 1, MESSAGE_MAX = 64 };

/* Other nodes of the cluster are trusted, but a node whose clock is that far ahead is broken, and
 * would carry all others along. */
#define BUS_AHEAD_MAX_US (INT64_C(24) * 60 * 60 * 1000000)

static int64_t due_us;      /* when the clock has to be told, if there is anything to tell */
static bool is_given;       /* since the clock was told */
static bool is_wanted;      /* by somebody who may not know the clock */
static uint64_t told_steps; /* fence_steps() when the clock was told */
static bool is_warned;

/* The wall clock first: if the process is stopped between the two, the wall clock is not ahead. */
fence_time fences_time(void) {
    int64_t wall_us = server_wall_us();
    return (fence_time){.wall_us = wall_us, .boot_us = server_boot_us()};
}

int64_t fences_next(const lock_request *request, int64_t boot_us) {
    fence_time now = {.wall_us = server_wall_us(), .boot_us = boot_us};
    if (fence_sets_clock(now)) now = fences_time(); /* boot_us may be old */
    int64_t fence = fence_next(now, request->fence, request->fences > 0 ? request->fences : 1);
    if (fence_steps() != told_steps) due_us = 0;
    if (!is_given || due_us == 0) server_alarm(due_us);
    is_given = true;
    return fence;
}

void fences_tell_soon(void) {
    if (fence_last() == 0) return;
    is_wanted = true;
    server_alarm(0);
}

void fences_take_over(bool is_promoted) {
    fence_take_over(fences_time(), is_promoted);
}

/* As text: nodes may differ in their byte order. */
static void tell_nodes(fence_time now) {
    char text[MESSAGE_MAX];
    int length = snprintf(text, sizeof(text), "%lld %lld", (long long)fence_base(now),
                          (long long)fence_clock(now));
    RedisModule_SendClusterMessage(server_context(), NULL, BUS_MESSAGE, text, (uint32_t)length);
}

int64_t fences_due(void) {
    if (fence_last() == 0) return SERVER_NEVER;
    if (is_wanted) return 0;
    return is_given || server_is_cluster() ? due_us : SERVER_NEVER;
}

/* An operator who is about to remove the module needs files without traces of it: dlock.drain. */
bool fences_tell(RedisModuleCtx *ctx) {
    fence_time now = fences_time();
    if (fences_due() > now.boot_us) return false;
    bool is_written = (is_given || is_wanted) && !settings.drain;
    if (is_written) replicate_clock(ctx, fence_base(now), fence_clock(now));
    if (server_is_cluster()) tell_nodes(now);
    is_given = is_wanted = false;
    told_steps = fence_steps();
    due_us = now.boot_us + TELL_EVERY_US;
    return is_written;
}

static void on_message(RedisModuleCtx *ctx, const char *sender, uint8_t type,
                       const unsigned char *payload, uint32_t length) {
    (void)type;
    char text[MESSAGE_MAX] = "";
    long long base_us, clock_us;
    fence_time now = fences_time();
    if (length >= sizeof(text)) return;
    memcpy(text, payload, length);
    if (sscanf(text, "%lld %lld", &base_us, &clock_us) != 2) return;
    int64_t highest_us = fence_base(now) + BUS_AHEAD_MAX_US;
    if (base_us <= highest_us && clock_us <= highest_us) {
        fence_hear(base_us, clock_us, now);
        return;
    }
    if (!is_warned)
        RedisModule_Log(ctx, "warning",
                        "the clock of node %.40s is more than a day ahead: its fences may be "
                        "larger than those of this node",
                        sender);
    is_warned = true;
}

void fences_init(RedisModuleCtx *ctx) {
    fence_start();
    if (server_is_cluster())
        RedisModule_RegisterClusterMessageReceiver(ctx, BUS_MESSAGE, on_message);
}
