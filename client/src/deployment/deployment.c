/* SPDX-License-Identifier: BSD-3-Clause */
/* deployment.c - see deployment.h: what all deployments share.
 *
 *   commands   an attempt becomes commands: its name or names, token and terms, and the words of
 *              the operation
 *   send       on the command connection of a server, or on the connection that the caller names
 *   result     the status and the cause of an attempt */
#include "deployment/deployment.h"

#define ASKING "ASKING"

void deployment_init(deployment *deployment, const deployment_table *table,
                     const server_options *options) {
    deployment->table = table;
    deployment->protocol = &module_protocol;
    deployment->loop = options->loop;
    deployment->io_timeout_ms = options->io_timeout_ms;
    deployment->connect_timeout_ms = options->connect_timeout_ms;
    deployment->can_share = true;
    list_init(&deployment->withdrawals.all);
    list_init(&deployment->withdrawals.failed);
}

bool attempt_prepare(attempt *attempt, const deployment *deployment) {
    const deployment_table *table = deployment->table;
    size_t size = table->size_run != NULL ? table->size_run(attempt) : table->run_size;
    attempt->prepared.protocol = deployment->protocol;
    if (attempt->prepared.run == NULL && size > 0) attempt->prepared.run = calloc(1, size);
    return attempt->prepared.run != NULL || size == 0;
}

void attempt_free(attempt *attempt) {
    text_drop(&attempt->cause);
    free(attempt->prepared.run);
    attempt->prepared.run = NULL;
}

static void write_command(const attempt *attempt, lock_words words, const char *name,
                          uint32_t name_count, command *command) {
    words.name = name;
    words.name_count = name_count;
    words.token = attempt->token;
    words.lease_ms = attempt->lease_ms;
    words.mode = attempt->terms.mode;
    words.max_holders = attempt->terms.max_holders;
    words.is_repeated = attempt->fate != TOKEN_UNHELD;
    words.fences = attempt->fences;
    attempt->prepared.protocol->write(command, &words);
}

static bool send_commands(server *server, connection *conn, const command commands[], int count,
                          request *request) {
    if (conn != NULL) return connection_send(conn, commands, count, request);
    return server_send(server, commands, count, request);
}

static bool send_extensions(const attempt *attempt, const lock_words *words, bool is_asking,
                            server *server, connection *conn, request *request) {
    const char *name = attempt->name;
    command *commands = calloc(2 * (size_t)attempt->name_count, sizeof(*commands));
    int count = 0;
    if (commands == NULL) return false;
    for (uint8_t i = 0; i < attempt->name_count; i++, name = text_behind(name)) {
        if (is_asking) command_add(&commands[count++], ASKING);
        write_command(attempt, *words, name, 1, &commands[count++]);
    }
    bool is_sent = send_commands(server, conn, commands, count, request);
    free(commands);
    return is_sent;
}

bool attempt_send(const attempt *attempt, const lock_words *words, bool is_asking, server *server,
                  connection *conn, request *request) {
    command commands[2] = {{0}};
    int count = 0;
    if (words->operation == DLOCK_EXTENDING && attempt_has_several(attempt))
        return send_extensions(attempt, words, is_asking, server, conn, request);
    if (is_asking) command_add(&commands[count++], ASKING);
    if (attempt->guarded != NULL)
        guard_command(&commands[count++], attempt->name, attempt->token, attempt->guarded->words);
    else
        write_command(attempt, *words, attempt->name, attempt->name_count, &commands[count++]);
    return send_commands(server, conn, commands, count, request);
}

void attempt_release_each(const attempt *attempt, const reply *reply, bool is_asking,
                          server *server) {
    const char *name = attempt->name;
    command commands[2] = {{0}}, *release = &commands[is_asking];
    if (is_asking) command_add(&commands[0], ASKING);
    if (!attempt_has_several(attempt) || !reply_is_no_lock(reply)) return;
    for (uint8_t i = 0; i < attempt->name_count; i++, name = text_behind(name)) {
        *release = (command){0};
        write_command(attempt, (lock_words){.operation = DLOCK_RELEASING}, name, 1, release);
        server_send(server, commands, 1 + is_asking, NULL);
    }
}

void attempt_release_behind(const attempt *attempt, bool is_asking, server *server) {
    command asking = {0}, release = {0};
    if (attempt->operation != DLOCK_RELEASING) return;
    write_command(attempt, (lock_words){.operation = DLOCK_RELEASING}, attempt->name,
                  attempt->name_count, &release);
    command_add(&asking, ASKING);
    if (is_asking) server_send_behind(server, &asking);
    server_send_behind(server, &release);
}

void attempt_set_result(attempt *attempt, dlock_status status, bool is_transient,
                        const char *cause) {
    attempt->status = status;
    attempt->is_transient = is_transient;
    text_keep(&attempt->cause, DLOCK_CAUSE_SIZE, cause);
}

void cause_write(char cause[CAUSE_SIZE], const server *server, const char *text) {
    text_copy(cause, CAUSE_SIZE / 2, server->name);
    text_append(cause, CAUSE_SIZE, ": ");
    text_append(cause, CAUSE_SIZE, text);
}
