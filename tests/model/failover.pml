/* SPDX-License-Identifier: BSD-3-Clause */
/* failover.pml - a master, its replica, and a failover. Three cases, three promises:
 *
 *   CASE 1   The old master lives on, cut off from the replica, and serves clients. Exclusion holds
 *            for clients that wait for the acknowledgement of the replica (min_replicas 1), for the
 *            grant and for each extension.
 *   CASE 2   The old master is dead. The replica heard of the grant, and not of all extensions.
 *            Exclusion holds all the same: who takes over starts each lease anew.
 *   CASE 3   The old master is dead, and anything of the stream may be lost. Fences rise in the
 *            order of time, if the failover takes longer than the clocks differ.
 *
 * What mirrors what
 *   grant(), extension, release     module/transition.c; the stream: module/replicate.c
 *   replica()                       transition_apply(): the lease counts from when the replica
 *                                   hears of it, and the replica ends no lease
 *   promotion                       module/server_events.c: begin_to_decide(), leases_take_over()
 *   next_fence()                    module/fence.c: max(last + 1, clock)
 *   acknowledged                    client/src/deployment/routed.c: WAIT behind the command
 *
 * What is left out. Between a client and a server commands take no time: lease.pml has late ones.
 * Waiters are not replicated; their connections break, and they ask again. A restart from a file is
 * a promotion. FENCE n, which puts the counter ahead of the clock, is covered by unit tests.
 *
 * The mutant NO_ACKNOWLEDGEMENT is no mistake of ours: it is what nobody can promise. A client that
 * does not wait for the replica can lose its lock by a failover, and spin shows how. */

#ifndef CASE
#define CASE 1
#endif
#define CLIENTS 2
#define LEASE 2
#define TIME_MAX 7
#define COMMANDS_MAX 5
#define PER_TICK 8 /* fences for each tick of the clock: more than grants */
#define SKEW 1     /* the clock of the replica is behind by so much: less than a failover takes */
#define NONE 255

#ifdef NO_ACKNOWLEDGEMENT
#define NEEDS_ACKNOWLEDGEMENT false
#else
#define NEEDS_ACKNOWLEDGEMENT (CASE == 1)
#endif

mtype = { APPLY, GONE };
chan stream = [3] of { mtype, byte, byte, bool }; /* token, fence, is it an extension? */

byte now_ms;
bool is_promoted;
byte down_since = NONE; /* cases 2 and 3: the old master is dead */
byte commands;          /* so far: the model must be finite */

/* Server 0 is the old master, server 1 the replica. */
byte holder[2] = NONE, lease_end[2], held_fence[2], last_fence[2];

/* The clients. A client is its token: it acquires once. */
byte valid_until[CLIENTS], asked[CLIENTS], fence[CLIENTS];
bool is_pending[CLIENTS]; /* the command waits for the acknowledgement of the replica */
bool has_asked[CLIENTS];
byte highest_fence;
#define is_certain(i) (now_ms < valid_until[i])

/* Which servers a client can reach. */
#define can_reach(s) ((s) == 0 -> down_since == NONE && (CASE == 1 || !is_promoted) : is_promoted)
#define is_free(s) (holder[s] == NONE || now_ms >= lease_end[s])
#define may_ask (commands < COMMANDS_MAX && len(stream) < 3 && now_ms < TIME_MAX)

inline next_fence(s) {
#ifdef FENCE_WITHOUT_CLOCK
    last_fence[s]++
#else
    if
    :: last_fence[s] + 1 > (now_ms + SKEW - s * SKEW) * PER_TICK -> last_fence[s]++
    :: else -> last_fence[s] = (now_ms + SKEW - s * SKEW) * PER_TICK
    fi
#endif
}

/* The client counts from now. With acknowledgement, not before the replica has it. */
inline count_validity(me, s) {
    asked[me] = now_ms;
    if
    :: NEEDS_ACKNOWLEDGEMENT && s == 0 -> is_pending[me] = !is_promoted
    :: else -> become_certain(me)
    fi
}

