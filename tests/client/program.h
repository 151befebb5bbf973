/* SPDX-License-Identifier: BSD-3-Clause */
/* program.h - what the C programs of these tests have in common.
 *
 *   CHECK(condition)            ends the program, and says which condition failed where
 *   FACT(a_sentence) { ... }    what one run of a program checks, see run_fact()
 *   options_for(), new_lock()   a client for a slow machine, and a lock of it
 *   run_threads()               threads that all do the same
 *
 * Include it after either_form.h, if at all. */
#pragma once

#include "dlock_spi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_MS = 20000, PROGRAM_THREADS_MAX = 64 };

#define CHECK(condition) check(condition, __FILE__, __LINE__, #condition)

static inline void check(bool is_true, const char *file, int line, const char *condition) {
    if (is_true) return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, condition, dlock_error());
    exit(1);
}

typedef struct program_fact {
    const char *name;
    void (*check)(void);
    struct program_fact *next;
} program_fact;

static inline program_fact **program_facts(void) {
    static program_fact *first;
    return &first;
}

#define FACT(sentence)                                                                             \
    static void sentence(void);                                                                    \
    __attribute__((constructor)) static void sentence##_add(void) {                                \
        static program_fact added = {#sentence, sentence, NULL};                                   \
        added.next = *program_facts();                                                             \
        *program_facts() = &added;                                                                 \
    }                                                                                              \
    static void sentence(void)

/* The exit code. 2: there is no fact of that name. */
static inline int run_fact(const char *name) {
    for (program_fact *each = *program_facts(); each != NULL; each = each->next) {
        if (strcmp(each->name, name) != 0) continue;
        each->check();
        return 0;
    }
    return 2;
}

static inline dlock_client_options options_for(const char *const *urls, size_t count) {
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = urls;
    options.url_count = count;
    options.io_timeout_ms = options.connect_timeout_ms = PATIENCE_MS;
    return options;
}

static inline dlock_lock_options terms_of(uint32_t lease_ms, dlock_mode mode) {
    dlock_lock_options terms;
    dlock_lock_options_init(&terms);
    terms.lease_ms = lease_ms;
    terms.mode = mode;
    return terms;
}

/* 0: the lease that the client's locks have. */
static inline dlock_lock *new_lock(dlock_client *client, const char *name, uint32_t lease_ms) {
    dlock_lock_options terms = terms_of(lease_ms, DLOCK_EXCLUSIVE);
    dlock_lock *lock;
    CHECK(dlock_lock_new(&lock, client, name, &terms) == DLOCK_OK);
    return lock;
}

static inline dlock_client_stats stats_of(const dlock_client *client) {
    dlock_client_stats stats = {.struct_size = sizeof(stats)};
    dlock_client_get_stats(client, &stats);
    return stats;
}

static inline void pause_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static inline void start_threads(pthread_t *threads, int count, void *(*work)(void *)) {
    CHECK(count <= PROGRAM_THREADS_MAX);
    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0);
}

static inline void join_threads(const pthread_t *threads, int count) {
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* work() gets the number of its thread. */
static inline void run_threads(int count, void *(*work)(void *)) {
    pthread_t threads[PROGRAM_THREADS_MAX];
    start_threads(threads, count, work);
    join_threads(threads, count);
}

/* Resident. */
static inline long memory_kb(void) {
    char line[256];
    long kb = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof(line), status) != NULL)
        if (sscanf(line, "VmRSS: %ld kB", &kb) == 1) break;
    fclose(status);
    return kb;
}
