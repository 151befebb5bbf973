/* SPDX-License-Identifier: BSD-3-Clause */
#include "history.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The file is sparse: only pages with records take room. */
enum { CAPACITY = 16 * 1024 * 1024, PULSE_NS = 4000000, STALL_NS = 8000000 };
enum { SECOND_NS = 1000000000, DELAYS_MAX = 1024, DELAY_EVERY = 10 };

/* How long a thread of the process has been ready to run without being let, as the kernel counts
 * it. */
typedef struct run_delay {
    long thread;
    int64_t ns;
} run_delay;

static record *records;
static atomic_size_t used;
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
static int64_t looked_ns;
static run_delay delays[DELAYS_MAX];

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

void history_open(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)CAPACITY * (off_t)sizeof(record)) != 0) {
        perror(path);
        exit(1);
    }
    records = mmap(NULL, CAPACITY * sizeof(record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (records == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    looked_ns = now_ns();
    history_add(RECORD_START, 0, 0, 0, getpid(), 0);
}

void history_add_at(int64_t at_ns, record_kind kind, unsigned thread, uint32_t name, int status,
                    int64_t number, int64_t other) {
    size_t index = atomic_fetch_add_explicit(&used, 1, memory_order_relaxed);
    if (index >= CAPACITY) {
        fprintf(stderr, "history: the file is full\n");
        _exit(1);
    }
    record *record = &records[index];
    record->at_ns = at_ns;
    record->number = number;
    record->other = other;
    record->name = name;
    record->thread = (uint16_t)thread;
    record->status = (uint8_t)status;
    atomic_thread_fence(memory_order_release);
    *(volatile uint8_t *)&record->kind = (uint8_t)kind;
}

void history_add(record_kind kind, unsigned thread, uint32_t name, int status, int64_t number,
                 int64_t other) {
    history_add_at(now_ns(), kind, thread, name, status, number, other);
}

static int64_t read_run_delay(const char *thread) {
    char path[64];
    long long running = 0, delayed = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/schedstat", thread);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    if (fscanf(file, "%lld %lld", &running, &delayed) != 2) delayed = 0;
    fclose(file);
    return delayed;
}

/* By how much the delay of any one thread has grown since it was read last. */
static int64_t largest_new_delay(void) {
    int64_t largest = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        long thread = strtol(entry->d_name, NULL, 10);
        if (thread <= 0) continue;
        run_delay *delay = &delays[thread % DELAYS_MAX];
        int64_t ns = read_run_delay(entry->d_name);
        if (delay->thread == thread && ns - delay->ns > largest) largest = ns - delay->ns;
        *delay = (run_delay){.thread = thread, .ns = ns};
    }
    closedir(tasks);
    return largest;
}

static void look(bool is_thorough) {
    pthread_mutex_lock(&looking);
    int64_t now = now_ns(), delay = is_thorough ? largest_new_delay() : 0;
    if (now - looked_ns > STALL_NS)
        history_add_at(now, RECORD_STALL, 0, 0, 0, looked_ns + PULSE_NS, 0);
    if (delay > PULSE_NS) history_add_at(now, RECORD_STALL, 0, 0, 0, now - delay, 0);
    looked_ns = now;
    pthread_mutex_unlock(&looking);
}

void history_look(void) {
    look(true);
}

void *history_watch_stalls(void *unused) {
    (void)unused;
    struct timespec pulse = {.tv_nsec = PULSE_NS};
    for (int count = 0;; count++) {
        nanosleep(&pulse, NULL);
        look(count % DELAY_EVERY == 0);
    }
    return NULL;
}
