/* SPDX-License-Identifier: BSD-3-Clause */
/* log_file.c - see access_log.h.
 *
 *   fill    log_file_write() appends to a buffer; once the buffer is full, further lines are lost
 *   write   a thread swaps the buffer for the other one, and writes each line with one write(2), so
 *           that lines of several processes do not mix. Where lines were lost, a line says how
 *           many; while that line cannot be written, the number is not forgotten
 *   roll    a line of a new day goes to a new file, if the file is a regular file
 *
 * The descriptor does not block: a pipe that nobody reads is polled, so that log_file_free() can
 * end the thread. Only a disk that hangs in write(2) can keep the thread; then it is left behind.
 *
 * Invariant: a buffer has whole lines, each with a stamp in front. Losses come after the lines. */
#define _GNU_SOURCE /* syscall, pthread_timedjoin_np */
#include "handlers/access_log.h"

#include "base/platform.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_SIZE = 128 * 1024, DAY_LENGTH = 10, STAMP_SIZE = 40, PATH_SIZE = 4096 };
enum { LAST_CHANCE_US = 800000, POLL_MS = 100, HANG_S = 1 };

#define FILE_NAME "dlock-access.log"
#define OLD_NAMES FILE_NAME ".[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"

typedef struct line_buffer {
    size_t used;
    uint64_t lost; /* lines that found no room */
    char bytes[BUFFER_SIZE];
} line_buffer;

struct log_file {
    char dir[PATH_SIZE], path[PATH_SIZE];
    size_t keep;
    /* Private to the thread. */
    int fd;
    bool is_regular;
    char day[DAY_LENGTH + 1]; /* of the lines in the file: YYYY-MM-DD */
    bool is_torn;             /* the last line in the file has no end */
    uint64_t lost;            /* lines, not yet told */

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t has_lines;
    atomic_int_least64_t give_up_us; /* when a hanging reader had a last chance; 0: not stopping */
    line_buffer *filling;            /* one of the two; the other is the thread's */
    line_buffer buffers[2];
};

/* -- the file, for the thread */

static bool open_file(log_file *file) {
    struct stat about;
    struct tm day;
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = open(file->path, flags, 0640);
    if (fd < 0) return false;
    if (file->fd >= 0) close(file->fd);
    file->fd = fd;
    bool is_known = fstat(fd, &about) == 0;
    time_t written = is_known && about.st_size > 0 ? about.st_mtime : time(NULL);
    file->is_regular = is_known && S_ISREG(about.st_mode);
    strftime(file->day, sizeof(file->day), "%Y-%m-%d", gmtime_r(&written, &day));
    return true;
}

static int is_old_log(const struct dirent *entry) {
    return fnmatch(OLD_NAMES, entry->d_name, 0) == 0;
}

static void remove_old(const log_file *file) {
    char path[PATH_SIZE + 300];
    struct dirent **found;
    int count = scandir(file->dir, &found, is_old_log, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", file->dir, found[i]->d_name);
        if ((size_t)(count - i) > file->keep) unlink(path);
        free(found[i]);
    }
    if (count >= 0) free(found);
}

/* Fails if there is a file of that name. musl has no renameat2(2). */
static long rename_to_new(const char *path, const char *name) {
    enum { NOREPLACE = 1 };
    return syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, name, NOREPLACE);
}

/* The first of several processes renames the file; the others find the new one. */
static void roll_over(log_file *file, const char *today) {
    char old[PATH_SIZE + DAY_LENGTH + 2];
    struct stat ours, named;
    bool is_still_named = fstat(file->fd, &ours) == 0 && stat(file->path, &named) == 0 &&
                          ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
    snprintf(old, sizeof(old), "%s.%s", file->path, file->day);
    if (is_still_named && rename_to_new(file->path, old) != 0 && errno != EEXIST &&
        stat(old, &named) != 0) /* a file system without RENAME_NOREPLACE */
        rename(file->path, old);
    open_file(file); /* if this fails, the old file goes on */
    memcpy(file->day, today, DAY_LENGTH);
    remove_old(file);
}

/* A pipe is full. False: the log is being freed, and the reader had a last chance. */
static bool wait_for_reader(log_file *file) {
    struct pollfd pipe = {.fd = file->fd, .events = POLLOUT};
    int64_t give_up_us;
    do {
        give_up_us = atomic_load(&file->give_up_us);
        if (give_up_us != 0 && clock_now_us(clock_system()) >= give_up_us) return false;
    } while (poll(&pipe, 1, POLL_MS) == 0);
    return true;
}

/* False: not all was taken. */
static bool write_all(log_file *file, const char *text, size_t length) {
    while (length > 0) {
        ssize_t written = write(file->fd, text, length);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0 && errno == EAGAIN && wait_for_reader(file)) continue;
        if (written <= 0) return false;
        text += written;
        length -= (size_t)written;
        file->is_torn = length > 0;
    }
    return true;
}

