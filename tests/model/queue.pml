/* SPDX-License-Identifier: BSD-3-Clause */
/* queue.pml - one server, one lock, and the clients that wait for it.
 *
 * What is checked
 *   exclusion        no client is certain to hold the lock beside another, unless both are shared
 *   FIFO             a grant goes to the waiter that has waited longest of those alive; a request
 *                    that does not wait never overtakes one that does
 *   no lost waiter   no run ends with a client that still waits (an "invalid end state" of spin);
 *                    and whenever the server has nothing left to do, the first waiter has no room
 *   no dead holder   a waiter whose connection ends before the grant was sent keeps no lock
 *
 * What mirrors what
 *   acquire(), release(), serve(), end_hold()    module/transition.c
 *   queue[], join, replace, leave, give_up()     module/queues.c
 *   state[]: WAITING, DUE, DELIVERED, TOLD       module/blocked.c
 *   gone[]: holds to be ended                    module/sessions.c
 *   work_*, marked                               module/work.c
 *
 * What is left out. There is no clock: a lease may end at any moment at which its client is not
 * certain any more; that clients keep this order is the subject of lease.pml. A client makes one
 * acquisition, so its number is also its token. Its second connection stands for every new one.
 * Sessions end like abandoned grants (gone[]). Left out are DEL and EXPIRE, by which an operator
 * takes a lock away, plain strings, QUIT behind a waiting command, several databases, and the
 * limits on waiters and holders. Fences are in lease.pml and failover.pml.
 *
 * Each step of the server is atomic, as Redis runs one command or callback at a time. */

#define CLIENTS 3
#ifndef PRESENT /* how many of them there are */
#define PRESENT 3
#endif
#ifndef SHARED /* bit t: client t asks for a shared lock */
#define SHARED 0
#endif
#ifndef IMPATIENT /* bit t: the wait of client t may end before a grant */
#define IMPATIENT 1
#endif
#ifndef FAULTY /* bit t: client t may lose its connection, withdraw, repeat itself, or die */
#define FAULTY 7
#endif
#define CONNECTIONS (2 * CLIENTS)

#define first_connection(t) (2 * (t))
#define token_of(c) ((c) / 2)
#define is_shared(t) ((SHARED >> (t)) & 1)

mtype = { ACQUIRE, RELEASE, CLOSED };       /* from a client: commands, and the end of the stream */
mtype = { GRANTED, REFUSED };               /* replies */
mtype = { IDLE, WAITING, DUE, DELIVERED, DROPPED, TOLD, SENT }; /* of a connection */

chan to_server[CONNECTIONS] = [3] of { mtype };
chan to_client[CONNECTIONS] = [2] of { mtype, byte }; /* a reply and the id of the hold */

/* The server. */
bool holds[CLIENTS];
byte hold_id[CLIENTS];        /* a new one for every grant and every grant again */
byte queue[CLIENTS], length;  /* connections, first come first */
mtype state[CONNECTIONS] = IDLE;
bool is_granted[CONNECTIONS]; /* the reply from DUE on */
byte granted_id[CONNECTIONS];
bool gone[CONNECTIONS];       /* the hold granted_id[c] is to be ended: nobody was told of it */
bool marked;                  /* the first waiter may have room: work.c will look */
bool may_refuse = true;       /* the core may forbid a grant, once: too few replicas, full disk */

/* What the specification remembers, for assertions only. */
bool certain[CLIENTS];        /* the client rightly believes that it holds the lock */
byte line[CLIENTS], in_line;  /* tokens that wait, in the order in which they came */
byte expired_id[CLIENTS];     /* holds up to this one ended with their lease: see lease.pml */
bool is_ghost[CLIENTS];       /* the token holds, and nobody knows: the waiter died untold */
bool is_cut[CONNECTIONS];     /* the client does not read any more */

hidden byte nth, spot, winner, place, older;
hidden byte fits;

/* -- the specification ------------------------------------------------------------------------ */

inline line_join(token) {
    spot = 0;
    do
    :: spot < in_line && line[spot] != token -> spot++
    :: else -> break
    od;
    if
    :: spot == in_line -> line[in_line] = token; in_line++
    :: else
    fi
}

