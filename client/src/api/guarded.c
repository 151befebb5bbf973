/* SPDX-License-Identifier: BSD-3-Clause */
/* guarded.c - a command that runs only while the lock is held (dlock_guarded() of dlock.h).
 *
 *   begin     checks the words and copies them: a redirect sends them again
 *   enter     one attempt of the deployment
 *   settle    the status of the handle; a lock that the server does not know is lost
 *
 * The attempt is a new one: renewal uses the attempt of the handle meanwhile. The call has a chain
 * of its own, without the other handlers: the call neither takes nor ends a lock, and its words are
 * data of the program. */
#include "api/lock.h"

#include <stdlib.h>

/* A server ends the connection at larger requests, and all threads share the connection. */
enum { WORDS_MAX = 1000 * 1000, WORDS_BYTES_MAX = 16 * 1024 * 1024 };

struct guarded {
    attempt attempt;
    dlock_reply value;  /* as this version knows it */
    dlock_reply *reply; /* of the program, maybe of another size; NULL: not wanted */
    char token[DLOCK_TOKEN_SIZE];
    guarded_words words; /* in the memory below */
    attempt_guarded command;
    const char *memory[];
};

/* -- words */

static size_t word_length(const guarded_words *given, size_t i) {
    return given->lengths != NULL ? given->lengths[i] : strlen(given->words[i]);
}

/* NULL, or why the words cannot be sent. */
static const char *check_words(const guarded_words *given, size_t *bytes) {
    if (given->count == 0 || given->words == NULL) return "no command is given";
    if (given->count > WORDS_MAX) return "the command has more than 1000000 words";
    *bytes = 0;
    for (size_t i = 0; i < given->count; i++) {
        if (given->words[i] == NULL) return "a word of the command is NULL";
        size_t length = word_length(given, i);
        if (length > WORDS_BYTES_MAX - *bytes) return "the command is longer than 16 MB";
        *bytes += length;
    }
    return word_length(given, 0) == 0 ? "the name of the command is empty" : NULL;
}

/* memory: for pointers, lengths and bytes, in this order. */
static void copy_words(guarded_words *copy, const guarded_words *given, void *memory) {
    const char **words = memory;
    size_t *lengths = (size_t *)(words + given->count);
    char *bytes = (char *)(lengths + given->count);
    for (size_t i = 0; i < given->count; i++) {
        lengths[i] = word_length(given, i);
        words[i] = memcpy(bytes, given->words[i], lengths[i]);
        bytes += lengths[i];
    }
    *copy = (guarded_words){.count = given->count, .words = words, .lengths = lengths};
}

/* -- begin */

static const char *check_reply(const dlock_reply *reply) {
    if (reply == NULL) return NULL;
    if (reply->struct_size < offsetof(dlock_reply, kind))
        return "the struct_size of the reply is not set";
    if (reply->text == NULL && reply->text_size > 0) return "the reply has no room for its text";
    return NULL;
}

static void write_reply(dlock_reply *reply, const dlock_reply *value) {
    size_t size = reply->struct_size < sizeof(*value) ? reply->struct_size : sizeof(*value);
    size_t input_size = offsetof(dlock_reply, kind);
    memcpy((char *)reply + input_size, (const char *)value + input_size, size - input_size);
}

/* After the words were copied: the room may be that of a word. */
static void clear_reply(dlock_reply *reply) {
    if (reply == NULL || check_reply(reply) != NULL) return;
    write_reply(reply, &(dlock_reply){.kind = DLOCK_REPLY_NULL});
    if (reply->text_size > 0) reply->text[0] = '\0';
}

