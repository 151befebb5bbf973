/* SPDX-License-Identifier: BSD-3-Clause */
/* cycles.c - takes and gives back locks, and counts what that costs the process.
 *
 *   cycles CYCLES RENEW_EVERY_MS URL...
 *
 * A new handle for each cycle, and a thousand names in turn. After a warm-up, and at the end, a
 * line with the resident memory in KB, the most descriptors that were open, threads and failed
 * cycles. */
#include "program.h"

#include <dirent.h>

enum { NAMES = 1000, WARM_UP_PART = 4, LOOK_EVERY = 16 };

static int count_entries(const char *folder) {
    int count = 0;
    DIR *directory = opendir(folder);
    if (directory == NULL) return -1; /* too many descriptors */
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 2; /* . and .. */
}

/* False: a call failed. */
static bool cycle(dlock_client *client, int number, uint32_t renew_every_ms) {
    char name[32];
    dlock_lock *lock;
    dlock_lock_options options = terms_of(0, DLOCK_EXCLUSIVE);
    options.renew_every_ms = renew_every_ms;
    snprintf(name, sizeof(name), "cycles:%d", number % NAMES);
    if (dlock_lock_new(&lock, client, name, &options) != DLOCK_OK) return false;
    dlock_status status = dlock_acquire(lock, PATIENCE_MS);
    if (status == DLOCK_OK) status = dlock_release(lock);
    if (status != DLOCK_OK) fprintf(stderr, "%s: %s\n", name, dlock_last_error(lock));
    dlock_lock_free(lock);
    return status == DLOCK_OK;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int cycles = atoi(argv[1]), failures = 0, descriptors = 0,
        before = count_entries("/proc/self/fd");
    dlock_client *client;
    dlock_client_options options = options_for((const char *const *)&argv[3], (size_t)argc - 3);
    options.io_timeout_ms = options.connect_timeout_ms = 0; /* those of the URLs count */
    options.hotspot_auto = 100;
    if (dlock_client_new(&client, &options) != DLOCK_OK) return 1;
    for (int i = 1; i <= cycles; i++) {
        if (!cycle(client, i, (uint32_t)atoi(argv[2]))) failures++;
        int open = i % LOOK_EVERY == 0 ? count_entries("/proc/self/fd") - before : 0;
        if (open > descriptors) descriptors = open;
        if (i == cycles / WARM_UP_PART || i == cycles)
            printf("%ld %d %d %d\n", memory_kb(), descriptors, count_entries("/proc/self/task"),
                   failures);
    }
    dlock_client_free(client);
    return 0;
}
