/* SPDX-License-Identifier: BSD-3-Clause */
/* urls.c - URLs of servers (client/src/deployment/topology.c), separated by newlines. Whatever is
 * accepted has hosts, ports and databases within the limits. The description of a server is its
 * host and port, and no message is a part of the URLs: a password is never shown. */
#include "deployment/topology.h"

#include "fuzz.h"

enum { URLS_MAX = TOPOLOGY_SERVERS_MAX + 2 };

/* Accepts every parameter that is encoded well. */
static const char *take(void *arg, const char *name, const char *value) {
    (void)arg;
    MUST(name[strspn(name, "abcdefghijklmnopqrstuvwxyz_")] == '\0');
    return value == NULL ? "badly encoded" : NULL;
}

static void check_login(const url *url) {
    MUST(strlen(url->user) <= URL_PART_MAX && strlen(url->password) <= URL_PART_MAX);
    MUST(url->db >= 0 && url->db <= URL_DB_MAX);
}

/* The description is the host and the port, and nothing of the login. */
static void check_server(const url *url) {
    char text[URL_HOST_MAX + 16], host_and_port[URL_HOST_MAX + 16];
    check_login(url);
    MUST(url->host[0] != '\0' && strlen(url->host) <= URL_HOST_MAX);
    MUST(url->is_unix ? url->host[0] == '/' : url->port >= 1 && url->port <= 65535);
    url_describe(url, text, sizeof(text));
    if (url->is_unix)
        snprintf(host_and_port, sizeof(host_and_port), "%s", url->host);
    else
        snprintf(host_and_port, sizeof(host_and_port),
                 strchr(url->host, ':') != NULL ? "[%s]:%d" : "%s:%d", url->host, url->port);
    MUST(strcmp(text, host_and_port) == 0);
}

static void check_topology(const topology *topology) {
    MUST(topology->count >= 1 && topology->count <= TOPOLOGY_SERVERS_MAX);
    for (size_t i = 0; i < topology->count; i++)
        check_server(&topology->servers[i]);
    check_login(&topology->master);
    MUST((topology->kind == TOPOLOGY_SENTINEL) == (topology->master_name[0] != '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static topology topology;
    const char *urls[URLS_MAX];
    size_t count = 0, wrong_index = 0;
    char *text = malloc(size + 1);
    MUST(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    for (char *next = text; next != NULL && count < URLS_MAX; count++) {
        char *mark = strchr(next, '\n');
        if (mark != NULL) *mark = '\0';
        urls[count] = next;
        next = mark == NULL ? NULL : mark + 1;
    }
    url_taker taker = {.take = take};
    const char *wrong = topology_read(&topology, urls, count, &taker, &wrong_index);
    if (wrong == NULL)
        check_topology(&topology);
    else
        MUST(wrong_index < count && (wrong < text || wrong > text + size));
    free(text);
    return 0;
}
