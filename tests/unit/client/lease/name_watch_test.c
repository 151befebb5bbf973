/* SPDX-License-Identifier: BSD-3-Clause */
/* name_watch_test.c - names that are read now and after each change. Link 0: the session. Link 1:
 * the command connection, which watches and reads. */
#include "client/deployment/routed_world.h"

#include "lease/name_watch.h"

enum { RETRY_MS = 100 };

#define WATCH        "DLOCK.WATCH lock ID; "
#define UNWATCH      "DLOCK.UNWATCH lock ID"
#define INFO         "DLOCK.INFO lock"
#define OK           "+OK\r\n"
#define FREE         "$-1\r\n"
#define STRING       "*2\r\n+kind\r\n+string\r\n"
#define NAMED(name)  "\r\n$4\r\n" name "\r\n"
#define CHANGED(n)   "*4\r\n:" n "\r\n+changed" NAMED("lock") "$5\r\nother\r\n"
#define ELSEWHERE(n) "*4\r\n:" n "\r\n+changed" NAMED("door") "$5\r\nother\r\n"
#define OVER(n)      "*5\r\n:" n "\r\n+ended" NAMED("lock") "$0\r\n\r\n+moved\r\n"

static struct {
    name_watch name;
    int reads;
    reply_kind last;
    bool removes;
} seen;

static void on_read(name_watch *watch, server *server, const reply *info) {
    CHECK(watch == &seen.name);
    CHECK(server == stage.known);
    CHECK(info->kind != REPLY_STATUS); /* the reply to WATCH */
    seen.reads++;
    seen.last = info->kind;
    if (seen.removes) name_watch_end(watch);
}

static void begin_reading(void) {
    name_watch_begin(&seen.name, stage.deployment, NAME, on_read);
}

static void begin_session(void) {
    begin_stage();
    memset(&seen, 0, sizeof(seen));
    begin_reading();
    settle();
}

/* The session is open, and the name is asked for. */
static void begin_watch(void) {
    begin_session();
    open_session(0);
    CHECK_HEARD(1, WATCH INFO);
}

/* The name was read once, and is free. */
static void read_once(void) {
    begin_watch();
    say(1, OK FREE);
    CHECK_EQUAL(seen.reads, 1);
}

/* The session tells this; its next call acknowledges the event with this number. */
static void tell(const char *events, const char *number) {
    char expected[64];
    snprintf(expected, sizeof(expected), SESSION " ACK %s", number);
    say(0, events);
    CHECK_HEARD(0, expected);
}

static void end_reading(void) {
    name_watch_end(&seen.name);
    end_stage();
}

TEST(a_name_is_watched_and_read_once_the_session_is_open) {
    begin_session();
    CHECK_EQUAL(the_peer.link_count, 1);
    open_session(0);
    CHECK_HEARD(1, WATCH INFO);
    say(1, OK FREE);
    CHECK_EQUAL(seen.reads, 1);
    CHECK_EQUAL(seen.last, REPLY_NIL);
    pass_ms(SESSION_MS / 3);
    say(0, EVENTS("0"));
    CHECK_EQUAL(seen.reads, 1);
    CHECK_HEARD(1, "");
}

TEST(an_event_makes_the_name_be_read_again) {
    read_once();
    tell(EVENTS("1") CHANGED("1"), "1");
    CHECK_HEARD(1, INFO);
    say(1, FREE);
    CHECK_EQUAL(seen.reads, 2);
    tell(EVENTS("1") CHANGED("2"), "2");
    CHECK_HEARD(1, INFO);
    say(1, FREE);
    CHECK_EQUAL(seen.reads, 3);
}

TEST(an_event_of_another_name_is_ignored) {
    read_once();
    tell(EVENTS("1") ELSEWHERE("1"), "1");
    CHECK_HEARD(1, "");
}

TEST(an_event_during_a_read_is_not_forgotten) {
    read_once();
    tell(EVENTS("1") CHANGED("1"), "1");
    tell(EVENTS("2") CHANGED("2") CHANGED("3"), "3");
    CHECK_HEARD(1, INFO);
    say(1, FREE);
    CHECK_EQUAL(seen.reads, 2);
    CHECK_HEARD(1, INFO);
    say(1, FREE);
    CHECK_EQUAL(seen.reads, 3);
    CHECK_HEARD(1, "");
}

