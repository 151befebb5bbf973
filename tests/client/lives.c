/* SPDX-License-Identifier: BSD-3-Clause */
/* lives.c - clients and locks beside handlers, signals, children, and each other's end.
 *
 *   lives URL FACT */
#include "program.h"

#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEASE_MS = 60000, SHORT_MS = 1000, WAIT_MS = 30000 };

static const char *url;
static dlock_client *client; /* of the URL alone */
static dlock_lock *lock;

/* -- locks that are freed after their client; AddressSanitizer sees what is used too late */

FACT(locks_work_until_they_are_freed) {
    dlock_lock *held = new_lock(client, "held", LEASE_MS);
    dlock_lock *unused = new_lock(client, "unused", LEASE_MS);
    CHECK(dlock_acquire(held, WAIT_MS) == DLOCK_OK);
    dlock_client_free(client);
    CHECK(dlock_get_state(held) == DLOCK_STATE_HELD);
    CHECK(dlock_extend(held, 0) == DLOCK_OK);
    CHECK(dlock_release(held) == DLOCK_OK);
    CHECK(dlock_acquire(held, WAIT_MS) == DLOCK_OK);
    dlock_lock_free(unused);
    dlock_lock_free(held);
    client = NULL;
}

static void free_both(void *arg, dlock_lock *told, dlock_status status) {
    (void)arg;
    CHECK(status == DLOCK_OK);
    dlock_client_free(client);
    dlock_lock_free(told);
    client = NULL;
}

FACT(both_are_freed_by_the_function_that_is_told) {
    struct pollfd source = {.fd = dlock_client_fd(client), .events = POLLIN};
    lock = new_lock(client, "asked", LEASE_MS);
    CHECK(dlock_acquire_start(lock, WAIT_MS, free_both, NULL) == DLOCK_OK);
    while (client != NULL) {
        CHECK(poll(&source, 1, 2 * WAIT_MS) == 1);
        dlock_client_dispatch(client);
    }
}

/* -- handlers of the program */

static dlock_client *client_with(const dlock_handler *handler, dlock_event_fn on_event) {
    dlock_client_options options = options_for(&url, 1);
    dlock_client *made;
    options.handlers = &handler;
    options.handler_count = 1;
    options.on_event = on_event;
    CHECK(dlock_client_new(&made, &options) == DLOCK_OK);
    return made;
}

static sem_t is_remote_lost;

static dlock_step grant_local(void *arg, dlock_call *call) {
    (void)arg;
    struct timespec now;
    if (strcmp(call->name, "local") != 0) return DLOCK_PASS;
    clock_gettime(CLOCK_BOOTTIME, &now);
    call->asked_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    call->status = DLOCK_OK;
    return DLOCK_ANSWER;
}

static void note_loss(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg, (void)why;
    if (event == DLOCK_EVENT_LOST && strcmp(name, "remote") == 0) sem_post(&is_remote_lost);
}

/* The service does not know the lock. Once the loss of another one is told, a loss of this one
 * would have been told as well. */
FACT(a_lock_that_a_handler_grants_is_not_lost) {
    dlock_handler handler = {.struct_size = sizeof(handler), .name = "l", .enter = grant_local};
    sem_init(&is_remote_lost, 0, 0);
    dlock_client *handled = client_with(&handler, note_loss);
    dlock_lock *local = new_lock(handled, "local", 0), *remote = new_lock(handled, "remote", 0);
    CHECK(dlock_acquire(local, 0) == DLOCK_OK && dlock_acquire(remote, 0) == DLOCK_OK);
    CHECK(dlock_release_token(handled, "remote", dlock_token(remote), NULL, 0) == DLOCK_OK);
    sem_wait(&is_remote_lost);
    CHECK(dlock_get_state(local) == DLOCK_STATE_HELD && dlock_extend(local, 0) == DLOCK_OK);
    dlock_lock_free(remote);
    dlock_lock_free(local);
    dlock_client_free(handled);
    sem_destroy(&is_remote_lost);
}

static dlock_status reply;
static int releases;

static dlock_step answer_the_first_release(void *arg, dlock_call *call) {
    (void)arg;
    if (call->operation != DLOCK_RELEASING || releases++ > 0) return DLOCK_PASS;
    call->status = reply;
    return DLOCK_ANSWER;
}

