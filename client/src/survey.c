/* SPDX-License-Identifier: BSD-3-Clause */
/* survey.c - see survey.h. */
#include "survey.h"

#include "answer.h"
#include "deadline.h"
#include "text.h"
#include <limits.h>

static void note_refusal(survey *of, size_t who, dlock_status status, const char *text) {
    if (of->refusals[who][0] != '\0') return;
    of->refused_as[who] = status;
    text_copy(of->refusals[who], sizeof(of->refusals[who]), text);
    server_sign(of->at[who], of->refusals[who]);
}

static void note_answer(exchange *x, int which, const reply *answer) {
    survey *of = x->asker;
    size_t who = (size_t)(x - of->each);
    if (answer->kind == REPLY_ERROR) {
        answer_meaning meaning = answer_status_of_error(answer->text);
        note_refusal(of, who, meaning.is_passing ? DLOCK_UNREACHABLE : meaning.status,
                     answer->text);
        return;
    }
    const char *useless = of->on_reply(of, who, which, answer);
    if (useless != NULL) note_refusal(of, who, DLOCK_UNREACHABLE, useless);
}

unsigned survey_run(survey *of, int64_t limit_us) {
    exchange *asked[SURVEY_MAX];
    unsigned sent = 0;
    for (size_t i = 0; i < of->count; i++) {
        uint32_t io_timeout_ms = server_limits_of(of->at[i])->io_timeout_ms;
        of->refusals[i][0] = '\0';
        of->each[i] = (exchange){.requests = of->requests,
                                 .request_count = of->request_count,
                                 .is_urgent = true,
                                 .send_by_us = limit_us,
                                 .answer_in_us = (int64_t)io_timeout_ms * 1000,
                                 .answer_by_us = limit_us,
                                 .on_reply = note_answer,
                                 .asker = of};
        asked[i] = &of->each[i];
    }
    server_ask_all(of->at, asked, of->count, 0, of->env, of->stop);
    for (size_t i = 0; i < of->count; i++)
        if (of->each[i].is_sent) sent += (unsigned)of->request_count;
    return sent;
}

void survey_hurry(survey *of, int64_t grace_us) {
    int64_t until_us = of->env->now_us(of->env) + grace_us;
    for (size_t i = 0; i < of->count; i++) {
        exchange *each = &of->each[i];
        each->send_by_us = deadline_earlier(each->send_by_us, until_us);
        each->answer_by_us = deadline_earlier(each->answer_by_us, until_us);
    }
}

/* Of one that was no use. Who answers says more than who is not there; what may pass, more than
 * what will not: 0 is what says most. */
static int rank_of(const survey *of, size_t who, dlock_status status) {
    bool is_answer = of->each[who].status == DLOCK_OK;
    if (status == DLOCK_CANCELED) return 0;
    if (status == DLOCK_UNREACHABLE) return is_answer ? 1 : 3;
    return 2;
}

static dlock_status failure_of(const survey *of, size_t who) {
    dlock_status status = of->each[who].status;
    if (status == DLOCK_OK) return of->refused_as[who];
    return status == DLOCK_IN_DOUBT ? DLOCK_UNREACHABLE : status; /* it is no lock's doubt */
}

dlock_status survey_failure(const survey *of, char cause[CAUSE_MAX + 1]) {
    int least = INT_MAX;
    dlock_status worst = DLOCK_UNREACHABLE;
    text_copy(cause, CAUSE_MAX + 1, "there is nobody to ask");
    for (size_t i = 0; i < of->count; i++) {
        dlock_status status = failure_of(of, i);
        int rank = rank_of(of, i, status);
        if (rank >= least) continue;
        least = rank;
        worst = status;
        bool is_answer = of->each[i].status == DLOCK_OK;
        text_copy(cause, CAUSE_MAX + 1, is_answer ? of->refusals[i] : of->each[i].cause);
    }
    return worst;
}
