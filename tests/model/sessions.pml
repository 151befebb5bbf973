/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.pml - a server, a lock, and two processes that wait for the lock and keep it by their
 * sessions. Connections break, replies are lost, processes die, and the server starts again.
 *
 * What is checked
 *   exclusion        no two processes are certain of the lock at a time
 *   no lost grant    the lock is never held for longer than the timeout of a session by a token
 *                    whose process is dead, or was not told and will not be told
 *   no dead holder   whenever the server has nothing left to do, no session that is away holds the
 *                    lock by a grant that was never written to a connection
 *   no lost waiter   and nobody who is present waits for a lock that is free
 *
 * What mirrors what
 *   heartbeat(), closed(), end_session()    module/session_commands.c, module/sessions.c
 *   event[], written[], reply()             module/mailbox.c
 *   work(), wait[]                          module/session_waits.c: aside, back, taken back
 *   is_abandoned                            module/ties.c: ties_abandon()
 *   acquire(), release(), serve()           module/transition.c
 *   read_reply()                            client/src/deployment/presence.c: read_reply()
 *   read_answer()                           client/src/deployment/routed.c: judge_success()
 *   is_untied                               client/src/lease/renewal.c: tie_again()
 *
 * What is left out. A process makes one acquisition, so its number is its token. A lock that ends
 * with the connection (GRACE) promises no exclusion, and is not here. Waits do not time out.
 * Several names, shared locks and the queue of others are in queue.pml; a restart loses nothing
 * that was granted (failover.pml has the rest). Work that is due is done before time goes on. Only
 * process 0 has faults, and only its heartbeats take time; commands arrive at once, and their
 * answers late (lease.pml has late commands). */

#define CLIENTS 2
#define TIMEOUT 2
#ifndef TIME_MAX
#define TIME_MAX 3
#endif
#ifndef BEATS /* heartbeats of each process: the model must be finite */
#define BEATS 2
#endif
#ifndef FAULTS /* in all: broken connections, lost answers, deaths, a restart */
#define FAULTS 1
#endif
#define NONE 255

mtype = { HEARTBEAT, END, CLOSED };                  /* by the connection of the session */
mtype = { QUEUED, GRANTED, BUSY, NO_SESSION };
mtype = { NOWHERE, PRESENT, AWAY };
mtype = { OUT, IN_LINE, ASIDE };

/* A process has a second connection for its session, once the first is broken. */
#define connection(i, k) (2 * (i) + (k))
chan calls[2 * CLIENTS] = [2] of { mtype, byte, byte };    /* when it was sent, acknowledged */
chan replies[2 * CLIENTS] = [1] of { byte, byte, byte };   /* life, event or 0, when sent */
chan answers[CLIENTS] = [1] of { mtype };

byte now;

/* The server. */
byte holder = NONE, lease_end;
bool is_tied, is_abandoned;
byte hold_id;                                        /* event that tells of it; 0: an answer did */
mtype state[CLIENTS] = NOWHERE;
byte life[CLIENTS], session_end[CLIENTS], conn[CLIENTS], parked_sent[CLIENTS];
bool is_parked[CLIENTS], has_work[CLIENTS];
mtype wait[CLIENTS] = OUT;
byte first;                                          /* who has waited longer */
byte event[CLIENTS], written[CLIENTS];               /* number of the grant; 0: none */
byte last_life, last_number;

/* The processes. */
bool is_dead[CLIENTS], is_beating[CLIENTS], is_asked[CLIENTS], wants[CLIENTS], knows[CLIENTS];
bool is_untied[CLIENTS], is_session_new[CLIENTS], is_done[CLIENTS];
byte my_life[CLIENTS], renewed[CLIENTS], seen[CLIENTS], until[CLIENTS], beats[CLIENTS];
byte side[CLIENTS];                                  /* the connection in use: 0 or 1 */
byte faults;
byte nobody;                                         /* for so many ticks nobody knew */

#define is_certain(i) (knows[i] && now < until[i])
#define larger(a, b) ((a) > (b) -> (a) : (b))

/* -- the server ---------------------------------------------------------------------------- */

#ifdef AWAY_IS_GRANTED
#define is_next(i) (wait[i] != OUT && state[i] != NOWHERE)
#else
#define is_next(i) (wait[i] == IN_LINE && state[i] == PRESENT)
#endif

inline grant(i) {
    holder = i;
    is_tied = true;
    is_abandoned = false;
    wait[i] = OUT;
    last_number++;
    hold_id = last_number;
    event[i] = last_number
}

