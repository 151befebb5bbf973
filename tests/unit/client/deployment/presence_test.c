/* SPDX-License-Identifier: BSD-3-Clause */
/* presence_test.c - the session at one server: when it is opened, whom it tells of what, and how it
 * gets over lost connections. Each guest notes in the journal what it is told. */
#include "routed_world.h"

#include "net/connection_state.h"

enum { BEAT_MS = SESSION_MS / 3 };

/* -- guests */

typedef struct visitor {
    guest guest;
    const char *label;
    bool leaves, moves; /* when it is told of anything */
} visitor;

static visitor x, y, z, watch;

static void note_of(guest *guest, const char *text) {
    visitor *visitor = container_of(guest, struct visitor, guest);
    char line[160];
    snprintf(line, sizeof(line), "%s %s", visitor->label, text);
    note(line);
    if (visitor->leaves) presence_leave(guest);
    if (visitor->moves) presence_join(&stage.router, stage.known, guest);
}

static void on_open(guest *guest, bool is_new) {
    note_of(guest, is_new ? "new" : "open");
}

static void on_event(guest *guest, const session_event *event) {
    static const char *const kinds[] = {"granted", "ended", "lost", "changed", "unwatched"};
    char text[64];
    snprintf(text, sizeof(text), "%s", kinds[event->kind]);
    if (event->kind == EVENT_GRANTED) snprintf(text, sizeof(text), "granted %d", (int)event->fence);
    note_of(guest, text);
}

static void on_unopened(guest *guest, dlock_status status, const char *cause) {
    char text[160];
    snprintf(text, sizeof(text), "%s: %s", status_word(status), cause);
    if (status == DLOCK_UNREACHABLE)
        note_of(guest, "unreachable");
    else
        note_of(guest, text);
}

static void on_refused(guest *guest, dlock_status status, const char *cause) {
    if (status != DLOCK_UNREACHABLE) on_unopened(guest, status, cause);
}

static void on_moved(guest *guest) {
    note_of(guest, "moved");
}

static void on_away(guest *guest) {
    note_of(guest, "away");
}

static const guest_table brief = {
    .on_open = on_open, .on_event = on_event, .on_unopened = on_refused, .on_moved = on_moved};
static const guest_table full = {.on_open = on_open,
                                 .on_event = on_event,
                                 .on_unopened = on_unopened,
                                 .on_moved = on_moved,
                                 .on_away = on_away};

static visitor visitor_of(const char *label, const char *name, const char *token) {
    return (visitor){.label = label, .guest = {.table = &brief, .name = name, .token = token}};
}

static bool join(visitor *visitor) {
    return presence_join(&stage.router, stage.known, &visitor->guest);
}

static void begin_presence(void) {
    begin_stage();
    x = visitor_of("x", NAME, "me");
    y = visitor_of("y", NAME, "you");
    z = visitor_of("z", OTHER_NAME, "me");
    watch = visitor_of("watch", NAME, NULL);
}

static void end_presence(void) {
    visitor *const all[] = {&x, &y, &z, &watch};
    for (size_t i = 0; i < 4; i++)
        presence_leave(&all[i]->guest);
    end_stage();
    CHECK_EQUAL(open_links(), 0);
}

#define CHECK_TOLD(expected) (CHECK_TEXT(world.journal, expected), forget_journal())

/* These join, and the session is opened on link 0. */
static void open_with(visitor *first, visitor *second) {
    CHECK(!join(first));
    if (second != NULL) CHECK(!join(second));
    settle();
    open_session(0);
    forget_journal();
}

#define BORN(number) "*2\r\n:" number "\r\n*0\r\n"

/* -- opening */

TEST(the_session_is_opened_with_the_first_guest) {
    settle();
    CHECK_EQUAL(the_peer.link_count, 0);
    CHECK(!join(&x));
    CHECK(!join(&y));
    CHECK(!join(&y));
    settle();
    CHECK_TOLD("");
    open_session(0);
    CHECK_TOLD("x new, y new");
    CHECK(join(&z));
    settle();
    CHECK_TOLD("");
    CHECK_EQUAL(the_peer.link_count, 1);
}

