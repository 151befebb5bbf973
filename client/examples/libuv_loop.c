/* SPDX-License-Identifier: BSD-3-Clause */
/* libuv_loop.c - a lock that is held for a while in a program on libuv.
 *
 *   cc -o libuv_loop libuv_loop.c $(pkg-config --cflags --libs dlock libuv)
 *   ./libuv_loop redis://127.0.0.1:6379 NAME HOLD_MS
 *
 * A uv_poll_t on the client's descriptor is all that connects the two. The lock is renewed while
 * it is held; the library starts no thread, so the loop does that.
 *
 * Exit code 0: the lock was ours all the time. 1: it was not. 2: called in a wrong way. */
#include <dlock.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

enum { WAIT_MS = 5000, LEASE_MS = 6000 };

static uv_poll_t source; /* something to dispatch */
static uv_timer_t timer; /* the end of the work */
static long hold_ms;
static int exit_code = 1;

static void dispatch(uv_poll_t *handle, int status, int events) {
    (void)status, (void)events;
    dlock_client_dispatch(handle->data);
}

/* Without handles, the loop ends. */
static void end(const dlock_lock *lock, dlock_status status) {
    if (status != DLOCK_OK)
        fprintf(stderr, "libuv_loop: %s: %s\n", dlock_status_text(status), dlock_last_error(lock));
    exit_code = status != DLOCK_OK;
    uv_close((uv_handle_t *)&source, NULL);
    uv_close((uv_handle_t *)&timer, NULL);
}

static void released(void *arg, dlock_lock *lock, dlock_status status) {
    (void)arg;
    end(lock, status);
}

static void give_back(uv_timer_t *handle) {
    dlock_lock *lock = handle->data;
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
    timer.data = lock;
    uv_timer_start(&timer, give_back, (uint64_t)hold_ms, 0);
}

static void run(dlock_client *client, dlock_lock *lock) {
    uv_loop_t *loop = uv_default_loop();
    source.data = client;
    uv_poll_init(loop, &source, dlock_client_fd(client));
    uv_poll_start(&source, UV_READABLE, dispatch);
    uv_timer_init(loop, &timer);
    dlock_status status = dlock_acquire_start(lock, WAIT_MS, acquired, NULL);
    if (status != DLOCK_OK) end(lock, status);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: libuv_loop URL NAME HOLD_MS\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    hold_ms = atol(argv[3]);
    dlock_lock_options kept;
    dlock_lock_options_init(&kept);
    kept.lease_ms = LEASE_MS;
    kept.renew_every_ms = LEASE_MS / 3;
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const *)&argv[1];
    options.url_count = 1;
    options.no_threads = true;
    dlock_client *client;
    dlock_lock *lock;
    if (dlock_client_new(&client, &options) != DLOCK_OK ||
        dlock_lock_new(&lock, client, argv[2], &kept) != DLOCK_OK) {
        fprintf(stderr, "libuv_loop: %s\n", dlock_error());
        return 2;
    }
    run(client, lock);
    dlock_lock_free(lock);
    dlock_client_free(client);
    return exit_code;
}
