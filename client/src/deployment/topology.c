/* SPDX-License-Identifier: BSD-3-Clause */
/* topology.c - see topology.h.
 *
 *   parts         of a copy of the text, which is cut at marks; percent signs are resolved then
 *   parameters    behind the ?: database, TLS and login of sentinels; the caller takes all others
 *   URL           scheme, login, one host or several, path and query
 *
 * Invariant: no message of this file repeats a part of the text, which may be a secret. The caller
 * may print the names of parameters that it gets. For this, a URL is refused before if a name could
 * be a piece of a password that is not percent-encoded: if there is an @ behind the ?, or a
 * parameter behind sentinel_password. */
#include "deployment/topology.h"

#include <stdlib.h>
#include <strings.h>

#define PARAMETER_LETTERS "abcdefghijklmnopqrstuvwxyz_"
#define NAME_LETTERS      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

enum { REDIS_PORT = 6379, SENTINEL_PORT = 26379, PORT_MAX = 65535, TEXT_SIZE = 16384 };
enum { UNIX_PATH_MAX = 107 }; /* sockaddr_un has 108 */

/* -- cutting and decoding */

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

/* False: the part is too long, has a bad percent sign, or encodes a NUL. */
static bool decode(const char *part, char *text, size_t max) {
    for (; *part != '\0'; part++, max--) {
        if (max == 0) return false;
        char byte = *part;
        if (byte == '%') {
            int high = hex_value(part[1]), low = high < 0 ? -1 : hex_value(part[2]);
            if (low < 0 || high + low == 0) return false;
            byte = (char)(high * 16 + low);
            part += 2;
        }
        *text++ = byte;
    }
    *text = '\0';
    return true;
}

/* -1: not a number from 0 to max. */
static int read_number_to(const char *digits, int max) {
    int64_t number = text_read_number(digits, strlen(digits));
    return number <= max ? (int)number : -1;
}

/* Ends the text at the first mark. The result is the text behind the mark; NULL: there is no
 * mark. */
static char *cut(char *text, char mark) {
    char *found = strchr(text, mark);
    if (found != NULL) *found++ = '\0';
    return found;
}

/* Cuts off the text before the last @. A / inside a password is encoded, so an @ behind the first /
 * belongs to a path. NULL: there is no login. */
static char *cut_login(char **rest) {
    char *login = *rest, *sign = login + strcspn(login, "/");
    while (sign > login && *sign != '@')
        sign--;
    if (*sign != '@') return NULL;
    *sign = '\0';
    *rest = sign + 1;
    return login;
}

/* -- parts of a URL */

/* A user, which may be "", and a password. */
static const char *set_login(url *url, const char *user, const char *password) {
    if (!decode(user, url->user, URL_PART_MAX)) return "the user is too long or badly encoded";
    if (!decode(password, url->password, URL_PART_MAX))
        return "the password is too long or badly encoded";
    return NULL;
}

static const char *read_login(url *url, char *login) {
    const char *password = cut(login, ':');
    const char *wrong =
        set_login(url, password == NULL ? "" : login, password == NULL ? login : password);
    if (wrong != NULL) return wrong;
    return url->password[0] == '\0' ? "the password before the @ is empty" : NULL;
}

static const char *read_db(url *url, const char *digits) {
    url->db = read_number_to(digits, URL_DB_MAX);
    return url->db < 0 ? "the database is not a number" : NULL;
}

static const char *read_host(url *url, char *host, int default_port) {
    char *port;
    if (strchr(host, '#') != NULL) return "there is a # in the host";
    if (host[0] == '[') {
        port = cut(++host, ']');
        if (port == NULL) return "the ] of the IPv6 address is missing";
        if (*port != '\0' && *port != ':') return "there is something after the ]";
        port = *port == '\0' ? NULL : port + 1;
    } else {
        port = cut(host, ':');
        if (port != NULL && strchr(port, ':') != NULL) return "an IPv6 address needs [ and ]";
    }
    if (port != NULL && *port == '\0') return "the port is missing";
    if (*host == '\0') return "the host is missing";
    if (!decode(host, url->host, URL_HOST_MAX)) return "the host is too long or badly encoded";
    url->port = port == NULL ? default_port : read_number_to(port, PORT_MAX);
    return url->port < 1 ? "the port is not a number from 1 to 65535" : NULL;
}

