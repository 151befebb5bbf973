/* SPDX-License-Identifier: BSD-3-Clause */
/* inspect.c - the functions without a handle: about a lock that any process holds, about all locks,
 * about the servers.
 *
 *   by token   one attempt of the deployment, past the handlers: no claim of this program
 *   reading    list the servers of the deployment, then query all of them at once (server_query.h)
 *
 * With Redlock a majority of the servers is enough, and why names the others; else the first
 * failure is the result. */
#include "api/client.h"
#include "api/server_query.h"

static dlock_status explain_question(dlock_status status, const char *cause, char *why,
                                     size_t why_size) {
    bool is_wanted = why != NULL && why_size > 0;
    if (is_wanted) text_copy(why, why_size, status == DLOCK_OK ? "" : cause);
    return status;
}

/* Why a call was not made at all is the text of dlock_error(), too. */
static dlock_status refuse_question(const char *cause, char *why, size_t why_size) {
    explain_question(DLOCK_INVALID, cause, why, why_size);
    return error_set(DLOCK_INVALID, cause);
}

enum { WAITERS_MAX = 10000 };

/* The facts that only the module can tell. */
#define NO_LIST "without the dlock module nobody can tell locks from other strings"
#define NO_INFO "without the dlock module no server has statistics of locks"

static bool is_plain(const dlock_client *client) {
    return !client->deployment->protocol->has_module;
}

/* -- by token */

/* The attempt has operation, lease and token; the caller frees it. */
static dlock_status change_by_token(dlock_client *client, const char *name, attempt *attempt,
                                    int64_t timeout_ms) {
    call call = {.loop = client->loop}; /* in no chain: somebody to wait */
    char *full = client_full_name(client, name);
    attempt->name = full;
    attempt->limit_us = deadline_after_ms(loop_now_us(client->loop), timeout_ms);
    attempt->on_done = call_finish_step;
    attempt->arg = &call;
    attempt_set_result(attempt, DLOCK_NO_MEMORY, false, "no memory");
    if (full != NULL && attempt_prepare(attempt, client->deployment)) {
        loop_lock(client->loop);
        deployment_start(client->deployment, attempt);
        loop_wait(client->loop, &call.waiter);
        loop_unlock(client->loop);
    }
    free(full);
    return attempt->status == DLOCK_LOST ? DLOCK_NOT_HELD : attempt->status;
}

static dlock_status check_and_change(dlock_client *client, const char *name, const char *token,
                                     attempt *attempt, char *why, size_t why_size) {
    if (client == NULL || name == NULL || name[0] == '\0' || token == NULL)
        return refuse_question("no client, name or token", why, why_size);
    if (token[0] == '\0' || strlen(token) > TOKEN_MAX)
        return refuse_question("the token is not 1 to 256 bytes long", why, why_size);
    char copy[DLOCK_TOKEN_SIZE];
    text_copy(copy, sizeof(copy), token);
    attempt->token = copy;
    int64_t timeout_ms = deployment_short_ms(client->deployment);
    dlock_status status = change_by_token(client, name, attempt, timeout_ms);
    explain_question(status, attempt->cause, why, why_size);
    attempt_free(attempt);
    return status;
}

dlock_status dlock_release_token(dlock_client *client, const char *name, const char *token,
                                 char *why, size_t why_size) {
    attempt attempt = {.operation = DLOCK_RELEASING};
    return check_and_change(client, name, token, &attempt, why, why_size);
}

dlock_status dlock_extend_token(dlock_client *client, const char *name, const char *token,
                                uint32_t lease_ms, char *why, size_t why_size) {
    attempt attempt = {.operation = DLOCK_EXTENDING, .lease_ms = lease_ms};
    if (lease_ms == 0) return refuse_question("lease_ms is 0", why, why_size);
    return check_and_change(client, name, token, &attempt, why, why_size);
}

/* A RELEASE by a token that holds nothing changes nothing, and is permitted to every user who may
 * lock; with the prefix, where the user may lock at all. */
dlock_status dlock_client_ping(dlock_client *client, int64_t timeout_ms) {
    char token[DLOCK_TOKEN_SIZE];
    attempt attempt = {.operation = DLOCK_RELEASING, .token = token};
    if (client == NULL || timeout_ms < 0)
        return error_set(DLOCK_INVALID, client == NULL ? NO_CLIENT : "timeout_ms is negative");
    if (!token_source_take(&client->tokens, NULL, token))
        return error_set(DLOCK_NO_MEMORY, "no random bytes for a token");
    dlock_status status = change_by_token(client, "dlock:ping", &attempt, timeout_ms);
    attempt_free(&attempt);
    if (status == DLOCK_NOT_HELD) return DLOCK_OK;
    return status == DLOCK_IN_DOUBT ? DLOCK_UNREACHABLE : status;
}

/* -- the servers */

