/* SPDX-License-Identifier: BSD-3-Clause */
/* routed.c - attempts that one server decides, chosen by a router: see router.h.
 *
 *   route      find the server. If none is known, or a failure has just cast doubt on the known
 *              one, wait for a discovery
 *   session    a request that waits, or that ties its lock, first waits for the session to be open
 *   request    all commands travel on the command connection, but the EXTEND of
 *              acknowledgement.h. If the lock is busy and the acquire may wait, the acquire is sent
 *              again with WAIT. It then stands in the queue of the lock, until an event of the
 *              session tells the outcome
 *   redirect   MOVED or ASK: the same request to another node, after ASK behind an ASKING
 *   script     plain Redis: a server that does not know the hash of a script gets the script
 *   replicas   granted or extended: enough replicas have to acknowledge that (acknowledgement.h)
 *   undo       too few replicas know: a RELEASE. The attempt ends with the reply, so the next
 *              acquire, by whomever, does not find the lock taken
 *   retry      a failure that may pass, and nothing was done: if the router knows another server,
 *              or a discovery finds one, that server gets one more try. If the server had just
 *              closed the connection, the request is first sent on a new one
 *   give up    at the limit, or abandoned: a withdrawal sends RELEASE behind the ACQUIRE
 *
 * An acquire whose reply was lost keeps its token (TOKEN_IN_DOUBT): the caller sends the same token
 * again, and keeps the place in the queue. Once a RELEASE of a token is on its way, the token must
 * not be used again: withdraw_run() changes the token.
 *
 * Invariant: on_done is called from a callback of the loop, as the last thing; a failure to send
 * ends the run by its timer. */
#include "deployment/acknowledgement.h"
#include "deployment/presence.h"

/* A slot that moves takes two: to the owner by the map, and to the next owner. */
enum { REDIRECTS_MAX = 5 };

enum { DAY_MS = 24 * 60 * 60 * 1000 };

typedef enum run_phase {
    RUN_IDLE,
    RUN_DISCOVERY, /* waits for the router to find a server */
    RUN_SESSION,   /* waits for the session of the server to be open */
    RUN_REQUEST,   /* waits for a reply */
    RUN_QUEUED,    /* waits in the queue of the lock: an event of the session tells the outcome */
    RUN_REPLICAS,  /* granted: waits for the acknowledgements of replicas */
    RUN_UNDO,      /* waits for the reply to a RELEASE */
    RUN_ENDING
} run_phase;

/* An attempt under way. */
typedef struct routed_run {
    request request;
    loop_task wait;   /* for a discovery */
    loop_timer timer; /* ends the phase */
    router *router;
    attempt *attempt;
    int64_t limit_us; /* of the whole attempt */
    server *server;   /* a share: the last one that was chosen; NULL: none yet */
    guest guest;      /* of a wait whose lock is not tied to the session */
    run_phase phase;
    uint8_t redirect_count;
    reply_hint hint;         /* of the last reply */
    bool is_asking : 1;      /* after ASK */
    bool is_retry : 1;       /* a request failed: another server gets one more try */
    bool was_cut : 1;        /* a connection ended before the request was sent: sent again once */
    bool is_waiting : 1;     /* the request may wait inside the server */
    bool was_busy : 1;       /* a request that does not wait found the lock busy */
    bool is_session_new : 1; /* opened anew since the request was sent: the place may be lost */
    bool needs_script : 1;   /* the text of the script is sent */
    bool is_granted : 1;     /* granted, or may be, although the result is a failure */
    bool has_extended : 1;   /* one or more of several names */
    acknowledgement ack[];   /* one, of a lock that needs replicas; else none */
} routed_run;

/* Will the lock have to be given back if the attempt is given up? */
static bool run_takes_lock(const routed_run *run) {
    return run->attempt->operation == DLOCK_ACQUIRING && !run->attempt->is_background;
}

