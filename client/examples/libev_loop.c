/* SPDX-License-Identifier: BSD-3-Clause */
/* libev_loop.c - a lock that is held for a while in a program on libev.
 *
 *   cc -o libev_loop libev_loop.c $(pkg-config --cflags --libs dlock) -lev
 *   ./libev_loop redis://127.0.0.1:6379 NAME HOLD_MS
 *
 * An ev_io on the client's descriptor is all that connects the two. Here a thread of the library
 * renews the lock while it is held, however long the loop is busy with something else.
 *
 * Exit code 0: the lock was ours all the time. 1: it was not. 2: called in a wrong way. */
#include <dlock.h>
#include <ev.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAIT_MS = 5000, LEASE_MS = 6000 };

static struct ev_loop *loop;
static ev_io source;   /* something to dispatch */
static ev_timer timer; /* the end of the work */
static long hold_ms;
static int exit_code = 1;

static void dispatch(struct ev_loop *own, ev_io *watcher, int events) {
    (void)own, (void)events;
    dlock_client_dispatch(watcher->data);
}

static void end(const dlock_lock *lock, dlock_status status) {
    if (status != DLOCK_OK)
        fprintf(stderr, "libev_loop: %s: %s\n", dlock_status_text(status), dlock_last_error(lock));
    exit_code = status != DLOCK_OK;
    ev_break(loop, EVBREAK_ALL);
}

static void released(void *arg, dlock_lock *lock, dlock_status status) {
    (void)arg;
    end(lock, status);
}

static void give_back(struct ev_loop *own, ev_timer *watcher, int events) {
    (void)own, (void)events;
    dlock_lock *lock = watcher->data;
    dlock_status status = dlock_release_start(lock, released, NULL);
    if (status != DLOCK_OK) end(lock, status);
}

static void acquired(void *arg, dlock_lock *lock, dlock_status status) {
    (void)arg;
    if (status != DLOCK_OK) {
        end(lock, status);
        return;
    }
    printf("it is ours, with fence %" PRIu64 "\n", dlock_fence(lock));
    ev_timer_init(&timer, give_back, (double)hold_ms / 1000, 0);
    timer.data = lock;
    ev_timer_start(loop, &timer);
}

static void run(dlock_client *client, dlock_lock *lock) {
    loop = ev_default_loop(0);
    ev_io_init(&source, dispatch, dlock_client_fd(client), EV_READ);
    source.data = client;
    ev_io_start(loop, &source);
    dlock_status status = dlock_acquire_start(lock, WAIT_MS, acquired, NULL);
    if (status != DLOCK_OK)
        end(lock, status);
    else
        ev_run(loop, 0);
    ev_io_stop(loop, &source);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: libev_loop URL NAME HOLD_MS\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    hold_ms = atol(argv[3]);
    dlock_lock_options kept;
    dlock_lock_options_init(&kept);
    kept.lease_ms = LEASE_MS;
    kept.renew_every_ms = LEASE_MS / 3;
    dlock_client *client;
    dlock_lock *lock;
    if (dlock_client_new_url(&client, argv[1]) != DLOCK_OK ||
        dlock_lock_new(&lock, client, argv[2], &kept) != DLOCK_OK) {
        fprintf(stderr, "libev_loop: %s\n", dlock_error());
        return 2;
    }
    run(client, lock);
    dlock_lock_free(lock);
    dlock_client_free(client);
    return exit_code;
}
