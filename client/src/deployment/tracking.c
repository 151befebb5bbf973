/* SPDX-License-Identifier: BSD-3-Clause */
/* tracking.c - see tracking.h.
 *
 *   link      of a server: CLIENT ID and SUBSCRIBE on the subscriber; then the names are read.
 *             Refused by the server: no hints. Broken: opened again after a pause
 *   read      CLIENT TRACKING ON once for each command connection; then for each name CLIENT
 *             CACHING YES (only names that are asked for in this way are remembered) and DLOCK.INFO
 *   hint      the name is read again; a hint for all names (FLUSHALL) likewise
 *   reset     the command connection was lost, and with it the memory of the server: all names of
 *             the link are read again
 *   failure   the server of the name is looked for again, after a pause
 *
 * Invariants: a tracked name has a request under way, or a timer, or a link with a subscriber or a
 * timer. A link without names is closed after LINGER_MS. No failure leads to another request
 * without a pause; hints do so only a few times in a row. */
#include "deployment/tracking.h"

enum { RETRY_MS = 200, REOPEN_MS = 1000, LINGER_MS = 10000, SAFETY_MS = 10000, COMMANDS_MAX = 4 };
enum { OPENING_MS = 5000, POLLED_PAUSE_MS = 20, PAUSE_MAX_MS = 5000 };
enum { READS_FREE = 4, QUICK_READS_MAX = 20 };
#define CHANNEL "__redis__:invalidate"

typedef struct tracked_server {
    tracking *tracking;
    list_node node;
    list names; /* tracked_name */
    server *server;
    enum { LINK_CLOSED, LINK_OPENING, LINK_OPEN, LINK_REFUSED } phase;
    own_connection *subscriber; /* NULL: none */
    request subscription;
    int64_t subscriber_id;
    bool is_enabled; /* CLIENT TRACKING ON was sent on the command connection */
    loop_task reset;
    loop_timer timer; /* without names: closes the link. Else: opens the subscriber again */
} tracked_server;

static loop *loop_of(const tracking *tracking) {
    return tracking->router->base.loop;
}

static void set_timer(tracking *tracking, loop_timer *timer, int64_t pause_ms) {
    loop *loop = loop_of(tracking);
    loop_set_timer(loop, timer, deadline_after_ms(loop_now_us(loop), pause_ms));
}

static void doubt(tracking *tracking) {
    tracking->router->is_doubted = true;
    router_discover(tracking->router);
}

static bool is_reading(const tracked_name *tracked) {
    return tracked->request.conn != NULL;
}

static int64_t pause_max_ms(const tracked_name *tracked) {
    return tracked->is_polled ? POLLED_PAUSE_MS : PAUSE_MAX_MS;
}

static void note_read(tracked_name *tracked) {
    int64_t now_us = loop_now_us(loop_of(tracked->tracking));
    if (now_us - tracked->read_us >= pause_max_ms(tracked) * 2000)
        tracked->quick_reads = 0;
    else if (tracked->quick_reads < QUICK_READS_MAX)
        tracked->quick_reads++;
    tracked->read_us = now_us;
}

/* A changed name is read again at once, but a name that changes all the time with pauses that
 * double. Else each holder of a busy shared lock would read each change, and a server with a full
 * tracking table would send a hint for each read. */
static int64_t next_read_us(const tracked_name *tracked) {
    int over = tracked->quick_reads - READS_FREE;
    if (over < 0) return 0;
    return deadline_after_ms(tracked->read_us,
                             deadline_earlier((int64_t)1 << over, pause_max_ms(tracked)));
}

/* A read under way may be older than the change: the name is read once more then. */
static void read_later(tracked_name *tracked, int64_t pause_ms) {
    loop *loop = loop_of(tracked->tracking);
    int64_t due_us = deadline_after_ms(loop_now_us(loop), pause_ms);
    int64_t least_us = next_read_us(tracked);
    tracked->is_stale = is_reading(tracked) && pause_ms == 0;
    if (!tracked->is_stale)
        loop_set_timer(loop, &tracked->timer, due_us > least_us ? due_us : least_us);
}

