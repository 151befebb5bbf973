/* SPDX-License-Identifier: BSD-3-Clause */
/* acknowledgement.c - see acknowledgement.h.
 *
 *   join    a lock that needs replicas waits for the next round, which begins at once if none is
 *           under way
 *   round   all that wait and need as many replicas as the first one: their EXTENDs, and one WAIT
 *           with the longest of their timeouts. Callers limit their own time
 *   end     the reply to WAIT, a broken connection, or no reply in time, after which the connection
 *           is closed: the end for each that is still in the round. The next round begins
 *   lock    ends by itself if its EXTEND is refused, or if its own time is over
 *
 * Locks that need another number of replicas are left for a later round: a WAIT for more replicas
 * than there are takes its whole timeout, and would fail those that need fewer.
 *
 * Invariants: a round under way has a WAIT under way, or its timer set. The object is freed with
 * its server, and each lock that waits has a share of the server. Each lock has its timer set. */
#include "deployment/acknowledgement.h"

static const char overdue[] = "no reply of replicas in time";

typedef struct acknowledgements {
    server *server;
    connection *conn; /* NULL: none */
    request wait;     /* Redis's WAIT */
    loop_timer timer; /* the reply to WAIT is overdue */
    bool is_under_way;
    uint32_t timeout_ms;   /* of the round */
    list waiting, in_turn; /* acknowledgement: for the next round, and in the one under way */
} acknowledgements;

/* -- one lock */

static void end_lock(acknowledgement *ack, ack_result result) {
    acknowledgement_stop(ack);
    ack->on_done(ack, result);
}

/* Without a reply of replicas. */
static void fail_lock(acknowledgement *ack, const char *cause) {
    attempt_set_result(ack->attempt, DLOCK_NO_REPLICAS, false, cause);
    end_lock(ack, ACK_TOO_FEW);
}

static void judge_replicas(acknowledgement *ack, const reply *reply) {
    verdict verdict;
    read_replicas_reply(&verdict, reply, ack->attempt->terms.min_replicas);
    attempt_set_result(ack->attempt, verdict.status, verdict.is_transient, verdict.cause);
    end_lock(ack, verdict.status == DLOCK_OK ? ACK_ENOUGH : ACK_TOO_FEW);
}

static void on_lock_overdue(loop_timer *timer) {
    fail_lock(container_of(timer, acknowledgement, timer), overdue);
}

static void limit_lock(request *written) {
    acknowledgement *ack = container_of(written, acknowledgement, written);
    const server_options *options = &ack->server->endpoint.options;
    int64_t limit_ms = (int64_t)options->io_timeout_ms + ack->timeout_ms;
    int64_t due_us = deadline_after_ms(written->sent_us, limit_ms);
    loop_set_timer(options->loop, &ack->timer, deadline_earlier(ack->limit_us, due_us));
}

/* Several names are written by an EXTEND for each: the first failure is the result. */
static void on_written_reply(request *written, int index, const reply *reply) {
    acknowledgement *ack = container_of(written, acknowledgement, written);
    attempt *attempt = ack->attempt;
    verdict verdict;
    bool is_to_asking = ack->is_asking && index % 2 == 0;
    if (is_to_asking || attempt->status != DLOCK_OK) return;
    read_holder_reply(&verdict, reply);
    if (verdict.status == DLOCK_OK) return;
    if (verdict.status == DLOCK_LOST && attempt->operation == DLOCK_ACQUIRING)
        verdict_set(&verdict, DLOCK_NO_REPLICAS, "it was lost before replicas had it");
    attempt_set_result(attempt, verdict.status, verdict.is_transient, verdict.cause);
}

static void on_written(request *written, dlock_status status, const char *cause) {
    acknowledgement *ack = container_of(written, acknowledgement, written);
    if (status != DLOCK_OK)
        fail_lock(ack, cause);
    else if (ack->attempt->status != DLOCK_OK)
        end_lock(ack, ACK_NOT_WRITTEN);
}

/* Without memory, the lock ends as if no replica had replied. */
static void write_lock(acknowledgement *ack, connection *conn) {
    lock_words words = {.operation = DLOCK_EXTENDING};
    if (!attempt_send(ack->attempt, &words, ack->is_asking, ack->server, conn, &ack->written))
        loop_set_timer(ack->server->loop, &ack->timer, 0);
}

/* -- a round */

/* Whoever is told may give its share of the server back: callers have one of their own. reply NULL:
 * there is none. */
static void tell_round(acknowledgements *acks, const reply *reply, const char *cause) {
    while (!list_is_empty(&acks->in_turn)) {
        acknowledgement *ack = container_of(list_first(&acks->in_turn), acknowledgement, node);
        if (reply != NULL)
            judge_replicas(ack, reply);
        else
            fail_lock(ack, cause);
    }
}

