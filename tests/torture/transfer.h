/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.h - moves money between two accounts, under a lock with the names of both.
 *
 * The value of an account is "id:balance": the id of its last update (see update.h), and its money.
 * Both accounts are written in one guarded step. The checker walks along the ids of each
 * account, and the sum of all balances has to stay 0. */
#pragma once

#include "update.h"

/* An account has a name of its own in the history, which is that of a pair with itself. */
static inline uint32_t account_name(char kind, unsigned one, unsigned two) {
    return (uint32_t)(unsigned char)kind << 16 | one << 8 | two;
}

typedef struct transfer {
    dlock_lock *lock;
    /* Over a connection of the program's own, by a script that guards both names, without a look at
     * any clock. Then the server alone refuses. */
    bool is_raw;
    unsigned thread;
    uint32_t names[2];
    const char *lock_keys[2];
    const char *data_keys[2];
    int64_t amount;
    int64_t work_ns; /* between read and write */
} transfer;

update_result store_transfer(store *store, const transfer *transfer);
