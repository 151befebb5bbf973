/* SPDX-License-Identifier: BSD-3-Clause */
/* guarded_counter.c - read, modify and write data in Redis, so that no pause can lose an update.
 *
 *   cc -o guarded_counter guarded_counter.c $(pkg-config --cflags --libs dlock)
 *   ./guarded_counter redis://127.0.0.1:6379 visits 100 [PAUSE_MS]
 *
 * Start several at once, stop one with SIGSTOP, wake it up again: the count is right. Each write is
 * made by dlock_guarded(), so a process that slept through its lease is refused by the server.
 *
 * The reply to a write can get lost. So the write can be repeated with the same result: HSET, not
 * HINCRBY. The same HSET also notes the number of the update in a field of this process. If the
 * lock is lost before a reply comes, the next holder looks there: has the write happened?
 *
 * Lock and data have the same hash tag, {visits}: in a cluster they are at the same node. */
#include <dlock.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LEASE_MS = 2000, WAIT_MS = 60000, NUMBER_SIZE = 24, NAME_SIZE = 200 };

typedef struct counter {
    dlock_lock *lock;
    char key[NAME_SIZE];
    char mine[NAME_SIZE]; /* the field of this process */
    int pause_ms;
    int lost;
} counter;

static dlock_status read_field(const counter *counter, const char *field, int64_t *number) {
    char text[NUMBER_SIZE];
    dlock_reply reply;
    dlock_reply_init(&reply, text, sizeof(text));
    dlock_status status = dlock_guarded(
        counter->lock, 3, (const char *const[]){"HGET", counter->key, field}, NULL, &reply);
    *number = status == DLOCK_OK ? strtoll(text, NULL, 10) : 0;
    return status;
}

/* The same write again and again, until there is a reply or the lock is lost. */
static dlock_status write_fields(const counter *counter, int64_t value, int64_t update) {
    char number[NUMBER_SIZE], mark[NUMBER_SIZE];
    snprintf(number, sizeof(number), "%" PRId64, value);
    snprintf(mark, sizeof(mark), "%" PRId64, update);
    const char *const words[] = {"HSET", counter->key, "value", number, counter->mine, mark};
    for (;;) {
        dlock_status status = dlock_guarded(counter->lock, 6, words, NULL, NULL);
        if (status != DLOCK_IN_DOUBT && status != DLOCK_UNREACHABLE) return status;
        poll(NULL, 0, 10);
    }
}

/* The lock is held. */
static dlock_status update_held(counter *counter, int64_t update) {
    int64_t done = 0, value = 0;
    dlock_status status = read_field(counter, counter->mine, &done);
    if (status != DLOCK_OK || done == update) return status; /* an earlier try has worked */
    status = read_field(counter, "value", &value);
    if (status != DLOCK_OK) return status;
    if (counter->pause_ms > 0) printf("holding\n");
    fflush(stdout);
    poll(NULL, 0, counter->pause_ms); /* the place where processes like to fall asleep */
    return write_fields(counter, value + 1, update);
}

/* False: given up, with the cause in *status. */
static bool count_one(counter *counter, int64_t update, dlock_status *status) {
    for (;;) {
        *status = dlock_acquire(counter->lock, WAIT_MS);
        if (*status != DLOCK_OK) return false;
        *status = update_held(counter, update);
        if (*status == DLOCK_OK) {
            dlock_release(counter->lock);
            return true;
        }
        bool is_lost = *status == DLOCK_LOST;
        if (!is_lost) return false;
        counter->lost++;
        dlock_release(counter->lock);
    }
}

static int run(counter *counter, int64_t updates) {
    dlock_status status;
    for (int64_t update = 1; update <= updates; update++) {
        if (count_one(counter, update, &status)) continue;
        fprintf(stderr, "guarded_counter: %s: %s\n", dlock_status_name(status),
                dlock_last_error(counter->lock));
        return 1;
    }
    printf("counted %" PRId64 ", refused %d\n", updates, counter->lost);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4 || argc > 5) {
        fprintf(stderr, "usage: guarded_counter URL NAME UPDATES [PAUSE_MS]\n");
        return 2;
    }
    dlock_client *client;
    if (dlock_client_new_url(&client, argv[1]) != DLOCK_OK) {
        fprintf(stderr, "guarded_counter: no client: %s\n", dlock_error());
        return 2;
    }
    counter counter = {.pause_ms = argc == 5 ? atoi(argv[4]) : 0};
    char name[NAME_SIZE];
    snprintf(name, sizeof(name), "{%.100s}lock", argv[2]);
    snprintf(counter.key, sizeof(counter.key), "{%.100s}count", argv[2]);
    snprintf(counter.mine, sizeof(counter.mine), "process:%ld", (long)getpid());
    dlock_lock_options how;
    dlock_lock_options_init(&how);
    how.lease_ms = LEASE_MS;
    int code = 1;
    if (dlock_lock_new(&counter.lock, client, name, &how) == DLOCK_OK)
        code = run(&counter, atoi(argv[3]));
    dlock_lock_free(counter.lock);
    dlock_client_free(client);
    return code;
}
