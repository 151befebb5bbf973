/* SPDX-License-Identifier: BSD-3-Clause */
/* acknowledgement.c - see acknowledgement.h.
 *
 *   join    a lock that needs replicas waits for the next round, which begins at once if none is
 *           under way
 *   round   all that wait and need as many replicas as the first one: their EXTENDs, and one WAIT
 *           with the longest of their timeouts. Callers limit their own time
 *   end     the reply to WAIT, a broken connection, or no reply in time, after which the connection
 *           is closed: on_done for each that is still in the round. The next round begins
 *
 * Locks that need another number of replicas are left for a later round: a WAIT for more replicas
 * than there are takes its whole timeout, and would fail those that need fewer.
 *
 * Invariants: a round under way has a WAIT under way, or its timer set. The object is freed with
 * its server, and each lock that waits has a share of the server. */
#include "deployment/acknowledgement.h"

typedef struct acknowledgements {
    server *server;
    connection *conn; /* NULL: none */
    request wait;     /* Redis's WAIT */
    loop_timer timer; /* the reply to WAIT is overdue */
    bool is_under_way;
    uint32_t timeout_ms;   /* of the round */
    list waiting, in_turn; /* acknowledgement: for the next round, and in the one under way */
} acknowledgements;

/* Whoever is told may give its share of the server back: callers have one of their own. */
static void tell_round(acknowledgements *acks, const reply *reply, const char *cause) {
    while (!list_is_empty(&acks->in_turn)) {
        acknowledgement *ack = container_of(list_first(&acks->in_turn), acknowledgement, node);
        list_remove(&ack->node);
        ack->on_done(ack, reply, cause);
    }
}

/* -- a round */

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

static void on_connection_broken(void *arg, connection *conn) {
    (void)conn;
    acknowledgements *acks = arg;
    acks->conn = NULL; /* the requests are told next */
}

static void use_connection(acknowledgements *acks) {
    connection_owner owner = {.on_broken = on_connection_broken, .arg = acks, .is_parked = true};
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

static void begin_round(acknowledgements *acks) {
    if (acks->is_under_way || list_is_empty(&acks->waiting)) return;
    uint32_t needed = container_of(list_first(&acks->waiting), acknowledgement, node)->min_replicas;
    acks->is_under_way = true;
    acks->timeout_ms = 0;
    use_connection(acks);
    list_each(acknowledgement, ack, &acks->waiting, node) {
        if (ack->min_replicas != needed) continue;
        list_remove(&ack->node);
        list_append(&acks->in_turn, &ack->node);
        if (ack->timeout_ms > acks->timeout_ms) acks->timeout_ms = ack->timeout_ms;
        if (acks->conn != NULL) ack->on_turn(ack, acks->conn);
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
    end_round(acks, "no reply of replicas in time");
}

/* -- public */

static void free_acknowledgements(server *server) {
    acknowledgements *acks = server->acknowledgements;
    connection_close(acks->conn);
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

bool acknowledgement_start(acknowledgement *ack, server *server) {
    acknowledgements *acks = acknowledgements_of(server);
    if (acks == NULL) return false;
    list_append(&acks->waiting, &ack->node);
    begin_round(acks);
    return true;
}

void acknowledgement_stop(acknowledgement *ack) {
    list_remove(&ack->node);
}
