/* SPDX-License-Identifier: BSD-3-Clause */
/* tracking_test.c - names that are read now and after each change. Link 0: the subscriber. Link 1:
 * the command connection, which reads. */
#include "routed_world.h"

#include "deployment/tracking.h"

enum { RETRY_MS = 200, REOPEN_MS = 1000, LINGER_MS = 10000, SAFETY_MS = 10000 };
enum { OPENING_MS = 5000, PAUSE_MAX_MS = 5000 };

#define SUBSCRIBE  "CLIENT ID; SUBSCRIBE __redis__:invalidate"
#define SUBSCRIBED ":7\r\n*3\r\n+subscribe\r\n+__redis__:invalidate\r\n:1\r\n"
#define CACHING    "CLIENT CACHING YES; "
#define ON         "CLIENT TRACKING ON OPTIN REDIRECT 7; "
#define INFO       "DLOCK.INFO lock"
#define OK         "+OK\r\n"
#define FREE       "$-1\r\n"
#define HINT       "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$4\r\nlock\r\n"
#define OTHER_HINT "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$5\r\nother\r\n"
#define FLUSH_HINT "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*-1\r\n"

static struct {
    tracking tracking;
    tracked_name name;
    int reads;
    reply_kind last;
    bool removes;
} seen;

static void on_read(tracked_name *tracked, server *server, const reply *info) {
    CHECK(tracked == &seen.name);
    CHECK(server == stage.known);
    seen.reads++;
    seen.last = info->kind;
    if (seen.removes) tracking_remove(tracked);
}

static void begin_tracking(bool is_polled) {
    begin_stage();
    memset(&seen, 0, sizeof(seen));
    tracking_init(&seen.tracking, stage.deployment);
    seen.name = (tracked_name){.name = NAME, .on_read = on_read, .is_polled = is_polled};
    tracking_add(&seen.tracking, &seen.name);
    settle();
}

/* The name was read once, and is free. */
static void track(bool is_polled) {
    begin_tracking(is_polled);
    say(0, SUBSCRIBED);
    say(1, OK OK FREE);
    CHECK_EQUAL(seen.reads, 1);
    CHECK_HEARD(0, SUBSCRIBE);
    CHECK_HEARD(1, ON CACHING INFO);
}

static void end_tracking(void) {
    tracking_remove(&seen.name);
    tracking_close(&seen.tracking);
    end_stage();
}

static void a_name_is_read_once_there_is_a_subscriber(void) {
    begin_tracking(false);
    CHECK_HEARD(0, SUBSCRIBE);
    CHECK_EQUAL(the_peer.link_count, 1);
    say(0, SUBSCRIBED);
    CHECK_HEARD(1, ON CACHING INFO);
    say(1, OK OK FREE);
    CHECK_EQUAL(seen.reads, 1);
    CHECK_EQUAL(seen.last, REPLY_NIL);
    pass_ms(SAFETY_MS * 2);
    CHECK_EQUAL(seen.reads, 1);
    end_tracking();
}

static void a_hint_makes_the_name_be_read_again(void) {
    track(false);
    for (int i = 2; i < 5; i++) {
        say(0, HINT);
        CHECK_HEARD(1, CACHING INFO);
        say(1, OK FREE);
        CHECK_EQUAL(seen.reads, i);
    }
    end_tracking();
}

static void a_hint_for_another_name_is_ignored(void) {
    track(false);
    say(0, OTHER_HINT);
    CHECK_HEARD(1, "");
    CHECK(link_at(0)->is_open);
    end_tracking();
}

static void a_flush_makes_all_names_be_read_again(void) {
    track(false);
    say(0, FLUSH_HINT);
    CHECK_HEARD(1, CACHING INFO);
    end_tracking();
}

static void a_hint_during_a_read_is_not_forgotten(void) {
    track(false);
    say(0, HINT);
    say(0, HINT);
    CHECK_HEARD(1, CACHING INFO);
    say(1, OK FREE);
    CHECK_EQUAL(seen.reads, 2);
    CHECK_HEARD(1, CACHING INFO);
    say(1, OK FREE);
    CHECK_EQUAL(seen.reads, 3);
    end_tracking();
}

static void a_lost_command_connection_makes_the_name_be_read_again(void) {
    track(false);
    link_end(link_at(1));
    settle();
    CHECK_EQUAL(the_peer.link_count, 2);
    pass_ms(RETRY_MS);
    CHECK_HEARD(2, ON CACHING INFO);
    say(2, OK OK FREE);
    CHECK_EQUAL(seen.reads, 2);
    end_tracking();
}

