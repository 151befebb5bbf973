/* SPDX-License-Identifier: BSD-3-Clause */
/* routed.c - see router.h and routed.h.
 *
 *   route      find the server. If none is known, or doubts have just come up, wait for a discovery
 *   session    a request that waits, or that ties its lock, first waits for the session to be open
 *   request    routed_send.c. Busy, and the acquire may wait: once more, and then it stands in the
 *              queue of the lock, until an event of the session tells the outcome
 *   redirect   MOVED or ASK: the same request to another node
 *   script     plain Redis: a server that does not know the hash of a script gets the script
 *   replicas   granted or extended: enough replicas have to acknowledge that (acknowledgement.h)
 *   undo       too few replicas know: a RELEASE. The attempt ends with the reply, so the next
 *              acquire, by whomever, does not find the lock taken
 *   retry      a failure that may pass, and nothing was done: if the router knows another server,
 *              or a discovery finds one, that server gets one more try
 *   give up    at the limit, or abandoned: a withdrawal sends RELEASE behind the ACQUIRE
 *
 * An acquire whose reply was lost keeps its token (is_in_doubt): the caller sends the same token
 * again, and keeps the place in the queue. Once a RELEASE of a token is on its way, the token must
 * not be used again: withdraw() changes the token.
 *
 * Invariant: on_done is called from a callback of the loop, as the last thing; a failure to send
 * ends the run by its timer. */
#include "deployment/routed.h"

#include "base/token.h"

/* A slot that moves takes two: to the owner by the map, and to the next owner. */
enum { REDIRECTS_MAX = 5 };

static int64_t now_of(const routed_run *run) {
    return loop_now_us(run->router->base.loop);
}

static server *find_server(const routed_run *run) {
    return run->router->table->find(run->router, run->attempt->name);
}

static void doubt_server(routed_run *run) {
    if (find_server(run) == run->server) run->router->is_doubted = true;
}

/* -- the end */

