/* SPDX-License-Identifier: BSD-3-Clause */
/* sentinel.c - the router to one master: a single server, which is always known, or the master that
 * sentinels name.
 *
 * All sentinels are asked at once; the reply with the newest configuration epoch wins, and may name
 * the same master again. Each new connection to a master checks the role (must_be_master), so a
 * known master stays in use while no sentinel replies. */
#include "deployment/router.h"

enum { PAUSE_MS = 20, GRACE_MS = 20 };

typedef struct master_router {
    router base; /* first */
    url login;   /* to the master: host and port are still to be filled in */
    char name[TOPOLOGY_NAME_MAX + 1];
    server *sentinels[TOPOLOGY_SERVERS_MAX];
    size_t count;
    server *master; /* NULL: not known yet */
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
static const char *read_reply(router *base, const router_probe *probe, int index,
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
    const url *known = router->master == NULL ? NULL : &router->master->endpoint.url;
    if (known != NULL && known->port == newest->port && strcmp(known->host, newest->host) == 0)
        return true;
    server *master = server_new(newest, &base->options);
    if (master == NULL) return false;
    diagnose(base->options.diagnostics, known == NULL ? DLOCK_LOG_INFO : DLOCK_LOG_WARNING,
             master->name, known == NULL ? "is the master" : "is the new master", router->name);
    server_free(router->master);
    router->master = master;
    return true;
}

static server *find_master(router *base, const char *name) {
    (void)name;
    return ((master_router *)base)->master;
}

static void free_router(router *base) {
    master_router *router = (master_router *)base;
    for (size_t i = 0; i < router->count; i++)
        server_free(router->sentinels[i]);
    server_free(router->master);
    free(router);
}

static const router_table single_table = {.find = find_master, .free = free_router};
static const router_table sentinel_table = {.find = find_master,
                                            .free = free_router,
                                            .prepare = prepare_sentinels,
                                            .command_count = 2,
                                            .read = read_reply,
                                            .conclude = use_newest,
                                            .pause_ms = PAUSE_MS,
                                            .grace_ms = GRACE_MS};

deployment *master_new(const topology *topology, const server_options *options) {
    bool is_single = topology->kind == TOPOLOGY_SINGLE;
    master_router *router = calloc(1, sizeof(*router));
    if (router == NULL) return NULL;
    router_init(&router->base, is_single ? &single_table : &sentinel_table, options);
    router->login = topology->master;
    router->login.must_be_master = true;
    text_copy(router->name, sizeof(router->name), topology->master_name);
    router->count = is_single ? 0 : topology->count;
    server **made = is_single ? &router->master : router->sentinels;
    if (servers_new(made, topology->servers, topology->count, options)) return &router->base.base;
    free_router(&router->base);
    return NULL;
}
