/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster_map.h - the nodes of a cluster, and which of them has which slot, as far as is known. It
 * is asked for when it is needed, and again when there is reason to doubt it. */
#ifndef DLOCK_CLUSTER_MAP_H
#define DLOCK_CLUSTER_MAP_H

#include "server.h"
#include "slot.h"

typedef struct cluster_map cluster_map;

/* The seeds are where to begin to ask; the first one's login is that of all nodes. NULL: no
 * memory. */
cluster_map *cluster_map_new(const url seeds[], size_t count, const server_limits *limits,
                             const environment *env);
void cluster_map_free(cluster_map *old);

/* A share of the node that has the slot, or of one that can say who has. NULL: there is no map yet,
 * nor an answer by limit_us; see status and cause. */
server *cluster_map_find(cluster_map *of, unsigned slot, int64_t limit_us, const interrupt *stop,
                         dlock_status *status, char cause[CAUSE_MAX + 1]);

/* Shares of all nodes that have a slot, at most that many. 0: as above. */
size_t cluster_map_owners(cluster_map *of, server *shares[], size_t most, int64_t limit_us,
                          const interrupt *stop, dlock_status *status, char cause[CAUSE_MAX + 1]);

/* A share of the node that another one has named. NULL: no memory, or nonsensically many nodes. */
server *cluster_map_follow(cluster_map *of, const server *from, const slot_hint *hint);

/* A node did not do what it should by the map. */
void cluster_map_doubt(cluster_map *of);

/* Requests sent so far. */
uint64_t cluster_map_commands(const cluster_map *of);

#endif
