/* SPDX-License-Identifier: BSD-3-Clause */
/* names.pml - one server, three locks, and three clients, each of which asks for any of them in one
 * step.
 *
 * What is checked
 *   all or none      a client that waits holds nothing, and a grant is of all names or of none
 *   no overtaking    a grant goes to nobody while an earlier request for one of its names is in
 *                    line
 *   no deadlock      no run ends with a client that still waits (an "invalid end state" of spin);
 *                    and whenever the server has nothing left to do, nobody is first in all its
 *                    lines with all locks free
 *
 * What mirrors what
 *   acquire(), release()                    module/transition_all.c, transition.c
 *   serve(), look()                         transition.c: serve(); transition_all.c: serve()
 *   join, leave(), step_aside(), turn[]     module/queues.c: one arrival for all places
 *   marked[], work                          module/work.c: settle()
 *
 * What is left out. All requests are exclusive, and leases end as releases do, name by name. That a
 * grant reaches its client is the subject of queue.pml; keys that are deleted, moved or of another
 * type look like a release to the queues. A request for the same names by the same token keeps its
 * turn, which is no step here.
 *
 * Each step of the server is atomic, as Redis runs one command or callback at a time. */

#define CLIENTS 3
#define NAMES 3
#ifndef REQUESTS /* of each client, one after the other */
#define REQUESTS 1
#endif
#ifndef LEAVES /* how many waits may end without the locks, in all */
#define LEAVES 1
#endif
#ifndef ABSENCES /* how often a session may go away, in all */
#define ABSENCES 1
#endif
#define NOBODY CLIENTS

#define has(names, n) (((names) >> (n)) & 1)
#define turn_of(p, n) turn[(p) * NAMES + (n)]
#define is_in_line(p, n) (has(wanted[p], n) && !is_aside[p])

/* The server. */
byte holder[NAMES] = NOBODY;
byte wanted[CLIENTS];           /* by a request that waits: bit n for name n; 0: none waits */
byte turn[CLIENTS * NAMES];     /* number of the arrival in each queue */
byte last_turn;
bool is_aside[CLIENTS];         /* its session is away */
bool marked[NAMES];             /* work.c will look at the queue */

byte held[CLIENTS];             /* what the client was granted */
byte requests[CLIENTS] = REQUESTS;
byte leaves = LEAVES, absences = ABSENCES;

/* For the specification: who came first, whatever the queues say. */
byte came[CLIENTS], last_came;

hidden byte name, other, first, best, asked, given;
hidden byte refused, fits, overtaken_in_line, holds_a_part;

/* -- the specification ------------------------------------------------------------------------ */

/* The client is about to be granted the names. */
inline check_grant(p, names) {
    overtaken_in_line = false;
    holds_a_part = false;
    other = 0;
    do
    :: other < CLIENTS ->
        overtaken_in_line = overtaken_in_line ||
            (other != p && !is_aside[other] && (wanted[other] & (names)) != 0 &&
             came[other] < came[p]);
        other++
    :: else -> break
    od;
    name = 0;
    do
    :: name < NAMES ->
        holds_a_part = holds_a_part || holder[name] == p ||
            (has(names, name) && holder[name] != NOBODY);
        name++
    :: else -> break
    od;
    assert(!overtaken_in_line);
    assert(!holds_a_part);
    other = 0; name = 0
}

/* -- queues.c --------------------------------------------------------------------------------- */

/* first: the client that is first in line for the name, or NOBODY. */
inline find_first(n) {
    first = NOBODY;
    best = 255;
    other = 0;
    do
    :: other < CLIENTS ->
        if
        :: is_in_line(other, n) && turn_of(other, n) < best ->
            first = other;
            best = turn_of(other, n)
        :: else
        fi;
        other++
    :: else -> break
    od;
    other = 0; best = 0
}

inline join(p, names) {
    wanted[p] = names;
    last_turn++;
    name = 0;
    do
    :: name < NAMES ->
#ifdef TURN_PER_NAME /* as if the request went from queue to queue, each client in another order */
        turn_of(p, name) = last_turn * 4 + ((p + name) % NAMES) * 16;
#else
        turn_of(p, name) = last_turn;
#endif
        name++
    :: else -> break
    od;
    name = 0
}

/* The client is out of line: the next one may have waited for it alone. */
inline mark_where_first(p) {
    name = 0;
    do
    :: name < NAMES ->
        find_first(name);
        if
        :: first == p -> marked[name] = true
        :: else
        fi;
        name++
    :: else -> break
    od;
    name = 0; first = 0
}

inline leave(p) {
    wanted[p] = 0;
    came[p] = 0;
    name = 0;
    do
    :: name < NAMES -> turn_of(p, name) = 0; name++
    :: else -> break
    od;
    name = 0;
    if
    :: wanted[0] + wanted[1] + wanted[2] == 0 -> last_turn = 0; last_came = 0
    :: else
    fi
}

/* -- transition_all.c ------------------------------------------------------------------------- */