inline line_leave(token) {
    spot = 0;
    do
    :: spot < in_line && line[spot] != token -> spot++
    :: else -> break
    od;
    if
    :: spot < in_line ->
        in_line--;
        do
        :: spot < in_line -> line[spot] = line[spot + 1]; spot++
        :: else -> line[spot] = 0; break
        od
    :: else
    fi
}

/* -- queues.c --------------------------------------------------------------------------------- */

/* place: where the token waits, or length. */
inline find_token(token) {
    place = 0;
    do
    :: place < length && token_of(queue[place]) != token -> place++
    :: else -> break
    od
}

inline remove_place() {
    length--;
    do
    :: place < length -> queue[place] = queue[place + 1]; place++
    :: else -> queue[place] = 0; break
    od
}

/* A waiter leaves without the lock. Shared waiters behind an exclusive one may now fit. */
inline give_up(token) {
    find_token(token);
    fits = place == 0 && length > 1 && is_shared(token_of(queue[1]));
    remove_place();
#ifndef GIVE_UP_UNNOTICED
    if
    :: fits -> marked = true
    :: else
    fi;
#endif
    line_leave(token)
}

/* -- transition.c ------------------------------------------------------------------------------ */

/* Has the lock room for the token? It is free, or all its holders and the token are shared. */
#define blocks(nth, token) (holds[nth] && !(is_shared(nth) && is_shared(token)))
#define has_room(token) (!blocks(0, token) && !blocks(1, token) && !blocks(2, token))
#define is_free (!holds[0] && !holds[1] && !holds[2])

/* The first waiters get the lock: one exclusive waiter, or shared ones as long as there is room. */
inline serve() {
    do
    :: length > 0 && has_room(token_of(queue[0])) ->
        older = queue[0];
        winner = token_of(older);
        assert(line[0] == winner); /* FIFO */
        line_leave(winner);
        place = 0;
        remove_place();
        holds[winner] = true;
        hold_id[winner]++;
        is_ghost[winner] = false;
        state[older] = DUE;
        is_granted[older] = true;
        granted_id[older] = hold_id[winner]
    :: else -> break
    od
}

/* A lease has ended, or a grant was abandoned. The holder leaves in any case; a grant needs the
 * permission of the core. Without it the queue is marked. */
inline end_hold(token, is_allowed) {
    holds[token] = false;
    is_ghost[token] = false;
    if
    :: is_allowed -> serve()
    :: else ->
        may_refuse = false;
#ifndef WAKE_UP_LOST
        marked = true
#else
        skip
#endif
    fi
}

inline answer(connection, reply, id_of_hold) {
    if
    :: !is_cut[connection] -> to_client[connection]!reply, id_of_hold
    :: else
    fi
}

inline refuse(connection) {
    state[connection] = DUE;
    is_granted[connection] = false
}

inline park(connection, token) {
    find_token(token);
    if
    :: place < length -> /* the token waits already: the newer request takes its place */
        older = queue[place];
#ifdef REWAIT_LOSES_PLACE
        remove_place();
        queue[length] = connection;
        length++;
#else
        queue[place] = connection;
#endif
        refuse(older)
    :: else ->
        queue[length] = connection;
        length++
    fi;
    state[connection] = WAITING;
    line_join(token)
}

inline acquire(connection, token) {
    if
    :: is_free -> serve() /* waiters come first */
    :: else
    fi;
    if
    :: holds[token] -> /* asked again. The new id protects from what is still done for the older */
#ifndef HOLD_KEEPS_ID
        hold_id[token]++;
#endif
        is_ghost[token] = false;
        answer(connection, GRANTED, hold_id[token])
#ifdef OVERTAKE
    :: !holds[token] && has_room(token) ->
#else
    :: !holds[token] && has_room(token) && length == 0 ->
#endif
        assert(in_line == 0); /* nobody is overtaken */
        holds[token] = true;
        hold_id[token]++;
        answer(connection, GRANTED, hold_id[token])
    :: else ->
        park(connection, token)
    fi;
    skip
}

