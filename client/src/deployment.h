/* SPDX-License-Identifier: BSD-3-Clause */
/* deployment.h - what kind of service the URLs name, and its servers. Pure.
 *
 *   one redis:// or unix://        that server, see url.h
 *   several of them                independent servers, of which a majority decides (Redlock)
 *   redis+sentinel://[[user:]password@]host[:port][,host[:port]]/name[?db=n&...]
 *                                  the master of that name, as the sentinels at these hosts
 *                                  (port 26379) know it. User, password and db are the master's;
 *                                  sentinel_user=... and sentinel_password=... the sentinels'
 *   redis+cluster://[[user:]password@]host[:port][,host[:port]]
 *                                  a cluster, and where to begin to ask for its nodes
 *
 * rediss+sentinel:// and rediss+cluster:// are the same, to servers that speak TLS. */
#ifndef DLOCK_DEPLOYMENT_H
#define DLOCK_DEPLOYMENT_H

#include "url.h"

enum { DEPLOYMENT_SERVERS_MAX = 15, DEPLOYMENT_NAME_MAX = 255 };

typedef enum deployment_kind {
    DEPLOYMENT_SINGLE,
    DEPLOYMENT_REDLOCK,
    DEPLOYMENT_SENTINEL,
    DEPLOYMENT_CLUSTER
} deployment_kind;

typedef struct deployment {
    deployment_kind kind;
    url servers[DEPLOYMENT_SERVERS_MAX]; /* of a Sentinel deployment: the sentinels */
    size_t count;
    /* Of a Sentinel deployment. */
    char master_name[DEPLOYMENT_NAME_MAX + 1];
    url master; /* how to be let in by the master; no host and no port */
} deployment;

/* NULL, or what is wrong; never a part of a URL, which may be a secret. *wrong_at: with which of
 * them. */
const char *deployment_read(deployment *out, const char *const urls[], size_t count,
                            size_t *wrong_at);

/* One of its servers speaks TLS. */
bool deployment_has_tls(const deployment *of);

#endif