inline grant(p, names) {
    check_grant(p, names);
    name = 0;
    do
    :: name < NAMES ->
        if
        :: has(names, name) -> holder[name] = p
        :: else
        fi;
        name++
    :: else -> break
    od;
    name = 0;
    held[p] = names
}

/* fits: the client is first in all its lines, and all its locks are free. n: the queue that is
 * served; NAMES: the specification asks. */
inline is_ready(p, n) {
    fits = true;
    name = 0;
    do
    :: name < NAMES ->
        if
        :: has(wanted[p], name) ->
            find_first(name);
            fits = fits && holder[name] == NOBODY;
#ifdef SERVE_BY_ONE_QUEUE
            fits = fits && ((n != NAMES && name != n) || first == p)
#else
            fits = fits && first == p
#endif
        :: else
        fi;
        name++
    :: else -> break
    od;
    name = 0; first = 0
}

/* The lock may be free for the first in its line. */
inline serve(n) {
    find_first(n);
    asked = first;
    if
    :: asked != NOBODY && holder[n] == NOBODY ->
#ifdef TAKE_A_PART /* what is free is taken at once */
        holder[n] = asked;
        held[asked] = held[asked] | (1 << n);
        wanted[asked] = wanted[asked] & ~(1 << n);
#else
        is_ready(asked, n);
        if
        :: fits ->
            best = wanted[asked];
            grant(asked, best);
            leave(asked)
        :: else
        fi
#endif
    :: else
    fi;
    first = 0; asked = 0; fits = 0; best = 0
}

inline acquire(p, names) {
    refused = false;
    name = 0;
    do
    :: name < NAMES ->
        if
        :: has(names, name) ->
            find_first(name);
#ifdef OVERTAKE
            refused = refused || holder[name] != NOBODY
#else
            refused = refused || holder[name] != NOBODY || first != NOBODY
#endif
        :: else
        fi;
        name++
    :: else -> break
    od;
    last_came++;
    came[p] = last_came;
    name = 0; first = 0;
    if
    :: refused -> join(p, names)
    :: else -> grant(p, names); came[p] = 0
    fi;
    refused = 0
}

inline release(p, names) {
    name = 0;
    do
    :: name < NAMES ->
        if
        :: has(names, name) && holder[name] == p -> holder[name] = NOBODY
        :: else
        fi;
        name++
    :: else -> break
    od;
    name = 0;
    held[p] = held[p] & ~(names);
    if
    :: has(names, 0) -> serve(0)
    :: else
    fi;
    if
    :: has(names, 1) -> serve(1)
    :: else
    fi;
    if
    :: has(names, 2) -> serve(2)
    :: else
    fi
}

/* -- the parties ------------------------------------------------------------------------------- */

proctype client(byte me) {
    byte names;
    do
    :: requests[me] > 0 ->
        if
        :: names = 1 :: names = 2 :: names = 3 :: names = 4 :: names = 5 :: names = 6 :: names = 7
        fi;
        d_step { requests[me]--; acquire(me, names) };
        do
        :: wanted[me] == 0 -> break /* granted, or the wait has ended */
        :: d_step { wanted[me] != 0 && leaves > 0 -> /* timeout, release, a closed connection */
               leaves--;
#ifndef LEAVE_UNNOTICED
               mark_where_first(me);
#endif
               is_aside[me] = false;
               leave(me)
           }
        :: d_step { wanted[me] != 0 && !is_aside[me] && absences > 0 -> /* the session is away */
               absences--;
               mark_where_first(me);
               is_aside[me] = true
           }
        :: d_step { is_aside[me] -> /* and back, with its old turn */
               is_aside[me] = false;
               mark_where_first(me)
           }
        od;
        do
        :: d_step { held[me] != 0 -> given = held[me]; release(me, given); given = 0 }
        :: d_step { has(held[me], 0) -> release(me, 1) } /* one alone */
        :: d_step { has(held[me], 1) -> release(me, 2) }
        :: d_step { has(held[me], 2) -> release(me, 4) }
        :: held[me] == 0 -> break
        od;
        names = 0
    :: else -> break
    od
}

active proctype work() {
end:
    do
    :: d_step { marked[0] -> marked[0] = false; serve(0) }
    :: d_step { marked[1] -> marked[1] = false; serve(1) }
    :: d_step { marked[2] -> marked[2] = false; serve(2) }
    od
}

/* The server has nothing to do: nobody was forgotten. */
active proctype watch() {
end:
    do
    :: d_step { !marked[0] && !marked[1] && !marked[2] ->
           asked = 0;
           do
           :: asked < CLIENTS ->
               if
               :: wanted[asked] != 0 && !is_aside[asked] ->
                   holds_a_part = held[asked] != 0;
                   assert(!holds_a_part);
                   is_ready(asked, NAMES);
                   if
                   :: fits -> assert(0)
                   :: else
                   fi
               :: else
               fi;
               asked++
           :: else -> break
           od;
           asked = 0; fits = 0; holds_a_part = 0
       }
    od
}

init {
    atomic {
        run client(0);
        run client(1);
        run client(2)
    }
}
