/* SPDX-License-Identifier: BSD-3-Clause */
/* router.c - see router.h: discoveries, the list of servers, and the router to one master: a single
 * server, which is always known, or the master that sentinels name. cluster.c is the other router.
 *
 * All sentinels are asked at once; the reply with the newest configuration epoch wins, and may name
 * the same master again. Each new connection to a master checks the role (must_be_master), so a
 * known master stays in use while no sentinel replies.
 *
 * Invariant: a discovery ends by the timer, which a useful reply moves ahead, so that no connection
 * is closed from within a callback of the same connection. */
#include "deployment/router.h"

#include "deployment/life.h"

/* Which failure of several servers the caller is told: a lower rank wins. The reply of a server
 * that works tells more than a refused login, and a refused login more than silence. */
enum { RANK_USELESS_REPLY = 1, RANK_REFUSAL = 2, RANK_SILENCE = 3, RANK_NONE = 4 };

/* DLOCK_UNREACHABLE: the next discovery may succeed. Any other failure is a refusal that lasts. */
static void note_probe_failure(const router_probe *probe, bool is_reply, dlock_status failure,
                               const char *cause) {
    router *router = probe->router;
    int rank = is_reply ? RANK_USELESS_REPLY : RANK_SILENCE;
    if (failure != DLOCK_UNREACHABLE) rank = RANK_REFUSAL;
    if (rank >= router->worst_rank) return;
    router->worst_rank = rank;
    router->worst = failure;
    cause_write(router->worst_cause, probe->server, cause);
}

static void on_probe_reply(request *request, int index, const reply *reply) {
    router_probe *probe = container_of(request, router_probe, request);
    router *router = probe->router;
    if (reply->kind == REPLY_ERROR) {
        char text[CAUSE_SIZE];
        reply_copy_text(reply, text, sizeof(text));
        error_meaning meaning = error_reply_meaning(reply);
        note_probe_failure(probe, true, meaning.is_transient ? DLOCK_UNREACHABLE : meaning.status,
                           text);
        return;
    }
    const char *useless = router->table->read(router, probe, index, reply);
    if (useless != NULL) {
        note_probe_failure(probe, true, DLOCK_UNREACHABLE, useless);
    } else if (!router->is_answered) {
        loop *loop = router->base.loop;
        int64_t until_us = deadline_after_ms(loop_now_us(loop), router->table->grace_ms);
        router->is_answered = true;
        loop_set_timer(loop, &router->timer, deadline_earlier(until_us, router->timer.node.due_us));
    }
}

/* Nothing is changed by a request without a reply: no lock is in doubt. */
static void on_probe_done(request *request, dlock_status status, const char *cause) {
    router_probe *probe = container_of(request, router_probe, request);
    router *router = probe->router;
    if (status == DLOCK_IN_DOUBT) status = DLOCK_UNREACHABLE;
    if (status != DLOCK_OK) note_probe_failure(probe, false, status, cause);
    if (--router->pending_count == 0) loop_set_timer(router->base.loop, &router->timer, 0);
}

static void stop_discovery(router *router) {
    loop_clear_timer(router->base.loop, &router->timer);
    for (size_t i = 0; i < router->probe_count; i++) {
        router_probe *probe = &router->probes[i];
        bool is_pending = probe->request.conn != NULL;
        if (is_pending) note_probe_failure(probe, false, DLOCK_UNREACHABLE, "no reply in time");
        connection_abandon(&probe->request);
        server_free(probe->server);
    }
    router->probe_count = 0;
    router->is_discovering = false;
}

static void on_discovery_due(loop_timer *timer) {
    router *router = container_of(timer, struct router, timer);
    stop_discovery(router);
    router->ended_us = loop_now_us(router->base.loop);
    if (!router->is_answered)
        router_tell_waits(router, router->worst, router->worst_cause);
    else if (router->table->conclude == NULL || router->table->conclude(router))
        router_tell_waits(router, DLOCK_OK, "");
    else
        router_tell_waits(router, DLOCK_NO_MEMORY, "no memory");
}

