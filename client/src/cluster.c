/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster.c - see cluster.h.
 *
 * One attempt is one question to the node that has the slot by the map, and to the next one as long
 * as the answer is MOVED or ASK: each time anew, with the time that is left by then. Whatever else
 * may pass (TRYAGAIN, CLUSTERDOWN, a node that is away) is the end of the attempt, and a reason to
 * ask for the map before the next one. */
#include "cluster.h"

#include "batch.h"
#include "cluster_map.h"
#include "deadline.h"
#include "question.h"
#include "slot.h"
#include "text.h"
#include <stdatomic.h>
#include <stdlib.h>

/* A slot that moves takes two: to where it is by the map, and from there to where it will be. */
enum { REDIRECTIONS_MAX = 5 };

/* More masters than a cluster can have: 1000 nodes is where Redis itself draws the line. */
enum { OWNERS_MAX = 1000 };

typedef struct cluster {
    backend base;
    cluster_map *map;
    const environment *env;
    uint32_t io_timeout_ms;
    atomic_uint_least64_t commands;
} cluster;

static void prepare(const cluster *self, question *made, const errand *to, bool is_asking) {
    question_prepare(made, to, self->io_timeout_ms);
    if (is_asking) question_add_asking(made);
}

static void ask(cluster *self, server *at, question *asked, const interrupt *stop) {
    server_ask(at, &asked->x, self->env, stop);
    if (asked->x.is_sent) atomic_fetch_add(&self->commands, (uint64_t)asked->x.request_count);
}

/* The lock is granted, but not safe: it is to be free again, where it was granted, before the
 * caller hears of that. */
static bool undo(cluster *self, server *at, const claim *of, bool is_asking) {
    claim undone = *of;
    undone.stop.is_requested = NULL;
    question asked;
    int64_t now_us = self->env->now_us(self->env);
    errand to = {DLOCK_RELEASING, &undone, 0, deadline_after_ms(now_us, self->io_timeout_ms),
                 &undone.stop};
    prepare(self, &asked, &to, is_asking);
    ask(self, at, &asked, to.stop);
    dlock_status status = question_tell(&asked, &undone);
    return status == DLOCK_OK || status == DLOCK_LOST;
}

/* From node to node. *at: the last one; still to be freed. */
static dlock_status follow(cluster *self, const errand *to, server **at, bool *is_asking) {
    claim *of = to->of;
    for (int count = 0;; count++) {
        question asked;
        slot_hint hint;
        prepare(self, &asked, to, *is_asking);
        ask(self, *at, &asked, to->stop);
        dlock_status status = question_tell(&asked, of);
        bool is_sent_on = slot_read_hint(&hint, of->call.cause);
        if (asked.x.status == DLOCK_OK && status >= DLOCK_IN_DOUBT)
            server_sign(*at, of->call.cause);
        if (!is_sent_on) return status;
        if (count == REDIRECTIONS_MAX) {
            of->is_passing = true;
            return DLOCK_REFUSED;
        }
        server *next = cluster_map_follow(self->map, *at, &hint);
        if (next == NULL) return DLOCK_NO_MEMORY;
        server_free(*at);
        *at = next;
        *is_asking = hint.is_ask;
    }
}

/* A share of the claim's node, by the map; NULL: the claim is told why not, and so is the
 * caller. */
static server *find(cluster *self, claim *of, int64_t limit_us, const interrupt *stop,
                    dlock_status *status) {
    char cause[CAUSE_MAX + 1];
    unsigned slot = slot_of(of->call.name, strlen(of->call.name));
    server *at = cluster_map_find(self->map, slot, limit_us, stop, status, cause);
    if (at != NULL) return at;
    of->is_passing = *status == DLOCK_UNREACHABLE;
    text_copy(of->call.cause, sizeof(of->call.cause), cause);
    return NULL;
}