static const char *read_unix(url *url, char *path) {
    if (path[0] != '/') return "the path of the socket must begin with /";
    return decode(path, url->host, UNIX_PATH_MAX) ? NULL : "the path is too long or badly encoded";
}

/* -- parameters */

/* A copy of the text, cut at the ?. *query: NULL, or the text behind the ?. */
static const char *cut_query(char copy[TEXT_SIZE], const char *text, char **query) {
    if (strlen(text) >= TEXT_SIZE) return "it is too long";
    strcpy(copy, text);
    *query = cut(copy, '?');
    if (*query == NULL) return NULL;
    if (strchr(*query, '@') != NULL)
        return "there is an @ behind the ?; a ? in a password is written %3F, an @ in a value %40";
    return strchr(*query, '#') != NULL ? "a # behind the ? is written %23" : NULL;
}

static const char *pass_on(const url_taker *taker, const char *name, char *value) {
    if (name[0] == '\0' || name[strspn(name, PARAMETER_LETTERS)] != '\0' || taker == NULL)
        return "there is an unknown parameter";
    return taker->take(taker->arg, name, decode(value, value, strlen(value)) ? value : NULL);
}

/* "yes" or "no": whether sentinels speak TLS, where the master does not or the other way round. */
static const char *read_sentinel_tls(url *sentinel, const char *value) {
    sentinel->is_tls = strcmp(value, "yes") == 0;
    return sentinel->is_tls || strcmp(value, "no") == 0 ? NULL : "sentinel_tls is not yes or no";
}

/* locks: of the servers with locks. sentinel: NULL, or gets the login of the sentinels. */
static const char *read_query(url *locks, url *sentinel, const url_taker *taker, char *rest) {
    const char *wrong = NULL, *user = "", *password = NULL;
    while (rest != NULL && rest[0] != '\0' && wrong == NULL) {
        char *name = rest;
        rest = cut(name, '&');
        char *value = cut(name, '=');
        if (value == NULL)
            wrong = "a parameter is not name=value";
        else if (strcmp(name, "db") == 0)
            wrong = locks->db != 0 ? "the database is given twice" : read_db(locks, value);
        else if (sentinel != NULL && strcmp(name, "sentinel_user") == 0)
            user = value;
        else if (sentinel != NULL && strcmp(name, "sentinel_password") == 0)
            password = value;
        else if (sentinel != NULL && password == NULL && strcmp(name, "sentinel_tls") == 0)
            wrong = read_sentinel_tls(sentinel, value);
        else if (password != NULL)
            wrong = "sentinel_password comes behind other parameters; an & in it is written %26";
        else
            wrong = pass_on(taker, name, value);
    }
    if (password == NULL) password = "";
    if (wrong == NULL && user[0] != '\0' && password[0] == '\0')
        wrong = "there is a sentinel_user without a password";
    return wrong != NULL || sentinel == NULL ? wrong : set_login(sentinel, user, password);
}

/* -- a URL */

typedef struct scheme {
    const char *prefix;
    topology_kind kind; /* TOPOLOGY_SINGLE: one host or path; else a list of hosts */
    bool is_tls, is_unix;
} scheme;

static const scheme schemes[] = {
    {"redis://", TOPOLOGY_SINGLE, false, false},
    {"rediss://", TOPOLOGY_SINGLE, true, false},
    {"unix://", TOPOLOGY_SINGLE, false, true},
    {"redis+sentinel://", TOPOLOGY_SENTINEL, false, false},
    {"rediss+sentinel://", TOPOLOGY_SENTINEL, true, false},
    {"redis+cluster://", TOPOLOGY_CLUSTER, false, false},
    {"rediss+cluster://", TOPOLOGY_CLUSTER, true, false},
};

#define WRONG_SCHEME                                                                               \
    "it must begin with redis://, redis+sentinel://, redis+cluster://, the same with rediss, or "  \
    "unix://"

/* NULL: unknown. */
static const scheme *find_scheme(const char *text) {
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (strncmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) return &schemes[i];
    return NULL;
}

