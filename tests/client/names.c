/* SPDX-License-Identifier: BSD-3-Clause */
/* names.c - many distinct names, each of them contended, through a client that looks for contended
 * names: memory must not grow with them.
 *
 *   names COUNT
 *
 * The store says DLOCK_BUSY to everybody, so each name gets a local lock and drives an older one
 * out. Memory is looked at after the first hundredth and at the end, by when it must not be 2 MB
 * more. Prints the rate and both. */
#include "dlock_spi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { AUTO_MAX = 1000, GROWTH_MAX_KB = 2048 };

static dlock_status refuse(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg, (void)limit_us;
    dlock_call_explain(call, "");
    return DLOCK_BUSY;
}

static long memory_kb(void) {
    char line[256];
    long kb = 0;
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL) return 0;
    while (fgets(line, sizeof(line), status) != NULL)
        if (sscanf(line, "VmRSS: %ld kB", &kb) == 1) break;
    fclose(status);
    return kb;
}

static void ask_for(dlock_client *client, long number) {
    char name[64];
    dlock_lock *lock;
    snprintf(name, sizeof(name), "a name of some length, number %ld", number);
    bool is_as_expected = dlock_lock_new(&lock, client, name, NULL) == DLOCK_OK &&
                          dlock_acquire(lock, DLOCK_NO_WAIT) == DLOCK_BUSY;
    dlock_lock_free(lock);
    if (!is_as_expected) exit(1);
}

int main(int argc, char **argv) {
    long count = argc == 2 ? atol(argv[1]) : 0, first_kb = 0;
    if (count < 100) return 2;
    dlock_backend store = {.struct_size = sizeof(store),
                           .name = "busy",
                           .acquire = refuse,
                           .extend = refuse,
                           .release = refuse};
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.backend = &store;
    options.hotspot_auto = AUTO_MAX;
    options.io_timeout_ms =
        60000; /* a thread of the library calls the store: on a slow machine, late */
    dlock_client *client;
    if (dlock_client_new(&client, &options) != DLOCK_OK) return 1;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long i = 0; i < count; i++) {
        if (i == count / 100) first_kb = memory_kb();
        ask_for(client, i);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    long last_kb = memory_kb();
    double took_s =
        (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    dlock_client_stats stats = {.struct_size = sizeof(stats)};
    dlock_client_get_stats(client, &stats);
    dlock_client_free(client);
    printf("%ld names, %.2f us each; %ld kB at first, %ld kB at the end\n", count,
           took_s * 1e6 / (double)count, first_kb, last_kb);
    bool is_flat = first_kb > 0 && last_kb - first_kb <= GROWTH_MAX_KB;
    return is_flat && stats.busy == (uint64_t)count && stats.commands == (uint64_t)count ? 0 : 1;
}
