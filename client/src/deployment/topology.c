/* SPDX-License-Identifier: BSD-3-Clause */
/* topology.c - see topology.h.
 *
 *   parts         of a copy of the text, which is cut at marks; percent signs are resolved then
 *   parameters    behind the ?: database and login of sentinels; the caller takes all others
 *   server        the URL of one server: scheme, login, host or path, and database
 *   list          one URL with several hosts: login, hosts, path and query
 *   independent   URLs of one server each
 *
 * Invariant: no message of this file repeats a part of the text, which may be a secret. A name that
 * the caller gets is not: an @ behind the ?, or a parameter behind sentinel_password, could come
 * from a password that is not encoded, and is refused before. */
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
static int read_number(const char *digits, int max) {
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
    url->db = read_number(digits, URL_DB_MAX);
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
    url->port = port == NULL ? default_port : read_number(port, PORT_MAX);
    return url->port < 1 ? "the port is not a number from 1 to 65535" : NULL;
}

static const char *read_tcp(url *url, char *host) {
    const char *db = cut(host, '/');
    const char *wrong = db == NULL || *db == '\0' ? NULL : read_db(url, db);
    return wrong != NULL ? wrong : read_host(url, host, REDIS_PORT);
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

static const char *read_server(url *url, const url_taker *taker, const char *text) {
    char copy[TEXT_SIZE], *rest = copy, *query;
    const char *wrong = cut_query(copy, text, &query);
    if (wrong != NULL) return wrong;
    url->is_unix = strncmp(copy, "unix://", 7) == 0;
    url->is_tls = strncmp(copy, "rediss://", 9) == 0;
    if (!url->is_unix && !url->is_tls && strncmp(copy, "redis://", 8) != 0)
        return "it must begin with redis://, rediss:// or unix://";
    rest += strcspn(rest, "/") + 2;
    char *login = cut_login(&rest);
    wrong = login == NULL ? NULL : read_login(url, login);
    if (wrong == NULL) wrong = url->is_unix ? read_unix(url, rest) : read_tcp(url, rest);
    return wrong != NULL ? wrong : read_query(url, NULL, taker, query);
}

/* -- a list of hosts */

/* A scheme for a list of hosts. */
typedef struct scheme {
    const char *prefix;
    topology_kind kind;
    bool is_tls;
} scheme;

static const scheme schemes[] = {
    {"redis+sentinel://", TOPOLOGY_SENTINEL, false},
    {"rediss+sentinel://", TOPOLOGY_SENTINEL, true},
    {"redis+cluster://", TOPOLOGY_CLUSTER, false},
    {"rediss+cluster://", TOPOLOGY_CLUSTER, true},
};

static bool is_empty(const char *text) {
    return text == NULL || text[0] == '\0';
}

/* NULL: not a URL with a list. */
static const scheme *find_scheme(const char *text) {
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (strncmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) return &schemes[i];
    return NULL;
}

/* Each server is like the model, but for host and port. */
static const char *read_hosts(topology *topology, const url *model, char *hosts, int default_port) {
    const char *wrong = NULL;
    for (char *host = hosts, *next; host != NULL && wrong == NULL; host = next) {
        next = cut(host, ',');
        if (topology->count == TOPOLOGY_SERVERS_MAX) return "there are more than 15 hosts";
        if (host[0] == '\0') return "a host of the list is missing";
        url *server = &topology->servers[topology->count++];
        *server = *model;
        wrong = read_host(server, host, default_port);
    }
    return wrong;
}

/* -- Sentinel */

static const char *read_name(topology *topology, const char *name) {
    if (is_empty(name)) return "the name of the master is missing: redis+sentinel://hosts/name";
    if (strlen(name) > TOPOLOGY_NAME_MAX) return "the name of the master is too long";
    if (name[strspn(name, NAME_LETTERS)] != '\0') /* Sentinel itself accepts no other names */
        return "the name of the master has other than letters, digits, .-_";
    strcpy(topology->master_name, name);
    return NULL;
}

/* node: a server of the list. locks: the login to servers with locks. */
static const char *read_list(topology *topology, const scheme *scheme, const url_taker *taker,
                             const char *text) {
    char copy[TEXT_SIZE], *query;
    const char *wrong = cut_query(copy, text, &query);
    if (wrong != NULL) return wrong;
    char *hosts = copy + strlen(scheme->prefix);
    char *login = cut_login(&hosts), *path = cut(hosts, '/');
    bool is_sentinel = scheme->kind == TOPOLOGY_SENTINEL;
    url node = {.is_tls = scheme->is_tls}, *locks = is_sentinel ? &topology->master : &node;
    topology->kind = scheme->kind;
    locks->is_tls = scheme->is_tls;
    if (is_sentinel) wrong = read_name(topology, path);
    if (wrong == NULL) wrong = read_query(locks, is_sentinel ? &node : NULL, taker, query);
    if (wrong == NULL && login != NULL) wrong = read_login(locks, login);
    if (wrong != NULL) return wrong;
    if (is_sentinel) return read_hosts(topology, &node, hosts, SENTINEL_PORT);
    if (node.db != 0 || (!is_empty(path) && strcmp(path, "0") != 0))
        return "a cluster has only database 0";
    return read_hosts(topology, &node, hosts, REDIS_PORT);
}

static bool is_same_server(const url *one, const url *other) {
    if (one->is_unix != other->is_unix || one->port != other->port) return false;
    return (one->is_unix ? strcmp : strcasecmp)(one->host, other->host) == 0;
}

static const char *read_independent(topology *topology, const url_taker *taker, const char *text) {
    url *server = &topology->servers[topology->count];
    if (text == NULL) return "it is NULL";
    if (find_scheme(text) != NULL)
        return "several URLs must be of one server each: redis:// or unix://";
    const char *wrong = read_server(server, taker, text);
    if (wrong != NULL) return wrong;
    for (size_t i = 0; i < topology->count; i++) /* a server could be a majority of its own */
        if (is_same_server(&topology->servers[i], server)) return "the same server is given twice";
    topology->count++;
    return NULL;
}

const char *topology_read(topology *topology, const char *const urls[], size_t count,
                          const url_taker *taker, size_t *wrong_index) {
    const char *wrong = NULL;
    memset(topology, 0, sizeof(*topology));
    topology->kind = count > 1 ? TOPOLOGY_REDLOCK : TOPOLOGY_SINGLE;
    *wrong_index = 0;
    if (count > TOPOLOGY_SERVERS_MAX) return "there are more than 15 of them";
    const scheme *scheme = count == 1 && urls[0] != NULL ? find_scheme(urls[0]) : NULL;
    if (scheme != NULL) return read_list(topology, scheme, taker, urls[0]);
    while (topology->count < count && wrong == NULL) {
        *wrong_index = topology->count;
        wrong = read_independent(topology, taker, urls[topology->count]);
    }
    return wrong;
}

bool topology_has_tls(const topology *topology) {
    for (size_t i = 0; i < topology->count; i++)
        if (topology->servers[i].is_tls) return true;
    return topology->master.is_tls;
}
