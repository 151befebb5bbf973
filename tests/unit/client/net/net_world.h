/* SPDX-License-Identifier: BSD-3-Clause */
/* net_world.h - a loop under fake time, and a scripted server at the other end of a unix socket.
 *
 *   clock     time passes only inside pass_us(), and only once nothing is left to be done before:
 *             all bytes are delivered, all tasks have run. pass_us(0) is settle()
 *   peer      the server, see scripted_peer.h
 *   record    a request that writes into the journal: "a=PONG, a ok". Each case has a, b, c, d
 *
 * The mutex of the loop is held from begin() to end(). */
#ifndef DLOCK_NET_WORLD_H
#define DLOCK_NET_WORLD_H

#include "net/connection.h"

#include "base/platform.h"
#include "base/text.h"
#include "scripted_peer.h"

/* A fake time so late that the timerfd of the loop, which runs on the real clock, never goes
 * off. */
#define START_US (INT64_C(1) << 50)

enum { JOURNAL_SIZE = 4096, LINE_COMMANDS_MAX = 8, CONNECT_MS = 500, IO_MS = 1000 };

static struct {
    int64_t now_us, until_us;
    loop *loop;
    waiter waiter;
    url url;
    endpoint endpoint;
    connection *conn; /* the last that was opened; NULL: none, or it has broken */
    atomic_uint_least64_t command_count;
    char journal[JOURNAL_SIZE];
    int answered; /* how often the owner of a connection was told of a sign of life */
} world;

/* -- the clock */

static inline int64_t fake_now_us(const clock_source *clock) {
    (void)clock;
    return world.now_us;
}

static inline uint64_t fake_random_bits(const clock_source *clock) {
    (void)clock;
    return unit_random();
}

static inline void fake_skip_to(const clock_source *clock, int64_t until_us) {
    (void)clock;
    if (until_us <= world.until_us) {
        if (until_us > world.now_us) world.now_us = until_us;
        return;
    }
    world.now_us = world.until_us;
    loop_ready(world.loop, &world.waiter);
}

static const clock_source fake_clock = {fake_now_us, fake_now_us, fake_random_bits, fake_skip_to};

/* Everything happens that is due until then, including that moment. */
static inline void pass_us(int64_t duration_us) {
    world.until_us = world.now_us + duration_us;
    loop_wait(world.loop, &world.waiter);
}

static inline void pass_ms(int64_t duration_ms) {
    pass_us(duration_ms * 1000);
}

static inline void settle(void) {
    pass_us(0);
}

/* The nth connection says this, or ends. */
static inline void say(int index, const char *bytes) {
    link_say(link_at(index), bytes);
    settle();
}

static inline void hang_up(int index) {
    link_end(link_at(index));
    settle();
}

static inline int64_t elapsed_us(void) {
    return world.now_us - START_US;
}

/* -- the journal */

static inline void note(const char *text) {
    if (world.journal[0] != '\0') text_append(world.journal, sizeof(world.journal), ", ");
    text_append(world.journal, sizeof(world.journal), text);
}

static inline void forget_journal(void) {
    world.journal[0] = '\0';
}

static inline const char *status_word(dlock_status status) {
    switch (status) {
    case DLOCK_OK:
        return "ok";
    case DLOCK_IN_DOUBT:
        return "in doubt";
    case DLOCK_UNREACHABLE:
        return "unreachable";
    case DLOCK_REFUSED:
        return "refused";
    case DLOCK_PROTOCOL:
        return "protocol";
    case DLOCK_INVALID:
        return "invalid";
    case DLOCK_NO_MEMORY:
        return "no memory";
    default:
        return "another status";
    }
}

/* -- requests */

typedef struct record record;
struct record {
    request request;
    const char *name;
    dlock_status status;
    int done_count;
    int64_t done_us;
    char cause[CAUSE_SIZE];
    void (*during_reply)(record *record), (*during_done)(record *record);
    void *arg;
};

static inline void note_reply(request *request, int index, const reply *reply) {
    (void)index;
    record *record = container_of(request, struct record, request);
    char text[96], line[160];
    if (reply->kind == REPLY_INTEGER)
        snprintf(text, sizeof(text), "%" PRId64, reply->integer);
    else
        reply_copy_text(reply, text, sizeof(text));
    snprintf(line, sizeof(line), "%s=%s", record->name, text);
    note(line);
    if (record->during_reply != NULL) record->during_reply(record);
}

