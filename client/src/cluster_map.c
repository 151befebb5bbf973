/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster_map.c - see cluster_map.h.
 *
 *   find     the slot's node; before that, CLUSTER SLOTS if the map is in doubt
 *   follow   MOVED: the slot's node is another one from now on; ASK: this once
 *   doubt    a node is away, or says that a slot is elsewhere: others may have moved as well
 *
 * One thread at a time asks for the map, and not too often; meanwhile others go on with the one
 * that is there. Who has no map does not guess: only a node that has answered CLUSTER SLOTS is
 * known to send away those who are wrong.
 *
 * Invariant: nodes[0] to nodes[seed_count - 1] stay. Of the others there are those that have a
 * slot, and those that were named since the last map. */
#include "cluster_map.h"

#include "deadline.h"
#include "survey.h"
#include "text.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Between two maps; and how many nodes are asked for one at once. */
enum { PAUSE_MS = 100, ASKED_AT_ONCE = 3 };

enum { NODES_MAX = 2000, NO_NODE = NODES_MAX, PORT_MAX = 65535 };

struct cluster_map {
    const environment *env;
    server_limits limits;
    url login;
    atomic_uint_least64_t commands;

    pthread_mutex_t mutex;
    server *nodes[NODES_MAX]; /* NULL: a free place */
    size_t seed_count;
    uint16_t owners[SLOT_COUNT]; /* a place in nodes, or NO_NODE */
    bool is_there, is_doubted, is_asking;
    int64_t asked_us;  /* when it was asked for last */
    size_t next_asked; /* the next node to ask for it */
};

/* -- nodes; all with the map locked */

static void forget_unused(cluster_map *of) {
    bool is_used[NODES_MAX + 1] = {false};
    for (size_t slot = 0; slot < SLOT_COUNT; slot++)
        is_used[of->owners[slot]] = true;
    for (size_t i = of->seed_count; i < NODES_MAX; i++)
        if (!is_used[i]) {
            server_free(of->nodes[i]);
            of->nodes[i] = NULL;
        }
}

static size_t free_place(const cluster_map *of) {
    size_t place = of->seed_count;
    while (place < NODES_MAX && of->nodes[place] != NULL)
        place++;
    return place;
}

/* The place of the node with this address, which is made if need be. NO_NODE: no memory, or there
 * are too many. */
static size_t place_of(cluster_map *of, const char *host, int port) {
    for (size_t i = 0; i < NODES_MAX; i++) {
        if (of->nodes[i] == NULL) continue;
        const url *at = server_url(of->nodes[i]);
        if (at->port == port && strcmp(at->host, host) == 0) return i;
    }
    url at = of->login;
    text_copy(at.host, sizeof(at.host), host);
    at.port = port;
    size_t place = free_place(of);
    if (place < NODES_MAX) of->nodes[place] = server_new(&at, &of->limits);
    return place < NODES_MAX && of->nodes[place] != NULL ? place : NO_NODE;
}

/* -- CLUSTER SLOTS */

/* A round of questions. */
typedef struct inquiry {
    survey asked;
    cluster_map *of;
    bool is_answered;
    uint16_t owners[SLOT_COUNT];
} inquiry;

static bool is_in(const reply *number, int64_t least, int64_t most) {
    return number->kind == REPLY_INTEGER && number->integer >= least && number->integer <= most;
}

/* A range of slots: the first, the last, then nodes, of which the first one is the master: its
 * host, its port, and more. A host that it does not know is the one that we asked. */
