/* SPDX-License-Identifier: BSD-3-Clause */
/* deployment.c - see deployment.h.
 *
 * A URL with a list of hosts is taken apart into as many URLs of one server each, which url.c
 * reads; so logins, IPv6 addresses and ports are the same everywhere. */
#include "deployment.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TEXT_MAX = 8192 }; /* more than the longest URL that url.c takes */

#define SENTINEL_PORT ":26379"

typedef struct span {
    const char *at;
    size_t length;
} span;

/* What a scheme stands for, and the scheme of each of its servers. */
typedef struct scheme {
    const char *prefix;
    deployment_kind kind;
    const char *server_prefix;
} scheme;

static const scheme schemes[] = {
    {"redis+sentinel://", DEPLOYMENT_SENTINEL, "redis://"},
    {"rediss+sentinel://", DEPLOYMENT_SENTINEL, "rediss://"},
    {"redis+cluster://", DEPLOYMENT_CLUSTER, "redis://"},
    {"rediss+cluster://", DEPLOYMENT_CLUSTER, "rediss://"},
};

/* A URL with a list, in its parts; the login with its @, "" when there is none. */
typedef struct listed {
    const scheme *of;
    span login, hosts, path, query;
} listed;

/* Of a sentinel's URL what is after the ?. */
typedef struct query {
    span db, user, password;
} query;

static bool is_empty(span of) {
    return of.length == 0;
}

/* Takes what is before the mark, and the mark, from rest; all of it when there is no mark. */
static span cut(span *rest, char mark) {
    const char *found = memchr(rest->at, mark, rest->length);
    span before = *rest;
    if (found != NULL) before.length = (size_t)(found - rest->at);
    size_t taken = before.length + (found != NULL);
    *rest = (span){rest->at + taken, rest->length - taken};
    return before;
}

static bool cut_prefix(span *rest, const char *prefix) {
    size_t length = strlen(prefix);
    if (rest->length < length || memcmp(rest->at, prefix, length) != 0) return false;
    *rest = (span){rest->at + length, rest->length - length};
    return true;
}

/* NULL: it is the URL of one server, or of none. */
static const scheme *scheme_of(const char *text) {
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (strncmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) return &schemes[i];
    return NULL;
}

static listed take_apart(const scheme *of, const char *text) {
    span rest = {text, strlen(text)};
    cut_prefix(&rest, of->prefix);
    span where = cut(&rest, '/'); /* a / of a password is encoded */
    listed parts = {.of = of, .login = {"", 0}, .hosts = where};
    for (size_t i = where.length; i > 0; i--)
        if (where.at[i - 1] == '@') {
            parts.login = (span){where.at, i};
            parts.hosts = (span){where.at + i, where.length - i};
            break;
        }
    parts.path = cut(&rest, '?');
    parts.query = rest;
    return parts;
}

/* -- one server of a list */

static bool has_port(span host) {
    size_t from = 0;
    for (size_t i = 0; i < host.length; i++)
        if (host.at[i] == ']') from = i;
    return memchr(host.at + from, ':', host.length - from) != NULL;
}

/* default_port: with its colon, or "" for that of url.c. */
static const char *read_server(url *out, const char *prefix, span login, span host,
                               const char *default_port) {
    char text[TEXT_MAX];
    if (login.length + host.length > TEXT_MAX / 2) return "it is too long";
    if (is_empty(host)) return "a host of the list is missing";
    snprintf(text, sizeof(text), "%s%.*s%.*s%s", prefix, (int)login.length, login.at,
             (int)host.length, host.at, has_port(host) ? "" : default_port);
    return url_parse(out, text);
}

static const char *read_servers(deployment *out, const listed *from, span login,
                                const char *default_port) {
    span rest = from->hosts;
    size_t hosts = 1;
    for (size_t i = 0; i < rest.length; i++)
        hosts += rest.at[i] == ',';
    if (hosts > DEPLOYMENT_SERVERS_MAX) return "there are more than 15 hosts";
    for (; out->count < hosts; out->count++) {
        url *to = &out->servers[out->count];
        const char *wrong =
            read_server(to, from->of->server_prefix, login, cut(&rest, ','), default_port);
        if (wrong != NULL) return wrong;
    }
    return NULL;
}

/* -- Sentinel */

