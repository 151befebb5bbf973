/* SPDX-License-Identifier: BSD-3-Clause */
/* visit.c - take a lock, hold it, give it back, and record each call with its time.
 *
 *   choose   a kind, a number, a mode and a wait, by the thread's own dice
 *   acquire  on success: until when does the library say that the lock is certainly held?
 *   hold     for no time, for a moment, for seconds, or beyond the lease; sampling that time
 *   release  whatever the result is, the visit is over
 *
 * "Certainly held until" is the clock read before dlock_remaining_ms() is asked, plus the answer:
 * never later than what the library promised. */
#include "visit.h"
#include "../client/either_form.h"
#include "transfer.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MS_NS = 1000000, LONG_HOLD_MS = 1500, STEP_MS = 8, LINGER_MS = 250 };
enum { KEEPERS = 4, SLOW_NAMES = 2, CROWDED_NAMES = 4 };

/* Waits in ms, each as likely as the others. */
static const int64_t WAITS[] = {0, 0, 20, 200, 1000, 1000, 3000, 3000};

typedef struct claim {
    dlock_lock *lock;
    char kind;
    unsigned number, other; /* other: of two accounts the second one */
    bool is_shared;
    uint32_t name;
    int64_t until_ns; /* certainly held until, as last sampled */
} claim;

static uint64_t roll(visitor *visitor, uint64_t sides) {
    visitor->dice ^= visitor->dice << 13;
    visitor->dice ^= visitor->dice >> 7;
    visitor->dice ^= visitor->dice << 17;
    return (visitor->dice >> 11) % sides;
}

/* Of one kind: for each name, or for each pair of accounts. */
static size_t count_places(const settings *settings) {
    return settings->names * (strchr(settings->kinds, 'a') != NULL ? settings->names : 1);
}

static size_t count_handles(const settings *settings) {
    return strlen(settings->kinds) * count_places(settings) * MODES;
}

void visitor_init(visitor *visitor, const settings *settings, dlock_client *client,
                  unsigned thread) {
    uint64_t seed = settings->seed * 1000003 + settings->process * 1009 + thread;
    *visitor = (struct visitor){.settings = settings,
                                .client = client,
                                .thread = thread,
                                .dice = (seed + 1) * 0x9e3779b97f4a7c15u | 1};
    store_init(&visitor->store, settings->data_host, settings->data_port, settings->process,
               thread);
    visitor->handles = calloc(count_handles(settings), sizeof(*visitor->handles));
    if (visitor->handles == NULL) abort();
}

void visitor_end(visitor *visitor) {
    for (size_t i = 0; i < count_handles(visitor->settings); i++)
        dlock_lock_free(visitor->handles[i]);
    free(visitor->handles);
    store_close(&visitor->store);
}

void visit_key(char key[KEY_SIZE], char kind, unsigned number) {
    snprintf(key, KEY_SIZE, "{%c%u}", kind, number);
}

void visit_account_key(char key[KEY_SIZE], char kind, unsigned number, bool is_data) {
    snprintf(key, KEY_SIZE, "{%c}%u%s", kind, number, is_data ? ":data" : "");
}

void visit_record_token(const dlock_lock *lock, unsigned thread, uint32_t name) {
    const char *digits = strrchr(dlock_token(lock), ':');
    uint64_t high = 0, low = 0;
    if (digits != NULL) sscanf(digits, ":%16" SCNx64 "%16" SCNx64, &high, &low);
    history_add(RECORD_TOKEN, thread, name, 0, (int64_t)high, (int64_t)low);
}

static dlock_lock *make_handle(const visitor *visitor, const claim *claim) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    if (claim->kind != 'r') options.lease_ms = visitor->settings->lease_ms;
    if (strchr("swp", claim->kind) != NULL) options.renew_every_ms = options.lease_ms / 4;
    if (claim->kind == 'r') options.renew = DLOCK_YES; /* with the lease of the client */
    options.session = claim->kind == 's';
    if (claim->number % 2 == 0) options.min_replicas = visitor->settings->replicas;
    if (claim->is_shared) options.mode = DLOCK_SHARED;
    if (claim->kind == 'p') options.max_holders = PERMITS;
    char keys[2][KEY_SIZE];
    const char *const names[] = {keys[0], keys[1]};
    visit_key(keys[0], claim->kind, claim->number);
    if (claim->kind == 'a') {
        visit_account_key(keys[0], claim->kind, claim->number, false);
        visit_account_key(keys[1], claim->kind, claim->other, false);
    }
    dlock_lock *lock;
    size_t count = claim->kind == 'a' ? 2 : 1;
    dlock_status status = dlock_lock_new_all(&lock, visitor->client, names, count, &options);
    if (status != DLOCK_OK) {
        fprintf(stderr, "worker: %s: %s\n", keys[0], dlock_status_name(status));
        exit(1);
    }
    return lock;
}

