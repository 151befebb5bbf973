/* SPDX-License-Identifier: BSD-3-Clause */
/* routed_send.c - see routed.h.
 *
 *   command connection   RELEASE, EXTEND, GUARD; ACQUIRE that does not wait, or may wait for a name
 *                        that was not busy lately
 *   own connection       ACQUIRE ... WAIT; ACQUIRE of a session, which is tied to the connection;
 *                        ACQUIRE and EXTEND with Redis's own WAIT for replicas behind
 *
 * After ASK, an ASKING precedes the command with the key; Redis's WAIT has no key. */
#include "deployment/routed.h"

enum { COMMANDS_MAX = 3, DAY_MS = 24 * 60 * 60 * 1000 };

static bool has_replicas(const attempt *attempt) {
    return attempt->terms.min_replicas > 0 && attempt->operation != DLOCK_RELEASING;
}

static bool is_session_acquire(const attempt *attempt) {
    return attempt->terms.session != NULL && attempt->operation == DLOCK_ACQUIRING;
}

/* How long the server may let the request wait. */
static uint32_t wait_left_ms(const attempt *attempt, int64_t now_us) {
    if (attempt->operation != DLOCK_ACQUIRING || attempt->wait_until_us <= now_us) return 0;
    int64_t left_us = deadline_left_us(attempt->wait_until_us, now_us);
    int64_t left_ms = left_us / 1000 + (left_us % 1000 != 0);
    return left_ms < DAY_MS ? (uint32_t)left_ms : DAY_MS;
}

static bool needs_own(const routed_run *run, uint32_t wait_ms, int64_t now_us) {
    const attempt *attempt = run->attempt;
    if (has_replicas(attempt) || is_session_acquire(attempt)) return true;
    bool is_busy = run->was_busy || busy_names_has(&run->router->busy, attempt->name, now_us);
    return wait_ms > 0 && is_busy;
}

/* -- own connections */

/* A session that still has a connection has not given its last lock back: closing frees it. A
 * session moves because its connection has ended, and the server may be about to end all others:
 * when a sentinel demotes a master, or when the process is killed. An ACQUIRE on one of them would
 * be in doubt, and the lock lost. */
static bool open_own(routed_run *run, bool is_parked) {
    bool is_session = is_session_acquire(run->attempt);
    bool is_move = is_session && run->attempt->is_background;
    if (is_session) session_close(run->attempt->terms.session);
    run->own = is_move ? server_open_new_own(run->server) : server_open_own(run->server, is_parked);
    if (run->own == NULL) return false;
    run->own->on_doubt = is_parked ? run_doubt : NULL;
    run->own->arg = run;
    return true;
}

void run_return_own(routed_run *run) {
    own_connection_free(run->own);
    run->own = NULL;
}

/* A failed acquire of a session may have tied a lock to the connection: closing frees the lock. */
static void settle_session(routed_run *run, session *session, dlock_status status) {
    bool is_acquire = run->attempt->operation == DLOCK_ACQUIRING;
    if (is_acquire && status == DLOCK_OK) {
        own_connection_unpark(run->own);
        session->own = run->own;
        run->own = NULL;
    } else if (is_acquire && status != DLOCK_BUSY) {
        own_connection_close(run->own);
        run->own = NULL;
    } else if (run->attempt->operation == DLOCK_RELEASING) {
        bool is_answered = status == DLOCK_OK || status == DLOCK_LOST;
        (is_answered ? own_connection_free : own_connection_close)(session->own);
        session->own = NULL;
    }
}

void run_settle_own(routed_run *run) {
    attempt *attempt = run->attempt;
    if (attempt->may_hold && run->server != NULL) attempt_release_behind(attempt, run->server);
    if (attempt->terms.session != NULL)
        settle_session(run, attempt->terms.session, attempt->status);
    run_return_own(run);
}

/* -- requests */

/* A server that does not answer in time hangs. For parked requests, the probes of server.h notice a
 * hung server. */
static void limit_reply(request *request) {
    routed_run *run = container_of(request, routed_run, request);
    int64_t limit_ms = run->router->base.io_timeout_ms;
    if (run->is_parked) return;
    if (has_replicas(run->attempt)) limit_ms += run->attempt->terms.replica_timeout_ms;
    int64_t due_us = deadline_after_ms(request->sent_us, limit_ms);
    loop_set_timer(run->router->base.loop, &run->timer, deadline_earlier(run->limit_us, due_us));
}

