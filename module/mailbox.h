/* SPDX-License-Identifier: BSD-3-Clause */
/* mailbox.h - the events of a session: numbered, and kept until its client has acknowledged them;
 * and the DLOCK.SESSION that is parked until there are events.
 *
 * An event is the first member of the object that it tells of. The kind says what object that is,
 * and how it is written and freed. */
#ifndef DLOCK_MAILBOX_H
#define DLOCK_MAILBOX_H

#include "session.h"

typedef struct event event;

typedef struct event_kind {
    /* Writes one array to the reply. arrived_us: when the call that gets the reply arrived. */
    void (*write)(RedisModuleCtx *ctx, const event *event, int64_t arrived_us);
    /* The client has acknowledged the event, which is out of the mailbox. */
    void (*forget)(event *event);
} event_kind;

struct event {
    list_node node; /* in the mailbox, or in another list of the session */
    const event_kind *kind;
    int64_t number; /* 0: not in the mailbox */
};

/* Adds the event with a new number, and answers a parked call. */
void mailbox_add(session *session, event *added);

/* Takes the event out of the mailbox. */
void mailbox_remove(session *session, event *removed);

static inline bool mailbox_is_written(const session *session, const event *event) {
    return event->number <= session->written;
}

/* Forgets all events up to the number that were written to a connection: a client cannot know of
 * others, so the number is then one of another life of the session. One reply has a limited number
 * of events, so this takes a limited time. */
void mailbox_acknowledge(session *session, int64_t number);

/* Forgets the first event. False: there is none. */
bool mailbox_forget_first(session *session);

/* Writes [born, [event, ...]] as the reply to a call that arrived at arrived_us: the oldest events,
 * as many as one reply should have. */
void mailbox_write(RedisModuleCtx *ctx, session *session, int64_t arrived_us);

/* Parks the calling client until the session has an event, until a third of the timeout is over,
 * until a newer call comes, or until the session ends. A session has at most one parked call.
 * False: the server does not let this client wait. */
bool mailbox_park(RedisModuleCtx *ctx, session *session, int64_t arrived_us);

/* The parked call, if there is one, gets the events that are in the mailbox at the end of this turn
 * of the event loop. */
void mailbox_answer(session *session);

/* The parked call, if there is one, gets no events, since another call gets them. */
void mailbox_supersede(session *session);

/* The parked call, if there is one, gets an error: its session has ended. */
void mailbox_end(session *session);

/* Have so many parked calls been answered that other clients should be served before the next? */
bool mailbox_has_answered_enough(void);

/* The number of events that are not acknowledged. */
int64_t mailbox_count(void);

/* Has the session so many that no further waits and holds of it may begin? Each may end in an
 * event, and a client that acknowledges nothing must not use up the memory. */
bool mailbox_is_full(const session *session);
#define MAILBOX_FULL                                                                               \
    "QUEUEFULL too many events of this session are not acknowledged (dlock.max-events)"

#endif
