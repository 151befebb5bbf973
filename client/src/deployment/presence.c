/* SPDX-License-Identifier: BSD-3-Clause */
/* presence.c - see presence.h.
 *
 *   CLOSED    nothing is under way, or the timer opens a connection after a pause
 *   OPENING   the first DLOCK.SESSION of a connection, which the server answers at once
 *   OPEN      a later one, which the server may keep for a third of the timeout
 *
 * The id of a session is a secret, so it has 128 random bits. A presence never changes its id: a
 * server that has forgotten the session says so by another number born.
 *
 * Invariants: a presence with guests has a call under way or its timer set. Each guest has a share
 * of the server, and server.c frees the presence together with the server. */
#include "deployment/presence.h"

#include "base/text.h"
#include <unistd.h>

enum { ID_BYTES = 16, BUCKETS = 1024, PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 1000 };

typedef struct presence {
    server *server;
    router *router;
    char id[2 * ID_BYTES + 1];
    enum { CLOSED, OPENING, OPEN } phase;
    connection *conn; /* NULL: none */
    request call;     /* the DLOCK.SESSION under way */
    bool is_done;     /* the reply to the call was good */
    int64_t born;     /* with a life */
    int64_t last_number;
    session_life *life; /* a share; NULL: never opened */
    int64_t pause_ms;   /* before the next connection; 0: the last one was good for two calls */
    loop_timer timer;   /* a reply is overdue, or a pause is over */
    loop_task wait;     /* for a discovery */
    list guests;
    list buckets[BUCKETS]; /* guest, by the hash of its token, or of its name if it is a watch */
} presence;

static loop *loop_of_presence(const presence *presence) {
    return presence->router->base.loop;
}

/* -- guests */

static list *bucket_of(presence *presence, const char *bytes, size_t length) {
    return &presence->buckets[text_hash_bytes(bytes, length) % BUCKETS];
}

static bool is_same(const char *text, const char *bytes, size_t length) {
    return strlen(text) == length && memcmp(text, bytes, length) == 0;
}

/* A lost event of several names is about one of them, the other events have the first name. */
static bool guest_has_name(const guest *guest, const session_event *event) {
    const char *name = guest->name;
    if (is_same(name, event->name, event->name_length)) return true;
    for (uint8_t i = 1; i < guest->name_count; i++) {
        name = text_behind(name);
        if (is_same(name, event->name, event->name_length)) return true;
    }
    return false;
}

/* A flush loses all locks, and does not know the tokens. */
static void tell_flushed(presence *presence, const session_event *event) {
    list_each(guest, each, &presence->guests, node)
        if (each->token != NULL && guest_has_name(each, event)) each->table->on_event(each, event);
}

/* An event without a guest is of somebody who has left, and whose RELEASE is on its way. */
static void tell_event(presence *presence, const session_event *event) {
    bool is_watch = event->kind == EVENT_CHANGED || event->kind == EVENT_WATCH_ENDED;
    if (event->kind == EVENT_LOST && event->token_length == 0) {
        tell_flushed(presence, event);
        return;
    }
    list *bucket = is_watch ? bucket_of(presence, event->name, event->name_length)
                            : bucket_of(presence, event->token, event->token_length);
    list_each(guest, each, bucket, bucket_node) {
        if (is_watch != (each->token == NULL)) continue;
        if (!guest_has_name(each, event)) continue;
        if (!is_watch && !is_same(each->token, event->token, event->token_length)) continue;
        each->table->on_event(each, event);
        if (!is_watch) return;
    }
}

static void tell_open(presence *presence, bool is_new) {
    list_each(guest, each, &presence->guests, node)
        each->table->on_open(each, is_new);
}

/* -- doubt: does another server have the names? */

static void tell_moved(presence *presence) {
    router *router = presence->router;
    list_each(guest, each, &presence->guests, node) {
        const server *known = router_find(router, each->name);
        if (known != NULL && known != presence->server) each->table->on_moved(each);
    }
}

