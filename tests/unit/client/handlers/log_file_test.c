/* SPDX-License-Identifier: BSD-3-Clause */
/* log_file_test.c - a log in places where files do not behave. Rolling over and sharing are tested
 * with the whole library, by test_access_log.py. */
#define _GNU_SOURCE /* as log_file.c */
#include "base/platform.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

/* What the thread of the log does. Its time passes only while it polls. */
static struct {
    atomic_int writes;
    atomic_int_least64_t now_us;
    bool is_idle;      /* it waits for lines; locked by the mutex of the log */
    atomic_int strays; /* unlocks of a mutex that the thread had not locked */
} fake;

static int64_t fake_now_us(const clock_source *clock) {
    (void)clock;
    return atomic_load(&fake.now_us);
}

static int fake_poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    int ready = poll(fds, count, 0);
    if (ready == 0) atomic_fetch_add(&fake.now_us, timeout_ms * 1000);
    sched_yield();
    return ready;
}

static ssize_t fake_write(int fd, const void *bytes, size_t size) {
    atomic_fetch_add(&fake.writes, 1);
    return write(fd, bytes, size);
}

static int fake_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    fake.is_idle = true;
    int fault = pthread_cond_wait(condition, mutex);
    fake.is_idle = false;
    return fault;
}

/* A missing lock is seen in every run, not only when two threads meet. */
static int fake_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *none) {
    pthread_mutexattr_t checked;
    (void)none;
    pthread_mutexattr_init(&checked);
    pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
    int fault = pthread_mutex_init(mutex, &checked);
    pthread_mutexattr_destroy(&checked);
    return fault;
}

static int fake_unlock(pthread_mutex_t *mutex) {
    int fault = pthread_mutex_unlock(mutex);
    if (fault != 0) atomic_fetch_add(&fake.strays, 1);
    return fault;
}

#define clock_now_us         fake_now_us
#define poll                 fake_poll
#define write                fake_write
#define pthread_cond_wait    fake_wait
#define pthread_mutex_init   fake_mutex_init
#define pthread_mutex_unlock fake_unlock
#define run                  log_file_run
#define write_lines          log_file_write_lines
#include "handlers/log_file.c"
#undef run
#undef write_lines

enum { TEXT_SIZE = 1 << 20 };
enum { LINES_TOO_MANY = 3000 }; /* for a pipe and the buffers */

static char dir[200], path[220];
static char text[TEXT_SIZE]; /* what was read */

