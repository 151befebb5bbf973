/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - see exchange.h. One poll(2) loop: look at each, poll, let each do what is ready.
 * Most answers come at once: for a single one we wait a moment before we poll. A cancel is heard
 * after that. */
#define _GNU_SOURCE /* ppoll(2) */
#include "exchange.h"

#include "deadline.h"
#include "text.h"
#include <poll.h>
#include <time.h>

/* What takes less than this is not worth a wait for those who are slower. */
enum { GRACE_FROM_US = 1000 };

static void finish(exchange *x, dlock_status status, const char *cause) {
    x->is_done = true;
    x->status = status;
    if (cause != x->cause) text_copy(x->cause, sizeof(x->cause), cause);
}

static int64_t deadline_of(const exchange *x) {
    if (!x->is_sent) return deadline_earlier(x->send_by_us, x->connect_by_us);
    return deadline_earlier(x->heard_us + x->answer_in_us, x->answer_by_us);
}

static void send_requests(exchange *x, int64_t now_us) {
    if (x->prepare != NULL) x->prepare(x, now_us);
    for (int i = 0; i < x->request_count; i++)
        if (!conn_queue(x->conn, &x->requests[i])) {
            finish(x, DLOCK_NO_MEMORY, "no memory");
            return;
        }
    x->sent_us = x->heard_us = now_us;
    x->is_sent = true;
    conn_advance(x->conn, 0); /* most likely it can be written at once */
    if (x->on_sent != NULL) x->on_sent(x->on_sent_arg);
}

/* True: there is another connection, on which nothing is sent yet. */
static bool try_next(exchange *x, int64_t now_us) {
    if (x->is_sent || x->connect == NULL) return false;
    conn *next = x->connect(x, now_us);
    if (next == NULL) return false;
    conn_close(x->conn);
    x->conn = next;
    return true;
}

static void on_broken(exchange *x) {
    bool was_sent = x->is_sent && conn_has_sent(x->conn);
    dlock_status failure = conn_failure(x->conn);
    bool is_unreachable = failure == DLOCK_UNREACHABLE;
    finish(x, was_sent && is_unreachable ? DLOCK_IN_DOUBT : failure, conn_cause(x->conn));
}

/* It may be parked, granted or still on its way: what goes after it on the same way undoes it. */
static void abandon(exchange *x, dlock_status status, const char *cause, int64_t now_us) {
    bool is_for_good = status == DLOCK_CANCELED || now_us >= x->farewell_from_us;
    if (x->is_sent && is_for_good && x->farewell != NULL && conn_queue(x->conn, x->farewell)) {
        x->is_undone = true;
        conn_advance(x->conn, 0);
    }
    finish(x, status, cause);
}

/* Sends, and reads what has arrived. True: it is done, or its time is not over. */
static bool use_connection(exchange *x, int64_t now_us) {
    if (!x->is_sent && conn_is_ready(x->conn)) send_requests(x, now_us);
    if (x->is_done) return true;
    conn_result result;
    reply answer;
    while ((result = conn_take(x->conn, &answer)) == CONN_REPLIED) {
        x->on_reply(x, x->reply_count, &answer);
        x->heard_us = now_us;
        if (++x->reply_count < x->request_count) continue;
        finish(x, DLOCK_OK, "");
        return true;
    }
    return result == CONN_WAITING && now_us < deadline_of(x);
}

static bool is_broken(const exchange *x) {
    reply none;
    return conn_take(x->conn, &none) == CONN_BROKEN;
}

static void look_at(exchange *x, int64_t now_us) {
    if (x->conn == NULL && !try_next(x, now_us)) {
        if (x->status != DLOCK_OK)
            finish(x, x->status, x->cause);
        else if (now_us >= x->send_by_us)
            finish(x, DLOCK_UNREACHABLE, "the host name was not resolved in time");
        return;
    }
    do {
        if (use_connection(x, now_us)) return;
    } while (try_next(x, now_us));
    if (is_broken(x))
        on_broken(x);
    else if (x->is_sent)
        abandon(x, DLOCK_IN_DOUBT, "no answer in time", now_us);
    else if (now_us >= x->send_by_us)
        finish(x, DLOCK_UNREACHABLE, conn_overdue(x->conn));
    else
        x->connect_by_us = DEADLINE_NEVER; /* there is no other to make room for */
}

/* -- several */