/* The tie of the lock, if the attempt is about it; else NULL. An extension of a lock that lasts as
 * long as the session is an ACQUIRE with the same token: the lock has no lease to extend. */
static tie *run_tie(const routed_run *run) {
    tie *tie = run->attempt->terms.tie;
    bool is_acquire = run->attempt->operation == DLOCK_ACQUIRING;
    bool is_extend = run->attempt->operation == DLOCK_EXTENDING;
    return tie != NULL && (is_acquire || (is_extend && tie->is_endless)) ? tie : NULL;
}

/* Is the command an ACQUIRE, which may arrive late and take the lock? */
static bool run_sends_acquire(const routed_run *run) {
    return run->attempt->operation == DLOCK_ACQUIRING || run_tie(run) != NULL;
}

/* A lock is tied again without replicas: an acquire that too few acknowledge would be undone. */
static bool run_needs_replicas(const routed_run *run) {
    bool is_extend = run->attempt->operation == DLOCK_EXTENDING;
    return run->attempt->terms.min_replicas > 0 && (is_extend || run_takes_lock(run));
}

static uint32_t replica_timeout_ms(const routed_run *run) {
    uint32_t timeout_ms = run->attempt->terms.replica_timeout_ms;
    uint32_t io_timeout_ms = run->router->base.io_timeout_ms;
    bool is_long = run->attempt->is_background && timeout_ms > io_timeout_ms;
    return is_long ? io_timeout_ms : timeout_ms;
}

static const guest_table run_guests;

static int64_t run_now_us(const routed_run *run) {
    return loop_now_us(run->router->base.loop);
}

/* When the phase ends at the latest. */
static void set_due(routed_run *run, int64_t due_us) {
    loop_set_timer(run->router->base.loop, &run->timer, due_us);
}

static server *find_run_server(const routed_run *run) {
    return router_find(run->router, run->attempt->name);
}

static void doubt_server(routed_run *run) {
    if (find_run_server(run) == run->server) run->router->is_doubted = true;
}

/* -- one request: its commands, its time, its replies */

/* How long the server may let the request wait. */
static uint32_t wait_left_ms(const attempt *attempt, int64_t now_us) {
    if (attempt->operation != DLOCK_ACQUIRING || attempt->wait_until_us <= now_us) return 0;
    int64_t left_us = deadline_left_us(attempt->wait_until_us, now_us);
    int64_t left_ms = left_us / 1000 + (left_us % 1000 != 0);
    return left_ms < DAY_MS ? (uint32_t)left_ms : DAY_MS;
}

static guest *guest_of(routed_run *run) {
    tie *tie = run_tie(run);
    return tie != NULL ? &tie->guest : &run->guest;
}

/* False: the session is not open yet. */
static bool join_session(routed_run *run) {
    guest *guest = guest_of(run);
    guest->table = &run_guests;
    guest->arg = run;
    guest->name = run->attempt->name;
    guest->name_count = run->attempt->name_count;
    guest->token = run->attempt->token;
    return presence_join(run->router, run->server, guest);
}

/* A server that does not reply in time hangs. */
static void limit_reply(request *request) {
    routed_run *run = container_of(request, routed_run, request);
    int64_t due_us = deadline_after_ms(request->sent_us, run->router->base.io_timeout_ms);
    set_due(run, deadline_earlier(run->limit_us, due_us));
}

static void add_session(routed_run *run, lock_words *words) {
    const tie *tie = run_tie(run);
    words->via = presence_id(guest_of(run));
    words->is_tied = tie != NULL;
    words->is_endless = tie != NULL && tie->is_endless;
    words->has_grace = tie != NULL && tie->is_momentary;
    if (words->is_endless) words->operation = DLOCK_ACQUIRING;
}

/* False: no memory. */
static bool send_command(routed_run *run, lock_words words) {
    words.has_hash = run->phase == RUN_REQUEST && !run->needs_script;
    run->request.on_sent = limit_reply;
    set_due(run, run->limit_us);
    return attempt_send(run->attempt, &words, run->is_asking, run->server, NULL, &run->request);
}

