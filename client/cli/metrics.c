/* SPDX-License-Identifier: BSD-3-Clause */
/* metrics.c - INFO dlock and the busiest locks for Prometheus.
 *
 *   scrape   INFO dlock of every server, and the locks with the most waiters
 *   write    a table of families (rows below), in one of the formats of exposition.h
 *   deliver  to stdout, to a file that is replaced in one step, or as a reply to an HTTP request,
 *            which is read before the scrape
 *
 * A service that cannot be read gives dlock_up 0 and nothing else, so that an alert can see it. Of
 * several independent servers, each one that gives no result has dlock_server_up 0. To add a number
 * of INFO dlock: a row. */
#include "subcommands.h"

#include "complain.h"
#include "connect.h"
#include "exposition.h"
#include "http.h"
#include "output.h"
#include "sightings.h"
#include "statistics.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SERVERS_MAX = 1024, SCRAPE_TIMEOUT_MS = 8000 };

static const struct row {
    const char *field, *name, *type, *help;
} rows[] = {
    {"dlock_held", "dlock_locks", "gauge", "Locks in memory."},
    {"dlock_holders", "dlock_holders", "gauge", "Holders of these locks."},
    {"dlock_sessions", "dlock_sessions", "gauge", "Sessions of processes."},
    {"dlock_sessions_away", "dlock_sessions_away", "gauge", "Sessions without a connection."},
    {"dlock_session_holds", "dlock_session_holds", "gauge",
     "Holders that are tied to a session or a connection."},
    {"dlock_session_waiters", "dlock_session_waiters", "gauge", "Waiters that wait by a session."},
    {"dlock_watches", "dlock_watches", "gauge", "Locks that sessions watch."},
    {"dlock_events_unacknowledged", "dlock_events_unacknowledged", "gauge",
     "Events that sessions have not acknowledged."},
    {"dlock_waiters", "dlock_waiters", "gauge", "Clients that wait for a lock."},
    {"dlock_queues", "dlock_queues", "gauge", "Locks that clients wait for."},
    {"dlock_max_blocked", "dlock_max_blocked", "gauge",
     "Clients that may wait at a time with a connection."},
    {"dlock_locks_evictable", "dlock_evictable", "gauge",
     "1 if the server may evict locks to free memory."},
    {"dlock_granted", "dlock_grants", "counter", "Grants to a new holder."},
    {"dlock_handed_over", "dlock_handovers", "counter", "Grants to a client that had waited."},
    {"dlock_reacquired", "dlock_reacquires", "counter", "Acquires by the present holder."},
    {"dlock_contended", "dlock_contentions", "counter", "Acquires that found another holder."},
    {"dlock_released", "dlock_releases", "counter", "Releases by the holder."},
    {"dlock_expired", "dlock_expirations", "counter", "Leases that ended before a release."},
    {"dlock_forced", "dlock_forced", "counter",
     "Locks that ended without a command of dlock: DEL, a flush, eviction."},
    {"dlock_extended", "dlock_extensions", "counter", "Extensions by the holder."},
    {"dlock_refused", "dlock_refusals", "counter", "Releases and extensions by others."},
    {"dlock_wait_timeouts", "dlock_wait_timeouts", "counter", "Waits that ended without a lock."},
    {"dlock_queue_full", "dlock_queue_full", "counter", "Waits refused because of a full queue."},
    {"dlock_session_releases", "dlock_session_releases", "counter",
     "Locks that ended with their session or connection."},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

typedef struct server_metrics {
    char *name;
    double values[ROWS];
    statistics statistics;
    double wait_sum_s, hold_sum_s;
} server_metrics;

typedef struct scrape {
    server_metrics *servers;
    size_t count;
    sightings sightings;
    dlock_status status;
    char why[FAILURES_SIZE];
    char failures[FAILURES_SIZE]; /* the servers without INFO: see sightings.h */
} scrape;

/* -- scrape */

static server_metrics *find_server(scrape *scrape, const char *name) {
    for (size_t i = 0; i < scrape->count; i++)
        if (strcmp(scrape->servers[i].name, name) == 0) return &scrape->servers[i];
    if (scrape->count == SERVERS_MAX) return NULL;
    server_metrics *server = &scrape->servers[scrape->count];
    *server = (server_metrics){.name = strdup(name)};
    if (server->name == NULL) return NULL;
    scrape->count++;
    return server;
}

static void add_field(void *arg, const char *server, const char *field, const char *value) {
    server_metrics *metrics = find_server(arg, server);
    if (metrics == NULL) return;
    statistics_add(&metrics->statistics, server, field, value);
    double number = strtod(value, NULL);
    if (strcmp(field, "dlock_wait_sum_us") == 0) metrics->wait_sum_s = number / 1e6;
    if (strcmp(field, "dlock_hold_sum_us") == 0) metrics->hold_sum_s = number / 1e6;
    for (int i = 0; i < ROWS; i++)
        if (strcmp(field, rows[i].field) == 0) metrics->values[i] = number;
}

static void read_service(scrape *scrape, const request *request, dlock_client *client) {
    scrape->status = dlock_server_info(client, SCRAPE_TIMEOUT_MS, add_field, scrape, scrape->why,
                                       sizeof(scrape->why));
    if (scrape->status != DLOCK_OK) return;
    memcpy(scrape->failures, scrape->why, sizeof(scrape->failures));
    if (request->busiest > 0)
        scrape->status = dlock_list(client, NULL, SCRAPE_TIMEOUT_MS, sightings_add,
                                    &scrape->sightings, scrape->why, sizeof(scrape->why));
    sightings_sort(&scrape->sightings, "waiters");
}

/* -- write */

static exposition_label server_label(const server_metrics *server) {
    return (exposition_label){"server", server->name, strlen(server->name)};
}

static void write_servers(const exposition *out, const scrape *scrape) {
    failure failure;
    const char *rest = scrape->failures;
    exposition_family(out, "dlock_server_up", "gauge", NULL,
                      "1 if INFO of the server could be read.");
    for (size_t s = 0; s < scrape->count; s++) {
        exposition_label label = server_label(&scrape->servers[s]);
        exposition_number(out, "dlock_server_up", false, &label, 1, 1);
    }
    while (failures_next(&rest, &failure)) {
        exposition_label label = {"server", failure.line, failure.server_length};
        exposition_number(out, "dlock_server_up", false, &label, 1, 0);
    }
}

static void write_rows(const exposition *out, const scrape *scrape) {
    for (int i = 0; i < ROWS; i++) {
        bool is_counter = strcmp(rows[i].type, "counter") == 0;
        exposition_family(out, rows[i].name, rows[i].type, NULL, rows[i].help);
        for (size_t s = 0; s < scrape->count; s++) {
            exposition_label label = server_label(&scrape->servers[s]);
            exposition_number(out, rows[i].name, is_counter, &label, 1,
                              scrape->servers[s].values[i]);
        }
    }
}

static void write_histograms(const exposition *out, const scrape *scrape) {
    exposition_family(out, "dlock_wait_seconds", "histogram", "seconds",
                      "Time from the start of a wait to the grant.");
    for (size_t s = 0; s < scrape->count; s++) {
        const server_metrics *server = &scrape->servers[s];
        exposition_label label = server_label(server);
        exposition_histogram(out, "dlock_wait_seconds", &label, server->statistics.waits,
                             server->wait_sum_s);
    }
    exposition_family(out, "dlock_hold_seconds", "histogram", "seconds",
                      "Time from the grant to the release.");
    for (size_t s = 0; s < scrape->count; s++) {
        const server_metrics *server = &scrape->servers[s];
        exposition_label label = server_label(server);
        exposition_histogram(out, "dlock_hold_seconds", &label, server->statistics.holds,
                             server->hold_sum_s);
    }
}

/* A name that independent servers give to different holders is written once. */
static bool is_first(const sightings *sightings, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (sighting_is_namesake(&sightings->all[i], &sightings->all[index])) return false;
    return true;
}

static void write_busiest(const exposition *out, const scrape *scrape, size_t most, bool is_age) {
    size_t written = 0;
    for (size_t i = 0; i < scrape->sightings.count && written < most; i++) {
        const sighting *seen = &scrape->sightings.all[i];
        exposition_label label = {"name", seen->lock.name, seen->lock.name_length};
        if (!is_first(&scrape->sightings, i)) continue;
        written++;
        if (is_age)
            exposition_number(out, "dlock_lock_held_seconds", false, &label, 1,
                              (double)(seen->age_ms > 0 ? seen->age_ms : 0) / 1000);
        else
            exposition_number(out, "dlock_lock_waiters", false, &label, 1,
                              (double)seen->lock.waiters);
    }
}

static void write_all(const exposition *out, const scrape *scrape, const request *request) {
    bool is_up = scrape->status == DLOCK_OK;
    exposition_family(out, "dlock_up", "gauge", NULL, "1 if the service could be read.");
    exposition_number(out, "dlock_up", false, NULL, 0, is_up ? 1 : 0);
    if (is_up) {
        write_servers(out, scrape);
        write_rows(out, scrape);
        write_histograms(out, scrape);
    }
    if (is_up && request->busiest > 0) {
        exposition_family(out, "dlock_lock_waiters", "gauge", NULL,
                          "Clients that wait for a lock, of the busiest locks.");
        write_busiest(out, scrape, (size_t)request->busiest, false);
        exposition_family(out, "dlock_lock_held_seconds", "gauge", "seconds",
                          "How long the holder has had a lock, of the busiest locks.");
        write_busiest(out, scrape, (size_t)request->busiest, true);
    }
    exposition_end(out);
}

/* -- deliver */

/* The collector must never read a half-written file. False: complained. */
static bool replace_file(const request *request, const scrape *scrape, exposition_format format) {
    char path[4096];
    int length = snprintf(path, sizeof(path), "%s.%d.tmp", request->output, (int)getpid());
    FILE *file = length < (int)sizeof(path) ? fopen(path, "wxe") : NULL;
    bool is_written = file != NULL;
    if (is_written) {
        write_all(&(exposition){file, format}, scrape, request);
        is_written = fchmod(fileno(file), 0644) == 0; /* node_exporter is another user */
        is_written = fflush(file) == 0 && !ferror(file) && is_written;
        is_written = fclose(file) == 0 && is_written;
        is_written = is_written && rename(path, request->output) == 0;
    }
    if (is_written) return true;
    complain("%s: %s", request->output, strerror(errno));
    if (file != NULL) unlink(path);
    return false;
}

/* Sends the refusal of the request, or that the tool cannot serve it. The cause is for the operator
 * alone: it was a complaint. */
static bool decline(const http_request *http) {
    static const char text[] = "dlock: the metrics cannot be read; the log of dlock says why\n";
    http_request declined = {.refusal = "500 Internal Server Error"};
    if (http->refusal != NULL) return http_reply(STDOUT_FILENO, http, NULL, 0);
    return http_reply(STDOUT_FILENO, &declined, text, strlen(text));
}

void metrics_decline(void) {
    http_request http = http_read(STDIN_FILENO);
    decline(&http);
}

static bool reply_by_http(const request *request, const http_request *http, const scrape *scrape) {
    char *body = NULL;
    size_t size = 0;
    exposition_format format =
        http->wants_openmetrics ? EXPOSITION_OPENMETRICS : EXPOSITION_PROMETHEUS;
    FILE *file = open_memstream(&body, &size);
    if (file != NULL) write_all(&(exposition){file, format}, scrape, request);
    bool is_written = file != NULL && fclose(file) == 0;
    if (!is_written) complain("metrics: %s", strerror(errno));
    bool is_sent = is_written ? http_reply(STDOUT_FILENO, http, body, size) : decline(http);
    if (!is_sent) complain("metrics: the reply cannot be sent: %s", strerror(errno));
    free(body);
    return is_written && is_sent;
}

static bool deliver(const request *request, const http_request *http, const scrape *scrape) {
    bool is_old = request->format == NULL ? request->output != NULL
                                          : strcmp(request->format, "prometheus") == 0;
    exposition_format format = is_old ? EXPOSITION_PROMETHEUS : EXPOSITION_OPENMETRICS;
    if (request->is_http) return reply_by_http(request, http, scrape);
    if (request->output != NULL) return replace_file(request, scrape, format);
    write_all(&(exposition){stdout, format}, scrape, request);
    return output_flush() == 0;
}

static bool is_format(const char *format) {
    return strcmp(format, "openmetrics") == 0 || strcmp(format, "prometheus") == 0;
}

/* NULL: complained, and *code is the exit code. */
static dlock_client *prepare(const request *request, int *code) {
    *code = EXIT_CODE_USAGE;
    if (request->format == NULL || is_format(request->format)) return connect_client(request, code);
    complain("--format needs openmetrics or prometheus");
    return NULL;
}

static int scrape_and_deliver(const request *request, const http_request *http,
                              dlock_client *client) {
    scrape scrape = {.servers = calloc(SERVERS_MAX, sizeof(scrape.servers[0]))};
    if (scrape.servers == NULL)
        scrape.status = DLOCK_NO_MEMORY;
    else
        read_service(&scrape, request, client);
    bool is_delivered = deliver(request, http, &scrape);
    int code = is_delivered ? EXIT_CODE_OK : EXIT_CODE_INTERNAL;
    if (scrape.status != DLOCK_OK)
        code = (int)complain_query(request, "metrics", scrape.status, scrape.why,
                                   request->busiest > 0 ? ACL_TOP : ACL_SERVER_INFO);
    for (size_t i = 0; i < scrape.count; i++)
        free(scrape.servers[i].name);
    free(scrape.servers);
    sightings_clear(&scrape.sightings);
    return code;
}

int metrics(request *request) {
    int code;
    http_request http = {0};
    dlock_client *client = prepare(request, &code);
    if (client == NULL && request->is_http) metrics_decline();
    if (client == NULL) return code;
    if (request->is_http) http = http_read(STDIN_FILENO);
    if (http.refusal != NULL)
        code = decline(&http) ? EXIT_CODE_OK : EXIT_CODE_INTERNAL;
    else
        code = scrape_and_deliver(request, &http, client);
    dlock_client_free(client);
    return code;
}
