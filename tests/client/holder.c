/* SPDX-License-Identifier: BSD-3-Clause */
/* holder.c - holds locks and renews them, and says when it was told that one is lost.
 *
 *   holder URL COUNT LEASE_MS IO_TIMEOUT_MS
 *
 * With each line on its input: releases all, takes lock0 ... again, says "held". Every other lock
 * is shared, unless the URL says module=none. For each lock that is lost: "lost NUMBER WHEN END",
 * in microseconds of CLOCK_BOOTTIME; END is the end of its validity, as it was last seen. */
#include "either_form.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { COUNT_MAX = 64, RENEWALS_PER_LEASE = 3 };

/* Told so long before the end of validity: a fiftieth of the lease, 50 ms at most. */
static long long lead_us;

static dlock_lock *locks[COUNT_MAX];
static atomic_llong ends_us[COUNT_MAX];

static long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg, (void)why;
    long long lost_us = now_us();
    if (event != DLOCK_EVENT_LOST) return;
    int number = atoi(name + strlen("lock"));
    printf("lost %d %lld %lld\n", number, lost_us, atomic_load(&ends_us[number]) + lead_us);
    fflush(stdout);
}

/* Each is asked for before anything else, so that none of the moments in between is missed. */
static void *look(void *arg) {
    int count = *(int *)arg;
    for (;;) {
        for (int i = 0; i < count; i++) {
            long long asked_us = now_us(), left_ms = dlock_remaining_ms(locks[i]);
            long long end_us = asked_us + (left_ms + 1) * 1000;
            if (left_ms > 0 && end_us > atomic_load(&ends_us[i])) atomic_store(&ends_us[i], end_us);
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return NULL;
}

static void take_all(int count) {
    for (int i = 0; i < count; i++) {
        dlock_release(locks[i]);
        atomic_store(&ends_us[i], 0);
    }
    for (int i = 0; i < count; i++) {
        dlock_status status = dlock_acquire(locks[i], 60000);
        if (status == DLOCK_OK) continue;
        fprintf(stderr, "holder: %s: %s\n", dlock_status_name(status), dlock_last_error(locks[i]));
        exit(1);
    }
    printf("held\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    bool can_share = strstr(argv[1], "module=none") == NULL;
    static int count;
    count = atoi(argv[2]);
    dlock_lock_options kept;
    dlock_lock_options_init(&kept);
    kept.lease_ms = (uint32_t)atoi(argv[3]);
    kept.renew_every_ms = kept.lease_ms / RENEWALS_PER_LEASE;
    lead_us = kept.lease_ms * 1000LL / 50 < 50000 ? kept.lease_ms * 1000LL / 50 : 50000;
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const *)&argv[1];
    options.url_count = 1;
    options.io_timeout_ms = (uint32_t)atoi(argv[4]);
    options.on_event = on_event;
    dlock_client *client;
    pthread_t looker;
    if (count > COUNT_MAX || dlock_client_new(&client, &options) != DLOCK_OK) return 2;
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "lock%d", i);
        kept.mode = i % 2 == 0 || !can_share ? DLOCK_EXCLUSIVE : DLOCK_SHARED;
        if (dlock_lock_new(&locks[i], client, name, &kept) != DLOCK_OK) return 2;
    }
    if (pthread_create(&looker, NULL, look, &count) != 0) return 2;
    char line[16];
    while (fgets(line, sizeof(line), stdin) != NULL)
        take_all(count);
    return 0;
}
