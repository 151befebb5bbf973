/* SPDX-License-Identifier: BSD-3-Clause */
/* tracking.c - see tracking.h.
 *
 *   begin   find the server of the name, and join its session
 *   watch   once the session is open: DLOCK.WATCH, which an event about the present state follows.
 *           A read is sent behind it, unless the event will tell enough
 *   read    after each event. A change during a read makes another read follow
 *   again   after a failure, a redirect, or when another server has the name: begin, after a pause
 *   end     after an error that lasts; a name that is polled begins again
 *
 * Invariant: a tracked name has joined a session, or has a request under way, or its timer set, or
 * has met an error that lasts. */
#include "deployment/tracking.h"

enum { RETRY_MS = 100, COMMANDS_MAX = 2, MOMENT_MS = 1 };

static loop *loop_of(const tracked_name *tracked) {
    return tracked->tracking->router->base.loop;
}

static void begin_later(tracked_name *tracked, int64_t pause_ms) {
    loop *loop = loop_of(tracked);
    loop_set_timer(loop, &tracked->timer, deadline_after_ms(loop_now_us(loop), pause_ms));
}

static void leave_session(tracked_name *tracked) {
    presence_leave(&tracked->guest);
    tracked->is_watched = false;
}

static void begin_again(tracked_name *tracked) {
    leave_session(tracked);
    begin_later(tracked, RETRY_MS);
}

/* An error that lasts: an ACL, for instance. */
static void give_up_watch(tracked_name *tracked) {
    leave_session(tracked);
    if (tracked->is_polled) begin_later(tracked, TRACKING_POLL_MS);
}

/* -- replies */

static void read_error(tracked_name *tracked, const reply *error) {
    router *router = tracked->tracking->router;
    char text[CAUSE_SIZE];
    redirect redirect;
    reply_copy_text(error, text, sizeof(text));
    bool is_redirect = router->table->follow != NULL && redirect_read(&redirect, text);
    if (is_redirect && !redirect.is_ask) router->table->follow(router, tracked->server, &redirect);
    if (reply_begins_with(error, "READONLY ")) router->is_doubted = true;
    if (is_redirect || error_reply_meaning(error).is_transient)
        begin_again(tracked);
    else
        give_up_watch(tracked);
}

/* Nobody tells of changes of a string, so it is read again now and then. */
static void take_info(tracked_name *tracked, const reply *info) {
    const reply *kind = tracked->is_polled ? reply_value(info, "kind") : NULL;
    bool is_string = kind != NULL && reply_is_text(kind, "string");
    if (is_string) begin_later(tracked, TRACKING_POLL_MS);
    tracked->on_read(tracked, tracked->server, info);
}

static void on_tracked_reply(request *request, int index, const reply *reply) {
    tracked_name *tracked = container_of(request, tracked_name, request);
    bool is_watch = tracked->is_watching && index == 0;
    bool is_error = reply->kind == REPLY_ERROR && !reply_is_no_lock(reply);
    bool has_session = tracked->guest.presence != NULL; /* else it has been left meanwhile */
    if (is_error && is_watch && has_session && reply_begins_with(reply, "NOSESSION "))
        presence_reopen(&tracked->guest);
    else if (is_error)
        read_error(tracked, reply);
    else if (is_watch)
        tracked->is_watched = has_session;
    else
        take_info(tracked, reply);
}

static void send_read(tracked_name *tracked);

static void on_tracked_done(request *request, dlock_status status, const char *cause) {
    (void)cause;
    tracked_name *tracked = container_of(request, tracked_name, request);
    server *server = tracked->server;
    tracked->server = NULL;
    if (status != DLOCK_OK)
        begin_again(tracked);
    else if (tracked->is_stale && tracked->guest.presence != NULL)
        send_read(tracked);
    server_free(server);
}

/* -- requests */

static void add_read(const tracked_name *tracked, command *command) {
    lock_words proof = {.operation = DLOCK_EXTENDING,
                        .name = tracked->name,
                        .token = tracked->token,
                        .lease_ms = MOMENT_MS};
    if (tracked->token != NULL)
        lock_command(command, &proof);
    else
        inspect_command(command, tracked->name, strlen(tracked->name));
}