/* The token holds the lock with another fence, or not at all: the lock was lost in between. */
static void judge_kept(routed_run *run, verdict *verdict) {
    bool is_other = verdict->status == DLOCK_OK && verdict->fence != run->attempt->fence;
    run->is_granted = is_other;
    if (is_other || verdict->status == DLOCK_BUSY)
        verdict_set(verdict, DLOCK_LOST, "the server says that the token does not hold it");
}

static void read_release(routed_run *run, const reply *reply, verdict *verdict) {
    const attempt *attempt = run->attempt;
    read_released_reply(verdict, attempt->name_count, reply);
    attempt_release_each(attempt, reply, run->is_asking, run->server);
}

static void read_lock_reply(routed_run *run, const reply *reply, verdict *verdict) {
    attempt *attempt = run->attempt;
    if (run_sends_acquire(run))
        attempt->prepared.protocol->read_acquire(verdict, reply);
    else if (attempt->operation == DLOCK_RELEASING)
        read_release(run, reply, verdict);
    else
        read_holder_reply(verdict, reply);
    run->hint = verdict->hint;
    run->is_granted = (verdict->status == DLOCK_PROTOCOL && reply->kind != REPLY_ERROR) ||
                      verdict->hint == HINT_HOLDS_SOME;
    if (attempt->operation == DLOCK_ACQUIRING)
        attempt->fence = verdict->fence;
    else if (run_sends_acquire(run))
        judge_kept(run, verdict);
}

/* Several names are extended by a command for each: the first failure is the result. */
static void read_reply(request *request, int index, const reply *reply) {
    routed_run *run = container_of(request, routed_run, request);
    attempt *attempt = run->attempt;
    verdict verdict;
    bool is_to_asking = run->is_asking && index % 2 == 0, is_first = index == run->is_asking;
    if (reply->kind == REPLY_INTEGER && reply->integer == 1) run->has_extended = true;
    if (is_to_asking || (!is_first && attempt->status != DLOCK_OK)) return;
    if (run->phase == RUN_UNDO) {
        read_release(run, reply, &verdict);
        run->is_granted = !is_withdrawn(verdict.status);
        return;
    }
    if (attempt->guarded != NULL)
        read_guard_reply(&verdict, attempt->guarded->reply, reply);
    else
        read_lock_reply(run, reply, &verdict);
    attempt_set_result(attempt, verdict.status, verdict.is_transient, verdict.cause);
}

/* Sends the request to run->server, or first waits for the session there. False: no memory. */
static bool try_to_send(routed_run *run) {
    attempt *attempt = run->attempt;
    int64_t now_us = run_now_us(run);
    lock_words words = {.operation = attempt->operation};
    bool is_busy = run->was_busy || busy_names_has(&run->router->busy, attempt->name, now_us);
    if (is_busy) words.wait_ms = wait_left_ms(attempt, now_us);
    run->is_waiting = words.wait_ms > 0;
    run->request.on_reply = read_reply;
    run->is_granted = run->is_session_new = run->has_extended = false;
    run->hint = HINT_NONE;
    bool needs_session = run->is_waiting || run_tie(run) != NULL;
    if (needs_session && !join_session(run)) {
        run->phase = RUN_SESSION;
        set_due(run, run->limit_us);
        return guest_of(run)->presence != NULL; /* else there is no memory for a session */
    }
    run->phase = RUN_REQUEST;
    if (needs_session) add_session(run, &words);
    if (!send_command(run, words)) return false;
    if (attempt->on_sent != NULL) attempt->on_sent(attempt);
    return true;
}

/* -- the end */

/* At the end, or because the next request goes elsewhere. A lock that was taken, or kept, stays
 * tied. */
