/* SPDX-License-Identifier: BSD-3-Clause */
/* inspect.c - what can be asked and done without a handle: of a lock that another process holds, of
 * all locks, of the servers. It goes past the handlers: it is no claim of this program. */
#include "client.h"
#include "deadline.h"
#include "look.h"
#include "text.h"
#include <stdlib.h>

static dlock_status explain(dlock_status status, const char *cause, char *why, size_t why_size) {
    bool is_wanted = why != NULL && why_size > 0;
    if (is_wanted) text_copy(why, why_size, status == DLOCK_OK ? "" : cause);
    return status;
}

/* False: no memory or descriptor. What is taken must be given back. */
static bool open_claim(claim *made, dlock_client *client, const char *name) {
    *made = (claim){.call = {.struct_size = sizeof(dlock_call)}};
    made->stop.fd = interrupt_stock_take(client->wakers);
    made->call.name = client_full_name(client, name);
    return made->stop.fd >= 0 && made->call.name != NULL;
}

static void close_claim(claim *old, dlock_client *client) {
    interrupt_stock_give(client->wakers, old->stop.fd);
    free((char *)old->call.name);
}

/* -- by token */

static dlock_status tell_server(dlock_client *client, const char *name, const char *token,
                                dlock_operation operation, uint32_t lease_ms, char *why,
                                size_t why_size) {
    claim of;
    if (client == NULL || name == NULL || name[0] == '\0' || token == NULL)
        return explain(DLOCK_INVALID, "no client, name or token", why, why_size);
    if (token[0] == '\0' || strlen(token) > TOKEN_MAX)
        return explain(DLOCK_INVALID, "the token is not 1 to 256 bytes long", why, why_size);
    dlock_status status = DLOCK_NO_MEMORY;
    if (open_claim(&of, client, name)) {
        of.call.operation = operation;
        of.call.lease_ms = lease_ms;
        text_copy(of.call.token, sizeof(of.call.token), token);
        backend *asked = service_backend(client->remote);
        int64_t limit_us =
            deadline_after_ms(client->env->now_us(client->env),
                              client->limits.connect_timeout_ms + client->limits.io_timeout_ms);
        status = operation == DLOCK_EXTENDING ? asked->table->extend(asked, &of, limit_us)
                                              : asked->table->release(asked, &of, limit_us);
    }
    if (status == DLOCK_LOST) status = DLOCK_NOT_HELD;
    explain(status, of.call.cause, why, why_size);
    close_claim(&of, client);
    return status;
}

dlock_status dlock_release_token(dlock_client *client, const char *name, const char *token,
                                 char *why, size_t why_size) {
    return tell_server(client, name, token, DLOCK_RELEASING, 0, why, why_size);
}

dlock_status dlock_extend_token(dlock_client *client, const char *name, const char *token,
                                uint32_t lease_ms, char *why, size_t why_size) {
    if (lease_ms == 0) return explain(DLOCK_INVALID, "lease_ms is 0", why, why_size);
    return tell_server(client, name, token, DLOCK_EXTENDING, lease_ms, why, why_size);
}

/* -- looking */

static dlock_status look_around(dlock_client *client, look *at, const char *name,
                                backend_visit visit, int64_t timeout_ms, char *why,
                                size_t why_size) {
    claim of;
    backend *asked = service_backend(client->remote);
    if (asked->table->visit_servers == NULL)
        return explain(DLOCK_INVALID, "there is no server to look at", why, why_size);
    dlock_status status = DLOCK_NO_MEMORY;
    if (open_claim(&of, client, name)) {
        at->env = client->env;
        at->of = &of;
        at->limit_us = deadline_after_ms(client->env->now_us(client->env), timeout_ms);
        at->name = of.call.name;
        at->prefix_length = strlen(client->prefix);
        status = asked->table->visit_servers(asked, &of, at->limit_us, visit, at);
    }
    explain(status, of.call.cause, why, why_size);
    close_claim(&of, client);
    return status;
}

dlock_status dlock_inspect(dlock_client *client, const char *name, int64_t timeout_ms,
                           dlock_list_fn tell, void *arg, char *why, size_t why_size) {
    if (client == NULL || name == NULL || name[0] == '\0' || tell == NULL || timeout_ms < 0)
        return explain(DLOCK_INVALID, "no client, name or function", why, why_size);
    look at = {.tell = tell, .arg = arg};
    dlock_status status = look_around(client, &at, name, look_at_name, timeout_ms, why, why_size);
    if (status != DLOCK_OK || at.is_found) return status;
    return explain(DLOCK_NOT_HELD, "it is free", why, why_size);
}

/* What is special in a pattern has a backslash before it. */
static char *make_pattern(const char *prefix, const char *pattern) {
    char *made = malloc(2 * strlen(prefix) + strlen(pattern) + 1), *to = made;
    if (made == NULL) return NULL;
    for (const char *c = prefix; *c != '\0'; c++) {
        if (strchr("*?[]^\\-", *c) != NULL) *to++ = '\\';
        *to++ = *c;
    }
    memcpy(to, pattern, strlen(pattern) + 1);
    return made;
}

dlock_status dlock_list(dlock_client *client, const char *pattern, int64_t timeout_ms,
                        dlock_list_fn tell, void *arg, char *why, size_t why_size) {
    if (client == NULL || tell == NULL || timeout_ms < 0)
        return explain(DLOCK_INVALID, "no client or function", why, why_size);
    char *full = make_pattern(client->prefix, pattern == NULL ? "*" : pattern);
    if (full == NULL) return explain(DLOCK_NO_MEMORY, "no memory", why, why_size);
    look at = {.pattern = full, .tell = tell, .arg = arg};
    dlock_status status = look_around(client, &at, "", look_at_all, timeout_ms, why, why_size);
    free(full);
    return status;
}

dlock_status dlock_server_info(dlock_client *client, int64_t timeout_ms, dlock_info_fn tell,
                               void *arg, char *why, size_t why_size) {
    if (client == NULL || tell == NULL || timeout_ms < 0)
        return explain(DLOCK_INVALID, "no client or function", why, why_size);
    look at = {.tell_field = tell, .arg = arg};
    return look_around(client, &at, "", look_at_info, timeout_ms, why, why_size);
}
