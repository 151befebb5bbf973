/* SPDX-License-Identifier: BSD-3-Clause */
/* leader.c - elects a leader among processes, and lets the others find the leader.
 *
 *   cc -o leader leader.c $(pkg-config --cflags --libs dlock)
 *   ./leader redis://127.0.0.1:6379 anna &
 *   ./leader redis://127.0.0.1:6379 bert &
 *
 * The leader is whoever holds the lock "leader". The name of a process is the owner in the options
 * of the lock, so the name is a part of the token that everybody sees. Each process watches the
 * lock and prints the name of the leader whenever that changes. A leader that is stopped (SIGTERM)
 * gives the lock back, and the next one leads at once; a leader that dies is replaced when the
 * lease is over; a leader that loses the lock knows within a round trip. */
#include <dlock.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

enum { LEASE_MS = 6000, RENEW_MS = 2000 };

static dlock_lock *lock;
static volatile sig_atomic_t is_stopping;

static void stop(int number) {
    (void)number;
    is_stopping = 1;
    dlock_cancel(lock);
}

/* A token is host:pid:owner:random. */
static void show_leader(void *arg, const char *name, const dlock_inspection *holder) {
    (void)arg;
    (void)name;
    size_t end = holder == NULL ? 0 : holder->token_length;
    while (end > 0 && holder->token[end] != ':')
        end--;
    size_t begin = end;
    while (begin > 0 && holder->token[begin - 1] != ':')
        begin--;
    if (holder == NULL)
        printf("nobody leads\n");
    else
        printf("%.*s leads\n", (int)(end - begin), holder->token + begin);
    fflush(stdout);
}

/* Leads until the lock is lost or the process is to stop. */
static void lead(void) {
    struct pollfd loss = {.fd = dlock_lost_fd(lock), .events = POLLIN};
    printf("I lead, fence %llu\n", (unsigned long long)dlock_fence(lock));
    fflush(stdout);
    while (!is_stopping && poll(&loss, 1, 100) == 0)
        continue; /* the work of a leader, with the fence in each write */
    dlock_status status = dlock_release(lock);
    printf("I do not lead any more: %s\n", dlock_status_text(status));
    fflush(stdout);
}

static int take_part(dlock_client *client, const char *owner) {
    dlock_lock_options options;
    dlock_watcher *watcher;
    dlock_lock_options_init(&options);
    options.owner = owner;
    options.lease_ms = LEASE_MS;
    options.renew_every_ms = RENEW_MS;
    dlock_status status = dlock_lock_new(&lock, client, "leader", &options);
    if (status == DLOCK_OK) status = dlock_watch(client, "leader", show_leader, NULL, &watcher);
    if (status != DLOCK_OK) {
        fprintf(stderr, "leader: %s\n", dlock_error());
        dlock_lock_free(lock);
        return 1;
    }
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = stop}, NULL);
    while (!is_stopping && status == DLOCK_OK) {
        status = dlock_acquire(lock, DLOCK_WAIT_FOREVER);
        if (status == DLOCK_OK) lead();
    }
    if (!is_stopping) fprintf(stderr, "leader: %s\n", dlock_last_error(lock));
    dlock_watcher_free(watcher);
    signal(SIGTERM, SIG_IGN); /* the lock cannot be canceled any more */
    signal(SIGINT, SIG_IGN);
    dlock_lock_free(lock);
    return is_stopping ? 0 : 1;
}

int main(int argc, char **argv) {
    dlock_client *client;
    if (argc != 3) {
        fprintf(stderr, "usage: leader URL NAME\n");
        return 2;
    }
    if (dlock_client_new_url(&client, argv[1]) != DLOCK_OK) {
        fprintf(stderr, "leader: %s\n", dlock_error());
        return 2;
    }
    int exit_code = take_part(client, argv[2]);
    dlock_client_free(client);
    return exit_code;
}
