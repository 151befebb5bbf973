/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster_map_test.c - which node has which slot, from CLUSTER SLOTS and redirects. */
#include "single_thread.h"

#include "deployment/router.h"

enum { NODES_MAX = 2000, ALL_MAX = 10 };

static router *stage;
static server *sender; /* the first seed */
static diagnostics told;
static int told_count;

static size_t choose(server *servers[]) {
    command commands[DISCOVERY_COMMANDS_MAX] = {{0}};
    return stage->table->prepare(stage, servers, commands);
}

static void ignore_line(void *arg, dlock_log_level level, const char *line) {
    (void)arg, (void)level, (void)line;
}

static void count_line(diagnostics *diagnostics) {
    (void)diagnostics;
    told_count++;
}

static void begin_map(void) {
    begin();
    diagnostics_init(&told, world.loop, ignore_line, NULL);
    told.on_line = count_line;
    told_count = 0;
    server *seeds[DISCOVERY_SERVERS_MAX];
    topology topology = {.kind = TOPOLOGY_CLUSTER,
                         .count = 2,
                         .servers = {{.host = "10.0.0.1", .port = 7001, .password = "p"},
                                     {.host = "10.0.0.2", .port = 7002}}};
    stage = (router *)cluster_new(&topology,
                                  &(server_options){.loop = world.loop, .diagnostics = &told});
    CHECK(choose(seeds) == 2);
    sender = seeds[0];
}

static void end_map(void) {
    stage->base.table->free(&stage->base);
    diagnostics_tell(&told);
    end();
}

/* All nodes, found by many discoveries. */
static size_t count_nodes(void) {
    server *all[ALL_MAX], *chosen[DISCOVERY_SERVERS_MAX];
    size_t count = 0;
    for (int i = 0; i < 2 * ALL_MAX; i++) {
        size_t chosen_count = choose(chosen);
        for (size_t n = 0; n < chosen_count; n++) {
            size_t at = 0;
            while (at < count && all[at] != chosen[n])
                at++;
            if (at == count && count < ALL_MAX) all[count++] = chosen[n];
        }
    }
    return count;
}

static server *find(unsigned slot) {
    char name[16];
    int number = 0;
    do
        snprintf(name, sizeof(name), "%d", number++);
    while (slot_of_key(name, strlen(name)) != slot);
    return stage->table->find(stage, name);
}

static server *follow(const redirect *redirect) {
    return stage->table->follow(stage, sender, redirect);
}

static const char *read_text(const char *text) {
    resp_reader reader = {0};
    const reply *reply;
    size_t used;
    CHECK(resp_read(&reader, text, strlen(text), &reply, &used) == RESP_REPLY);
    router_probe probe = {.server = sender};
    const char *useless = stage->table->read(stage, &probe, 0, reply);
    resp_reader_free(&reader);
    return useless;
}

/* An array with one range; replicas are behind the master. */
#define RANGE(first, last, host, port)                                                             \
    "*4\r\n:" #first "\r\n:" #last "\r\n*3\r\n" host "\r\n:" #port "\r\n$2\r\nid\r\n"              \
    "*2\r\n$8\r\n10.9.9.9\r\n:1\r\n"
#define HOST(last) "$8\r\n10.0.0." #last

static void check_owner(unsigned slot, const char *host, int port, const char *file, int line) {
    server *owner = find(slot);
    if (owner == NULL) {
        unit_fail(file, line, "no owner");
        return;
    }
    unit_check_text(owner->endpoint.url.host, host, file, line, "host");
    unit_check_equal(owner->endpoint.url.port, port, file, line, "port");
}

#define CHECK_OWNER(slot, host, port) check_owner(slot, host, port, __FILE__, __LINE__)

TEST(nothing_is_known_at_first) {
    CHECK(find(0) == NULL);
    server *owners[4];
    CHECK_EQUAL(stage->table->list(stage, owners, 4), 0);
}

TEST(ranges_have_owners) {
    CHECK(read_text("*2\r\n" RANGE(0, 8000, HOST(2), 7002) RANGE(8001, 16000, HOST(3), 7003)) ==
          NULL);
    CHECK_OWNER(0, "10.0.0.2", 7002);
    CHECK_OWNER(8000, "10.0.0.2", 7002);
    CHECK_OWNER(8001, "10.0.0.3", 7003);
    CHECK_OWNER(16383, "10.0.0.2", 7002); /* nobody has the slot: any node */
    CHECK_TEXT(find(8001)->endpoint.url.password, "p");
    server *owners[4];
    CHECK_EQUAL(stage->table->list(stage, owners, 4), 2);
    server_free(owners[0]);
    server_free(owners[1]);
    CHECK_EQUAL(stage->table->list(stage, owners, 1), 1);
    server_free(owners[0]);
}

TEST(slots_that_move_one_after_the_other_are_not_told_one_by_one) {
    CHECK(read_text("*2\r\n" RANGE(0, 0, HOST(2), 7002) RANGE(1, 16383, HOST(3), 7003)) == NULL);
    CHECK_EQUAL(told_count, 0);
    CHECK(read_text("*2\r\n" RANGE(0, 1, HOST(2), 7002) RANGE(2, 16383, HOST(3), 7003)) == NULL);
    CHECK_EQUAL(told_count, 1);
    pass_ms(9000);
    CHECK(read_text("*2\r\n" RANGE(0, 2, HOST(2), 7002) RANGE(3, 16383, HOST(3), 7003)) == NULL);
    CHECK_EQUAL(told_count, 1);
    CHECK(read_text("*2\r\n" RANGE(0, 2, HOST(2), 7002) RANGE(3, 16383, HOST(4), 7004)) == NULL);
    CHECK_EQUAL(told_count, 2); /* of another node */
    pass_ms(1000);
    CHECK(read_text("*2\r\n" RANGE(0, 3, HOST(2), 7002) RANGE(4, 16383, HOST(4), 7004)) == NULL);
    CHECK_EQUAL(told_count, 3);
}