/* One thread in KEEPERS holds locks for long: those with the first numbers, which the other threads
 * seldom ask for. */
static bool is_keeper(const visitor *visitor) {
    return visitor->thread % KEEPERS == 0;
}

/* Permits run out only where many want one, so there are fewer names of them. */
static unsigned choose_number(visitor *visitor, char kind) {
    unsigned names = visitor->settings->names;
    if (kind == 'g' || kind == 'a') return (unsigned)roll(visitor, names);
    if (kind == 'p' && names > CROWDED_NAMES) names = CROWDED_NAMES;
    if (names <= SLOW_NAMES) return (unsigned)roll(visitor, names);
    if (is_keeper(visitor) || roll(visitor, 100) == 0) return (unsigned)roll(visitor, SLOW_NAMES);
    return SLOW_NAMES + (unsigned)roll(visitor, names - SLOW_NAMES);
}

static claim choose(visitor *visitor) {
    const settings *settings = visitor->settings;
    size_t place = roll(visitor, strlen(settings->kinds));
    claim claim = {.kind = settings->kinds[place]};
    claim.number = choose_number(visitor, claim.kind);
    claim.is_shared = claim.kind == 'p' || (claim.kind == 'w' && roll(visitor, 4) != 0);
    claim.name = (uint32_t)(unsigned char)claim.kind << 16 | claim.number;
    place = place * count_places(settings) + claim.number;
    if (claim.kind == 'a') {
        unsigned step = 1 + (unsigned)roll(visitor, settings->names - 1);
        claim.other = (claim.number + step) % settings->names;
        claim.name = account_name(claim.kind, claim.number, claim.other);
        place += (size_t)claim.other * settings->names;
    }
    dlock_lock **handle = &visitor->handles[place * MODES + claim.is_shared];
    if (*handle == NULL) *handle = make_handle(visitor, &claim);
    claim.lock = *handle;
    return claim;
}

static int64_t certain_until(const claim *claim) {
    int64_t now = now_ns(), remaining_ms = dlock_remaining_ms(claim->lock);
    return remaining_ms > 0 ? now + remaining_ms * MS_NS : 0;
}

static bool acquire(visitor *visitor, claim *claim) {
    int64_t wait_ms = WAITS[roll(visitor, sizeof(WAITS) / sizeof(*WAITS))];
    int64_t mode = claim->kind == 'p' ? PERMITS : claim->is_shared ? -1 : 0;
    history_add(RECORD_ACQUIRE, visitor->thread, claim->name, 0, wait_ms, mode);
    dlock_status status = dlock_acquire(claim->lock, wait_ms);
    bool is_held = status == DLOCK_OK;
    if (is_held) visit_record_token(claim->lock, visitor->thread, claim->name);
    claim->until_ns = is_held ? certain_until(claim) : 0;
    history_add(RECORD_ACQUIRED, visitor->thread, claim->name, (int)status,
                is_held ? (int64_t)dlock_fence(claim->lock) : 0, claim->until_ns);
    return is_held;
}

static void sample(const visitor *visitor, claim *claim, bool is_silent) {
    claim->until_ns = certain_until(claim);
    history_add(RECORD_SAMPLE, visitor->thread, claim->name, is_silent, 0, claim->until_ns);
}

static void nap(int64_t ns) {
    struct timespec pause = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&pause, NULL);
}

/* Sleeps on the descriptor that tells of a loss, and asks how long the lock is certain after every
 * short step; until the time is over or the lock is lost. */
static void hold_long(visitor *visitor, claim *claim, int64_t hold_ms) {
    struct pollfd lost = {.fd = dlock_lost_fd(claim->lock), .events = POLLIN};
    for (int64_t end = now_ns() + hold_ms * MS_NS; now_ns() < end;) {
        if (poll(&lost, 1, STEP_MS) > 0) {
            history_add(RECORD_LOST, visitor->thread, claim->name, 0, 0, 0);
            nap((int64_t)LINGER_MS * MS_NS); /* the event must come as well */
            return;
        }
        sample(visitor, claim, true);
    }
}

