/* SPDX-License-Identifier: BSD-3-Clause */
/* environment.h - the clock, sleep and chance, behind one table, so that waiting can be tested
 * without waiting. */
#ifndef DLOCK_ENVIRONMENT_H
#define DLOCK_ENVIRONMENT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct environment environment;

struct environment {
    /* Microseconds on a clock that is never set and counts suspend. */
    int64_t (*now_us)(const environment *self);
    /* Until that time, or until wake_fd (unless negative) is readable; may return early. */
    void (*sleep_until)(const environment *self, int64_t at_us, int wake_fd);
    /* 64 random bits, for pauses. */
    uint64_t (*chance)(const environment *self);
    /* Until that time, or until *bell is not what was heard; may return early. */
    void (*listen_until)(const environment *self, int64_t at_us, const atomic_uint *bell,
                         unsigned heard);
    /* Microseconds of unix time, by the machine's clock, which may be set. */
    int64_t (*unix_us)(const environment *self);
};

const environment *environment_system(void);

#endif
