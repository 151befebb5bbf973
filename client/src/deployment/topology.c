/* SPDX-License-Identifier: BSD-3-Clause */
/* topology.c - see topology.h.
 *
 *   list          one URL, cut into login, hosts, path and query, whose parts url.c reads
 *   independent   URLs of one server each */
#include "deployment/topology.h"

#include <string.h>
#include <strings.h>

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

enum { SENTINEL_PORT = 26379, TEXT_SIZE = 16384 };

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
        next = url_cut(host, ',');
        if (topology->count == TOPOLOGY_SERVERS_MAX) return "there are more than 15 hosts";
        if (host[0] == '\0') return "a host of the list is missing";
        url *server = &topology->servers[topology->count++];
        *server = *model;
        wrong = url_read_host(server, host, default_port);
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

static const char *read_query(topology *topology, url *sentinel, char *rest) {
    const char *wrong = NULL, *user = "", *password = "";
    while (!is_empty(rest) && wrong == NULL) {
        char *option = rest;
        rest = url_cut(option, '&');
        const char *value = url_cut(option, '=');
        if (value != NULL && strcmp(option, "db") == 0)
            wrong = url_read_db(&topology->master, value);
        else if (value != NULL && strcmp(option, "sentinel_user") == 0)
            user = value;
        else if (value != NULL && strcmp(option, "sentinel_password") == 0)
            password = value;
        else
            wrong = "after the ? only db=, sentinel_user= and sentinel_password= are known";
    }
    if (wrong == NULL && user[0] != '\0' && password[0] == '\0')
        wrong = "there is a sentinel_user without a password";
    return wrong != NULL ? wrong : url_set_login(sentinel, user, password);
}

/* node: a server of the list. locks: the login to servers with locks. */
static const char *read_list(topology *topology, const scheme *scheme, const char *text) {
    char copy[TEXT_SIZE];
    if (strlen(text) >= sizeof(copy)) return "it is too long";
    char *hosts = strcpy(copy, text) + strlen(scheme->prefix);
    char *login = url_cut_login(&hosts), *path = url_cut(hosts, '/');
    char *query = path == NULL ? NULL : url_cut(path, '?');
    bool is_sentinel = scheme->kind == TOPOLOGY_SENTINEL;
    url node = {.is_tls = scheme->is_tls}, *locks = is_sentinel ? &topology->master : &node;
    const char *wrong = NULL;
    topology->kind = scheme->kind;
    locks->is_tls = scheme->is_tls;
    if (strpbrk(hosts, "?#") != NULL) return "there is a ? or a # in the list of hosts";
    if (is_sentinel) wrong = read_name(topology, path);
    if (is_sentinel && wrong == NULL) wrong = read_query(topology, &node, query);
    if (wrong == NULL && login != NULL) wrong = url_read_login(locks, login);
    if (wrong != NULL) return wrong;
    if (is_sentinel) return read_hosts(topology, &node, hosts, SENTINEL_PORT);
    if (!is_empty(path) && strcmp(path, "0") != 0) return "a cluster has only database 0";
    if (!is_empty(query)) return "redis+cluster:// takes no ?";
    return read_hosts(topology, &node, hosts, URL_PORT);
}

static bool is_same_server(const url *one, const url *other) {
    if (one->is_unix != other->is_unix || one->port != other->port) return false;
    return (one->is_unix ? strcmp : strcasecmp)(one->host, other->host) == 0;
}

static const char *read_independent(topology *topology, const char *text) {
    url *server = &topology->servers[topology->count];
    if (text == NULL) return "it is NULL";
    if (find_scheme(text) != NULL)
        return "several URLs must be of one server each: redis:// or unix://";
    const char *wrong = url_parse(server, text);
    if (wrong != NULL) return wrong;
    for (size_t i = 0; i < topology->count; i++) /* a server could be a majority of its own */
        if (is_same_server(&topology->servers[i], server)) return "the same server is given twice";
    topology->count++;
    return NULL;
}

const char *topology_read(topology *topology, const char *const urls[], size_t count,
                          size_t *wrong_index) {
    const char *wrong = NULL;
    memset(topology, 0, sizeof(*topology));
    topology->kind = count > 1 ? TOPOLOGY_REDLOCK : TOPOLOGY_SINGLE;
    *wrong_index = 0;
    if (count > TOPOLOGY_SERVERS_MAX) return "there are more than 15 of them";
    const scheme *scheme = count == 1 && urls[0] != NULL ? find_scheme(urls[0]) : NULL;
    if (scheme != NULL) return read_list(topology, scheme, urls[0]);
    while (topology->count < count && wrong == NULL) {
        *wrong_index = topology->count;
        wrong = read_independent(topology, urls[topology->count]);
    }
    return wrong;
}

bool topology_has_tls(const topology *topology) {
    for (size_t i = 0; i < topology->count; i++)
        if (topology->servers[i].is_tls) return true;
    return topology->master.is_tls;
}