/* The line has a stamp and ends with a newline. False: the disk did not take the line. */
static bool write_log_line(log_file *file, const char *line, size_t length) {
    if (file->is_regular && strncmp(line, file->day, DAY_LENGTH) > 0) roll_over(file, line);
    if (file->is_torn && !write_all(file, "\n", 1)) return false;
    return write_all(file, line, length);
}

/* -- the lines */

static void put_stamp(char stamp[STAMP_SIZE], dlock_log_level level) {
    static const char *const names[] = {"INFO", "WARNING", "ERROR"};
    struct timespec now;
    struct tm parts;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &parts));
    snprintf(stamp, STAMP_SIZE, "%s.%03dZ %s ", seconds, (int)(now.tv_nsec / 1000000),
             names[level]);
}

static void tell_lost(log_file *file) {
    char stamp[STAMP_SIZE], line[2 * STAMP_SIZE];
    if (file->lost == 0) return;
    put_stamp(stamp, DLOCK_LOG_ERROR);
    int length = snprintf(line, sizeof(line), "%s%llu lines were lost\n", stamp,
                          (unsigned long long)file->lost);
    if (write_log_line(file, line, (size_t)length)) file->lost = 0;
}

static void write_lines(log_file *file, line_buffer *buffer) {
    const char *line = buffer->bytes, *end = line + buffer->used;
    while (line < end) {
        size_t length = (size_t)((const char *)memchr(line, '\n', (size_t)(end - line)) - line) + 1;
        tell_lost(file);
        if (!write_log_line(file, line, length)) file->lost++;
        line += length;
    }
    file->lost += buffer->lost;
    tell_lost(file);
    buffer->used = buffer->lost = 0;
}

static void *run_log_writer(void *arg) {
    log_file *file = arg;
    bool is_stopping = false;
    pthread_mutex_lock(&file->mutex);
    while (!is_stopping) {
        line_buffer *buffer = file->filling;
        is_stopping = atomic_load(&file->give_up_us) != 0;
        if (buffer->used == 0 && !is_stopping) {
            pthread_cond_wait(&file->has_lines, &file->mutex);
            continue;
        }
        file->filling = buffer == &file->buffers[0] ? &file->buffers[1] : &file->buffers[0];
        pthread_mutex_unlock(&file->mutex);
        write_lines(file, buffer);
        pthread_mutex_lock(&file->mutex);
    }
    pthread_mutex_unlock(&file->mutex);
    return NULL;
}

/* -- public */

log_file *log_file_new(const char *dir, size_t keep) {
    log_file *file = calloc(1, sizeof(*file));
    if (file == NULL) return NULL;
    file->fd = -1;
    file->keep = keep;
    file->filling = &file->buffers[0];
    snprintf(file->dir, sizeof(file->dir), "%s", dir);
    int length = snprintf(file->path, sizeof(file->path), "%s/%s", dir, FILE_NAME);
    pthread_mutex_init(&file->mutex, NULL);
    pthread_cond_init(&file->has_lines, NULL);
    errno = ENAMETOOLONG;
    bool is_open = length < PATH_SIZE && open_file(file);
    if (is_open && thread_start(&file->thread, run_log_writer, file)) return file;
    int fault = errno;
    if (file->fd >= 0) close(file->fd);
    free(file);
    errno = fault;
    return NULL;
}

void log_file_free(log_file *file) {
    if (file == NULL) return;
    pthread_mutex_lock(&file->mutex);
    atomic_store(&file->give_up_us, clock_now_us(clock_system()) + LAST_CHANCE_US);
    pthread_cond_signal(&file->has_lines);
    pthread_mutex_unlock(&file->mutex);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += HANG_S;
    if (pthread_timedjoin_np(file->thread, NULL, &end) != 0) {
        pthread_detach(file->thread); /* hangs in write(2), and ends after that */
        return;
    }
    close(file->fd);
    pthread_cond_destroy(&file->has_lines);
    pthread_mutex_destroy(&file->mutex);
    free(file);
}

void log_file_write(void *arg, dlock_log_level level, const char *line) {
    log_file *file = arg;
    char stamp[STAMP_SIZE];
    put_stamp(stamp, level);
    pthread_mutex_lock(&file->mutex);
    line_buffer *buffer = file->filling;
    size_t room = BUFFER_SIZE - buffer->used;
    size_t length = (size_t)snprintf(buffer->bytes + buffer->used, room, "%s%s\n", stamp, line);
    if (buffer->lost > 0 || length >= room)
        buffer->lost++;
    else
        buffer->used += length;
    pthread_cond_signal(&file->has_lines);
    pthread_mutex_unlock(&file->mutex);
}
