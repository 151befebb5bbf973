/* SPDX-License-Identifier: BSD-3-Clause */
/* fence.c - see fence.h.
 *
 * Why fences grow when a server takes over, however many it has not heard of: its predecessor gave
 * out no fence above its own base + FENCE_LEAD_MAX_US. The successor knows that base (or has one
 * that is higher), and time has passed since then, so its own base + FENCE_LEAD_MAX_US is above all
 * of them. The jumps do not add up: the base knows nothing of them. A replica knows the base of its
 * master as it was some time ago, and counts on from when it heard of it: it is behind by the delay
 * of the message. FENCE_TRANSIT_US is for that: a promoted server adds it to the base that it has
 * heard of. It does not add it to its own base, in which FENCE_TRANSIT_US may be already: a server
 * that is promoted and demoted again, while it is cut off, would run ahead of the others with each
 * promotion, and they would not know.
 *
 * Why the lead becomes smaller: a client with a lock on several servers asks each of them for the
 * largest of their fences. A server that has just taken over is at the limit of what the others
 * accept. Half the speed is enough to stay below that limit from then on.
 *
 * A run of fences, or a burst of grants, may be ahead of the clock by up to STEP_US: the clock soon
 * catches up. Only what is further ahead moves the clock. */
#include "fence.h"

enum { STEP_US = 1000000, NOISE_US = 1000 };

/* The clock at the moment when it was last set. */
typedef struct clock_mark {
    bool is_set;
    int64_t boot_us, base_us, lead_us;
    int64_t before_us; /* the clock just before */
} clock_mark;

/* The base without what promotions of this server have added, at some moment. */
typedef struct heard_mark {
    int64_t boot_us, base_us;
} heard_mark;

static int64_t last;
static uint64_t steps;
static clock_mark mark;
static heard_mark heard;

void fence_start(void) {
    last = 0;
    steps = 0;
    mark = (clock_mark){.is_set = false};
    heard = (heard_mark){0};
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

static int64_t marked_clock(fence_time now) {
    int64_t base_us = marked_base(now);
    if (mark.lead_us == 0) return base_us;
    return base_us + larger(0, mark.lead_us - (now.boot_us - mark.boot_us) / 2);
}

/* If the wall clock was set ahead, the lead is used up. */
int64_t fence_clock(fence_time now) {
    return mark.is_set ? larger(now.wall_us, marked_clock(now)) : now.wall_us;
}

/* The clock never goes back: what the base does not cover is a lead. */
static void set_clock(fence_time now, int64_t base_us, int64_t clock_us) {
    int64_t before_us = mark.is_set ? marked_clock(now) : base_us;
    mark.is_set = true;
    mark.boot_us = now.boot_us;
    mark.base_us = base_us;
    mark.lead_us = larger(0, larger(before_us, clock_us) - base_us);
    mark.before_us = before_us;
}

static int64_t heard_base(fence_time now) {
    return larger(now.wall_us, heard.base_us + (now.boot_us - heard.boot_us));
}

static void hear_base(int64_t base_us, fence_time now) {
    heard = (heard_mark){.boot_us = now.boot_us, .base_us = larger(base_us, heard_base(now))};
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
    hear_base(now.wall_us, now);
}

/* Was a fence far ahead of the clock given out or seen? */
static void follow_last(fence_time now, int64_t clock_us) {
    if (last <= clock_us + STEP_US) return;
    hear_base(last - FENCE_LEAD_MAX_US - STEP_US, now);
    set_clock(now, larger(fence_base(now), last - FENCE_LEAD_MAX_US - STEP_US), last);
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

bool fence_may_reserve(int64_t at_least, int64_t count, fence_time now) {
    int64_t first = larger(at_least, larger(last, fence_clock(now)));
    return first + count <= fence_base(now) + FENCE_LEAD_MAX_US + STEP_US;
}

void fence_see(int64_t fence, fence_time now) {
    follow_wall_clock(now);
    last = larger(last, fence);
    follow_last(now, fence_clock(now));
}

void fence_hear(int64_t base_us, int64_t clock_us, fence_time now) {
    follow_wall_clock(now);
    hear_base(base_us, now);
    if (base_us <= fence_base(now) && clock_us <= fence_clock(now)) return;
    base_us = larger(base_us, fence_base(now));
    int64_t highest_us = base_us + FENCE_LEAD_MAX_US + STEP_US;
    set_clock(now, base_us, clock_us < highest_us ? clock_us : highest_us);
}

void fence_take_over(fence_time now, bool is_promoted) {
    follow_wall_clock(now);
    int64_t base_us = fence_base(now);
    if (is_promoted) base_us = larger(base_us, heard_base(now) + FENCE_TRANSIT_US);
    set_clock(now, base_us, base_us + FENCE_LEAD_MAX_US);
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
