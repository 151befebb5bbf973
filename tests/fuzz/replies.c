/* SPDX-License-Identifier: BSD-3-Clause */
/* replies.c - replies to DLOCK commands (client/src/protocol): whatever the server sends, each
 * reader gives a status and a cause, and no more fields than the reply has. */
#include "fuzz.h"
#include "protocol/lock_commands.h"

static void check_verdict(const verdict *verdict) {
    MUST(memchr(verdict->cause, '\0', sizeof(verdict->cause)) != NULL);
    MUST((verdict->status == DLOCK_OK) <= (verdict->cause[0] == '\0'));
    MUST(verdict->status != DLOCK_OK || !verdict->is_transient);
}

/* The token lies within the bytes. */
static void check_token(const char *token, size_t length, const char *bytes, size_t size) {
    MUST(token >= bytes && length <= size && token + length <= bytes + size);
}

static void read_verdicts(const reply *root) {
    verdict verdict;
    read_acquire_reply(&verdict, root);
    check_verdict(&verdict);
    MUST((verdict.status == DLOCK_OK) == (verdict.fence > 0));
    redirect redirect;
    if (redirect_read(&redirect, verdict.cause))
        MUST(redirect.slot < SLOT_COUNT && redirect.port > 0 && redirect.port <= 65535);
    read_holder_reply(&verdict, root);
    check_verdict(&verdict);
    read_replicas_reply(&verdict, root, 1);
    check_verdict(&verdict);
    plain_protocol.read_acquire(&verdict, root);
    check_verdict(&verdict);
}

/* The text is cut to the room for it, and ended by a NUL. */
static void read_guarded(const reply *root) {
    verdict verdict;
    dlock_reply value;
    size_t room = root->length % 7 + 1;
    char *text = malloc(room);
    MUST(text != NULL);
    dlock_reply_init(&value, text, room);
    read_guard_reply(&verdict, &value, root);
    check_verdict(&verdict);
    MUST((verdict.status == DLOCK_OK) == (root->kind != REPLY_ERROR));
    if (verdict.status == DLOCK_OK) MUST(memchr(text, '\0', room) != NULL);
    free(text);
}

/* A lock without the module: a string and its TTL, here the first two elements. */
static void read_string(const reply *root, const char *bytes, size_t size) {
    const reply *value = reply_element(root, 0), *ttl = reply_element(root, 1);
    dlock_inspection inspection = {0};
    if (value == NULL || ttl == NULL) return;
    if (string_read(&inspection, value, ttl))
        check_token(inspection.token, inspection.token_length, bytes, size);
}

static void read_inspection(const reply *root, const char *bytes, size_t size) {
    const reply *holders = inspection_holders(root), *queue = waiters_queue(root), *next = NULL;
    while (holders != NULL && (next = reply_next(holders, next)) != NULL) {
        dlock_inspection inspection = {0};
        if (inspection_read(&inspection, root, next))
            check_token(inspection.token, inspection.token_length, bytes, size);
    }
    next = NULL;
    while (queue != NULL && (next = reply_next(queue, next)) != NULL) {
        dlock_waiting waiting = {0};
        if (waiting_read(&waiting, next))
            check_token(waiting.token, waiting.token_length, bytes, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    resp_reader reader = {0};
    const reply *root = NULL;
    size_t used;
    char *bytes = fuzz_copy(data, size);
    if (resp_read(&reader, bytes, size, &root, &used) == RESP_REPLY) {
        read_verdicts(root);
        read_guarded(root);
        read_string(root, bytes, size);
        read_inspection(root, bytes, size);
    }
    resp_reader_free(&reader);
    free(bytes);
    return 0;
}
