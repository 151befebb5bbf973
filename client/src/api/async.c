/* SPDX-License-Identifier: BSD-3-Clause */
/* async.c - calls that return at once, and the dispatch that goes on with them.
 *
 *   start      lock_begin() -> the chain as far as it goes. Then the call is suspended in the
 *              loop, ready or not
 *   dispatch   each call that is ready: the rest of the chain -> lock_settle() -> done()
 *   free       of a handle with a call under way: the chain ends at once, as canceled -> done()
 *
 * Handlers, on_event and done() run not locked, in the thread that starts, dispatches or frees.
 * Nothing touches the handle after done(), which may free it. */
#include "api/lock.h"

/* Nothing to suspend: the next dispatch is to take the call. */
static void make_ready(dlock_lock *lock) {
    loop *loop = lock->client->loop;
    loop_lock(loop);
    lock->call.waiter.is_ready = true;
    loop_suspend(loop, &lock->call.waiter);
    loop_unlock(loop);
}

/* The background thread is to read the replies. */
static dlock_status start_call(dlock_lock *lock, call_plan plan, dlock_done_fn done, void *arg) {
    if (lock == NULL || done == NULL)
        return error_set(DLOCK_INVALID, lock == NULL ? NO_LOCK : "done is NULL");
    if (lock->is_ending) return error_set(DLOCK_INVALID, LOCK_ENDS);
    if (!client_start_background(lock->client))
        return error_set(DLOCK_NO_MEMORY, "no thread to go on with the call");
    bool is_answered = !lock_begin(lock, &plan);
    bool is_refused = plan.answered == DLOCK_INVALID || plan.answered == DLOCK_NO_MEMORY;
    if (is_answered && is_refused) return plan.answered;
    lock->done = done;
    lock->done_arg = arg;
    lock->is_answered = is_answered;
    if (is_answered || chain_go_on(lock_chain(lock), &lock->call)) make_ready(lock);
    return DLOCK_OK;
}

dlock_status dlock_acquire_start(dlock_lock *lock, int64_t wait_ms, dlock_done_fn done, void *arg) {
    return dlock_acquire_for_start(lock, wait_ms, 0, done, arg);
}

dlock_status dlock_acquire_for_start(dlock_lock *lock, int64_t wait_ms, uint32_t lease_ms,
                                     dlock_done_fn done, void *arg) {
    call_plan plan = {.operation = DLOCK_ACQUIRING, .wait_ms = wait_ms, .lease_ms = lease_ms};
    return start_call(lock, plan, done, arg);
}

dlock_status dlock_extend_start(dlock_lock *lock, uint32_t lease_ms, dlock_done_fn done,
                                void *arg) {
    return start_call(lock, (call_plan){.operation = DLOCK_EXTENDING, .lease_ms = lease_ms}, done,
                      arg);
}

dlock_status dlock_release_start(dlock_lock *lock, dlock_done_fn done, void *arg) {
    return start_call(lock, (call_plan){.operation = DLOCK_RELEASING}, done, arg);
}

dlock_status dlock_guarded_start(dlock_lock *lock, size_t argc, const char *const *argv,
                                 const size_t *argvlen, dlock_reply *reply, dlock_done_fn done,
                                 void *arg) {
    guarded_words words = {.count = argc, .words = argv, .lengths = argvlen};
    return start_call(lock, (call_plan){.words = &words, .reply = reply}, done, arg);
}

/* -- dispatch */

/* True: the call is over, and the program was told. The handle may be gone. */
static bool resume_call(dlock_lock *lock) {
    dlock_done_fn done = lock->done;
    void *arg = lock->done_arg;
    bool is_answered = lock->is_answered;
    if (!is_answered && !chain_go_on(lock_chain(lock), &lock->call)) return false;
    lock->done = NULL; /* settling tells of events, and on_event may use the lock */
    dlock_status status = is_answered ? lock->call.pub.status : lock_settle(lock);
    done(arg, lock, status);
    return true;
}

int dlock_client_fd(dlock_client *client) {
    if (client == NULL) return -1;
    loop_lock(client->loop);
    int fd = loop_dispatch_fd(client->loop);
    loop_unlock(client->loop);
    return fd;
}

static dlock_lock *take_ready(loop *loop) {
    loop_lock(loop);
    waiter *ready = loop_next_ready(loop);
    loop_unlock(loop);
    return ready == NULL ? NULL : container_of(ready, dlock_lock, call.waiter);
}

size_t dlock_client_dispatch(dlock_client *client) {
    if (client == NULL) return 0;
    loop *loop = client->loop;
    size_t count = 0;
    dlock_lock *ready;
    loop_lock(loop);
    bool is_begun = loop_begin_dispatch(loop);
    loop_unlock(loop);
    if (!is_begun) return 0;
    client_share(client); /* done() may free the client and its last lock */
    loop_do_background_work(loop);
    while ((ready = take_ready(loop)) != NULL)
        count += resume_call(ready);
    loop_lock(loop);
    loop_end_dispatch(loop);
    loop_unlock(loop);
    client_unshare(client);
    return count;
}

/* -- the end of a handle */

void lock_stop_call(dlock_lock *lock) {
    loop *loop = lock->client->loop;
    if (lock->done == NULL) return;
    loop_lock(loop);
    loop_unsuspend(&lock->call.waiter);
    loop_unlock(loop);
    if (!lock->is_answered) {
        atomic_store(&lock->call.stop, CALL_STOPPED); /* of a release and an extend, too */
        chain_finish(lock_chain(lock), &lock->call);
        lock_settle(lock);
    }
    lock->done(lock->done_arg, lock, DLOCK_CANCELED);
    lock->done = NULL;
}