static void leave_session(routed_run *run) {
    const attempt *attempt = run->attempt;
    guest *guest = guest_of(run);
    bool is_held = attempt->is_background || attempt->operation == DLOCK_EXTENDING;
    bool is_kept = is_held || attempt->status == DLOCK_OK;
    if (guest->presence == NULL) return;
    if (is_kept && guest != &run->guest)
        guest->table = &tie_table;
    else
        presence_leave(guest);
}

/* Another RELEASE follows. But a release that was certainly not served is repeated by its call,
 * which would take the lock for lost if the other RELEASE were served before; or the call withdraws
 * it. */
static void release_late_grant(routed_run *run) {
    const attempt *attempt = run->attempt;
    bool is_served = is_withdrawn(attempt->status) || attempt->status == DLOCK_IN_DOUBT;
    bool is_early = !attempt->is_background && !is_served;
    if (attempt->operation != DLOCK_RELEASING || is_early) return;
    if (attempt->fate == TOKEN_IN_DOUBT && run->server != NULL)
        attempt_release_behind(attempt, run->is_asking, run->server);
    if (attempt_may_come_late(attempt))
        withdrawals_add(&run->router->base, attempt, attempt->lease_ms);
}

static void stop_run(routed_run *run) {
    release_late_grant(run);
    leave_session(run);
    if (run->phase == RUN_REPLICAS) acknowledgement_stop(run->ack);
    loop_clear_timer(run->router->base.loop, &run->timer);
    list_remove(&run->wait.node);
    server_free(run->server);
    run->server = NULL;
    run->phase = RUN_IDLE;
}

static void finish_run(routed_run *run) {
    attempt *attempt = run->attempt;
    stop_run(run);
    attempt->on_done(attempt);
}

static void end_run(routed_run *run, dlock_status status, bool is_transient, const char *cause) {
    attempt_set_result(run->attempt, status, is_transient, cause);
    finish_run(run);
}

/* A server may have granted the lock, and nobody will use it. */
static void withdraw_run(routed_run *run) {
    attempt *attempt = run->attempt;
    presence_leave(&run->guest);
    withdrawals_add(&run->router->base, attempt, attempt->lease_ms);
    attempt_change_token(attempt);
}

/* -- to a server */

/* May be called from within a function of the deployment's user, which must not be called back
 * yet. */
static void send_request(routed_run *run) {
    if (try_to_send(run)) return;
    attempt_set_result(run->attempt, DLOCK_NO_MEMORY, false, "no memory");
    run->phase = RUN_ENDING;
    set_due(run, 0);
}

/* The server has forgotten the session since it replied, or may have. The token may hold the lock,
 * or have a place in its queue: whoever gives the attempt up has to withdraw the token. */
static void ask_again(routed_run *run) {
    attempt_note_grant(run->attempt);
    send_request(run);
}

static void go_to(routed_run *run, server *server, bool is_asking) {
    server_share(server);
    server_free(run->server);
    run->server = server;
    run->is_asking = is_asking;
    send_request(run);
}

static void wait_for_discovery(routed_run *run, int64_t until_us) {
    run->phase = RUN_DISCOVERY;
    list_remove(&run->wait.node); /* maybe for the same discovery already */
    list_append(&run->router->waits, &run->wait.node);
    set_due(run, until_us);
}

/* If discoveries fail, the known server is used while another discovery is under way. */
static void route_run(routed_run *run) {
    server *known = find_run_server(run);
    bool is_discovering = router_discover(run->router);
    if (known == NULL) {
        wait_for_discovery(run, run->limit_us);
    } else if (is_discovering && run->router->failure == DLOCK_OK) {
        int64_t now_us = run_now_us(run);
        wait_for_discovery(run, now_us + deadline_left_us(run->limit_us, now_us) / 2);
    } else {
        go_to(run, known, false);
    }
}