TEST(an_id_has_128_random_bits) {
    open_with(&x, &y);
    char id[40];
    text_copy(id, sizeof(id), presence_id(&x.guest));
    CHECK_EQUAL(strlen(id), 32);
    CHECK_EQUAL(strspn(id, "0123456789abcdef"), 32);
    CHECK_TEXT(presence_id(&y.guest), id);
    stage.known = stage.b;
    join(&z);
    CHECK(strcmp(presence_id(&z.guest), id) != 0);
    CHECK_EQUAL(presence_life(&x.guest)->timeout_ms, SESSION_MS);
}

TEST(a_heartbeat_is_always_under_way) {
    join(&x);
    settle();
    CHECK_HEARD(0, SESSION);
    pass_ms(5);
    say(0, EVENTS("0"));
    CHECK_EQUAL(atomic_load(&presence_life(&x.guest)->renewed_us), START_US);
    for (int i = 0; i < 5; i++) {
        CHECK_HEARD(0, SESSION);
        pass_ms(BEAT_MS);
        say(0, EVENTS("0"));
        CHECK_EQUAL(atomic_load(&presence_life(&x.guest)->renewed_us),
                    START_US + 5000 + i * BEAT_MS * 1000);
    }
    CHECK(link_at(0)->is_open);
}

TEST(a_life_goes_on_over_connections_and_ends_with_the_session) {
    open_with(&x, NULL);
    session_life *first = life_share(presence_life(&x.guest));
    pass_ms(BEAT_MS);
    say(0, EVENTS("0"));
    hang_up(0);
    say(1, EVENTS("0"));
    CHECK(presence_life(&x.guest) == first);
    int64_t end_us = atomic_load(&first->end_us);
    hang_up(1);
    pass_ms(20);
    say(2, BORN("2"));
    CHECK(presence_life(&x.guest) != first);
    pass_ms(BEAT_MS);
    say(2, BORN("2"));
    CHECK_EQUAL(atomic_load(&first->end_us), end_us); /* whoever reads it, it has ended */
    life_free(first);
}

TEST(a_heartbeat_that_is_answered_too_late_begins_another_life) {
    open_with(&x, NULL);
    session_life *first = life_share(presence_life(&x.guest));
    int64_t end_us = atomic_load(&first->end_us);
    while (world.now_us < end_us) { /* heartbeats are sent and not answered */
        pass_ms(BEAT_MS);
        settle();
    }
    say(the_peer.link_count - 1, EVENTS("0"));
    CHECK_EQUAL(atomic_load(&first->end_us), end_us);
    CHECK(presence_life(&x.guest) != first);
    CHECK(atomic_load(&presence_life(&x.guest)->end_us) > world.now_us);
    life_free(first);
}

/* -- events */

#define EVENT_OF(n, kind, name, token)                                                             \
    "*5\r\n:" n "\r\n+" kind "\r\n$4\r\n" name "\r\n" token "+why\r\n"
#define ME   "$2\r\nme\r\n"
#define YOU  "$3\r\nyou\r\n"
#define NONE "$0\r\n\r\n"

TEST(an_event_reaches_the_guest_with_its_name_and_token) {
    open_with(&x, &y);
    join(&z);
    join(&watch);
    say(0, EVENTS("1") GRANTED("1", "8", "0"));
    CHECK_TOLD("x granted 8");
    CHECK_HEARD(0, SESSION " ACK 1");
    say(0, EVENTS("3") EVENT_OF("2", "ended", "lock", YOU) EVENT_OF("3", "lost", "door", ME)
               EVENT_OF("4", "lost", "door", YOU));
    CHECK_TOLD("y ended, z lost");
    CHECK_HEARD(0, SESSION " ACK 4");
    say(0, EVENTS("2") EVENT_OF("5", "changed", "lock", ME) EVENT_OF("6", "changed", "door", ME));
    CHECK_TOLD("watch changed");
    say(0, EVENTS("1") EVENT_OF("7", "ended", "lock", NONE));
    CHECK_TOLD("watch unwatched");
}

