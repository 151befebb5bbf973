/* SPDX-License-Identifier: BSD-3-Clause */
/* notifier_test.c - what the program is told about its locks, when, and how often. */
#include "fake_loop.h"

#include "deployment/life.c"
#include "lease/notifier.c"
#include "unit.h"
#include <unistd.h>

enum { LEASE_MS = 10000, EVERY_MS = 3000, IO_MS = 200, LOCKS = 3, TOLD_MAX = 16 };

typedef struct told {
    dlock_event event;
    const char *name;
    dlock_status why;
    int64_t at_us;
} told;

static const char *const names[LOCKS] = {"first", "second", "third"};
static notifier tested;
static lease leases[LOCKS];
static lease_links links[LOCKS];
static watched_lock watched[LOCKS];
static told tellings[TOLD_MAX];
static int told_count, wakes;
static void (*in_callback)(void);

static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    CHECK(arg == &tellings);
    CHECK(!fake_loop.is_locked);
    if (told_count < TOLD_MAX) tellings[told_count] = (told){event, name, why, fake_loop.now_us};
    told_count++;
    if (in_callback != NULL) in_callback();
}

static void begin(void) {
    fake_loop_reset();
    told_count = wakes = 0;
    in_callback = NULL;
    notifier_init(&tested, &fake_loop, on_event, tellings);
    for (int i = 0; i < LOCKS; i++) {
        lease_init(&leases[i], &(lease_rule){.lease_ms = LEASE_MS,
                                             .renew_every_ms = EVERY_MS,
                                             .io_timeout_ms = IO_MS});
        lease_link(&leases[i], &links[i]);
        watched[i] = (watched_lock){.lease = &leases[i], .name = names[i]};
    }
}

static void add(int i) {
    lease_begin(&leases[i], fake_loop.now_us, LEASE_MS, fake_loop.now_us);
    notifier_add(&tested, &watched[i]);
}

static void play_background(void) {
    wakes = fake_loop.wakes;
    fake_loop.work(fake_loop.arg);
}

/* The background thread comes as soon as it is woken. */
static void run_and_deliver_until(int64_t until_us) {
    heap_node *first;
    if (fake_loop.wakes > wakes) play_background();
    while ((first = heap_first(&fake_loop.timers)) != NULL && first->due_us <= until_us) {
        run_until(first->due_us > fake_loop.now_us ? first->due_us : fake_loop.now_us);
        if (fake_loop.wakes > wakes) play_background();
    }
    fake_loop.now_us = until_us;
}

static void end(void) {
    for (int i = 0; i < LOCKS; i++)
        notifier_remove(&watched[i]);
    CHECK(heap_first(&fake_loop.timers) == NULL); /* so the loop can be freed first */
}

TEST(a_lock_is_told_suspect_and_then_lost) {
    add(0);
    int64_t suspect_us = lease_suspect_at_us(&leases[0]), gone_us = lease_gone_at_us(&leases[0]);
    run_and_deliver_until(suspect_us - 1);
    CHECK_EQUAL(told_count, 0);
    run_and_deliver_until(gone_us + 10000 * MS);
    CHECK_EQUAL(told_count, 2);
    CHECK_EQUAL(tellings[0].event, DLOCK_EVENT_SUSPECT);
    CHECK_EQUAL(tellings[0].at_us, suspect_us);
    CHECK_EQUAL(tellings[0].why, DLOCK_IN_DOUBT);
    CHECK(tellings[0].name == names[0]);
    CHECK_EQUAL(tellings[1].event, DLOCK_EVENT_LOST);
    CHECK_EQUAL(tellings[1].at_us, gone_us);
    CHECK_EQUAL(tellings[1].why, DLOCK_LOST);
    CHECK_EQUAL(fake_loop.wakes, 2);
}

TEST(the_program_is_told_why) {
    add(0);
    leases[0].why = DLOCK_UNREACHABLE;
    run_and_deliver_until(lease_gone_at_us(&leases[0]));
    CHECK_EQUAL(told_count, 2);
    CHECK_EQUAL(tellings[0].why, DLOCK_UNREACHABLE);
    CHECK_EQUAL(tellings[1].why, DLOCK_UNREACHABLE);
}

