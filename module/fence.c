/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.c - see fence.h.
 *
 * Why fences grow when a server takes over, however many it has not heard of. Its predecessor gave
 * out no fence above its own base + FENCE_LEAD_MAX_US, unless the predecessor had taken over a
 * short while before. The successor knows that base (or has one that is higher), and time has
 * passed since then, so its own base + FENCE_LEAD_MAX_US is above all of these fences. Two things
 * are not covered by that:
 *
 *   the delay of the message   A replica counts the base on from when it heard of it, so its base
 *                              is behind. FENCE_TRANSIT_US makes up for that, and for the STEP_US
 *                              by which fences may be ahead of the clock.
 *   a recent takeover          A predecessor that was promoted leads by FENCE_TRANSIT_US more. If
 *                              the successor has heard of it, it adds FENCE_TRANSIT_US to the lead
 *                              it has heard of. If not, half of the time since that promotion has
 *                              gone from the lead: that must be more than the delay of a message.
 *
 * Nothing of this adds up. The base knows nothing of takeovers, and a lead is used up after twice
 * its time: only promotions that follow each other within 2 * FENCE_TRANSIT_US raise the lead
 * further. A server does not add FENCE_TRANSIT_US to a lead of its own: one that is promoted and
 * demoted again and again, while it is cut off, stays where it is.
 *
 * Why the lead becomes smaller: a client with a lock on several servers asks each of them for the
 * largest of their fences. A server that has just taken over is at the limit of what the others
 * accept (a promoted one for the first 2 * FENCE_TRANSIT_US beyond it). Half the speed is enough to
 * stay below that limit from then on.
 *
 * A run of fences, or a burst of grants, may be ahead of the clock by up to STEP_US: the clock soon
 * catches up. Only what is further ahead moves the clock. */
#include "fence.h"

enum { STEP_US = 100000, NOISE_US = 1000 };

/* The clock at the moment when it was last set. */
typedef struct clock_mark {
    bool is_set;
    int64_t boot_us, base_us, lead_us;
    int64_t heard_us;  /* the largest lead of others that was heard of */
    int64_t before_us; /* the clock just before */
} clock_mark;

static int64_t last;
static uint64_t steps;
static clock_mark mark;

void fence_start(void) {
    last = 0;
    steps = 0;
    mark = (clock_mark){.is_set = false};
}

static int64_t larger(int64_t one, int64_t other) {
    return one > other ? one : other;
}

static int64_t marked_base(fence_time now) {
    return mark.base_us + (now.boot_us - mark.boot_us);
}

int64_t fence_base(fence_time now) {
    return mark.is_set ? larger(now.wall_us, marked_base(now)) : now.wall_us;
}

/* What is left of a lead of the mark. */
static int64_t lead_left(int64_t lead_us, fence_time now) {
    return lead_us == 0 ? 0 : larger(0, lead_us - (now.boot_us - mark.boot_us) / 2);
}

static int64_t marked_clock(fence_time now) {
    return marked_base(now) + lead_left(mark.lead_us, now);
}

/* If the wall clock was set ahead, the lead is used up. */
int64_t fence_clock(fence_time now) {
    return mark.is_set ? larger(now.wall_us, marked_clock(now)) : now.wall_us;
}

/* The clock never goes back: what the base does not cover is a lead. */
static void set_clock(fence_time now, int64_t base_us, int64_t clock_us) {
    int64_t before_us = base_us, heard_us = base_us;
    if (mark.is_set) {
        before_us = marked_clock(now);
        heard_us = marked_base(now) + lead_left(mark.heard_us, now);
    }
    clock_us = larger(before_us, clock_us);
    base_us = larger(base_us, clock_us - FENCE_LEAD_LIMIT_US);
    mark = (clock_mark){
        .is_set = true,
        .boot_us = now.boot_us,
        .base_us = base_us,
        .lead_us = larger(0, clock_us - base_us),
        .heard_us = larger(0, heard_us - base_us),
        .before_us = before_us,
    };
}

