/* SPDX-License-Identifier: BSD-3-Clause */
/* name_watch.c - see name_watch.h.
 *
 *   begin   find the server of the name, and join its session
 *   watch   once the session is open: DLOCK.WATCH, which an event about the present state follows.
 *           A read is sent behind it, unless the event will tell enough
 *   read    after each event. A change during a read makes another read follow
 *   again   after a failure, a redirect, or when another server has the name: begin, after a pause
 *   end     after an error that lasts; but a watch of dlock_watch() begins again, to poll
 *
 * Invariant: a watched name has joined a session, or has a request under way, or its timer set, or
 * has met an error that lasts. */
#include "lease/name_watch.h"

enum { RETRY_MS = 100, COMMANDS_MAX = 2, MOMENT_MS = 1 };

static loop *loop_of_watch(const name_watch *watch) {
    return watch->router->base.loop;
}

static void begin_later(name_watch *watch, int64_t pause_ms) {
    loop *loop = loop_of_watch(watch);
    loop_set_timer(loop, &watch->timer, deadline_after_ms(loop_now_us(loop), pause_ms));
}

static void leave_session_of_watch(name_watch *watch) {
    presence_leave(&watch->guest);
    watch->is_watched = false;
}

static void begin_again(name_watch *watch) {
    leave_session_of_watch(watch);
    begin_later(watch, RETRY_MS);
}

/* An error that lasts: an ACL, for instance. */
static void give_up_watch(name_watch *watch) {
    leave_session_of_watch(watch);
    if (watch->lease == NULL) begin_later(watch, WATCH_POLL_MS);
}

/* -- replies */

static void read_error(name_watch *watch, const reply *error) {
    router *router = watch->router;
    char text[CAUSE_SIZE];
    redirect redirect;
    reply_copy_text(error, text, sizeof(text));
    bool is_redirect = router->table->follow != NULL && redirect_read(&redirect, text);
    if (is_redirect && !redirect.is_ask) router->table->follow(router, watch->server, &redirect);
    if (reply_begins_with(error, "READONLY ")) router->is_doubted = true;
    if (is_redirect || error_reply_meaning(error).is_transient)
        begin_again(watch);
    else
        give_up_watch(watch);
}

/* Nobody tells of changes of a string, so it is read again now and then. */
static void take_holder(name_watch *watch, const reply *info) {
    const reply *kind = reply_value(info, "kind");
    bool is_string = kind != NULL && reply_is_text(kind, "string");
    if (is_string) begin_later(watch, WATCH_POLL_MS);
    watch->on_read(watch, watch->server, info);
}

static void end_watch(name_watch *watch);

/* The reply to an EXTEND. A lock that is lost, and not given back yet, is not watched any more. */
static void take_proof(name_watch *watch, const reply *reply) {
    lease *lease = watch->lease;
    verdict verdict;
    read_holder_reply(&verdict, reply);
    bool is_lost = verdict.status == DLOCK_LOST; /* else held, or not the word of the master */
    if (is_lost || lease_gone_at_us(lease) == LEASE_OVER) end_watch(watch);
    if (is_lost) lease_lose(lease, DLOCK_LOST);
}

static void on_watch_reply(request *request, int index, const reply *reply) {
    name_watch *watch = container_of(request, name_watch, request);
    bool is_watch = watch->is_watching && index == 0;
    bool is_error = reply->kind == REPLY_ERROR && !reply_is_no_lock(reply);
    bool has_session = watch->guest.presence != NULL; /* else it has been left meanwhile */
    if (is_error && is_watch && has_session && reply_begins_with(reply, "NOSESSION "))
        presence_reopen(&watch->guest);
    else if (is_error)
        read_error(watch, reply);
    else if (is_watch)
        watch->is_watched = has_session;
    else if (watch->lease != NULL)
        take_proof(watch, reply);
    else
        take_holder(watch, reply);
}

static void send_read(name_watch *watch);

static void on_watch_done(request *request, dlock_status status, const char *cause) {
    (void)cause;
    name_watch *watch = container_of(request, name_watch, request);
    server *server = watch->server;
    watch->server = NULL;
    if (status != DLOCK_OK)
        begin_again(watch);
    else if (watch->is_stale && watch->guest.presence != NULL)
        send_read(watch);
    server_free(server);
}

/* -- requests */

static void add_read(const name_watch *watch, command *command) {
    lock_words proof = {.operation = DLOCK_EXTENDING,
                        .name = watch->name,
                        .token = watch->token,
                        .lease_ms = MOMENT_MS};
    if (watch->lease != NULL)
        lock_command(command, &proof);
    else
        inspect_command(command, watch->name, strlen(watch->name));
}

