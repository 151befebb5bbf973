/* SPDX-License-Identifier: BSD-3-Clause */
/* lease.pml - one server, the clock, and two clients whose commands are late, lost or repeated.
 *
 * What is checked
 *   exclusion     the times at which clients are certain to hold the lock never overlap
 *   fence order   a holder that is told later has the higher fence; a renewed lock keeps its fence
 *
 * What mirrors what
 *   server()      module/transition.c: a token holds until the end of its lease, and an EXTEND or
 *                 another ACQUIRE by the same token never shortens the lease
 *   sent          client/src/deployment: asked_us, from which the client counts
 *   valid_until   client/src/lease: the end of validity; client/src/handlers/waiting.c asks
 *                 again after a long wait, which is here one more EXTEND
 *   token         client/src/base/token.c: new for every acquisition
 *
 * What is left out. Time is discrete and the same for all: the allowance of the client for clocks
 * that run at different speeds (lease.h) is not modelled. A client acts on the end of its validity
 * at once: no lock with a lease can stop a process that was paused. Waiting is in queue.pml.
 *
 * The network is a bag: any command under way may arrive next, or too late to matter. That is more
 * than TCP does on one connection, and covers commands that are repeated on a new connection while
 * older ones are still being read. Replies may be lost too. */

#define CLIENTS 2
#ifndef TIME_MAX
#define TIME_MAX 4
#endif
#define LONG 2 /* leases */
#define SHORT 1
#define NONE 0

mtype = { ACQUIRE, EXTEND, RELEASE };

/* Commands under way, in any order: client, command, token, lease, when it was sent. */
#define SLOTS 2
chan under_way[SLOTS] = [1] of { byte, mtype, byte, byte, byte };
/* the same, and the fence; 0: no */
chan to_client[CLIENTS] = [1] of { mtype, byte, byte, byte, byte };

byte now_ms; /* the clock of all */

/* The server. */
byte holder = NONE, lease_end, held_fence, last_fence;

/* The clients. Tokens are numbers; the last one given out is unique. */
byte last_token, token[CLIENTS], valid_until[CLIENTS], fence[CLIENTS];
#define is_certain(i) (token[i] != NONE && now_ms < valid_until[i])

byte budget[CLIENTS]; /* commands that the client may still send: the model must be finite */

byte highest_fence; /* that a client was told of, for the assertion */

inline later(time, lease) {
#ifdef EXTEND_SHORTENS
    time = now_ms + lease
#else
    if
    :: time < now_ms + lease -> time = now_ms + lease
    :: else
    fi
#endif
}

inline serve() {
    result = 0;
    if
    :: now_ms >= lease_end -> holder = NONE; lease_end = 0; held_fence = 0
    :: else
    fi;
    if
    :: word == ACQUIRE && holder == NONE ->
        holder = asked;
        lease_end = now_ms + lease;
#ifdef FENCE_REPEATED
        last_fence = 1;
#else
        last_fence++;
#endif
        held_fence = last_fence;
        result = held_fence
    :: word == ACQUIRE && holder == asked -> later(lease_end, lease); result = held_fence
    :: word == EXTEND && holder == asked -> later(lease_end, lease); result = held_fence
#ifdef RELEASE_BY_ANYBODY
    :: word == RELEASE ->
#else
    :: word == RELEASE && holder == asked ->
#endif
        holder = NONE; lease_end = 0; held_fence = 0
    :: else
    fi;
    if
    :: len(to_client[from]) == 0 && word != RELEASE ->
        to_client[from]!word, asked, lease, sent, result
    :: else /* lost */
    fi;
    from = 0; word = 0; asked = 0; lease = 0; sent = 0; result = 0
}

proctype server(byte slot) {
    byte from, asked, lease, sent, result;
    mtype word;
end:
    do
    :: d_step { under_way[slot]?from, word, asked, lease, sent -> serve() }
    od
}

/* A reply is trusted if it is for the token in use. The lease counts from before the command was
 * sent, whenever the reply comes, and an extension never makes the end come sooner. */
inline read_reply(me) {
    if
    :: about == token[me] && result != 0 &&
       (word == ACQUIRE || now_ms < valid_until[me]) -> /* what is lost stays lost */
#ifdef VALIDITY_FROM_REPLY
        until = now_ms + lease;
#else
        until = sent + lease;
#endif
        if
        :: word == ACQUIRE && until > now_ms && valid_until[me] == 0 ->
            assert(!is_certain(1 - me)); /* exclusion */
            assert(result > highest_fence);
            highest_fence = result;
            fence[me] = result;
            valid_until[me] = until
        :: word == EXTEND && until > valid_until[me] ->
            assert(result == fence[me]);
            valid_until[me] = until
        :: else
        fi
    :: else
    fi;
    word = 0; about = 0; lease = 0; sent = 0; result = 0; until = 0
}

inline send(me, command, length) {
    budget[me]--;
    if
    :: len(under_way[0]) == 0 -> under_way[0]!me, command, token[me], length, now_ms
    :: else -> under_way[1]!me, command, token[me], length, now_ms
    fi
}
#define may_send (budget[me] > 0 && len(under_way[0]) + len(under_way[1]) < SLOTS)

proctype client(byte me) {
    byte about, lease, sent, result, until;
    mtype word;
end:
    do
    :: atomic { may_send && token[me] == NONE && last_token < 3 -> /* a new acquisition */
#ifdef TOKEN_REUSED
           token[me] = me + 1;
           last_token++;
#else
           last_token++;
           token[me] = last_token;
#endif
           if
           :: send(me, ACQUIRE, LONG)
           :: send(me, ACQUIRE, SHORT)
           fi
       }
    :: atomic { may_send && token[me] != NONE && valid_until[me] == 0 -> /* it asks again */
           send(me, ACQUIRE, LONG)
       }
    :: atomic { may_send && is_certain(me) -> send(me, EXTEND, LONG) }
    :: atomic { may_send && is_certain(me) -> send(me, EXTEND, SHORT) }
    :: d_step { to_client[me]?word, about, lease, sent, result -> read_reply(me) }
    :: atomic { may_send && token[me] != NONE -> /* done, or given up */
           send(me, RELEASE, 0);
           if
           :: may_send -> send(me, RELEASE, 0) /* repeated */
           :: true
           fi;
           token[me] = NONE; valid_until[me] = 0; fence[me] = 0
       }
    od
}

active proctype clock() {
end:
    do
    :: d_step { now_ms < TIME_MAX -> now_ms++ }
    od
}

init {
    atomic {
        budget[0] = 4;
        budget[1] = 1;
        run server(0);
        run server(1);
        run client(0);
        run client(1)
    }
}