/* Others lead by so much now. */
static void hear_lead(fence_time now, int64_t lead_us) {
    mark.heard_us = larger(mark.heard_us, lead_us + (now.boot_us - mark.boot_us) / 2);
}

/* The two clocks of now are not read at exactly the same time, so a small difference is none. */
bool fence_sets_clock(fence_time now) {
    return !mark.is_set || now.wall_us > marked_base(now) + NOISE_US;
}

/* Has the wall clock stepped ahead? */
static void follow_wall_clock(fence_time now) {
    if (!fence_sets_clock(now)) return;
    if (mark.is_set && now.wall_us > marked_clock(now) + STEP_US) steps++;
    set_clock(now, now.wall_us, 0);
}

/* Was a fence far ahead of the clock given out or seen? */
static void follow_last(fence_time now, int64_t clock_us) {
    if (last <= clock_us + STEP_US) return;
    set_clock(now, fence_base(now), last);
    steps++;
}

int64_t fence_next(fence_time now, int64_t at_least, int64_t count) {
    follow_wall_clock(now);
    int64_t clock_us = fence_clock(now);
    last = larger(larger(at_least, clock_us), last + 1) + count - 1;
    follow_last(now, clock_us);
    return last;
}

bool fence_may_ask_for(int64_t wanted, fence_time now) {
    return wanted <= last || wanted <= fence_base(now) + FENCE_LEAD_MAX_US;
}

bool fence_may_restore(int64_t fence, fence_time now) {
    int64_t promoted_us = fence_base(now) + FENCE_LEAD_MAX_US + 2 * FENCE_TRANSIT_US;
    return fence <= last || fence <= larger(promoted_us, fence_clock(now));
}

bool fence_may_reserve(int64_t at_least, int64_t count, int64_t pending, fence_time now) {
    int64_t clock_us = fence_clock(now);
    int64_t first = larger(at_least, larger(last, clock_us));
    return pending + count <= FENCE_PENDING_MAX &&
           first + pending + count <=
               larger(fence_base(now) + FENCE_LEAD_MAX_US, clock_us) + STEP_US;
}

void fence_see(int64_t fence, fence_time now) {
    follow_wall_clock(now);
    last = larger(last, fence);
    follow_last(now, fence_clock(now));
    hear_lead(now, fence - fence_base(now));
}

void fence_hear(int64_t base_us, int64_t clock_us, fence_time now) {
    follow_wall_clock(now);
    if (base_us > fence_base(now) || clock_us > fence_clock(now))
        set_clock(now, larger(base_us, fence_base(now)), clock_us);
    hear_lead(now, clock_us - fence_base(now));
}

void fence_take_over(fence_time now, bool is_promoted) {
    follow_wall_clock(now);
    int64_t lead_us = larger(FENCE_LEAD_MAX_US, lead_left(mark.heard_us, now));
    if (is_promoted) lead_us += FENCE_TRANSIT_US;
    set_clock(now, fence_base(now), fence_base(now) + lead_us);
    steps++;
}

/* When the clock showed this value, on the boot clock: the inverse of fence_clock(). */
static int64_t boot_of(int64_t clock_us) {
    int64_t since_us = clock_us - mark.base_us - mark.lead_us;
    if (since_us < 0) return mark.boot_us - larger(0, mark.before_us - clock_us);
    return mark.boot_us + since_us + (since_us < mark.lead_us ? since_us : mark.lead_us);
}

int64_t fence_given_us(int64_t fence, fence_time now) {
    int64_t ahead_us = marked_base(now) - now.wall_us;
    bool is_plain = !mark.is_set || (mark.lead_us == 0 && fence >= mark.base_us &&
                                     ahead_us <= NOISE_US && ahead_us >= -NOISE_US);
    int64_t given_us = is_plain ? fence : now.wall_us - (now.boot_us - boot_of(fence));
    return given_us < now.wall_us ? given_us : now.wall_us;
}

int64_t fence_last(void) {
    return last;
}

uint64_t fence_steps(void) {
    return steps;
}
