/* SPDX-License-Identifier: BSD-3-Clause */
/* batch.c - see batch.h. If some of them need replicas, one WAIT at the end is for all. */
#include "batch.h"

#include "deadline.h"
#include "question.h"
#include <stdlib.h>

struct batch {
    exchange x;
    claim *const *claims;
    dlock_status *outcomes;
    size_t count;
    int64_t acknowledged; /* by replicas; negative: not said */
    command *commands;
    char (*leases)[TEXT_NUMBER_SIZE];
    char replicas[TEXT_NUMBER_SIZE], replica_timeout[TEXT_NUMBER_SIZE];
};

static void note_answer(exchange *x, int which, const reply *answer) {
    batch *of = x->asker;
    if ((size_t)which < of->count)
        of->outcomes[which] = question_tell_extend(answer, of->claims[which]);
    else if (answer->kind == REPLY_INTEGER)
        of->acknowledged = answer->integer;
}

static void add_replicas(batch *to) {
    uint32_t most = 0, timeout_ms = 1;
    for (size_t i = 0; i < to->count; i++) {
        const claim *each = to->claims[i];
        if (each->min_replicas == 0) continue;
        if (each->min_replicas > most) most = each->min_replicas;
        if (each->replica_timeout_ms > timeout_ms) timeout_ms = each->replica_timeout_ms;
    }
    if (most == 0) return;
    to->commands[to->x.request_count++] =
        question_replicas(to->replicas, most, to->replica_timeout, timeout_ms);
    to->x.answer_in_us += (int64_t)timeout_ms * 1000;
    to->x.answer_by_us = deadline_after_ms(to->x.answer_by_us, timeout_ms);
}

batch *batch_new(claim *const claims[], dlock_status outcomes[], size_t count,
                 uint32_t io_timeout_ms, int64_t limit_us) {
    for (size_t i = 0; i < count; i++)
        outcomes[i] = DLOCK_NO_MEMORY;
    batch *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->claims = claims;
    made->outcomes = outcomes;
    made->count = count;
    made->acknowledged = -1;
    made->commands = malloc((count + 1) * sizeof(made->commands[0]));
    made->leases = malloc((count + 1) * sizeof(made->leases[0]));
    if (made->commands == NULL || made->leases == NULL) {
        batch_free(made);
        return NULL;
    }
    made->x = (exchange){.requests = made->commands,
                         .is_urgent = true,
                         .send_by_us = limit_us,
                         .answer_in_us = (int64_t)io_timeout_ms * 1000,
                         .answer_by_us = limit_us,
                         .on_reply = note_answer,
                         .asker = made};
    for (size_t i = 0; i < count; i++)
        made->commands[made->x.request_count++] =
            question_extend_command(claims[i], made->leases[i]);
    add_replicas(made);
    return made;
}

void batch_free(batch *old) {
    if (old == NULL) return;
    free(old->commands);
    free(old->leases);
    free(old);
}

exchange *batch_exchange(batch *of) {
    return &of->x;
}

static dlock_status fail(claim *of, dlock_status status, bool is_passing, const char *cause) {
    of->is_passing = is_passing;
    text_copy(of->call.cause, sizeof(of->call.cause), cause);
    return status;
}

void batch_read(batch *of) {
    bool is_passing = of->x.status == DLOCK_UNREACHABLE || of->x.status == DLOCK_IN_DOUBT;
    for (size_t i = 0; i < of->count; i++) {
        claim *each = of->claims[i];
        each->call.asked_us = of->x.sent_us;
        if ((int64_t)i >= of->x.reply_count)
            of->outcomes[i] = fail(each, of->x.status, is_passing, of->x.cause);
        else if (of->outcomes[i] != DLOCK_OK || of->acknowledged >= (int64_t)each->min_replicas ||
                 each->min_replicas == 0)
            continue;
        else if (of->acknowledged < 0)
            of->outcomes[i] = fail(each, DLOCK_IN_DOUBT, true, of->x.cause);
        else
            of->outcomes[i] = fail(each, DLOCK_NO_REPLICAS, true, QUESTION_NO_REPLICAS);
    }
}