static dlock_status query_servers(dlock_client *client, query *query, const query_kind *kind,
                                  int64_t timeout_ms) {
    server_list list = {0};
    deployment *deployment = query->deployment = client->deployment;
    if (timeout_ms < 0)
        return refuse_question("timeout_ms is negative", query->why, query->why_size);
    if (deployment->table->list_servers == NULL)
        return refuse_question("the store has no servers to look at", query->why, query->why_size);
    explain_question(DLOCK_OK, "", query->why, query->why_size);
    query->is_majority_enough = client->has_quorum;
    query->limit_us = deadline_after_ms(loop_now_us(client->loop), timeout_ms);
    query->prefix_length = strlen(client->prefix);
    loop_lock(client->loop);
    deployment->table->list_servers(deployment, query->limit_us, &list);
    loop_unlock(client->loop);
    dlock_status status = list.status;
    if (status == DLOCK_OK)
        status = query_all(query, kind, &list);
    else
        text_copy(query->cause, sizeof(query->cause), list.cause);
    loop_lock(client->loop);
    for (size_t i = 0; i < list.count; i++)
        server_free(list.servers[i]);
    loop_unlock(client->loop);
    if (status == DLOCK_OK) return status;
    return explain_question(status, query->cause, query->why, query->why_size);
}

/* -- reading */

/* The query has the functions and their argument. */
static dlock_status query_name(dlock_client *client, const char *name, query *query,
                               const query_kind *kind, int64_t timeout_ms) {
    char *why = query->why;
    size_t why_size = query->why_size;
    bool has_function = query->tell != NULL || query->tell_waiting != NULL;
    if (client == NULL || name == NULL || name[0] == '\0' || !has_function)
        return refuse_question("no client, name or function", why, why_size);
    if (is_plain(client) && kind == &query_waiters)
        return explain_question(DLOCK_OK, "", why, why_size);
    if (is_plain(client)) kind = &query_string;
    char *full = client_full_name(client, name);
    if (full == NULL) return explain_question(DLOCK_NO_MEMORY, "no memory", why, why_size);
    query->name = full;
    dlock_status status = query_servers(client, query, kind, timeout_ms);
    free(full);
    return status;
}

dlock_status dlock_inspect(dlock_client *client, const char *name, int64_t timeout_ms,
                           dlock_list_fn tell, void *arg, char *why, size_t why_size) {
    query query = {.tell = tell, .arg = arg, .why = why, .why_size = why_size};
    dlock_status status = query_name(client, name, &query, &query_lock, timeout_ms);
    return status == DLOCK_OK && !query.is_found ? DLOCK_NOT_HELD : status;
}

dlock_status dlock_list_waiters(dlock_client *client, const char *name, uint32_t max,
                                int64_t timeout_ms, dlock_waiting_fn tell, void *arg, char *why,
                                size_t why_size) {
    query query = {
        .waiters_max = max, .tell_waiting = tell, .arg = arg, .why = why, .why_size = why_size};
    if (max == 0 || max > WAITERS_MAX)
        return refuse_question("max is not 1 to 10000", why, why_size);
    return query_name(client, name, &query, &query_waiters, timeout_ms);
}

/* A backslash takes the special meaning from a character of the prefix. */
static char *make_pattern(const char *prefix, const char *pattern) {
    size_t pattern_size = strlen(pattern) + 1;
    char *made = malloc(2 * strlen(prefix) + pattern_size), *end = made;
    if (made == NULL) return NULL;
    for (const char *c = prefix; *c != '\0'; c++) {
        if (strchr("*?[]^\\-", *c) != NULL) *end++ = '\\';
        *end++ = *c;
    }
    memcpy(end, pattern, pattern_size);
    return made;
}

dlock_status dlock_list(dlock_client *client, const char *pattern, int64_t timeout_ms,
                        dlock_list_fn tell, void *arg, char *why, size_t why_size) {
    if (client == NULL || tell == NULL)
        return refuse_question("no client or function", why, why_size);
    if (is_plain(client)) return refuse_question(NO_LIST, why, why_size);
    char *full = make_pattern(client->prefix, pattern == NULL ? "*" : pattern);
    if (full == NULL) return explain_question(DLOCK_NO_MEMORY, "no memory", why, why_size);
    query query = {.pattern = full, .tell = tell, .arg = arg, .why = why, .why_size = why_size};
    dlock_status status = query_servers(client, &query, &query_locks, timeout_ms);
    free(full);
    return status;
}

dlock_status dlock_server_info(dlock_client *client, int64_t timeout_ms, dlock_info_fn tell,
                               void *arg, char *why, size_t why_size) {
    if (client == NULL || tell == NULL)
        return refuse_question("no client or function", why, why_size);
    if (is_plain(client)) return refuse_question(NO_INFO, why, why_size);
    query query = {.tell_field = tell, .arg = arg, .why = why, .why_size = why_size};
    return query_servers(client, &query, &query_info, timeout_ms);
}
