/* SPDX-License-Identifier: BSD-3-Clause */
/* history.h - the append-only history of one worker process.
 *
 * The history is a file of records of 32 bytes, mapped into memory and shared with the kernel: a
 * record that was written survives kill -9 of the process, and costs no system call. The member
 * kind is written last, so a record is complete or not there at all. checker.py reads the file; the
 * two must agree about record and record_kind.
 *
 * Every time is in nanoseconds on CLOCK_BOOTTIME, which all processes of a machine share. */
#pragma once

#include <stdint.h>

typedef enum record_kind {
    RECORD_NONE = 0,
    RECORD_START = 1,     /* number: the process id */
    RECORD_END = 2,       /* the worker frees its client now */
    RECORD_FREED = 3,     /* the client is free: the last record of an orderly end */
    RECORD_STALL = 4,     /* the machine let a thread wait: from number to at_ns, about */
    RECORD_EVENT = 5,     /* on_event; number: the event, status: why */
    RECORD_ACQUIRE = 6,   /* call; number: wait_ms, other: 0 exclusive, -1 shared, else permits */
    RECORD_ACQUIRED = 7,  /* return; number: fence, other: certainly held until */
    RECORD_SAMPLE = 8,    /* dlock_remaining_ms() was asked; other: certainly held until, or 0;
                           * status 1: and dlock_lost_fd() was not readable just before */
    RECORD_EXTEND = 9,    /* call; number: lease_ms */
    RECORD_EXTENDED = 10, /* return; other: certainly held until, or 0 */
    RECORD_LOST = 11,     /* dlock_lost_fd() was seen to be readable */
    RECORD_RELEASE = 12,  /* call */
    RECORD_RELEASED = 13, /* return */
    RECORD_WRITE = 14,    /* an update is sent; number: its id, other: the id that was read */
    RECORD_WRITTEN = 15,  /* number: the id; status: an update_result */
    RECORD_TOKEN = 16     /* of the acquire that returns next: the random digits of its token, in
                           * number and other */
} record_kind;

typedef struct record {
    int64_t at_ns;
    int64_t number;
    int64_t other;
    uint32_t name; /* kind of the lock << 16 | its number; of accounts: see transfer.h */
    uint16_t thread;
    uint8_t status;
    uint8_t kind; /* written last */
} record;

int64_t now_ns(void);

/* Ends the process if the file cannot be made. One history for each process. */
void history_open(const char *path);

/* Stamps the record with the present time. Threads: any. */
void history_add(record_kind kind, unsigned thread, uint32_t name, int status, int64_t number,
                 int64_t other);

/* With the time of a moment that the caller has taken before. */
void history_add_at(int64_t at_ns, record_kind kind, unsigned thread, uint32_t name, int status,
                    int64_t number, int64_t other);

/* Writes RECORD_STALL whenever this thread sleeps much longer than asked for, or the kernel says
 * that a thread of the process was ready and did not get a processor, until the process ends. The
 * checker allows a call that much more time: the machine, not the library, was late. */
void *history_watch_stalls(void *unused);

/* The same at once: by a thread before it ends, as the kernel then forgets its delay, and before
 * RECORD_FREED, behind which nothing is written. */
void history_look(void);