/* Whoever is away is passed over. */
inline serve() {
    if
    :: holder == NONE && wait[0] == IN_LINE && state[0] == AWAY -> wait[0] = ASIDE
    :: else
    fi;
    if
    :: holder == NONE && wait[1] == IN_LINE && state[1] == AWAY -> wait[1] = ASIDE
    :: else
    fi;
    if
    :: holder == NONE && is_next(first) -> grant(first)
    :: holder == NONE && !is_next(first) && is_next(1 - first) -> grant(1 - first)
    :: else
    fi
}

inline free_lock() {
    holder = NONE;
    hold_id = 0;
    lease_end = 0;
    is_tied = false;
    is_abandoned = false;
    serve()
}

/* Nobody reads the replies on a broken connection. */
inline reply(i, at_us) {
    if
    :: conn[i] == connection(i, side[i]) && len(replies[conn[i]]) < 1 && !is_dead[i] ->
        replies[conn[i]]!life[i], event[i], at_us
    :: else
    fi;
    if
    :: event[i] != 0 -> written[i] = event[i]
    :: else
    fi;
#ifdef FORGET_WHEN_WRITTEN
    event[i] = 0;
#endif
    is_parked[i] = false;
    parked_sent[i] = 0
}

inline heartbeat(i, c, at_us, number) {
    is_at_once = state[i] == NOWHERE || conn[i] != c;
    if
    :: state[i] == NOWHERE -> last_life++; life[i] = last_life
    :: state[i] == AWAY -> has_work[i] = true
    :: else
    fi;
    state[i] = PRESENT;
    conn[i] = c;
    is_parked[i] = false;
    session_end[i] = now + TIMEOUT;
    if
    :: event[i] != 0 && event[i] <= number && event[i] <= written[i] -> event[i] = 0
    :: else
    fi;
    if
    :: is_at_once || event[i] != 0 -> reply(i, at_us)
    :: else -> is_parked[i] = true; parked_sent[i] = at_us
    fi;
    is_at_once = false
}

inline closed(i, c) {
    if
    :: state[i] == PRESENT && conn[i] == c ->
        state[i] = AWAY;
        is_parked[i] = false;
        parked_sent[i] = 0;
        has_work[i] = true
    :: else
    fi
}

/* A parked call gets an error: life 0. */
inline end_session(i) {
    life[i] = 0;
    event[i] = 0;
    wait[i] = OUT;
    has_work[i] = false;
    if
    :: is_parked[i] -> reply(i, parked_sent[i])
    :: else
    fi;
    state[i] = NOWHERE;
    written[i] = 0;
    session_end[i] = 0;
    conn[i] = 0;
    if
#ifndef END_KEEPS_HOLD
    :: holder == i && is_tied -> free_lock()
#endif
    :: else
    fi
}

/* Takes back a grant that was never written, or moves the wait. */
inline work(i) {
    has_work[i] = false;
    if
#ifndef GRANT_KEPT_WHILE_AWAY
    :: state[i] == AWAY && event[i] > written[i] && holder == i && hold_id == event[i] ->
        event[i] = 0;
        is_abandoned = true;
        wait[i] = ASIDE;
        first = i
#endif
    :: state[i] == AWAY && wait[i] == IN_LINE -> wait[i] = ASIDE
#ifndef COMES_BACK_ASIDE
    :: state[i] == PRESENT && wait[i] == ASIDE -> wait[i] = IN_LINE; serve()
#endif
    :: else
    fi
}

inline acquire(i, may_wait) {
    if
    :: state[i] == NOWHERE -> answers[i]!NO_SESSION
    :: state[i] != NOWHERE && holder == i ->
        is_tied = true;
        is_abandoned = false;
#ifndef HOLD_KEEPS_ID
        hold_id = 0; /* what is still done for the older grant does not end the hold */
#endif
        wait[i] = OUT;
        answers[i]!GRANTED
    :: state[i] != NOWHERE && holder == NONE && !is_next(1 - i) ->
        holder = i;
        hold_id = 0;
        is_tied = true;
        wait[i] = OUT;
        answers[i]!GRANTED
    :: else ->
        if
        :: may_wait && wait[i] == OUT ->
            wait[i] = (state[i] == PRESENT -> IN_LINE : ASIDE);
            first = (wait[1 - i] != OUT -> 1 - i : i)
        :: else
        fi;
        if
        :: may_wait -> answers[i]!QUEUED
        :: else -> answers[i]!BUSY
        fi
    fi
}

inline release(i) {
    wait[i] = OUT;
    if
    :: holder == i -> free_lock()
    :: else
    fi
}

#ifdef PARKED_CALL_COUNTS
#define is_over(i) (state[i] != NOWHERE && now >= session_end[i] && !is_parked[i])
#else
#define is_over(i) (state[i] != NOWHERE && now >= session_end[i])
#endif
#define is_lease_over (holder != NONE && !is_tied && now >= lease_end)