/* The discovery has ended, or takes too long for this attempt. */
static void resume_run(routed_run *run) {
    router *router = run->router;
    server *known = find_run_server(run);
    list_remove(&run->wait.node);
    bool is_over = run_now_us(run) >= run->limit_us;
    if (run->is_retry && (known == NULL || known == run->server || is_over)) {
        finish_run(run);
    } else if (known != NULL && !is_over) {
        go_to(run, known, false);
    } else {
        bool has_failed = router->failure != DLOCK_OK;
        dlock_status failure = has_failed ? router->failure : DLOCK_UNREACHABLE;
        end_run(run, failure, failure == DLOCK_UNREACHABLE,
                has_failed ? router->cause : "no server was found in time");
    }
}

/* -- failures */

/* The result is final, unless nothing was done and another server can have a try. An acquire whose
 * fate is unknown keeps its token for the next try of the caller, unless it is given up: then it is
 * withdrawn. The withdrawal begins before doubt_server(), because a discovery would delay its
 * RELEASE, which has to go to the same server. */
static void fail_run(routed_run *run, dlock_status status, bool is_transient, const char *cause) {
    attempt *attempt = run->attempt;
    bool is_over = run_now_us(run) >= run->limit_us;
    bool is_in_doubt = status == DLOCK_IN_DOUBT || run->is_granted;
    bool is_answer = status < DLOCK_IN_DOUBT; /* about the lock, whichever server gives it */
    char text[CAUSE_SIZE];
    cause_write(text, run->server, cause);
    attempt_set_result(attempt, status, is_transient, is_answer ? cause : text);
    if (is_in_doubt && run_sends_acquire(run)) attempt->fate = TOKEN_IN_DOUBT;
    if (is_in_doubt && (run->is_granted || is_over) && run_takes_lock(run)) withdraw_run(run);
    if (is_transient || status == DLOCK_NO_REPLICAS) doubt_server(run);
    bool is_final = !is_transient || is_in_doubt || run->is_retry || is_over;
    server *known = find_run_server(run);
    run->is_retry = true;
    if (!is_final && known != NULL && known != run->server)
        go_to(run, known, false);
    else if (!is_final && router_discover(run->router))
        wait_for_discovery(run, run->limit_us);
    else
        finish_run(run);
}

static void fail_by_reply(routed_run *run) {
    fail_run(run, run->attempt->status, run->attempt->is_transient, run->attempt->cause);
}

/* unanswered: the cause if the request was sent. */
static void give_up_request(routed_run *run, const char *unanswered) {
    bool is_over = run_now_us(run) >= run->limit_us;
    const connection *conn = run->request.conn;
    const char *unsent = conn == NULL ? "no connection in time" : connection_overdue(conn);
    run->attempt->asked_us = run->request.sent_us;
    if (connection_abandon(&run->request))
        fail_run(run, DLOCK_IN_DOUBT, true, unanswered);
    else if (is_over && run->was_busy) /* there was no time to queue */
        end_run(run, DLOCK_BUSY, false, "another holds the lock");
    else
        fail_run(run, DLOCK_UNREACHABLE, true, unsent);
}

/* The token has a place in the queue, or may have one. */
static void give_up_place(routed_run *run, const char *cause) {
    run->attempt->asked_us = 0;
    if (run->phase == RUN_SESSION)
        fail_run(run, DLOCK_UNREACHABLE, true, cause);
    else
        fail_run(run, DLOCK_IN_DOUBT, true, cause);
}

/* -- replicas */

/* Too few replicas have the lock, or nobody knows. */
static void undo_grant(routed_run *run) {
    run->is_granted = true;
    run->phase = RUN_UNDO;
    bool is_sent =
        run_takes_lock(run) && send_command(run, (lock_words){.operation = DLOCK_RELEASING});
    if (!is_sent) fail_by_reply(run);
}

static void judge_error(routed_run *run);