TEST(a_lock_that_is_not_renewed_is_only_told_lost) {
    lease_init(&leases[0], &(lease_rule){.lease_ms = LEASE_MS});
    lease_link(&leases[0], &links[0]);
    leases[0].has_lead = true;
    add(0);
    run_and_deliver_until(T0_US + LEASE_MS * MS);
    CHECK_EQUAL(told_count, 1);
    CHECK_EQUAL(tellings[0].event, DLOCK_EVENT_LOST);
}

TEST(a_lock_that_is_extended_in_time_is_not_told) {
    add(0);
    for (int i = 0; i < 100; i++) {
        run_and_deliver_until(fake_loop.now_us + EVERY_MS * MS);
        CHECK(lease_extend(&leases[0], fake_loop.now_us, LEASE_MS, fake_loop.now_us));
    }
    CHECK_EQUAL(told_count, 0);
    CHECK(fake_loop.timer_runs <= 100);
}

TEST(a_lock_that_is_suspect_again_is_told_again) {
    add(0);
    for (int i = 0; i < 3; i++) {
        run_and_deliver_until(lease_suspect_at_us(&leases[0]) + 500 * MS);
        CHECK_EQUAL(told_count, i + 1);
        CHECK_EQUAL(tellings[i].event, DLOCK_EVENT_SUSPECT);
        CHECK(lease_extend(&leases[0], fake_loop.now_us, LEASE_MS, fake_loop.now_us));
        run_and_deliver_until(fake_loop.now_us + EVERY_MS * MS);
    }
}

TEST(a_lock_that_is_lost_before_its_time_is_told_at_once_and_once) {
    add(0);
    run_and_deliver_until(T0_US + 100 * MS);
    lease_lose(&leases[0], DLOCK_LOST);
    notifier_look(&watched[0]);
    run_and_deliver_until(T0_US + 100 * MS);
    CHECK_EQUAL(told_count, 1);
    CHECK_EQUAL(tellings[0].event, DLOCK_EVENT_LOST);
    CHECK_EQUAL(tellings[0].why, DLOCK_LOST);
    notifier_look(&watched[0]);
    run_and_deliver_until(T0_US + 2 * LEASE_MS * MS);
    CHECK_EQUAL(told_count, 1);
}

TEST(a_lock_in_question_is_told_suspect_at_once) {
    add(0);
    lease_question(&leases[0], true);
    notifier_look(&watched[0]);
    run_and_deliver_until(T0_US + 100 * MS);
    CHECK_EQUAL(told_count, 1);
    CHECK_EQUAL(tellings[0].event, DLOCK_EVENT_SUSPECT);
    CHECK_EQUAL(tellings[0].at_us, T0_US);
    lease_question(&leases[0], false);
    run_and_deliver_until(T0_US + EVERY_MS * MS);
    CHECK_EQUAL(told_count, 1);
    run_and_deliver_until(lease_suspect_at_us(&leases[0]));
    CHECK_EQUAL(told_count, 2);
}

TEST(a_lock_that_is_removed_before_the_thread_comes_is_not_told) {
    add(0);
    run_until(lease_suspect_at_us(&leases[0]));
    CHECK_EQUAL(fake_loop.wakes, 1);
    notifier_remove(&watched[0]);
    play_background();
    CHECK_EQUAL(told_count, 0);
}

TEST(a_lock_that_is_extended_before_the_thread_comes_is_not_told) {
    add(0);
    run_until(lease_suspect_at_us(&leases[0]));
    CHECK(lease_extend(&leases[0], fake_loop.now_us, LEASE_MS, fake_loop.now_us));
    notifier_look(&watched[0]);
    play_background();
    CHECK_EQUAL(told_count, 0);
    run_and_deliver_until(lease_suspect_at_us(&leases[0]));
    CHECK_EQUAL(told_count, 1);
}

TEST(a_lock_that_is_gone_when_the_thread_comes_is_told_lost) {
    add(0);
    run_until(lease_gone_at_us(&leases[0]));
    play_background();
    CHECK_EQUAL(told_count, 1);
    CHECK_EQUAL(tellings[0].event, DLOCK_EVENT_LOST);
    CHECK(!lease_extend(&leases[0], T0_US, 2 * LEASE_MS, T0_US)); /* gone for good */
}