TEST(an_unknown_host_is_the_host_of_the_sender) {
    const char *replies[] = {"*1\r\n" RANGE(0, 16383, "$1\r\n?", 7009),
                             "*1\r\n" RANGE(0, 16383, "$0\r\n", 7009),
                             "*1\r\n" RANGE(0, 16383, "$-1", 7009)};
    EACH_ROW(i, replies) {
        unit_restart();
        CHECK(read_text(replies[i]) == NULL);
        CHECK_OWNER(5, "10.0.0.1", 7009);
    }
}

TEST(a_reply_that_makes_no_sense_changes_nothing) {
    const char *replies[] = {
        "*0\r\n",
        "+OK\r\n",
        "*-1\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n" RANGE(-1, 5, HOST(4), 7004),
        "*1\r\n" RANGE(6, 5, HOST(4), 7004),
        "*1\r\n" RANGE(0, 16384, HOST(4), 7004),
        "*1\r\n" RANGE(0, 5, HOST(4), 0),
        "*1\r\n" RANGE(0, 5, HOST(4), 65536),
        "*1\r\n" RANGE(0, 5, ":8", 7004),
        "*1\r\n*2\r\n:0\r\n:5\r\n",
        "*1\r\n*3\r\n:0\r\n:5\r\n*1\r\n$1\r\na\r\n",
        "*2\r\n" RANGE(0, 5, HOST(4), 7004) "*0\r\n",
    };
    CHECK(read_text("*1\r\n" RANGE(0, 16383, HOST(3), 7003)) == NULL);
    EACH_ROW(i, replies) {
        CHECK(read_text(replies[i]) != NULL);
        CHECK_OWNER(0, "10.0.0.3", 7003);
    }
    CHECK_EQUAL(count_nodes(), 3); /* the seeds and the owner */
}

TEST(nodes_without_slots_are_forgotten_but_seeds_stay) {
    CHECK(read_text("*1\r\n" RANGE(0, 16383, HOST(3), 7003)) == NULL);
    server *node = find(0);
    CHECK(read_text("*1\r\n" RANGE(0, 16383, HOST(3), 7003)) == NULL);
    CHECK(find(0) == node); /* its connections are kept */
    CHECK(read_text("*1\r\n" RANGE(0, 16383, HOST(4), 7004)) == NULL);
    CHECK_EQUAL(count_nodes(), 3);
    CHECK(read_text("*1\r\n" RANGE(0, 16383, HOST(1), 7001)) == NULL);
    CHECK_EQUAL(count_nodes(), 2);
    CHECK_OWNER(0, "10.0.0.1", 7001);
}

TEST(a_slot_that_moved_has_another_owner) {
    CHECK(read_text("*1\r\n" RANGE(0, 16383, HOST(3), 7003)) == NULL);
    redirect moved = {.slot = 17, .host = "10.0.0.5", .port = 7005};
    server *next = follow(&moved);
    CHECK(next != NULL && next == find(17));
    CHECK_OWNER(17, "10.0.0.5", 7005);
    CHECK_OWNER(18, "10.0.0.3", 7003);
    redirect unknown = {.slot = 18, .port = 7006};
    CHECK(follow(&unknown) != NULL);
    CHECK_OWNER(18, "10.0.0.1", 7006); /* the host of the sender */
}

TEST(an_ask_changes_no_owner) {
    CHECK(read_text("*1\r\n" RANGE(0, 16383, HOST(3), 7003)) == NULL);
    redirect ask = {.is_ask = true, .slot = 17, .host = "10.0.0.5", .port = 7005};
    server *next = follow(&ask);
    CHECK(next != NULL && next->endpoint.url.port == 7005);
    CHECK_OWNER(17, "10.0.0.3", 7003);
}

TEST(endless_redirects_do_not_fill_the_map) {
    CHECK(read_text("*1\r\n" RANGE(0, 16383, HOST(3), 7003)) == NULL);
    for (int i = 0; i < 2 * NODES_MAX; i++) {
        redirect ask = {.is_ask = true, .slot = 17, .host = "10.0.0.5", .port = 1 + i};
        CHECK(follow(&ask) != NULL);
    }
    CHECK_OWNER(17, "10.0.0.3", 7003);
}

TEST(other_nodes_are_chosen_each_time) {
    CHECK(read_text("*2\r\n" RANGE(0, 5, HOST(3), 7003) RANGE(6, 7, HOST(4), 7004)) == NULL);
    server *first[DISCOVERY_SERVERS_MAX], *second[DISCOVERY_SERVERS_MAX];
    CHECK(choose(first) == 3 && choose(second) == 3);
    CHECK(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    CHECK(second[0] != first[0] && second[0] != first[1] && second[0] != first[2]);
    CHECK_EQUAL(count_nodes(), 4);
}

int main(void) {
    return unit_main(begin_map, end_map);
}
