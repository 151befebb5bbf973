/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster.c - the router of a Redis Cluster: the nodes, and which node has which slot.
 *
 *   find      the owner of the slot of the name; of a slot without an owner, any owner
 *   follow    MOVED: the slot has another owner from now on, and other slots may have moved, too;
 *             ASK: another node for this request only
 *   discover  CLUSTER SLOTS, to a few nodes at once; the first good reply is the map, a bad reply
 *             changes no owner. Nodes that have no slot are forgotten then, except for the seeds
 *
 * Nothing is sent before there is a map. A server that is not in cluster mode would grant every
 * name instead of redirecting the client, and is found out by refusing CLUSTER SLOTS.
 *
 * Invariant: the seeds have the first places. The other nodes have a slot, or were named since the
 * last map was read. */
#include "deployment/router.h"

enum { PAUSE_MS = 100, ASKED_AT_ONCE = 3, QUIET_MS = 10000 };

/* Redis draws the line at 1000 nodes. */
enum { NODES_MAX = 2000, NO_NODE = UINT16_MAX };

typedef struct cluster_router {
    router base;              /* first */
    url login;                /* to all nodes; host and port are those of the first seed */
    server *nodes[NODES_MAX]; /* NULL: a free place */
    size_t node_end;          /* all places from here on are free */
    size_t seed_count;
    size_t next_asked;                 /* other nodes for each discovery */
    uint16_t owners[SLOT_COUNT];       /* a place in nodes, or NO_NODE */
    int64_t quiet_until_us[NODES_MAX]; /* nobody is told until then what slots the node has got */
} cluster_router;

/* -- nodes */

/* Has each place in nodes a slot? */
static void find_owners(const cluster_router *cluster, bool is_owner[NODES_MAX]) {
    memset(is_owner, false, NODES_MAX);
    for (size_t slot = 0; slot < SLOT_COUNT; slot++)
        if (cluster->owners[slot] != NO_NODE) is_owner[cluster->owners[slot]] = true;
}

static void forget_unused(cluster_router *cluster) {
    bool is_owner[NODES_MAX];
    find_owners(cluster, is_owner);
    for (size_t i = cluster->seed_count; i < cluster->node_end; i++) {
        if (is_owner[i]) continue;
        server_free(cluster->nodes[i]);
        cluster->nodes[i] = NULL;
    }
    while (cluster->node_end > 0 && cluster->nodes[cluster->node_end - 1] == NULL)
        cluster->node_end--;
}

/* Finds the node with this address, or adds it, and returns its place. A node that does not know
 * its own host sends an empty host or a question mark. Then the host is used to which the request
 * was sent. NO_NODE: no memory, or too many nodes. */
static size_t place_of_node(cluster_router *cluster, const server *sender, const char *host,
                            int port) {
    size_t place = cluster->node_end; /* the first free one */
    if (host[0] == '\0' || strcmp(host, HOST_UNKNOWN) == 0) host = sender->endpoint.url.host;
    for (size_t i = cluster->node_end; i-- > 0;) {
        const url *known = cluster->nodes[i] == NULL ? NULL : &cluster->nodes[i]->endpoint.url;
        if (known == NULL)
            place = i;
        else if (known->port == port && strcmp(known->host, host) == 0)
            return i;
    }
    if (place == NODES_MAX) return NO_NODE;
    url address = cluster->login;
    text_copy(address.host, sizeof(address.host), host);
    address.port = port;
    cluster->nodes[place] = server_new(&address, &cluster->base.options);
    cluster->quiet_until_us[place] = 0;
    if (cluster->nodes[place] == NULL) return NO_NODE;
    if (place == cluster->node_end) cluster->node_end++;
    return place;
}

/* -- CLUSTER SLOTS */

static bool is_number_within(const reply *reply, int64_t least, int64_t most) {
    return reply != NULL && reply->kind == REPLY_INTEGER && reply->integer >= least &&
           reply->integer <= most;
}

/* The first slot, the last slot, then nodes, the master first: host, port, and more. */
static const char *read_range(cluster_router *cluster, uint16_t owners[], const reply *range,
                              const server *sender) {
    static const char nonsense[] = "the server gave a list of slots that makes no sense";
    const reply *first = reply_element(range, 0), *last = reply_element(range, 1);
    const reply *master = reply_element(range, 2);
    if (!is_number_within(first, 0, SLOT_COUNT - 1)) return nonsense;
    if (!is_number_within(last, first->integer, SLOT_COUNT - 1) || master == NULL) return nonsense;
    const reply *host = reply_element(master, 0), *port = reply_element(master, 1);
    if (host == NULL || !is_number_within(port, 1, PORT_MAX)) return nonsense;
    bool is_text = host->kind == REPLY_TEXT && host->length <= URL_HOST_MAX;
    if (host->kind != REPLY_NIL && !is_text) return nonsense;
    char name[URL_HOST_MAX + 1];
    reply_copy_text(host, name, sizeof(name));
    size_t place = place_of_node(cluster, sender, name, (int)port->integer);
    if (place == NO_NODE) return "no memory for the nodes of the cluster";
    for (int64_t slot = first->integer; slot <= last->integer; slot++)
        owners[slot] = (uint16_t)place;
    return NULL;
}

