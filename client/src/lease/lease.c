/* SPDX-License-Identifier: BSD-3-Clause */
/* lease.c - see lease.h.
 *
 *   gone_at    = own_end, or the end of the life if that is earlier
 *   own_end    = end of validity - lead
 *   renew_at   = own_end - renew_before     that is, asked + lease_every_ms(), for the usual lease
 *   suspect_at = own_end - suspect_before   that is, due + the smaller one of an I/O timeout and
 *                                           (own_end - due) / 2, where due is renew_at, or now if
 *                                           renew_at is past. Or when the life is suspect, if that
 *                                           is earlier
 *
 * Invariants: all writers are locked, so plain stores are enough. own_end_us is DEADLINE_NEVER only
 * while there is a life. The timer behind lost_fd is set to gone_at whenever gone_at changes. */
#include "lease/lease.h"

#include "base/deadline.h"
#include "lease/notifier.h"
#include <poll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int64_t end_us(const lease *lease, int64_t asked_us, uint32_t lease_ms) {
    return validity_end_us(asked_us, lease_ms) - (lease->has_lead ? validity_lead_us(lease_ms) : 0);
}

static session_life *life_of(const lease *lease) {
    lease_links *links = atomic_load(&lease->links);
    return links == NULL ? NULL : atomic_load(&links->life);
}

/* -- reading, without the mutex */

typedef struct lease_times {
    int64_t gone_us, suspect_us;
} lease_times;

/* The lock may be given back or tied anew meanwhile: then all is read again. */
static lease_times read_times(const lease *lease) {
    lease_times times;
    session_life *life;
    do {
        life = life_of(lease);
        times.gone_us = atomic_load(&lease->own_end_us);
        times.suspect_us = lease_own_suspect_at_us(lease);
        if (life == NULL || times.gone_us <= LEASE_OVER) continue;
        times.gone_us = deadline_earlier(times.gone_us, atomic_load(&life->end_us));
        times.suspect_us = deadline_earlier(times.suspect_us, atomic_load(&life->suspect_us));
    } while (life != life_of(lease));
    bool is_in_question = times.gone_us > LEASE_OVER && atomic_load(&lease->is_in_question);
    if (is_in_question) times.suspect_us = 0;
    return times;
}

dlock_state lease_state(const lease *lease, int64_t now_us) {
    lease_times times = read_times(lease);
    if (times.gone_us == 0) return DLOCK_STATE_FREE;
    if (now_us >= times.gone_us) return DLOCK_STATE_LOST;
    return now_us < times.suspect_us ? DLOCK_STATE_HELD : DLOCK_STATE_SUSPECT;
}

int64_t lease_left_us(const lease *lease, int64_t now_us) {
    return atomic_load(&lease->is_in_question) ? 0
                                               : deadline_left_us(lease_gone_at_us(lease), now_us);
}

int64_t lease_suspect_at_us(const lease *lease) {
    return read_times(lease).suspect_us;
}

int64_t lease_gone_at_us(const lease *lease) {
    return read_times(lease).gone_us;
}

int64_t lease_own_suspect_at_us(const lease *lease) {
    int64_t own_end_us = atomic_load(&lease->own_end_us);
    bool is_never = own_end_us == 0 || own_end_us == DEADLINE_NEVER;
    return is_never ? DEADLINE_NEVER : own_end_us - atomic_load(&lease->suspect_before_us);
}

int64_t lease_asked_us(const lease *lease) {
    const session_life *life = life_of(lease);
    bool is_endless = atomic_load(&lease->own_end_us) == DEADLINE_NEVER;
    return life != NULL && is_endless ? atomic_load(&life->renewed_us) : lease->asked_us;
}

/* -- changes */

static bool is_readable_now(int fd) {
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0;
}

/* The kernel makes the descriptor readable in time, however busy the program is. */
static void set_lost_fd(const lease *lease) {
    const lease_links *links = atomic_load(&lease->links);
    if (links == NULL || links->lost_fd < 0) return;
    int64_t gone_us = lease_gone_at_us(lease); /* 0 disarms the timer */
    /* A timer that is set anew is not readable for a moment, even if it is due. */
    if (gone_us == LEASE_OVER && is_readable_now(links->lost_fd)) return;
    struct itimerspec due = {
        .it_value = {.tv_sec = gone_us / 1000000, .tv_nsec = gone_us % 1000000 * 1000}};
    timerfd_settime(links->lost_fd, TFD_TIMER_ABSTIME, &due, NULL);
}

