/* SPDX-License-Identifier: BSD-3-Clause */
/* renewing.c - threads that take, extend and give back locks which are renewed and watched, and run
 * guarded commands meanwhile, while another looks at them; for the sanitizers.
 *
 *   renewing URL THREADS ROUNDS
 *
 * Leases are so short that some are lost. Every event but the first and the last of an acquisition
 * comes between these two. */
#include "either_form.h"

#include "program.h"

enum { THREADS_MAX = PROGRAM_THREADS_MAX, PAUSE_MAX_US = 20000 };

static dlock_client *client;
static dlock_lock *locks[THREADS_MAX];
static atomic_bool is_held[THREADS_MAX], is_over;
static atomic_int lost, suspect, misplaced;
static int threads, rounds;

static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg, (void)why;
    int number = atoi(name + strlen("renewing:"));
    if (event == DLOCK_EVENT_ACQUIRED) atomic_store(&is_held[number], true);
    if (event == DLOCK_EVENT_RELEASED) atomic_store(&is_held[number], false);
    if (event == DLOCK_EVENT_LOST) atomic_fetch_add(&lost, 1);
    if (event == DLOCK_EVENT_SUSPECT) atomic_fetch_add(&suspect, 1);
    if (!atomic_load(&is_held[number]) && event != DLOCK_EVENT_RELEASED)
        atomic_fetch_add(&misplaced, 1);
}

static void *look(void *arg) {
    (void)arg;
    while (!atomic_load(&is_over)) {
        for (int i = 0; i < threads; i++) {
            dlock_get_state(locks[i]);
            dlock_remaining_ms(locks[i]);
        }
        pause_us(200);
    }
    return NULL;
}

static void *work(void *arg) {
    int number = (int)(intptr_t)arg;
    unsigned seed = (unsigned)number;
    dlock_lock *lock = locks[number];
    if (number % 4 == 0) dlock_lost_fd(lock);
    for (int i = 0; i < rounds; i++) {
        if (dlock_acquire(lock, 2000) != DLOCK_OK) continue;
        pause_us(rand_r(&seed) % PAUSE_MAX_US);
        if (i % 3 == 0) dlock_extend(lock, (uint32_t)(20 + rand_r(&seed) % 200));
        if (i % 5 == 0) dlock_lost_fd(lock);
        for (int j = 0; j < 10 && i % 7 == 0; j++)
            dlock_guarded(lock, 2, (const char *const[]){"GET", "renewing"}, NULL, NULL);
        dlock_release(lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    threads = atoi(argv[2]);
    rounds = atoi(argv[3]);
    dlock_client_options options = options_for((const char *const *)&argv[1], 1);
    options.on_event = on_event;
    CHECK(threads <= THREADS_MAX && dlock_client_new(&client, &options) == DLOCK_OK);
    for (int i = 0; i < threads; i++) {
        char name[32];
        snprintf(name, sizeof(name), "renewing:%d", i);
        dlock_lock_options kept = terms_of(i % 2 == 0 ? 30 : 5000, DLOCK_EXCLUSIVE);
        kept.renew_every_ms = i % 2 == 0 ? 10 : 3;
        kept.session = i % 3 == 0;
        CHECK(dlock_lock_new(&locks[i], client, name, &kept) == DLOCK_OK);
    }
    pthread_t looker;
    start_threads(&looker, 1, look);
    run_threads(threads, work);
    atomic_store(&is_over, true);
    join_threads(&looker, 1);
    dlock_client_stats stats = stats_of(client);
    for (int i = 0; i < threads; i++)
        dlock_lock_free(locks[i]);
    dlock_client_free(client);
    printf("%llu renewed, %d suspect, %d lost, %d events out of place\n",
           (unsigned long long)stats.renewed, atomic_load(&suspect), atomic_load(&lost),
           atomic_load(&misplaced));
    return stats.renewed > 0 && atomic_load(&misplaced) == 0 ? 0 : 1;
}
