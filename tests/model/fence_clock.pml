/* SPDX-License-Identifier: BSD-3-Clause */
/* fence_clock.pml - three servers whose wall clocks disagree and jump. One at a time gives out the
 * fences of a name: the master, its replica after a promotion, and another node of the cluster
 * after the slot has moved. Any server can also be killed and start again from its file.
 *
 * What is checked
 *   fence order    every fence is higher than all fences of the name before, whoever gave them
 *   true base      no base is ahead of the highest wall clock there was: jumps do not add up
 *   bounded lead   no fence is further ahead of that wall clock than LEAD_MAX, the transit of each
 *                  promotion that was heard of, and a step. (Leads are used up within some ticks
 *                  more than there are here; fence_test.c shows that transits do not add up.)
 *
 * What mirrors what
 *   find_clock(), set_clock(), follow_wall_clock(), hear(), take_over(), hear_lead()
 *                           module/fence.c
 *   grant()                 module/fences.c: fences_next(), by the time since boot at which the
 *                           command began, unless the wall clock sets the clock
 *   tell()                  module/fences.c: DLOCK.CLOCK and the message to other nodes, at least
 *                           every TELL_EVERY ticks, and at once after a step of the clock
 *   promotions, restart()   module/server_events.c: fences_take_over()
 *   move()                  the new owner of a slot takes nothing over: it has heard of the clock
 *
 * What is assumed. A message takes at most a tick, and less than TRANSIT. A step of the clock is
 * heard before the server that has given fences after it is replaced: by the message, or by a grant
 * that comes along. A replica may be promoted and demoted again without anybody hearing of it, but
 * then it gives out no fence. A command takes at most a tick. The move of a slot takes longer than a
 * message. A server that has just taken over is not killed before its own clock is in its file. The
 * mutants STEP_NOT_HEARD and MOVE_FASTER_THAN_MESSAGE are no mistakes of ours: they show that nobody
 * can promise it otherwise
 * (module/README.md, The fence).
 *
 * What is left out. FENCE n and FENCES n, which move the clock ahead, are covered by unit tests. A
 * grant carries its fence to the replica; here the replica hears only of clocks, which is less. */

#define SERVERS 3
#define REPLICA 1
#define NODE 2
#define UNIT 4          /* fences for a tick of the clock: more than grants */
#define LEAD_MAX (3 * UNIT)
#define TRANSIT (2 * UNIT)
#define LEAD_LIMIT (LEAD_MAX + 2 * TRANSIT)
#define STEP 1          /* fences may be so far ahead of the clock without moving it */
#define TELL_EVERY 2    /* ticks */
#define JUMP (6 * UNIT) /* of a wall clock: more than LEAD_MAX and TRANSIT */
#define TIME_MAX 3
#define GRANTS_MAX 3
#ifndef CHANGES_MAX
#define CHANGES_MAX 2   /* jumps of clocks, restarts, promotions and moves */
#endif

byte boot;                  /* ticks since boot, on which spans of time are measured */
byte wall[SERVERS];         /* how far the wall clock of each is ahead of boot * UNIT */
bool is_set[SERVERS];       /* the mark of fence.c: */
byte mark_boot[SERVERS], mark_base[SERVERS], lead[SERVERS], heard_lead[SERVERS];
byte last[SERVERS];         /* fence */
bool is_untold[SERVERS];    /* there was a step or a fence since the clock was told */
byte told_at;               /* when the master last told its clock */
byte told_base[SERVERS], told_clock[SERVERS]; /* in the file of each server */
byte granted_at;            /* when the last fence was given */
bool is_new_master;         /* its file does not have its clock yet */
byte master, grants, changes;
byte highest_fence;         /* of all, for the assertions */
byte top_wall = 2 * JUMP;   /* the highest wall clock so far */
byte promotions;

/* A message about the clock that is under way to each of the others. */
bool is_sent[SERVERS];
byte sent_at, sent_base, sent_clock;

hidden byte base, clock, fresh, heard_clock, highest_lead;
hidden byte moment; /* the time since boot, as whoever asks for the clock has read it */