/* False: no memory. */
static bool make_guarded(dlock_lock *lock, const call_plan *plan, size_t bytes) {
    size_t words_size = plan->words->count * (sizeof(char *) + sizeof(size_t)) + bytes;
    struct guarded *made = calloc(1, sizeof(*made) + words_size);
    if (made == NULL || !attempt_prepare(&made->attempt, lock->client->deployment)) {
        free(made);
        return false;
    }
    copy_words(&made->words, plan->words, made->memory);
    made->command.words = &made->words;
    made->attempt.guarded = &made->command;
    made->reply = plan->reply;
    if (made->reply != NULL) {
        dlock_reply_init(&made->value, made->reply->text, made->reply->text_size);
        made->command.reply = &made->value;
    }
    made->attempt.name = lock->call.attempt.name;
    text_copy(made->token, sizeof(made->token), lock->call.attempt.token);
    made->attempt.token = made->token;
    lock->guarded = made;
    return true;
}

static bool check_and_make(dlock_lock *lock, call_plan *plan) {
    size_t bytes;
    const deployment *deployment = lock->client->deployment;
    const char *wrong = check_words(plan->words, &bytes);
    if (wrong == NULL) wrong = check_reply(plan->reply);
    if (wrong == NULL && !deployment->protocol->has_module)
        wrong = "only the dlock module has guarded commands";
    if (wrong == NULL) wrong = deployment->table->guarded_error;
    if (wrong != NULL) return lock_answer(lock, plan, DLOCK_INVALID, wrong);
    if (lock->depth == 0) return lock_answer(lock, plan, DLOCK_NOT_HELD, "the lock is not held");
    if (lock_is_lost(lock))
        return lock_answer(lock, plan, DLOCK_LOST, "the lease has ended meanwhile");
    return make_guarded(lock, plan, bytes) || lock_answer(lock, plan, DLOCK_NO_MEMORY, "no memory");
}

bool guarded_begin(dlock_lock *lock, call_plan *plan) {
    bool is_begun = check_and_make(lock, plan);
    clear_reply(plan->reply);
    if (!is_begun) return false;
    atomic_store(&lock->call.stop, CALL_GOES_ON);
    chain_begin(&lock->call);
    return true;
}

/* -- the handler. Locked, all but enter_guarded() */

static void start_guarded(deployment *deployment, attempt *attempt, call *call) {
    int64_t limit_ms = deployment_short_ms(deployment);
    attempt->limit_us = deadline_after_ms(loop_now_us(call->loop), limit_ms);
    attempt->on_done = call_finish_step;
    attempt->arg = call;
    call->waiting.phase = WAITING_ATTEMPT;
    deployment_start(deployment, attempt);
}

static dlock_step enter_guarded(void *arg, dlock_call *pub) {
    call *call = call_of(pub);
    attempt *attempt = &container_of(call, dlock_lock, call)->guarded->attempt;
    loop_lock(call->loop);
    if (call->waiting.phase == WAITING_IDLE) start_guarded(arg, attempt, call);
    bool is_done = call->waiting.is_step_done;
    if (!is_done && call_is_canceled(call)) { /* the handle is freed */
        deployment_abandon(arg, attempt);     /* in doubt if sent: may still run */
        is_done = true;
    }
    loop_unlock(call->loop);
    return is_done ? DLOCK_ANSWER : DLOCK_SUSPEND;
}

dlock_handler guarded_handler(deployment *deployment) {
    return (dlock_handler){.name = "guarded", .arg = deployment, .enter = enter_guarded};
}

/* -- settle */

dlock_status guarded_settle(dlock_lock *lock) {
    struct guarded *guarded = lock->guarded;
    dlock_status status = guarded->attempt.status;
    lock->guarded = NULL;
    if (status == DLOCK_LOST) {
        loop_lock(lock->client->loop);
        lease_lose(&lock->call.lease, DLOCK_LOST);
        loop_unlock(lock->client->loop);
    }
    if (status == DLOCK_IN_DOUBT) lock->call.has_late_command = true;
    if (guarded->reply != NULL) write_reply(guarded->reply, &guarded->value);
    lock_finish(lock, status, guarded->attempt.cause);
    attempt_free(&guarded->attempt);
    free(guarded);
    return status;
}