static void start_discovery(router *router, int64_t now_us) {
    server *servers[DISCOVERY_SERVERS_MAX];
    command commands[DISCOVERY_COMMANDS_MAX] = {{0}};
    size_t count = router->table->prepare(router, servers, commands);
    int64_t limit_us = deadline_after_ms(now_us, router->base.connect_timeout_ms);
    router->probe_count = router->pending_count = count;
    router->is_discovering = true;
    router->is_doubted = router->is_answered = false;
    router->worst_rank = RANK_NONE;
    loop_set_timer(router->base.loop, &router->timer, limit_us);
    for (size_t i = 0; i < count; i++) {
        router_probe *probe = &router->probes[i];
        *probe = (router_probe){.request = {.on_reply = on_probe_reply,
                                            .on_done = on_probe_done,
                                            .reply_bytes_max = REPLY_BYTES_MAX},
                                .router = router,
                                .server = server_share(servers[i])};
        if (!server_send(probe->server, commands, router->table->command_count, &probe->request))
            on_probe_done(&probe->request, DLOCK_NO_MEMORY, "no memory");
    }
}

bool router_ask_again(router *router) {
    int64_t now_us = loop_now_us(router->base.loop);
    bool is_due = now_us >= deadline_after_ms(router->ended_us, router->table->pause_ms);
    bool is_known = router_find(router, "") != NULL;
    if (router->table->prepare == NULL || (is_known && !is_due)) return false;
    start_discovery(router, now_us);
    return true;
}

/* -- the list of servers */

typedef struct discovery_wait {
    loop_task found;
    loop *loop;
    waiter waiter;
} discovery_wait;

static void on_list_found(loop_task *found) {
    discovery_wait *wait = container_of(found, discovery_wait, found);
    loop_ready(wait->loop, &wait->waiter);
}

void router_list(deployment *base, int64_t limit_us, server_list *list) {
    router *router = (struct router *)base;
    discovery_wait wait = {.found.run = on_list_found, .loop = base->loop};
    router->is_doubted = true; /* a node that is not in an old map would not be missed */
    if (router_discover(router)) {
        list_append(&router->waits, &wait.found.node);
        loop_wait_until(base->loop, &wait.waiter, limit_us);
        list_remove(&wait.found.node);
    }
    server *known = router_find(router, "");
    if (router->table->list != NULL)
        list->count = router->table->list(router, list->servers, SERVER_LIST_MAX);
    else if (known != NULL)
        list->servers[list->count++] = server_share(known);
    if (list->count > 0) return;
    bool has_failed = router->failure != DLOCK_OK;
    list->status = has_failed ? router->failure : DLOCK_UNREACHABLE;
    text_copy(list->cause, sizeof(list->cause),
              has_failed ? router->cause : "no server was found in time");
}

void router_init(router *router, const router_table *table, const server_options *options) {
    deployment_init(&router->base, &routed_table, options);
    router->base.can_wait = true;
    router->table = table;
    router->options = *options;
    router->timer.on_due = on_discovery_due;
    list_init(&router->waits);
}

void router_free(deployment *base) {
    router *router = (struct router *)base;
    session_life *lives = base->lives;
    stop_discovery(router);
    server_free(router->master);
    router->table->free(router);
    lives_free(lives);
}

void router_tell_waits(router *router, dlock_status failure, const char *cause) {
    if (failure != DLOCK_OK && router->failure == DLOCK_OK)
        diagnose(router->options.diagnostics, DLOCK_LOG_WARNING, "discovery", "no result", cause);
    router->failure = failure;
    if (failure != DLOCK_OK) router->is_doubted = true;
    text_copy(router->cause, sizeof(router->cause), cause);
    list_each(loop_task, wait, &router->waits, node) {
        list_remove(&wait->node);
        loop_defer(router->base.loop, wait);
    }
}

/* -- the router to one master */

enum { SENTINEL_PAUSE_MS = 20, SENTINEL_GRACE_MS = 20 };

typedef struct master_router {
    router base; /* first */
    url login;   /* to the master: host and port are still to be filled in */
    char name[TOPOLOGY_NAME_MAX + 1];
    server *sentinels[TOPOLOGY_SERVERS_MAX];
    size_t count;
    /* The discovery under way. */
    url named[TOPOLOGY_SERVERS_MAX], newest; /* port 0: no master was named */
    int64_t epoch;                           /* of the newest; negative: none */
} master_router;

