/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal.c - holds many locks for a while and lets the client renew them.
 *
 *   renewal PORT LOCKS LEASE_MS RUN_MS
 *
 * Prints how many were renewed, how many were lost, and the processor time that this process took
 * while it did nothing but hold them, in microseconds. */
#include "dlock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static atomic_int lost;

static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg, (void)name, (void)why;
    if (event == DLOCK_EVENT_LOST) atomic_fetch_add(&lost, 1);
}

static long long processor_us(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000LL + used.ru_utime.tv_usec +
           used.ru_stime.tv_usec;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%s", argv[1]);
    int count = atoi(argv[2]);
    long run_ms = atol(argv[4]);
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){url};
    options.url_count = 1;
    options.on_event = on_event;
    dlock_lock_options kept;
    dlock_lock_options_init(&kept);
    kept.lease_ms = (uint32_t)atol(argv[3]);
    kept.renew_every_ms = kept.lease_ms / 3;
    dlock_client *client;
    dlock_lock **locks = calloc((size_t)count, sizeof(locks[0]));
    if (locks == NULL || dlock_client_new(&client, &options) != DLOCK_OK) return 1;
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "renewal:%d", i);
        if (dlock_lock_new(&locks[i], client, name, &kept) != DLOCK_OK ||
            dlock_acquire(locks[i], 1000) != DLOCK_OK)
            return 1;
    }
    dlock_client_stats before = {.struct_size = sizeof(before)}, after = before;
    do { /* the first time each is renewed on its own, as it was taken; from then on together */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        dlock_client_get_stats(client, &before);
    } while (before.renewed < (uint64_t)count);
    long long begin_us = processor_us();
    nanosleep(&(struct timespec){.tv_sec = run_ms / 1000, .tv_nsec = run_ms % 1000 * 1000000},
              NULL);
    long long used_us = processor_us() - begin_us;
    dlock_client_get_stats(client, &after);
    printf("%llu %d %lld\n", (unsigned long long)(after.renewed - before.renewed),
           atomic_load(&lost), used_us);
    fflush(stdout);
    _Exit(0); /* giving back that many takes longer than it tells us */
}