static void tell_watched(const lease *lease) {
    const lease_links *links = atomic_load(&lease->links);
    if (links != NULL && links->watched != NULL) notifier_look(links->watched);
}

static void on_life_news(life_follower *follower) {
    const lease *lease = container_of(follower, lease_links, follower)->lease;
    set_lost_fd(lease);
    tell_watched(lease);
}

static void set_own_end(lease *lease, int64_t own_end_us) {
    atomic_store(&lease->own_end_us, own_end_us);
    set_lost_fd(lease);
}

static void set_life(lease_links *links, session_life *life) {
    session_life *before = atomic_load(&links->life), *after = life_share(life);
    atomic_store(&links->life, life);
    if (before != NULL) life_leave(before, &links->follower);
    if (life != NULL) life_follow(life, &links->follower, links->lost_fd >= 0);
    life_free(after);
}

static int64_t renew_before_us(const lease *lease) {
    int64_t every_us = (int64_t)lease_every_ms(lease) * 1000;
    int64_t rest_us = end_us(lease, 0, lease->planned_ms) - every_us;
    return rest_us > 0 ? rest_us : 0;
}

/* A grant or an extension, or the session, has set the end. */
static void move_own_end(lease *lease, int64_t own_end_us, int64_t now_us) {
    set_own_end(lease, own_end_us);
    if (lease->rule.renew_every_ms == 0) return;
    int64_t due_us = lease_renew_at_us(lease);
    if (due_us == DEADLINE_NEVER) due_us = own_end_us - renew_before_us(lease);
    int64_t rest_us = own_end_us - (due_us > now_us ? due_us : now_us);
    int64_t grace_us = (int64_t)lease->rule.io_timeout_ms * 1000;
    atomic_store(&lease->suspect_before_us, rest_us - deadline_earlier(grace_us, rest_us / 2));
}

void lease_init(lease *lease, const lease_rule *rule) {
    *lease = (struct lease){.rule = *rule, .has_lead = rule->renew_every_ms > 0};
    lease_plan(lease, 0);
}

void lease_link(lease *lease, lease_links *links) {
    *links = (lease_links){.lease = lease, .follower.tell = on_life_news, .lost_fd = -1};
    atomic_store(&lease->links, links);
}

void lease_plan(lease *lease, uint32_t lease_ms) {
    lease->planned_ms = lease_ms != 0 ? lease_ms : lease->rule.lease_ms;
}

void lease_free(lease *lease) {
    lease_links *links = atomic_load(&lease->links);
    if (links == NULL) return;
    if (links->lost_fd >= 0) close(links->lost_fd);
    links->lost_fd = -1;
}

void lease_begin(lease *lease, int64_t asked_us, uint32_t lease_ms, int64_t now_us) {
    asked_us = deadline_earlier(asked_us, now_us);
    lease->acquired_us = lease->asked_us = asked_us;
    lease->lease_ms = lease_ms;
    atomic_store(&lease->why, DLOCK_OK);
    move_own_end(lease, end_us(lease, asked_us, lease_ms), now_us);
}

void lease_follow(lease *lease, session_life *life, bool is_endless, int64_t now_us) {
    if (now_us >= lease_gone_at_us(lease)) return;
    set_life(atomic_load(&lease->links), life);
    set_own_end(lease, is_endless ? DEADLINE_NEVER : atomic_load(&lease->own_end_us));
}

void lease_unfollow(lease *lease, int64_t now_us) {
    if (life_of(lease) == NULL) return;
    int64_t gone_us = lease_gone_at_us(lease);
    lease->asked_us = lease_asked_us(lease);
    if (gone_us > LEASE_OVER) move_own_end(lease, gone_us, now_us);
    set_life(atomic_load(&lease->links), NULL);
    tell_watched(lease);
}