static void take_acknowledgement(acknowledgement *ack, ack_result result) {
    routed_run *run = container_of(ack, routed_run, ack[0]);
    if (result == ACK_ENOUGH) {
        finish_run(run);
    } else if (result == ACK_NOT_WRITTEN) {
        attempt_note_grant(run->attempt); /* the server may hold the lock, or some of its names */
        judge_error(run);
    } else {
        undo_grant(run);
    }
}

static void await_replicas(routed_run *run) {
    run->phase = RUN_REPLICAS;
    run->ack[0] = (acknowledgement){.attempt = run->attempt,
                                    .is_asking = run->is_asking,
                                    .timeout_ms = replica_timeout_ms(run),
                                    .limit_us = run->limit_us,
                                    .on_done = take_acknowledgement};
    loop_clear_timer(run->router->base.loop, &run->timer);
    acknowledgement_start(run->ack, run->server);
}

/* -- replies */

static void follow_redirect(routed_run *run, const redirect *redirect) {
    if (run->redirect_count++ == REDIRECTS_MAX) {
        run->is_retry = true; /* one more try would go round in the same circle */
        fail_run(run, DLOCK_REFUSED, true, run->attempt->cause);
        return;
    }
    server *next = run->router->table->follow(run->router, run->server, redirect);
    if (next == NULL)
        end_run(run, DLOCK_NO_MEMORY, false, "no memory");
    else
        go_to(run, next, redirect->is_ask);
}

static void note_busy(routed_run *run) {
    busy_names_note(&run->router->busy, run->attempt->name, run_now_us(run));
}

static void judge_busy(routed_run *run) {
    note_busy(run);
    if (run->hint == HINT_QUEUED && run->is_session_new) {
        ask_again(run);
    } else if (run->hint == HINT_QUEUED) {
        run->phase = RUN_QUEUED;
        set_due(run, run->limit_us);
    } else if (run->is_waiting || run->attempt->wait_until_us <= run_now_us(run)) {
        finish_run(run);
    } else {
        run->was_busy = true;
        send_request(run);
    }
}

/* The lease of a lock that lasts as long as the session is counted like the session. If the server
 * has forgotten the session since the request was sent, the lock may have ended with it: only
 * another reply tells whether the new session keeps the lock. */
static void judge_success(routed_run *run) {
    attempt *attempt = run->attempt;
    tie *tie = run_tie(run);
    if (tie != NULL) tie_note_grant(tie, !run->is_session_new);
    if (tie != NULL && tie->is_endless) {
        if (tie->life == NULL) {
            tie->is_forgotten = false;
            ask_again(run);
            return;
        }
        attempt->asked_us = atomic_load(&tie->life->renewed_us);
        attempt->lease_ms = tie->life->timeout_ms;
    }
    if (run_needs_replicas(run))
        await_replicas(run);
    else
        finish_run(run);
}

/* The server has forgotten the session, or nobody has opened it yet. */
static void await_session(routed_run *run) {
    run->phase = RUN_SESSION;
    set_due(run, run->limit_us);
    presence_reopen(guest_of(run));
}

/* ASK for some of several names, while others are still here: there is no node that has all. The
 * other node would say that those are lost. */
static bool is_half_moved(const routed_run *run, const redirect *redirect) {
    return redirect->is_ask && run->has_extended;
}

static void judge_error(routed_run *run) {
    attempt *attempt = run->attempt;
    redirect redirect;
    if (run->is_granted && run_tie(run) != NULL && attempt->operation == DLOCK_EXTENDING)
        withdrawals_add(&run->router->base, attempt, attempt->lease_ms);
    if (run->hint == HINT_NO_SCRIPT && !run->needs_script) {
        run->needs_script = true; /* stays: the next request may go to another server */
        send_request(run);
    } else if (run->hint == HINT_RUN_REFUSED && attempt->fences > 0) {
        attempt->fences = 0; /* the lock cannot be handed on then, but it is granted */
        send_request(run);
    } else if (run->hint == HINT_NO_SESSION && run_now_us(run) < run->limit_us) {
        await_session(run);
    } else if (run->router->table->follow != NULL && redirect_read(&redirect, attempt->cause)) {
        if (is_half_moved(run, &redirect))
            fail_run(run, DLOCK_REFUSED, true, "some of the names have moved, and others not yet");
        else
            follow_redirect(run, &redirect);
    } else {
        fail_by_reply(run);
    }
}