static const char *read_address(url *address, const reply *reply) {
    if (reply->kind == REPLY_NIL) return "the sentinel knows no master of that name";
    const struct reply *host = reply_element(reply, 0), *port = reply_element(reply, 1);
    bool is_pair = host != NULL && port != NULL && host->kind == REPLY_TEXT;
    if (!is_pair || host->length == 0 || host->length > URL_HOST_MAX)
        return "the sentinel gave a reply that makes no sense";
    int64_t number = reply_number(port);
    if (number < 1 || number > PORT_MAX) return "the sentinel named a master with a bad port";
    reply_copy_text(host, address->host, sizeof(address->host));
    address->port = (int)number;
    return NULL;
}

/* Each configuration that sentinels agree on has a larger epoch than the one before. 0: there is no
 * epoch in the reply. */
static int64_t read_epoch(const reply *reply) {
    const struct reply *epoch = reply_value(reply, "config-epoch");
    return epoch != NULL && reply_number(epoch) > 0 ? reply_number(epoch) : 0;
}

/* The first reply of a sentinel is an address, the second one has the epoch of that address. */
static const char *read_sentinel(router *base, const router_probe *probe, int index,
                                 const reply *reply) {
    master_router *router = (master_router *)base;
    url *named = &router->named[probe - base->probes];
    const char *useless = index == 0 ? read_address(named, reply) : NULL;
    if (named->port == 0) return useless != NULL ? useless : "the sentinel named no master";
    int64_t epoch = index == 0 ? 0 : read_epoch(reply);
    if (epoch > router->epoch) {
        router->newest = *named;
        router->epoch = epoch;
    }
    return NULL;
}

static size_t prepare_sentinels(router *base, server *servers[], command commands[]) {
    master_router *router = (master_router *)base;
    const char *name = router->name;
    command_add_words(&commands[0], COMMAND_WORDS("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name));
    command_add_words(&commands[1], COMMAND_WORDS("SENTINEL", "MASTER", name));
    for (size_t i = 0; i < router->count; i++) {
        servers[i] = router->sentinels[i];
        router->named[i] = router->login;
    }
    router->epoch = -1;
    return router->count;
}

/* A master that is named again keeps its connections. */
static bool use_newest(router *base) {
    master_router *router = (master_router *)base;
    const url *newest = &router->newest;
    const url *known = base->master == NULL ? NULL : &base->master->endpoint.url;
    if (known != NULL && known->port == newest->port && strcmp(known->host, newest->host) == 0)
        return true;
    server *master = server_new(newest, &base->options);
    if (master == NULL) return false;
    diagnose(base->options.diagnostics, known == NULL ? DLOCK_LOG_INFO : DLOCK_LOG_WARNING,
             master->name, known == NULL ? "is the master" : "is the new master", router->name);
    server_free(base->master);
    base->master = master;
    return true;
}

static void free_master_router(router *base) {
    master_router *router = (master_router *)base;
    for (size_t i = 0; i < router->count; i++)
        server_free(router->sentinels[i]);
    free(router);
}

static const router_table single_table = {.free = free_master_router};
static const router_table sentinel_table = {.free = free_master_router,
                                            .prepare = prepare_sentinels,
                                            .command_count = 2,
                                            .read = read_sentinel,
                                            .conclude = use_newest,
                                            .pause_ms = SENTINEL_PAUSE_MS,
                                            .grace_ms = SENTINEL_GRACE_MS};

deployment *master_new(const topology *topology, const server_options *options) {
    bool is_single = topology->kind == TOPOLOGY_SINGLE;
    master_router *router = calloc(1, sizeof(*router));
    if (router == NULL) return NULL;
    router_init(&router->base, is_single ? &single_table : &sentinel_table, options);
    router->login = topology->master;
    router->login.must_be_master = true;
    text_copy(router->name, sizeof(router->name), topology->master_name);
    router->count = is_single ? 0 : topology->count;
    server **made = is_single ? &router->base.master : router->sentinels;
    if (servers_new(made, topology->servers, topology->count, options)) return &router->base.base;
    free_master_router(&router->base);
    return NULL;
}
