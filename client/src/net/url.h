/* SPDX-License-Identifier: BSD-3-Clause */
/* url.h - the address of a server and the login for the server. deployment/topology.h reads them
 * from URLs. Pure. */
#pragma once
#include "base/text.h"
#include <stdbool.h>
#include <string.h>

enum { URL_HOST_MAX = 255, URL_PART_MAX = 512, URL_DB_MAX = 1000000 };

typedef struct url {
    bool is_unix, is_tls;
    char host[URL_HOST_MAX + 1]; /* of a unix socket: the path */
    int port;
    char user[URL_PART_MAX + 1], password[URL_PART_MAX + 1]; /* "": none */
    int db;
    /* Not a part of a URL: a login to a server that is not a master fails. */
    bool must_be_master;
} url;

/* host:port or the path, for messages. */
static inline void url_describe(const url *url, char *text, size_t size) {
    char port[TEXT_NUMBER_SIZE];
    bool is_ipv6 = !url->is_unix && strchr(url->host, ':') != NULL;
    text_copy(text, size, is_ipv6 ? "[" : "");
    text_append(text, size, url->host);
    if (url->is_unix) return;
    text_put_number(port, (uint64_t)url->port);
    text_append(text, size, is_ipv6 ? "]:" : ":");
    text_append(text, size, port);
}