/* Each server is like the model, but for host and port. */
static const char *read_hosts(topology *topology, const url *model, char *hosts,
                              const scheme *scheme) {
    const char *wrong = NULL;
    bool is_list = scheme->kind != TOPOLOGY_SINGLE;
    int default_port = scheme->kind == TOPOLOGY_SENTINEL ? SENTINEL_PORT : REDIS_PORT;
    for (char *host = hosts, *next; host != NULL && wrong == NULL; host = next) {
        next = is_list ? cut(host, ',') : NULL;
        if (topology->count == TOPOLOGY_SERVERS_MAX) return "there are more than 15 hosts";
        if (is_list && host[0] == '\0') return "a host of the list is missing";
        url *server = &topology->servers[topology->count++];
        *server = *model;
        wrong = model->is_unix ? read_unix(server, host) : read_host(server, host, default_port);
    }
    return wrong;
}

static const char *read_name(topology *topology, const char *name) {
    if (name == NULL || name[0] == '\0')
        return "the name of the master is missing: redis+sentinel://hosts/name";
    if (strlen(name) > TOPOLOGY_NAME_MAX) return "the name of the master is too long";
    if (name[strspn(name, NAME_LETTERS)] != '\0') /* Sentinel itself accepts no other names */
        return "the name of the master has other than letters, digits, .-_";
    strcpy(topology->master_name, name);
    return NULL;
}

/* The part behind the hosts, which may be missing: NULL. */
static const char *read_path(topology *topology, url *locks, const char *path) {
    if (topology->kind == TOPOLOGY_SENTINEL) return read_name(topology, path);
    if (path == NULL || path[0] == '\0') return NULL;
    return read_db(locks, path);
}

/* node: the model of the servers. locks: the login to servers with locks. */
static const char *read_url(topology *topology, const scheme *scheme, const url_taker *taker,
                            const char *text) {
    char copy[TEXT_SIZE], *query;
    const char *wrong = cut_query(copy, text, &query);
    if (wrong != NULL) return wrong;
    if (scheme == NULL) return WRONG_SCHEME;
    bool is_sentinel = scheme->kind == TOPOLOGY_SENTINEL;
    url node = {.is_unix = scheme->is_unix, .is_tls = scheme->is_tls};
    url *locks = is_sentinel ? &topology->master : &node;
    locks->is_tls = scheme->is_tls;
    char *hosts = copy + strlen(scheme->prefix), *login = cut_login(&hosts);
    wrong = read_path(topology, locks, scheme->is_unix ? NULL : cut(hosts, '/'));
    if (wrong == NULL) wrong = read_query(locks, is_sentinel ? &node : NULL, taker, query);
    if (wrong == NULL && login != NULL) wrong = read_login(locks, login);
    return wrong != NULL ? wrong : read_hosts(topology, &node, hosts, scheme);
}

static bool is_same_server(const url *one, const url *other) {
    if (one->is_unix != other->is_unix || one->port != other->port) return false;
    return (one->is_unix ? strcmp : strcasecmp)(one->host, other->host) == 0;
}

const char *topology_read(topology *topology, const char *const urls[], size_t count,
                          const url_taker *taker, size_t *wrong_index) {
    const char *wrong = NULL;
    memset(topology, 0, sizeof(*topology));
    topology->kind = count > 1 ? TOPOLOGY_REDLOCK : TOPOLOGY_SINGLE;
    *wrong_index = 0;
    if (count > TOPOLOGY_SERVERS_MAX) return "there are more than 15 of them";
    for (size_t i = 0; i < count && wrong == NULL; i++) {
        const scheme *scheme = urls[i] == NULL ? NULL : find_scheme(urls[i]);
        bool is_list = scheme != NULL && scheme->kind != TOPOLOGY_SINGLE;
        *wrong_index = i;
        if (urls[i] == NULL) return "it is NULL";
        if (is_list && count > 1)
            return "several URLs must be of one server each: redis:// or unix://";
        if (is_list) topology->kind = scheme->kind;
        wrong = read_url(topology, scheme, taker, urls[i]);
        for (size_t j = 0; j < i && wrong == NULL; j++) /* it could be a majority of its own */
            if (is_same_server(&topology->servers[j], &topology->servers[i]))
                wrong = "the same server is given twice";
    }
    return wrong;
}

bool topology_has_tls(const topology *topology) {
    for (size_t i = 0; i < topology->count; i++)
        if (topology->servers[i].is_tls) return true;
    return topology->master.is_tls;
}
