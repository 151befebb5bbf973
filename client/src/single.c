/* SPDX-License-Identifier: BSD-3-Clause */
/* single.c - see single.h. A request is built, sent, and its answer read: one function each. */
#include "single.h"

#include "answer.h"
#include "deadline.h"
#include "text.h"
#include <stdatomic.h>
#include <stdlib.h>

typedef struct single {
    backend base;
    server *at;
    const environment *env;
    atomic_uint_least64_t commands;
} single;

/* -- building */

static void add_word(command *to, const char *word) {
    to->words[to->count] = word;
    to->lengths[to->count++] = strlen(word);
}

static void add_number(command *to, char digits[TEXT_NUMBER_SIZE], uint32_t number) {
    text_put_number(digits, number);
    add_word(to, digits);
}

static command start_command(const char *name, const claim *of) {
    command made = {0};
    add_word(&made, name);
    add_word(&made, of->call.name);
    add_word(&made, of->call.token);
    return made;
}

/* -- asking */

static int64_t io_timeout_us(const single *self) {
    return (int64_t)server_limits_of(self->at)->io_timeout_ms * 1000;
}

static exchange question_of(const single *self, const command *request, int64_t limit_us) {
    return (exchange){.requests = request,
                      .request_count = 1,
                      .send_by_us = limit_us,
                      .answer_in_us = io_timeout_us(self),
                      .answer_by_us = limit_us};
}

/* DLOCK_OK: there is an answer, in question->replies[0]. */
static dlock_status ask(single *self, claim *of, exchange *question) {
    server_ask(self->at, question, self->env, &of->stop);
    if (question->is_sent) atomic_fetch_add(&self->commands, 1);
    text_copy(of->call.cause, sizeof(of->call.cause), question->cause);
    of->call.asked_us = question->sent_us;
    of->is_passing = question->status == DLOCK_UNREACHABLE || question->status == DLOCK_IN_DOUBT;
    return question->status;
}

static dlock_status read_refusal(claim *of, const reply *answer) {
    of->is_passing = false;
    if (answer->kind == REPLY_ERROR) {
        answer_meaning meaning = answer_status_of_error(answer->text);
        of->is_passing = meaning.is_passing;
        text_copy(of->call.cause, sizeof(of->call.cause), answer->text);
        return meaning.status;
    }
    text_copy(of->call.cause, sizeof(of->call.cause),
              "the server gave an answer that makes no sense");
    return DLOCK_PROTOCOL;
}

typedef struct acquire_request {
    const single *self;
    command words;
    int64_t deadline_us;
    uint32_t wait_ms;
    char lease[TEXT_NUMBER_SIZE], wait[TEXT_NUMBER_SIZE];
} acquire_request;

/* Connecting may have taken a while: the server is to wait for what is left by now. */
static void set_wait(exchange *question, int64_t now_us) {
    acquire_request *request = question->asker;
    int64_t left_us = deadline_left_us(request->deadline_us, now_us);
    int64_t left_ms = left_us / 1000 + (left_us % 1000 != 0);
    uint32_t wait_ms = left_ms < request->wait_ms ? (uint32_t)left_ms : request->wait_ms;
    if (wait_ms == 0) return;
    add_word(&request->words, "WAIT");
    add_number(&request->words, request->wait, wait_ms);
    question->answer_in_us = (int64_t)wait_ms * 1000 + io_timeout_us(request->self);
}

static dlock_status acquire(backend *base, claim *of, uint32_t wait_ms, int64_t limit_us) {
    single *self = (single *)base;
    acquire_request request = {
        .self = self, .deadline_us = of->call.deadline_us, .wait_ms = wait_ms};
    request.words = start_command("DLOCK.ACQUIRE", of);
    add_word(&request.words, "PX");
    add_number(&request.words, request.lease, of->call.lease_ms);
    exchange question = question_of(self, &request.words, limit_us);
    command farewell = start_command("DLOCK.RELEASE", of);
    question.farewell = of->is_token_chosen ? NULL : &farewell;
    question.farewell_from_us = of->call.deadline_us;
    question.prepare = set_wait;
    question.asker = &request;
    if (of->call.attempts > 1) question.send_by_us = of->call.deadline_us;
    dlock_status status = ask(self, of, &question);
    if (status != DLOCK_OK) {
        of->is_sent = of->is_sent || question.is_sent;
        return status;
    }
    const reply *answer = &question.replies[0];
    if (answer->kind == REPLY_NIL) {
        text_copy(of->call.cause, sizeof(of->call.cause), "another holds it");
        return DLOCK_BUSY;
    }
    if (answer->kind != REPLY_INTEGER || answer->integer <= 0) {
        if (answer->kind != REPLY_ERROR) of->is_sent = true; /* who knows what it has done */
        return read_refusal(of, answer);
    }
    of->call.fence = (uint64_t)answer->integer;
    of->call.cause[0] = '\0';
    return DLOCK_OK;
}

/* RELEASE and EXTEND: 1 is yes, 0 is no. */
static dlock_status ask_yes_or_no(single *self, claim *of, const command *request,
                                  int64_t limit_us) {
    exchange question = question_of(self, request, limit_us);
    question.is_urgent = true;
    dlock_status status = ask(self, of, &question);
    if (status != DLOCK_OK) return status;
    const reply *answer = &question.replies[0];
    if (answer->kind == REPLY_INTEGER && answer->integer == 1) return DLOCK_OK;
    if (answer->kind != REPLY_INTEGER || answer->integer != 0) return read_refusal(of, answer);
    text_copy(of->call.cause, sizeof(of->call.cause),
              "the server says that the token does not hold it");
    return DLOCK_LOST;
}

static dlock_status extend(backend *base, claim *of, int64_t limit_us) {
    char lease[TEXT_NUMBER_SIZE];
    command request = start_command("DLOCK.EXTEND", of);
    add_word(&request, "PX");
    add_number(&request, lease, of->call.lease_ms);
    return ask_yes_or_no((single *)base, of, &request, limit_us);
}

static dlock_status release(backend *base, claim *of, int64_t limit_us) {
    command request = start_command("DLOCK.RELEASE", of);
    return ask_yes_or_no((single *)base, of, &request, limit_us);
}

/* A release by a stranger changes nothing, and whoever may lock may ask for it. */
static dlock_status ping(backend *base, claim *of, int64_t limit_us) {
    dlock_status status = release(base, of, limit_us);
    return status == DLOCK_LOST ? DLOCK_OK : status;
}

static uint64_t command_count(const backend *base) {
    return atomic_load(&((single *)base)->commands);
}

static void free_single(backend *base) {
    single *old = (single *)base;
    server_free(old->at);
    free(old);
}

static const backend_table table = {acquire,       extend,      release,         ping,
                                    command_count, free_single, .can_wait = true};

backend *single_new(const url *at, const server_limits *limits, const environment *env) {
    single *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->base.table = &table;
    made->env = env;
    made->at = server_new(at, limits);
    if (made->at == NULL) {
        free(made);
        return NULL;
    }
    return &made->base;
}
