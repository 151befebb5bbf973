/* SPDX-License-Identifier: BSD-3-Clause */
/* router.h - deployments where one server decides about a name. The routers of single, Sentinel and
 * Cluster differ in how that server is found; attempts are made by routed.c.
 *
 * Failures and redirects cast doubt on the known servers. Then a discovery asks several servers at
 * once: sentinels for the master, nodes of a cluster for their slots. A discovery ends when a
 * useful reply has come and the grace for the other replies is over, when all servers have replied
 * or failed, or after a connect timeout. If no reply was useful, the most telling failure is kept,
 * and the known servers stay in use. All functions: locked (loop.h). */
#pragma once
#include "deployment/deployment.h"

/* -- names whose locks were busy lately: the first request of an acquire that may wait queues at
 * once for such a name, instead of trying without a wait. A wrong entry costs a command at most, so
 * two names may share an entry. Pure. */

enum { BUSY_NAMES_COUNT = 256, BUSY_NAMES_MS = 1000 };

/* All zero: empty. */
typedef struct busy_names {
    uint64_t hashes[BUSY_NAMES_COUNT];
    int64_t until_us[BUSY_NAMES_COUNT];
} busy_names;

/* The name counts as busy for the next BUSY_NAMES_MS. */
static inline void busy_names_note(busy_names *names, const char *name, int64_t now_us) {
    uint64_t hash = text_hash(name);
    names->hashes[hash % BUSY_NAMES_COUNT] = hash;
    names->until_us[hash % BUSY_NAMES_COUNT] = now_us + (int64_t)BUSY_NAMES_MS * 1000;
}

static inline bool busy_names_has(const busy_names *names, const char *name, int64_t now_us) {
    uint64_t hash = text_hash(name);
    size_t place = hash % BUSY_NAMES_COUNT;
    return names->hashes[place] == hash && now_us < names->until_us[place];
}

/* -- routers */

enum { DISCOVERY_SERVERS_MAX = TOPOLOGY_SERVERS_MAX, DISCOVERY_COMMANDS_MAX = 2 };

typedef struct router router;

/* The request of a discovery to one of the servers. */
typedef struct router_probe {
    request request;
    router *router;
    server *server; /* a share */
} router_probe;

typedef struct router_table {
    /* The server for a name, as for router_find(). NULL: router->master has all names. */
    server *(*find)(router *router, const char *name);
    /* MOVED or ASK: the next server, borrowed as above. NULL: no memory. The function itself is
     * NULL where no redirect makes sense. */
    server *(*follow)(router *router, server *sender, const redirect *redirect);
    /* All servers that have locks, shares; at most max. NULL: only the server that find() names. */
    size_t (*list)(router *router, server *servers[], size_t max);
    void (*free)(router *router); /* no discovery is under way */

    /* Begins a discovery: the servers to ask, borrowed, and their number, at least 1; and the
     * commands, which are empty before. NULL: there is nothing to discover. */
    size_t (*prepare)(router *router, server *servers[], command commands[]);
    int command_count;
    /* A reply, never an error, to the command with this index. NULL, or why the reply is
     * useless. */
    const char *(*read)(router *router, const router_probe *probe, int index, const reply *reply);
    /* NULL, or: the discovery ends with a useful reply. False: no memory. */
    bool (*conclude)(router *router);
    uint32_t pause_ms; /* between two discoveries */
    uint32_t grace_ms; /* for further replies after a useful one */
} router_table;

struct router {
    deployment base; /* first */
    const router_table *table;
    server_options options;
    server *master; /* a share; NULL: not known yet, or a cluster */
    busy_names busy;
    list waits;           /* loop_task: run once when the discovery under way has ended */
    bool is_doubted;      /* users set it: router_discover() is to ask again */
    dlock_status failure; /* of the last discovery, if that failed; else DLOCK_OK */
    char cause[CAUSE_SIZE];

    /* The discovery under way. */
    bool is_discovering, is_answered;
    int64_t ended_us; /* of the last one */
    router_probe probes[DISCOVERY_SERVERS_MAX];
    size_t probe_count, pending_count;
    loop_timer timer;
    int worst_rank; /* of the failure: a lower one is more telling */
    dlock_status worst;
    char worst_cause[CAUSE_SIZE];
};

/* The server for a name, borrowed until the mutex is given back: server_share() it. NULL: nothing
 * is known yet. */
static inline server *router_find(router *router, const char *name) {
    return router->table->find != NULL ? router->table->find(router, name) : router->master;
}

/* Private to router.c. */
bool router_ask_again(router *router);

/* Begins a discovery if nothing is known, or if there are doubts and the pause is over. True: a
 * discovery is under way, and a wait makes sense. */
static inline bool router_discover(router *router) {
    bool has_doubts = router->is_doubted || router_find(router, "") == NULL;
    return router->is_discovering || (has_doubts && router_ask_again(router));
}

/* For routers and tests. The rest of the router is zero. The discovery has ended. */
void router_init(router *router, const router_table *table, const server_options *options);
void router_tell_waits(router *router, dlock_status failure, const char *cause);

/* In routed.c and router.c. */
extern const deployment_table routed_table;
void router_list(deployment *base, int64_t limit_us, server_list *list);
void router_free(deployment *base);

/* In slots.c: as routed_table, and for names in several slots of a cluster. */
extern const deployment_table slots_table;
/* In how many slots are the names of the attempt? */
unsigned slots_count(const attempt *attempt);
