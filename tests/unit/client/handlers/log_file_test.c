/* SPDX-License-Identifier: BSD-3-Clause */
/* log_file_test.c - a log in places where files do not behave. Rolling over and sharing are tested
 * with the whole library, by test_access_log.py. */
#include "handlers/access_log.h"

#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_SIZE = 200, TEXT_SIZE = 1 << 20 };

static char dir[PATH_SIZE], path[PATH_SIZE + 20];
static char text[TEXT_SIZE]; /* what was read */

static void begin(void) {
    snprintf(dir, sizeof(dir), "/tmp/log_file_test.XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof(path), "%s/dlock-access.log", dir);
}

static void end(void) {
    CHECK(remove(path) == 0);
    CHECK(rmdir(dir) == 0);
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void nap(long ms) {
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
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

static void a_plain_file_has_all_lines_once_the_log_is_freed(void) {
    begin();
    log_file *file = log_file_new(dir, 7);
    write_lines(file, 100);
    log_file_free(file);
    int fd = open(path, O_RDONLY);
    text[0] = '\0';
    read_more(fd);
    close(fd);
    CHECK_EQUAL(count_lines("INFO line "), 100);
    CHECK_EQUAL(count_lines("\n"), 100);
    end();
}

static void a_folder_in_place_of_the_file_is_refused(void) {
    begin();
    CHECK(mkdir(path, 0700) == 0);
    errno = 0;
    CHECK(log_file_new(dir, 7) == NULL);
    CHECK_EQUAL(errno, EISDIR);
    end();
}

static void a_pipe_without_a_reader_is_refused_at_once(void) {
    begin();
    CHECK(mkfifo(path, 0600) == 0);
    double before = seconds(CLOCK_MONOTONIC);
    CHECK(log_file_new(dir, 7) == NULL);
    CHECK(seconds(CLOCK_MONOTONIC) - before < 1);
    end();
}

static void a_full_disk_costs_no_time_and_holds_nobody_up(void) {
    begin();
    CHECK(symlink("/dev/full", path) == 0);
    log_file *file = log_file_new(dir, 7);
    write_lines(file, 1000);
    nap(100);
    double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    nap(300);
    CHECK(seconds(CLOCK_PROCESS_CPUTIME_ID) - before < 0.1);
    before = seconds(CLOCK_MONOTONIC);
    log_file_free(file);
    CHECK(seconds(CLOCK_MONOTONIC) - before < 0.5);
    end();
}

static void a_pipe_that_nobody_reads_holds_up_neither_writers_nor_free_for_long(void) {
    begin();
    CHECK(mkfifo(path, 0600) == 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    log_file *file = log_file_new(dir, 7);
    double before = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    write_lines(file, 5000); /* more than pipe and buffer take */
    CHECK(seconds(CLOCK_MONOTONIC) - before < 1);
    before = seconds(CLOCK_MONOTONIC);
    log_file_free(file); /* a thread left behind would be a leak to the sanitizer */
    CHECK(seconds(CLOCK_MONOTONIC) - before < 2);
    CHECK(seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu < 1);
    close(reader);
    end();
}

static void a_pipe_whose_reader_comes_late_tells_how_many_lines_were_lost(void) {
    enum { LINES = 5000 };
    begin();
    CHECK(mkfifo(path, 0600) == 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    log_file *file = log_file_new(dir, 7);
    write_lines(file, LINES);
    text[0] = '\0';
    for (int i = 0; i < 500 && (int)lost_lines() + count_lines("INFO line ") < LINES; i++) {
        nap(10);
        read_more(reader);
    }
    log_file_write(file, DLOCK_LOG_INFO, "afterwards");
    log_file_free(file);
    read_more(reader);
    CHECK(lost_lines() > 0);
    CHECK_EQUAL((int64_t)lost_lines() + count_lines("INFO line "), LINES);
    CHECK_EQUAL(count_lines("INFO afterwards\n"), 1);
    close(reader);
    end();
}

static void a_reader_that_goes_away_kills_nobody_and_no_number_is_forgotten(void) {
    enum { LINES = 200 };
    begin();
    CHECK(mkfifo(path, 0600) == 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    log_file *file = log_file_new(dir, 7);
    close(reader);
    for (int i = 0; i < LINES; i++) {
        log_file_write(file, DLOCK_LOG_INFO, "unheard");
        if (i % 50 == 0) nap(5); /* so that gap lines fail as well */
    }
    nap(50);
    reader = open(path, O_RDONLY | O_NONBLOCK);
    log_file_write(file, DLOCK_LOG_ERROR, "heard");
    log_file_free(file);
    text[0] = '\0';
    read_more(reader);
    CHECK_EQUAL((int64_t)lost_lines(), LINES);
    CHECK_EQUAL(count_lines("ERROR heard\n"), 1);
    close(reader);
    end();
}

int main(void) {
    UNIT_RUN(a_plain_file_has_all_lines_once_the_log_is_freed);
    UNIT_RUN(a_folder_in_place_of_the_file_is_refused);
    UNIT_RUN(a_pipe_without_a_reader_is_refused_at_once);
    UNIT_RUN(a_full_disk_costs_no_time_and_holds_nobody_up);
    UNIT_RUN(a_pipe_that_nobody_reads_holds_up_neither_writers_nor_free_for_long);
    UNIT_RUN(a_pipe_whose_reader_comes_late_tells_how_many_lines_were_lost);
    UNIT_RUN(a_reader_that_goes_away_kills_nobody_and_no_number_is_forgotten);
    return unit_summary();
}