static void extend(const visitor *visitor, claim *claim) {
    uint32_t lease_ms = visitor->settings->lease_ms;
    history_add(RECORD_EXTEND, visitor->thread, claim->name, 0, lease_ms, 0);
    dlock_status status = dlock_extend(claim->lock, lease_ms);
    int64_t until_ns = certain_until(claim);
    history_add(RECORD_EXTENDED, visitor->thread, claim->name, (int)status, 0, until_ns);
}

static bool is_held(void *lock) {
    dlock_state state = dlock_get_state(lock);
    return state == DLOCK_STATE_HELD || state == DLOCK_STATE_SUSPECT;
}

static int64_t choose_work_ns(visitor *visitor) {
    const settings *settings = visitor->settings;
    uint64_t work_us = (uint64_t)settings->work_us, lease_ms = settings->lease_ms;
    if (settings->pause_every > 0 && roll(visitor, settings->pause_every) == 0)
        return (int64_t)(lease_ms + roll(visitor, lease_ms)) * MS_NS;
    return work_us > 0 ? (int64_t)roll(visitor, work_us) * 1000 : 0;
}

static void move_money(visitor *visitor, const claim *claim) {
    const unsigned numbers[] = {claim->number, claim->other};
    char keys[2][KEY_SIZE], lock_keys[2][KEY_SIZE];
    transfer transfer = {.lock = claim->lock,
                         .is_raw = roll(visitor, 2) == 0,
                         .thread = visitor->thread,
                         .amount = 1 + (int64_t)roll(visitor, 100),
                         .work_ns = choose_work_ns(visitor)};
    for (int i = 0; i < 2; i++) {
        visit_account_key(keys[i], claim->kind, numbers[i], true);
        transfer.names[i] = account_name(claim->kind, numbers[i], numbers[i]);
        transfer.data_keys[i] = keys[i];
        visit_account_key(lock_keys[i], claim->kind, numbers[i], false);
        transfer.lock_keys[i] = lock_keys[i];
    }
    store_transfer(&visitor->store, &transfer);
}

static void update_value(visitor *visitor, claim *claim) {
    char lock_key[KEY_SIZE], data_key[KEY_SIZE + sizeof(":data")];
    visit_key(lock_key, claim->kind, claim->number);
    snprintf(data_key, sizeof(data_key), "%s:data", lock_key);
    update update = {.way = visitor->settings->way,
                     .thread = visitor->thread,
                     .name = claim->name,
                     .data_key = data_key,
                     .fence = dlock_fence(claim->lock),
                     .lock = claim->lock,
                     .lock_key = lock_key,
                     .is_held = is_held,
                     .arg = claim->lock};
    update.is_raw = visitor->settings->way == UPDATE_GUARD && claim->number % 2 == 1;
    update.work_ns = choose_work_ns(visitor);
    store_update(&visitor->store, &update);
}

static void hold(visitor *visitor, claim *claim) {
    if (claim->kind == 'g') {
        update_value(visitor, claim);
    } else if (claim->kind == 'a') {
        move_money(visitor, claim);
    } else if (is_keeper(visitor) && claim->kind != 'h') {
        int64_t hold_ms = roll(visitor, 4) == 0 ? LONG_HOLD_MS : 50;
        hold_long(visitor, claim, (int64_t)roll(visitor, (uint64_t)hold_ms));
    } else if (visitor->settings->work_us > 0) {
        nap((int64_t)roll(visitor, (uint64_t)visitor->settings->work_us) * 1000);
    } else if (claim->kind == 'p' || roll(visitor, 10) == 0) {
        nap((int64_t)roll(visitor, 2 * MS_NS));
    }
    if (roll(visitor, 20) == 0) extend(visitor, claim);
}

static void release(const visitor *visitor, claim *claim) {
    sample(visitor, claim, false);
    history_add(RECORD_RELEASE, visitor->thread, claim->name, 0, 0, 0);
    dlock_status status = dlock_release(claim->lock);
    history_add(RECORD_RELEASED, visitor->thread, claim->name, (int)status, 0, 0);
}

void visitor_visit(visitor *visitor) {
    claim claim = choose(visitor);
    if (!acquire(visitor, &claim)) {
        /* A server that is away is not asked again and again by all threads at once. */
        nap((int64_t)roll(visitor, 5 * MS_NS));
        return;
    }
    hold(visitor, &claim);
    release(visitor, &claim);
}
