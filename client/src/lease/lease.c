/* SPDX-License-Identifier: BSD-3-Clause */
/* lease.c - see lease.h.
 *
 *   gone_at    = end of validity - lead
 *   renew_at   = gone_at - renew_before     that is, asked + renew_every_ms, for the usual lease
 *   suspect_at = gone_at - suspect_before   that is, an I/O timeout after renew_at, or after now if
 *                                           renew_at is past; or half of the rest
 *
 * Invariants: all writers are locked, so a plain store of gone_us is enough; readers load gone_us
 * once. The timer behind lost_fd is set to gone_at whenever gone_at changes. */
#include "lease/lease.h"

#include "base/deadline.h"
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { DRIFT_PER_MS_US = 10, DRIFT_US = 2000 };
enum { LEAD_PARTS = 50, LEAD_MAX_US = 50000 };

int64_t validity_end_us(int64_t asked_us, uint32_t lease_ms) {
    int64_t lease_us = (int64_t)lease_ms * 1000;
    int64_t drift_us = (int64_t)lease_ms * DRIFT_PER_MS_US + DRIFT_US;
    return lease_us > drift_us ? asked_us + lease_us - drift_us : asked_us;
}

static int64_t lead_us(uint32_t lease_ms) {
    return deadline_earlier((int64_t)lease_ms * 1000 / LEAD_PARTS, LEAD_MAX_US);
}

static int64_t end_us(const lease *lease, int64_t asked_us, uint32_t lease_ms) {
    return validity_end_us(asked_us, lease_ms) - (lease->has_lead ? lead_us(lease_ms) : 0);
}

/* The kernel makes the descriptor readable in time, however busy the program is. */
static void set_gone(lease *lease, int64_t number) {
    int64_t gone_us = llabs(number); /* 0 disarms the timer */
    struct itimerspec due = {
        .it_value = {.tv_sec = gone_us / 1000000, .tv_nsec = gone_us % 1000000 * 1000}};
    atomic_store(&lease->gone_us, number);
    if (lease->lost_fd >= 0) timerfd_settime(lease->lost_fd, TFD_TIMER_ABSTIME, &due, NULL);
}

static void set_rule(lease *lease, const lease_rule *rule) {
    lease->rule = *rule;
    if (rule->renew_every_ms == 0) return;
    int64_t rest_us = end_us(lease, 0, rule->lease_ms) - (int64_t)rule->renew_every_ms * 1000;
    lease->renew_before_us = rest_us > 0 ? rest_us : 0;
}

/* After set_gone(), of a grant or an extension. */
static void set_suspect(lease *lease, int64_t now_us) {
    if (lease->rule.renew_every_ms == 0) return;
    int64_t gone_us = lease_gone_at_us(lease), due_us = lease_renew_at_us(lease);
    if (lease->own_end_us == DEADLINE_NEVER) /* the reply to the next heartbeat is due */
        due_us = lease->asked_us + (int64_t)lease->rule.lease_ms * 1000 * 2 / 3;
    else if (due_us == DEADLINE_NEVER)
        due_us = gone_us - lease->renew_before_us;
    int64_t rest_us = gone_us - (due_us > now_us ? due_us : now_us);
    int64_t grace_us = (int64_t)lease->rule.io_timeout_ms * 1000;
    atomic_store(&lease->suspect_before_us, rest_us - deadline_earlier(grace_us, rest_us / 2));
}

/* One of the two ends has moved. A question stays. */
static void move_gone(lease *lease, int64_t now_us) {
    int64_t gone_us = deadline_earlier(lease->own_end_us, lease->session_end_us);
    set_gone(lease, atomic_load(&lease->gone_us) < 0 ? -gone_us : gone_us);
    set_suspect(lease, now_us);
}

void lease_init(lease *lease, const lease_rule *rule) {
    *lease = (struct lease){
        .own_lease_ms = rule->lease_ms, .own_renew_every_ms = rule->renew_every_ms, .lost_fd = -1};
    lease->has_lead = rule->is_watched || rule->renew_every_ms > 0;
    set_rule(lease, rule);
}

void lease_plan(lease *lease, uint32_t lease_ms) {
    lease_rule rule = lease->rule;
    rule.lease_ms = lease_ms != 0 ? lease_ms : lease->own_lease_ms;
    if (rule.lease_ms == lease->rule.lease_ms) return;
    uint64_t every_ms = (uint64_t)lease->own_renew_every_ms * rule.lease_ms / lease->own_lease_ms;
    if (rule.renew_every_ms > 0) rule.renew_every_ms = every_ms > 0 ? (uint32_t)every_ms : 1;
    set_rule(lease, &rule);
}

void lease_free(lease *lease) {
    if (lease->lost_fd >= 0) close(lease->lost_fd);
    lease->lost_fd = -1;
}

void lease_begin(lease *lease, int64_t asked_us, uint32_t lease_ms, int64_t now_us) {
    lease->acquired_us = lease->asked_us = asked_us;
    lease->lease_ms = lease_ms;
    lease->own_end_us = end_us(lease, asked_us, lease_ms);
    lease->session_end_us = DEADLINE_NEVER;
    atomic_store(&lease->why, DLOCK_OK);
    set_gone(lease, lease->own_end_us);
    set_suspect(lease, now_us);
}