TEST(a_flush_reaches_every_lock_with_the_name) {
    open_with(&x, &y);
    join(&z);
    join(&watch);
    say(0, EVENTS("1") EVENT_OF("1", "lost", "lock", NONE));
    CHECK_TOLD("x lost, y lost");
}

TEST(every_watch_of_a_name_is_told) {
    visitor other = visitor_of("other", NAME, NULL);
    open_with(&watch, &other);
    say(0, EVENTS("1") EVENT_OF("1", "changed", "lock", ME));
    CHECK_TOLD("watch changed, other changed");
    presence_leave(&other.guest);
}

TEST(an_event_of_a_kind_that_is_unknown_is_skipped) {
    open_with(&x, NULL);
    say(0, EVENTS("2") EVENT_OF("1", "sold", "lock", ME) EVENT_OF("2", "lost", "lock", ME));
    CHECK_TOLD("x lost");
    CHECK_HEARD(0, SESSION " ACK 2");
}

TEST(an_event_that_is_unknown_is_acknowledged_all_the_same) {
    open_with(&x, NULL);
    say(0, EVENTS("1") EVENT_OF("1", "sold", "lock", ME));
    CHECK_HEARD(0, SESSION " ACK 1");
    say(0, EVENTS("1") "*2\r\n:2\r\n+closed\r\n");
    CHECK_HEARD(0, SESSION " ACK 2");
    CHECK_TOLD("");
}

TEST(an_event_that_was_seen_is_not_told_again_after_a_reconnect) {
    open_with(&x, NULL);
    say(0, EVENTS("1") GRANTED("1", "8", "0"));
    CHECK_TOLD("x granted 8");
    hang_up(0);
    CHECK_HEARD(1, SESSION " ACK 1");
    say(1, EVENTS("2") GRANTED("1", "8", "0") LOST("2", "deleted"));
    CHECK_TOLD("x lost, x open");
    CHECK_HEARD(1, SESSION " ACK 2");
}

TEST(a_guest_that_has_left_is_told_nothing) {
    open_with(&x, &y);
    presence_leave(&x.guest);
    presence_leave(&x.guest);
    say(0, EVENTS("1") GRANTED("1", "8", "0"));
    hang_up(0);
    say(1, EVENTS("0"));
    CHECK_TOLD("y open");
}

/* -- another number born */

TEST(a_new_number_makes_every_guest_ask_again) {
    open_with(&x, &y);
    say(0, EVENTS("1") GRANTED("5", "8", "0"));
    CHECK_TOLD("x granted 8");
    hang_up(0);
    CHECK_HEARD(1, SESSION " ACK 5");
    say(1, "*2\r\n:2\r\n*1\r\n" GRANTED("1", "9", "0"));
    CHECK_TOLD("x granted 9, x new, y new");
    CHECK_HEARD(1, SESSION " ACK 1");
}

TEST(a_new_number_on_the_same_connection_counts_too) {
    open_with(&x, NULL);
    say(0, BORN("2"));
    CHECK_TOLD("x new");
}

TEST(a_guest_that_learns_of_a_forgotten_session_opens_it_again) {
    open_with(&x, NULL);
    presence_reopen(&x.guest);
    presence_reopen(&x.guest); /* is on its way */
    settle();
    CHECK(!link_at(0)->is_open);
    CHECK_HEARD(1, SESSION);
    CHECK(!join(&y));
    say(1, BORN("2"));
    CHECK_TOLD("x new, y new");
}

/* -- lost connections */

TEST(a_lost_connection_is_replaced_and_costs_nothing) {
    x.guest.table = &full;
    open_with(&x, &y);
    hang_up(0);
    CHECK_TOLD("x away");
    CHECK(stage.router.is_doubted);
    open_session(1);
    CHECK_TOLD("x open, y open");
}

