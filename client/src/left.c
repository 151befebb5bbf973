/* SPDX-License-Identifier: BSD-3-Clause */
/* left.c - see left.h. */
#include "left.h"

#include <stdlib.h>
#include <time.h>

enum { PATIENCE_MS = 200 }; /* for the last answers */

bool left_add(left_conns *to, conn *added, uint64_t subject, int64_t until_us) {
    if (to->count == to->capacity) {
        size_t capacity = to->capacity == 0 ? 8 : 2 * to->capacity;
        left_conn *each = realloc(to->each, capacity * sizeof(each[0]));
        if (each != NULL) to->each = each;
        struct pollfd *polled = realloc(to->polled, capacity * sizeof(polled[0]));
        if (polled != NULL) to->polled = polled;
        if (each == NULL || polled == NULL) return false;
        to->capacity = capacity;
    }
    to->each[to->count++] = (left_conn){.kept = added, .subject = subject, .until_us = until_us};
    return true;
}

static conn *take_out(left_conns *from, size_t which) {
    conn *taken = from->each[which].kept;
    from->each[which] = from->each[--from->count];
    return taken;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void await_answers(left_conns *of) {
    int64_t end_ms = now_ms() + PATIENCE_MS, left_ms = PATIENCE_MS;
    for (; of->count > 0 && left_ms > 0; left_ms = end_ms - now_ms()) {
        conn *settled;
        for (size_t i = 0; i < of->count; i++)
            of->polled[i] = (struct pollfd){.fd = conn_fd(of->each[i].kept), .events = POLLIN};
        poll(of->polled, (nfds_t)of->count, (int)left_ms);
        left_look(of, 0);
        while ((settled = left_take_settled(of)) != NULL)
            conn_close(settled);
    }
}

void left_free(left_conns *old) {
    await_answers(old);
    while (old->count > 0)
        conn_close(take_out(old, 0));
    free(old->each);
    free(old->polled);
}

left_news left_look(left_conns *at, int64_t now_us) {
    left_news news = {0};
    for (size_t i = 0; i < at->count; i++)
        at->polled[i] = (struct pollfd){.fd = conn_fd(at->each[i].kept), .events = POLLIN};
    bool is_news = at->count > 0 && poll(at->polled, (nfds_t)at->count, 0) > 0;
    for (size_t i = at->count; i-- > 0;) { /* backwards: the last one takes the place of one gone */
        left_conn *each = &at->each[i];
        bool is_heard = is_news && at->polled[i].revents != 0;
        conn_result state = is_heard ? conn_settle(each->kept) : CONN_WAITING;
        if (state == CONN_REPLIED) news.is_answered = true;
        if (state == CONN_WAITING && now_us >= each->until_us) news.is_late = true;
        if (state == CONN_BROKEN) conn_close(take_out(at, i));
    }
    news.is_crowded = at->count >= LEFT_CROWD;
    return news;
}

conn *left_take(left_conns *from, uint64_t subject) {
    for (size_t i = 0; i < from->count; i++)
        if (from->each[i].subject == subject) return take_out(from, i);
    return NULL;
}

conn *left_take_settled(left_conns *from) {
    for (size_t i = 0; i < from->count; i++)
        if (!conn_has_left(from->each[i].kept)) return take_out(from, i);
    return NULL;
}

bool left_send(left_conns *by, const command *requests, int count) {
    for (size_t i = by->count; i-- > 0;) {
        conn *used = by->each[i].kept;
        int queued = 0;
        if (!conn_is_ready(used) || !conn_is_flushed(used)) continue;
        while (queued < count && conn_queue(used, &requests[queued]))
            queued++;
        conn_leave(used, queued);
        conn_advance(used, 0);
        return queued == count;
    }
    return false;
}