TEST(locks_are_told_one_after_the_other) {
    for (int i = 0; i < LOCKS; i++) {
        add(i);
        fake_loop.now_us += 10 * MS;
    }
    run_until(lease_suspect_at_us(&leases[LOCKS - 1]));
    play_background();
    CHECK_EQUAL(told_count, LOCKS);
    for (int i = 0; i < LOCKS; i++)
        CHECK(tellings[i].name == names[i]);
}

TEST(a_lock_that_is_given_back_is_not_told) {
    add(0);
    lease_end(&leases[0]);
    notifier_look(&watched[0]);
    run_and_deliver_until(T0_US + LEASE_MS * MS);
    CHECK_EQUAL(told_count, 0);
}

TEST(a_lock_that_is_not_added_is_not_told) {
    lease_begin(&leases[0], T0_US, LEASE_MS, T0_US);
    lease_lose(&leases[0], DLOCK_LOST);
    run_and_deliver_until(T0_US + LEASE_MS * MS);
    CHECK_EQUAL(told_count, 0);
}

TEST(a_lock_that_is_lost_before_it_is_added_is_told) {
    lease_begin(&leases[0], T0_US, LEASE_MS, T0_US);
    lease_lose(&leases[0], DLOCK_LOST);
    notifier_add(&tested, &watched[0]);
    run_and_deliver_until(T0_US);
    CHECK_EQUAL(told_count, 1);
    CHECK_EQUAL(tellings[0].event, DLOCK_EVENT_LOST);
}

/* -- locks that last as long as a session */

static deployment fake_deployment = {
    .loop = &fake_loop, .io_timeout_ms = IO_MS, .session_ms = LEASE_MS};

static session_life *begin_tied(void) {
    fake_deployment.lives = NULL;
    session_life *life = life_begin(&fake_deployment, T0_US);
    for (int i = 0; i < LOCKS; i++) {
        lease_begin(&leases[i], T0_US, LEASE_MS, T0_US);
        lease_follow(&leases[i], life, true, T0_US);
        notifier_add(&tested, &watched[i]);
    }
    return life;
}

static void end_tied(session_life *life) {
    for (int i = 0; i < LOCKS; i++)
        lease_end(&leases[i]);
    life_free(life);
    lives_free(fake_deployment.lives);
}

TEST(a_heartbeat_costs_one_timer_however_many_locks_there_are) {
    session_life *life = begin_tied();
    int before = fake_loop.timer_sets;
    for (int i = 0; i < 100; i++) {
        run_and_deliver_until(fake_loop.now_us + LEASE_MS / 3 * MS);
        CHECK(life_renew(life, fake_loop.now_us));
    }
    CHECK_EQUAL(fake_loop.timer_sets, before + 100);
    CHECK_EQUAL(fake_loop.timer_runs, 0);
    CHECK_EQUAL(told_count, 0);
    end_tied(life);
}

TEST(all_locks_of_a_session_are_told_suspect_and_lost_in_time) {
    session_life *life = begin_tied();
    int64_t suspect_us = lease_suspect_at_us(&leases[0]), gone_us = lease_gone_at_us(&leases[0]);
    run_and_deliver_until(suspect_us - 1);
    CHECK_EQUAL(told_count, 0);
    run_and_deliver_until(suspect_us);
    CHECK_EQUAL(told_count, LOCKS);
    run_and_deliver_until(gone_us);
    CHECK_EQUAL(told_count, 2 * LOCKS);
    for (int i = 0; i < LOCKS; i++) {
        CHECK_EQUAL(tellings[i].event, DLOCK_EVENT_SUSPECT);
        CHECK_EQUAL(tellings[LOCKS + i].event, DLOCK_EVENT_LOST);
    }
    end_tied(life);
}

TEST(a_session_that_is_overdue_again_is_told_again) {
    session_life *life = begin_tied();
    for (int i = 1; i <= 3; i++) {
        run_and_deliver_until(lease_suspect_at_us(&leases[0]) + 100 * MS);
        CHECK_EQUAL(told_count, i * LOCKS);
        CHECK(life_renew(life, fake_loop.now_us));
        run_and_deliver_until(fake_loop.now_us + 100 * MS);
    }
    end_tied(life);
}