static bool is_sufficient(exchange *const all[], size_t count, size_t suffices) {
    size_t yes = 0;
    if (suffices == 0) return false;
    for (size_t i = 0; i < count; i++) {
        const exchange *x = all[i];
        bool is_needed = x->is_patient && x->is_crowded;
        if (x->is_done)
            yes += x->status == DLOCK_OK && x->is_yes(x);
        else if (is_needed || !x->is_sent || !conn_is_flushed(x->conn))
            return false;
    }
    return yes >= suffices;
}

/* The connection passes over the answers when they come. */
static void leave_others(exchange *const all[], size_t count) {
    for (size_t i = 0; i < count; i++) {
        exchange *x = all[i];
        if (x->is_done) continue;
        conn_leave(x->conn, x->request_count - x->reply_count);
        x->is_left = true;
        finish(x, DLOCK_IN_DOUBT, "it was not waited for");
    }
}

/* Those that are almost there are waited for: one that is left needs a connection of its own. */
static int64_t end_of_grace(int64_t begun_us, int64_t now_us) {
    int64_t took_us = now_us - begun_us;
    return took_us < GRACE_FROM_US ? now_us : now_us + took_us / 8;
}

static int poll_until(struct pollfd *polled, nfds_t count, int64_t deadline_us, int64_t now_us) {
    int64_t left_us = deadline_left_us(deadline_us, now_us);
    struct timespec left = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
    return ppoll(polled, count, deadline_us == DEADLINE_NEVER ? NULL : &left, NULL);
}

/* Polls those that are not done, until then at the latest. Fills ready, in the order of all. */
static void wait_for_some(exchange *const all[], size_t count, const interrupt *stop,
                          int64_t deadline_us, int64_t now_us, short *ready) {
    struct pollfd polled[EXCHANGE_MAX + 1];
    nfds_t polled_count = 0;
    for (size_t i = 0; i < count; i++) {
        const exchange *x = all[i];
        if (x->is_done) continue;
        deadline_us = deadline_earlier(deadline_us, deadline_of(x));
        polled[polled_count++] =
            x->conn == NULL
                ? (struct pollfd){.fd = x->wait_fd, .events = POLLIN}
                : (struct pollfd){.fd = conn_fd(x->conn), .events = conn_events(x->conn)};
    }
    int stop_fd = stop->is_requested != NULL ? stop->fd : -1;
    polled[polled_count] = (struct pollfd){.fd = stop_fd, .events = POLLIN};
    int found = poll_until(polled, polled_count + 1, deadline_us, now_us);
    if (found > 0 && polled[polled_count].revents != 0) interrupt_drain(stop);
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        if (!all[i]->is_done) ready[i] = found > 0 ? polled[at++].revents : 0;
}

/* True: it may be there. */
static bool await_briefly(exchange *x, int64_t now_us) {
    bool has_time = deadline_left_us(deadline_of(x), now_us) > 4 * CONN_MOMENT_US;
    if (!x->is_sent || x->was_awaited || !has_time) return false;
    x->was_awaited = true;
    return conn_await_briefly(x->conn);
}

void exchange_run(exchange *const all[], size_t count, size_t suffices, const environment *env,
                  const interrupt *stop) {
    int64_t begun_us = env->now_us(env), leave_us = DEADLINE_NEVER;
    for (;;) {
        int64_t now_us = env->now_us(env);
        bool is_canceled = interrupt_is_requested(stop), is_done = true;
        for (size_t i = 0; i < count; i++) {
            exchange *x = all[i];
            if (!x->is_done) look_at(x, now_us);
            if (!x->is_done && is_canceled) abandon(x, DLOCK_CANCELED, "canceled", now_us);
            is_done = is_done && x->is_done;
        }
        if (is_done) return;
        if (leave_us == DEADLINE_NEVER && is_sufficient(all, count, suffices))
            leave_us = end_of_grace(begun_us, now_us);
        if (now_us >= leave_us) {
            leave_others(all, count);
            return;
        }
        if (count == 1 && await_briefly(all[0], now_us)) continue;
        short ready[EXCHANGE_MAX];
        wait_for_some(all, count, stop, leave_us, now_us, ready);
        for (size_t i = 0; i < count; i++)
            if (!all[i]->is_done && all[i]->conn != NULL && ready[i] != 0)
                conn_advance(all[i]->conn, ready[i]);
    }
}
