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

#define ACQUIRE .operation = DLOCK_ACQUIRING, .name = "n", .token = "t", .lease_ms = 5000
#define SHARED  ACQUIRE, .mode = DLOCK_SHARED
#define VIA     ACQUIRE, .wait_ms = 100, .via = "id"
#define EXTEND  .operation = DLOCK_EXTENDING, .name = "n", .token = "t", .lease_ms = UINT32_MAX
#define RELEASE .operation = DLOCK_RELEASING, .name = "n", .token = "t"

TEST(a_command_has_the_words_that_are_wanted) {
    const struct {
        lock_words words;
        const char *expected;
    } rows[] = {
        {{ACQUIRE}, "DLOCK.ACQUIRE n t PX 5000"},
        {{ACQUIRE, .wait_ms = 100}, "DLOCK.ACQUIRE n t PX 5000 WAIT 100"},
        {{ACQUIRE, .fence = UINT64_MAX}, "DLOCK.ACQUIRE n t PX 5000 FENCE 18446744073709551615"},
        {{SHARED}, "DLOCK.ACQUIRE n t PX 5000 SHARED"},
        {{SHARED, .max_holders = 7}, "DLOCK.ACQUIRE n t PX 5000 SHARED MAX 7"},
        {{ACQUIRE, .fence = 6, .fences = 10000}, "DLOCK.ACQUIRE n t PX 5000 FENCE 6 FENCES 10000"},
        {{VIA}, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 VIA id"},
        {{VIA, .is_tied = true}, "DLOCK.ACQUIRE n t PX 5000 WAIT 100 VIA id SESSION"},
        {{VIA, .is_tied = true, .has_grace = true, .is_endless = true},
         "DLOCK.ACQUIRE n t WAIT 100 VIA id SESSION GRACE 0"},
        {{VIA, .is_tied = true, .has_grace = true, .mode = DLOCK_SHARED, .max_holders = UINT32_MAX,
          .fence = UINT64_MAX, .fences = UINT32_MAX}, /* all words have room */
         "DLOCK.ACQUIRE n t PX 5000 WAIT 100 VIA id SESSION GRACE 0 SHARED MAX 4294967295 "
         "FENCE 18446744073709551615 FENCES 4294967295"},
        /* Only an acquire names the mode and the session. */
        {{EXTEND}, "DLOCK.EXTEND n t PX 4294967295"},
        {{EXTEND, .mode = DLOCK_SHARED, .max_holders = 7}, "DLOCK.EXTEND n t PX 4294967295"},
        {{RELEASE}, "DLOCK.RELEASE n t"},
        {{RELEASE, .mode = DLOCK_SHARED, .max_holders = 7, .via = "id", .is_tied = true,
          .has_grace = true, .is_endless = true},
         "DLOCK.RELEASE n t"},
    };
    EACH_ROW(i, rows) {
        command made = {0};
        lock_command(&made, &rows[i].words);
        check_words(&made, rows[i].expected);
    }
}

TEST(several_names_are_counted_and_stand_before_the_token) {
    lock_words words = {SHARED, .name_count = 3, .wait_ms = 7, .via = "id"};
    words.name = "n\0other\0third";
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

TEST(the_other_commands_are_short) {
    command made[8] = {{0}};
    session_command(&made[0], "id", 30000, 0);
    session_command(&made[1], "id", 30000, 17);
    session_end_command(&made[2], "id");
    watch_command(&made[3], "n", "id", true);
    watch_command(&made[4], "n", "id", false);
    inspect_command(&made[5], "name and more", 4);
    replicas_command(&made[6], 2, 500);
    replicas_command(&made[7], 1, 0); /* 0 would be for ever */
    static const char *const expected[] = {"DLOCK.SESSION id PX 30000",
                                           "DLOCK.SESSION id PX 30000 ACK 17",
                                           "DLOCK.SESSION id END",
                                           "DLOCK.WATCH n id",
                                           "DLOCK.UNWATCH n id",
                                           "DLOCK.INFO name",
                                           "WAIT 2 500",
                                           "WAIT 1 1"};
    EACH_ROW(i, expected)
        check_words(&made[i], expected[i]);
}

/* -- replies */

static const reply *parse_anew(const char *bytes) {
    memset(&got, 0xff, sizeof(got)); /* so that nothing is right by chance */
    return parse(bytes);
}

typedef enum reader_kind { ACQUIRED, HELD, TWO_REPLICAS } reader_kind;

static void read_as(reader_kind kind, const char *bytes) {
    const reply *reply = parse_anew(bytes);
    if (kind == ACQUIRED)
        read_acquire_reply(&got, reply);
    else if (kind == HELD)
        read_holder_reply(&got, reply);
    else
        read_replicas_reply(&got, reply, 2);
}

static void check_verdict(dlock_status status, bool is_transient, const char *cause) {
    CHECK_EQUAL(got.status, status);
    CHECK(got.is_transient == is_transient);
    CHECK_TEXT(got.cause, cause);
}

static const char busy[] = "another holds it";
static const char nonsense[] = "the server sent a reply that makes no sense";

TEST(a_reply_is_a_verdict) {
    static const struct {
        reader_kind kind;
        const char *bytes;
        dlock_status status;
        const char *cause;
    } rows[] = {
        {ACQUIRED, ":42\r\n", DLOCK_OK, ""},
        {ACQUIRED, "*-1\r\n", DLOCK_BUSY, busy},
        {ACQUIRED, "$-1\r\n", DLOCK_BUSY, busy},
        {ACQUIRED, "+QUEUED\r\n", DLOCK_BUSY, busy},
        {ACQUIRED, ":0\r\n", DLOCK_PROTOCOL, nonsense},
        {HELD, ":1\r\n", DLOCK_OK, ""},
        {HELD, ":0\r\n", DLOCK_LOST, "the server says that the token does not hold it"},
        {HELD, "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", DLOCK_LOST,
         "the key has been overwritten, and is no lock any more"},
        {HELD, "-NOPERM no\r\n", DLOCK_REFUSED, "NOPERM no"},
        {HELD, ":2\r\n", DLOCK_PROTOCOL, nonsense},
        {HELD, "$-1\r\n", DLOCK_PROTOCOL, nonsense},
        {TWO_REPLICAS, ":2\r\n", DLOCK_OK, ""},
        {TWO_REPLICAS, ":1\r\n", DLOCK_NO_REPLICAS,
         "acknowledged in time by 1 of 2 needed replicas"},
        {TWO_REPLICAS, ":-1\r\n", DLOCK_PROTOCOL, nonsense},
        {TWO_REPLICAS, "-ERR unknown command 'WAIT'\r\n", DLOCK_PROTOCOL,
         "ERR unknown command 'WAIT'"},
    };
    EACH_ROW(i, rows) {
        read_as(rows[i].kind, rows[i].bytes);
        check_verdict(rows[i].status, false, rows[i].cause);
        CHECK_EQUAL(got.fence, i == 0 ? 42 : 0);
        bool is_queued = strcmp(rows[i].bytes, "+QUEUED\r\n") == 0;
        CHECK_EQUAL(got.hint, is_queued ? HINT_QUEUED : HINT_NONE);
    }
}

TEST(other_replies_make_no_sense) {
    static const char *const replies[] = {"+OK\r\n", "$1\r\n1\r\n", ":-1\r\n", "*1\r\n:1\r\n",
                                          "*0\r\n"};
    EACH_ROW(i, replies)
        for (reader_kind kind = ACQUIRED; kind <= HELD; kind++) {
            read_as(kind, replies[i]);
            check_verdict(DLOCK_PROTOCOL, false, nonsense);
        }
}

TEST(errors_that_call_for_something_else_are_noticed) {
    static const struct {
        const char *bytes;
        reply_hint hint;
    } rows[] = {
        {"-NOSESSION no such session\r\n", HINT_NO_SESSION},
        {"-ERR NOSESSION\r\n", HINT_NONE},
        {"-ERR FENCE must not be more than 5 minutes ahead of the server's clock\r\n",
         HINT_FENCE_REFUSED},
        {"-ERR FENCES: too many fences were reserved lately, try again later\r\n",
         HINT_RUN_REFUSED},
        {"-NOSCRIPT No matching script\r\n", HINT_NO_SCRIPT},
        {"-ERR token holds some of these locks\r\n", HINT_HOLDS_SOME},
    };
    EACH_ROW(i, rows) {
        read_as(ACQUIRED, rows[i].bytes);
        CHECK_EQUAL(got.hint, rows[i].hint);
    }
    read_as(ACQUIRED, "-LOADING Redis is loading the dataset in memory\r\n");
    check_verdict(DLOCK_REFUSED, true, "LOADING Redis is loading the dataset in memory");
}

TEST(redirects_are_noticed_and_kept_as_sent) {
    redirect redirect;
    read_as(ACQUIRED, "-MOVED 3999 127.0.0.1:6381\r\n");
    CHECK(redirect_read(&redirect, got.cause) && !redirect.is_ask);
    CHECK(strcmp(got.cause, "MOVED 3999 127.0.0.1:6381") == 0);
    read_as(HELD, "-ASK 3999 127.0.0.1:6381\r\n");
    CHECK(redirect_read(&redirect, got.cause) && redirect.is_ask);
}

TEST(a_long_error_is_cut) {
    char bytes[1000];
    memset(bytes, 'x', sizeof(bytes));
    memcpy(bytes, "-OOM ", 5);
    memcpy(bytes + sizeof(bytes) - 3, "\r\n", 3);
    read_as(HELD, bytes);
    CHECK_EQUAL(got.status, DLOCK_REFUSED);
    CHECK_EQUAL(strlen(got.cause), DLOCK_CAUSE_SIZE - 1);
}

/* -- sessions */

static session_event event;

static bool read_event(const char *bytes) {
    memset(&event, 0xff, sizeof(event));
    return session_event_read(&event, parse(bytes));
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
    EACH_ROW(i, replies)
        CHECK(!read_session_reply(parse(replies[i]), &born, &events));
}

#define NAMED "$4\r\nname\r\n"

TEST(an_event_has_a_kind_a_number_a_name_and_maybe_a_token) {
    static const struct {
        const char *bytes;
        session_event_kind kind;
        const char *token;
    } rows[] = {
        {"*6\r\n:3\r\n+granted\r\n" NAMED "$1\r\nt\r\n:42\r\n:7\r\n", EVENT_GRANTED, "t"},
        {"*5\r\n:3\r\n+ended\r\n" NAMED "$1\r\nt\r\n$7\r\ntimeout\r\n", EVENT_ENDED, "t"},
        {"*5\r\n:3\r\n+lost\r\n" NAMED "$1\r\nt\r\n$7\r\ndeleted\r\n", EVENT_LOST, "t"},
        {"*5\r\n:3\r\n+lost\r\n" NAMED "$0\r\n\r\n$7\r\nflushed\r\n", EVENT_LOST, ""},
        {"*4\r\n:3\r\n+changed\r\n" NAMED "$1\r\nt\r\n", EVENT_CHANGED, "t"},
        {"*4\r\n:3\r\n+changed\r\n" NAMED "$0\r\n\r\n", EVENT_CHANGED, ""},
        {"*4\r\n:3\r\n+changed\r\n" NAMED "$-1\r\n", EVENT_CHANGED, ""},
        {"*5\r\n:3\r\n+ended\r\n" NAMED "$0\r\n\r\n$5\r\nmoved\r\n", EVENT_WATCH_ENDED, ""},
    };
    EACH_ROW(i, rows) {
        const char *token = rows[i].token;
        CHECK(read_event(rows[i].bytes));
        CHECK_EQUAL(event.kind, rows[i].kind);
        CHECK_EQUAL(event.number, 3);
        CHECK_BYTES(event.name, event.name_length, "name", 4);
        CHECK_BYTES(event.token == NULL ? "" : event.token, event.token_length, token,
                    strlen(token));
        if (event.kind == EVENT_GRANTED) CHECK(event.fence == 42 && event.age_ms == 7);
        if (i == 2) CHECK(reply_is_text(event.why, "deleted"));
    }
}

TEST(the_end_of_a_wait_has_a_reason) {
    static const struct {
        const char *bytes;
        dlock_status status;
        bool is_transient;
        const char *cause;
    } rows[] = {
        {"$7\r\ntimeout\r\n", DLOCK_BUSY, false, busy},
        {"$8\r\nreleased\r\n", DLOCK_BUSY, false, busy},
        {"$9\r\nNOPERM no\r\n", DLOCK_REFUSED, false, "NOPERM no"},
        {"$11\r\nREADONLY no\r\n", DLOCK_REFUSED, true, "READONLY no"},
    };
    EACH_ROW(i, rows) {
        char bytes[100] = "*5\r\n:3\r\n+ended\r\n" NAMED "$1\r\nt\r\n";
        CHECK(read_event(strcat(bytes, rows[i].bytes)));
        memset(&got, 0xff, sizeof(got));
        read_ended_event(&got, &event);
        check_verdict(rows[i].status, rows[i].is_transient, rows[i].cause);
    }
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
    EACH_ROW(i, events)
        CHECK(!read_event(events[i]));
}

int main(void) {
    return unit_main(NULL, free_reader);
}