static dlock_status run(cluster *self, const errand *to) {
    claim *of = to->of;
    dlock_status status;
    bool was_sent_before = of->is_sent, is_asking = false;
    server *at = find(self, of, to->limit_us, to->stop, &status);
    if (at == NULL) return status;
    status = follow(self, to, &at, &is_asking);
    bool is_unsafe = status == DLOCK_NO_REPLICAS && to->operation == DLOCK_ACQUIRING;
    if (is_unsafe && undo(self, at, of, is_asking)) of->is_sent = was_sent_before;
    if (of->is_passing || status == DLOCK_NO_REPLICAS) cluster_map_doubt(self->map);
    server_free(at);
    return status;
}

static dlock_status acquire(backend *base, claim *of, uint32_t wait_ms, int64_t limit_us) {
    return run((cluster *)base, &(errand){DLOCK_ACQUIRING, of, wait_ms, limit_us, &of->stop});
}

static dlock_status extend(backend *base, claim *of, int64_t limit_us) {
    return run((cluster *)base, &(errand){DLOCK_EXTENDING, of, 0, limit_us, &of->stop});
}

static dlock_status release(backend *base, claim *of, int64_t limit_us) {
    return run((cluster *)base, &(errand){DLOCK_RELEASING, of, 0, limit_us, &of->stop});
}

/* -- many extensions: at all nodes at once, in one batch each */

typedef struct item {
    server *at;   /* a share; NULL: there is no map, and the claim was told */
    size_t place; /* where it was given */
} item;

/* All of them, in the order of their nodes. */
typedef struct sorted {
    size_t count;
    item *items;
    claim **claims;
    dlock_status *outcomes;
} sorted;

/* Those at one node. */
typedef struct group {
    server *at;
    batch *asked;
} group;

static int compare_nodes(const void *one, const void *other) {
    uintptr_t a = (uintptr_t)((const item *)one)->at, b = (uintptr_t)((const item *)other)->at;
    return (a > b) - (a < b);
}

static void free_sorted(sorted *old) {
    free(old->items);
    free(old->claims);
    free(old->outcomes);
}

static bool make_sorted(sorted *made, size_t count) {
    *made = (sorted){.count = count,
                     .items = malloc(count * sizeof(made->items[0])),
                     .claims = malloc(count * sizeof(made->claims[0])),
                     .outcomes = malloc(count * sizeof(made->outcomes[0]))};
    return made->items != NULL && made->claims != NULL && made->outcomes != NULL;
}

static void sort(cluster *self, sorted *to, claim *const claims[], dlock_status outcomes[],
                 const interrupt *stop, int64_t limit_us) {
    for (size_t i = 0; i < to->count; i++) {
        to->items[i].place = i;
        if (i == 0 || to->items[0].at != NULL) {
            to->items[i].at = find(self, claims[i], limit_us, stop, &outcomes[i]);
            continue;
        }
        to->items[i].at = NULL; /* there was no map for the first one: its time is over */
        outcomes[i] = outcomes[0];
        claims[i]->is_passing = claims[0]->is_passing;
        memcpy(claims[i]->call.cause, claims[0]->call.cause, sizeof(claims[i]->call.cause));
    }
    qsort(to->items, to->count, sizeof(to->items[0]), compare_nodes);
    for (size_t i = 0; i < to->count; i++) {
        to->claims[i] = claims[to->items[i].place];
        to->outcomes[i] = outcomes[to->items[i].place];
    }
}

/* At most EXCHANGE_MAX. */
static void ask_groups(cluster *self, const group groups[], size_t count, const interrupt *stop) {
    server *at[EXCHANGE_MAX] = {NULL};
    exchange *each[EXCHANGE_MAX] = {NULL};
    for (size_t i = 0; i < count; i++) {
        at[i] = groups[i].at;
        each[i] = batch_exchange(groups[i].asked);
    }
    server_ask_all(at, each, count, 0, self->env, stop);
    for (size_t i = 0; i < count; i++) {
        if (each[i]->is_sent) atomic_fetch_add(&self->commands, (uint64_t)each[i]->request_count);
        batch_read(groups[i].asked);
        batch_free(groups[i].asked);
    }
}

