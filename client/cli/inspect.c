/* SPDX-License-Identifier: BSD-3-Clause */
/* inspect.c - locks, for people and scripts.
 *
 *   info   one lock: its holder, and the first clients of its queue
 *   list   all locks, as a table, as JSON, or only their names
 *
 * Names, tokens and the names of servers come from outside: each is escaped. */
#include "subcommands.h"

#include "complain.h"
#include "connect.h"
#include "output.h"
#include "sightings.h"
#include "text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* All locks of a large server take a while; a missing reply is noticed much sooner. */
enum { LIST_TIMEOUT_MS = 10 * 60 * 1000 };
enum { NAME_WIDTH = 28, TOKEN_WIDTH = 26, TOKEN_MAX = 256, QUEUE_MAX = 10 };

static const char *mode_name(dlock_mode mode) {
    return mode == DLOCK_SHARED ? "shared" : "exclusive";
}

/* -- info */

/* A waiter, with its own copy of the token. */
typedef struct place {
    dlock_waiting waiting;
    char token[TOKEN_MAX];
    size_t token_length;
} place;

typedef struct queue {
    place places[QUEUE_MAX];
    size_t count;
} queue;

typedef struct info {
    sightings holders;
    queue queue;
    int servers, failed; /* failed: those without a result */
} info;

static bool add_place(void *arg, const dlock_waiting *waiting) {
    queue *queue = arg;
    place *place = &queue->places[queue->count++];
    place->waiting = *waiting;
    place->token_length = waiting->token_length < TOKEN_MAX ? waiting->token_length : TOKEN_MAX;
    memcpy(place->token, waiting->token, place->token_length);
    return queue->count < QUEUE_MAX;
}

static void show_queue(const queue *queue) {
    char token[4 * TOKEN_MAX + 1], waited[DURATION_SIZE], left[DURATION_SIZE];
    for (size_t i = 0; i < queue->count; i++) {
        const place *place = &queue->places[i];
        const dlock_waiting *waiting = &place->waiting;
        escape_text(token, sizeof(token), place->token, place->token_length);
        duration_show(waiting->waited_ms, waited);
        duration_show(waiting->left_ms, left);
        printf("%7zu  %s, %swaits for %s, for up to %s more, ", i + 1, token,
               waiting->mode == DLOCK_SHARED ? "shared, " : "", waited, left);
        if (waiting->client == 0)
            printf("by its session\n");
        else
            printf("client %" PRId64 "\n", waiting->client);
    }
}

static void show_queue_json(const queue *queue) {
    json_array_begin("queue");
    for (size_t i = 0; i < queue->count; i++) {
        const dlock_waiting *waiting = &queue->places[i].waiting;
        json_object_begin(NULL);
        json_bytes("token", queue->places[i].token, queue->places[i].token_length);
        json_text("mode", mode_name(waiting->mode));
        json_number("waited_ms", waiting->waited_ms);
        json_number("left_ms", waiting->left_ms);
        json_number("client", waiting->client);
        json_object_end();
    }
    json_array_end();
}

static void show_since(const sighting *seen) {
    char age[DURATION_SIZE], when[32];
    time_t seconds = (time_t)(seen->lock.since_ms / 1000);
    struct tm parts;
    if (seen->age_ms < 0) return;
    duration_show(seen->age_ms, age);
    strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &parts));
    printf("since    %s, %s ago\n", when, age);
}

static void show_servers(const sighting *seen, const info *info) {
    if (info->servers == 1) return;
    printf("servers  held on %d of %d", seen->copies, info->servers);
    if (info->failed > 0) printf(", no result from %d", info->failed);
    printf("\n");
}

static void show_holder(const sighting *seen, const info *info) {
    char text[COLUMN_MAX * 4 + 1], ttl[DURATION_SIZE], lease[DURATION_SIZE];
    const dlock_inspection *lock = &seen->lock;
    printf("holder   %s\n", column_show(text, lock->token, lock->token_length, COLUMN_MAX, 0));
    if (lock->is_string) printf("kind     string: somebody's SET NX PX\n");
    if (!lock->is_string) printf("fence    %" PRIu64 "\n", lock->fence);
    show_since(seen);
    duration_show(lock->ttl_ms, ttl);
    duration_show(lock->lease_ms, lease);
    if (lock->ttl_ms < 0)
        printf("ttl      does not end by itself\n");
    else if (lock->is_string)
        printf("ttl      %s\n", ttl);
    else
        printf("ttl      %s of %s\n", ttl, lease);
    if (lock->session != 0) printf("session  client %" PRId64 "\n", lock->session);
    show_servers(seen, info);
}

static void show_info(const info *info) {
    char text[COLUMN_MAX * 4 + 1];
    const dlock_inspection *lock = &info->holders.all[0].lock;
    printf("name     %s\n", column_show(text, lock->name, lock->name_length, COLUMN_MAX, 0));
    if (lock->mode == DLOCK_SHARED) printf("mode     shared, %" PRId64 " hold it\n", lock->holders);
    for (size_t i = 0; i < info->holders.count; i++)
        show_holder(&info->holders.all[i], info);
    printf("waiters  %" PRId64 "\n", lock->waiters);
    show_queue(&info->queue);
    if (info->servers == 1)
        printf("server   %s\n",
               escape_text(text, sizeof(text), lock->server, strlen(lock->server)));
}