static void on_presence_found(loop_task *wait) {
    presence *presence = container_of(wait, struct presence, wait);
    server *server = server_share(presence->server);
    tell_moved(presence);
    server_free(server);
}

static void doubt_presence(presence *presence) {
    router *router = presence->router;
    router->is_doubted = true;
    list_remove(&presence->wait.node);
    if (router_discover(router))
        list_append(&router->waits, &presence->wait.node);
    else
        loop_defer(loop_of_presence(presence), &presence->wait);
}

/* -- the call */

static void close_connection(presence *presence) {
    connection_abandon(&presence->call);
    connection_close(presence->conn);
    presence->conn = NULL;
    presence->phase = CLOSED;
    loop_clear_timer(loop_of_presence(presence), &presence->timer);
}

/* The connection has ended, or is of no use. There is a pause without guests too: waits leave if
 * the session cannot be opened, and each would open a connection when it comes again. Then the
 * pause is at most half of an I/O timeout: a try that comes meanwhile has time for a reply. */
static void lose_connection(presence *presence) {
    loop *loop = loop_of_presence(presence);
    bool was_open = presence->phase == OPEN;
    close_connection(presence);
    if (was_open)
        list_each(guest, each, &presence->guests, node)
            if (each->table->on_away != NULL) each->table->on_away(each);
    bool has_guests = !list_is_empty(&presence->guests);
    int64_t pause_ms = presence->pause_ms;
    presence->pause_ms =
        pause_ms == 0 ? PAUSE_FIRST_MS : deadline_earlier(pause_ms * 2, PAUSE_MAX_MS);
    int64_t half_ms = presence->router->base.io_timeout_ms / 2;
    if (!has_guests) pause_ms = deadline_earlier(pause_ms, half_ms);
    loop_set_timer(loop, &presence->timer, deadline_after_ms(loop_now_us(loop), pause_ms));
    if (has_guests) doubt_presence(presence);
}

static void tell_unopened(presence *presence, dlock_status status, const char *cause) {
    list_each(guest, each, &presence->guests, node)
        each->table->on_unopened(each, status, cause);
}

/* A refusal that may pass counts as a broken connection. */
static void read_refusal(presence *presence, const reply *reply) {
    verdict verdict;
    read_failure(&verdict, reply);
    bool may_pass = verdict.is_transient || verdict.hint == HINT_NO_SESSION;
    if (!may_pass || presence->phase == OPENING)
        tell_unopened(presence, may_pass ? DLOCK_UNREACHABLE : verdict.status, verdict.cause);
}

static void read_events(presence *presence, const reply *events, int64_t sent_us) {
    const reply *element = NULL;
    while ((element = reply_next(events, element)) != NULL) {
        session_event event;
        bool is_known = session_event_read(&event, element);
        if (event.number <= presence->last_number) continue;
        presence->last_number = event.number; /* else an unknown one would come again at once */
        event.sent_us = sent_us;
        if (is_known) tell_event(presence, &event);
    }
}

/* False: no memory. */
static bool renew_life(presence *presence, bool is_new, int64_t sent_us) {
    if (!is_new && life_renew(presence->life, sent_us)) return true;
    session_life *life = life_begin(&presence->router->base, sent_us);
    if (life == NULL) return false;
    life_free(presence->life);
    presence->life = life;
    return true;
}

/* By a restart, or after its timeout: what hung on the session may be somebody else's by now. */
static void tell_operators(const presence *presence) {
    const server *server = presence->server;
    diagnose(server->endpoint.options.diagnostics, DLOCK_LOG_WARNING, server->name,
             "the session was forgotten, and is opened anew", "");
}

