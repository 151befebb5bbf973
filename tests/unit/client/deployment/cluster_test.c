/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster_test.c - when the router of a cluster asks for the map. All seeds are links of one
 * scripted server. */
#include "single_thread.h"

#include "deployment/router.h"

enum { SEEDS = 4 };

#define MAP(port) "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$8\r\n10.0.0.1\r\n:" #port "\r\n"

static router *stage;

static void begin_stage(void) {
    begin();
    topology topology = {.kind = TOPOLOGY_CLUSTER, .count = SEEDS};
    for (size_t i = 0; i < SEEDS; i++)
        topology.servers[i] = world.url;
    stage =
        (router *)cluster_new(&topology, &(server_options){.loop = world.loop,
                                                           .connect_timeout_ms = 500,
                                                           .io_timeout_ms = IO_MS,
                                                           .command_count = &world.command_count});
}

static void end_stage(void) {
    stage->base.table->free(&stage->base);
    end();
}

static bool discover(void) {
    bool is_under_way = router_discover(stage);
    settle();
    return is_under_way;
}

static server *find(void) {
    return stage->table->find(stage, "lock");
}

TEST(some_nodes_are_asked_and_the_first_map_counts) {
    CHECK(find() == NULL);
    CHECK(discover());
    CHECK_EQUAL(the_peer.link_count, 3);
    CHECK_TEXT(link_at(0)->heard, "CLUSTER SLOTS");
    say(1, MAP(7001));
    CHECK(find() != NULL && find()->endpoint.url.port == 7001);
    CHECK_EQUAL(stage->failure, DLOCK_OK);
    CHECK(!discover());
    say(0, MAP(7002)); /* a late reply is skipped */
    CHECK(find()->endpoint.url.port == 7001);
}

TEST(a_server_that_is_no_cluster_is_refused) {
    char expected[CAUSE_SIZE];
    CHECK(discover());
    for (int i = 0; i < 3; i++)
        say(i, "-ERR This instance has cluster support disabled\r\n");
    CHECK_EQUAL(stage->failure, DLOCK_PROTOCOL);
    snprintf(expected, sizeof(expected), "%s: ERR This instance has cluster support disabled",
             the_peer.path);
    CHECK_TEXT(stage->cause, expected);
    CHECK(find() == NULL);
}

TEST(a_useless_map_is_no_map) {
    CHECK(discover());
    say(0, "*0\r\n");
    say(1, "*0\r\n");
    CHECK(router_discover(stage)); /* still under way */
    say(2, MAP(7003));
    CHECK(find() != NULL && find()->endpoint.url.port == 7003);
}

TEST(a_doubted_map_is_asked_for_again_after_a_pause) {
    CHECK(discover());
    say(0, MAP(7001));
    stage->is_doubted = true;
    CHECK(!discover());
    pass_ms(99);
    CHECK(!discover());
    pass_ms(1);
    CHECK(discover());
    CHECK(find() != NULL); /* the known one, meanwhile */
    pass_ms(500);
    CHECK_EQUAL(stage->failure, DLOCK_UNREACHABLE);
    CHECK(find() != NULL && find()->endpoint.url.port == 7001);
    pass_ms(100);
    CHECK(discover()); /* still in doubt */
}

TEST(a_redirect_casts_doubt_on_the_map) {
    CHECK(discover());
    say(0, MAP(7001));
    pass_ms(100);
    redirect ask = {.is_ask = true, .slot = 5, .host = "10.0.0.1", .port = 7002};
    CHECK(stage->table->follow(stage, find(), &ask) != NULL);
    CHECK(!discover());
    redirect moved = {.slot = 5, .host = "10.0.0.1", .port = 7002};
    CHECK(stage->table->follow(stage, find(), &moved) != NULL);
    CHECK(discover());
}

int main(void) {
    return unit_main(begin_stage, end_stage);
}