TEST(an_event_may_overtake_the_reply_to_the_watch) {
    begin_watch();
    tell(EVENTS("1") CHANGED("1"), "1");
    say(1, OK FREE);
    CHECK_EQUAL(seen.reads, 1);
    CHECK_HEARD(1, INFO);
    say(1, FREE);
    CHECK_EQUAL(seen.reads, 2);
}

TEST(a_lost_command_connection_makes_the_name_be_read_again) {
    read_once();
    tell(EVENTS("1") CHANGED("1"), "1");
    hang_up(1);
    CHECK_EQUAL(the_peer.link_count, 2);
    pass_ms(RETRY_MS);
    CHECK_HEARD(2, WATCH INFO);
    say(2, OK FREE);
    CHECK_EQUAL(seen.reads, 2);
}

TEST(a_session_that_goes_on_over_a_new_connection_has_its_watches) {
    read_once();
    hang_up(0);
    open_session(2);
    CHECK_HEARD(1, "");
    say(2, EVENTS("1") CHANGED("1"));
    CHECK_HEARD(1, INFO);
}

TEST(a_watch_that_was_not_confirmed_is_repeated) {
    begin_watch();
    link_end(link_at(1));
    hang_up(0);
    pass_ms(RETRY_MS);
    open_session(2);
    CHECK_HEARD(3, WATCH INFO);
    say(3, OK FREE);
    CHECK_EQUAL(seen.reads, 1);
}

TEST(a_server_that_has_forgotten_the_session_gets_the_watch_again) {
    read_once();
    hang_up(0);
    CHECK_HEARD(2, SESSION);
    say(2, "*2\r\n:2\r\n*0\r\n");
    CHECK_HEARD(1, WATCH INFO);
    say(1, OK FREE);
    CHECK_EQUAL(seen.reads, 2);
}

TEST(a_server_that_does_not_know_the_session_gets_it_again) {
    begin_watch();
    say(1, "-NOSESSION no\r\n" FREE);
    CHECK(!link_at(0)->is_open);
    CHECK_HEARD(2, SESSION);
    say(2, "*2\r\n:2\r\n*0\r\n");
    CHECK_HEARD(1, WATCH INFO);
}

/* The name has left the session by then. */
TEST(a_server_that_does_not_know_the_session_may_say_so_late) {
    begin_watch();
    tell(EVENTS("1") OVER("1"), "1");
    say(1, "-NOSESSION no\r\n" FREE);
    CHECK_EQUAL(seen.reads, 1);
}

TEST(a_stalled_read_is_repeated_on_the_next_connection) {
    read_once();
    tell(EVENTS("1") CHANGED("1"), "1");
    CHECK_HEARD(1, INFO);
    pass_ms(IO_MS);
    tell(EVENTS("1") CHANGED("2"), "2");
    hang_up(1);
    pass_ms(RETRY_MS);
    CHECK_HEARD(2, WATCH INFO);
}

TEST(a_watch_that_is_over_begins_again_after_a_pause) {
    read_once();
    tell(EVENTS("1") OVER("1"), "1");
    CHECK(stage.router.is_doubted);
    CHECK_HEARD(1, "");
    pass_ms(RETRY_MS);
    CHECK_HEARD(1, WATCH INFO);
}

TEST(a_name_that_another_server_has_is_watched_there) {
    read_once();
    stage.known = stage.b;
    hang_up(0);
    pass_ms(RETRY_MS);
    open_session(2);
    CHECK_HEARD(1, "");
    CHECK_HEARD(3, WATCH INFO);
    CHECK_EQUAL(the_peer.link_count, 4); /* nobody needs the session at the first server */
}

TEST(a_redirect_is_followed) {
    read_once();
    tell(EVENTS("1") CHANGED("1"), "1");
    stage.next = stage.b;
    say(1, "-MOVED 1 127.0.0.1:2\r\n");
    CHECK_EQUAL(stage.follows, 1);
    stage.known = stage.b;
    pass_ms(RETRY_MS);
    open_session(2);
    CHECK_HEARD(3, WATCH INFO);
    say(3, OK FREE);
    CHECK_EQUAL(seen.reads, 2);
}

