/* SPDX-License-Identifier: BSD-3-Clause */
/* question.c - see question.h.
 *
 *   acquire   DLOCK.ACQUIRE, maybe with a DLOCK.RELEASE before it, and if replicas must know:
 *             WAIT, which counts a grant by somebody else's release too, as it looks at what was
 *             replicated before we were answered
 *   extend    DLOCK.EXTEND, and if replicas must know: WAIT
 *   release   DLOCK.RELEASE */
#include "question.h"

#include "answer.h"
#include "deadline.h"

/* -- building */

static void add_word(command *to, const char *word) {
    to->words[to->count] = word;
    to->lengths[to->count++] = strlen(word);
}

static void add_number(command *to, char digits[TEXT_NUMBER_SIZE], uint64_t number) {
    text_put_number(digits, number);
    add_word(to, digits);
}

static command lock_command(const char *name, const claim *of) {
    command made = {0};
    add_word(&made, name);
    add_word(&made, of->call.name);
    add_word(&made, of->call.token);
    return made;
}

static void add_command(question *to, command added) {
    to->commands[to->part_count++] = added;
    to->x.request_count = to->part_count;
}

command question_extend_command(const claim *of, char lease[TEXT_NUMBER_SIZE]) {
    command made = lock_command("DLOCK.EXTEND", of);
    add_word(&made, "PX");
    add_number(&made, lease, of->call.lease_ms);
    return made;
}

command question_replicas(char count[TEXT_NUMBER_SIZE], uint32_t needed,
                          char timeout[TEXT_NUMBER_SIZE], uint32_t timeout_ms) {
    command made = {0};
    add_word(&made, "WAIT");
    add_number(&made, count, needed);
    add_number(&made, timeout, timeout_ms > 0 ? timeout_ms : 1); /* 0 would be for ever */
    return made;
}

static void add_replicas(question *to) {
    const claim *of = to->of;
    add_command(to, question_replicas(to->replicas, of->min_replicas, to->replica_timeout,
                                      of->replica_timeout_ms));
    to->x.answer_in_us += (int64_t)of->replica_timeout_ms * 1000;
    to->x.answer_by_us = deadline_after_ms(to->x.answer_by_us, of->replica_timeout_ms);
}

static void note_answer(exchange *x, int which, const reply *answer) {
    question *asked = x->asker;
    if (!asked->is_asking)
        asked->answers[which] = *answer;
    else if (which % 2 == 1)
        asked->answers[which / 2] = *answer;
}

static void begin(question *made, const claim *of, uint32_t io_timeout_ms, int64_t limit_us) {
    made->of = of;
    made->main = 0;
    made->part_count = 0;
    made->is_asking = false;
    made->io_timeout_us = (int64_t)io_timeout_ms * 1000;
    made->x = (exchange){.requests = made->commands,
                         .send_by_us = limit_us,
                         .answer_in_us = made->io_timeout_us,
                         .answer_by_us = limit_us,
                         .on_reply = note_answer,
                         .asker = made,
                         .link = of->link};
    text_put_number(made->lease, of->call.lease_ms);
}

/* Connecting may have taken a while: the server is to wait for what is left by now. */
static void set_wait(exchange *x, int64_t now_us) {
    question *asked = x->asker;
    command *acquire = &asked->commands[asked->is_asking ? 2 * asked->main + 1 : asked->main];
    int64_t left_us = deadline_left_us(asked->of->call.deadline_us, now_us);
    int64_t left_ms = left_us / 1000 + (left_us % 1000 != 0);
    uint32_t wait_ms = left_ms < asked->wait_ms ? (uint32_t)left_ms : asked->wait_ms;
    if (wait_ms == 0) return;
    add_word(acquire, "WAIT");
    add_number(acquire, asked->wait, wait_ms);
    x->answer_in_us += (int64_t)wait_ms * 1000;
}

void question_acquire(question *made, const claim *of, uint32_t wait_ms, uint32_t io_timeout_ms,
                      int64_t limit_us) {
    begin(made, of, io_timeout_ms, limit_us);
    command acquire = lock_command("DLOCK.ACQUIRE", of);
    add_word(&acquire, "PX");
    add_word(&acquire, made->lease);
    if (of->link != NULL) add_word(&acquire, "SESSION");
    add_command(made, acquire);
    made->wait_ms = wait_ms;
    made->x.prepare = set_wait;
    made->x.is_link_made = of->link != NULL;
    if (of->min_replicas > 0) add_replicas(made);
    made->farewell = lock_command("DLOCK.RELEASE", of);
    made->x.farewell = of->is_token_chosen ? NULL : &made->farewell;
    made->x.farewell_from_us = of->call.deadline_us;
    if (of->call.attempts > 1) made->x.send_by_us = of->call.deadline_us;
}

void question_want_fence(question *made, uint64_t fence) {
    command *acquire = &made->commands[made->main];
    add_word(acquire, "FENCE");
    add_number(acquire, made->fence, fence);
}

void question_give_back_first(question *made, const char *token) {
    command release = made->farewell;
    release.words[2] = token;
    release.lengths[2] = strlen(token);
    made->commands[1] = made->commands[0];
    made->commands[0] = release;
    made->main = 1;
    made->x.request_count = ++made->part_count;
}

