/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.h - what the two processes of "dlock run" say to each other. The order of things:
 *
 *   keeper           runner
 *   GRANTED   -->    starts the command, in a group of its own
 *             <--    CHILD: that group. The command may begin
 *   LOST      -->    the group is being ended
 *             <--    RELEASE: the group has ended
 *   DONE      -->    what became of the lock; also instead of GRANTED
 *
 * If one of them dies, the other one reads the end of the stream. When the group must be gone is in
 * memory that both see: it is right also for a runner that was stopped for an hour. */
#ifndef DLOCK_CLI_WIRE_H
#define DLOCK_CLI_WIRE_H

#include <dlock.h>
#include <stdatomic.h>
#include <sys/types.h>

typedef enum wire_kind {
    WIRE_END = 0, /* nobody is there any more */
    WIRE_GRANTED,
    WIRE_CHILD,
    WIRE_LOST,
    WIRE_RELEASE,
    WIRE_DONE
} wire_kind;

typedef struct wire_message {
    wire_kind kind;
    pid_t group;         /* of CHILD */
    dlock_status status; /* of DONE, LOST */
    uint64_t fence;      /* of GRANTED */
    int64_t
        kill_at_ms; /* of GRANTED, TIMES, LOST: the group must be gone by then, see wire_now_ms() */
    char text[300]; /* of GRANTED: the token; of DONE and LOST: why */
} wire_message;

/* On the clock of wire_now_ms(). */
typedef struct wire_times {
    atomic_int_least64_t kill_at_ms;
} wire_times;

/* NULL: no descriptors or memory. */
wire_times *wire_open(int ends[2]);

void wire_send(int to, const wire_message *message);

/* Waits for one. */
wire_message wire_receive(int from);

/* On a clock that both share, that is never set and counts sleep. */
int64_t wire_now_ms(void);

#endif