TEST(connections_that_are_of_no_use_are_replaced_with_growing_pauses) {
    open_with(&x, NULL);
    int64_t pause_ms = 0;
    for (int i = 0; i < 12; i++) {
        hang_up(i);
        if (pause_ms > 0) {
            pass_ms(pause_ms - 1);
            CHECK_EQUAL(the_peer.link_count, i + 1);
            pass_ms(1);
        }
        CHECK_EQUAL(the_peer.link_count, i + 2);
        pause_ms = pause_ms == 0 ? 20 : pause_ms * 2 > 1000 ? 1000 : pause_ms * 2;
    }
    say(12, EVENTS("0"));
    hang_up(12);
    pass_ms(999); /* one reply is no proof */
    CHECK_EQUAL(the_peer.link_count, 13);
    pass_ms(1);
    say(13, EVENTS("0"));
    say(13, EVENTS("0"));
    hang_up(13);
    CHECK_EQUAL(the_peer.link_count, 15); /* but two are */
}

TEST(a_server_that_cannot_be_reached_is_told_and_tried_again) {
    x.guest.table = &full;
    peer_refuse();
    join(&x);
    join(&y);
    settle();
    CHECK_TOLD("x unreachable, x unreachable"); /* the first pause is none */
    pass_ms(20);
    CHECK_TOLD("x unreachable");
    peer_listen();
    pass_ms(40);
    open_session(0);
    CHECK_TOLD("x new, y new");
}

TEST(guests_that_leave_and_come_again_wait_for_the_end_of_the_pause) {
    static const int pauses_ms[] = {0, 0, 20, 40, 80, 160, 320, IO_MS / 2, IO_MS / 2};
    x.guest.table = &full;
    x.leaves = true;
    for (int i = 0; i < 9; i++) {
        join(&x);
        if (pauses_ms[i] > 0) {
            pass_ms(pauses_ms[i] - 1);
            CHECK_EQUAL(the_peer.link_count, i);
            pass_ms(1);
        }
        settle();
        CHECK_EQUAL(the_peer.link_count, i + 1);
        hang_up(i);
        CHECK_TOLD("x unreachable");
    }
}

TEST(a_server_that_is_silent_is_noticed) {
    x.guest.table = &full;
    open_with(&x, NULL);
    pass_ms(BEAT_MS + IO_MS - 1);
    CHECK(link_at(0)->is_open);
    pass_ms(1);
    CHECK(!link_at(0)->is_open);
    CHECK_TOLD("x away");
    CHECK(stage.router.is_doubted);
    CHECK_HEARD(1, SESSION);
    pass_ms(IO_MS - 1); /* a first call is answered at once */
    CHECK_TOLD("");
    pass_ms(1);
    CHECK_TOLD("x unreachable");
    CHECK(!link_at(1)->is_open);
    pass_ms(20);
    open_session(2);
    CHECK_TOLD("x open");
}

TEST(a_connection_that_is_lost_without_guests_is_not_replaced) {
    open_with(&x, NULL);
    presence_leave(&x.guest);
    hang_up(0);
    pass_ms(20000);
    CHECK_EQUAL(the_peer.link_count, 1);
    CHECK(!join(&y));
    settle();
    open_session(1);
    CHECK_TOLD("y open");
}

TEST(a_session_goes_on_without_guests) {
    open_with(&x, NULL);
    presence_leave(&x.guest);
    pass_ms(BEAT_MS);
    say(0, EVENTS("0"));
    CHECK_HEARD(0, SESSION);
    CHECK(join(&y));
}

/* -- refusals */

TEST(a_refusal_is_told) {
    join(&x);
    join(&y);
    settle();
    say(0, "-NOPERM no\r\n");
    CHECK_TOLD("x refused: NOPERM no, y refused: NOPERM no");
    CHECK(!link_at(0)->is_open);
    open_session(1); /* the presence goes on trying */
    CHECK_TOLD("x new, y new");
}

TEST(a_refusal_that_may_pass_counts_as_unreachable) {
    x.guest.table = &full;
    join(&x);
    settle();
    say(0, "-LOADING wait\r\n");
    CHECK_TOLD("x unreachable");
    open_session(1);
    CHECK_TOLD("x new");
}

TEST(a_login_that_is_refused_is_told) {
    text_copy(stage.a->endpoint.url.password, sizeof(stage.a->endpoint.url.password), "secret");
    join(&x);
    settle();
    say(0, "-WRONGPASS no\r\n");
    CHECK(strstr(world.journal, "x refused") == world.journal);
    forget_journal();
}