#define wall_of(s) (boot * UNIT + wall[s])
#define marked_base(s) (mark_base[s] + (moment - mark_boot[s]) * UNIT)
#define used_lead(s) ((moment - mark_boot[s]) * UNIT / 2) /* by the time that has passed */
#define left_lead(s) (lead[s] > used_lead(s) -> lead[s] - used_lead(s) : 0)
#define left_heard(s) (heard_lead[s] > used_lead(s) -> heard_lead[s] - used_lead(s) : 0)
#define larger(a, b) ((a) > (b) -> (a) : (b))

inline find_base(s) {
    base = (is_set[s] -> larger(wall_of(s), marked_base(s)) : wall_of(s))
}

inline find_clock(s) {
    clock = (is_set[s] -> larger(wall_of(s), marked_base(s) + left_lead(s)) : wall_of(s))
}

/* The clock never goes back: what the base does not cover is a lead. */
inline set_clock(s, new_base, new_clock) {
    fresh = (is_set[s] -> larger(marked_base(s) + left_lead(s), new_clock) : new_clock);
    heard_clock = (is_set[s] -> marked_base(s) + left_heard(s) : 0);
    mark_base[s] = (fresh > new_base + LEAD_LIMIT -> fresh - LEAD_LIMIT : new_base);
    lead[s] = (fresh > mark_base[s] -> fresh - mark_base[s] : 0);
    heard_lead[s] = (heard_clock > mark_base[s] -> heard_clock - mark_base[s] : 0);
    mark_boot[s] = moment;
    is_set[s] = true
}

/* Others have this clock now. */
inline hear_lead(s, their_clock) {
    find_base(s);
    fresh = (their_clock > base -> their_clock - base + used_lead(s) : 0);
    heard_lead[s] = larger(heard_lead[s], fresh)
}

#define sets_clock(s) (!is_set[s] || wall_of(s) > marked_base(s))

inline follow_wall_clock(s) {
    if
    :: sets_clock(s) ->
        find_clock(s);
        if
        :: s == master && is_set[s] && wall_of(s) > marked_base(s) + left_lead(s) ->
            is_untold[s] = true
        :: else
        fi;
        set_clock(s, wall_of(s), 0)
    :: else
    fi
}

/* Was a fence far ahead of the clock given out? */
inline follow_last(s) {
    find_clock(s);
    find_base(s);
    if
    :: last[s] > clock + STEP -> set_clock(s, base, last[s])
    :: else
    fi
}

/* took: the ticks since the command began; the server hears and tells nothing meanwhile. */
inline grant(s, took) {
    grants++;
    granted_at = boot;
    moment = boot - took;
#ifndef OLD_TIME_SETS_CLOCK
    if
    :: sets_clock(s) -> moment = boot
    :: else
    fi;
#endif
#ifdef WALL_CLOCK_ALONE
    clock = wall_of(s);
#else
    follow_wall_clock(s);
    find_clock(s);
#endif
    last[s] = larger(last[s] + 1, clock);
    follow_last(s);
    is_untold[s] = true;
    assert(last[s] > highest_fence); /* fence order */
    highest_fence = last[s];
    find_base(s);
    assert(base <= boot * UNIT + top_wall); /* true base */
    assert(last[s] <= boot * UNIT + top_wall + promotions * TRANSIT + LEAD_MAX +
                          2 * STEP) /* bounded lead */
}

inline tell(s) {
    moment = boot;
    follow_wall_clock(s);
    find_base(s);
    find_clock(s);
    sent_base = base;
    sent_clock = clock;
    sent_at = boot;
    told_at = boot;
    told_base[s] = base;
    told_clock[s] = clock;
    is_untold[s] = false;
    is_new_master = false;
    is_sent[(s + 1) % SERVERS] = true;
    is_sent[(s + 2) % SERVERS] = true
}

/* The clock counts on from when the server has heard of it. */
inline hear(s) {
    moment = boot;
    is_sent[s] = false;
    follow_wall_clock(s);
    find_base(s);
    find_clock(s);
    told_base[s] = larger(told_base[s], sent_base);
    told_clock[s] = larger(told_clock[s], sent_clock);
#ifndef NOT_HEARD
    if
    :: sent_base > base || sent_clock > clock ->
        base = larger(sent_base, base);
        set_clock(s, base, sent_clock)
    :: else
    fi;
    hear_lead(s, sent_clock)
#endif
}

