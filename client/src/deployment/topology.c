/* SPDX-License-Identifier: BSD-3-Clause */
/* topology.c - see topology.h.
 *
 *   list          one URL, cut into login, hosts, path and query. Every host becomes a URL of one
 *                 server, which url.c parses, so logins, IPv6 addresses and ports are as there
 *   independent   URLs of one server each */
#include "deployment/topology.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SENTINEL_PORT ":26379"
#define NAME_LETTERS  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

enum { TEXT_SIZE = 16384 };

/* A scheme for a list of hosts, and the scheme of each of those servers. */
typedef struct scheme {
    const char *prefix;
    topology_kind kind;
    const char *server_prefix;
} scheme;

static const scheme schemes[] = {
    {"redis+sentinel://", TOPOLOGY_SENTINEL, "redis://"},
    {"rediss+sentinel://", TOPOLOGY_SENTINEL, "rediss://"},
    {"redis+cluster://", TOPOLOGY_CLUSTER, "redis://"},
    {"rediss+cluster://", TOPOLOGY_CLUSTER, "rediss://"},
};

/* The parts of a URL with a list; NULL: there is no such part. */
typedef struct parts {
    const scheme *scheme;
    char *login, *hosts, *path, *query;
} parts;

static bool is_empty(const char *text) {
    return text == NULL || text[0] == '\0';
}

/* NULL: not a URL with a list. */
static const scheme *find_scheme(const char *text) {
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (strncmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) return &schemes[i];
    return NULL;
}

/* end: a port with a colon, a database with a slash, or "". */
static const char *read_server(url *url, const parts *parts, const char *login, const char *host,
                               const char *end) {
    char text[URL_TEXT_SIZE];
    int length = snprintf(text, sizeof(text), "%s%s%s%s%s", parts->scheme->server_prefix,
                          login == NULL ? "" : login, login == NULL ? "" : "@", host, end);
    return length < URL_TEXT_SIZE ? url_parse(url, text) : "it is too long";
}

/* default_port: with a colon, or "" for the default of url.c. */
static const char *read_servers(topology *topology, const parts *parts, const char *login,
                                const char *default_port) {
    const char *wrong = NULL;
    for (char *host = parts->hosts, *next; host != NULL && wrong == NULL; host = next) {
        next = url_cut(host, ',');
        const char *bracket = strchr(host, ']');
        bool has_port = strchr(bracket == NULL ? host : bracket, ':') != NULL;
        if (topology->count == TOPOLOGY_SERVERS_MAX) return "there are more than 15 hosts";
        if (host[0] == '\0') return "a host of the list is missing";
        wrong = read_server(&topology->servers[topology->count++], parts, login, host,
                            has_port ? "" : default_port);
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

enum { OPTION_DB, OPTION_USER, OPTION_PASSWORD, OPTION_COUNT };

static const char *read_query(const char *values[OPTION_COUNT], char *rest) {
    static const char *const names[] = {"db", "sentinel_user", "sentinel_password"};
    while (!is_empty(rest)) {
        char *option = rest;
        rest = url_cut(option, '&');
        const char *value = url_cut(option, '=');
        int index = 0;
        while (index < OPTION_COUNT && strcmp(option, names[index]) != 0)
            index++;
        if (index == OPTION_COUNT || value == NULL)
            return "after the ? only db=, sentinel_user= and sentinel_password= are known";
        values[index] = value;
    }
    if (!is_empty(values[OPTION_USER]) && is_empty(values[OPTION_PASSWORD]))
        return "there is a sentinel_user without a password";
    return NULL;
}

/* The master's login goes through url.c as well, for the same checks and the same decoding. */
static const char *read_sentinel(topology *topology, const parts *parts) {
    const char *options[OPTION_COUNT] = {"", "", ""};
    char login[URL_TEXT_SIZE];
    const char *wrong = read_name(topology, parts->path);
    if (wrong == NULL) wrong = read_query(options, parts->query);
    if (wrong == NULL)
        wrong = read_server(&topology->master, parts, parts->login, "master/", options[OPTION_DB]);
    if (wrong != NULL) return wrong;
    topology->master.host[0] = '\0';
    topology->master.port = 0;
    snprintf(login, sizeof(login), "%s:%s", options[OPTION_USER], options[OPTION_PASSWORD]);
    return read_servers(topology, parts, is_empty(options[OPTION_PASSWORD]) ? NULL : login,
                        SENTINEL_PORT);
}

static const char *read_list(topology *topology, const scheme *scheme, const char *text) {
    char copy[TEXT_SIZE];
    if (strlen(text) >= sizeof(copy)) return "it is too long";
    parts parts = {.scheme = scheme, .hosts = strcpy(copy, text) + strlen(scheme->prefix)};
    topology->kind = scheme->kind;
    parts.path = url_cut(parts.hosts, '/');
    if (parts.path != NULL) parts.query = url_cut(parts.path, '?');
    parts.login = url_cut_login(&parts.hosts);
    if (scheme->kind == TOPOLOGY_SENTINEL) return read_sentinel(topology, &parts);
    if (!is_empty(parts.path) && strcmp(parts.path, "0") != 0)
        return "a cluster has only database 0";
    if (!is_empty(parts.query)) return "redis+cluster:// takes no ?";
    return read_servers(topology, &parts, parts.login, "");
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