/* conn NULL: the command connection. request NULL: nobody wants the replies. False: no memory. */
static bool send_commands(routed_run *run, dlock_operation operation, uint32_t wait_ms,
                          connection *conn, request *request) {
    const attempt *attempt = run->attempt;
    command commands[COMMANDS_MAX] = {{0}};
    int count = 0;
    if (run->is_asking) command_add(&commands[count++], "ASKING");
    lock_words words = {.operation = operation, .wait_ms = wait_ms};
    words.has_hash = run->phase == RUN_REQUEST && request != NULL && !run->needs_script;
    attempt_command(attempt, words, &commands[count++]);
    if (has_replicas(attempt) && operation != DLOCK_RELEASING)
        replicas_command(&commands[count++], attempt->terms.min_replicas,
                         attempt->terms.replica_timeout_ms);
    if (conn != NULL) return connection_send(conn, commands, count, request);
    return server_send(run->server, commands, count, request);
}

static void read_reply(request *request, int index, const reply *reply) {
    routed_run *run = container_of(request, routed_run, request);
    attempt *attempt = run->attempt;
    const lock_protocol *protocol = attempt->prepared.protocol;
    int part = run->is_asking ? index - 1 : index;
    bool is_acquire = attempt->operation == DLOCK_ACQUIRING;
    verdict verdict;
    if (part == 0 && run->phase == RUN_UNDO) {
        protocol->read_holder(&verdict, reply);
        run->is_granted = verdict.status != DLOCK_OK && verdict.status != DLOCK_LOST;
        return;
    }
    if (part == 0 && attempt->guarded.words != NULL) {
        read_guard_reply(&verdict, attempt->guarded.reply, reply);
    } else if (part == 0) {
        (is_acquire ? protocol->read_acquire : protocol->read_holder)(&verdict, reply);
        run->is_granted = verdict.status == DLOCK_PROTOCOL && reply->kind != REPLY_ERROR;
        run->is_no_script = verdict.is_no_script;
        if (is_acquire) attempt->fence = verdict.fence;
    } else if (part == 1 && attempt->status == DLOCK_OK) {
        read_replicas_reply(&verdict, reply, attempt->terms.min_replicas);
        run->is_granted = verdict.status != DLOCK_OK;
    } else {
        return;
    }
    attempt_set_result(attempt, verdict.status, verdict.is_transient, verdict.cause);
}

bool run_send(routed_run *run) {
    attempt *attempt = run->attempt;
    loop *loop = run->router->base.loop;
    int64_t now_us = loop_now_us(loop);
    uint32_t wait_ms = wait_left_ms(attempt, now_us);
    bool is_own = needs_own(run, wait_ms, now_us);
    if (is_own && !open_own(run, wait_ms > 0)) return false;
    run->is_parked = is_own && wait_ms > 0;
    run->phase = RUN_REQUEST;
    run->request.on_reply = read_reply;
    run->request.on_sent = limit_reply;
    run->is_granted = false;
    loop_set_timer(loop, &run->timer, run->limit_us);
    connection *conn = is_own ? run->own->conn : NULL;
    if (!send_commands(run, attempt->operation, is_own ? wait_ms : 0, conn, &run->request))
        return false;
    if (attempt->on_sent != NULL) attempt->on_sent(attempt);
    return true;
}

bool run_abandon_request(routed_run *run, bool is_final) {
    connection *conn = run->request.conn;
    bool is_sent = connection_abandon(&run->request);
    if (is_sent && is_final && run_takes_lock(run) && conn != NULL)
        send_commands(run, DLOCK_RELEASING, 0, conn, NULL);
    return is_sent;
}

bool run_send_release(routed_run *run) {
    connection *conn = run->own == NULL ? NULL : run->own->conn;
    if (conn == NULL) return false;
    run->phase = RUN_UNDO;
    run->is_parked = false;
    loop_set_timer(run->router->base.loop, &run->timer, run->limit_us);
    return send_commands(run, DLOCK_RELEASING, 0, conn, &run->request);
}
