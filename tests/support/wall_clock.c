/* SPDX-License-Identifier: BSD-3-Clause */
/* wall_clock.c - preloaded into a server, so that a test can set the wall clock of that server.
 *
 * DLOCK_TEST_WALL_CLOCK names a file of eight bytes: by how many nanoseconds the wall clock is
 * ahead of the machine's. The file is mapped into memory, so a write to it takes effect at once.
 * The clocks that nobody can set (CLOCK_MONOTONIC, CLOCK_BOOTTIME) go on as always.
 *
 * Only system calls: no dlsym() and no memory, since an allocator may ask for the time as well. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000, MICROSECOND_NS = 1000 };

static const int64_t no_offset;
static const volatile int64_t *offset_ns = &no_offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("DLOCK_TEST_WALL_CLOCK");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(*offset_ns), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) offset_ns = mapped;
}

static struct timespec shifted(struct timespec now) {
    int64_t ns = now.tv_sec * (int64_t)SECOND_NS + now.tv_nsec + *offset_ns;
    return (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) *now = shifted(*now);
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
