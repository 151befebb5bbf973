/* SPDX-License-Identifier: BSD-3-Clause */
/* inspect.c - see inspect.h. */
#include "inspect.h"

#include "acl.h"
#include "column.h"
#include "complain.h"
#include "connect.h"
#include "duration.h"
#include "json.h"
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* All locks of a large server take a while; an answer that does not come is noticed much sooner. */
enum { LIST_TIMEOUT_MS = 10 * 60 * 1000, WHY_SIZE = 300 };
enum { NAME_WIDTH = 28, TOKEN_WIDTH = 26 };

void inspect_show_json(const sighting *seen) {
    json_object_begin(NULL);
    json_bytes("name", seen->lock.name, seen->lock.name_length);
    json_bytes("token", seen->lock.token, seen->lock.token_length);
    json_number("fence", (int64_t)seen->lock.fence);
    json_number("ttl_ms", seen->lock.ttl_ms);
    json_number("lease_ms", seen->lock.lease_ms);
    json_number("since_ms", seen->lock.since_ms);
    json_number("waiters", seen->lock.waiters);
    json_number("session", seen->lock.session);
    json_text("kind", seen->lock.is_string ? "string" : "lock");
    json_text("server", seen->lock.server);
    json_object_end();
}

/* -- info */

static void show_since(const sighting *seen) {
    char age[DURATION_SIZE], when[32];
    time_t seconds = (time_t)(seen->lock.since_ms / 1000);
    struct tm parts;
    if (seen->age_ms < 0) return;
    duration_show(seen->age_ms, age);
    strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &parts));
    printf("since    %s, %s ago\n", when, age);
}

static void show_info(const sighting *seen) {
    char text[COLUMN_MAX * 4 + 1], ttl[DURATION_SIZE], lease[DURATION_SIZE];
    const dlock_inspection *lock = &seen->lock;
    printf("name     %s\n", column_show(text, lock->name, lock->name_length, COLUMN_MAX, 0));
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
    printf("waiters  %" PRId64 "\n", lock->waiters);
    if (lock->session != 0) printf("session  client %" PRId64 "\n", lock->session);
    printf("server   %s\n", lock->server);
}

int inspect_info(request *request) {
    int code;
    char why[WHY_SIZE];
    sightings seen = {.filter = request};
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status = dlock_inspect(client, request->words[0],
                                        request->connect_timeout_ms + request->io_timeout_ms,
                                        sightings_add, &seen, why, sizeof(why));
    dlock_client_free(client);
    if (status == DLOCK_NOT_HELD && request->is_json) {
        json_object_begin(NULL);
        json_text("name", request->words[0]);
        json_fact("free", true);
        json_object_end();
    } else if (status == DLOCK_NOT_HELD) {
        printf("free\n");
    } else if (status != DLOCK_OK) {
        complain_status(request->words[0], status, why);
    }
    sightings_sort(&seen, "name");
    for (size_t i = 0; i < seen.count; i++) {
        if (request->is_json)
            inspect_show_json(&seen.all[i]);
        else
            show_info(&seen.all[i]);
    }
    sightings_clear(&seen);
    return (int)exit_code_of(status);
}

/* -- list */

static void show_line(const sighting *seen) {
    char name[COLUMN_MAX * 4 + 1], token[COLUMN_MAX * 4 + 1], age[DURATION_SIZE];
    char ttl[DURATION_SIZE];
    duration_show(seen->age_ms, age);
    duration_show(seen->lock.ttl_ms, ttl);
    printf("%s %s %6s %6s %7" PRId64 "\n",
           column_show(name, seen->lock.name, seen->lock.name_length, NAME_WIDTH, 1),
           column_show(token, seen->lock.token, seen->lock.token_length, TOKEN_WIDTH, 1), age, ttl,
           seen->lock.waiters);
}

static void show_list(const request *request, const sightings *seen) {
    if (request->is_json)
        json_array_begin(NULL);
    else if (seen->count > 0)
        printf("%-*s %-*s %6s %6s %7s\n", NAME_WIDTH, "NAME", TOKEN_WIDTH, "HOLDER", "AGE", "TTL",
               "WAITERS");
    for (size_t i = 0; i < seen->count; i++) {
        if (request->is_json)
            inspect_show_json(&seen->all[i]);
        else
            show_line(&seen->all[i]);
    }
    if (request->is_json) json_array_end();
}

int inspect_list(request *request) {
    int code;
    char why[WHY_SIZE];
    sightings seen = {.filter = request};
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status = dlock_list(client, request->word_count > 0 ? request->words[0] : NULL,
                                     LIST_TIMEOUT_MS, sightings_add, &seen, why, sizeof(why));
    dlock_client_free(client);
    if (seen.has_no_memory) status = DLOCK_NO_MEMORY;
    sightings_sort(&seen, "name");
    if (status == DLOCK_OK)
        show_list(request, &seen);
    else
        complain_query("list", status, why, ACL_LIST);
    sightings_clear(&seen);
    return (int)exit_code_of(status);
}
