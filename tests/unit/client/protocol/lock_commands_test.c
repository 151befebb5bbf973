/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_commands_test.c - DLOCK.* commands on the wire, and what the replies mean. */
#include "protocol/lock_commands.h"

#include "reply_reader.h"

static verdict got;

/* The words, with a blank between two of them. */
static void check_words(const command *command, const char *expected) {
    char text[300] = "";
    for (int i = 0; i < command->count; i++) {
        if (i > 0) strcat(text, " ");
        strncat(text, command->words[i], command->lengths[i]);
    }
    CHECK_TEXT(text, expected);
}

static void check_command(const lock_words *words, const char *expected) {
    command made = {0};
    lock_command(&made, words);
    check_words(&made, expected);
}

TEST(an_acquire_has_the_words_that_are_wanted) {
    lock_words words = {.operation = DLOCK_ACQUIRING, .name = "n", .token = "t", .lease_ms = 5000};
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000");
    words.wait_ms = 100;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100");
    words.fence = UINT64_MAX;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 FENCE 18446744073709551615");
    words.mode = DLOCK_SHARED;
    words.max_holders = 7;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 SHARED MAX 7 "
                          "FENCE 18446744073709551615");
    words.fences = 10000;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 SHARED MAX 7 "
                          "FENCE 18446744073709551615 FENCES 10000");
}