static void send_to(tracked_name *tracked, server *server, bool is_watching) {
    command commands[COMMANDS_MAX] = {{0}};
    int count = 0;
    const guest *guest = &tracked->guest;
    if (is_watching) watch_command(&commands[count++], tracked->name, presence_id(guest), true);
    if (!is_watching || tracked->token == NULL) add_read(tracked, &commands[count++]);
    tracked->request = (request){.on_reply = on_tracked_reply,
                                 .on_done = on_tracked_done,
                                 .reply_bytes_max = REPLY_BYTES_MAX};
    tracked->is_stale = false;
    tracked->is_watching = is_watching;
    tracked->server = server_share(server);
    if (server_send(server, commands, count, &tracked->request)) return;
    tracked->server = NULL;
    server_free(server);
    begin_later(tracked, TRACKING_POLL_MS);
}

static server *find_server(tracked_name *tracked) {
    router *router = tracked->tracking->router;
    return router->table->find(router, tracked->name);
}

/* Of a name that has joined a session. */
static void send_read(tracked_name *tracked) {
    server *server = find_server(tracked);
    if (tracked->server != NULL)
        tracked->is_stale = true;
    else if (server == NULL)
        begin_again(tracked);
    else
        send_to(tracked, server, false);
}

static void send_watch(tracked_name *tracked) {
    server *server = find_server(tracked);
    connection_abandon(&tracked->request);
    server_free(tracked->server);
    tracked->server = NULL;
    if (server == NULL)
        begin_again(tracked);
    else
        send_to(tracked, server, true);
}

/* -- the session */

static void on_watch_open(guest *guest, bool is_new) {
    tracked_name *tracked = guest->arg;
    if (is_new || !tracked->is_watched) send_watch(tracked);
}

static void on_watch_event(guest *guest, const session_event *event) {
    tracked_name *tracked = guest->arg;
    const char *token = tracked->token;
    bool is_known = token != NULL && event->token != NULL && strlen(token) == event->token_length &&
                    memcmp(token, event->token, event->token_length) == 0;
    if (event->kind == EVENT_WATCH_ENDED) {
        tracked->tracking->router->is_doubted = true; /* the slot has moved, or is about to */
        begin_again(tracked);
    } else if (!is_known) {
        send_read(tracked);
    }
}

/* A poll comes without a session. */
static void on_watch_refused(guest *guest, dlock_status status, const char *cause) {
    (void)status, (void)cause;
    tracked_name *tracked = guest->arg;
    give_up_watch(tracked);
    server *server = find_server(tracked);
    if (tracked->is_polled && server != NULL && tracked->server == NULL)
        send_to(tracked, server, false);
}

static void on_watch_moved(guest *guest) {
    begin_again(guest->arg);
}

static const guest_table tracked_guests = {.on_open = on_watch_open,
                                           .on_event = on_watch_event,
                                           .on_refused = on_watch_refused,
                                           .on_moved = on_watch_moved};

/* -- public */

static void on_tracked_due(loop_timer *timer) {
    tracked_name *tracked = container_of(timer, tracked_name, timer);
    router *router = tracked->tracking->router;
    router_discover(router);
    server *server = find_server(tracked);
    if (server == NULL)
        begin_later(tracked, RETRY_MS);
    else if (presence_join(router, server, &tracked->guest))
        send_watch(tracked);
}

void tracking_init(tracking *tracking, deployment *deployment) {
    if (deployment->table->is_routed && deployment->protocol->has_module)
        tracking->router = (router *)deployment;
}

void tracking_add(tracking *tracking, tracked_name *tracked, int64_t delay_ms) {
    if (tracking->router == NULL || tracked->tracking != NULL) return;
    tracked->tracking = tracking;
    tracked->timer.on_due = on_tracked_due;
    tracked->guest = (guest){.table = &tracked_guests, .name = tracked->name, .arg = tracked};
    begin_later(tracked, delay_ms);
}

void tracking_remove(tracked_name *tracked) {
    if (tracked->tracking == NULL) return;
    server *server = find_server(tracked);
    bool has_joined = tracked->guest.presence != NULL;
    if (server != NULL && has_joined && presence_is_only_watch(&tracked->guest)) {
        command unwatch = {0};
        watch_command(&unwatch, tracked->name, presence_id(&tracked->guest), false);
        server_send(server, &unwatch, 1, NULL);
    }
    connection_abandon(&tracked->request);
    loop_clear_timer(loop_of(tracked), &tracked->timer);
    leave_session(tracked);
    server_free(tracked->server);
    tracked->server = NULL;
    tracked->tracking = NULL;
}
