/* SPDX-License-Identifier: BSD-3-Clause */
/* url.h - where a server is and how to be let in, from a URL. Pure.
 *
 *   redis://[[user:]password@]host[:port][/db]     host: a name, an IPv4 address or [IPv6]
 *   rediss://...                                   the same, with TLS
 *   unix://[[user:]password@]/path/to.sock[?db=n]
 *
 * User, password, host and path may be percent-encoded. */
#ifndef DLOCK_URL_H
#define DLOCK_URL_H

#include <stdbool.h>
#include <stddef.h>

enum { URL_HOST_MAX = 255, URL_PART_MAX = 512, URL_DB_MAX = 1000000 };

typedef struct url {
    bool is_unix, is_tls;
    char host[URL_HOST_MAX + 1]; /* of a unix socket: its path */
    int port;
    char user[URL_PART_MAX + 1], password[URL_PART_MAX + 1]; /* "" when there is none */
    int db;
    /* Nothing of a URL's text: a server that is not a master lets nobody in. */
    bool must_be_master;
} url;

/* NULL, or what is wrong with it; never a part of the URL, which may be a secret. */
const char *url_parse(url *out, const char *text);

/* host:port or the path, for messages. */
void url_describe(const url *where, char *text, size_t size);

#endif