/* -- the end of a request */

static void on_request_done(request *request, dlock_status status, const char *cause) {
    routed_run *run = container_of(request, routed_run, request);
    attempt *attempt = run->attempt;
    bool is_transient = status == DLOCK_UNREACHABLE || status == DLOCK_IN_DOUBT;
    if (run->phase == RUN_UNDO) {
        fail_by_reply(run);
        return;
    }
    bool is_cut = status == DLOCK_UNREACHABLE && run->server->endpoint.state == ENDPOINT_LOST;
    if (is_cut && !run->was_cut) {
        run->was_cut = true;
        send_request(run);
        return;
    }
    attempt->asked_us = request->sent_us;
    if (status == DLOCK_PROTOCOL && request->sent_us != 0) {
        run->is_granted = true;
        if (attempt->guarded != NULL) status = DLOCK_IN_DOUBT;
    }
    if (status != DLOCK_OK) {
        fail_run(run, status, is_transient, cause);
    } else if (attempt->status == DLOCK_OK) {
        judge_success(run);
    } else if (attempt->status == DLOCK_BUSY) {
        judge_busy(run);
    } else {
        judge_error(run);
    }
}

/* -- the session */

/* While a reply is under way, nobody can tell whether the server served the request before it
 * forgot the session or after. So the reply is awaited, and judge_busy() asks again for a place. */
static void on_session_open(guest *guest, bool is_new) {
    routed_run *run = guest->arg;
    tie *tie = run_tie(run);
    if (run->phase == RUN_SESSION) {
        send_request(run);
        return;
    }
    if (run->phase == RUN_QUEUED && is_new) {
        ask_again(run);
        return;
    }
    if (is_new) run->is_session_new = true;
    if (tie != NULL && (is_new || tie->is_momentary)) tie->is_forgotten = true;
}

/* The grant comes by the command connection, so the event of its loss may overtake it. A loss of an
 * earlier grant to the same token looks alike, and counts as a loss too. */
static void take_loss(routed_run *run, const session_event *event) {
    tie *tie = run_tie(run);
    if (tie != NULL && run->phase != RUN_SESSION) tie_note_lost(tie, event);
}

/* The event may overtake the reply QUEUED, which comes by another connection. A lease counts from
 * before the call that brought the event, or from before the grant if that is earlier. */
static void take_event(guest *guest, const session_event *event) {
    routed_run *run = guest->arg;
    attempt *attempt = run->attempt;
    if (event->kind == EVENT_LOST) {
        take_loss(run, event);
        return;
    }
    if (run->phase != RUN_QUEUED && !(run->phase == RUN_REQUEST && run->is_waiting)) return;
    connection_abandon(&run->request);
    note_busy(run);
    if (event->kind == EVENT_GRANTED) {
        tie *tie = run_tie(run);
        if (tie != NULL) tie->is_lost = tie->is_forgotten = false; /* earlier than the grant */
        run->is_session_new = false;
        attempt->fence = event->fence;
        attempt->asked_us = event->sent_us - event->age_ms * 1000;
        attempt_set_result(attempt, DLOCK_OK, false, "");
        judge_success(run);
        return;
    }
    verdict verdict;
    read_ended_event(&verdict, event);
    attempt_set_result(attempt, verdict.status, verdict.is_transient, verdict.cause);
    run->is_granted = false;
    run->hint = verdict.hint;
    if (verdict.status == DLOCK_BUSY)
        finish_run(run);
    else
        judge_error(run);
}