static inline void note_done(request *request, dlock_status status, const char *cause) {
    record *record = container_of(request, struct record, request);
    char line[160];
    record->status = status;
    record->done_count++;
    record->done_us = world.now_us;
    text_copy(record->cause, sizeof(record->cause), cause);
    snprintf(line, sizeof(line), "%s %s", record->name, status_word(status));
    note(line);
    if (record->during_done != NULL) record->during_done(record);
}

static inline record new_record(const char *name) {
    return (record){.name = name, .request = {.on_reply = note_reply, .on_done = note_done}};
}

static record a, b, c, d;

/* "GET a; PING" as commands. */
typedef struct line {
    char text[512];
    command commands[LINE_COMMANDS_MAX];
    int count;
} line;

static inline void line_read(line *line, const char *text) {
    *line = (struct line){0};
    text_copy(line->text, sizeof(line->text), text);
    char *next_command = NULL, *next_word = NULL;
    for (char *part = strtok_r(line->text, ";", &next_command); part != NULL;
         part = strtok_r(NULL, ";", &next_command)) {
        command *command = &line->commands[line->count++];
        for (char *word = strtok_r(part, " ", &next_word); word != NULL;
             word = strtok_r(NULL, " ", &next_word))
            command_add(command, word);
    }
}

static inline void send_line(connection *conn, const char *text, record *record) {
    line line;
    line_read(&line, text);
    connection_send(conn, line.commands, line.count, record == NULL ? NULL : &record->request);
}

/* The first so many of "GET a", "GET b", ... for the records a, b, ... */
static inline connection *send_gets(connection *conn, int count) {
    static const char *const texts[] = {"GET a", "GET b", "GET c", "GET d"};
    record *const records[] = {&a, &b, &c, &d};
    for (int i = 0; i < count; i++)
        send_line(conn, texts[i], records[i]);
    settle();
    return conn;
}

/* -- the owner of a connection */

static inline void note_answered(void *arg, connection *conn) {
    (void)arg, (void)conn;
    world.answered++;
}

static inline void note_stalled(void *arg, connection *conn) {
    (void)arg, (void)conn;
    note("stalled");
}

static inline void note_broken(void *arg, connection *conn) {
    (void)arg;
    note("broken");
    if (conn == world.conn) world.conn = NULL;
}

static inline connection *open_connection(void) {
    return world.conn =
               connection_open(&world.endpoint, &(connection_owner){.on_answered = note_answered,
                                                                    .on_stalled = note_stalled,
                                                                    .on_broken = note_broken});
}

/* The last connection that was opened, unless it has broken. */
static inline void close_connection(void) {
    connection_close(world.conn);
    world.conn = NULL;
}

/* A connection that has connected and, if the URL asks for no login, is ready. */
static inline connection *connect_peer(void) {
    connection *conn = open_connection();
    settle();
    return conn;
}

/* -- setting the stage */

static inline void begin(void) {
    memset(&world, 0, sizeof(world));
    a = new_record("a");
    b = new_record("b");
    c = new_record("c");
    d = new_record("d");
    world.now_us = world.until_us = START_US;
    world.loop = loop_new(&fake_clock);
    if (world.loop == NULL) abort();
    loop_lock(world.loop);
    peer_begin(world.loop);
    world.url.is_unix = true;
    text_copy(world.url.host, sizeof(world.url.host), the_peer.path);
    struct sockaddr_un address = peer_address();
    world.endpoint = (endpoint){.options = {.loop = world.loop,
                                            .connect_timeout_ms = CONNECT_MS,
                                            .io_timeout_ms = IO_MS,
                                            .command_count = &world.command_count},
                                .known = {.count = 1, .sizes = {sizeof(address)}},
                                .url = world.url};
    memcpy(&world.endpoint.known.each[0], &address, sizeof(address));
}

static inline void end(void) {
    close_connection();
    settle();
    peer_end();
    loop_unlock(world.loop);
    loop_free(world.loop);
}

#endif
