/* SPDX-License-Identifier: BSD-3-Clause */
/* survey.h - one question to several servers, about where something is; not about a lock. It is
 * over once one answer will do, or when all have had their say. */
#ifndef DLOCK_SURVEY_H
#define DLOCK_SURVEY_H

#include "server.h"

enum { SURVEY_MAX = EXCHANGE_MAX };

typedef struct survey survey;

struct survey {
    server *const *at; /* at most SURVEY_MAX */
    size_t count;
    const command *requests; /* the same for each */
    int request_count;
    /* What one of them answers; never an error. NULL, or why that does not help, for people. An
     * array is there only as long as this goes on. */
    const char *(*on_reply)(survey *self, size_t who, int which, const reply *answer);
    void *asker; /* the asker's own */
    const environment *env;
    const interrupt *stop;

    /* Of survey.c. */
    exchange each[SURVEY_MAX];
    char refusals[SURVEY_MAX][CAUSE_MAX + 1];
    dlock_status refused_as[SURVEY_MAX];
};

/* Returns by limit_us. The result is how many requests were sent. */
unsigned survey_run(survey *of, int64_t limit_us);

/* From on_reply: the others have only so much time left. */
void survey_hurry(survey *of, int64_t grace_us);

/* If nothing came of it: why, in the words of the one that says most. DLOCK_UNREACHABLE: it may be
 * different in a moment. DLOCK_CANCELED. */
dlock_status survey_failure(const survey *of, char cause[CAUSE_MAX + 1]);

#endif