inline take_over(s, is_promoted) {
    moment = boot;
    follow_wall_clock(s);
    find_base(s);
#ifdef JUMPS_ADD_UP
    find_clock(s);
    base = clock;
#endif
    highest_lead = larger(LEAD_MAX, left_heard(s));
#ifdef FLAPS_ADD_UP
    highest_lead = larger(highest_lead, left_lead(s));
#endif
    if
#ifdef PROMOTIONS_ADD_UP
    :: is_promoted -> base = base + TRANSIT
#else
#ifndef NO_TRANSIT
    :: is_promoted -> highest_lead = highest_lead + TRANSIT
#endif
#endif
    :: else
    fi;
#ifdef NO_JUMP
    set_clock(s, base, base);
#else
    set_clock(s, base, base + highest_lead);
#endif
    is_untold[s] = true
}

/* The AOF has every fence, and the base as it was told last. */
inline restart(s) {
    changes++;
    moment = boot;
    is_set[s] = false;
    lead[s] = 0;
    heard_lead[s] = 0;
    mark_base[s] = 0;
    mark_boot[s] = 0;
    follow_wall_clock(s);
    find_base(s);
    find_clock(s);
    if
    :: told_base[s] > base || told_clock[s] > clock ->
        base = larger(told_base[s], base);
        set_clock(s, base, told_clock[s])
    :: else
    fi;
    hear_lead(s, told_clock[s]);
    follow_last(s);
    hear_lead(s, last[s]);
    take_over(s, false)
}

#ifdef STEP_NOT_HEARD
#define is_heard true
#else
#define is_heard (!is_untold[master] && !is_sent[REPLICA] && !is_sent[NODE] && !is_sent[0])
#endif
#ifdef MOVE_FASTER_THAN_MESSAGE
#define is_moved true
#else
#define is_moved (boot > granted_at + 1)
#endif
#define may_change (changes < CHANGES_MAX)
/* Messages and tellings are in time. */
#define may_tick (boot < TIME_MAX && \
                  (!(is_sent[0] || is_sent[1] || is_sent[2]) || boot == sent_at) && \
                  (!is_untold[master] || boot < told_at + TELL_EVERY))

proctype world() {
    byte s;
end:
    do
    :: d_step { grants < GRANTS_MAX -> grant(master, 0) }
    :: d_step { grants < GRANTS_MAX && may_tick -> boot++; grant(master, 1) }
    :: d_step { is_untold[master] && !is_sent[0] && !is_sent[1] && !is_sent[2] -> tell(master) }
    :: d_step { is_sent[0] -> hear(0) }
    :: d_step { is_sent[1] -> hear(1) }
    :: d_step { is_sent[2] -> hear(2) }
    :: atomic { may_change -> /* a wall clock jumps */
           select(s : 0 .. SERVERS - 1);
           if
           :: d_step { wall[s] >= JUMP -> wall[s] = wall[s] - JUMP }
           :: d_step { wall[s] < 3 * JUMP -> wall[s] = wall[s] + JUMP }
           fi;
           top_wall = larger(top_wall, wall[s]);
           changes++;
           s = 0
       }
    :: d_step { may_change && !is_new_master -> restart(master) }
    :: d_step { may_change && master != REPLICA && is_heard ->
           changes++;
           is_untold[master] = false;
           promotions++;
           master = REPLICA;
           is_new_master = true;
           take_over(REPLICA, true)
       }
    :: d_step { may_change && master != REPLICA -> /* promoted and demoted, and nobody heard of it */
           changes++;
           take_over(REPLICA, true);
           is_untold[REPLICA] = false
       }
    :: d_step { may_change && master != NODE && is_heard && is_moved ->
           changes++;
           is_untold[master] = false;
           master = NODE;
           is_new_master = true;
           is_untold[NODE] = true
       }
    :: d_step { may_tick -> boot++ }
    od
}

init {
    atomic {
        wall[0] = 2 * JUMP; /* they disagree */
        wall[1] = JUMP;
        told_base[0] = 2 * JUMP;
        told_clock[0] = 2 * JUMP;
        run world()
    }
}