void lease_follow_session(lease *lease, int64_t sent_us, uint32_t timeout_ms, bool is_endless,
                          int64_t now_us) {
    int64_t session_end_us = end_us(lease, sent_us, timeout_ms);
    bool is_first = lease->session_end_us == DEADLINE_NEVER;
    if (now_us >= lease_gone_at_us(lease)) return;
    if (is_endless) {
        lease->own_end_us = DEADLINE_NEVER;
        lease->asked_us = sent_us;
    }
    if (is_first || session_end_us > lease->session_end_us) lease->session_end_us = session_end_us;
    if (!is_first) atomic_store(&lease->why, DLOCK_OK);
    move_gone(lease, now_us);
}

bool lease_extend(lease *lease, int64_t asked_us, uint32_t lease_ms, int64_t now_us) {
    int64_t gone_us = lease_gone_at_us(lease), later_us = end_us(lease, asked_us, lease_ms);
    if (now_us >= gone_us) return false;
    atomic_store(&lease->why, DLOCK_OK);
    if (later_us <= lease->own_end_us) return true; /* or the session alone counts */
    lease->asked_us = asked_us;
    lease->lease_ms = lease_ms;
    lease->own_end_us = later_us;
    move_gone(lease, now_us);
    return true;
}

void lease_question(lease *lease, bool is_in_question) {
    int64_t gone_us = lease_gone_at_us(lease);
    atomic_store(&lease->gone_us, is_in_question ? -gone_us : gone_us);
}

void lease_lose(lease *lease, dlock_status why) {
    if (atomic_load(&lease->gone_us) == 0) return;
    atomic_store(&lease->why, (int)why);
    set_gone(lease, LEASE_OVER);
}

void lease_end(lease *lease) {
    set_gone(lease, 0);
}

static int64_t suspect_at(const lease *lease, int64_t number) {
    if (number == 0) return DEADLINE_NEVER;
    return number < 0 ? 0 : number - atomic_load(&lease->suspect_before_us);
}

dlock_state lease_state(const lease *lease, int64_t now_us) {
    int64_t number = atomic_load(&lease->gone_us);
    if (number == 0) return DLOCK_STATE_FREE;
    if (now_us >= llabs(number)) return DLOCK_STATE_LOST;
    return now_us < suspect_at(lease, number) ? DLOCK_STATE_HELD : DLOCK_STATE_SUSPECT;
}

int64_t lease_left_us(const lease *lease, int64_t now_us) {
    return deadline_left_us(atomic_load(&lease->gone_us), now_us);
}

int64_t lease_suspect_at_us(const lease *lease) {
    return suspect_at(lease, atomic_load(&lease->gone_us));
}

int64_t lease_gone_at_us(const lease *lease) {
    return llabs(atomic_load(&lease->gone_us));
}

int64_t lease_renew_at_us(const lease *lease) {
    int64_t gone_us = lease_gone_at_us(lease), asked_us = lease->asked_us;
    if (lease->rule.renew_every_ms == 0 || gone_us <= LEASE_OVER) return DEADLINE_NEVER;
    if (lease->own_end_us == DEADLINE_NEVER) return DEADLINE_NEVER; /* the session is renewed */
    int64_t due_us = gone_us - lease->renew_before_us;
    /* A lease that is shorter than in the rule would be due at once. */
    int64_t every_us = (int64_t)lease->rule.renew_every_ms * 1000;
    int64_t least_us = asked_us + deadline_earlier(every_us, (gone_us - asked_us) / 2);
    if (due_us < least_us) due_us = least_us;
    return lease_renew_for_ms(lease, due_us) == 0 ? DEADLINE_NEVER : due_us;
}

uint32_t lease_renew_for_ms(const lease *lease, int64_t now_us) {
    const lease_rule *rule = &lease->rule;
    if (rule->max_hold_ms == 0) return rule->lease_ms;
    int64_t last_us = deadline_after_ms(lease->acquired_us, rule->max_hold_ms);
    int64_t left_ms = deadline_left_us(last_us, now_us) / 1000;
    uint32_t lease_ms = left_ms < rule->lease_ms ? (uint32_t)left_ms : rule->lease_ms;
    int64_t gain_us = end_us(lease, now_us, lease_ms) - lease_gone_at_us(lease);
    return gain_us * 2 >= (int64_t)rule->renew_every_ms * 1000 ? lease_ms : 0;
}

int lease_lost_fd(lease *lease) {
    if (lease->lost_fd >= 0) return lease->lost_fd;
    lease->lost_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (lease->lost_fd < 0) return -1;
    int64_t number = atomic_load(&lease->gone_us);
    int64_t late_us = lease->has_lead || llabs(number) <= LEASE_OVER ? 0 : lead_us(lease->lease_ms);
    lease->has_lead = true;
    if (lease->own_end_us != DEADLINE_NEVER) lease->own_end_us -= late_us;
    if (lease->session_end_us != DEADLINE_NEVER) lease->session_end_us -= late_us;
    set_gone(lease, number < 0 ? number + late_us : number - late_us);
    return lease->lost_fd;
}

dlock_status lease_why(const lease *lease, dlock_state state) {
    dlock_status why = (dlock_status)atomic_load(&lease->why);
    if (why != DLOCK_OK) return why;
    if (state == DLOCK_STATE_LOST) return DLOCK_LOST; /* the lease has just ended */
    if (atomic_load(&lease->gone_us) < 0) return DLOCK_UNREACHABLE;
    bool is_held_longest =
        lease->rule.max_hold_ms > 0 && lease_renew_at_us(lease) == DEADLINE_NEVER;
    return is_held_longest ? DLOCK_TIMEOUT : DLOCK_IN_DOUBT;
}
