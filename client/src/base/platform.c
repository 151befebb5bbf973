/* SPDX-License-Identifier: BSD-3-Clause */
/* platform.c - see platform.h. */
#define _GNU_SOURCE /* CLOCK_BOOTTIME, syscall(2), adaptive mutexes */
#include "base/platform.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* -- the clock */

static int64_t read_us(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t now_us(const clock_source *clock) {
    (void)clock;
    return read_us(CLOCK_BOOTTIME);
}

static int64_t unix_us(const clock_source *clock) {
    (void)clock;
    return read_us(CLOCK_REALTIME);
}

static uint64_t random_bits(const clock_source *clock) {
    (void)clock;
    uint64_t bits;
    return getentropy(&bits, sizeof(bits)) == 0 ? bits : 0;
}

const clock_source *clock_system(void) {
    static const clock_source system = {now_us, unix_us, random_bits, NULL};
    return &system;
}

/* -- threads */

/* A fault that is blocked ends the process without the program's handler, which the crash reports
 * of a sanitizer, a language runtime or the program itself rely on. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

bool thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    pthread_t detached;
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&blocked, faults[i]);
    int fault = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (fault == 0) {
        fault = pthread_create(thread != NULL ? thread : &detached, NULL, run, arg);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (fault == 0 && thread == NULL) pthread_detach(detached);
    if (fault != 0) errno = fault;
    return fault == 0;
}

uint64_t thread_number(void) {
    static atomic_uint_least64_t last;
    static _Thread_local uint64_t number;
    if (number == 0) number = atomic_fetch_add(&last, 1) + 1;
    return number;
}

void mutex_init(pthread_mutex_t *mutex) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
#ifdef __GLIBC__ /* musl has no adaptive mutexes: a thread sleeps at once */
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(mutex, &kind);
    pthread_mutexattr_destroy(&kind);
}

void wakeup_wait(wakeup *wakeup, unsigned seen, int64_t timeout_us) {
    struct timespec timeout = {.tv_sec = (time_t)(timeout_us / 1000000),
                               .tv_nsec = (long)(timeout_us % 1000000 * 1000)};
    syscall(SYS_futex, &wakeup->count, FUTEX_WAIT_PRIVATE, seen, timeout_us < 0 ? NULL : &timeout,
            NULL, 0);
}

void wakeup_wake(wakeup *wakeup) {
    syscall(SYS_futex, &wakeup->count, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void wakeup_signal(wakeup *wakeup) {
    int before = errno; /* of the code that a signal handler interrupted */
    wakeup_mark(wakeup);
    wakeup_wake(wakeup);
    errno = before;
}