TEST(a_server_that_is_busy_is_asked_again) {
    begin_watch();
    say(1, "-BUSY x\r\n-BUSY x\r\n");
    pass_ms(RETRY_MS);
    CHECK_HEARD(1, WATCH INFO);
}

/* -- errors that last */

static const char *refuse_sessions(const char *command) {
    return strncmp(command, "DLOCK.SESSION", 13) == 0 ? "-NOPERM no\r\n" : FREE;
}

TEST(without_permission_for_a_session_a_name_is_read_every_second) {
    begin_session();
    the_peer.answer = refuse_sessions;
    say(0, "-NOPERM no\r\n");
    CHECK_EQUAL(seen.reads, 1);
    pass_ms(10 * (WATCH_POLL_MS + 1000));
    CHECK(seen.reads > 5 && seen.reads <= 21);
}

TEST(a_name_whose_watch_is_refused_is_read_every_second) {
    begin_session();
    open_session(0);
    for (int i = 1; i < 3; i++) {
        CHECK_HEARD(1, WATCH INFO);
        say(1, "-NOPERM no\r\n" FREE);
        CHECK_EQUAL(seen.reads, i);
        pass_ms(WATCH_POLL_MS - 1);
        CHECK_HEARD(1, "");
        pass_ms(1);
    }
}

TEST(a_string_is_read_every_second) {
    begin_watch();
    say(1, OK STRING);
    CHECK_EQUAL(seen.reads, 1);
    pass_ms(WATCH_POLL_MS - 1);
    CHECK_HEARD(1, "");
    pass_ms(1);
    CHECK_HEARD(1, WATCH INFO);
}

TEST(a_string_whose_time_came_while_the_session_was_away_is_read_once_it_goes_on) {
    begin_watch();
    say(1, OK STRING);
    pass_ms(WATCH_POLL_MS - 10);
    hang_up(0);
    pass_ms(10);
    CHECK_HEARD(1, "");
    open_session(2);
    CHECK_HEARD(1, WATCH INFO);
    say(1, OK STRING);
    pass_ms(WATCH_POLL_MS);
    CHECK_HEARD(1, WATCH INFO);
}

/* -- the end */

TEST(a_name_may_be_removed_when_it_is_told) {
    read_once();
    seen.removes = true;
    tell(EVENTS("2") CHANGED("1") CHANGED("2"), "2");
    CHECK_HEARD(1, INFO);
    say(1, FREE);
    CHECK_EQUAL(seen.reads, 2);
    CHECK_HEARD(1, UNWATCH);
    tell(EVENTS("1") CHANGED("3"), "3");
    CHECK_EQUAL(seen.reads, 2);
}

TEST(a_name_that_was_removed_can_be_added_again) {
    read_once();
    name_watch_end(&seen.name);
    name_watch_end(&seen.name);
    settle();
    CHECK_HEARD(1, UNWATCH);
    begin_reading();
    begin_reading();
    settle();
    CHECK_HEARD(1, WATCH INFO);
}

/* The server has one watch for the session, however many are interested. */
TEST(a_name_that_another_watches_too_stays_watched) {
    read_once();
    lease lease;
    name_watch other = {0};
    lease_init(&lease, &(lease_rule){.lease_ms = 600000});
    lock_watch_begin(&other, stage.deployment, &lease, NAME, TOKEN);
    pass_ms(LOCK_WATCH_AFTER_MS);
    CHECK_HEARD(1, "DLOCK.WATCH lock ID");
    say(1, OK);
    name_watch_end(&other);
    settle();
    CHECK_HEARD(1, "");
    tell(EVENTS("1") CHANGED("1"), "1");
    CHECK_HEARD(1, INFO);
    name_watch_end(&seen.name);
    settle();
    CHECK_HEARD(1, UNWATCH);
}

TEST(a_name_may_be_removed_before_the_session_is_open) {
    begin_session();
    name_watch_end(&seen.name);
    settle();
    CHECK_EQUAL(seen.reads, 0);
}

int main(void) {
    return unit_main(NULL, end_reading);
}