bool lease_extend(lease *lease, int64_t asked_us, uint32_t lease_ms, int64_t now_us) {
    asked_us = deadline_earlier(asked_us, now_us);
    int64_t later_us = end_us(lease, asked_us, lease_ms);
    if (now_us >= lease_gone_at_us(lease)) return false;
    atomic_store(&lease->why, DLOCK_OK);
    if (later_us <= atomic_load(&lease->own_end_us)) return true; /* or the session alone counts */
    lease->asked_us = asked_us;
    lease->lease_ms = lease_ms;
    move_own_end(lease, later_us, now_us);
    return true;
}

void lease_question(lease *lease, bool is_in_question) {
    atomic_store(&lease->is_in_question, is_in_question);
    tell_watched(lease);
}

void lease_lose(lease *lease, dlock_status why) {
    if (atomic_load(&lease->own_end_us) == 0) return;
    atomic_store(&lease->why, (int)why);
    set_own_end(lease, LEASE_OVER);
    tell_watched(lease);
}

void lease_end(lease *lease) {
    lease->asked_us = lease_asked_us(lease);
    set_own_end(lease, 0);
    if (life_of(lease) != NULL) set_life(atomic_load(&lease->links), NULL);
    atomic_store(&lease->is_in_question, false);
}

/* -- the rest */

int64_t lease_renew_at_us(const lease *lease) {
    int64_t own_end_us = atomic_load(&lease->own_end_us), asked_us = lease->asked_us;
    if (lease->rule.renew_every_ms == 0 || own_end_us <= LEASE_OVER) return DEADLINE_NEVER;
    if (own_end_us == DEADLINE_NEVER) return DEADLINE_NEVER; /* the session is renewed */
    int64_t due_us = own_end_us - renew_before_us(lease);
    /* A lease that is shorter than in the rule would be due at once. */
    int64_t every_us = (int64_t)lease_every_ms(lease) * 1000;
    int64_t least_us = asked_us + deadline_earlier(every_us, (own_end_us - asked_us) / 2);
    if (due_us < least_us) due_us = least_us;
    return lease_renew_for_ms(lease, due_us) == 0 ? DEADLINE_NEVER : due_us;
}

uint32_t lease_renew_for_ms(const lease *lease, int64_t now_us) {
    const lease_rule *rule = &lease->rule;
    if (rule->max_hold_ms == 0) return lease->planned_ms;
    int64_t last_us = deadline_after_ms(lease->acquired_us, rule->max_hold_ms);
    int64_t left_ms = deadline_left_us(last_us, now_us) / 1000;
    uint32_t lease_ms = left_ms < lease->planned_ms ? (uint32_t)left_ms : lease->planned_ms;
    int64_t gain_us = end_us(lease, now_us, lease_ms) - atomic_load(&lease->own_end_us);
    return gain_us * 2 >= (int64_t)lease_every_ms(lease) * 1000 ? lease_ms : 0;
}

uint32_t lease_own_left_ms(const lease *lease, int64_t now_us) {
    int64_t end_us = deadline_after_ms(lease->asked_us, lease->lease_ms);
    return (uint32_t)(deadline_left_us(end_us, now_us) / 1000);
}

int lease_lost_fd(lease *lease) {
    lease_links *links = atomic_load(&lease->links);
    if (links->lost_fd >= 0) return links->lost_fd;
    links->lost_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (links->lost_fd < 0) return -1;
    int64_t own_end_us = atomic_load(&lease->own_end_us);
    bool has_end = own_end_us > LEASE_OVER && own_end_us != DEADLINE_NEVER;
    if (has_end && !lease->has_lead) own_end_us -= validity_lead_us(lease->lease_ms);
    lease->has_lead = true;
    set_life(links, atomic_load(&links->life)); /* is told of renewals from now on */
    set_own_end(lease, own_end_us);
    return links->lost_fd;
}

dlock_status lease_why(const lease *lease, dlock_state state) {
    dlock_status why = (dlock_status)atomic_load(&lease->why);
    if (why != DLOCK_OK) return why;
    if (state == DLOCK_STATE_LOST) return DLOCK_LOST; /* the lease has just ended */
    if (atomic_load(&lease->is_in_question)) return DLOCK_UNREACHABLE;
    bool is_held_longest =
        lease->rule.max_hold_ms > 0 && lease_renew_at_us(lease) == DEADLINE_NEVER;
    return is_held_longest ? DLOCK_TIMEOUT : DLOCK_IN_DOUBT;
}
