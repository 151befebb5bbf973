/* SPDX-License-Identifier: BSD-3-Clause */
/* hold.c - see hold.h. */
#include "hold.h"

#include "deadline.h"
#include "validity.h"
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* The lead: a part of the lease, but not more than this. */
enum { LEAD_PARTS = 50, LEAD_MAX_US = 50000 };

static bool is_time(int64_t gone_us) {
    return gone_us > HOLD_OVER;
}

/* The number, without the sign that says that it is in question. */
static int64_t time_of(int64_t number) {
    return number < 0 ? -number : number;
}

static int64_t gone_of(const hold *of) {
    return time_of(atomic_load(&of->gone_us));
}

static int64_t lead_us(uint32_t lease_ms) {
    return deadline_earlier((int64_t)lease_ms * 1000 / LEAD_PARTS, LEAD_MAX_US);
}

/* The kernel tells it, however busy we are. Others may move it meanwhile: the last one is right. */
static void set_timer(const hold *of) {
    int fd = atomic_load(&of->lost_fd);
    int64_t gone_us, set_us = -1;
    while (fd >= 0 && (gone_us = gone_of(of)) != set_us) {
        struct itimerspec at = {
            .it_value = {.tv_sec = gone_us / 1000000, .tv_nsec = gone_us % 1000000 * 1000}};
        timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL); /* all 0: never */
        set_us = gone_us;
    }
}

static void set_gone(hold *of, int64_t gone_us) {
    atomic_store(&of->gone_us, gone_us);
    set_timer(of);
}

/* False: somebody was faster. */
static bool move_gone(hold *of, int64_t from, int64_t to) {
    if (!atomic_compare_exchange_strong(&of->gone_us, &from, to)) return false;
    set_timer(of);
    return true;
}

/* Only so much is certain while a shorter extension may still arrive. */
static int64_t end_us(const hold *of, int64_t asked_us, uint32_t lease_ms) {
    if (of->doubtful_ms > 0 && of->doubtful_ms < lease_ms) lease_ms = of->doubtful_ms;
    int64_t end_us = validity_end_us(asked_us, lease_ms);
    return of->has_lead ? end_us - lead_us(lease_ms) : end_us;
}

void hold_init(hold *made, const hold_rule *rule) {
    *made = (hold){.rule = *rule};
    atomic_init(&made->lost_fd, -1);
    if (rule->renew_every_ms == 0) return;
    made->has_lead = true;
    int64_t left_us = end_us(made, 0, rule->lease_ms) - (int64_t)rule->renew_every_ms * 1000;
    int64_t grace_us = (int64_t)rule->io_timeout_ms * 1000;
    made->renew_before_us = left_us > 0 ? left_us : 0;
    made->suspect_before_us =
        made->renew_before_us - deadline_earlier(grace_us, made->renew_before_us / 2);
}

void hold_free(hold *old) {
    int fd = atomic_load(&old->lost_fd);
    if (fd >= 0) close(fd);
}

void hold_set_lead(hold *of) {
    of->has_lead = true;
}

void hold_begin(hold *of, int64_t asked_us, uint32_t lease_ms, bool is_new) {
    of->acquired_us = of->asked_us = asked_us;
    of->lease_ms = lease_ms;
    if (is_new) of->doubtful_ms = 0;
    atomic_store(&of->why, DLOCK_OK);
    set_gone(of, end_us(of, asked_us, lease_ms));
}

bool hold_extend(hold *of, int64_t asked_us, uint32_t lease_ms, int64_t now_us) {
    int64_t before = atomic_load(&of->gone_us), gone_us = time_of(before);
    if (!is_time(gone_us) || now_us >= gone_us) return false;
    if (!move_gone(of, before, end_us(of, asked_us, lease_ms))) return false;
    of->asked_us = asked_us;
    of->lease_ms = lease_ms;
    atomic_store(&of->why, DLOCK_OK);
    return true;
}

int64_t hold_doubt(hold *of, int64_t asked_us, uint32_t lease_ms) {
    int64_t before = atomic_load(&of->gone_us), gone_us = time_of(before);
    int64_t after_us = end_us(of, asked_us, lease_ms);
    if (is_time(gone_us) && after_us < gone_us)
        move_gone(of, before, before < 0 ? -after_us : after_us);
    return gone_us;
}

