/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.c - preloaded into a server, so that a test can set its clocks and count its turns.
 *
 * DLOCK_TEST_CLOCK names a file that test and server map into memory, so a change counts at
 * once, but for lease_ns:
 *
 *   wall_ns    by how much the wall clock of the server is ahead of the machine's
 *   lease_ns   the same for CLOCK_BOOTTIME, on which the module has its leases and waits
 *   turns      how often the event loop of the server was about to sleep
 *   is_asleep  whether the server sleeps in a command, as DEBUG SLEEP does
 *   stall_ns   how long the server is stopped each time that it has read CLOCK_BOOTTIME
 *
 * A change of lease_ns counts when the event loop or DEBUG SLEEP sleeps, as if for so long.
 * The kernel knows nothing of it, so the timerfd is set again then. SIGUSR2 wakes the event loop,
 * or ends DEBUG SLEEP, and does nothing else. CLOCK_MONOTONIC goes on as always.
 *
 * Only system calls: no dlsym() and no memory, since an allocator may ask for the time as well. But
 * for dlopen(): Valkey binds a module to the C library before all that is preloaded, which must not
 * be. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000, MICROSECOND_NS = 1000 };

typedef struct shared_clock {
    volatile int64_t wall_ns, lease_ns, turns, is_asleep, stall_ns;
} shared_clock;

static shared_clock no_clock;
static shared_clock *shared = &no_clock;
static int alarm_fd = -1;
static struct itimerspec alarm_spec; /* in the time of the server */
static int64_t lease_ns;             /* what counts now */

static void on_wake(int number) {
    (void)number;
}

__attribute__((constructor)) static void map_clock(void) {
    const char *path = getenv("DLOCK_TEST_CLOCK");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    shared = mapped;
    lease_ns = shared->lease_ns;
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_wake, .sa_flags = SA_RESTART}, NULL);
}

static struct timespec shifted(struct timespec now, int64_t by_ns) {
    int64_t ns = now.tv_sec * (int64_t)SECOND_NS + now.tv_nsec + by_ns;
    return (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        *now = shifted(*now, shared->wall_ns);
    if (clock == CLOCK_BOOTTIME) {
        struct timespec stall = shifted((struct timespec){0}, shared->stall_ns);
        *now = shifted(*now, lease_ns);
        if (shared->stall_ns != 0) syscall(SYS_nanosleep, &stall, NULL);
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec wall;
    if (clock_gettime(CLOCK_REALTIME, &wall) != 0) return -1;
    *now = (struct timeval){.tv_sec = wall.tv_sec, .tv_usec = wall.tv_nsec / MICROSECOND_NS};
    return 0;
}

time_t time(time_t *result) {
    struct timespec wall;
    if (clock_gettime(CLOCK_REALTIME, &wall) != 0) return -1;
    if (result != NULL) *result = wall.tv_sec;
    return wall.tv_sec;
}

/* A time in the past is 1 ns: 0 would switch the timerfd off. */
static int set_alarm(void) {
    struct itimerspec spec = alarm_spec;
    if (spec.it_value.tv_sec != 0 || spec.it_value.tv_nsec != 0) {
        spec.it_value = shifted(spec.it_value, -lease_ns);
        if (spec.it_value.tv_sec < 0 || spec.it_value.tv_nsec < 0 ||
            (spec.it_value.tv_sec == 0 && spec.it_value.tv_nsec == 0))
            spec.it_value = (struct timespec){.tv_nsec = 1};
    }
    return (int)syscall(SYS_timerfd_settime, alarm_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *spec, struct itimerspec *old) {
    if (flags != TFD_TIMER_ABSTIME || old != NULL)
        return (int)syscall(SYS_timerfd_settime, fd, flags, spec, old);
    alarm_fd = fd;
    alarm_spec = *spec;
    return set_alarm();
}

static void let_time_pass(void) {
    if (lease_ns == shared->lease_ns) return;
    lease_ns = shared->lease_ns;
    if (alarm_fd >= 0) set_alarm();
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int timeout_ms) {
    if (syscall(SYS_gettid) != getpid())
        return (int)syscall(SYS_epoll_pwait, epoll, events, count, timeout_ms, NULL, _NSIG / 8);
    shared->turns++;
    let_time_pass();
    int ready = (int)syscall(SYS_epoll_pwait, epoll, events, count, timeout_ms, NULL, _NSIG / 8);
    int error = errno;
    let_time_pass();
    errno = error;
    return ready;
}

int nanosleep(const struct timespec *length, struct timespec *left) {
    bool is_main = syscall(SYS_gettid) == getpid();
    if (is_main) shared->is_asleep = 1;
    int result = (int)syscall(SYS_nanosleep, length, left);
    if (!is_main) return result;
    int error = errno;
    shared->is_asleep = 0;
    let_time_pass();
    errno = error;
    return result;
}

void *dlopen(const char *path, int flags) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next(path, flags & ~RTLD_DEEPBIND);
}
