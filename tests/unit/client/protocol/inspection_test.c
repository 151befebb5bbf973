/* SPDX-License-Identifier: BSD-3-Clause */
/* inspection_test.c - the reply of DLOCK.INFO. */
#include "protocol/lock_commands.h"

#include "reply_reader.h"

static dlock_inspection got;

/* Blanks separate the nodes: "*2 +ttl :5". */
static const reply *parse_nodes(const char *nodes) {
    static char bytes[1000];
    size_t size = 0;
    for (; *nodes != '\0'; nodes++) {
        if (*nodes != ' ') {
            bytes[size++] = *nodes;
            continue;
        }
        bytes[size++] = '\r';
        bytes[size++] = '\n';
    }
    memcpy(bytes + size, "\r\n", 3);
    return parse(bytes);
}

static bool read_holder(const reply *root, size_t index) {
    const reply *holders = inspection_holders(root);
    got = (dlock_inspection){.struct_size = sizeof(got)};
    return holders != NULL && inspection_read(&got, root, reply_element(holders, index));
}

static bool read_nodes(const char *nodes) {
    const reply *root = parse_nodes(nodes);
    return root != NULL && read_holder(root, 0);
}

TEST(every_field_is_read) {
    CHECK(read_nodes("*8 +kind +lock +mode +exclusive +waiters :3 +holders *1 "
                     "*12 +token $3 a:b +fence :7 +ttl :100 +lease :200 +since :300 +session :4"));
    CHECK_BYTES(got.token, got.token_length, "a:b", 3);
    CHECK_EQUAL(got.fence, 7);
    CHECK_EQUAL(got.waiters, 3);
    CHECK_EQUAL(got.ttl_ms, 100);
    CHECK_EQUAL(got.lease_ms, 200);
    CHECK_EQUAL(got.since_ms, 300);
    CHECK_EQUAL(got.session, 4);
    CHECK_EQUAL(got.holders, 1);
    CHECK_EQUAL(got.mode, DLOCK_EXCLUSIVE);
    CHECK(!got.is_string);
}

TEST(every_holder_is_read) {
    const reply *root = parse_nodes("*8 +kind +lock +mode +shared +holders *3 "
                                    "*4 +token $1 a +fence :7 *4 +token $1 b +fence :5 "
                                    "*4 +token $1 c +fence :9 +waiters :2");
    static const int64_t fences[] = {7, 5, 9};
    for (size_t i = 0; i < 3; i++) {
        CHECK(read_holder(root, i));
        CHECK_BYTES(got.token, got.token_length, &"abc"[i], 1);
        CHECK_EQUAL(got.fence, fences[i]);
        CHECK_EQUAL(got.mode, DLOCK_SHARED);
        CHECK_EQUAL(got.holders, 3);
        CHECK_EQUAL(got.waiters, 2);
    }
}

TEST(a_plain_string_is_told_apart) {
    CHECK(read_nodes("*4 $4 kind $6 string $7 holders *1 *2 $5 token $1 t"));
    CHECK(got.is_string);
}

TEST(fields_of_a_newer_server_are_skipped) {
    CHECK(read_nodes("*4 +new *2 :1 :2 +holders *1 *6 +token $1 t +other $-1 +ttl :-1"));
    CHECK_EQUAL(got.ttl_ms, -1);
}

TEST(replies_without_sense_are_refused) {
    static const char *const bad[] = {
        ":1",
        "$-1",
        "+OK",
        "*0",
        "*2 +ttl :1",
        "*2 +token $1 t",
        "*1 +holders",
        "*2 +holders *0",
        "*2 +holders :1",
        "*2 +holders *1 :1",
        "*2 +holders *1 *0",
        "*2 +holders *1 *1 +token",
        "*2 +holders *1 *3 +token $1 t +ttl",
        "*2 +holders *1 *2 +token :1",
        "*2 +holders *1 *2 +token $-1",
        "*2 +holders *1 *4 +token $1 t +ttl $1 5",
        "*2 +holders *1 *4 +token $1 t +fence +x",
        "*4 +waiters +x +holders *1 *2 +token $1 t",
        "*3 +holders *1 *2 +token $1 t +ttl",
    };
    EACH_ROW(i, bad) {
        bool is_read = read_nodes(bad[i]);
        if (is_read) printf("    \"%s\"\n", bad[i]);
        CHECK(!is_read);
    }
}

TEST(the_queue_is_read) {
    dlock_waiting waiting = {0};
    const reply *queue = waiters_queue(
        parse_nodes("*4 +kind +lock +queue *1 "
                    "*10 +token $3 a:b +mode +exclusive +waited :5 +left :7 +client :9"));
    CHECK(queue != NULL && waiting_read(&waiting, reply_element(queue, 0)));
    CHECK_BYTES(waiting.token, waiting.token_length, "a:b", 3);
    CHECK_EQUAL(waiting.waited_ms, 5);
    CHECK_EQUAL(waiting.left_ms, 7);
    CHECK_EQUAL(waiting.client, 9);
    CHECK_EQUAL(waiting.mode, DLOCK_EXCLUSIVE);
    CHECK(waiting_read(&waiting, parse_nodes("*10 +token $1 t +mode +shared +waited :5 +left :7 "
                                             "+client :9")));
    CHECK_EQUAL(waiting.mode, DLOCK_SHARED);
}

TEST(queues_without_sense_are_refused) {
    static const char *const bad[] = {"*0", ":1", "*2 +token $1 t", "*1 +queue", "*2 +queue :1"};
    static const char *const bad_elements[] = {
        ":1", "*0", "*8 +token :1 +waited :5 +left :7 +client :9",
        "*6 +token $1 t +waited :5 +left :7", "*8 +token $1 t +waited $1 5 +left :7 +client :9"};
    dlock_waiting waiting = {0};
    EACH_ROW(i, bad)
        CHECK(waiters_queue(parse_nodes(bad[i])) == NULL);
    EACH_ROW(i, bad_elements)
        CHECK(!waiting_read(&waiting, parse_nodes(bad_elements[i])));
}

int main(void) {
    return unit_main(NULL, free_reader);
}
