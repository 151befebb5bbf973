/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock_order_test.c - an acquire at several servers that reply anything in any order; and how
 * the deployment is made and lists its servers. */
#include "redlock_world.h"

#define FENCE 1000010000

/* 'y' granted, 'l' granted with a larger fence, 'b' busy, 'e' error, 'd' in doubt, 'u' unreachable,
 * 's' silent, 'c' never connected. */
static void play(size_t index, char letter) {
    if (world.servers[index].pending == NULL) return;
    if (letter == 'y') reply_integer(index, FENCE);
    if (letter == 'l') reply_integer(index, FENCE + 3);
    if (letter == 'b') reply_nil(index);
    if (letter == 'e') reply_error(index, "OOM command not allowed");
    if (letter == 'd') fail_request(index, DLOCK_IN_DOUBT, "broken");
    if (letter == 'u') fail_request(index, DLOCK_UNREACHABLE, "refused");
}

static void check_undone(size_t index, char letter) {
    bool is_released = false, is_acquired = false;
    for (size_t i = 0; i < world.sent_count; i++) {
        if (world.sent[i].server != index) continue;
        if (strncmp(world.sent[i].text, "ACQUIRE", 7) == 0) is_acquired = true;
        if (strncmp(world.sent[i].text, "ACQUIRE", 7) == 0) is_released = false;
        if (strncmp(world.sent[i].text, "RELEASE", 7) == 0) is_released = true;
    }
    bool is_needed = is_acquired && strchr("ylds", letter) != NULL;
    CHECK(is_released || !is_needed);
}

TEST(whatever_happens_an_attempt_ends_and_leaves_nothing_behind) {
    static const char letters[] = "yylbbedusc";
    for (int round = 0; round < 5000; round++) {
        char script[SERVERS];
        unit_restart();
        for (size_t i = 0; i < SERVERS; i++) {
            script[i] = letters[unit_random() % (sizeof(letters) - 1)];
            world.servers[i].is_connecting = script[i] == 'c';
            world.servers[i].is_skipped = unit_random() % 4 == 0;
        }
        start(DLOCK_ACQUIRING);
        for (int step = 0; step < 30; step++) {
            size_t index = unit_random() % SERVERS;
            play(index, script[index]);
        }
        bool is_abandoned = world.done_count == 0 && unit_random() % 4 == 0;
        if (is_abandoned)
            deployment_abandon(world.redlock, &world.attempt);
        else
            pass_time(world.now_us + IO_MS * 1000);
        CHECK_EQUAL(world.done_count, is_abandoned ? 0 : 1);
        CHECK(heap_first(&world.loop.timers) == NULL);
        bool is_granted = world.done_count == 1 && world.attempt.status == DLOCK_OK;
        if (is_granted) CHECK(world.attempt.fence >= FENCE && world.attempt.asked_us == START_US);
        for (size_t i = 0; i < SERVERS && !is_granted; i++)
            check_undone(i, script[i]);
    }
}

/* -- the deployment */

TEST(the_servers_are_listed) {
    static server_list list;
    world.redlock->table->list_servers(world.redlock, START_US, &list);
    CHECK(list.status == DLOCK_OK && list.count == SERVERS);
    for (size_t i = 0; i < list.count; i++)
        server_free(list.servers[i]);
}

TEST(without_memory_there_is_no_deployment) {
    static const topology five = {.kind = TOPOLOGY_REDLOCK, .count = SERVERS};
    server_options options = {.loop = &world.loop};
    end_world();
    memset(&world, 0, sizeof(world));
    world.fail_at = 3;
    CHECK(redlock_new(&five, &options) == NULL);
    CHECK_EQUAL(world.shares_left, 0);
    make_world();
}

int main(void) {
    return unit_main(make_world, end_world);
}
