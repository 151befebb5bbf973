/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_commands_test.c - DLOCK.* commands on the wire, and what the replies mean. */
#include "protocol/lock_commands.h"

#include "unit.h"

static resp_reader reader;
static verdict got;

/* The words, with a blank between two of them. */
static void check_words(const command *command, const char *expected) {
    char text[300] = "";
    for (int i = 0; i < command->count; i++) {
        if (i > 0) strcat(text, " ");
        strncat(text, command->words[i], command->lengths[i]);
    }
    CHECK_BYTES(text, strlen(text), expected, strlen(expected));
}

static void check_command(const lock_words *words, const char *expected) {
    command made = {0};
    lock_command(&made, words);
    check_words(&made, expected);
}

static void an_acquire_has_the_words_that_are_wanted(void) {
    lock_words words = {.operation = DLOCK_ACQUIRING, .name = "n", .token = "t", .lease_ms = 5000};
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000");
    words.wait_ms = 100;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100");
    words.is_session = true;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 SESSION");
    words.fence = UINT64_MAX;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 SESSION FENCE 18446744073709551615");
    words.mode = DLOCK_SHARED;
    words.max_holders = 7;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 SESSION SHARED MAX 7 "
                          "FENCE 18446744073709551615");
}

static void only_an_acquire_names_the_mode(void) {
    lock_words words = {.operation = DLOCK_ACQUIRING,
                        .name = "n",
                        .token = "t",
                        .lease_ms = 5000,
                        .mode = DLOCK_SHARED};
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 SHARED");
    words.max_holders = 2147483647;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 SHARED MAX 2147483647");
    words.operation = DLOCK_EXTENDING;
    check_command(&words, "DLOCK.EXTEND n t PX 5000");
    words.operation = DLOCK_RELEASING;
    check_command(&words, "DLOCK.RELEASE n t");
}

static void the_other_commands_are_short(void) {
    command inspect = {0};
    lock_words words = {
        .operation = DLOCK_EXTENDING, .name = "n", .token = "t", .lease_ms = UINT32_MAX};
    check_command(&words, "DLOCK.EXTEND n t PX 4294967295");
    words.operation = DLOCK_RELEASING;
    check_command(&words, "DLOCK.RELEASE n t");
    inspect_command(&inspect, "name and more", 4);
    check_words(&inspect, "DLOCK.INFO name");
}

static void waiting_for_replicas_always_ends(void) {
    command made = {0}, endless = {0};
    replicas_command(&made, 2, 500);
    check_words(&made, "WAIT 2 500");
    replicas_command(&endless, 1, 0);
    check_words(&endless, "WAIT 1 1");
}

/* -- replies */

static const reply *parse(const char *bytes) {
    const reply *root = NULL;
    size_t used;
    memset(&got, 0xff, sizeof(got));
    CHECK_EQUAL(resp_read(&reader, bytes, strlen(bytes), &root, &used), RESP_REPLY);
    return root;
}

static void read_acquire(const char *bytes) {
    read_acquire_reply(&got, parse(bytes));
}

static void read_holder(const char *bytes) {
    read_holder_reply(&got, parse(bytes));
}

static void check_verdict(dlock_status status, bool is_transient, const char *cause) {
    CHECK_EQUAL(got.status, status);
    CHECK(got.is_transient == is_transient);
    CHECK_BYTES(got.cause, strlen(got.cause), cause, strlen(cause));
}

static void a_fence_is_a_grant(void) {
    read_acquire(":42\r\n");
    check_verdict(DLOCK_OK, false, "");
    CHECK_EQUAL((int64_t)got.fence, 42);
    CHECK(!got.is_fence_refused);
}

static void a_null_means_that_another_holds_the_lock(void) {
    read_acquire("*-1\r\n");
    check_verdict(DLOCK_BUSY, false, "another holds it");
    read_acquire("$-1\r\n");
    CHECK_EQUAL(got.status, DLOCK_BUSY);
    CHECK_EQUAL((int64_t)got.fence, 0);
}

static void one_and_zero_tell_whether_the_token_holds_the_lock(void) {
    read_holder(":1\r\n");
    check_verdict(DLOCK_OK, false, "");
    read_holder(":0\r\n");
    check_verdict(DLOCK_LOST, false, "the server says that the token does not hold it");
}

