/* SPDX-License-Identifier: BSD-3-Clause */
/* plain_commands_test.c - locks of plain Redis on the wire, and what the replies mean. The scripts
 * themselves are run by tests/client/test_plain.py. */
#include "protocol/lock_commands.h"

#include "reply_reader.h"
#include <stdlib.h>

static verdict got;

static lock_words words_for(dlock_operation operation) {
    return (lock_words){.operation = operation, .name = "n", .token = "t", .lease_ms = 5000};
}

/* The words, with a blank between two of them. */
static void check_command(const lock_words *words, const char *expected) {
    char text[600] = "";
    command made = {0};
    plain_protocol.write(&made, words);
    for (int i = 0; i < made.count; i++) {
        if (i > 0) strcat(text, " ");
        strncat(text, made.words[i], made.lengths[i]);
    }
    CHECK_TEXT(text, expected);
}

static void check_script(dlock_operation operation, const char *script, const char *arguments) {
    char expected[600];
    lock_words words = words_for(operation);
    words.is_repeated = true;
    snprintf(expected, sizeof(expected), "EVAL %s 1 n t%s", script, arguments);
    check_command(&words, expected);
}

TEST(the_first_acquire_is_a_set) {
    lock_words words = words_for(DLOCK_ACQUIRING);
    check_command(&words, "SET n t NX PX 5000");
    words.has_hash = true;
    check_command(&words, "SET n t NX PX 5000");
}

TEST(the_rest_are_scripts) {
    check_script(DLOCK_ACQUIRING, plain_acquire, " 5000");
    check_script(DLOCK_EXTENDING, plain_extend, " 5000");
    check_script(DLOCK_RELEASING, plain_release, "");
}

TEST(a_script_can_be_named_by_its_hash) {
    lock_words words = words_for(DLOCK_RELEASING);
    words.has_hash = true;
    check_command(&words, "EVALSHA 3518922bc982336f43f932c6665d05e5d564b4bd 1 n t");
}

/* -- replies */

static const reply *parse_anew(const char *bytes) {
    memset(&got, 0xff, sizeof(got)); /* so that nothing is right by chance */
    return parse(bytes);
}

static dlock_status acquire_reply(const char *bytes) {
    plain_protocol.read_acquire(&got, parse_anew(bytes));
    return got.status;
}

static dlock_status holder_reply(const char *bytes) {
    read_holder_reply(&got, parse_anew(bytes));
    return got.status;
}

TEST(a_grant_has_no_fence) {
    CHECK_EQUAL(acquire_reply("+OK\r\n"), DLOCK_OK);
    CHECK_EQUAL(got.fence, 0);
    CHECK_EQUAL(acquire_reply(":1\r\n"), DLOCK_OK);
    CHECK_EQUAL(got.fence, 0);
}

TEST(a_key_that_is_there_is_busy) {
    CHECK_EQUAL(acquire_reply("$-1\r\n"), DLOCK_BUSY);
    CHECK_EQUAL(acquire_reply("*-1\r\n"), DLOCK_BUSY);
    CHECK_EQUAL(acquire_reply(":0\r\n"), DLOCK_BUSY);
}

TEST(one_and_zero_tell_whether_the_token_holds_the_lock) {
    CHECK_EQUAL(holder_reply(":1\r\n"), DLOCK_OK);
    CHECK_EQUAL(holder_reply(":0\r\n"), DLOCK_LOST);
}

TEST(an_unknown_script_is_noticed) {
    holder_reply("-NOSCRIPT No matching script. Please use EVAL.\r\n");
    CHECK_EQUAL(got.hint, HINT_NO_SCRIPT);
    holder_reply(":1\r\n");
    CHECK(got.hint != HINT_NO_SCRIPT);
}

TEST(other_replies_make_no_sense) {
    CHECK_EQUAL(acquire_reply(":7\r\n"), DLOCK_PROTOCOL);
    CHECK_EQUAL(acquire_reply("+QUEUED\r\n"), DLOCK_PROTOCOL);
    CHECK_EQUAL(holder_reply("+OK\r\n"), DLOCK_PROTOCOL);
    CHECK_EQUAL(acquire_reply("-READONLY x\r\n"), DLOCK_REFUSED);
    CHECK(got.is_transient);
}

/* -- inspection */

static bool see(dlock_inspection *seen, const char *value, const char *ttl) {
    reply *kept = reply_copy(parse_anew(value));
    *seen = (dlock_inspection){.struct_size = sizeof(*seen)};
    bool is_there = string_read(seen, kept, parse_anew(ttl));
    if (is_there) CHECK_BYTES(seen->token, seen->token_length, "me", 2);
    free(kept);
    return is_there;
}

TEST(a_string_is_a_lock_with_one_holder) {
    dlock_inspection seen;
    CHECK(see(&seen, "$2\r\nme\r\n", ":70\r\n"));
    CHECK(seen.is_string);
    CHECK_EQUAL(seen.ttl_ms, 70);
    CHECK_EQUAL(seen.holders, 1);
    CHECK(see(&seen, "$2\r\nme\r\n", ":-1\r\n"));
    CHECK_EQUAL(seen.ttl_ms, -1);
}

TEST(a_string_that_has_just_ended_is_no_lock) {
    dlock_inspection seen;
    CHECK(!see(&seen, "$2\r\nme\r\n", ":-2\r\n"));
    CHECK(!see(&seen, "$-1\r\n", ":-2\r\n"));
}

int main(void) {
    return unit_main(NULL, free_reader);
}
