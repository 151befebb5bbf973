/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.h - the connections to one server: lent to one call each, kept for the next. At most so
 * many; who comes too late waits in line, with its deadline. */
#ifndef DLOCK_POOL_H
#define DLOCK_POOL_H

#include "conn.h"
#include "environment.h"
#include "interrupt.h"
#include "left.h"

typedef struct pool pool;

/* NULL: no memory. */
pool *pool_new(size_t max);
/* Nothing may be lent. Answers that were left are waited for, for a moment. */
void pool_free(pool *old);

/* Who is urgent does not wait, but opens one more, which is closed when it is given back.
 * DLOCK_OK: *lent is a connection, or NULL: the caller may open one. Either way it is to be given
 * back once. DLOCK_UNREACHABLE: none became free in time. DLOCK_CANCELED. */
dlock_status pool_take(pool *from, bool is_urgent, conn **lent, int64_t deadline_us,
                       const environment *env, const interrupt *stop);

/* One that was lent, and has answers to come that nobody waits for. Until they have come it is
 * there for whoever goes on about the same subject, and does not count as open; then for everybody.
 * If they have not come by then, pool_resume() says so. */
void pool_leave(pool *to, conn *left, uint64_t subject, int64_t until_us, int64_t now_us);

/* What nobody waits for an answer to, behind what others have left. False: it is not sent. */
bool pool_send(pool *by, const command *requests, int count);

/* The one that was left about this is lent; NULL: there is none. */
conn *pool_resume(pool *from, uint64_t subject, int64_t now_us, left_news *news);

/* NULL: there is none, or it is closed. It must have nothing to send and nothing to read. */
void pool_give(pool *to, conn *returned, int64_t now_us);

#endif