TEST(a_lock_that_its_session_may_not_know_is_told_although_heartbeats_go_on) {
    session_life *life = begin_tied();
    int64_t gone_us = lease_gone_at_us(&leases[0]);
    lease_unfollow(&leases[0], T0_US);
    for (int i = 0; i < 3; i++) {
        run_and_deliver_until(fake_loop.now_us + LEASE_MS / 3 * MS);
        CHECK(life_renew(life, fake_loop.now_us));
    }
    run_and_deliver_until(gone_us);
    CHECK_EQUAL(told_count, 2);
    CHECK(tellings[0].name == names[0] && tellings[1].name == names[0]);
    CHECK_EQUAL(tellings[1].event, DLOCK_EVENT_LOST);
    CHECK(tellings[1].at_us <= gone_us);
    end_tied(life);
}

TEST(each_acquisition_is_told_of_anew) {
    for (int i = 0; i < 3; i++) {
        add(0);
        run_and_deliver_until(lease_gone_at_us(&leases[0]));
        CHECK_EQUAL(told_count, 2 * (i + 1));
        notifier_remove(&watched[0]);
        lease_end(&leases[0]);
    }
}

static void remove_the_first(void) {
    loop_lock(&fake_loop);
    notifier_remove(&watched[0]);
    lease_end(&leases[0]);
    loop_unlock(&fake_loop);
}

TEST(the_callback_may_release_the_lock) {
    add(0);
    in_callback = remove_the_first;
    run_and_deliver_until(T0_US + 2 * LEASE_MS * MS);
    CHECK_EQUAL(told_count, 1);
}

static void release_and_acquire_the_first(void) {
    remove_the_first();
    loop_lock(&fake_loop);
    add(0);
    loop_unlock(&fake_loop);
}

TEST(the_callback_may_acquire_the_lock_again) {
    add(0);
    in_callback = release_and_acquire_the_first;
    run_and_deliver_until(T0_US + 2 * (EVERY_MS + IO_MS) * MS);
    CHECK_EQUAL(told_count, 2);
    CHECK_EQUAL(tellings[1].event, DLOCK_EVENT_SUSPECT);
}

static atomic_bool is_in_callback, may_callback_end;

static void stay_in_callback(void) {
    atomic_store(&is_in_callback, true);
    while (!atomic_load(&may_callback_end))
        usleep(1000);
}

/* The test is a thread of the program here. */
static void *be_background(void *arg) {
    fake_loop.work(fake_loop.arg);
    return arg;
}

static void *end_callback_soon(void *arg) {
    usleep(20000);
    CHECK(told_count == 1);
    atomic_store(&may_callback_end, true);
    return arg;
}

TEST(a_release_waits_while_the_program_is_told_of_the_lock) {
    add(0);
    add(1);
    run_until(lease_suspect_at_us(&leases[0]));
    notifier_remove(&watched[1]);
    in_callback = stay_in_callback;
    pthread_t background, other;
    pthread_create(&background, NULL, be_background, NULL);
    while (!atomic_load(&is_in_callback))
        usleep(1000);
    loop_lock(&fake_loop);
    notifier_remove(&watched[1]); /* another lock: at once */
    CHECK(!atomic_load(&may_callback_end));
    pthread_create(&other, NULL, end_callback_soon, NULL);
    notifier_remove(&watched[0]);
    CHECK(atomic_load(&may_callback_end));
    loop_unlock(&fake_loop);
    pthread_join(background, NULL);
    pthread_join(other, NULL);
    CHECK_EQUAL(told_count, 1);
}

static int news_count;

/* There is news again whenever it was told, until a lock is told of. */
static void tell_news(notice *news) {
    if (news_count++ == 0) {
        lease_lose(&leases[0], DLOCK_LOST);
        notifier_look(&watched[0]);
        run_until(fake_loop.now_us);
    }
    if (told_count == 0 && news_count < 100) notifier_post(&tested, news);
}

TEST(a_loss_does_not_wait_for_the_end_of_other_news) {
    notice news = {.tell = tell_news};
    add(0);
    news_count = 0;
    notifier_post(&tested, &news);
    play_background();
    CHECK_EQUAL(told_count, 1);
    CHECK_EQUAL(news_count, 2);
}

int main(void) {
    return unit_main(begin, end);
}