static void a_lost_subscriber_is_replaced_and_the_name_read_again(void) {
    track(false);
    link_end(link_at(0));
    pass_ms(REOPEN_MS);
    CHECK_HEARD(1, "");
    CHECK_HEARD(2, SUBSCRIBE);
    say(2, SUBSCRIBED);
    CHECK_HEARD(1, ON CACHING INFO);
    end_tracking();
}

static void a_server_that_is_away_is_tried_with_pauses(void) {
    track(true);
    peer_refuse();
    link_end(link_at(0));
    link_end(link_at(1));
    pass_ms(5 * RETRY_MS);
    peer_listen();
    pass_ms(REOPEN_MS + RETRY_MS);
    int links = the_peer.link_count;
    CHECK(links == 4);
    say(2, "");
    end_tracking();
}

static void a_stalled_read_is_repeated_on_the_next_connection(void) {
    track(false);
    say(0, HINT);
    CHECK_HEARD(1, CACHING INFO);
    pass_ms(IO_MS + RETRY_MS);
    CHECK_HEARD(2, ON CACHING INFO);
    say(2, OK OK FREE);
    CHECK_EQUAL(seen.reads, 2);
    end_tracking();
}

static void without_permission_to_subscribe_a_name_is_not_read(void) {
    begin_tracking(false);
    say(0, "-NOPERM no\r\n-NOPERM no\r\n");
    pass_ms(SAFETY_MS);
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK(!link_at(0)->is_open);
    end_tracking();
}

static void without_permission_to_subscribe_a_polled_name_is_read_every_second(void) {
    begin_tracking(true);
    say(0, ":7\r\n-NOPERM no\r\n");
    for (int i = 1; i < 4; i++) {
        CHECK_HEARD(1, INFO);
        say(1, FREE);
        CHECK_EQUAL(seen.reads, i);
        pass_ms(TRACKING_POLL_MS - 1);
        CHECK_HEARD(1, "");
        pass_ms(1);
    }
    end_tracking();
}

static void a_server_that_refuses_the_mode_gets_no_second_try(void) {
    begin_tracking(false);
    say(0, SUBSCRIBED);
    say(1, "-NOPERM no\r\n-NOPERM no\r\n" FREE);
    CHECK_EQUAL(seen.reads, 1);
    CHECK(!link_at(0)->is_open);
    CHECK_HEARD(1, ON CACHING INFO);
    pass_ms(SAFETY_MS * 2);
    CHECK_HEARD(1, "");
    end_tracking();
}

static void a_subscriber_that_the_server_has_forgotten_is_replaced(void) {
    begin_tracking(false);
    say(0, SUBSCRIBED);
    say(1,
        "-ERR The client ID you want redirect to does not exist\r\n-ERR CLIENT CACHING x\r\n" FREE);
    pass_ms(REOPEN_MS);
    CHECK_HEARD(2, SUBSCRIBE);
    end_tracking();
}

static void a_polled_name_is_read_now_and_then_even_without_a_hint(void) {
    track(true);
    pass_ms(SAFETY_MS - 1);
    CHECK_HEARD(1, "");
    pass_ms(1);
    CHECK_HEARD(1, CACHING INFO);
    end_tracking();
}

static void a_redirect_is_followed(void) {
    track(false);
    say(0, HINT);
    stage.next = stage.b;
    say(1, OK "-MOVED 1 127.0.0.1:2\r\n");
    CHECK_EQUAL(stage.follows, 1);
    stage.known = stage.b;
    pass_ms(RETRY_MS);
    CHECK_HEARD(2, SUBSCRIBE);
    say(2, SUBSCRIBED);
    CHECK_HEARD(3, ON CACHING INFO);
    say(3, OK OK FREE);
    CHECK_EQUAL(seen.reads, 2);
    pass_ms(LINGER_MS);
    CHECK(!link_at(0)->is_open);
    end_tracking();
}

static void an_error_for_good_ends_the_reading_of_a_name_that_is_not_polled(void) {
    track(false);
    say(0, HINT);
    CHECK_HEARD(1, CACHING INFO);
    say(1, OK "-NOPERM no\r\n");
    pass_ms(SAFETY_MS * 2);
    CHECK_HEARD(1, "");
    CHECK_EQUAL(seen.reads, 1);
    end_tracking();
}