proctype server(byte i) {
    byte at_us, number;
    bool is_at_once;
end:
    do
    :: d_step { calls[2 * i]?HEARTBEAT, at_us, number ->
           heartbeat(i, 2 * i, at_us, number); at_us = 0; number = 0 }
    :: d_step { calls[2 * i + 1]?HEARTBEAT, at_us, number ->
           heartbeat(i, 2 * i + 1, at_us, number); at_us = 0; number = 0 }
    :: d_step { calls[2 * i]?CLOSED, _, _ -> closed(i, 2 * i); skip }
    :: d_step { calls[2 * i + 1]?CLOSED, _, _ -> closed(i, 2 * i + 1); skip }
    :: d_step { calls[2 * i]?END, _, _ -> end_session(i); skip }
    :: d_step { calls[2 * i + 1]?END, _, _ -> end_session(i); skip }
    :: d_step { is_parked[i] && (event[i] != 0 || now > parked_sent[i]) ->
           reply(i, parked_sent[i]); skip }
    :: d_step { has_work[i] -> work(i); skip }
    :: d_step { is_over(i) -> end_session(i); skip }
    :: d_step { is_abandoned && holder == i -> free_lock(); skip }
    :: d_step { is_lease_over && holder == i -> free_lock(); skip }
    od
}

/* -- the processes ------------------------------------------------------------------------- */

inline become_certain(i, end_us) {
    knows[i] = true;
    until[i] = larger(until[i], end_us);
    assert(!(is_certain(0) && is_certain(1))) /* exclusion */
}

inline read_reply(i) {
    is_beating[i] = false;
    is_new = of_life != 0 && of_life != my_life[i];
#ifdef VALIDITY_FROM_REPLY
    at_us = now;
#endif
    if
    :: of_life != 0 ->
        if
#ifdef RENEWED_THOUGH_FORGOTTEN
        :: knows[i] -> become_certain(i, at_us + TIMEOUT)
#else
        :: !is_new && knows[i] && !is_untied[i] -> become_certain(i, at_us + TIMEOUT)
#endif
        :: else
        fi;
        my_life[i] = of_life;
        renewed[i] = at_us;
        if
        :: number > seen[i] ->
            seen[i] = number;
            if
            :: !knows[i] && !is_done[i] ->
                is_session_new[i] = false;
                wants[i] = false;
                become_certain(i, at_us + TIMEOUT)
            :: else
            fi
        :: else
        fi;
        if
        :: is_new && knows[i] -> is_untied[i] = true; wants[i] = true
        :: is_new && !knows[i] && !is_done[i] && is_asked[i] -> is_session_new[i] = true
        :: is_new && !knows[i] && !is_done[i] && !is_asked[i] -> wants[i] = true
        :: else
        fi
    :: else
    fi;
    of_life = 0; number = 0; at_us = 0; is_new = false
}

inline read_answer(i) {
    is_asked[i] = false;
    if
    :: is_done[i]
#ifndef OLD_REPLY_COUNTS
    :: !is_done[i] && is_session_new[i] && what != NO_SESSION -> wants[i] = true
    :: !is_done[i] && !is_session_new[i] && what == GRANTED ->
#else
    :: !is_done[i] && what == GRANTED ->
#endif
        is_untied[i] = false;
        become_certain(i, renewed[i] + TIMEOUT)
    :: !is_done[i] && what == NO_SESSION -> my_life[i] = 0; wants[i] = false
    :: !is_done[i] && what == BUSY && !is_session_new[i] -> /* the lock is lost */
        knows[i] = false; is_untied[i] = false; until[i] = 0; is_done[i] = true
    :: else
    fi;
    is_session_new[i] = false;
    what = 0
}

#define may_fail (faults < FAULTS && i == 0)

