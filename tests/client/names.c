/* SPDX-License-Identifier: BSD-3-Clause */
/* names.c - many distinct names, each of them contended, through a client that looks for contended
 * names: memory must not grow with them.
 *
 *   names COUNT
 *
 * The store says DLOCK_BUSY to everybody, so each name gets a local lock and drives an older one
 * out. Memory is looked at after the first hundredth and at the end, by when it must not be 2 MB
 * more. Prints both. */
#include "program.h"

enum { AUTO_MAX = 1000, GROWTH_MAX_KB = 2048 };

static dlock_status refuse(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg, (void)limit_us;
    dlock_call_explain(call, "");
    return DLOCK_BUSY;
}

static void ask_for(dlock_client *client, long number) {
    char name[64];
    snprintf(name, sizeof(name), "a name of some length, number %ld", number);
    dlock_lock *lock = new_lock(client, name, 0);
    CHECK(dlock_acquire(lock, DLOCK_NO_WAIT) == DLOCK_BUSY);
    dlock_lock_free(lock);
}

int main(int argc, char **argv) {
    long count = argc == 2 ? atol(argv[1]) : 0, first_kb = 0;
    if (count < 100) return 2;
    dlock_backend store = {.struct_size = sizeof(store),
                           .name = "busy",
                           .acquire = refuse,
                           .extend = refuse,
                           .release = refuse};
    dlock_client_options options = options_for(NULL, 0);
    options.backend = &store;
    options.hotspot_auto = AUTO_MAX;
    options.io_timeout_ms = 3 * PATIENCE_MS; /* a thread of the library calls the store: late */
    dlock_client *client;
    CHECK(dlock_client_new(&client, &options) == DLOCK_OK);
    for (long i = 0; i < count; i++) {
        if (i == count / 100) first_kb = memory_kb();
        ask_for(client, i);
    }
    long last_kb = memory_kb();
    dlock_client_stats stats = stats_of(client);
    dlock_client_free(client);
    printf("%ld names; %ld KB at first, %ld KB at the end\n", count, first_kb, last_kb);
    CHECK(last_kb - first_kb <= GROWTH_MAX_KB);
    CHECK(stats.busy == (uint64_t)count && stats.commands == (uint64_t)count);
    return 0;
}