/* -- links */

static void read_all(tracked_server *link, int64_t pause_ms) {
    list_each(tracked_name, tracked, &link->names, link_node)
        read_later(tracked, pause_ms);
}

static void close_subscriber(tracked_server *link) {
    own_connection *subscriber = link->subscriber;
    link->subscriber = NULL;
    link->phase = LINK_CLOSED;
    link->is_enabled = false;
    if (subscriber == NULL) return;
    connection_abandon(&link->subscription);
    own_connection_close(subscriber);
}

static void reopen_later(tracked_server *link) {
    close_subscriber(link);
    set_timer(link->tracking, &link->timer, REOPEN_MS);
}

/* The server has no such commands, or does not permit them. */
static void refuse(tracked_server *link) {
    close_subscriber(link);
    link->phase = LINK_REFUSED;
}

static void on_broken(void *arg) {
    tracked_server *link = arg;
    reopen_later(link);
    doubt(link->tracking);
    read_all(link, RETRY_MS);
}

static void read_hinted(const tracked_server *link, const reply *name) {
    uint64_t hash = text_hash_bytes(name->text, name->length);
    const list *bucket = &link->tracking->buckets[hash % TRACKING_BUCKETS];
    list_each(tracked_name, tracked, bucket, bucket_node)
        if (tracked->link == link && reply_is_text(name, tracked->name)) read_later(tracked, 0);
}

static void on_message(void *arg, const reply *message) {
    tracked_server *link = arg;
    const reply *kind = reply_element(message, 0), *names = reply_element(message, 2);
    if (kind == NULL || names == NULL || !reply_is_text(kind, "message")) return;
    if (names->kind == REPLY_NIL) read_all(link, 0);
    for (const reply *name = NULL; (name = reply_next(names, name)) != NULL;)
        if (name->kind == REPLY_TEXT) read_hinted(link, name);
}

static bool is_transient(const reply *reply) {
    return reply->kind == REPLY_ERROR && error_reply_meaning(reply).is_transient;
}

static void on_subscription_reply(request *request, int index, const reply *reply) {
    tracked_server *link = container_of(request, tracked_server, subscription);
    if (index == 0) link->subscriber_id = reply->integer;
    if (reply->kind == (index == 0 ? REPLY_INTEGER : REPLY_ARRAY)) return;
    (is_transient(reply) ? reopen_later : refuse)(link);
    read_all(link, 0);
}

/* A connection that broke has called on_broken() before. */
static void on_subscribed(request *request, dlock_status status, const char *cause) {
    (void)cause;
    tracked_server *link = container_of(request, tracked_server, subscription);
    if (status != DLOCK_OK) return;
    link->phase = LINK_OPEN;
    read_all(link, 0);
}

static void open_subscriber(tracked_server *link) {
    command commands[2] = {{0}};
    command_add_words(&commands[0], COMMAND_WORDS("CLIENT", "ID"));
    command_add_words(&commands[1], COMMAND_WORDS("SUBSCRIBE", CHANNEL));
    link->subscription = (request){.on_reply = on_subscription_reply, .on_done = on_subscribed};
    own_connection *subscriber = link->subscriber = server_open_own(link->server, false);
    if (subscriber == NULL ||
        !connection_send(subscriber->conn, commands, 2, &link->subscription)) {
        reopen_later(link);
        return;
    }
    link->phase = LINK_OPENING;
    set_timer(link->tracking, &link->timer, OPENING_MS);
    subscriber->on_message = on_message;
    subscriber->on_broken = on_broken;
    subscriber->arg = link;
    loop_start_background(loop_of(link->tracking)); /* best effort: else the next call reads */
}

static void free_link(tracked_server *link) {
    close_subscriber(link);
    loop_clear_timer(loop_of(link->tracking), &link->timer);
    list_remove(&link->reset.node);
    link->server->reset_task = NULL;
    server_free(link->server);
    list_remove(&link->node);
    free(link);
}

