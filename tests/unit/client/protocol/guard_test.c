/* SPDX-License-Identifier: BSD-3-Clause */
/* guard_test.c - DLOCK.GUARD on the wire, and what the reply of the inner command becomes. */
#include "protocol/lock_commands.h"

#include "reply_reader.h"

static verdict got;
static char room[8];
static dlock_reply value;

static void read_bytes(const char *bytes, dlock_reply *wanted) {
    memset(&got, 0xff, sizeof(got));
    memset(room, '#', sizeof(room));
    dlock_reply_init(&value, room, sizeof(room) - 1);
    read_guard_reply(&got, wanted, parse(bytes));
}

static void check_value(const char *bytes, dlock_reply_kind kind, int64_t integer, const char *text,
                        size_t length) {
    read_bytes(bytes, &value);
    CHECK_EQUAL(got.status, DLOCK_OK);
    CHECK_EQUAL(value.kind, kind);
    CHECK_EQUAL(value.integer, integer);
    CHECK_EQUAL(value.text_length, length);
    CHECK_BYTES(room, strlen(text) + 1, text, strlen(text) + 1);
    CHECK(room[sizeof(room) - 1] == '#');
}

static void check_error(const char *bytes, dlock_status status, bool is_transient) {
    read_bytes(bytes, &value);
    CHECK_EQUAL(got.status, status);
    CHECK(got.is_transient == is_transient);
    CHECK_EQUAL(value.kind, DLOCK_REPLY_NULL);
}

TEST(the_words_of_the_command_follow_name_and_token) {
    bytes out = {0};
    const char expected[] = "*6\r\n$11\r\nDLOCK.GUARD\r\n$1\r\nn\r\n$1\r\nt\r\n"
                            "$3\r\nSET\r\n$1\r\nk\r\n$3\r\na\0b\r\n";
    guarded_words words = {.count = 3,
                           .words = (const char *const[]){"SET", "k", "a\0b"},
                           .lengths = (const size_t[]){3, 1, 3}};
    command made = {0};
    guard_command(&made, "n", "t", &words);
    CHECK(command_append(&made, &out));
    CHECK_BYTES(out.data, out.size, expected, sizeof(expected) - 1);
    free(out.data);
}

TEST(the_reply_is_a_text_a_number_or_nothing) {
    check_value("+OK\r\n", DLOCK_REPLY_TEXT, 0, "OK", 2);
    check_value("$3\r\nabc\r\n", DLOCK_REPLY_TEXT, 0, "abc", 3);
    check_value("$0\r\n\r\n", DLOCK_REPLY_TEXT, 0, "", 0);
    check_value(":-7\r\n", DLOCK_REPLY_INTEGER, -7, "", 0);
    check_value("$-1\r\n", DLOCK_REPLY_NULL, 0, "", 0);
    check_value("*-1\r\n", DLOCK_REPLY_NULL, 0, "", 0);
}

TEST(of_an_array_only_the_number_of_elements_is_kept) {
    check_value("*2\r\n$1\r\na\r\n*1\r\n:1\r\n", DLOCK_REPLY_ARRAY, 2, "", 0);
}

TEST(a_text_that_does_not_fit_is_cut_and_its_length_is_told) {
    check_value("$6\r\nabcdef\r\n", DLOCK_REPLY_TEXT, 0, "abcdef", 6);
    check_value("$7\r\nabcdefg\r\n", DLOCK_REPLY_TEXT, 0, "abcdef", 7);
}

TEST(a_reply_that_nobody_wants_is_skipped) {
    read_bytes("$3\r\nabc\r\n", NULL);
    CHECK_EQUAL(got.status, DLOCK_OK);
    dlock_reply bare;
    dlock_reply_init(&bare, NULL, 0);
    read_bytes("$3\r\nabc\r\n", &bare);
    CHECK_EQUAL(bare.kind, DLOCK_REPLY_TEXT);
    CHECK_EQUAL(bare.text_length, 3);
}

TEST(a_token_that_does_not_hold_the_lock_has_lost_it) {
    check_error("-NOTHELD the token does not hold the lock\r\n", DLOCK_LOST, false);
}

TEST(an_error_of_the_command_is_a_refusal) {
    check_error("-WRONGTYPE Operation against a key\r\n", DLOCK_REFUSED, false);
    check_error("-ERR unknown command 'FOO'\r\n", DLOCK_REFUSED, false);
    check_error("-ERR value is not an integer or out of range\r\n", DLOCK_REFUSED, false);
    CHECK_BYTES(got.cause, 44, "ERR value is not an integer or out of range", 44);
    check_error("-OOM command not allowed\r\n", DLOCK_REFUSED, false);
    check_error("-QUEUEFULL of another module\r\n", DLOCK_REFUSED, false);
}

TEST(a_server_that_is_not_ready_may_be_tried_again) {
    check_error("-LOADING Redis is loading\r\n", DLOCK_REFUSED, true);
    check_error("-READONLY You can't write\r\n", DLOCK_REFUSED, true);
}

TEST(redirects_are_noticed) {
    redirect redirect;
    read_bytes("-MOVED 1 127.0.0.1:2\r\n", &value);
    CHECK(redirect_read(&redirect, got.cause) && !redirect.is_ask);
    read_bytes("-ASK 1 127.0.0.1:2\r\n", &value);
    CHECK(redirect_read(&redirect, got.cause) && redirect.is_ask);
}

TEST(a_server_without_the_module_is_no_refusal) {
    read_bytes("-ERR unknown command 'DLOCK.GUARD', with args beginning with: 'n' \r\n", &value);
    CHECK(got.status != DLOCK_REFUSED && got.status != DLOCK_OK);
}

int main(void) {
    return unit_main(NULL, free_reader);
}