static bool read_range(inquiry *to, const reply *range, const url *asked) {
    reply first, last, master, host, port;
    if (!reply_element(range, 0, &first) || !is_in(&first, 0, SLOT_COUNT - 1)) return false;
    if (!reply_element(range, 1, &last) || !is_in(&last, first.integer, SLOT_COUNT - 1))
        return false;
    if (!reply_element(range, 2, &master) || !reply_element(&master, 0, &host)) return false;
    if (!reply_element(&master, 1, &port) || !is_in(&port, 1, PORT_MAX)) return false;
    if (host.kind != REPLY_TEXT && host.kind != REPLY_NIL) return false;
    const char *known = slot_known_host(host.text);
    size_t place = place_of(to->of, known[0] == '\0' ? asked->host : known, (int)port.integer);
    if (place == NO_NODE) return false;
    for (int64_t slot = first.integer; slot <= last.integer; slot++)
        to->owners[slot] = (uint16_t)place;
    return true;
}

static bool read_map(inquiry *to, const reply *answer, const url *asked) {
    reply range;
    size_t count = 0;
    for (size_t slot = 0; slot < SLOT_COUNT; slot++)
        to->owners[slot] = NO_NODE;
    for (; reply_element(answer, count, &range); count++)
        if (!read_range(to, &range, asked)) return false;
    return count > 0;
}

static const char *on_reply(survey *self, size_t who, int which, const reply *answer) {
    (void)which;
    inquiry *to = self->asker;
    cluster_map *of = to->of;
    if (to->is_answered) return NULL;
    pthread_mutex_lock(&of->mutex);
    to->is_answered = read_map(to, answer, server_url(self->at[who]));
    if (to->is_answered) {
        memcpy(of->owners, to->owners, sizeof(of->owners));
        of->is_there = true;
    }
    forget_unused(of);
    pthread_mutex_unlock(&of->mutex);
    if (!to->is_answered) return "it says of no slot, or of nonsense, who has it";
    survey_hurry(self, 0);
    return NULL;
}

/* Locked. Shares of some nodes: each time of others. */
static size_t choose_asked(cluster_map *of, server *chosen[ASKED_AT_ONCE]) {
    size_t count = 0;
    for (size_t i = 0; i < NODES_MAX && count < ASKED_AT_ONCE; i++) {
        server *node = of->nodes[of->next_asked++ % NODES_MAX];
        if (node != NULL) chosen[count++] = server_share(node);
    }
    return count;
}

/* Locked, but not all the while. In half of the time that there is. */
static dlock_status ask_for_map(cluster_map *of, int64_t limit_us, const interrupt *stop,
                                char cause[CAUSE_MAX + 1]) {
    static const command request = {.count = 2, .words = {"CLUSTER", "SLOTS"}, .lengths = {7, 5}};
    server *chosen[ASKED_AT_ONCE];
    int64_t now_us = of->env->now_us(of->env);
    int64_t by_us = deadline_after_ms(now_us, of->limits.connect_timeout_ms);
    by_us = deadline_earlier(by_us, now_us + deadline_left_us(limit_us, now_us) / 2);
    text_copy(cause, CAUSE_MAX + 1, "no memory");
    inquiry *made = calloc(1, sizeof(*made));
    if (made == NULL) return DLOCK_NO_MEMORY;
    made->of = of;
    made->asked.at = chosen;
    made->asked.count = choose_asked(of, chosen);
    made->asked.requests = &request;
    made->asked.request_count = 1;
    made->asked.on_reply = on_reply;
    made->asked.asker = made;
    made->asked.env = of->env;
    made->asked.stop = stop;
    pthread_mutex_unlock(&of->mutex);
    atomic_fetch_add(&of->commands, survey_run(&made->asked, by_us));
    dlock_status status = made->is_answered ? DLOCK_OK : survey_failure(&made->asked, cause);
    for (size_t i = 0; i < made->asked.count; i++)
        server_free(chosen[i]);
    free(made);
    pthread_mutex_lock(&of->mutex);
    return status;
}

