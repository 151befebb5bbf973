/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.c - move money between two accounts, each of which has a lock.
 *
 *   cc -o transfer transfer.c $(pkg-config --cflags --libs dlock)
 *   ./transfer redis://127.0.0.1:6379 bank alice bob 5 [TIMES]
 *
 * Both locks are taken in one step, all or none: a transfer from bob to alice at the same time
 * cannot end in a deadlock. No process holds one account while it waits for the other.
 *
 * Both balances are written by one guarded command, so a process that slept through its lease is
 * refused by the server, and nobody ever sees money that is in neither account. The names of locks
 * and balances have the same hash tag, {bank}: in a cluster they are at the same node. */
#include <dlock.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAIT_MS = 30000, NAME_SIZE = 200, NUMBER_SIZE = 24 };

typedef struct account {
    char lock[NAME_SIZE], balance[NAME_SIZE];
} account;

static account make_account(const char *bank, const char *owner) {
    account account;
    snprintf(account.lock, NAME_SIZE, "{%.80s}lock:%.80s", bank, owner);
    snprintf(account.balance, NAME_SIZE, "{%.80s}balance:%.80s", bank, owner);
    return account;
}

static dlock_status read_balance(dlock_lock *lock, const account *account, long *balance) {
    char text[NUMBER_SIZE] = "";
    dlock_reply reply;
    dlock_reply_init(&reply, text, sizeof(text));
    const char *const words[] = {"GET", account->balance};
    dlock_status status = dlock_guarded(lock, 2, words, NULL, &reply);
    *balance = strtol(text, NULL, 10);
    return status;
}

/* The same write again and again, until there is a reply or the lock is lost. */
static dlock_status write_balances(dlock_lock *lock, const account pair[2],
                                   const long balances[2]) {
    char numbers[2][NUMBER_SIZE];
    for (int i = 0; i < 2; i++)
        snprintf(numbers[i], NUMBER_SIZE, "%ld", balances[i]);
    const char *const words[] = {"MSET", pair[0].balance, numbers[0], pair[1].balance, numbers[1]};
    for (;;) {
        dlock_status status = dlock_guarded(lock, 5, words, NULL, NULL);
        if (status != DLOCK_IN_DOUBT && status != DLOCK_UNREACHABLE) return status;
        poll(NULL, 0, 10);
    }
}

/* Both locks are held. */
static dlock_status move_held(dlock_lock *lock, const account pair[2], long amount) {
    long balances[2];
    for (int i = 0; i < 2; i++) {
        dlock_status status = read_balance(lock, &pair[i], &balances[i]);
        if (status != DLOCK_OK) return status;
    }
    balances[0] -= amount;
    balances[1] += amount;
    return write_balances(lock, pair, balances);
}

static dlock_status transfer(dlock_lock *lock, const account pair[2], long amount) {
    dlock_status status = dlock_acquire(lock, WAIT_MS);
    if (status != DLOCK_OK) return status;
    status = move_held(lock, pair, amount);
    dlock_release(lock);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 6 || argc > 7) {
        fprintf(stderr, "usage: transfer URL BANK FROM TO AMOUNT [TIMES]\n");
        return 2;
    }
    dlock_client *client;
    dlock_lock *lock;
    if (dlock_client_new_url(&client, argv[1]) != DLOCK_OK) {
        fprintf(stderr, "transfer: no client: %s\n", dlock_error());
        return 2;
    }
    const account pair[2] = {make_account(argv[2], argv[3]), make_account(argv[2], argv[4])};
    const char *const names[] = {pair[0].lock, pair[1].lock};
    if (dlock_lock_new_all(&lock, client, names, 2, NULL) != DLOCK_OK) {
        fprintf(stderr, "transfer: %s\n",
                dlock_error()); /* from and to are the same, for instance */
        dlock_client_free(client);
        return 2;
    }
    int done = 0, times = argc == 7 ? atoi(argv[6]) : 1;
    dlock_status status = DLOCK_OK;
    while (done < times && (status = transfer(lock, pair, atol(argv[5]))) == DLOCK_OK)
        done++;
    if (status != DLOCK_OK)
        fprintf(stderr, "transfer: %s: %s\n", dlock_status_name(status), dlock_last_error(lock));
    printf("%d transfers\n", done);
    dlock_lock_free(lock);
    dlock_client_free(client);
    return status == DLOCK_OK ? 0 : 1;
}
