/* SPDX-License-Identifier: BSD-3-Clause */
/* visit.h - what a thread of a worker does, over and over: take a lock, hold it, give it back.
 *
 * The kinds of locks, by the first letter of their names:
 *   x  exclusive            r  renewed by the session of the process, if no replica is asked for
 *   s  ends with the connection of the session, renewed
 *   h  hot, handed on       w  read/write         p  permits, at most PERMITS
 *   g  exclusive, and protects a value in the same Redis (see update.h)
 *   a  exclusive, two accounts in one step, between which money moves (see transfer.h)
 *   k  exclusive, kept by the session of the process (see crowd.c) */
#pragma once

#include "dlock.h"
#include "settings.h"

enum { PERMITS = 3, THREADS_MAX = 64, MODES = 2, KEY_SIZE = 32 };

typedef struct visitor {
    const settings *settings;
    dlock_client *client;
    unsigned thread;
    uint64_t dice;
    store store;
    dlock_lock **handles; /* by place of the kind, number and mode; made when first needed */
} visitor;

/* The thread makes its handles itself; the client must outlive the visitor. */
void visitor_init(visitor *visitor, const settings *settings, dlock_client *client,
                  unsigned thread);
void visitor_end(visitor *visitor);

/* One visit: at most about four seconds. */
void visitor_visit(visitor *visitor);

/* The key of an account, and of its value if is_data. */
void visit_account_key(char key[KEY_SIZE], char kind, unsigned number, bool is_data);

/* The key of a lock, with a hash tag that the key of its value shares. */
void visit_key(char key[KEY_SIZE], char kind, unsigned number);

/* Records the digits behind the last colon of the token, which no other token has. */
void visit_record_token(const dlock_lock *lock, unsigned thread, uint32_t name);