static void on_wait_sent(request *wait) {
    acknowledgements *acks = container_of(wait, acknowledgements, wait);
    const server_options *options = &acks->server->endpoint.options;
    int64_t limit_ms = (int64_t)acks->timeout_ms + options->io_timeout_ms;
    loop_set_timer(options->loop, &acks->timer, deadline_after_ms(wait->sent_us, limit_ms));
}

static void on_wait_reply(request *wait, int index, const reply *reply) {
    (void)index;
    acknowledgements *acks = container_of(wait, acknowledgements, wait);
    server *server = server_share(acks->server);
    tell_round(acks, reply, "");
    server_free(server);
}

static void use_connection(acknowledgements *acks) {
    connection_owner owner = {.place = &acks->conn, .is_parked = true};
    if (acks->conn != NULL && !connection_is_alive(acks->conn)) {
        connection_close(acks->conn);
        acks->conn = NULL;
    }
    if (acks->conn == NULL) acks->conn = connection_open(&acks->server->endpoint, &owner);
}

/* False: no memory. */
static bool send_wait(acknowledgements *acks, uint32_t min_replicas) {
    command wait = {0};
    replicas_command(&wait, min_replicas, acks->timeout_ms);
    return connection_send(acks->conn, &wait, 1, &acks->wait);
}

static uint32_t needed_replicas(list_node *node) {
    return container_of(node, acknowledgement, node)->attempt->terms.min_replicas;
}

static void begin_round(acknowledgements *acks) {
    if (acks->is_under_way || list_is_empty(&acks->waiting)) return;
    uint32_t needed = needed_replicas(list_first(&acks->waiting));
    acks->is_under_way = true;
    acks->timeout_ms = 0;
    use_connection(acks);
    list_each(acknowledgement, ack, &acks->waiting, node) {
        if (needed_replicas(&ack->node) != needed) continue;
        list_remove(&ack->node);
        list_append(&acks->in_turn, &ack->node);
        if (ack->timeout_ms > acks->timeout_ms) acks->timeout_ms = ack->timeout_ms;
        if (acks->conn != NULL) write_lock(ack, acks->conn);
    }
    bool is_sent = acks->conn != NULL && send_wait(acks, needed);
    if (!is_sent) loop_set_timer(acks->server->loop, &acks->timer, 0);
}

static void end_round(acknowledgements *acks, const char *cause) {
    server *server = server_share(acks->server);
    loop_clear_timer(server->loop, &acks->timer);
    tell_round(acks, NULL, cause);
    acks->is_under_way = false;
    begin_round(acks);
    server_free(server);
}

static void on_wait_done(request *wait, dlock_status status, const char *cause) {
    (void)status;
    end_round(container_of(wait, acknowledgements, wait), cause);
}

static void on_wait_overdue(loop_timer *timer) {
    acknowledgements *acks = container_of(timer, acknowledgements, timer);
    connection_close(acks->conn);
    acks->conn = NULL;
    end_round(acks, overdue);
}

/* -- public */

static void free_acknowledgements(server *server) {
    acknowledgements *acks = server->acknowledgements;
    connection_close(acks->conn);
    connection_abandon(&acks->wait); /* its connection may just have broken */
    loop_clear_timer(server->loop, &acks->timer);
    free(acks);
    server->acknowledgements = NULL;
}

/* NULL: no memory. */
static acknowledgements *acknowledgements_of(server *server) {
    if (server->acknowledgements != NULL) return server->acknowledgements;
    acknowledgements *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->server = server;
    made->wait =
        (request){.on_reply = on_wait_reply, .on_done = on_wait_done, .on_sent = on_wait_sent};
    made->timer.on_due = on_wait_overdue;
    list_init(&made->waiting);
    list_init(&made->in_turn);
    server->acknowledgements = made;
    server->free_acknowledgements = free_acknowledgements;
    return made;
}

void acknowledgement_start(acknowledgement *ack, server *server) {
    acknowledgements *acks = acknowledgements_of(server);
    ack->server = server;
    ack->written =
        (request){.on_reply = on_written_reply, .on_done = on_written, .on_sent = limit_lock};
    ack->timer.on_due = on_lock_overdue;
    loop_set_timer(server->loop, &ack->timer, acks == NULL ? 0 : ack->limit_us);
    if (acks == NULL) return;
    list_append(&acks->waiting, &ack->node);
    begin_round(acks);
}

void acknowledgement_stop(acknowledgement *ack) {
    if (ack->server == NULL) return;
    list_remove(&ack->node);
    connection_abandon(&ack->written);
    loop_clear_timer(ack->server->loop, &ack->timer);
    ack->server = NULL;
}