inline release(token) {
#ifdef RELEASE_BY_ANYBODY
    nth = 0;
    do
    :: nth < CLIENTS && !holds[nth] -> nth++
    :: else -> break
    od;
    if
    :: nth < CLIENTS && !holds[token] -> holds[nth] = false; is_ghost[nth] = false; serve()
    :: else
    fi;
#endif
    find_token(token);
    if
    :: holds[token] -> holds[token] = false; is_ghost[token] = false; serve()
    :: !holds[token] && place < length -> /* it waits: null to the waiting call */
        older = queue[place];
        give_up(token);
        refuse(older)
    :: else
    fi;
    skip
}

/* -- blocked.c --------------------------------------------------------------------------------- */

/* The connection has nothing to do with the queue any more. */
inline forget(connection) {
    state[connection] = IDLE;
    is_granted[connection] = false;
    if
    :: !gone[connection] -> granted_id[connection] = 0
    :: else
    fi
}

inline abandon(connection, token) {
    if
    :: is_granted[connection] ->
        is_ghost[token] = holds[token] && hold_id[token] == granted_id[connection];
#ifndef TOLD_TOO_EARLY
        gone[connection] = true
#endif
    :: else
    fi;
    forget(connection)
}

/* The server sees the end of a connection. */
inline closed(connection, token) {
    if
    :: state[connection] == WAITING ->
        give_up(token);
        state[connection] = IDLE
#ifdef CLOSE_ENDS_NEWER_WAIT
    :: state[connection] == IDLE ->
        find_token(token);
        if
        :: place < length -> state[queue[place]] = IDLE; give_up(token)
        :: else
        fi
#endif
    :: state[connection] == DELIVERED -> state[connection] = DROPPED
    :: state[connection] == DUE || state[connection] == TOLD || state[connection] == SENT ->
        abandon(connection, token)
    :: else
    fi;
    skip
}

/* The core appends the delivered reply to the output of the connection, or has dropped it. */
inline append(connection) {
    if
    :: state[connection] == DROPPED -> abandon(connection, token_of(connection))
    :: state[connection] == DELIVERED && is_granted[connection] -> state[connection] = TOLD
    :: state[connection] == DELIVERED && !is_granted[connection] ->
        answer(connection, REFUSED, 0);
        forget(connection)
    fi;
    skip
}

/* Before the server sleeps, it sends what was appended, and delivers what is due. After that a
 * client is as good as told: its bytes have left. */
inline sleep() {
    for (nth : 0 .. CONNECTIONS - 1) {
        if
        :: state[nth] == TOLD ->
            answer(nth, GRANTED, granted_id[nth]);
#ifdef TOLD_TOO_LATE
            state[nth] = SENT
        :: state[nth] == SENT ->
#endif
            forget(nth)
        :: state[nth] == DUE -> state[nth] = DELIVERED
        :: else
        fi
    }
}

/* -- work.c ------------------------------------------------------------------------------------ */

inline end_gone(connection, token, is_allowed) {
    gone[connection] = false;
    if
    :: holds[token] && hold_id[token] == granted_id[connection] -> end_hold(token, is_allowed)
    :: else
    fi;
    granted_id[connection] = 0
}

inline end_lease(token, is_allowed) {
    expired_id[token] = hold_id[token];
    end_hold(token, is_allowed);
    skip
}

inline end_wait(connection) {
    give_up(token_of(connection));
    refuse(connection)
}

/* -- the server's steps ------------------------------------------------------------------------ */

proctype server(byte c) {
end:
    do
    :: d_step { to_server[c]?ACQUIRE -> acquire(c, token_of(c)) }
    :: d_step { to_server[c]?RELEASE -> release(token_of(c)) }
    :: d_step { to_server[c]?CLOSED -> closed(c, token_of(c)) }
    :: d_step { state[c] == DELIVERED || state[c] == DROPPED -> append(c) }
    :: d_step { gone[c] -> end_gone(c, token_of(c), true) }
    :: d_step { gone[c] && may_refuse -> end_gone(c, token_of(c), false) }
    :: d_step { state[c] == WAITING && ((IMPATIENT >> token_of(c)) & 1) -> end_wait(c) }
    od
}

