/* SPDX-License-Identifier: BSD-3-Clause */
/* sentinel_test.c - the master that sentinels name. All sentinels are links of one scripted server;
 * the first link is the first sentinel. */
#include "single_thread.h"

#include "deployment/router.h"

enum { SENTINELS = 3 };

static struct {
    router *router;
    loop_task wait;
    int found;
} stage;

static void on_found(loop_task *wait) {
    CHECK(wait == &stage.wait);
    stage.found++;
}

static bool discover(void) {
    bool is_under_way = router_discover(stage.router);
    settle();
    return is_under_way;
}

static server *find(void) {
    return router_find(stage.router, "any");
}

static void begin_stage(void) {
    begin();
    topology topology = {.kind = TOPOLOGY_SENTINEL, .count = SENTINELS, .master_name = "m"};
    for (size_t i = 0; i < SENTINELS; i++)
        topology.servers[i] = world.url;
    topology.master.db = 3;
    stage.router =
        (router *)master_new(&topology, &(server_options){.loop = world.loop,
                                                          .connect_timeout_ms = 500,
                                                          .io_timeout_ms = IO_MS,
                                                          .command_count = &world.command_count});
    stage.wait = (loop_task){.run = on_found};
    stage.found = 0;
}

static void end_stage(void) {
    stage.router->base.table->free(&stage.router->base);
    end();
}

static void start_discovery(void) {
    CHECK(discover());
    list_append(&stage.router->waits, &stage.wait.node);
}

/* Both replies of a sentinel. */
static void name_master(int index, const char *host, int port, int epoch) {
    char text[256], epoch_text[16];
    snprintf(epoch_text, sizeof(epoch_text), "%d", epoch);
    snprintf(text, sizeof(text),
             "*2\r\n$%zu\r\n%s\r\n$4\r\n%04d\r\n"
             "*4\r\n$4\r\nname\r\n$1\r\nm\r\n$12\r\nconfig-epoch\r\n$%zu\r\n%s\r\n",
             strlen(host), host, port, strlen(epoch_text), epoch_text);
    say(index, text);
}

static void check_master(const char *host, int port) {
    server *master = find();
    CHECK(master != NULL);
    if (master == NULL) return;
    CHECK_TEXT(master->endpoint.url.host, host);
    CHECK_EQUAL(master->endpoint.url.port, port);
    CHECK(master->endpoint.url.must_be_master);
    CHECK_EQUAL(master->endpoint.url.db, 3);
}

TEST(all_sentinels_are_asked) {
    CHECK(find() == NULL);
    start_discovery();
    CHECK_EQUAL(the_peer.link_count, SENTINELS);
    for (int i = 0; i < SENTINELS; i++)
        CHECK_TEXT(link_at(i)->heard, "SENTINEL GET-MASTER-ADDR-BY-NAME m; SENTINEL MASTER m");
}

TEST(the_newest_configuration_wins) {
    start_discovery();
    name_master(1, "10.0.0.1", 7001, 5);
    name_master(0, "10.0.0.2", 7002, 12);
    CHECK(find() == NULL);
    name_master(2, "10.0.0.3", 7003, 7);
    CHECK_EQUAL(stage.found, 1);
    check_master("10.0.0.2", 7002);
}

TEST(after_the_first_reply_the_others_have_a_grace) {
    start_discovery();
    name_master(1, "10.0.0.1", 7001, 5);
    pass_ms(19);
    CHECK_EQUAL(stage.found, 0);
    pass_ms(1);
    CHECK_EQUAL(stage.found, 1);
    CHECK_EQUAL(stage.router->failure, DLOCK_OK);
    check_master("10.0.0.1", 7001);
}

TEST(sentinels_that_do_not_answer_are_named) {
    char expected[CAUSE_SIZE];
    start_discovery();
    pass_ms(500);
    CHECK_EQUAL(stage.found, 1);
    CHECK_EQUAL(stage.router->failure, DLOCK_UNREACHABLE);
    snprintf(expected, sizeof(expected), "%s: no reply in time", the_peer.path);
    CHECK_TEXT(stage.router->cause, expected);
    CHECK(find() == NULL);
    CHECK(discover()); /* without a master there is no pause */
}

TEST(the_most_telling_failure_is_kept) {
    char expected[CAUSE_SIZE];
    start_discovery();
    link_end(link_at(0));
    say(1, "-NOAUTH no\r\n-NOAUTH no\r\n");
    say(2, "*-1\r\n-ERR No such master with that name\r\n");
    CHECK_EQUAL(stage.found, 1);
    CHECK_EQUAL(stage.router->failure, DLOCK_UNREACHABLE);
    snprintf(expected, sizeof(expected), "%s: the sentinel knows no master of that name",
             the_peer.path);
    CHECK_TEXT(stage.router->cause, expected);
}

TEST(a_login_that_all_sentinels_refuse_is_refused) {
    start_discovery();
    for (int i = 0; i < SENTINELS; i++)
        say(i, "-NOAUTH no\r\n-NOAUTH no\r\n");
    CHECK_EQUAL(stage.router->failure, DLOCK_REFUSED);
}

TEST(replies_that_make_no_sense_name_no_master) {
    const char *replies[] = {"*1\r\n$1\r\na\r\n",
                             "*2\r\n$0\r\n\r\n$1\r\n1\r\n",
                             "*2\r\n$1\r\na\r\n$1\r\n0\r\n",
                             "*2\r\n$1\r\na\r\n$5\r\n65536\r\n",
                             "*2\r\n:1\r\n$1\r\n1\r\n",
                             "+OK\r\n",
                             ":1\r\n",
                             "*0\r\n"};
    EACH_ROW(i, replies) {
        unit_restart();
        start_discovery();
        for (int index = 0; index < SENTINELS; index++) {
            say(index, replies[i]);
            say(index, "*1\r\n$12\r\nconfig-epoch\r\n");
        }
        CHECK_EQUAL(stage.found, 1);
        CHECK_EQUAL(stage.router->failure, DLOCK_UNREACHABLE);
        CHECK(find() == NULL);
    }
}

TEST(a_master_is_used_until_another_one_is_named) {
    start_discovery();
    for (int i = 0; i < SENTINELS; i++)
        name_master(i, "10.0.0.1", 7001, 5);
    server *master = find();
    CHECK(!discover()); /* not in doubt */
    stage.router->is_doubted = true;
    CHECK(!discover()); /* too soon */
    pass_ms(20);
    CHECK(discover());
    CHECK(find() == master);
    for (int i = 0; i < SENTINELS; i++)
        name_master(i, "10.0.0.1", 7001, 5);
    CHECK(find() == master);
    pass_ms(100);
    CHECK(!discover());
    stage.router->is_doubted = true;
    CHECK(discover());
    for (int i = 0; i < SENTINELS; i++)
        name_master(i, "10.0.0.2", 7002, 6);
    check_master("10.0.0.2", 7002);
}

TEST(a_known_master_survives_sentinels_that_fail) {
    start_discovery();
    for (int i = 0; i < SENTINELS; i++)
        name_master(i, "10.0.0.1", 7001, 5);
    server *master = find();
    pass_ms(100);
    stage.router->is_doubted = true;
    CHECK(discover());
    pass_ms(500);
    CHECK_EQUAL(stage.router->failure, DLOCK_UNREACHABLE);
    CHECK(find() == master);
    pass_ms(20);
    CHECK(discover()); /* still in doubt */
}

int main(void) {
    return unit_main(begin_stage, end_stage);
}