TEST(a_login_without_an_answer_is_tried_again_on_another_connection) {
    text_copy(stage.a->endpoint.url.password, sizeof(stage.a->endpoint.url.password), "secret");
    x.guest.table = &full;
    join(&x);
    pass_ms(IO_MS);
    CHECK_TOLD("x unreachable");
    CHECK(!link_at(0)->is_open);
    pass_ms(100);
    CHECK_TEXT(link_at(1)->heard, "AUTH secret");
}

TEST(a_reply_that_makes_no_sense_ends_the_connection) {
    static const char *const replies[] = {"+OK\r\n", "*0\r\n", "*1\r\n:1\r\n", "$-1\r\n"};
    open_with(&x, NULL);
    for (int i = 0; i < 4; i++) {
        say(i, replies[i]);
        CHECK(!link_at(i)->is_open);
        pass_ms(100);
    }
}

TEST(a_session_may_have_any_number) {
    join(&x);
    settle();
    say(0, BORN("0"));
    CHECK_TOLD("x new");
    CHECK_HEARD(0, SESSION "; " SESSION);
    hang_up(0);
    say(1, BORN("0"));
    CHECK_TOLD("x open");
    say(1, BORN("-1"));
    CHECK_TOLD("x new");
}

TEST(guests_may_leave_when_they_are_refused) {
    x.leaves = y.leaves = true;
    join(&x);
    join(&y);
    settle();
    say(0, "-NOPERM no\r\n");
    CHECK_TOLD("x refused: NOPERM no, y refused: NOPERM no");
    pass_ms(20000);
    CHECK_EQUAL(the_peer.link_count, 1);
}

/* -- another server */

TEST(guests_whose_name_has_another_server_are_told) {
    open_with(&x, &y);
    stage.known = stage.b;
    hang_up(0);
    CHECK_TOLD("x moved, y moved");
    open_session(1);
    CHECK_TOLD("x open, y open"); /* they have stayed */
}

TEST(guests_may_move) {
    open_with(&x, &y);
    x.moves = y.moves = true;
    stage.known = stage.b;
    hang_up(0);
    CHECK_TOLD("x moved, y moved");
    CHECK_EQUAL(the_peer.link_count, 2); /* nobody is left at the first server */
    CHECK_HEARD(1, SESSION);
    x.moves = y.moves = false;
    say(1, BORN("9"));
    CHECK_TOLD("x new, y new");
}

TEST(a_discovery_is_waited_for) {
    open_with(&x, NULL);
    stage.router.is_discovering = true;
    hang_up(0);
    stage.known = stage.b;
    CHECK_TOLD("");
    end_discovery(DLOCK_OK, "");
    CHECK_TOLD("x moved");
    stage.router.is_discovering = true;
    hang_up(1);
    presence_leave(&x.guest); /* while the presence waits */
    end_discovery(DLOCK_OK, "");
    CHECK_TOLD("");
}

/* -- the end */

/* Both of its connections are open, and nobody uses the server any more. */
static void drop_server_with_session(void) {
    server_send(stage.a, &(command){.count = 1, .words = {"PING"}, .lengths = {4}}, 1, NULL);
    settle();
    CHECK_HEARD(1, "PING");
    presence_leave(&x.guest);
    server_free(stage.a);
    stage.a = NULL;
    stage.known = stage.b;
    settle();
}

TEST(the_session_is_ended_with_the_client) {
    open_with(&x, NULL);
    stage.router.base.withdrawals.is_closed = true;
    drop_server_with_session();
    CHECK_HEARD(1, "DLOCK.SESSION ID END");
    CHECK(!link_at(0)->is_open && !link_at(1)->is_open);
}

/* The server may be found again, by another object with another session. */
TEST(a_server_that_is_dropped_keeps_the_session) {
    open_with(&x, NULL);
    drop_server_with_session();
    CHECK_HEARD(1, "");
    CHECK(!link_at(0)->is_open && !link_at(1)->is_open);
}

