/* SPDX-License-Identifier: BSD-3-Clause */
/* inspection_test.c - the reply of DLOCK.INFO. */
#include "protocol/lock_commands.h"

#include "unit.h"

static resp_reader reader;
static dlock_inspection got;

/* Blanks separate the nodes: "*2 +ttl :5". */
static bool read_nodes(const char *nodes) {
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
    got = (dlock_inspection){.struct_size = sizeof(got)};
    CHECK_EQUAL(resp_read(&reader, bytes, size + 2, &root, &used), RESP_REPLY);
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

int main(void) {
    UNIT_RUN(every_field_is_read);
    UNIT_RUN(a_plain_string_is_told_apart);
    UNIT_RUN(fields_of_a_newer_server_are_skipped);
    UNIT_RUN(replies_without_sense_are_refused);
    resp_reader_free(&reader);
    return unit_summary();
}