void question_extend(question *made, const claim *of, uint32_t io_timeout_ms, int64_t limit_us) {
    begin(made, of, io_timeout_ms, limit_us);
    made->x.is_urgent = true;
    made->x.on_sent = of->on_sent;
    made->x.on_sent_arg = of->on_sent_arg;
    add_command(made, question_extend_command(of, made->lease));
    if (of->min_replicas > 0) add_replicas(made);
}

void question_release(question *made, const claim *of, uint32_t io_timeout_ms, int64_t limit_us) {
    begin(made, of, io_timeout_ms, limit_us);
    made->x.is_urgent = true;
    made->x.on_sent = of->on_sent;
    made->x.on_sent_arg = of->on_sent_arg;
    add_command(made, lock_command("DLOCK.RELEASE", of));
}

void question_prepare(question *made, const errand *to, uint32_t io_timeout_ms) {
    switch (to->operation) {
    case DLOCK_ACQUIRING:
        question_acquire(made, to->of, to->wait_ms, io_timeout_ms, to->limit_us);
        return;
    case DLOCK_EXTENDING:
        question_extend(made, to->of, io_timeout_ms, to->limit_us);
        return;
    case DLOCK_RELEASING:
        question_release(made, to->of, io_timeout_ms, to->limit_us);
        return;
    }
}

/* It is good for one command each; WAIT, which has no key, does not mind it. */
void question_add_asking(question *made) {
    command asking = {0};
    add_word(&asking, "ASKING");
    for (int i = made->part_count - 1; i >= 0; i--) {
        made->commands[2 * i + 1] = made->commands[i];
        made->commands[2 * i] = asking;
    }
    made->is_asking = true;
    made->x.request_count = 2 * made->part_count;
}

/* -- reading */

static void refuse(verdict *to, const reply *answer) {
    if (answer->kind == REPLY_ERROR) {
        answer_meaning meaning = answer_status_of_error(answer->text);
        to->status = meaning.status;
        to->is_passing = meaning.is_passing;
        to->is_fence_refused = strncmp(answer->text, "ERR FENCE ", 10) == 0;
        to->cause = answer->text;
        return;
    }
    to->status = DLOCK_PROTOCOL;
    to->may_hold = true; /* who knows what it has done */
    to->cause = "the server gave an answer that makes no sense";
}

/* 1 is yes, 0 is no. */
static void read_yes_or_no(verdict *to, const reply *answer) {
    if (answer->kind != REPLY_INTEGER || answer->integer < 0 || answer->integer > 1) {
        refuse(to, answer);
    } else if (answer->integer == 0) {
        to->status = DLOCK_LOST;
        to->cause = "the server says that the token does not hold it";
    }
}

static void read_grant(verdict *to, const reply *answer) {
    if (answer->kind == REPLY_NIL) {
        to->status = DLOCK_BUSY;
        to->cause = "another holds it";
    } else if (answer->kind != REPLY_INTEGER || answer->integer <= 0) {
        refuse(to, answer);
    } else {
        to->fence = (uint64_t)answer->integer;
    }
}

static void read_replicas(verdict *to, const reply *answer, uint32_t needed) {
    if (answer->kind == REPLY_INTEGER && answer->integer >= (int64_t)needed) return;
    if (answer->kind == REPLY_INTEGER) {
        to->status = DLOCK_NO_REPLICAS;
        to->cause = QUESTION_NO_REPLICAS;
    } else {
        refuse(to, answer);
    }
    to->may_hold = true;
}

verdict question_read(const question *asked) {
    verdict read = {.status = asked->x.status, .asked_us = asked->x.sent_us, .cause = ""};
    bool is_acquire = asked->x.prepare != NULL;
    if (read.status != DLOCK_OK) {
        read.is_passing = read.status == DLOCK_UNREACHABLE || read.status == DLOCK_IN_DOUBT;
        read.may_hold = asked->x.is_sent;
        read.cause = asked->x.cause;
        return read;
    }
    if (is_acquire)
        read_grant(&read, &asked->answers[asked->main]);
    else
        read_yes_or_no(&read, &asked->answers[asked->main]);
    if (read.status == DLOCK_OK && asked->part_count > asked->main + 1)
        read_replicas(&read, &asked->answers[asked->main + 1], asked->of->min_replicas);
    return read;
}

dlock_status question_tell_extend(const reply *answer, claim *of) {
    verdict read = {.status = DLOCK_OK, .cause = ""};
    read_yes_or_no(&read, answer);
    of->is_passing = read.is_passing;
    text_copy(of->call.cause, sizeof(of->call.cause), read.cause);
    return read.status;
}

dlock_status question_tell(const question *asked, claim *of) {
    verdict read = question_read(asked);
    text_copy(of->call.cause, sizeof(of->call.cause), read.cause);
    of->call.asked_us = read.asked_us;
    of->is_passing = read.is_passing;
    if (asked->x.prepare != NULL) {
        of->is_sent = of->is_sent || read.may_hold;
        if (read.status == DLOCK_OK) of->call.fence = read.fence;
    }
    return read.status;
}