TEST(a_session_that_was_never_open_is_not_ended) {
    server_send(stage.a, &(command){.count = 1, .words = {"PING"}, .lengths = {4}}, 1, NULL);
    settle();
    join(&x);
    settle();
    presence_leave(&x.guest);
    server_free(stage.a);
    stage.a = NULL;
    stage.known = stage.b;
    settle();
    CHECK_HEARD(0, "PING");
    CHECK_EQUAL(open_links(), 0);
}

/* Each of these ends with the guests, which have the last shares. */
static void give_up_server(void) {
    x.guest.table = y.guest.table = &full;
    x.leaves = y.leaves = true;
    server_free(stage.a);
    stage.a = NULL;
    stage.known = stage.b;
}

static void give_up_open_server(void) {
    open_with(&x, &y);
    give_up_server();
}

TEST(the_server_may_be_freed_by_an_event_and_by_a_flush) {
    static const struct {
        const char *events, *told;
    } rows[] = {
        {EVENTS("2") GRANTED("1", "8", "0") EVENT_OF("2", "lost", "lock", YOU),
         "x granted 8, y lost"},
        {EVENTS("1") EVENT_OF("1", "lost", "lock", NONE), "x lost, y lost"},
    };
    EACH_ROW(i, rows) {
        unit_restart();
        give_up_open_server();
        say(0, rows[i].events);
        CHECK_TOLD(rows[i].told);
        CHECK_EQUAL(open_links(), 0);
    }
}

TEST(the_server_may_be_freed_when_the_session_is_open) {
    join(&x);
    join(&y);
    settle();
    give_up_server();
    say(0, EVENTS("0"));
    CHECK_TOLD("x new, y new");
    CHECK_EQUAL(open_links(), 0);
}

TEST(the_server_may_be_freed_by_the_end_of_the_connection_by_silence_and_by_a_move) {
    enum { THE_END, SILENCE, A_MOVE, WAYS };
    for (int way = 0; way < WAYS; way++) {
        unit_restart();
        give_up_open_server();
        if (way == A_MOVE) x.guest.table = y.guest.table = &brief;
        if (way == SILENCE)
            pass_ms(BEAT_MS + IO_MS);
        else
            hang_up(0);
        CHECK_TOLD(way == A_MOVE ? "x moved, y moved" : "x away, y away");
        CHECK_EQUAL(open_links(), 0);
    }
}

TEST(the_server_may_be_freed_when_it_cannot_be_reached) {
    peer_refuse();
    join(&x);
    join(&y);
    give_up_server();
    settle();
    CHECK_TOLD("x unreachable, y unreachable");
}

TEST(the_server_may_be_freed_while_the_session_is_reopened) {
    give_up_open_server();
    y.leaves = false;
    presence_reopen(&y.guest);
    CHECK_TOLD("x away, y away");
    presence_leave(&y.guest);
    settle();
    CHECK_EQUAL(open_links(), 0);
}

/* -- ties that nobody looks after */

TEST(a_tie_notes_what_happens) {
    stage.tie.guest = (guest){.table = &tie_table, .name = NAME, .token = TOKEN, .arg = NULL};
    presence_join(&stage.router, stage.known, &stage.tie.guest);
    settle();
    open_session(0);
    CHECK(stage.tie.is_forgotten && !stage.tie.is_lost); /* the session is a new one */
    stage.tie.is_forgotten = false;
    hang_up(0);
    open_session(1);
    CHECK(!stage.tie.is_forgotten);
    say(1, EVENTS("2") GRANTED("1", "8", "0") LOST("2", "moved"));
    CHECK(stage.tie.is_forgotten && !stage.tie.is_lost);
    say(1, EVENTS("1") LOST("3", "deleted"));
    CHECK(stage.tie.is_lost);
    stage.tie.is_forgotten = false;
    stage.tie.is_momentary = true;
    hang_up(1);
    pass_ms(20);
    say(2, EVENTS("0"));
    CHECK(stage.tie.is_forgotten);
}

int main(void) {
    return unit_main(begin_presence, end_presence);
}
