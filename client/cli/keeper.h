/* SPDX-License-Identifier: BSD-3-Clause */
/* keeper.h - the process that takes the lock for "dlock run", renews and releases it.
 *
 * The keeper is neither the process that the shell sees nor the parent of the command. So it works
 * on while the runner is stopped (^Z), and ends the command and gives the lock back if the runner
 * is killed. The messages between the two, in order:
 *
 *   keeper           runner
 *   WAITING   -->    with -v: another holds the lock
 *   GRANTED   -->    forks the command, in a group of its own, which does not begin yet
 *             <--    CHILD: that group
 *   GO        -->    the lock is still held: the command may begin
 *   LOST      -->    the group is being ended
 *             <--    RELEASE: the group has ended; did the command begin at all?
 *   DONE      -->    the fate of the lock; also instead of GRANTED and instead of GO
 *
 * A process whose partner has died reads the end of the stream. The time by which the group must be
 * gone is in memory that both see: a runner that was stopped for an hour sees the present time. */
#ifndef DLOCK_CLI_KEEPER_H
#define DLOCK_CLI_KEEPER_H

#include "request.h"
#include <stdatomic.h>
#include <sys/types.h>

/* -- messages */

typedef enum wire_kind {
    WIRE_END = 0, /* the partner is gone */
    WIRE_WAITING,
    WIRE_GRANTED,
    WIRE_CHILD,
    WIRE_GO,
    WIRE_LOST,
    WIRE_RELEASE,
    WIRE_DONE
} wire_kind;

typedef struct wire_message {
    wire_kind kind;
    pid_t group;         /* of CHILD */
    bool has_begun;      /* of RELEASE: the command was executed */
    dlock_status status; /* of DONE, LOST */
    uint64_t fence;      /* of GRANTED */
    char text[400];      /* of GRANTED: the token; of WAITING: the holder; of DONE and LOST: why */
} wire_message;

/* On the clock of wire_now_ms(). */
typedef struct wire_times {
    atomic_int_least64_t kill_at_ms; /* the group must be gone by then */
} wire_times;

/* NULL: no descriptors or memory. */
wire_times *wire_open(int ends[2]);
void wire_close(int fd, wire_times *times);

/* Never blocks. */
void wire_send(int fd, const wire_message *message);

/* Waits for a message. */
wire_message wire_receive(int fd);

/* CLOCK_BOOTTIME, which both processes share: never set, and counting while the machine sleeps. */
int64_t wire_now_ms(void);

/* -- the keeper */

typedef struct keeper {
    pid_t pid;
    int fd; /* for wire_send() and wire_receive() */
    wire_times *times;
} keeper;

/* Before any thread. wait_ms: as of dlock_acquire(). False: no process or descriptor. */
bool keeper_start(keeper *keeper, const request *request, int name_count, int64_t wait_ms);

/* Ends the wait for the lock. */
void keeper_cancel(const keeper *keeper);

/* After the last message. True: the keeper ended as it should. */
bool keeper_reap(const keeper *keeper);

#endif