/* Locked, but not all the while. */
static dlock_status refresh(cluster_map *of, int64_t limit_us, const interrupt *stop,
                            char cause[CAUSE_MAX + 1]) {
    int64_t from_us = deadline_after_ms(of->asked_us, PAUSE_MS);
    bool is_due = of->is_doubted && !of->is_asking && of->env->now_us(of->env) >= from_us;
    if (of->is_there && !is_due) return DLOCK_OK;
    of->is_asking = true;
    of->is_doubted = false;
    dlock_status status = ask_for_map(of, limit_us, stop, cause);
    of->is_asking = false;
    of->asked_us = of->env->now_us(of->env);
    if (status != DLOCK_OK) of->is_doubted = true;
    return status;
}

/* -- public */

cluster_map *cluster_map_new(const url seeds[], size_t count, const server_limits *limits,
                             const environment *env) {
    cluster_map *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->env = env;
    made->limits = *limits;
    made->login = seeds[0];
    pthread_mutex_init(&made->mutex, NULL);
    for (size_t slot = 0; slot < SLOT_COUNT; slot++)
        made->owners[slot] = NO_NODE;
    for (size_t i = 0; i < count; i++) {
        made->nodes[i] = server_new(&seeds[i], limits);
        if (made->nodes[i] == NULL) {
            cluster_map_free(made);
            return NULL;
        }
        made->seed_count++;
    }
    return made;
}

void cluster_map_free(cluster_map *old) {
    if (old == NULL) return;
    for (size_t i = 0; i < NODES_MAX; i++)
        server_free(old->nodes[i]);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

/* Locked. Nobody has the slot: some node of the cluster will say so, or know better. */
static size_t any_owner(const cluster_map *of) {
    for (size_t slot = 0; slot < SLOT_COUNT; slot++)
        if (of->owners[slot] != NO_NODE) return of->owners[slot];
    return NO_NODE;
}

server *cluster_map_find(cluster_map *of, unsigned slot, int64_t limit_us, const interrupt *stop,
                         dlock_status *status, char cause[CAUSE_MAX + 1]) {
    pthread_mutex_lock(&of->mutex);
    *status = refresh(of, limit_us, stop, cause);
    size_t place = of->owners[slot] != NO_NODE ? of->owners[slot] : any_owner(of);
    server *found = place == NO_NODE ? NULL : server_share(of->nodes[place]);
    pthread_mutex_unlock(&of->mutex);
    return found;
}

size_t cluster_map_owners(cluster_map *of, server *shares[], size_t most, int64_t limit_us,
                          const interrupt *stop, dlock_status *status, char cause[CAUSE_MAX + 1]) {
    bool is_taken[NODES_MAX + 1] = {[NO_NODE] = true};
    size_t count = 0;
    pthread_mutex_lock(&of->mutex);
    *status = refresh(of, limit_us, stop, cause);
    for (size_t slot = 0; slot < SLOT_COUNT && count < most; slot++) {
        size_t place = of->owners[slot];
        if (is_taken[place]) continue;
        is_taken[place] = true;
        shares[count++] = server_share(of->nodes[place]);
    }
    pthread_mutex_unlock(&of->mutex);
    return count;
}

server *cluster_map_follow(cluster_map *of, const server *from, const slot_hint *hint) {
    const char *host = hint->host[0] != '\0' ? hint->host : server_url(from)->host;
    pthread_mutex_lock(&of->mutex);
    size_t place = place_of(of, host, hint->port);
    if (place == NO_NODE) { /* the map has not been asked for again since others were named */
        forget_unused(of);
        place = place_of(of, host, hint->port);
    }
    if (place != NO_NODE && !hint->is_ask) {
        of->owners[hint->slot] = (uint16_t)place;
        of->is_doubted = true;
    }
    server *found = place == NO_NODE ? NULL : server_share(of->nodes[place]);
    pthread_mutex_unlock(&of->mutex);
    return found;
}

void cluster_map_doubt(cluster_map *of) {
    pthread_mutex_lock(&of->mutex);
    of->is_doubted = true;
    pthread_mutex_unlock(&of->mutex);
}

uint64_t cluster_map_commands(const cluster_map *of) {
    return atomic_load(&((cluster_map *)of)->commands);
}