static void on_link_due(loop_timer *timer) {
    tracked_server *link = container_of(timer, tracked_server, timer);
    if (list_is_empty(&link->names))
        free_link(link);
    else if (link->phase == LINK_CLOSED)
        open_subscriber(link);
    else if (link->phase == LINK_OPENING)
        on_broken(link); /* the server hangs */
}

/* A stalled connection may never answer: its requests are given up. */
static void on_reset(loop_task *task) {
    tracked_server *link = container_of(task, tracked_server, reset);
    link->is_enabled = false;
    list_each(tracked_name, tracked, &link->names, link_node)
        connection_abandon(&tracked->request);
    read_all(link, RETRY_MS);
}

/* NULL: no memory. */
static tracked_server *link_of(tracking *tracking, server *server) {
    list_each(tracked_server, known, &tracking->links, node)
        if (known->server == server) return known;
    tracked_server *link = calloc(1, sizeof(*link));
    if (link == NULL) return NULL;
    link->tracking = tracking;
    link->server = server_share(server);
    link->reset.run = on_reset;
    link->timer.on_due = on_link_due;
    list_init(&link->names);
    list_append(&tracking->links, &link->node);
    server->reset_task = &link->reset;
    open_subscriber(link);
    return link;
}

static void leave_link(tracked_name *tracked) {
    tracked_server *link = tracked->link;
    tracked->link = NULL;
    list_remove(&tracked->link_node);
    if (link != NULL && list_is_empty(&link->names))
        set_timer(link->tracking, &link->timer, LINGER_MS);
}

/* False: the server of the name is not known now. */
static bool find_link(tracked_name *tracked) {
    router *router = tracked->tracking->router;
    server *server = router->table->find(router, tracked->name);
    if (server != NULL && tracked->link != NULL && tracked->link->server == server) return true;
    leave_link(tracked);
    tracked_server *link = server == NULL ? NULL : link_of(tracked->tracking, server);
    if (link == NULL) return false;
    if (list_is_empty(&link->names) && link->phase == LINK_CLOSED)
        set_timer(tracked->tracking, &link->timer, REOPEN_MS); /* instead of the end of the link */
    list_append(&link->names, &tracked->link_node);
    tracked->link = link;
    return true;
}

/* -- replies */

/* The server does not accept CLIENT TRACKING, has closed the subscriber meanwhile, or the command
 * connection is another one than the one that was put into tracking mode. */
static void lose_tracking(tracked_name *tracked, const reply *error) {
    tracked_server *link = tracked->link;
    link->is_enabled = false;
    if (link->phase != LINK_OPEN) return;
    if (reply_begins_with(error, "ERR CLIENT CACHING") || is_transient(error))
        read_later(tracked, RETRY_MS);
    else if (reply_begins_with(error, "ERR The client ID"))
        reopen_later(link);
    else
        refuse(link);
}

/* A name that is not polled is given up by a lasting error. */
static void read_error(tracked_name *tracked, const reply *error) {
    router *router = tracked->tracking->router;
    char text[CAUSE_SIZE];
    redirect redirect;
    reply_copy_text(error, text, sizeof(text));
    bool is_redirect = router->table->follow != NULL && redirect_read(&redirect, text);
    if (is_redirect && !redirect.is_ask)
        router->table->follow(router, tracked->link->server, &redirect);
    if (is_redirect || is_transient(error))
        read_later(tracked, RETRY_MS);
    else if (tracked->is_polled)
        read_later(tracked, TRACKING_POLL_MS);
}

static void on_reply(request *request, int index, const reply *reply) {
    tracked_name *tracked = container_of(request, tracked_name, request);
    if (index < tracked->info_index) {
        const struct reply *role = reply_element(reply, 0); /* NULL: no reply to ROLE */
        if (reply->kind == REPLY_ERROR) lose_tracking(tracked, reply);
        if (role != NULL) tracked->is_replica = !reply_is_text(role, "master");
        return;
    }
    if (tracked->is_replica) {
        doubt(tracked->tracking);
        read_later(tracked, RETRY_MS);
    } else if (reply->kind == REPLY_ERROR && !reply_is_no_lock(reply)) {
        read_error(tracked, reply);
    } else {
        tracked->on_read(tracked, tracked->link->server, reply);
    }
}

