/* SPDX-License-Identifier: BSD-3-Clause */
/* log_file.c - see log_file.h.
 *
 * Lines go into a ring of fixed size, in whole, and a thread writes them out with one write(2)
 * each, so that lines of several processes do not mix. The thread also rolls the file over.
 *
 * Invariant: used is the number of bytes in the ring, from first on, always whole lines. */
#define _GNU_SOURCE /* renameat2, pthread_timedjoin_np */
#include "log_file.h"

#include "thread.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RING_SIZE = 256 * 1024, DAY_SIZE = 11, FAREWELL_S = 1, STAMP_SIZE = 40, PATH_SIZE = 4096 };

#define FILE_NAME "dlock-access.log"

struct log_file {
    char path[PATH_SIZE];
    size_t keep;
    int fd;
    char day[DAY_SIZE]; /* of what is in the file */
    bool is_torn;       /* the last line in it has no end */

    pthread_mutex_t mutex;
    pthread_cond_t has_lines;
    pthread_t thread;
    bool is_stopping;
    uint64_t lost;
    size_t first, used;
    char ring[RING_SIZE];
};

/* -- the file, for the thread */

static void put_day(char day[DAY_SIZE], time_t at) {
    struct tm parts;
    gmtime_r(&at, &parts);
    strftime(day, DAY_SIZE, "%Y-%m-%d", &parts);
}

static bool open_file(log_file *of) {
    struct stat about;
    /* Not to hang on a pipe that nobody reads; writing to it may. */
    int fd = open(of->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
    if (fd < 0) return false;
    fcntl(fd, F_SETFL, O_APPEND);
    if (of->fd >= 0) close(of->fd);
    of->fd = fd;
    time_t written = fstat(fd, &about) == 0 && about.st_size > 0 ? about.st_mtime : time(NULL);
    put_day(of->day, written);
    return true;
}

static int by_name(const struct dirent **one, const struct dirent **other) {
    return strcmp((*one)->d_name, (*other)->d_name);
}

static int is_old_log(const struct dirent *entry) {
    const char form[] = FILE_NAME ".dddd-dd-dd";
    if (strlen(entry->d_name) != strlen(form)) return 0;
    for (size_t i = 0; form[i] != '\0'; i++) {
        bool is_digit = i > strlen(FILE_NAME) && form[i] == 'd';
        char byte = entry->d_name[i];
        if (is_digit ? byte < '0' || byte > '9' : byte != form[i]) return 0;
    }
    return 1;
}

static void remove_old(const log_file *of) {
    char dir[PATH_SIZE], path[PATH_SIZE + 300];
    struct dirent **found;
    snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(of->path) - strlen(FILE_NAME)), of->path);
    int count = scandir(dir, &found, is_old_log, by_name);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s%s", dir, found[i]->d_name);
        if ((size_t)(count - i) > of->keep) unlink(path);
        free(found[i]);
    }
    if (count >= 0) free(found);
}

/* Whoever of several processes comes first renames it; the others find the new one. */
static void roll_over(log_file *of, const char *today) {
    char old[PATH_SIZE + DAY_SIZE + 1];
    struct stat ours, named;
    bool is_still_named = fstat(of->fd, &ours) == 0 && stat(of->path, &named) == 0 &&
                          ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
    snprintf(old, sizeof(old), "%s.%s", of->path, of->day);
    if (is_still_named && renameat2(AT_FDCWD, of->path, AT_FDCWD, old, RENAME_NOREPLACE) != 0 &&
        errno != EEXIST && stat(old, &named) != 0) /* a file system that does not know it */
        rename(of->path, old);
    open_file(of); /* if it fails, we go on with the old one */
    memcpy(of->day, today, DAY_SIZE);
    remove_old(of);
}

/* text ends with a newline. False: the disk did not take it. */
static bool write_line(log_file *of, const char *text, size_t length) {
    char today[DAY_SIZE];
    put_day(today, time(NULL));
    if (strcmp(today, of->day) != 0) roll_over(of, today);
    if (of->is_torn) of->is_torn = write(of->fd, "\n", 1) != 1;
    while (length > 0) {
        ssize_t written = write(of->fd, text, length);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;
        text += written;
        length -= (size_t)written;
        of->is_torn = length > 0;
    }
    if (length == 0) return true;
    pthread_mutex_lock(&of->mutex);
    of->lost++;
    pthread_mutex_unlock(&of->mutex);
    return false;
}