inline become_certain(me) {
    if
    :: asked[me] + LEASE > now_ms ->
        assert(CASE == 3 || !is_certain(1 - me)); /* exclusion */
        valid_until[me] = asked[me] + LEASE
    :: else
    fi
}

inline grant(me, s) {
    commands++;
    has_asked[me] = true;
    next_fence(s);
    assert(CASE != 3 || last_fence[s] > highest_fence); /* fence order */
    highest_fence = last_fence[s];
    holder[s] = me;
    lease_end[s] = now_ms + LEASE;
    held_fence[s] = last_fence[s];
    if
    :: s == 0 && !is_promoted -> stream!APPLY, me, last_fence[s], false
    :: else
    fi;
    count_validity(me, s);
    skip
}

inline extend(me, s) {
    commands++;
    lease_end[s] = now_ms + LEASE;
    if
    :: s == 0 && !is_promoted -> stream!APPLY, me, held_fence[s], true
    :: else
    fi;
    count_validity(me, s);
    skip
}

inline release(me, s) {
    commands++;
    valid_until[me] = 0;
    is_pending[me] = false;
    holder[s] = NONE;
    if
    :: s == 0 && !is_promoted -> stream!GONE, me, 0, false
    :: else
    fi;
    skip
}

proctype client(byte me) {
end:
    do
    :: d_step { may_ask && !has_asked[me] && can_reach(0) && is_free(0) -> grant(me, 0) }
    :: d_step { may_ask && !has_asked[me] && can_reach(1) && is_free(1) -> grant(me, 1) }
    :: d_step { may_ask && !is_pending[me] && is_certain(me) && can_reach(0) && holder[0] == me &&
                !is_free(0) -> extend(me, 0) }
    :: d_step { may_ask && !is_pending[me] && is_certain(me) && can_reach(1) && holder[1] == me &&
                !is_free(1) -> extend(me, 1) }
    :: d_step { may_ask && has_asked[me] && can_reach(0) && holder[0] == me -> release(me, 0) }
    :: d_step { may_ask && has_asked[me] && can_reach(1) && holder[1] == me -> release(me, 1) }
    /* The replica acknowledges what it has applied: here, once the stream is empty. */
    :: d_step { is_pending[me] && !is_promoted && len(stream) == 0 ->
           is_pending[me] = false;
           become_certain(me);
           skip
       }
    od
}

/* The replica hears of what the master has decided, late and in order. */
active proctype replica() {
    byte token, new_fence;
    mtype what;
end:
    do
    :: d_step { !is_promoted && len(stream) > 0 ->
           stream?what, token, new_fence, _;
           if
           :: what == APPLY ->
               holder[1] = token;
               lease_end[1] = now_ms + LEASE;
               held_fence[1] = new_fence;
               if
               :: new_fence > last_fence[1] -> last_fence[1] = new_fence
               :: else
               fi
           :: what == GONE && holder[1] == token -> holder[1] = NONE
           :: else
           fi;
           what = 0; token = 0; new_fence = 0
       }
    od
}

/* The old master dies, or is cut off; the replica is promoted. What was under way is lost: only
 * extensions in case 2. */
active proctype failover() {
    if
    :: CASE != 1 -> d_step { down_since = now_ms; skip }
    :: CASE == 1
    fi;
end:
    d_step {
        (CASE != 3 || now_ms > down_since + SKEW) &&
        (CASE != 2 || !(stream??[APPLY, 0, _, false] || stream??[APPLY, 1, _, false])) ->
        is_promoted = true;
#ifndef TAKE_OVER_KEEPS_END
        lease_end[1] = now_ms + LEASE; /* leases_take_over() */
#endif
        is_pending[0] = false;
        is_pending[1] = false;
        do
        :: len(stream) > 0 -> stream?_, _, _, _
        :: else -> break
        od;
        skip
    }
}

active proctype clock() {
end:
    do
    :: d_step { now_ms < TIME_MAX -> now_ms++ }
    od
}

init {
    atomic { run client(0); run client(1) }
}