static void on_done(request *request, dlock_status status, const char *cause) {
    (void)cause;
    tracked_name *tracked = container_of(request, tracked_name, request);
    bool is_open = tracked->link->phase == LINK_OPEN;
    if (status != DLOCK_OK) {
        doubt(tracked->tracking);
        read_later(tracked, RETRY_MS);
    } else if (tracked->is_stale) {
        read_later(tracked, 0);
    } else if (!heap_has(&tracked->timer.node) && tracked->is_polled) {
        read_later(tracked, is_open ? SAFETY_MS : TRACKING_POLL_MS);
    }
}

/* -- reading */

/* CLIENT CACHING YES counts for the next command only. False: no memory. */
static bool send_read(tracked_name *tracked) {
    tracked_server *link = tracked->link;
    command commands[COMMANDS_MAX] = {{0}};
    int count = 0;
    bool is_open = link->phase == LINK_OPEN;
    if (is_open && !link->is_enabled) {
        command *on = &commands[count++];
        command_add_words(on, COMMAND_WORDS("CLIENT", "TRACKING", "ON", "OPTIN", "REDIRECT"));
        command_add_number(on, (uint64_t)link->subscriber_id);
    }
    if (link->server->endpoint.url.must_be_master) command_add(&commands[count++], "ROLE");
    if (is_open) command_add_words(&commands[count++], COMMAND_WORDS("CLIENT", "CACHING", "YES"));
    inspect_command(&commands[count], tracked->name, strlen(tracked->name));
    tracked->info_index = count++;
    tracked->request =
        (request){.on_reply = on_reply, .on_done = on_done, .reply_bytes_max = REPLY_BYTES_MAX};
    link->is_enabled = is_open;
    return server_send(link->server, commands, count, &tracked->request);
}

static void on_due(loop_timer *timer) {
    tracked_name *tracked = container_of(timer, tracked_name, timer);
    if (is_reading(tracked)) {
        tracked->is_stale = true;
        return;
    }
    if (!find_link(tracked)) {
        router_discover(tracked->tracking->router);
        read_later(tracked, RETRY_MS);
        return;
    }
    const tracked_server *link = tracked->link;
    bool is_wanted = link->phase == LINK_OPEN || tracked->is_polled;
    if (link->phase == LINK_OPENING || !is_wanted) return; /* read once there is a subscriber */
    note_read(tracked);
    tracked->is_stale = tracked->is_replica = false;
    if (!send_read(tracked)) read_later(tracked, TRACKING_POLL_MS);
}

/* -- public */

void tracking_init(tracking *tracking, deployment *deployment) {
    bool is_routed = deployment->table == &routed_table;
    if (is_routed && deployment->protocol->has_module) tracking->router = (router *)deployment;
    list_init(&tracking->links);
    for (size_t i = 0; i < TRACKING_BUCKETS; i++)
        list_init(&tracking->buckets[i]);
}

void tracking_close(tracking *tracking) {
    if (tracking->router == NULL) return;
    list_each(tracked_server, link, &tracking->links, node)
        free_link(link);
}

void tracking_add(tracking *tracking, tracked_name *tracked) {
    if (tracking->router == NULL || tracked->tracking != NULL) return;
    tracked->tracking = tracking;
    tracked->timer.on_due = on_due;
    list_append(&tracking->buckets[text_hash(tracked->name) % TRACKING_BUCKETS],
                &tracked->bucket_node);
    read_later(tracked, 0);
}

void tracking_remove(tracked_name *tracked) {
    if (tracked->tracking == NULL) return;
    connection_abandon(&tracked->request);
    loop_clear_timer(loop_of(tracked->tracking), &tracked->timer);
    list_remove(&tracked->bucket_node);
    leave_link(tracked);
    tracked->tracking = NULL;
}