static void stop_run(routed_run *run) {
    const attempt *attempt = run->attempt;
    if (attempt->is_in_doubt && run->server != NULL) attempt_release_behind(attempt, run->server);
    if (attempt->operation == DLOCK_RELEASING && attempt_may_come_late(attempt))
        withdrawals_add(&run->router->base, attempt, attempt->lease_ms);
    run_leave_session(run);
    acknowledgement_stop(&run->ack);
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
static void withdraw(routed_run *run) {
    attempt *attempt = run->attempt;
    presence_leave(&run->guest);
    withdrawals_add(&run->router->base, attempt, attempt->lease_ms);
    attempt->is_in_doubt = false;
    token_vary(attempt->token);
}

/* -- to a server */

/* May be called from within a function of the deployment's user, which must not be called back
 * yet. */
static void send_request(routed_run *run) {
    if (run_send(run)) return;
    attempt_set_result(run->attempt, DLOCK_NO_MEMORY, false, "no memory");
    run->phase = RUN_ENDING;
    loop_set_timer(run->router->base.loop, &run->timer, 0);
}

static void go_to(routed_run *run, server *server, bool is_asking) {
    server_share(server);
    server_free(run->server);
    run->server = server;
    run->is_asking = is_asking;
    send_request(run);
}

static void await_discovery(routed_run *run) {
    list_remove(&run->wait.node); /* maybe for the same discovery already */
    list_append(&run->router->waits, &run->wait.node);
}

static void wait_for_discovery(routed_run *run, int64_t until_us) {
    run->phase = RUN_DISCOVERY;
    await_discovery(run);
    loop_set_timer(run->router->base.loop, &run->timer, until_us);
}

/* If discoveries fail, the known server is used while another discovery is under way. */
static void route_run(routed_run *run) {
    server *known = find_server(run);
    bool is_discovering = router_discover(run->router);
    int64_t now_us = now_of(run);
    if (known == NULL)
        wait_for_discovery(run, run->limit_us);
    else if (is_discovering && run->router->failure == DLOCK_OK)
        wait_for_discovery(run, now_us + deadline_left_us(run->limit_us, now_us) / 2);
    else
        go_to(run, known, false);
}

/* The discovery has ended, or takes too long for this attempt. */
static void resume_run(routed_run *run) {
    router *router = run->router;
    server *known = find_server(run);
    list_remove(&run->wait.node);
    bool is_over = now_of(run) >= run->limit_us;
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

/* The result is final, unless another server can have a try. An acquire whose fate is unknown can
 * be sent again with its token, unless it is given up. A withdrawal comes before the doubt, so that
 * its RELEASE goes to the same server at once. */
static void fail_run(routed_run *run, dlock_status status, bool is_transient, const char *cause) {
    attempt *attempt = run->attempt;
    bool is_over = now_of(run) >= run->limit_us;
    bool is_in_doubt = status == DLOCK_IN_DOUBT || run->is_granted;
    bool is_answer = status < DLOCK_IN_DOUBT; /* about the lock, whichever server gives it */
    char text[CAUSE_SIZE];
    cause_write(text, run->server, cause);
    attempt_set_result(attempt, status, is_transient, is_answer ? cause : text);
    if (is_in_doubt && attempt->operation == DLOCK_ACQUIRING) {
        attempt->is_in_doubt = true;
        if ((run->is_granted || is_over) && run_takes_lock(run)) withdraw(run);
    }
    if (is_transient || status == DLOCK_NO_REPLICAS) doubt_server(run);
    bool is_final = !is_transient || is_in_doubt || run->is_retry || is_over;
    server *known = find_server(run);
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
    bool is_over = now_of(run) >= run->limit_us;
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

/* The next request, to another server maybe, has the text of the script as well. */
static void send_script(routed_run *run) {
    run->needs_script = true;
    go_to(run, run->server, run->is_asking);
}

/* Without a run of fences the lock cannot be handed on, but it is granted. */
static void send_without_run(routed_run *run) {
    run->attempt->fences = 0;
    go_to(run, run->server, run->is_asking);
}

static void note_busy(routed_run *run) {
    busy_names_note(&run->router->busy, run->attempt->name, now_of(run));
}

static void judge_busy(routed_run *run) {
    note_busy(run);
    if (run->is_queued && run->is_session_new) {
        send_request(run);
    } else if (run->is_queued) {
        run->phase = RUN_QUEUED;
        loop_set_timer(run->router->base.loop, &run->timer, run->limit_us);
    } else if (run->is_waiting || run->attempt->wait_until_us <= now_of(run)) {
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
    if (tie != NULL && tie->is_endless) {
        if (run->is_session_new) {
            tie->is_forgotten = false;
            send_request(run);
            return;
        }
        attempt->asked_us = presence_renewed_us(&tie->guest);
        attempt->lease_ms = presence_timeout_ms(&tie->guest);
    }
    if (run_needs_replicas(run))
        run_await_replicas(run);
    else
        finish_run(run);
}

/* The server has forgotten the session, or nobody has opened it yet. */
static void await_session(routed_run *run) {
    tie *tie = run_tie(run);
    run->phase = RUN_SESSION;
    loop_set_timer(run->router->base.loop, &run->timer, run->limit_us);
    presence_reopen(tie != NULL ? &tie->guest : &run->guest);
}

static void judge_error(routed_run *run) {
    attempt *attempt = run->attempt;
    redirect redirect;
    if (run->is_granted && run_tie(run) != NULL && attempt->operation == DLOCK_EXTENDING)
        withdrawals_add(&run->router->base, attempt, attempt->lease_ms);
    if (run->is_no_script && !run->needs_script)
        send_script(run);
    else if (run->is_run_refused && attempt->fences > 0)
        send_without_run(run);
    else if (run->is_no_session && now_of(run) < run->limit_us)
        await_session(run);
    else if (run->router->table->follow != NULL && redirect_read(&redirect, attempt->cause))
        follow_redirect(run, &redirect);
    else
        fail_by_reply(run);
}

/* -- replicas */

/* Too few replicas have the lock, or nobody knows. */
static void undo_grant(routed_run *run, dlock_status status, bool is_transient, const char *cause) {
    acknowledgement_stop(&run->ack);
    connection_abandon(&run->request);
    run->is_granted = true;
    attempt_set_result(run->attempt, status, is_transient, cause);
    if (!run_takes_lock(run) || !run_send_release(run)) fail_by_reply(run);
}

void run_take_acknowledgement(acknowledgement *ack, const reply *reply, const char *cause) {
    routed_run *run = container_of(ack, routed_run, ack);
    verdict verdict;
    if (reply == NULL) {
        undo_grant(run, DLOCK_NO_REPLICAS, false, cause);
        return;
    }
    read_replicas_reply(&verdict, reply, ack->min_replicas);
    if (verdict.status == DLOCK_OK)
        finish_run(run);
    else
        undo_grant(run, verdict.status, verdict.is_transient, verdict.cause);
}

/* To the EXTEND: the WAIT behind it is next, unless the lock is lost or has moved. */
static void on_written(routed_run *run, dlock_status status, const char *cause) {
    if (status != DLOCK_OK) {
        undo_grant(run, DLOCK_NO_REPLICAS, false, cause);
    } else if (run->attempt->status != DLOCK_OK) {
        acknowledgement_stop(&run->ack);
        judge_error(run);
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
    if (run->phase == RUN_REPLICAS) {
        on_written(run, status, cause);
        return;
    }
    attempt->asked_us = request->sent_us;
    if (status == DLOCK_PROTOCOL && request->sent_us != 0) {
        run->is_granted = true;
        if (attempt->guarded.words != NULL) status = DLOCK_IN_DOUBT;
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
    if (run->phase == RUN_SESSION || (run->phase == RUN_QUEUED && is_new)) {
        send_request(run);
        return;
    }
    run->is_session_new = is_new;
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
    run->is_no_session = run->is_no_script = run->is_run_refused = run->is_granted = false;
    if (verdict.status == DLOCK_BUSY)
        finish_run(run);
    else
        judge_error(run);
}

static void on_session_refused(guest *guest, dlock_status status, const char *cause) {
    routed_run *run = guest->arg;
    if (run->phase == RUN_SESSION) end_run(run, status, false, cause);
}

static void on_session_unreachable(guest *guest, const char *cause) {
    routed_run *run = guest->arg;
    if (run->phase == RUN_SESSION) give_up_place(run, cause);
}

static void on_session_moved(guest *guest) {
    routed_run *run = guest->arg;
    if (run->phase == RUN_SESSION || run->phase == RUN_QUEUED)
        give_up_place(run, "another server has taken over");
}

const guest_table run_guests = {.on_open = on_session_open,
                                .on_event = take_event,
                                .on_refused = on_session_refused,
                                .on_unreachable = on_session_unreachable,
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
    case RUN_REPLICAS:
        undo_grant(run, DLOCK_NO_REPLICAS, false, "no reply of replicas in time");
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

static void start_run(deployment *base, attempt *attempt) {
    routed_run *run = attempt->prepared.run;
    *run = (routed_run){.request.on_done = on_request_done,
                        .wait = {.run = on_run_found},
                        .timer = {.on_due = on_run_due},
                        .router = (router *)base,
                        .attempt = attempt,
                        .limit_us = attempt->limit_us};
    if (attempt->guarded.words != NULL) run->request.reply_bytes_max = REPLY_BYTES_MAX;
    if (attempt->terms.min_replicas > 0 && attempt->operation != DLOCK_RELEASING)
        run->limit_us = deadline_after_ms(run->limit_us, attempt->terms.replica_timeout_ms);
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
    bool is_in_doubt = is_sent && attempt->guarded.words != NULL;
    attempt_set_result(attempt, is_in_doubt ? DLOCK_IN_DOUBT : DLOCK_CANCELED, false, "canceled");
    if (is_sent && run_takes_lock(run)) withdraw(run);
    stop_run(run);
}

const deployment_table routed_table = {.start = start_run,
                                       .abandon = abandon_run,
                                       .list_servers = router_list,
                                       .free = router_free,
                                       .run_size = sizeof(routed_run),
                                       .has_replicas = true,
                                       .is_routed = true};