static void show_free(const request *request) {
    if (!request->is_json) {
        printf("free\n");
        return;
    }
    json_object_begin(NULL);
    json_text("name", request->words[0]);
    json_fact("free", true);
    json_object_end();
}

static void show_info_json(const info *info) {
    for (size_t i = 0; i < info->holders.count; i++) {
        const sighting *seen = &info->holders.all[i];
        json_object_begin(NULL);
        sighting_show_members(seen);
        json_number("held_on", seen->copies);
        json_number("servers", info->servers);
        json_number("no_result", info->failed);
        show_queue_json(&info->queue);
        json_object_end();
    }
}

static dlock_status read_info(dlock_client *client, const request *request, info *info, char *why) {
    int64_t timeout_ms = request->connect_timeout_ms + request->io_timeout_ms;
    dlock_status status = dlock_inspect(client, request->words[0], timeout_ms, sightings_add,
                                        &info->holders, why, FAILURES_SIZE);
    if (status != DLOCK_OK) return status;
    sightings_sort(&info->holders, "age");
    info->failed = failures_count(why);
    return dlock_list_waiters(client, request->words[0], QUEUE_MAX, timeout_ms, add_place,
                              &info->queue, why, FAILURES_SIZE);
}

int inspect_info(request *request) {
    int code;
    char why[FAILURES_SIZE];
    info info = {.servers = request->url_count};
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status = read_info(client, request, &info, why);
    dlock_client_free(client);
    if (status == DLOCK_OK && request->is_json)
        show_info_json(&info);
    else if (status == DLOCK_OK)
        show_info(&info);
    else if (status == DLOCK_NOT_HELD)
        show_free(request);
    else
        complain_query(request, request->words[0], status, why, ACL_INFO);
    sightings_clear(&info.holders);
    return (int)exit_code_of(status);
}

/* -- list */

static void show_line(const sighting *seen) {
    char name[COLUMN_MAX * 4 + 1], token[COLUMN_MAX * 4 + 1], age[DURATION_SIZE];
    char ttl[DURATION_SIZE], holder[SIGHTING_HOLDER_SIZE];
    size_t length = sighting_holder(seen, holder);
    duration_show(seen->age_ms, age);
    duration_show(seen->lock.ttl_ms, ttl);
    printf("%s %s %6s %6s %7" PRId64 "\n",
           column_show(name, seen->lock.name, seen->lock.name_length, NAME_WIDTH, 1),
           column_show(token, holder, length, TOKEN_WIDTH, 1), age, ttl, seen->lock.waiters);
}

static void show_names(const sightings *sightings) {
    char safe[4096];
    for (size_t i = 0; i < sightings->count; i++)
        puts(escape_text(safe, sizeof(safe), sightings->all[i].lock.name,
                         sightings->all[i].lock.name_length));
}

static void show_list(const request *request, const sightings *seen) {
    if (request->is_json)
        json_array_begin(NULL);
    else if (seen->count > 0)
        printf("%-*s %-*s %6s %6s %7s\n", NAME_WIDTH, "NAME", TOKEN_WIDTH, "HOLDER", "AGE", "TTL",
               "WAITERS");
    for (size_t i = 0; i < seen->count; i++) {
        if (request->is_json)
            sighting_show_json(&seen->all[i]);
        else
            show_line(&seen->all[i]);
    }
    if (request->is_json) json_array_end();
}

static void ignore_field(void *arg, const char *server, const char *field, const char *value) {
    (void)arg;
    (void)server;
    (void)field;
    (void)value;
}

/* An empty list is no proof: a server without the module has no locks either. For a user who
 * may not call INFO, the module cannot be checked. */
static dlock_status check_module(dlock_client *client, const request *request, char *why) {
    dlock_status status =
        dlock_server_info(client, request->connect_timeout_ms + request->io_timeout_ms,
                          ignore_field, NULL, why, FAILURES_SIZE);
    return status == DLOCK_REFUSED ? DLOCK_OK : status;
}

int inspect_list(request *request) {
    int code;
    char why[FAILURES_SIZE];
    sightings seen = {.filter = request};
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status = dlock_list(client, request->word_count > 0 ? request->words[0] : NULL,
                                     LIST_TIMEOUT_MS, sightings_add, &seen, why, sizeof(why));
    if (status == DLOCK_OK) complain_failures("list", why);
    if (status == DLOCK_OK && seen.count == 0) status = check_module(client, request, why);
    dlock_client_free(client);
    if (seen.has_no_memory) status = DLOCK_NO_MEMORY;
    sightings_sort(&seen, "name");
    if (status == DLOCK_OK && request->is_names_only)
        show_names(&seen);
    else if (status == DLOCK_OK)
        show_list(request, &seen);
    else
        complain_query(request, "list", status, why, ACL_LIST);
    sightings_clear(&seen);
    return (int)exit_code_of(status);
}
