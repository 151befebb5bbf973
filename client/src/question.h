/* SPDX-License-Identifier: BSD-3-Clause */
/* question.h - what is said to one server about a lock, and what its answer means. It does not
 * ask: server.c does. */
#ifndef DLOCK_QUESTION_H
#define DLOCK_QUESTION_H

#include "claim.h"
#include "exchange.h"
#include "text.h"

enum { QUESTION_PARTS_MAX = 3, QUESTION_COMMANDS_MAX = 2 * QUESTION_PARTS_MAX };

typedef struct question {
    exchange x; /* to be asked */

    /* Of question.c. */
    const claim *of;
    command commands[QUESTION_COMMANDS_MAX], farewell;
    reply answers[QUESTION_PARTS_MAX];
    int part_count;
    bool is_asking; /* ASKING comes before each part */
    int64_t io_timeout_us;
    uint32_t wait_ms;
    int main; /* which of the commands it is about */
    char lease[TEXT_NUMBER_SIZE], wait[TEXT_NUMBER_SIZE];
    char replicas[TEXT_NUMBER_SIZE], replica_timeout[TEXT_NUMBER_SIZE], fence[TEXT_NUMBER_SIZE];
} question;

/* What came of it. */
typedef struct verdict {
    dlock_status status;
    bool is_passing;       /* of a failure: another attempt may succeed */
    bool is_fence_refused; /* it is minutes ahead of the server's clock */
    bool may_hold;  /* of anything but DLOCK_OK to an acquire: the server may have granted it */
    uint64_t fence; /* of DLOCK_OK to an acquire */
    int64_t asked_us;
    const char *cause; /* of the question, or static; MOVED and ASK as the server said it */
} verdict;

/* For of->call.lease_ms, waiting in line for wait_ms (0: not at all); with the replicas and the
 * session that the claim asks for. The claim must outlive the question, which must not be moved. */
void question_acquire(question *made, const claim *of, uint32_t wait_ms, uint32_t io_timeout_ms,
                      int64_t limit_us);
/* Of an acquire that does not wait: its fence is to be this at least. */
void question_want_fence(question *made, uint64_t fence);
/* The same; what this token may have got from an earlier attempt is given back before. It must
 * outlive the question. */
void question_give_back_first(question *made, const char *token);
void question_extend(question *made, const claim *of, uint32_t io_timeout_ms, int64_t limit_us);
void question_release(question *made, const claim *of, uint32_t io_timeout_ms, int64_t limit_us);

/* What is to be asked, of whichever server it turns out to be. */
typedef struct errand {
    dlock_operation operation;
    claim *of;
    uint32_t wait_ms; /* of an acquire */
    int64_t limit_us;
    const interrupt *stop;
} errand;

void question_prepare(question *made, const errand *to, uint32_t io_timeout_ms);

/* Before it is asked: of a node of a cluster that does not have the key's slot yet. */
void question_add_asking(question *made);

/* After it was asked. DLOCK_BUSY: another holds it. DLOCK_LOST: of an extend or release, the token
 * does not hold it. DLOCK_NO_REPLICAS: of an acquire, it is held and to be released. */
verdict question_read(const question *asked);

/* Writes it to the claim: status apart. */
dlock_status question_tell(const question *asked, claim *of);

/* -- the parts, for batches */

#define QUESTION_NO_REPLICAS "too few replicas have acknowledged it in time"

command question_extend_command(const claim *of, char lease[TEXT_NUMBER_SIZE]);
command question_replicas(char count[TEXT_NUMBER_SIZE], uint32_t needed,
                          char timeout[TEXT_NUMBER_SIZE], uint32_t timeout_ms);
dlock_status question_tell_extend(const reply *answer, claim *of);

#endif
