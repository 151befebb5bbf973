/* SPDX-License-Identifier: BSD-3-Clause */
/* url.h - the address of a server and the login for the server, read from a URL. Pure.
 *
 *   redis://[[user:]password@]host[:port][/db]     host: a name, an IPv4 address or [IPv6]
 *   rediss://...                                   the same, with TLS
 *   unix://[[user:]password@]/path/to.sock[?db=n]
 *
 * User, password, host and path may be percent-encoded. */
#ifndef DLOCK_NET_URL_H
#define DLOCK_NET_URL_H

#include <stdbool.h>
#include <stddef.h>

enum { URL_HOST_MAX = 255, URL_PART_MAX = 512, URL_DB_MAX = 1000000, URL_PORT = 6379 };

typedef struct url {
    bool is_unix, is_tls;
    char host[URL_HOST_MAX + 1]; /* of a unix socket: the path */
    int port;
    char user[URL_PART_MAX + 1], password[URL_PART_MAX + 1]; /* "": none */
    int db;
    /* Not a part of the text: a login to a server that is not a master fails. */
    bool must_be_master;
} url;

/* NULL, or an error message; never a part of the URL, which may be a secret. */
const char *url_parse(url *url, const char *text);

/* Parts of a URL; each changes the text. The results are as above. */
const char *url_read_login(url *url, char *login);
const char *url_read_host(url *url, char *host, int default_port);
const char *url_read_db(url *url, const char *digits);
/* A user, which may be "", and a password. */
const char *url_set_login(url *url, const char *user, const char *password);

/* Ends the text at the first mark. The result is the text behind the mark; NULL: there is no
 * mark. */
char *url_cut(char *text, char mark);
/* Cuts off the text before the last @. A / inside a password is encoded, so an @ behind the first /
 * belongs to a path. NULL: there is no login. */
char *url_cut_login(char **rest);

/* host:port or the path, for messages. */
void url_describe(const url *url, char *text, size_t size);

#endif
