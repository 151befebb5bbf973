/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock.h - of redlock.c and round.c only: a majority of several servers decides.
 *
 *   redlock.c   the deployment: acquire with a common fence, extend, release
 *   round.c     one vote over all servers: the same command to each server, and what a majority of
 *               the replies says
 *
 * A round ends when a majority has said yes, when a majority has become impossible (ROUND_LINGER_US
 * later, so that the cause is complete), an I/O timeout after the last request was sent, or at the
 * limit. Requests that are still in flight then are stragglers: abandoned in round.c, and nowhere
 * else. Several rounds of one attempt may follow each other. All functions: locked (loop.h). */
#pragma once
#include "deployment/deployment.h"

/* -- votes: how several servers replied to the same command, and what a majority says. Pure.
 *
 * A majority of all servers decides, dead servers and servers without a request included: any two
 * majorities have a server in common. Of 3 servers 1 may fail, of 5 two, of 4 only one. */

typedef struct votes {
    size_t voters;
    size_t yes, no;
    size_t unanswered, unreachable; /* sent, without a reply; not sent */
    size_t failed, lasting;         /* another failure; of these: the next attempt meets it again */
    dlock_status failure;           /* the first lasting one */
} votes;

size_t votes_quorum(size_t voters);

/* Yes: DLOCK_OK. No: DLOCK_BUSY or DLOCK_LOST. */
void votes_add(votes *votes, dlock_status reply, bool is_transient);

/* DLOCK_OK: a majority said yes. no: servers that said no make a majority impossible. A lasting
 * failure: servers that will never say yes make a majority impossible. Else DLOCK_NO_QUORUM, which
 * another attempt may not meet. */
dlock_status votes_result(const votes *votes, dlock_status no);

/* Could this many more replies still make the result DLOCK_OK, or no? */
bool votes_are_open(const votes *votes, dlock_status no, size_t more);

/* Some said yes and others no, and enough servers have replied for a majority: maybe the servers
 * that said no are for several others, none of whom has a majority. */
bool votes_are_split(const votes *votes);

/* "2 ok, 2 busy, 1 unreachable"; the words for yes and no are the caller's. Always with an end. */
void votes_describe(const votes *votes, const char *yes, const char *no, char *text, size_t size);

/* -- rounds */

enum { ROUND_LINGER_US = 20000 };

typedef struct redlock {
    deployment base;
    uint64_t last_fence; /* of the locks that were granted */
    /* No fence is proposed until then: our clock is far ahead of those of most servers. */
    int64_t no_fence_until_us;
    list undos; /* of redlock.c */
    size_t count;
    server *servers[TOPOLOGY_SERVERS_MAX];
} redlock;

typedef struct round round;

/* One server's part, over all rounds of an attempt. */
typedef struct round_vote {
    request request;
    round *round;
    server *server;
    enum { VOTE_NONE, VOTE_PENDING, VOTE_COUNTED, VOTE_STRAGGLER } state;
    dlock_status status; /* of a counted vote */
    bool is_transient;
    token_fate fate;      /* at this server; kept from the acquire to the release, as are: */
    bool is_queued;       /* an ACQUIRE will be sent, or was, once a connection is ready */
    uint32_t ready_count; /* of the server, when the ACQUIRE was queued */
    connection *conn; /* of a straggler, until the loop goes on; NULL: none that is ready. A RELEASE
                       * on it follows the ACQUIRE, so it is enough although that is in doubt */
    uint64_t fence;
    int64_t sent_us; /* of the first request */
} round_vote;

typedef struct round_plan {
    uint64_t fence;       /* of each ACQUIRE: proposed; 0: none */
    bool is_fence_needed; /* a grant with a smaller fence is not a yes */
    bool asks_others;     /* if the chosen servers cannot decide, the other servers are asked too */
    bool awaits_all;      /* a majority is not enough: all servers are to answer */
    int64_t limit_us;
    int64_t linger_us; /* after a yes, wait this long for the other replies */
    /* NULL, or: is the majority that said yes good enough? If not, more replies are awaited. */
    bool (*is_enough)(const round *round);
    void (*on_done)(round *round, dlock_status result); /* never from within round_start() */
} round_plan;

/* An attempt under way, and the round that the attempt is in. */
struct round {
    redlock *redlock;
    attempt *attempt;
    round_plan plan;
    votes votes;
    loop_timer timer;
    bool is_decided;
    size_t fence_refusals;
    char failures[DLOCK_CAUSE_SIZE]; /* ": 10.0.0.3:6379: Connection refused; ..." */
    char token[DLOCK_TOKEN_SIZE];    /* the one whose fates the votes have */
    round_vote server_votes[TOPOLOGY_SERVERS_MAX];
};

static inline int64_t round_now_us(const round *round) {
    return loop_now_us(round->redlock->base.loop);
}

/* May the server hold the lock? A queued ACQUIRE was sent if a connection became ready since. */
static inline bool vote_may_hold(const round_vote *vote) {
    bool was_ready = vote->ready_count != vote->server->endpoint.ready_count;
    return vote->fate != TOKEN_UNHELD || (vote->is_queued && was_ready);
}

static inline bool vote_is_yes(const round_vote *vote) {
    return vote->state == VOTE_COUNTED && vote->status == DLOCK_OK;
}

/* A loop over the parts of all servers. */
#define round_each_vote(type, vote, round)                                                         \
    for (type *vote = (round)->server_votes;                                                       \
         vote < (round)->server_votes + (round)->redlock->count; vote++)

/* Before the first round of an attempt, whose memory is zero or of the attempt before. No request
 * is in flight. */
void round_init(round *round, redlock *redlock, attempt *attempt);
/* Sends the command to the chosen servers (NULL: to all). yes: so many servers count as yes from
 * the start. */
void round_start(round *round, const round_plan *plan, const bool is_chosen[], size_t yes);
/* Abandons the stragglers of a round with this result: on_done is not called. */
void round_stop(round *round, dlock_status result);
/* Sends a command behind the last request to that server: on the same connection if the request is
 * a straggler. request NULL: nobody waits for the reply. False: no memory. */
bool vote_send(const round_vote *vote, dlock_operation operation, request *request);
/* Ends the attempt: the caller is told, and may start another attempt at once. cause NULL: the
 * votes, as "2 ok, 2 busy, 1 unreachable: 10.0.0.3:6379: Connection refused". */
void round_end(round *round, dlock_status status, const char *cause);