static void begin(void) {
    snprintf(dir, sizeof(dir), "/tmp/log_file_test.XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    fake.writes = 0;
    fake.is_idle = false;
    fake.strays = 0;
    fake.now_us = 1;
    snprintf(path, sizeof(path), "%s/dlock-access.log", dir);
}

static void end(void) {
    CHECK_EQUAL(fake.strays, 0);
    CHECK(remove(path) == 0);
    CHECK(rmdir(dir) == 0);
}

/* Until the thread has tried to write all lines. */
static void await_idle(log_file *file) {
    for (bool is_idle = false; !is_idle; sched_yield()) {
        pthread_mutex_lock(&file->mutex);
        is_idle = fake.is_idle && file->filling->used == 0;
        pthread_mutex_unlock(&file->mutex);
    }
}

static void write_lines(log_file *file, int count) {
    char line[200];
    for (int i = 0; i < count; i++) {
        snprintf(line, sizeof(line), "line %d %0150d", i, i);
        log_file_write(file, DLOCK_LOG_INFO, line);
    }
}

/* Appends to the text what the descriptor has. */
static void read_more(int fd) {
    size_t length = strlen(text);
    ssize_t count;
    while ((count = read(fd, text + length, TEXT_SIZE - 1 - length)) > 0)
        length += (size_t)count;
    text[length] = '\0';
}

static int count_lines(const char *with) {
    int count = 0;
    for (const char *found = text; (found = strstr(found, with)) != NULL; found++)
        count++;
    return count;
}

static unsigned long long lost_lines(void) {
    unsigned long long sum = 0;
    for (const char *found = text; (found = strstr(found, " lines were lost")) != NULL; found++) {
        const char *number = found;
        while (number > text && number[-1] >= '0' && number[-1] <= '9')
            number--;
        sum += strtoull(number, NULL, 10);
    }
    return sum;
}

TEST(a_plain_file_has_all_lines_once_the_log_is_freed) {
    log_file *file = log_file_new(dir, 7);
    write_lines(file, 100);
    log_file_free(file);
    int fd = open(path, O_RDONLY);
    text[0] = '\0';
    read_more(fd);
    close(fd);
    CHECK_EQUAL(count_lines("INFO line "), 100);
    CHECK_EQUAL(count_lines("\n"), 100);
}

TEST(a_folder_in_place_of_the_file_is_refused) {
    CHECK(mkdir(path, 0700) == 0);
    errno = 0;
    CHECK(log_file_new(dir, 7) == NULL);
    CHECK_EQUAL(errno, EISDIR);
}

TEST(a_pipe_without_a_reader_is_refused_at_once) {
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(log_file_new(dir, 7) == NULL);
    CHECK_EQUAL(fake.now_us, 1);
}

/* Each line is tried once. The number of lost lines is tried before it, and at the end of a buffer,
 * of which there is one for each line at most, and an empty one at the end. */
TEST(a_full_disk_costs_no_time_and_holds_nobody_up) {
    CHECK(symlink("/dev/full", path) == 0);
    log_file *file = log_file_new(dir, 7);
    write_lines(file, 100);
    await_idle(file);
    log_file_free(file);
    CHECK(fake.writes >= 100 && fake.writes <= 3 * 100 + 1);
    CHECK_EQUAL(fake.now_us, 1);
}

TEST(a_pipe_that_nobody_reads_holds_up_neither_writers_nor_free_for_long) {
    CHECK(mkfifo(path, 0600) == 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    log_file *file = log_file_new(dir, 7);
    write_lines(file, LINES_TOO_MANY);
    while (atomic_load(&fake.now_us) == 1) /* until the thread waits for the reader */
        sched_yield();
    int64_t freed_us = atomic_load(&fake.now_us);
    log_file_free(file); /* a thread left behind would be a leak to the sanitizer */
    CHECK(fake.now_us >= freed_us + LAST_CHANCE_US);
    close(reader);
}

TEST(a_pipe_whose_reader_comes_late_tells_how_many_lines_were_lost) {
    CHECK(mkfifo(path, 0600) == 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    log_file *file = log_file_new(dir, 7);
    write_lines(file, LINES_TOO_MANY);
    text[0] = '\0';
    while ((int)lost_lines() + count_lines("INFO line ") < LINES_TOO_MANY) {
        sched_yield();
        read_more(reader);
    }
    log_file_write(file, DLOCK_LOG_INFO, "afterwards");
    log_file_free(file);
    read_more(reader);
    CHECK(lost_lines() > 0);
    CHECK_EQUAL((int64_t)lost_lines() + count_lines("INFO line "), LINES_TOO_MANY);
    CHECK_EQUAL(count_lines("INFO afterwards\n"), 1);
    close(reader);
}

TEST(a_reader_that_goes_away_kills_nobody_and_no_number_is_forgotten) {
    enum { LINES = 200 };
    CHECK(mkfifo(path, 0600) == 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    log_file *file = log_file_new(dir, 7);
    close(reader);
    for (int i = 0; i < LINES; i++) {
        log_file_write(file, DLOCK_LOG_INFO, "unheard");
        if (i % 50 == 0) await_idle(file); /* so that gap lines fail as well */
    }
    await_idle(file);
    reader = open(path, O_RDONLY | O_NONBLOCK);
    log_file_write(file, DLOCK_LOG_ERROR, "heard");
    log_file_free(file);
    text[0] = '\0';
    read_more(reader);
    CHECK_EQUAL(lost_lines(), LINES);
    CHECK_EQUAL(count_lines("ERROR heard\n"), 1);
    close(reader);
}

int main(void) {
    return unit_main(begin, end);
}