static void take_session_reply(presence *presence, const reply *reply, int64_t sent_us) {
    const struct reply *events;
    int64_t born;
    presence->is_done = read_session_reply(reply, &born, &events);
    if (!presence->is_done) {
        read_refusal(presence, reply);
        return;
    }
    bool was_opening = presence->phase == OPENING;
    bool was_known = presence->life != NULL;
    bool is_new = !was_known || born != presence->born;
    if (!renew_life(presence, is_new, sent_us)) {
        presence->is_done = false;
        return;
    }
    if (is_new && was_known) tell_operators(presence);
    if (is_new) presence->last_number = 0;
    presence->born = born;
    presence->phase = OPEN;
    if (!was_opening) presence->pause_ms = 0;
    read_events(presence, events, sent_us);
    if (was_opening || is_new) tell_open(presence, is_new);
}

/* Guests that leave give their shares of the server back, and the last one frees the presence. */
static void on_session_reply(request *request, int index, const reply *reply) {
    (void)index;
    presence *presence = container_of(request, struct presence, call);
    server *server = server_share(presence->server);
    take_session_reply(presence, reply, request->sent_us);
    server_free(server);
}

/* A reply is expected by the time that the server may take, and an I/O timeout. */
static void on_session_sent(request *request) {
    presence *presence = container_of(request, struct presence, call);
    int64_t limit_ms = presence->router->base.io_timeout_ms;
    if (presence->phase == OPEN) limit_ms += presence->router->base.session_ms / 3;
    loop_set_timer(loop_of_presence(presence), &presence->timer,
                   deadline_after_ms(request->sent_us, limit_ms));
}

/* False: no memory. */
static bool send_call(presence *presence) {
    command call = {0};
    session_command(&call, presence->id, presence->router->base.session_ms,
                    (uint64_t)presence->last_number);
    presence->is_done = false;
    loop_clear_timer(loop_of_presence(presence), &presence->timer);
    return connection_send(presence->conn, &call, 1, &presence->call);
}

static void on_session_done(request *request, dlock_status status, const char *cause) {
    presence *presence = container_of(request, struct presence, call);
    server *server = server_share(presence->server);
    bool is_lasting = /* a login may be refused */
        status == DLOCK_REFUSED || status == DLOCK_PROTOCOL || status == DLOCK_INVALID;
    if (status != DLOCK_OK && presence->phase == OPENING)
        tell_unopened(presence, is_lasting ? status : DLOCK_UNREACHABLE, cause);
    if (status != DLOCK_OK || !presence->is_done || !send_call(presence)) lose_connection(presence);
    server_free(server);
}

static void open_connection(presence *presence) {
    connection_owner owner = {.place = &presence->conn, .is_parked = true};
    presence->phase = OPENING;
    presence->call = (request){.on_reply = on_session_reply,
                               .on_done = on_session_done,
                               .on_sent = on_session_sent,
                               .reply_bytes_max = REPLY_BYTES_MAX};
    presence->conn = connection_open(&presence->server->endpoint, &owner);
    loop_start_background(
        loop_of_presence(presence)); /* best effort: else whoever waits goes on with it */
    if (presence->conn == NULL || !send_call(presence)) lose_connection(presence);
}

static void on_presence_due(loop_timer *timer) {
    presence *presence = container_of(timer, struct presence, timer);
    server *server = server_share(presence->server);
    if (presence->phase == OPENING) tell_unopened(presence, DLOCK_UNREACHABLE, "no reply in time");
    if (presence->phase != CLOSED)
        lose_connection(presence);
    else if (!list_is_empty(&presence->guests))
        open_connection(presence);
    server_free(server);
}

/* -- a tie that nobody looks after */

static void note_open(guest *guest, bool is_new) {
    tie *tie = container_of(guest, struct tie, guest);
    if (is_new || tie->is_momentary) tie->is_forgotten = true;
}

void tie_note_grant(tie *tie, bool is_certain) {
    session_life *life = is_certain ? life_share(presence_life(&tie->guest)) : NULL;
    life_free(tie->life);
    tie->life = life;
}

