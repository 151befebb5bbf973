/* SPDX-License-Identifier: BSD-3-Clause */
/* watches.h - locks that sessions watch: DLOCK.WATCH. A session is told whenever the lock changes
 * hands, beginning with the present state:
 *
 *   [number, "changed", key, token of the holder, or null]
 *   [number, "ended", key, "", why]        the slot of the lock has moved, or the permission was
 *                                          withdrawn: the watch is over
 *
 * A watch has at most one event in the mailbox, with the latest state. */
#ifndef DLOCK_WATCHES_H
#define DLOCK_WATCHES_H

#include "session.h"

void watches_init(void);

/* A session that watches the lock already is told of the present state once more. */
void watches_add(session *session, int db, RedisModuleString *name);
bool watches_has(const session *session, int db, const RedisModuleString *name);
void watches_remove(session *session, int db, RedisModuleString *name);

/* The lock may have changed hands; all locks may have. Cheap; the look at the lock comes later. */
void watches_mark(int db, RedisModuleString *name);
void watches_mark_all(void);

/* DLOCK.INFO shows the lock to somebody who may watch it. If the lock is marked, the look that
 * follows counts as a change: it may find the state of the last look once more, but the reader
 * knows another one. */
void watches_note_read(int db, const RedisModuleString *name);

/* The lock has changed, and is back in the state of the last look. Somebody may have read the other
 * state. */
void watches_note_return(int db, const RedisModuleString *name);

/* Marks so many of the locks that were looked at the longest time ago. */
void watches_mark_oldest(int most);

/* Takes a marked lock, which work.c then looks at. NULL: none is marked. */
typedef struct watched watched;
watched *watches_take_marked(void);
int watched_db(const watched *lock);
RedisModuleString *watched_name(const watched *lock);

/* What the look has found: the holder, which the lock takes over, or NULL if it is free. fence
 * is the newest of all holders, and holders their number: both together tell whether a holder has
 * come or left. */
void watched_set_holder(watched *lock, RedisModuleString *holder, int64_t fence, int64_t holders);

/* The lock is not on this server any more: its watches are over. */
void watched_set_gone(watched *lock, const char *why);

/* Tells the next session that does not know the present state. False: all know it. */
bool watched_tell_next(watched *lock);

/* Some watches are still to be told: watches_take_marked() returns the lock again. */
void watched_tell_later(watched *lock);

/* The session has ended: frees its next watch. False: there are no more. */
bool watches_clear(session *session);

int64_t watches_count(void);

#endif