/* -- the ring */

static char byte_at(const log_file *of, size_t i) {
    return of->ring[(of->first + i) % RING_SIZE];
}

/* Locked. Takes the first line out. */
static size_t take_line(log_file *of, char *line, size_t size) {
    size_t length = 0;
    while (length < of->used && length < size) {
        line[length] = byte_at(of, length);
        if (line[length++] == '\n') break;
    }
    of->first = (of->first + length) % RING_SIZE;
    of->used -= length;
    return length;
}

/* Locked. */
static void put_text(log_file *to, const char *text) {
    for (; *text != '\0'; text++)
        to->ring[(to->first + to->used++) % RING_SIZE] = *text;
}

static void put_stamp(char stamp[STAMP_SIZE], bool is_error) {
    struct timespec now;
    struct tm parts;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(stamp, STAMP_SIZE, "%s.%03dZ %s ", seconds, (int)(now.tv_nsec / 1000000),
             is_error ? "ERROR" : "INFO");
}

/* Locked. Says how many lines were lost, if there is room for it. */
static void put_lost(log_file *to) {
    char stamp[STAMP_SIZE], text[64];
    put_stamp(stamp, true);
    snprintf(text, sizeof(text), "%llu lines were lost\n", (unsigned long long)to->lost);
    if (to->used + strlen(stamp) + strlen(text) > RING_SIZE) return;
    put_text(to, stamp);
    put_text(to, text);
    to->lost = 0;
}

static void *work(void *data) {
    log_file *of = data;
    char line[LOG_LINE_SIZE + STAMP_SIZE + 1];
    bool is_told = false, is_written = true;
    pthread_mutex_lock(&of->mutex);
    for (;;) {
        while (of->used == 0 && !of->is_stopping && !(of->lost > 0 && is_written))
            pthread_cond_wait(&of->has_lines, &of->mutex);
        if (of->used == 0 && of->lost > 0 && !is_told) put_lost(of);
        is_told = of->is_stopping; /* once: writing that may fail as well */
        if (of->used == 0) break;
        size_t length = take_line(of, line, sizeof(line));
        pthread_mutex_unlock(&of->mutex);
        is_written = write_line(of, line, length);
        pthread_mutex_lock(&of->mutex);
    }
    pthread_mutex_unlock(&of->mutex);
    return NULL;
}

/* -- public */

log_file *log_file_new(const char *dir, size_t keep) {
    log_file *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->fd = -1;
    made->keep = keep;
    int length = snprintf(made->path, sizeof(made->path), "%s/%s", dir, FILE_NAME);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->has_lines, NULL);
    bool is_open = length < PATH_SIZE && open_file(made);
    if (is_open && thread_start(&made->thread, work, made)) return made;
    if (made->fd >= 0) close(made->fd);
    free(made);
    return NULL;
}

void log_file_free(log_file *old) {
    if (old == NULL) return;
    pthread_mutex_lock(&old->mutex);
    old->is_stopping = true;
    pthread_cond_signal(&old->has_lines);
    pthread_mutex_unlock(&old->mutex);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += FAREWELL_S;
    if (pthread_timedjoin_np(old->thread, NULL, &end) != 0) {
        pthread_detach(old->thread); /* it hangs in write(2), and will end after that */
        return;
    }
    close(old->fd);
    pthread_cond_destroy(&old->has_lines);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

void log_file_write(log_file *to, bool is_error, const char *line) {
    char stamp[STAMP_SIZE];
    put_stamp(stamp, is_error);
    pthread_mutex_lock(&to->mutex);
    if (to->lost > 0) put_lost(to);
    if (to->lost > 0 || to->used + strlen(stamp) + strlen(line) + 1 > RING_SIZE) {
        to->lost++;
    } else {
        put_text(to, stamp);
        put_text(to, line);
        put_text(to, "\n");
        pthread_cond_signal(&to->has_lines);
    }
    pthread_mutex_unlock(&to->mutex);
}