static void send_to(name_watch *watch, server *server, bool is_watching) {
    command commands[COMMANDS_MAX] = {{0}};
    int count = 0;
    const guest *guest = &watch->guest;
    if (is_watching) watch_command(&commands[count++], watch->name, presence_id(guest), true);
    if (!is_watching || watch->lease == NULL) add_read(watch, &commands[count++]);
    watch->request = (request){
        .on_reply = on_watch_reply, .on_done = on_watch_done, .reply_bytes_max = REPLY_BYTES_MAX};
    watch->is_stale = false;
    watch->is_watching = is_watching;
    watch->server = server_share(server);
    if (server_send(server, commands, count, &watch->request)) return;
    watch->server = NULL;
    server_free(server);
    begin_later(watch, WATCH_POLL_MS);
}

static server *find_watch_server(name_watch *watch) {
    router *router = watch->router;
    return router_find(router, watch->name);
}

/* The name has joined a session. */
static void send_read(name_watch *watch) {
    server *server = find_watch_server(watch);
    if (watch->server != NULL)
        watch->is_stale = true;
    else if (server == NULL)
        begin_again(watch);
    else
        send_to(watch, server, false);
}

static void send_watch(name_watch *watch) {
    server *server = find_watch_server(watch);
    connection_abandon(&watch->request);
    server_free(watch->server);
    watch->server = NULL;
    if (server == NULL)
        begin_again(watch);
    else
        send_to(watch, server, true);
}

/* -- the session */

static void on_watch_open(guest *guest, bool is_new) {
    name_watch *watch = guest->arg;
    if (is_new || !watch->is_watched) send_watch(watch);
}

static void on_watch_event(guest *guest, const session_event *event) {
    name_watch *watch = guest->arg;
    const char *token = watch->token;
    bool is_known = token != NULL && event->token != NULL && strlen(token) == event->token_length &&
                    memcmp(token, event->token, event->token_length) == 0;
    if (event->kind == EVENT_WATCH_ENDED) {
        watch->router->is_doubted = true; /* the slot has moved, or is about to */
        begin_again(watch);
    } else if (!is_known) {
        send_read(watch);
    }
}

/* A poll comes without a session. */
static void on_watch_unopened(guest *guest, dlock_status status, const char *cause) {
    (void)cause;
    name_watch *watch = guest->arg;
    if (status == DLOCK_UNREACHABLE) return;
    give_up_watch(watch);
    server *server = find_watch_server(watch);
    if (watch->lease == NULL && server != NULL && watch->server == NULL)
        send_to(watch, server, false);
}

static void on_watch_moved(guest *guest) {
    begin_again(guest->arg);
}

static const guest_table watch_guests = {.on_open = on_watch_open,
                                         .on_event = on_watch_event,
                                         .on_unopened = on_watch_unopened,
                                         .on_moved = on_watch_moved};

/* -- public */

static void end_watch(name_watch *watch) {
    if (watch->router == NULL) return;
    server *server = find_watch_server(watch);
    bool has_joined = watch->guest.presence != NULL;
    if (server != NULL && has_joined && presence_is_only_watch(&watch->guest)) {
        command unwatch = {0};
        watch_command(&unwatch, watch->name, presence_id(&watch->guest), false);
        server_send(server, &unwatch, 1, NULL);
    }
    connection_abandon(&watch->request);
    loop_clear_timer(loop_of_watch(watch), &watch->timer);
    leave_session_of_watch(watch);
    server_free(watch->server);
    watch->server = NULL;
    watch->router = NULL;
}

static void on_watch_due(loop_timer *timer) {
    name_watch *watch = container_of(timer, name_watch, timer);
    router *router = watch->router;
    router_discover(router);
    server *server = find_watch_server(watch);
    watch->is_watched = false; /* while the session is away: on_watch_open() goes on */
    if (server != NULL && presence_join(router, server, &watch->guest))
        send_watch(watch);
    else if (server == NULL || watch->guest.presence == NULL) /* no memory for a session */
        begin_later(watch, RETRY_MS);
}

/* Not watched yet, or no longer. */
static void begin_watch(name_watch *watch, deployment *deployment, int64_t delay_ms) {
    watch->router = (router *)deployment;
    watch->timer.on_due = on_watch_due;
    watch->guest = (guest){.table = &watch_guests, .name = watch->name, .arg = watch};
    begin_later(watch, delay_ms);
}

void name_watch_begin(name_watch *watch, deployment *deployment, const char *name,
                      void (*on_read)(name_watch *watch, server *server, const reply *info)) {
    if (!deployment_can_watch(deployment) || watch->router != NULL) return;
    *watch = (name_watch){.name = name, .on_read = on_read};
    begin_watch(watch, deployment, 0);
}

void lock_watch_begin(name_watch *watch, deployment *deployment, lease *lease, const char *name,
                      const char *token) {
    if (!deployment_can_watch(deployment) || watch->lease != NULL) return;
    *watch = (name_watch){.name = name, .lease = lease, .token = token};
    loop_start_background(deployment->loop); /* best effort: else a renewal notices */
    begin_watch(watch, deployment, LOCK_WATCH_AFTER_MS);
}

void name_watch_end(name_watch *watch) {
    end_watch(watch);
    watch->lease = NULL;
}
