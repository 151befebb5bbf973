/* SPDX-License-Identifier: BSD-3-Clause */
/* inspect.c - see inspect.h. */
#include "inspect.h"

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

void inspect_show_json(const sighting *lock) {
    json_object_begin(NULL);
    json_bytes("name", lock->of.name, lock->of.name_length);
    json_bytes("token", lock->of.token, lock->of.token_length);
    json_number("fence", (int64_t)lock->of.fence);
    json_number("ttl_ms", lock->of.ttl_ms);
    json_number("lease_ms", lock->of.lease_ms);
    json_number("since_ms", lock->of.since_ms);
    json_number("waiters", lock->of.waiters);
    json_number("session", lock->of.session);
    json_text("kind", lock->of.is_string ? "string" : "lock");
    json_text("server", lock->of.server);
    json_object_end();
}

/* -- info */

static void show_since(const sighting *lock) {
    char age[DURATION_SIZE], when[32];
    time_t seconds = (time_t)(lock->of.since_ms / 1000);
    struct tm parts;
    if (lock->age_ms < 0) return;
    duration_show(lock->age_ms, age);
    strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &parts));
    printf("since    %s, %s ago\n", when, age);
}

static void show_info(const sighting *lock) {
    char text[COLUMN_MAX * 4 + 1], ttl[DURATION_SIZE], lease[DURATION_SIZE];
    const dlock_inspection *of = &lock->of;
    printf("name     %s\n", column_show(text, of->name, of->name_length, COLUMN_MAX, 0));
    printf("holder   %s\n", column_show(text, of->token, of->token_length, COLUMN_MAX, 0));
    if (of->is_string) printf("kind     string: somebody's SET NX PX\n");
    if (!of->is_string) printf("fence    %" PRIu64 "\n", of->fence);
    show_since(lock);
    duration_show(of->ttl_ms, ttl);
    duration_show(of->lease_ms, lease);
    if (of->ttl_ms < 0)
        printf("ttl      does not end by itself\n");
    else if (of->is_string)
        printf("ttl      %s\n", ttl);
    else
        printf("ttl      %s of %s\n", ttl, lease);
    printf("waiters  %" PRId64 "\n", of->waiters);
    if (of->session != 0) printf("session  client %" PRId64 "\n", of->session);
    printf("server   %s\n", of->server);
}

int inspect_info(request *asked) {
    int code;
    char why[WHY_SIZE];
    sightings seen = {.filter = asked};
    dlock_client *client = connect_client(asked, &code);
    if (client == NULL) return code;
    dlock_status status =
        dlock_inspect(client, asked->words[0], asked->connect_timeout_ms + asked->io_timeout_ms,
                      sightings_add, &seen, why, sizeof(why));
    dlock_client_free(client);
    if (status == DLOCK_NOT_HELD && asked->is_json) {
        json_object_begin(NULL);
        json_text("name", asked->words[0]);
        json_fact("free", true);
        json_object_end();
    } else if (status == DLOCK_NOT_HELD) {
        printf("free\n");
    } else if (status != DLOCK_OK) {
        complain_status(asked->words[0], status, why);
    }
    sightings_sort(&seen, "name");
    for (size_t i = 0; i < seen.count; i++) {
        if (asked->is_json)
            inspect_show_json(&seen.all[i]);
        else
            show_info(&seen.all[i]);
    }
    sightings_clear(&seen);
    return (int)exit_code_of(status);
}

/* -- list */

static void show_line(const sighting *lock) {
    char name[COLUMN_MAX * 4 + 1], token[COLUMN_MAX * 4 + 1], age[DURATION_SIZE];
    char ttl[DURATION_SIZE];
    duration_show(lock->age_ms, age);
    duration_show(lock->of.ttl_ms, ttl);
    printf("%s %s %6s %6s %7" PRId64 "\n",
           column_show(name, lock->of.name, lock->of.name_length, NAME_WIDTH, 1),
           column_show(token, lock->of.token, lock->of.token_length, TOKEN_WIDTH, 1), age, ttl,
           lock->of.waiters);
}

static void show_list(const request *asked, const sightings *seen) {
    if (asked->is_json)
        json_array_begin(NULL);
    else if (seen->count > 0)
        printf("%-*s %-*s %6s %6s %7s\n", NAME_WIDTH, "NAME", TOKEN_WIDTH, "HOLDER", "AGE", "TTL",
               "WAITERS");
    for (size_t i = 0; i < seen->count; i++) {
        if (asked->is_json)
            inspect_show_json(&seen->all[i]);
        else
            show_line(&seen->all[i]);
    }
    if (asked->is_json) json_array_end();
}

int inspect_list(request *asked) {
    int code;
    char why[WHY_SIZE];
    sightings seen = {.filter = asked};
    dlock_client *client = connect_client(asked, &code);
    if (client == NULL) return code;
    dlock_status status = dlock_list(client, asked->word_count > 0 ? asked->words[0] : NULL,
                                     LIST_TIMEOUT_MS, sightings_add, &seen, why, sizeof(why));
    dlock_client_free(client);
    if (seen.has_no_memory) status = DLOCK_NO_MEMORY;
    sightings_sort(&seen, "name");
    if (status == DLOCK_OK)
        show_list(asked, &seen);
    else
        complain_status("list", status, why);
    sightings_clear(&seen);
    return (int)exit_code_of(status);
}
