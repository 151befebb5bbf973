/* SPDX-License-Identifier: BSD-3-Clause */
/* guarded.c - a command that runs only while the lock is held (dlock_guarded() of dlock.h).
 *
 *   new       checks the words and copies them: a redirect sends them again
 *   start     one attempt of the deployment, which on_done ends
 *   settle    the status of the handle; a lock that the server does not know is lost
 *
 * The attempt is a new one: renewal uses the attempt of the handle meanwhile. Past the handlers:
 * the call neither takes nor ends a lock, and its words are data of the program. */
#include "api/guarded.h"

#include <stdlib.h>

/* A server ends the connection at larger requests, and all threads share the connection. */
enum { WORDS_MAX = 1000 * 1000, WORDS_BYTES_MAX = 16 * 1024 * 1024 };

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

/* -- the request */

static const char *check_reply(const dlock_reply *reply) {
    if (reply == NULL) return NULL;
    if (reply->struct_size < sizeof(*reply)) return "the struct_size of the reply is not set";
    if (reply->text == NULL && reply->text_size > 0) return "the reply has no room for its text";
    return NULL;
}

/* After the words were copied: the room may be that of a word. */
static void clear_reply(dlock_reply *reply) {
    if (reply == NULL || check_reply(reply) != NULL) return;
    reply->kind = DLOCK_REPLY_NULL;
    reply->integer = 0;
    reply->text_length = 0;
    if (reply->text_size > 0) reply->text[0] = '\0';
}

static dlock_status make(guarded **out, dlock_lock *lock, const guarded_words *given, size_t bytes,
                         dlock_reply *reply) {
    size_t words_size = given->count * (sizeof(char *) + sizeof(size_t)) + bytes;
    guarded *made = calloc(1, sizeof(*made) + words_size);
    if (made == NULL || !attempt_prepare(&made->attempt, lock->client->deployment)) {
        free(made);
        return lock_finish(lock, DLOCK_NO_MEMORY, "no memory");
    }
    copy_words(&made->words, given, made->memory);
    made->lock = lock;
    made->attempt.guarded = &made->words;
    made->attempt.reply = reply;
    made->attempt.name = lock->name;
    text_copy(made->token, sizeof(made->token), lock->token);
    made->attempt.token = made->token;
    *out = made;
    return DLOCK_OK;
}

static dlock_status check_and_make(guarded **out, dlock_lock *lock, const guarded_words *given,
                                   dlock_reply *reply) {
    size_t bytes;
    const deployment *deployment = lock->client->deployment;
    const char *wrong = check_words(given, &bytes);
    if (wrong == NULL) wrong = check_reply(reply);
    if (wrong != NULL) return lock_finish(lock, DLOCK_INVALID, wrong);
    if (!deployment->protocol->has_module)
        return lock_finish(lock, DLOCK_INVALID, "only the dlock module has guarded commands");
    if (deployment->table->guarded_error != NULL)
        return lock_finish(lock, DLOCK_INVALID, deployment->table->guarded_error);
    if (lock->depth == 0) return lock_finish(lock, DLOCK_NOT_HELD, "the lock is not held");
    if (lock_is_gone(lock)) return lock_finish(lock, DLOCK_LOST, "the lease has ended meanwhile");
    return make(out, lock, given, bytes, reply);
}

dlock_status guarded_new(guarded **out, dlock_lock *lock, const guarded_words *given,
                         dlock_reply *reply) {
    dlock_status status;
    if (lock_is_under_way(lock, &status)) return status; /* maybe with the same reply */
    status = check_and_make(out, lock, given, reply);
    clear_reply(reply);
    return status;
}

static void on_done(attempt *attempt) {
    guarded *guarded = attempt->arg;
    guarded->is_done = true;
    loop_ready(guarded->lock->client->loop, guarded->waiter);
}

void guarded_start(guarded *guarded, waiter *waiter) {
    dlock_client *client = guarded->lock->client;
    int64_t limit_ms = deployment_short_ms(client->deployment);
    guarded->attempt.limit_us = deadline_after_ms(loop_now_us(client->loop), limit_ms);
    guarded->attempt.on_done = on_done;
    guarded->attempt.arg = guarded;
    guarded->waiter = waiter;
    deployment_start(client->deployment, &guarded->attempt);
}

dlock_status guarded_settle(guarded *guarded) {
    dlock_lock *lock = guarded->lock;
    dlock_status status = guarded->attempt.status;
    if (status == DLOCK_LOST) {
        loop_lock(lock->client->loop);
        lock_lose(lock);
        loop_unlock(lock->client->loop);
    }
    lock_finish(lock, status, guarded->attempt.cause);
    attempt_free(&guarded->attempt);
    free(guarded);
    return status;
}

/* -- the call */

dlock_status dlock_guarded(dlock_lock *lock, size_t argc, const char *const *argv,
                           const size_t *argvlen, dlock_reply *reply) {
    guarded *guarded;
    guarded_words words = {.count = argc, .words = argv, .lengths = argvlen};
    if (lock == NULL) return DLOCK_INVALID;
    dlock_status status = guarded_new(&guarded, lock, &words, reply);
    if (status != DLOCK_OK) return status;
    loop *loop = lock->client->loop;
    waiter waiter = {0};
    loop_lock(loop);
    guarded_start(guarded, &waiter);
    while (!guarded->is_done)
        loop_wait(loop, &waiter);
    loop_unlock(loop);
    return guarded_settle(guarded);
}