TEST(an_acquire_names_the_session_and_how_the_lock_is_tied_to_it) {
    lock_words words = {
        .operation = DLOCK_ACQUIRING, .name = "n", .token = "t", .lease_ms = 5000, .via = "id"};
    words.wait_ms = 100;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 VIA id");
    words.is_tied = true;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 VIA id SESSION");
    words.has_grace = true;
    check_command(&words, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 VIA id SESSION GRACE 0");
    words.is_endless = true;
    check_command(&words, "DLOCK.ACQUIRE n t WAIT 100 VIA id SESSION GRACE 0");
    words.operation = DLOCK_RELEASING;
    check_command(&words, "DLOCK.RELEASE n t");
}

TEST(an_acquire_with_all_words_has_room) {
    lock_words words = {.operation = DLOCK_ACQUIRING,
                        .name = "n",
                        .token = "t",
                        .lease_ms = UINT32_MAX,
                        .wait_ms = UINT32_MAX,
                        .via = "id",
                        .is_tied = true,
                        .has_grace = true,
                        .mode = DLOCK_SHARED,
                        .max_holders = UINT32_MAX,
                        .fence = UINT64_MAX};
    check_command(&words, "DLOCK.ACQUIRE n t PX 4294967295 WAIT 4294967295 VIA id SESSION GRACE 0 "
                          "SHARED MAX 4294967295 FENCE 18446744073709551615");
}

TEST(several_names_are_counted_and_stand_before_the_token) {
    lock_words words = {.operation = DLOCK_ACQUIRING,
                        .name = "n\0other\0third",
                        .name_count = 3,
                        .token = "t",
                        .lease_ms = 5000,
                        .wait_ms = 7,
                        .via = "id",
                        .mode = DLOCK_SHARED};
    command acquire = {0}, release = {0};
    bytes sent = {0};
    lock_command(&acquire, &words);
    words.operation = DLOCK_RELEASING;
    lock_command(&release, &words);
    CHECK(command_append(&acquire, &sent) && command_append(&release, &sent));
    CHECK(bytes_append(&sent, "", 1));
    CHECK_TEXT(sent.data,
               "*13\r\n$16\r\nDLOCK.ACQUIREALL\r\n$1\r\n3\r\n$1\r\nn\r\n$5\r\nother\r\n"
               "$5\r\nthird\r\n$1\r\nt\r\n$2\r\nPX\r\n$4\r\n5000\r\n$4\r\nWAIT\r\n$1\r\n7\r\n"
               "$3\r\nVIA\r\n$2\r\nid\r\n$6\r\nSHARED\r\n"
               "*6\r\n$16\r\nDLOCK.RELEASEALL\r\n$1\r\n3\r\n$1\r\nn\r\n$5\r\nother\r\n"
               "$5\r\nthird\r\n$1\r\nt\r\n");
    free(sent.data);
}

TEST(a_heartbeat_acknowledges_the_events_that_were_seen) {
    command first = {0}, later = {0}, end = {0};
    session_command(&first, "id", 30000, 0);
    check_words(&first, "DLOCK.SESSION id PX 30000");
    session_command(&later, "id", 30000, 17);
    check_words(&later, "DLOCK.SESSION id PX 30000 ACK 17");
    session_end_command(&end, "id");
    check_words(&end, "DLOCK.SESSION id END");
}

TEST(a_lock_is_watched_by_a_session) {
    command watch = {0}, unwatch = {0};
    watch_command(&watch, "n", "id", true);
    check_words(&watch, "DLOCK.WATCH n id");
    watch_command(&unwatch, "n", "id", false);
    check_words(&unwatch, "DLOCK.UNWATCH n id");
}

TEST(only_an_acquire_names_the_mode) {
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

TEST(the_other_commands_are_short) {
    command inspect = {0};
    lock_words words = {
        .operation = DLOCK_EXTENDING, .name = "n", .token = "t", .lease_ms = UINT32_MAX};
    check_command(&words, "DLOCK.EXTEND n t PX 4294967295");
    words.operation = DLOCK_RELEASING;
    check_command(&words, "DLOCK.RELEASE n t");
    inspect_command(&inspect, "name and more", 4);
    check_words(&inspect, "DLOCK.INFO name");
}

TEST(waiting_for_replicas_always_ends) {
    command made = {0}, endless = {0};
    replicas_command(&made, 2, 500);
    check_words(&made, "WAIT 2 500");
    replicas_command(&endless, 1, 0);
    check_words(&endless, "WAIT 1 1");
}

/* -- replies */

static const reply *parse_anew(const char *bytes) {
    memset(&got, 0xff, sizeof(got)); /* so that nothing is right by chance */
    return parse(bytes);
}

static void read_acquire(const char *bytes) {
    read_acquire_reply(&got, parse_anew(bytes));
}

static void read_holder(const char *bytes) {
    read_holder_reply(&got, parse_anew(bytes));
}

static void check_verdict(dlock_status status, bool is_transient, const char *cause) {
    CHECK_EQUAL(got.status, status);
    CHECK(got.is_transient == is_transient);
    CHECK_TEXT(got.cause, cause);
}

TEST(a_fence_is_a_grant) {
    read_acquire(":42\r\n");
    check_verdict(DLOCK_OK, false, "");
    CHECK_EQUAL(got.fence, 42);
    CHECK(!got.is_fence_refused);
}

TEST(a_null_means_that_another_holds_the_lock) {
    read_acquire("*-1\r\n");
    check_verdict(DLOCK_BUSY, false, "another holds it");
    read_acquire("$-1\r\n");
    CHECK_EQUAL(got.status, DLOCK_BUSY);
    CHECK_EQUAL(got.fence, 0);
}

TEST(a_token_that_waits_is_busy_and_queued) {
    read_acquire("$-1\r\n");
    CHECK(!got.is_queued);
    read_acquire("+QUEUED\r\n");
    check_verdict(DLOCK_BUSY, false, "another holds it");
    CHECK(got.is_queued);
    CHECK_EQUAL(got.fence, 0);
}

TEST(a_session_that_the_server_does_not_know_is_noticed) {
    read_acquire("-NOSESSION no such session\r\n");
    CHECK(got.is_no_session);
    read_acquire("-ERR NOSESSION\r\n");
    CHECK(!got.is_no_session);
}

TEST(one_and_zero_tell_whether_the_token_holds_the_lock) {
    read_holder(":1\r\n");
    check_verdict(DLOCK_OK, false, "");
    read_holder(":0\r\n");
    check_verdict(DLOCK_LOST, false, "the server says that the token does not hold it");
}

TEST(a_key_of_another_type_is_held_by_nobody) {
    read_holder("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
    check_verdict(DLOCK_LOST, false, "the key has been overwritten, and is no lock any more");
}

TEST(enough_replicas_are_needed) {
    read_replicas_reply(&got, parse_anew(":2\r\n"), 2);
    check_verdict(DLOCK_OK, false, "");
    read_replicas_reply(&got, parse_anew(":1\r\n"), 2);
    check_verdict(DLOCK_NO_REPLICAS, false, "too few replicas have acknowledged it in time");
    read_replicas_reply(&got, parse_anew(":-1\r\n"), 0);
    CHECK_EQUAL(got.status, DLOCK_PROTOCOL);
    read_replicas_reply(&got, parse_anew("-ERR unknown command 'WAIT'\r\n"), 1);
    CHECK_EQUAL(got.status, DLOCK_PROTOCOL);
}

TEST(an_error_is_the_cause) {
    read_acquire("-LOADING Redis is loading the dataset in memory\r\n");
    check_verdict(DLOCK_REFUSED, true, "LOADING Redis is loading the dataset in memory");
    read_holder("-NOPERM no\r\n");
    check_verdict(DLOCK_REFUSED, false, "NOPERM no");
    CHECK(!got.is_fence_refused);
}

TEST(a_fence_far_ahead_is_refused) {
    read_acquire("-ERR FENCE must not be more than 5 minutes ahead of the server's clock\r\n");
    CHECK_EQUAL(got.status, DLOCK_REFUSED);
    CHECK(got.is_fence_refused);
}

TEST(redirects_are_noticed_and_kept_as_sent) {
    redirect redirect;
    read_acquire("-MOVED 3999 127.0.0.1:6381\r\n");
    CHECK(redirect_read(&redirect, got.cause) && !redirect.is_ask);
    CHECK(strcmp(got.cause, "MOVED 3999 127.0.0.1:6381") == 0);
    read_holder("-ASK 3999 127.0.0.1:6381\r\n");
    CHECK(redirect_read(&redirect, got.cause) && redirect.is_ask);
}

TEST(a_long_error_is_cut) {
    char bytes[1000];
    memset(bytes, 'x', sizeof(bytes));
    memcpy(bytes, "-OOM ", 5);
    memcpy(bytes + sizeof(bytes) - 3, "\r\n", 3);
    read_holder(bytes);
    CHECK_EQUAL(got.status, DLOCK_REFUSED);
    CHECK_EQUAL(strlen(got.cause), DLOCK_CAUSE_SIZE - 1);
}

TEST(other_replies_make_no_sense) {
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

/* -- sessions */

static session_event event;

static bool read_event(const char *bytes) {
    memset(&event, 0xff, sizeof(event));
    return session_event_read(&event, parse(bytes));
}

static void check_event(session_event_kind kind, int64_t number, const char *token) {
    CHECK_EQUAL(event.kind, kind);
    CHECK_EQUAL(event.number, number);
    CHECK_BYTES(event.name, event.name_length, "name", 4);
    CHECK_BYTES(event.token == NULL ? "" : event.token, event.token_length, token, strlen(token));
}

TEST(a_session_replies_with_its_number_and_events) {
    const reply *events;
    int64_t born;
    CHECK(read_session_reply(parse("*2\r\n:5\r\n*0\r\n"), &born, &events));
    CHECK_EQUAL(born, 5);
    CHECK_EQUAL(events->count, 0);
    CHECK(read_session_reply(parse("*2\r\n:6\r\n*1\r\n:1\r\n"), &born, &events));
    CHECK_EQUAL(events->count, 1);
}

TEST(other_replies_to_a_session_make_no_sense) {
    static const char *const replies[] = {"-NOPERM no\r\n",
                                          "$-1\r\n",
                                          ":5\r\n",
                                          "*0\r\n",
                                          "*1\r\n:5\r\n",
                                          "*2\r\n:5\r\n:5\r\n",
                                          "*2\r\n:5\r\n$-1\r\n",
                                          "*2\r\n+5\r\n*0\r\n"};
    const reply *events;
    int64_t born;
    for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++)
        CHECK(!read_session_reply(parse(replies[i]), &born, &events));
}

#define NAMED "$4\r\nname\r\n"

TEST(an_event_tells_of_a_grant) {
    CHECK(read_event("*6\r\n:3\r\n+granted\r\n" NAMED "$1\r\nt\r\n:42\r\n:7\r\n"));
    check_event(EVENT_GRANTED, 3, "t");
    CHECK_EQUAL(event.fence, 42);
    CHECK_EQUAL(event.age_ms, 7);
}

TEST(an_event_tells_of_a_wait_that_ended) {
    CHECK(read_event("*5\r\n:3\r\n+ended\r\n" NAMED "$1\r\nt\r\n$7\r\ntimeout\r\n"));
    check_event(EVENT_ENDED, 3, "t");
    memset(&got, 0xff, sizeof(got));
    read_ended_event(&got, &event);
    check_verdict(DLOCK_BUSY, false, "another holds it");
    CHECK(read_event("*5\r\n:4\r\n+ended\r\n" NAMED "$1\r\nt\r\n$8\r\nreleased\r\n"));
    read_ended_event(&got, &event);
    CHECK_EQUAL(got.status, DLOCK_BUSY);
    CHECK(read_event("*5\r\n:5\r\n+ended\r\n" NAMED "$1\r\nt\r\n$9\r\nNOPERM no\r\n"));
    read_ended_event(&got, &event);
    check_verdict(DLOCK_REFUSED, false, "NOPERM no");
    CHECK(read_event("*5\r\n:5\r\n+ended\r\n" NAMED "$1\r\nt\r\n$11\r\nREADONLY no\r\n"));
    read_ended_event(&got, &event);
    check_verdict(DLOCK_REFUSED, true, "READONLY no");
}

TEST(an_event_tells_of_a_loss) {
    CHECK(read_event("*5\r\n:3\r\n+lost\r\n" NAMED "$1\r\nt\r\n$7\r\ndeleted\r\n"));
    check_event(EVENT_LOST, 3, "t");
    CHECK(reply_is_text(event.why, "deleted"));
    CHECK(read_event("*5\r\n:3\r\n+lost\r\n" NAMED "$0\r\n\r\n$7\r\nflushed\r\n"));
    check_event(EVENT_LOST, 3, "");
}

TEST(an_event_tells_of_a_change) {
    CHECK(read_event("*4\r\n:3\r\n+changed\r\n" NAMED "$1\r\nt\r\n"));
    check_event(EVENT_CHANGED, 3, "t");
    CHECK(read_event("*4\r\n:3\r\n+changed\r\n" NAMED "$0\r\n\r\n"));
    check_event(EVENT_CHANGED, 3, "");
    CHECK(read_event("*4\r\n:3\r\n+changed\r\n" NAMED "$-1\r\n"));
    check_event(EVENT_CHANGED, 3, "");
}

TEST(an_event_tells_of_a_watch_that_ended) {
    CHECK(read_event("*5\r\n:3\r\n+ended\r\n" NAMED "$0\r\n\r\n$5\r\nmoved\r\n"));
    check_event(EVENT_WATCH_ENDED, 3, "");
}

TEST(other_events_make_no_sense) {
    static const char *const events[] = {
        ":3\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*3\r\n:3\r\n+changed\r\n" NAMED,
        "*4\r\n+3\r\n+changed\r\n" NAMED "$1\r\nt\r\n",
        "*4\r\n:3\r\n+newer\r\n" NAMED "$1\r\nt\r\n",
        "*4\r\n:3\r\n:1\r\n" NAMED "$1\r\nt\r\n",
        "*4\r\n:3\r\n+changed\r\n:1\r\n$1\r\nt\r\n",
        "*4\r\n:3\r\n+lost\r\n" NAMED "$1\r\nt\r\n",
        "*5\r\n:3\r\n+lost\r\n" NAMED "$-1\r\n$7\r\ndeleted\r\n",
        "*5\r\n:3\r\n+granted\r\n" NAMED "$1\r\nt\r\n:42\r\n",
        "*6\r\n:3\r\n+granted\r\n" NAMED "$1\r\nt\r\n:0\r\n:7\r\n",
        "*6\r\n:3\r\n+granted\r\n" NAMED "$1\r\nt\r\n:42\r\n:-1\r\n",
        "*6\r\n:3\r\n+granted\r\n" NAMED "$1\r\nt\r\n:42\r\n:9223372036854775807\r\n",
        "*6\r\n:3\r\n+granted\r\n" NAMED "$1\r\nt\r\n+42\r\n:7\r\n",
        "*6\r\n:3\r\n+granted\r\n" NAMED "$-1\r\n:42\r\n:7\r\n"};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        CHECK(!read_event(events[i]));
}

int main(void) {
    return unit_main(NULL, free_reader);
}
