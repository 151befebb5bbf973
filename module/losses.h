/* SPDX-License-Identifier: BSD-3-Clause */
/* losses.h - events that tell a session of a hold that it has lost:
 *
 *   [number, "lost", key, token, why]
 *
 *   why   expired, deleted, overwritten, evicted, flushed, moved */
#ifndef DLOCK_LOSSES_H
#define DLOCK_LOSSES_H

#include "lock_state.h"
#include "mailbox.h"

/* The session has lost its hold of the lock. why: NULL if it is not known yet; then the loss waits
 * in the list of unexplained ones. */
void losses_add(session *session, int db, RedisModuleString *name, lock_token token,
                const char *why);

/* The key was evicted just now: so much is known of the losses of its holders. */
void losses_evicted(int db, const RedisModuleString *name);

/* Looks at the lock of the next unexplained loss, and tells the session. False: there are no more.
 * ctx may select a database. */
bool losses_explain(RedisModuleCtx *ctx, session *session);

/* The session has ended: frees its next unexplained loss. False: there are no more. */
bool losses_clear(session *session);

#endif