static void a_key_of_another_type_is_held_by_nobody(void) {
    read_holder("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
    check_verdict(DLOCK_LOST, false, "the key has been overwritten, and is no lock any more");
}

static void enough_replicas_are_needed(void) {
    read_replicas_reply(&got, parse(":2\r\n"), 2);
    check_verdict(DLOCK_OK, false, "");
    read_replicas_reply(&got, parse(":1\r\n"), 2);
    check_verdict(DLOCK_NO_REPLICAS, false, "too few replicas have acknowledged it in time");
    read_replicas_reply(&got, parse(":-1\r\n"), 0);
    CHECK_EQUAL(got.status, DLOCK_PROTOCOL);
    read_replicas_reply(&got, parse("-ERR unknown command 'WAIT'\r\n"), 1);
    CHECK_EQUAL(got.status, DLOCK_PROTOCOL);
}

static void an_error_is_the_cause(void) {
    read_acquire("-LOADING Redis is loading the dataset in memory\r\n");
    check_verdict(DLOCK_REFUSED, true, "LOADING Redis is loading the dataset in memory");
    read_holder("-NOPERM no\r\n");
    check_verdict(DLOCK_REFUSED, false, "NOPERM no");
    CHECK(!got.is_fence_refused);
}

static void a_fence_far_ahead_is_refused(void) {
    read_acquire("-ERR FENCE must not be more than 5 minutes ahead of the server's clock\r\n");
    CHECK_EQUAL(got.status, DLOCK_REFUSED);
    CHECK(got.is_fence_refused);
}

static void redirects_are_noticed_and_kept_as_sent(void) {
    redirect redirect;
    read_acquire("-MOVED 3999 127.0.0.1:6381\r\n");
    CHECK(redirect_read(&redirect, got.cause) && !redirect.is_ask);
    CHECK(strcmp(got.cause, "MOVED 3999 127.0.0.1:6381") == 0);
    read_holder("-ASK 3999 127.0.0.1:6381\r\n");
    CHECK(redirect_read(&redirect, got.cause) && redirect.is_ask);
}

static void a_long_error_is_cut(void) {
    char bytes[1000];
    memset(bytes, 'x', sizeof(bytes));
    memcpy(bytes, "-OOM ", 5);
    memcpy(bytes + sizeof(bytes) - 3, "\r\n", 3);
    read_holder(bytes);
    CHECK_EQUAL(got.status, DLOCK_REFUSED);
    CHECK_EQUAL((int64_t)strlen(got.cause), DLOCK_CAUSE_SIZE - 1);
}

static void other_replies_make_no_sense(void) {
    static const char *const replies[] = {"+OK\r\n", "$1\r\n1\r\n", ":-1\r\n", "*1\r\n:1\r\n",
                                          "*0\r\n"};
    const char *cause = "the server sent a reply that makes no sense";
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
        read_acquire(replies[i]);
        check_verdict(DLOCK_PROTOCOL, false, cause);
        read_holder(replies[i]);
        check_verdict(DLOCK_PROTOCOL, false, cause);
    }
    read_acquire(":0\r\n");
    check_verdict(DLOCK_PROTOCOL, false, cause);
    read_holder(":2\r\n");
    check_verdict(DLOCK_PROTOCOL, false, cause);
    read_holder("$-1\r\n");
    check_verdict(DLOCK_PROTOCOL, false, cause);
}

int main(void) {
    UNIT_RUN(an_acquire_has_the_words_that_are_wanted);
    UNIT_RUN(only_an_acquire_names_the_mode);
    UNIT_RUN(the_other_commands_are_short);
    UNIT_RUN(waiting_for_replicas_always_ends);
    UNIT_RUN(a_fence_is_a_grant);
    UNIT_RUN(a_null_means_that_another_holds_the_lock);
    UNIT_RUN(one_and_zero_tell_whether_the_token_holds_the_lock);
    UNIT_RUN(a_key_of_another_type_is_held_by_nobody);
    UNIT_RUN(enough_replicas_are_needed);
    UNIT_RUN(an_error_is_the_cause);
    UNIT_RUN(a_fence_far_ahead_is_refused);
    UNIT_RUN(redirects_are_noticed_and_kept_as_sent);
    UNIT_RUN(a_long_error_is_cut);
    UNIT_RUN(other_replies_make_no_sense);
    resp_reader_free(&reader);
    return unit_summary();
}
