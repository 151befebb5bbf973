/* SPDX-License-Identifier: BSD-3-Clause */
/* deployment.c - see deployment.h. */
#include "deployment/deployment.h"

void deployment_init(deployment *deployment, const deployment_table *table,
                     const server_options *options) {
    deployment->table = table;
    deployment->protocol = &module_protocol;
    deployment->loop = options->loop;
    deployment->io_timeout_ms = options->io_timeout_ms;
    deployment->connect_timeout_ms = options->connect_timeout_ms;
    deployment->can_share = true;
    list_init(&deployment->withdrawals.all);
}

bool attempt_prepare(attempt *attempt, const deployment *deployment) {
    size_t size = deployment->table->run_size;
    attempt->prepared.protocol = deployment->protocol;
    if (attempt->prepared.run == NULL && size > 0) attempt->prepared.run = calloc(1, size);
    return attempt->prepared.run != NULL || size == 0;
}

void attempt_free(attempt *attempt) {
    text_drop(&attempt->cause);
    free(attempt->prepared.run);
    attempt->prepared.run = NULL;
}

void attempt_command(const attempt *attempt, lock_words words, command *command) {
    if (attempt->guarded.words != NULL) {
        guard_command(command, attempt->name, attempt->token, attempt->guarded.words);
        return;
    }
    words.name = attempt->name;
    words.token = attempt->token;
    words.lease_ms = attempt->lease_ms;
    words.mode = attempt->terms.mode;
    words.max_holders = attempt->terms.max_holders;
    words.is_repeated = attempt->is_in_doubt;
    words.fences = attempt->fences;
    attempt->prepared.protocol->write(command, &words);
}

void attempt_release_behind(const attempt *attempt, server *server) {
    command release = {0};
    if (attempt->operation != DLOCK_RELEASING) return;
    attempt_command(attempt, (lock_words){.operation = DLOCK_RELEASING}, &release);
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