static void on_session_unopened(guest *guest, dlock_status status, const char *cause) {
    routed_run *run = guest->arg;
    if (run->phase == RUN_SESSION) fail_run(run, status, status == DLOCK_UNREACHABLE, cause);
}

static void on_session_moved(guest *guest) {
    routed_run *run = guest->arg;
    if (run->phase == RUN_SESSION || run->phase == RUN_QUEUED)
        give_up_place(run, "another server has taken over");
}

static const guest_table run_guests = {.on_open = on_session_open,
                                       .on_event = take_event,
                                       .on_unopened = on_session_unopened,
                                       .on_moved = on_session_moved};

/* -- time */

static void on_run_found(loop_task *wait) {
    routed_run *run = container_of(wait, routed_run, wait);
    if (run->phase == RUN_DISCOVERY) resume_run(run);
}

static void on_run_due(loop_timer *timer) {
    routed_run *run = container_of(timer, routed_run, timer);
    switch (run->phase) {
    case RUN_DISCOVERY:
        resume_run(run);
        break;
    case RUN_SESSION:
        give_up_place(run, "no session in time");
        break;
    case RUN_REQUEST:
        give_up_request(run, "no reply in time");
        break;
    case RUN_QUEUED:
        give_up_place(run, "no event in time");
        break;
    case RUN_UNDO: /* no reply to the RELEASE: a withdrawal goes on */
        connection_abandon(&run->request);
        fail_by_reply(run);
        break;
    default:
        finish_run(run);
    }
}

/* -- the table */

static size_t size_run(const attempt *attempt) {
    bool has_ack = attempt->terms.min_replicas > 0;
    return sizeof(routed_run) + (has_ack ? sizeof(acknowledgement) : 0);
}

/* An earlier attempt of the call was granted, but not in time, or the lock was lost before it was
 * extended. That says nothing about the next grant, whose token may be another one. */
static void forget_grant(tie *tie) {
    presence_leave(&tie->guest);
    tie->is_lost = tie->is_forgotten = false;
}

static void start_run(deployment *base, attempt *attempt) {
    routed_run *run = attempt->prepared.run;
    *run = (routed_run){.request.on_done = on_request_done,
                        .wait = {.run = on_run_found},
                        .timer = {.on_due = on_run_due},
                        .router = (router *)base,
                        .attempt = attempt,
                        .limit_us = attempt->limit_us};
    if (attempt->guarded != NULL) run->request.reply_bytes_max = REPLY_BYTES_MAX;
    if (run_needs_replicas(run))
        run->limit_us = deadline_after_ms(run->limit_us, replica_timeout_ms(run));
    if (run_takes_lock(run) && run_tie(run) != NULL) forget_grant(run_tie(run));
    attempt->asked_us = 0;
    route_run(run);
}

static void abandon_run(deployment *base, attempt *attempt) {
    (void)base;
    routed_run *run = attempt->prepared.run;
    if (run->phase == RUN_IDLE) return;
    bool was_sent =
        run->phase == RUN_UNDO || run->phase == RUN_QUEUED || run->phase == RUN_REPLICAS;
    bool is_sent = connection_abandon(&run->request) || was_sent;
    bool is_in_doubt = is_sent && attempt->guarded != NULL;
    attempt_set_result(attempt, is_in_doubt ? DLOCK_IN_DOUBT : DLOCK_CANCELED, false, "canceled");
    if (is_sent && run_takes_lock(run))
        withdraw_run(run);
    else if (is_sent && run->phase == RUN_REQUEST && run_sends_acquire(run))
        attempt->fate = TOKEN_IN_DOUBT;
    stop_run(run);
}

const deployment_table routed_table = {.start = start_run,
                                       .abandon = abandon_run,
                                       .list_servers = router_list,
                                       .free = router_free,
                                       .size_run = size_run,
                                       .is_routed = true};
