/* SPDX-License-Identifier: BSD-3-Clause */
/* force.c - see force.h.
 *
 *   look      who holds the lock now; several servers may have different holders
 *   ask       a person at a terminal; --yes stands for the answer
 *   release   by the tokens that were shown. A holder that comes later keeps the lock
 *
 * Not DEL: that could hit a holder whom the operator has never seen. */
#include "force.h"

#include "complain.h"
#include "connect.h"
#include "duration.h"
#include "escape.h"
#include "json.h"
#include "sightings.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WHY_SIZE = 300, TEXT_SIZE = 600 };

static void show_holder(const char *name, const sighting *seen) {
    char age[DURATION_SIZE], safe_name[TEXT_SIZE], safe_token[TEXT_SIZE];
    duration_show(seen->age_ms, age);
    fprintf(stderr, "%s: held by %s for %s, %lld waiting\n",
            escape_text(safe_name, sizeof(safe_name), name, strlen(name)),
            escape_text(safe_token, sizeof(safe_token), seen->lock.token, seen->lock.token_length),
            age, (long long)seen->lock.waiters);
}

/* False: not confirmed. */
static bool is_confirmed(const request *request, const sightings *holders) {
    char answer[16] = "";
    for (size_t i = 0; i < holders->count; i++)
        show_holder(request->words[0], &holders->all[i]);
    fprintf(stderr, "Its holder may not notice before its next renewal. Release it? [y/N] ");
    return fgets(answer, sizeof(answer), stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y');
}

/* How many of the tokens held the lock and do not any more. failure: the last one, if any. */
static size_t release_all(const request *request, dlock_client *client, const sightings *holders,
                          dlock_status *failure) {
    size_t released = 0;
    for (size_t i = 0; i < holders->count; i++) {
        char why[WHY_SIZE] = "";
        const dlock_inspection *lock = &holders->all[i].lock;
        bool has_nul = strlen(lock->token) != lock->token_length;
        dlock_status status = DLOCK_INVALID;
        if (has_nul)
            snprintf(why, sizeof(why), "the token has a zero byte in it: use DEL");
        else
            status = dlock_release_token(client, request->words[0], lock->token, why, sizeof(why));
        if (status == DLOCK_OK) released++;
        if (status == DLOCK_NOT_HELD)
            complain("%s: %s does not hold it any more", request->words[0], lock->token);
        else if (status != DLOCK_OK)
            complain_status(request, request->words[0], *failure = status, why);
    }
    return released;
}

static void show_json(const request *request, bool is_released) {
    json_object_begin(NULL);
    json_text("name", request->words[0]);
    json_fact("released", is_released);
    json_object_end();
}

static int show_free(const request *request) {
    if (request->is_json)
        show_json(request, false);
    else
        complain("%s: the lock is free", request->words[0]);
    return EXIT_CODE_BUSY;
}

static int release_seen(const request *request, dlock_client *client, const sightings *holders) {
    if (!request->is_sure && !isatty(STDIN_FILENO)) {
        complain("--force asks first, and there is no terminal: use --yes");
        return EXIT_CODE_USAGE;
    }
    if (!request->is_sure && !is_confirmed(request, holders)) {
        complain("%s: nothing has changed", request->words[0]);
        return EXIT_CODE_BUSY;
    }
    dlock_status failure = DLOCK_OK;
    bool is_released = release_all(request, client, holders, &failure) > 0;
    if (request->is_json) show_json(request, is_released && failure == DLOCK_OK);
    if (failure != DLOCK_OK) return (int)exit_code_of(failure);
    return is_released ? EXIT_CODE_OK : EXIT_CODE_BUSY;
}

int force_release(request *request) {
    int code;
    char why[WHY_SIZE];
    sightings holders = {0};
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status = dlock_inspect(client, request->words[0],
                                        request->connect_timeout_ms + request->io_timeout_ms,
                                        sightings_add, &holders, why, sizeof(why));
    sightings_sort(&holders, "name");
    code = (int)exit_code_of(status);
    if (status == DLOCK_OK)
        code = release_seen(request, client, &holders);
    else if (status == DLOCK_NOT_HELD)
        code = show_free(request);
    else
        complain_status(request, request->words[0], status, why);
    sightings_clear(&holders);
    dlock_client_free(client);
    return code;
}
