/* SPDX-License-Identifier: BSD-3-Clause */
/* topology.h - the kind of deployment that the URLs name, and the servers. Pure.
 *
 *   redis://[[user:]password@]host[:port][/db][?name=value&...]
 *                                  a server. host: a name, an IPv4 address or [IPv6]
 *   unix://[[user:]password@]/path/to.sock[?db=n&...]
 *   several redis:// or unix://    independent servers, of which a majority decides (Redlock)
 *   redis+sentinel://[[user:]password@]host[:port][,host[:port]]/name[?db=n&...]
 *                                  the master of this name, known to the sentinels at the hosts
 *                                  (port 26379). User, password and db are the master's;
 *                                  sentinel_user=... and sentinel_password=... the sentinels'.
 *                                  sentinel_tls=yes or no: if they differ from the master
 *   redis+cluster://[[user:]password@]host[:port][,host[:port]][/db]
 *                                  a cluster, and the nodes to begin discovery with
 *
 * rediss://, rediss+sentinel:// and rediss+cluster:// are the same, to servers that speak TLS.
 * User, password, host, path and values may be percent-encoded; a ? in a password must be. Every
 * URL may have further parameters behind the ?, which the caller takes. */
#pragma once
#include "net/url.h"

enum { TOPOLOGY_SERVERS_MAX = 15, TOPOLOGY_NAME_MAX = 255 };

typedef enum topology_kind {
    TOPOLOGY_SINGLE,
    TOPOLOGY_REDLOCK,
    TOPOLOGY_SENTINEL,
    TOPOLOGY_CLUSTER
} topology_kind;

typedef struct topology {
    topology_kind kind;
    url servers[TOPOLOGY_SERVERS_MAX]; /* of Sentinel: the sentinels */
    size_t count;
    /* For Sentinel. */
    char master_name[TOPOLOGY_NAME_MAX + 1];
    url master; /* how to log in to the master; no host and no port */
} topology;

/* Takes the parameters that do not name servers, one after the other. The name has small letters
 * and _ only; value NULL: badly encoded. The result of take() is NULL, or an error message. */
typedef struct url_taker {
    const char *(*take)(void *arg, const char *name, const char *value);
    void *arg;
} url_taker;

/* NULL, or an error message: taker's, or one without a part of a URL, which may be a secret.
 * *wrong_index: the URL with the error. */
const char *topology_read(topology *topology, const char *const urls[], size_t count,
                          const url_taker *taker, size_t *wrong_index);

/* At least one server speaks TLS. */
bool topology_has_tls(const topology *topology);