/* The key may have moved to another node with its slot, and be held there still. */
void tie_note_lost(tie *tie, const session_event *event) {
    if (reply_is_text(event->why, "moved"))
        tie->is_forgotten = true;
    else
        tie->is_lost = true;
}

static void note_event(guest *guest, const session_event *event) {
    if (event->kind == EVENT_LOST) tie_note_lost(container_of(guest, tie, guest), event);
}

static void note_unopened(guest *guest, dlock_status status, const char *cause) {
    (void)cause;
    if (status != DLOCK_UNREACHABLE) container_of(guest, tie, guest)->is_forgotten = true;
}

static void note_moved(guest *guest) {
    container_of(guest, tie, guest)->is_forgotten = true;
}

const guest_table tie_table = {.on_open = note_open,
                               .on_event = note_event,
                               .on_unopened = note_unopened,
                               .on_moved = note_moved};

/* -- public */

/* Only the end of the client ends the session. A server that discoveries have dropped may be asked
 * again, by another server object and its session: until then the locks and places of this session
 * are to stay, until its timeout. */
static void free_presence(server *server) {
    presence *presence = server->presence;
    bool is_over = presence->router->base.withdrawals.is_closed;
    if (is_over && presence->life != NULL && server->command != NULL) {
        command end = {0};
        session_end_command(&end, presence->id);
        server_send(server, &end, 1, NULL); /* best effort: else the session ends by its timeout */
    }
    close_connection(presence);
    list_remove(&presence->wait.node);
    life_free(presence->life);
    free(presence);
    server->presence = NULL;
}

/* NULL: no memory. */
static presence *presence_of(router *router, server *server) {
    unsigned char random[ID_BYTES];
    if (server->presence != NULL) return server->presence;
    presence *made = calloc(1, sizeof(*made));
    if (made == NULL || getentropy(random, sizeof(random)) != 0) {
        free(made);
        return NULL;
    }
    text_put_hex(made->id, random, sizeof(random));
    made->server = server;
    made->router = router;
    made->timer.on_due = on_presence_due;
    made->wait.run = on_presence_found;
    list_init(&made->guests);
    for (size_t i = 0; i < BUCKETS; i++)
        list_init(&made->buckets[i]);
    server->presence = made;
    server->free_presence = free_presence;
    return made;
}

bool presence_join(router *router, server *server, guest *guest) {
    if (guest->presence != NULL && guest->presence->server == server)
        return guest->presence->phase == OPEN;
    presence_leave(guest);
    presence *presence = presence_of(router, server);
    if (presence == NULL) return false;
    server_share(server);
    const char *key = guest->token != NULL ? guest->token : guest->name;
    guest->presence = presence;
    list_append(&presence->guests, &guest->node);
    list_append(bucket_of(presence, key, strlen(key)), &guest->bucket_node);
    bool is_idle = presence->phase == CLOSED && !heap_has(&presence->timer.node);
    if (is_idle) loop_set_timer(loop_of_presence(presence), &presence->timer, 0);
    return presence->phase == OPEN;
}

void presence_leave(guest *guest) {
    presence *presence = guest->presence;
    if (presence == NULL) return;
    list_remove(&guest->node);
    list_remove(&guest->bucket_node);
    guest->presence = NULL;
    server_free(presence->server);
}

bool presence_is_only_watch(const guest *guest) {
    size_t length = strlen(guest->name);
    const list *bucket = bucket_of(guest->presence, guest->name, length);
    list_each(struct guest, each, bucket, bucket_node)
        if (each != guest && each->token == NULL && is_same(each->name, guest->name, length))
            return false;
    return true;
}

const char *presence_id(const guest *guest) {
    return guest->presence->id;
}

bool presence_is_open(const guest *guest) {
    return guest->presence->phase == OPEN;
}

session_life *presence_life(const guest *guest) {
    return guest->presence->life;
}

void presence_reopen(guest *guest) {
    presence *presence = guest->presence;
    if (presence->phase == OPEN) lose_connection(presence);
}