/* Sentinel itself takes no others. */
static bool is_master_name(span name) {
    for (size_t i = 0; i < name.length; i++) {
        char c = name.at[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool is_other = (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
        if (!is_letter && !is_other) return false;
    }
    return true;
}

static const char *read_name(deployment *out, span name) {
    if (is_empty(name)) return "the name of the master is missing: redis+sentinel://hosts/name";
    if (name.length > DEPLOYMENT_NAME_MAX) return "the name of the master is too long";
    if (!is_master_name(name)) return "the name of the master has other than letters, digits, .-_";
    memcpy(out->master_name, name.at, name.length);
    return NULL;
}

static const char *read_query(query *out, span rest) {
    *out = (query){{"", 0}, {"", 0}, {"", 0}};
    while (!is_empty(rest)) {
        span each = cut(&rest, '&');
        if (cut_prefix(&each, "db="))
            out->db = each;
        else if (cut_prefix(&each, "sentinel_user="))
            out->user = each;
        else if (cut_prefix(&each, "sentinel_password="))
            out->password = each;
        else
            return "after the ? only db=, sentinel_user= and sentinel_password= are known";
    }
    bool has_user = !is_empty(out->user);
    if (has_user && is_empty(out->password)) return "there is a sentinel_user without a password";
    return NULL;
}

/* As of a URL of one server, so that it is checked and decoded alike. */
static const char *read_master(deployment *out, const listed *from, const query *asked) {
    char host[TEXT_MAX];
    if (asked->db.length > TEXT_MAX / 4) return "it is too long";
    int length = snprintf(host, sizeof(host), "master/%.*s", (int)asked->db.length, asked->db.at);
    const char *wrong = read_server(&out->master, from->of->server_prefix, from->login,
                                    (span){host, (size_t)length}, "");
    out->master.host[0] = '\0';
    out->master.port = 0;
    return wrong;
}

static const char *read_sentinel(deployment *out, const listed *from) {
    query asked;
    char login[TEXT_MAX] = "";
    const char *wrong = read_name(out, from->path);
    if (wrong == NULL) wrong = read_query(&asked, from->query);
    if (wrong == NULL) wrong = read_master(out, from, &asked);
    if (wrong != NULL) return wrong;
    if (asked.user.length + asked.password.length > TEXT_MAX / 2) return "it is too long";
    if (!is_empty(asked.password))
        snprintf(login, sizeof(login), "%.*s:%.*s@", (int)asked.user.length, asked.user.at,
                 (int)asked.password.length, asked.password.at);
    return read_servers(out, from, (span){login, strlen(login)}, SENTINEL_PORT);
}

/* -- the others */

static const char *read_cluster(deployment *out, const listed *from) {
    bool is_db_0 = is_empty(from->path) || (from->path.length == 1 && from->path.at[0] == '0');
    if (!is_db_0) return "a cluster has only database 0";
    if (!is_empty(from->query)) return "redis+cluster:// takes no ?";
    return read_servers(out, from, from->login, "");
}

static bool is_same_server(const url *one, const url *other) {
    if (one->is_unix || other->is_unix)
        return one->is_unix == other->is_unix && strcmp(one->host, other->host) == 0;
    return one->port == other->port && strcasecmp(one->host, other->host) == 0;
}

/* One that counted twice would be a majority of its own. */
static const char *read_independent(deployment *out, const char *const urls[], size_t count,
                                    size_t *wrong_at) {
    for (; out->count < count; out->count++) {
        *wrong_at = out->count;
        const char *text = urls[out->count], *wrong = NULL;
        if (text == NULL)
            wrong = "it is NULL";
        else if (scheme_of(text) != NULL)
            wrong = "several URLs must be of one server each: redis:// or unix://";
        else
            wrong = url_parse(&out->servers[out->count], text);
        if (wrong != NULL) return wrong;
        for (size_t i = 0; i < out->count; i++)
            if (is_same_server(&out->servers[i], &out->servers[out->count]))
                return "the same server is given twice";
    }
    return NULL;
}

const char *deployment_read(deployment *out, const char *const urls[], size_t count,
                            size_t *wrong_at) {
    *out = (deployment){.kind = count > 1 ? DEPLOYMENT_REDLOCK : DEPLOYMENT_SINGLE};
    *wrong_at = 0;
    if (count > DEPLOYMENT_SERVERS_MAX) return "there are more than 15 of them";
    const scheme *of = scheme_of(urls[0]);
    if (count > 1 || of == NULL) return read_independent(out, urls, count, wrong_at);
    listed parts = take_apart(of, urls[0]);
    out->kind = of->kind;
    return of->kind == DEPLOYMENT_SENTINEL ? read_sentinel(out, &parts) : read_cluster(out, &parts);
}

bool deployment_has_tls(const deployment *of) {
    for (size_t i = 0; i < of->count; i++)
        if (of->servers[i].is_tls) return true;
    return of->master.is_tls;
}