/* Once for each node that has slots of another one: a failover moves thousands of them at once, and
 * an operator one after the other. */
static void tell_new_owners(cluster_router *cluster, const uint16_t owners[]) {
    int64_t now_us = loop_now_us(cluster->base.base.loop);
    for (size_t slot = 0; slot < SLOT_COUNT; slot++) {
        uint16_t before = cluster->owners[slot], after = owners[slot];
        bool is_news = before != after && before != NO_NODE && after != NO_NODE;
        if (!is_news || now_us < cluster->quiet_until_us[after]) continue;
        cluster->quiet_until_us[after] = deadline_after_ms(now_us, QUIET_MS);
        diagnose(cluster->base.options.diagnostics, DLOCK_LOG_WARNING, cluster->nodes[after]->name,
                 "has slots now that another node had", cluster->nodes[before]->name);
    }
}

static const char *read_slots(router *base, const router_probe *probe, int index,
                              const reply *reply) {
    (void)index;
    cluster_router *cluster = (cluster_router *)base;
    uint16_t owners[SLOT_COUNT];
    const struct reply *range = NULL;
    const char *useless = NULL;
    if (base->is_answered) return NULL;
    if (reply->kind != REPLY_ARRAY || reply->count == 0 || reply->count > SLOT_COUNT)
        return "the server does not tell the owner of any slot";
    memset(owners, 0xff, sizeof(owners)); /* NO_NODE */
    while (useless == NULL && (range = reply_next(reply, range)) != NULL)
        useless = read_range(cluster, owners, range, probe->server);
    if (useless == NULL) tell_new_owners(cluster, owners);
    if (useless == NULL) memcpy(cluster->owners, owners, sizeof(owners));
    forget_unused(cluster);
    return useless;
}

static size_t prepare_slots(router *base, server *servers[], command commands[]) {
    cluster_router *cluster = (cluster_router *)base;
    size_t count = 0;
    command_add_words(&commands[0], COMMAND_WORDS("CLUSTER", "SLOTS"));
    for (size_t i = 0; i < cluster->node_end && count < ASKED_AT_ONCE; i++) {
        server *node = cluster->nodes[cluster->next_asked++ % cluster->node_end];
        if (node != NULL) servers[count++] = node;
    }
    return count;
}

/* -- the table */

static server *find_node(router *base, const char *name) {
    cluster_router *cluster = (cluster_router *)base;
    size_t place = cluster->owners[slot_of_key(name, strlen(name))];
    for (size_t other = 0; place == NO_NODE && other < SLOT_COUNT; other++)
        place = cluster->owners[other];
    return place == NO_NODE ? NULL : cluster->nodes[place];
}

static server *follow_to_node(router *base, server *sender, const redirect *redirect) {
    cluster_router *cluster = (cluster_router *)base;
    size_t place = place_of_node(cluster, sender, redirect->host, redirect->port);
    if (place == NO_NODE) { /* redirects have named many nodes since the last map */
        forget_unused(cluster);
        place = place_of_node(cluster, sender, redirect->host, redirect->port);
    }
    if (place == NO_NODE) return NULL;
    if (!redirect->is_ask) {
        base->is_doubted = true;
        cluster->owners[redirect->slot] = (uint16_t)place;
    }
    return cluster->nodes[place];
}

static size_t list_owners(router *base, server *servers[], size_t max) {
    const cluster_router *cluster = (cluster_router *)base;
    bool is_owner[NODES_MAX];
    size_t count = 0;
    find_owners(cluster, is_owner);
    for (size_t i = 0; i < cluster->node_end && count < max; i++)
        if (is_owner[i]) servers[count++] = server_share(cluster->nodes[i]);
    return count;
}

static void free_router(router *base) {
    cluster_router *cluster = (cluster_router *)base;
    for (size_t i = 0; i < cluster->node_end; i++)
        server_free(cluster->nodes[i]);
    free(cluster);
}

static const router_table table = {.find = find_node,
                                   .follow = follow_to_node,
                                   .list = list_owners,
                                   .free = free_router,
                                   .prepare = prepare_slots,
                                   .command_count = 1,
                                   .read = read_slots,
                                   .pause_ms = PAUSE_MS};

deployment *cluster_new(const topology *topology, const server_options *options) {
    cluster_router *cluster = calloc(1, sizeof(*cluster));
    if (cluster == NULL) return NULL;
    router_init(&cluster->base, &table, options);
    cluster->base.base.table = &slots_table;
    cluster->login = topology->servers[0];
    memset(cluster->owners, 0xff, sizeof(cluster->owners)); /* NO_NODE */
    cluster->seed_count = cluster->node_end = topology->count;
    if (servers_new(cluster->nodes, topology->servers, topology->count, options))
        return &cluster->base.base;
    free_router(&cluster->base);
    return NULL;
}
