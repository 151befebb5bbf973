/* SPDX-License-Identifier: BSD-3-Clause */
/* inspection_test.c - the reply of DLOCK.INFO. */
#include "protocol/lock_commands.h"

#include "unit.h"

static resp_reader reader;
static dlock_inspection got;

/* Blanks separate the nodes: "*2 +ttl :5". */
static const reply *parse(const char *nodes) {
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
    memcpy(bytes + size, "\r\n", 2);
    const reply *root = NULL;
    size_t used;
    CHECK_EQUAL(resp_read(&reader, bytes, size + 2, &root, &used), RESP_REPLY);
    return root;
}

static bool read_nodes(const char *nodes) {
    const reply *root = parse(nodes);
    got = (dlock_inspection){.struct_size = sizeof(got)};
    return root != NULL && inspection_read(&got, root);
}

static void every_field_is_read(void) {
    CHECK(read_nodes("*10 +kind +lock +fence :7 +waiters :3 +holders *1 "
                     "*10 +token $3 a:b +ttl :100 +lease :200 +since :300 +session :4 "
                     "+limit :1"));
    CHECK_BYTES(got.token, got.token_length, "a:b", 3);
    CHECK_EQUAL((int64_t)got.fence, 7);
    CHECK_EQUAL(got.waiters, 3);
    CHECK_EQUAL(got.ttl_ms, 100);
    CHECK_EQUAL(got.lease_ms, 200);
    CHECK_EQUAL(got.since_ms, 300);
    CHECK_EQUAL(got.session, 4);
    CHECK(!got.is_string);
}

static void a_plain_string_is_told_apart(void) {
    CHECK(read_nodes("*4 $4 kind $6 string $5 token $1 t"));
    CHECK(got.is_string);
}

static void fields_of_a_newer_server_are_skipped(void) {
    CHECK(read_nodes("*8 +new *2 :1 :2 +token $1 t +other $-1 +ttl :-1"));
    CHECK_EQUAL(got.ttl_ms, -1);
}

static void replies_without_sense_are_refused(void) {
    static const char *const bad[] = {
        ":1",
        "$-1",
        "+OK",
        "*0",
        "*2 +ttl :1",
        "*1 +token",
        "*3 +token $1 t +ttl",
        "*2 +token :1",
        "*2 +token $-1",
        "*4 +token $1 t +ttl $1 5",
        "*4 +token $1 t +fence +x",
        "*4 +token $1 t +holders *0",
        "*4 +token $1 t +holders :1",
        "*4 +token $1 t +holders *1 :1",
        "*4 +token $1 t +holders *1 *1 +ttl",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        bool is_read = read_nodes(bad[i]);
        if (is_read) printf("    \"%s\"\n", bad[i]);
        CHECK(!is_read);
    }
}

static void the_queue_is_read(void) {
    dlock_waiting waiting = {0};
    const reply *queue =
        waiters_queue(parse("*4 +kind +lock +queue *1 "
                            "*10 +token $3 a:b +mode +exclusive +waited :5 +left :7 +client :9"));
    CHECK(queue != NULL && waiting_read(&waiting, reply_element(queue, 0)));
    CHECK_BYTES(waiting.token, waiting.token_length, "a:b", 3);
    CHECK_EQUAL(waiting.waited_ms, 5);
    CHECK_EQUAL(waiting.left_ms, 7);
    CHECK_EQUAL(waiting.client, 9);
}

static void queues_without_sense_are_refused(void) {
    static const char *const bad[] = {"*0", ":1", "*2 +token $1 t", "*1 +queue", "*2 +queue :1"};
    static const char *const bad_elements[] = {
        ":1", "*0", "*8 +token :1 +waited :5 +left :7 +client :9",
        "*6 +token $1 t +waited :5 +left :7", "*8 +token $1 t +waited $1 5 +left :7 +client :9"};
    dlock_waiting waiting = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(waiters_queue(parse(bad[i])) == NULL);
    for (size_t i = 0; i < sizeof(bad_elements) / sizeof(bad_elements[0]); i++)
        CHECK(!waiting_read(&waiting, parse(bad_elements[i])));
}

int main(void) {
    UNIT_RUN(the_queue_is_read);
    UNIT_RUN(queues_without_sense_are_refused);
    UNIT_RUN(every_field_is_read);
    UNIT_RUN(a_plain_string_is_told_apart);
    UNIT_RUN(fields_of_a_newer_server_are_skipped);
    UNIT_RUN(replies_without_sense_are_refused);
    resp_reader_free(&reader);
    return unit_summary();
}