void hold_restore(hold *of, int64_t gone_us, int64_t now_us) {
    int64_t doubted = atomic_load(&of->gone_us), doubted_us = time_of(doubted);
    if (is_time(doubted_us) && now_us < doubted_us)
        move_gone(of, doubted, doubted < 0 ? -gone_us : gone_us);
}

void hold_note_doubt(hold *of, uint32_t lease_ms) {
    if (of->doubtful_ms == 0 || lease_ms < of->doubtful_ms) of->doubtful_ms = lease_ms;
}

void hold_question(hold *of, bool is_in_question) {
    int64_t before = atomic_load(&of->gone_us), gone_us = time_of(before);
    if (is_time(gone_us)) move_gone(of, before, is_in_question ? -gone_us : gone_us);
}

void hold_lose(hold *of, dlock_status why) {
    if (atomic_load(&of->gone_us) == 0) return;
    atomic_store(&of->why, (int)why);
    set_gone(of, HOLD_OVER);
}

bool hold_expire(hold *of, int64_t now_us) {
    int64_t before = atomic_load(&of->gone_us);
    return before != 0 && now_us >= time_of(before) && move_gone(of, before, HOLD_OVER);
}

void hold_end(hold *of) {
    set_gone(of, 0);
}

dlock_state hold_state(const hold *of, int64_t now_us) {
    int64_t number = atomic_load(&of->gone_us), gone_us = time_of(number);
    if (gone_us == 0) return DLOCK_FREE;
    if (now_us >= gone_us) return DLOCK_GONE;
    if (number < 0) return DLOCK_SUSPECT;
    if (of->rule.renew_every_ms == 0) return DLOCK_HELD;
    return now_us < gone_us - of->suspect_before_us ? DLOCK_HELD : DLOCK_SUSPECT;
}

int64_t hold_left_us(const hold *of, int64_t now_us) {
    int64_t number = atomic_load(&of->gone_us);
    return is_time(number) ? deadline_left_us(number, now_us) : 0;
}

int64_t hold_suspect_at_us(const hold *of) {
    int64_t number = atomic_load(&of->gone_us);
    if (number < 0) return 0;
    if (of->rule.renew_every_ms == 0) return DEADLINE_NEVER;
    return is_time(number) ? number - of->suspect_before_us : 0;
}

int64_t hold_gone_at_us(const hold *of) {
    int64_t gone_us = gone_of(of);
    return is_time(gone_us) ? gone_us : 0;
}

int64_t hold_renew_at_us(const hold *of) {
    int64_t gone_us = gone_of(of);
    if (of->rule.renew_every_ms == 0 || !is_time(gone_us)) return DEADLINE_NEVER;
    /* If less is certain than was asked for, not all the time. */
    int64_t every_us = (int64_t)of->rule.renew_every_ms * 1000;
    int64_t least_us = deadline_earlier(every_us, (gone_us - of->asked_us) / 2);
    int64_t at_us = gone_us - of->renew_before_us;
    if (at_us < of->asked_us + least_us) at_us = of->asked_us + least_us;
    return hold_renew_for_ms(of, at_us) == 0 ? DEADLINE_NEVER : at_us;
}

uint32_t hold_renew_for_ms(const hold *of, int64_t now_us) {
    if (of->rule.max_hold_ms == 0) return of->rule.lease_ms;
    int64_t last_us = deadline_after_ms(of->acquired_us, of->rule.max_hold_ms);
    int64_t left_ms = deadline_left_us(last_us, now_us) / 1000;
    uint32_t lease_ms = left_ms < of->rule.lease_ms ? (uint32_t)left_ms : of->rule.lease_ms;
    int64_t gain_us = end_us(of, now_us, lease_ms) - gone_of(of);
    return gain_us * 2 >= (int64_t)of->rule.renew_every_ms * 1000 ? lease_ms : 0;
}

int hold_lost_fd(hold *of) {
    int fd = atomic_load(&of->lost_fd);
    if (fd >= 0) return fd;
    fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0) return -1;
    if (!of->has_lead) { /* then it is not renewed; but it may be lost just now */
        of->has_lead = true;
        int64_t lead = lead_us(of->lease_ms), before = atomic_load(&of->gone_us);
        while (is_time(time_of(before)) &&
               !atomic_compare_exchange_weak(&of->gone_us, &before,
                                             before < 0 ? before + lead : before - lead))
            continue;
    }
    atomic_store(&of->lost_fd, fd);
    set_timer(of);
    return fd;
}
