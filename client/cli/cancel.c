/* SPDX-License-Identifier: BSD-3-Clause */
/* cancel.c - see cancel.h.
 *
 * An acquire that is about to return may forget dlock_cancel(). So the handler keeps a flag, which
 * is looked at before and after each call, and repeats the cancel every second until the end. */
#include "cancel.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { REPEAT_S = 1 };

static _Atomic(dlock_lock *) awaited;
static volatile sig_atomic_t canceled_by;

static void on_signal(int number) {
    int saved = errno;
    dlock_lock *lock = atomic_load(&awaited);
    if (canceled_by == 0) canceled_by = number;
    if (lock != NULL) {
        dlock_cancel(lock);
        alarm(REPEAT_S);
    }
    errno = saved;
}

void cancel_catch(const int signals[]) {
    struct sigaction cancel = {.sa_handler = on_signal};
    sigaction(SIGALRM, &cancel, NULL);
    for (const int *number = signals; *number != 0; number++)
        sigaction(*number, &cancel, NULL);
}

int cancel_signal(void) {
    return canceled_by;
}

static dlock_status acquire(dlock_lock *lock, int64_t wait_ms, void (*on_busy)(void *arg),
                            void *arg) {
    bool is_forever = wait_ms == DLOCK_WAIT_FOREVER;
    dlock_status status = DLOCK_BUSY;
    if (canceled_by != 0) return DLOCK_CANCELED;
    if (is_forever || on_busy != NULL) {
        status = dlock_try_acquire(lock);
        if (status == DLOCK_OK || wait_ms == DLOCK_NO_WAIT) return status;
        if (is_forever && status != DLOCK_BUSY) return status;
        if (status == DLOCK_BUSY && on_busy != NULL) on_busy(arg);
    }
    return canceled_by != 0 ? DLOCK_CANCELED : dlock_acquire(lock, wait_ms);
}

dlock_status cancel_acquire(dlock_lock *lock, int64_t wait_ms, void (*on_busy)(void *arg),
                            void *arg) {
    atomic_store(&awaited, lock);
    dlock_status status = acquire(lock, wait_ms, on_busy, arg);
    atomic_store(&awaited, NULL);
    if (canceled_by == 0) return status;
    if (status == DLOCK_OK) dlock_release(lock);
    return DLOCK_CANCELED;
}