/* Other threads of the process get the lock all the same: at once, or when the lease has ended. */
static void check_release_that_is(dlock_status answer, bool is_hot) {
    dlock_handler handler = {
        .struct_size = sizeof(handler), .name = "r", .enter = answer_the_first_release};
    dlock_client *handled = client_with(&handler, NULL);
    reply = answer;
    if (is_hot) CHECK(dlock_hotspot_add(handled, "lock") == DLOCK_OK);
    dlock_lock *first = new_lock(handled, "lock", answer == DLOCK_OK ? SHORT_MS : LEASE_MS);
    dlock_lock *second = new_lock(handled, "lock", LEASE_MS);
    CHECK(dlock_acquire(first, WAIT_MS) == DLOCK_OK);
    CHECK(dlock_release(first) == answer);
    dlock_lock_free(first);
    CHECK(dlock_acquire(second, WAIT_MS) == DLOCK_OK);
    CHECK(dlock_release(second) == DLOCK_OK);
    dlock_lock_free(second);
    dlock_client_free(handled);
}

FACT(a_release_that_a_handler_refuses_keeps_the_lock_from_nobody) {
    check_release_that_is(DLOCK_LIMITED, false);
}

FACT(a_release_that_a_handler_refuses_keeps_a_hot_name_from_nobody) {
    check_release_that_is(DLOCK_LIMITED, true);
}

FACT(a_release_that_a_handler_takes_for_itself_keeps_the_lock_from_nobody) {
    check_release_that_is(DLOCK_OK, false);
}

FACT(a_release_that_a_handler_takes_for_itself_keeps_a_hot_name_from_nobody) {
    check_release_that_is(DLOCK_OK, true);
}

/* -- a child with a client of its own, beside a parent that holds a lock */

static void be_the_child(const char *parents_token) {
    dlock_client_options options = options_for(&url, 1);
    dlock_client *own_client;
    CHECK(dlock_client_new(&own_client, &options) == DLOCK_OK);
    dlock_lock *parents = new_lock(own_client, "parent's", 0);
    dlock_lock *own = new_lock(own_client, "child's", 0);
    CHECK(dlock_try_acquire(parents) == DLOCK_BUSY);
    CHECK(dlock_acquire(own, WAIT_MS) == DLOCK_OK);
    CHECK(strcmp(dlock_token(own), parents_token) != 0);
    CHECK(dlock_release(own) == DLOCK_OK);
    dlock_lock_free(parents);
    dlock_lock_free(own);
    dlock_client_free(own_client);
    _exit(0);
}

FACT(a_child_has_a_client_of_its_own_and_leaves_the_parents_alone) {
    int ended;
    lock = new_lock(client, "parent's", LEASE_MS);
    CHECK(dlock_acquire(lock, WAIT_MS) == DLOCK_OK);
    pid_t child = fork();
    if (child == 0) be_the_child(dlock_token(lock));
    CHECK(child > 0 && waitpid(child, &ended, 0) == child && ended == 0);
    CHECK(dlock_extend(lock, 0) == DLOCK_OK && dlock_release(lock) == DLOCK_OK);
    CHECK(dlock_acquire(lock, WAIT_MS) == DLOCK_OK && dlock_release(lock) == DLOCK_OK);
    dlock_client_stats stats = stats_of(client);
    CHECK(stats.acquired == 2 && stats.commands == 5);
    dlock_lock_free(lock);
}

/* -- waits that a signal ends, or not; they print their status */

static void on_end(int number) {
    (void)number;
    dlock_cancel(lock);
}

static void on_nothing(int number) {
    (void)number;
}

static void wait_for_signal(bool has_come_before) {
    lock = new_lock(client, "lock", 0);
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_handler = i < 2 ? on_end : on_nothing};
        sigaction((int[]){SIGTERM, SIGINT, SIGUSR1}[i], &action, NULL);
    }
    if (has_come_before) raise(SIGTERM);
    printf("%s\n", dlock_status_name(dlock_acquire(lock, DLOCK_WAIT_FOREVER)));
    dlock_lock_free(lock);
}

FACT(a_signal_comes_during_the_wait) {
    wait_for_signal(false);
}

FACT(a_signal_has_come_before_the_wait) {
    wait_for_signal(true);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    url = argv[1];
    CHECK(dlock_client_new_url(&client, url) == DLOCK_OK);
    int code = run_fact(argv[2]);
    dlock_client_free(client);
    return code;
}