proctype client(byte i) {
    bool is_at_once;
    byte of_life, number, at_us;
    mtype what;
    bool is_new;
end:
    do
    :: d_step { !is_dead[i] && !is_beating[i] && beats[i] < BEATS &&
                len(calls[connection(i, side[i])]) < 2 && (my_life[i] == 0 || renewed[i] < now ||
                seen[i] > 0 || !is_done[i]) ->
           beats[i]++;
           is_beating[i] = true;
           if
           :: i == 0 -> calls[connection(i, side[i])]!HEARTBEAT, now, seen[i]
           :: i == 1 -> heartbeat(i, 2 * i, now, seen[i])
           fi;
           skip
       }
    :: d_step { replies[connection(i, side[i])]?of_life, number, at_us -> read_reply(i) }
    :: d_step { answers[i]?what -> read_answer(i) }
    :: d_step { !is_dead[i] && !is_done[i] && wants[i] && my_life[i] != 0 && !is_asked[i] &&
                len(answers[i]) == 0 ->
           wants[i] = false;
           is_asked[i] = true;
           is_session_new[i] = false;
           acquire(i, !knows[i]) /* a lock that is held is tied again, and not waited for */
       }
    :: d_step { !is_dead[i] && knows[i] && !is_asked[i] ->
           knows[i] = false; is_untied[i] = false; until[i] = 0; wants[i] = false;
           is_done[i] = true;
           release(i)
       }
    :: d_step { !is_dead[i] && is_done[i] && beats[i] < BEATS &&
                len(calls[connection(i, side[i])]) < 2 ->
           beats[i] = BEATS; /* the process ends in good order */
           calls[connection(i, side[i])]!END, 0, 0
       }
    /* Faults. */
    :: d_step { may_fail && !is_dead[i] && side[i] == 0 && len(calls[2 * i]) < 2 ->
           faults++; /* the connection of the session breaks, and the reply under way is lost */
           do
           :: len(replies[2 * i]) > 0 -> replies[2 * i]?_, _, _
           :: else -> break
           od;
           calls[2 * i]!CLOSED, 0, 0;
           side[i] = 1;
           is_beating[i] = false
       }
    :: d_step { may_fail && !is_dead[i] && len(answers[i]) > 0 ->
           faults++; /* the client asks again with the same token */
           answers[i]?_;
           is_asked[i] = false;
           wants[i] = !is_done[i]
       }
    :: atomic { may_fail && !is_dead[i] ->
           faults++;
           is_dead[i] = true;
           knows[i] = false; is_untied[i] = false; until[i] = 0;
           if
           :: len(calls[connection(i, side[i])]) < 2 -> calls[connection(i, side[i])]!CLOSED, 0, 0
           :: true /* its machine is dead: nobody closes the connection */
           fi
       }
    od
}

/* -- time, a restart, and what must always be so ------------------------------------------- */

inline forget(i) {
    do
    :: len(calls[2 * i]) > 0 -> calls[2 * i]?_, _, _
    :: len(calls[2 * i + 1]) > 0 -> calls[2 * i + 1]?_, _, _
    :: len(replies[2 * i]) > 0 -> replies[2 * i]?_, _, _
    :: len(replies[2 * i + 1]) > 0 -> replies[2 * i + 1]?_, _, _
    :: len(answers[i]) > 0 -> answers[i]?_
    :: else -> break
    od;
    state[i] = NOWHERE; wait[i] = OUT; event[i] = 0; written[i] = 0; life[i] = 0;
    is_parked[i] = false; has_work[i] = false; parked_sent[i] = 0; session_end[i] = 0; conn[i] = 0;
    is_beating[i] = false;
    wants[i] = wants[i] || (is_asked[i] && !is_done[i]);
    is_asked[i] = false
}

#define is_idle (!has_work[0] && !has_work[1] && !is_abandoned && !is_over(0) && !is_over(1) &&    \
                 !is_lease_over)
#define is_unheard(i) (len(calls[2 * i]) == 0 && len(calls[2 * i + 1]) == 0 &&     \
    (is_dead[i] || !(knows[i] || (!is_done[i] && (event[i] != 0 || is_asked[i] || wants[i])))))
#define is_nobody ((holder == 0 && is_unheard(0)) || (holder == 1 && is_unheard(1)))

active proctype clock() {
end:
    do
    :: d_step { now < TIME_MAX && is_idle ->
           nobody = (is_nobody -> nobody + 1 : 0);
           assert(nobody <= TIMEOUT); /* no lost grant */
           now++
       }
    :: d_step { faults < FAULTS ->
           faults = FAULTS;
           forget(0);
           forget(1);
           is_tied = false;
           is_abandoned = false;
           hold_id = 0;
           lease_end = (holder == NONE -> 0 : now + TIMEOUT);
           nobody = 0
       }
    od
}

#define is_untold(i) (holder == i && state[i] == AWAY && event[i] > written[i] &&                  \
                      hold_id == event[i])
#define is_forgotten(i) (holder == NONE && state[i] == PRESENT && wait[i] != OUT)
active proctype watch() {
end:
    if
    :: atomic { is_idle && (is_untold(0) || is_untold(1)) -> assert(false) }
    :: atomic { is_idle && (is_forgotten(0) || is_forgotten(1)) -> assert(false) }
    fi
}

init {
    atomic {
        run server(0);
        run server(1);
        run client(0);
        run client(1)
    }
}