static void a_name_may_be_removed_when_it_is_told(void) {
    track(false);
    seen.removes = true;
    say(0, HINT);
    say(1, OK FREE);
    CHECK_EQUAL(seen.reads, 2);
    say(0, HINT);
    CHECK_EQUAL(seen.reads, 2);
    end_tracking();
}

static void a_link_without_names_is_closed_after_a_while(void) {
    track(false);
    tracking_remove(&seen.name);
    pass_ms(LINGER_MS - 1);
    CHECK(link_at(0)->is_open);
    pass_ms(1);
    CHECK(!link_at(0)->is_open);
    end_tracking();
}

static void a_link_without_names_is_used_again(void) {
    track(false);
    tracking_remove(&seen.name);
    pass_ms(LINGER_MS / 2);
    tracking_add(&seen.tracking, &seen.name);
    pass_ms(LINGER_MS);
    CHECK_HEARD(0, "");
    CHECK(link_at(0)->is_open);
    end_tracking();
}

static void a_name_that_changes_all_the_time_is_read_with_pauses(void) {
    track(false);
    for (int i = 0; i < 20; i++) {
        pass_ms(PAUSE_MAX_MS);
        say(0, HINT);
        CHECK_HEARD(1, CACHING INFO);
        say(1, OK FREE);
    }
    say(0, HINT);
    pass_ms(PAUSE_MAX_MS - 1);
    CHECK_HEARD(1, "");
    pass_ms(1);
    CHECK_HEARD(1, CACHING INFO);
    say(1, OK FREE);
    end_tracking();
}

static void a_server_that_is_busy_is_asked_again(void) {
    begin_tracking(false);
    say(0, "-BUSY x\r\n-BUSY x\r\n");
    pass_ms(REOPEN_MS);
    CHECK_HEARD(1, SUBSCRIBE);
    say(1, SUBSCRIBED);
    CHECK_HEARD(2, ON CACHING INFO);
    say(2, "-BUSY x\r\n-BUSY x\r\n-BUSY x\r\n");
    pass_ms(RETRY_MS);
    CHECK_HEARD(2, ON CACHING INFO);
    end_tracking();
}

static void a_subscriber_that_gets_no_reply_is_replaced(void) {
    begin_tracking(true);
    pass_ms(OPENING_MS + RETRY_MS);
    CHECK(!link_at(0)->is_open);
    CHECK_HEARD(1, INFO);
    say(1, FREE);
    CHECK_EQUAL(seen.reads, 1);
    pass_ms(REOPEN_MS);
    CHECK_HEARD(2, SUBSCRIBE);
    end_tracking();
}

int main(void) {
    UNIT_RUN(a_name_is_read_once_there_is_a_subscriber);
    UNIT_RUN(a_hint_makes_the_name_be_read_again);
    UNIT_RUN(a_hint_for_another_name_is_ignored);
    UNIT_RUN(a_flush_makes_all_names_be_read_again);
    UNIT_RUN(a_hint_during_a_read_is_not_forgotten);
    UNIT_RUN(a_lost_command_connection_makes_the_name_be_read_again);
    UNIT_RUN(a_lost_subscriber_is_replaced_and_the_name_read_again);
    UNIT_RUN(a_server_that_is_away_is_tried_with_pauses);
    UNIT_RUN(a_stalled_read_is_repeated_on_the_next_connection);
    UNIT_RUN(without_permission_to_subscribe_a_name_is_not_read);
    UNIT_RUN(without_permission_to_subscribe_a_polled_name_is_read_every_second);
    UNIT_RUN(a_server_that_refuses_the_mode_gets_no_second_try);
    UNIT_RUN(a_subscriber_that_the_server_has_forgotten_is_replaced);
    UNIT_RUN(a_polled_name_is_read_now_and_then_even_without_a_hint);
    UNIT_RUN(a_redirect_is_followed);
    UNIT_RUN(an_error_for_good_ends_the_reading_of_a_name_that_is_not_polled);
    UNIT_RUN(a_name_may_be_removed_when_it_is_told);
    UNIT_RUN(a_link_without_names_is_closed_after_a_while);
    UNIT_RUN(a_link_without_names_is_used_again);
    UNIT_RUN(a_name_that_changes_all_the_time_is_read_with_pauses);
    UNIT_RUN(a_server_that_is_busy_is_asked_again);
    UNIT_RUN(a_subscriber_that_gets_no_reply_is_replaced);
    return unit_summary();
}