/* work.c: end_leases() */
proctype lease(byte token) {
end:
    do
    :: d_step { holds[token] && !certain[token] -> end_lease(token, true) }
    :: d_step { holds[token] && !certain[token] && may_refuse -> end_lease(token, false) }
    od
}

#define is_busy(c) (state[c] == DUE || state[c] == TOLD || state[c] == SENT)

active proctype event_loop() {
end:
    do
    :: d_step { marked -> marked = false; serve(); skip }     /* work.c: settle_queues() */
    :: d_step {
           is_busy(0) || is_busy(1) || is_busy(2) || is_busy(3) || is_busy(4) || is_busy(5) ->
           sleep();
           skip
       }
    od
}

/* -- clients ----------------------------------------------------------------------------------- */

/* The connection breaks. What is under way to the server is lost or not, and the server sees the
 * end late: the client may be back before. */
inline lose_connection() {
    may_fail = false;
    is_cut[c] = true;
    do
    :: len(to_client[c]) > 0 -> to_client[c]?_, _
    :: else -> break
    od;
    if
    :: len(to_server[c]) > 0 -> to_server[c]?_
    :: true
    fi;
    to_server[c]!CLOSED;
    c++
}

inline become_certain() {
    if
    :: id > expired_id[me] && !is_withdrawn ->
        for (nth : 0 .. CLIENTS - 1) {
            assert(!certain[nth] || (is_shared(nth) && is_shared(me))) /* exclusion */
        }
        certain[me] = true
    :: else
    fi;
    id = 0
}

/* A client whose ACQUIRE is under way. */
proctype client(byte me) {
    byte c = first_connection(me), id;
    bool may_fail = (FAULTY >> me) & 1, is_withdrawn = false;
    do
    :: d_step { to_client[c]?GRANTED, id -> become_certain() }
        break
    :: to_client[c]?REFUSED, _ -> goto over
    :: atomic { may_fail -> lose_connection();
           if
           :: to_server[c]!ACQUIRE /* the same token waits again, on another connection */
           :: goto over            /* the client is dead */
           fi
       }
    :: atomic { may_fail -> /* the client gives up: a RELEASE by another way, maybe a faster one */
           may_fail = false;
           is_withdrawn = true;
           to_server[c + 1]!RELEASE
       }
    od;
    /* The client works. It is done at last, or its validity ends. */
    if
    :: atomic { certain[me] = false; to_server[c]!RELEASE }
    :: atomic { may_fail -> certain[me] = false }    /* it dies, or leaves the rest to the lease */
    :: atomic { may_fail -> lose_connection() }      /* the lock is held all the same */
        atomic { certain[me] = false; to_server[c]!RELEASE }
    :: atomic { may_fail ->                          /* the RELEASE is repeated */
           certain[me] = false;
           to_server[c]!RELEASE;
           lose_connection();
           to_server[c]!RELEASE
       }
    fi;
over:
    skip
}

/* Whenever the server has nothing left to do, no waiter is forgotten, and nobody holds the lock
 * without knowing. */
#define has_work(c) (gone[c] || state[c] == DROPPED)
#define is_idle                                                                                    \
    (!marked && !has_work(0) && !has_work(1) && !has_work(2) && !has_work(3) && !has_work(4) &&    \
     !has_work(5))
#define is_forgotten (length > 0 && has_room(token_of(queue[0])))
active proctype watch() {
end:
    if
    :: atomic { is_idle && is_forgotten -> assert(false) }
    :: atomic { is_idle && (is_ghost[0] || is_ghost[1] || is_ghost[2]) -> assert(false) }
    fi
}

init {
    atomic {
        for (nth : 0 .. PRESENT - 1) {
            run server(2 * nth);
            run server(2 * nth + 1);
            run lease(nth);
            to_server[first_connection(nth)]!ACQUIRE;
            run client(nth)
        }
    }
}