static void ask_sorted(cluster *self, sorted *of, const interrupt *stop, int64_t limit_us) {
    group groups[EXCHANGE_MAX];
    size_t group_count = 0, begin = 0;
    while (begin < of->count) {
        server *at = of->items[begin].at;
        size_t end = begin + 1;
        while (end < of->count && of->items[end].at == at)
            end++;
        batch *asked = at == NULL ? NULL
                                  : batch_new(of->claims + begin, of->outcomes + begin, end - begin,
                                              self->io_timeout_ms, limit_us);
        if (asked != NULL) groups[group_count++] = (group){at, asked};
        begin = end;
        if (group_count < EXCHANGE_MAX && begin < of->count) continue;
        ask_groups(self, groups, group_count, stop);
        group_count = 0;
    }
}

static void extend_all(backend *base, claim *const claims[], dlock_status outcomes[], size_t count,
                       const interrupt *stop, int64_t limit_us) {
    cluster *self = (cluster *)base;
    sorted all;
    for (size_t i = 0; i < count; i++)
        outcomes[i] = DLOCK_NO_MEMORY;
    if (!make_sorted(&all, count)) {
        free_sorted(&all);
        return;
    }
    sort(self, &all, claims, outcomes, stop, limit_us);
    ask_sorted(self, &all, stop, limit_us);
    for (size_t i = 0; i < count; i++) {
        claim *of = all.claims[i];
        slot_hint hint;
        if (all.items[i].at != NULL && slot_read_hint(&hint, of->call.cause))
            all.outcomes[i] = run(self, &(errand){DLOCK_EXTENDING, of, 0, limit_us, stop});
        else if (all.outcomes[i] != DLOCK_OK && of->is_passing)
            cluster_map_doubt(self->map);
        outcomes[all.items[i].place] = all.outcomes[i];
        server_free(all.items[i].at);
    }
    free_sorted(&all);
}

/* -- the rest */

/* A release by a stranger changes nothing, and whoever may lock may ask for it. A cluster that does
 * not have all its slots refuses it at every node. */
static dlock_status ping(backend *base, claim *of, int64_t limit_us) {
    dlock_status status = release(base, of, limit_us);
    return status == DLOCK_LOST ? DLOCK_OK : status;
}

static dlock_status visit_servers(backend *base, claim *of, int64_t limit_us, backend_visit visit,
                                  void *arg) {
    cluster *self = (cluster *)base;
    server *owners[OWNERS_MAX];
    dlock_status status;
    cluster_map_doubt(self->map); /* one that is not in it would not be missed */
    size_t count = cluster_map_owners(self->map, owners, OWNERS_MAX, limit_us, &of->stop, &status,
                                      of->call.cause);
    if (count > 0) status = DLOCK_OK;
    for (size_t i = 0; i < count; i++) {
        if (status == DLOCK_OK) status = visit(arg, owners[i]);
        server_free(owners[i]);
    }
    return status;
}

static uint64_t command_count(const backend *base) {
    const cluster *self = (const cluster *)base;
    return atomic_load(&((cluster *)base)->commands) + cluster_map_commands(self->map);
}

static void free_cluster(backend *base) {
    cluster *old = (cluster *)base;
    cluster_map_free(old->map);
    free(old);
}

static const backend_table table = {.acquire = acquire,
                                    .extend = extend,
                                    .extend_all = extend_all,
                                    .release = release,
                                    .ping = ping,
                                    .visit_servers = visit_servers,
                                    .hang_up = server_hang_up,
                                    .link_fd = server_link_fd,
                                    .command_count = command_count,
                                    .free = free_cluster,
                                    .can_wait = true,
                                    .has_sessions = true,
                                    .has_replicas = true};

backend *cluster_new(const deployment *where, const server_limits *limits, const environment *env) {
    cluster *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->base.table = &table;
    made->env = env;
    made->io_timeout_ms = limits->io_timeout_ms;
    made->map = cluster_map_new(where->servers, where->count, limits, env);
    if (made->map == NULL) {
        free(made);
        return NULL;
    }
    return &made->base;
}
