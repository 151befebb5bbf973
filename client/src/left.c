/* SPDX-License-Identifier: BSD-3-Clause */
/* left.c - see left.h. */
#include "left.h"

#include <stdlib.h>

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

void left_free(left_conns *old) {
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
        each->is_settled = state == CONN_REPLIED;
        news.is_answered = news.is_answered || each->is_settled;
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
        if (from->each[i].is_settled) return take_out(from, i);
    return NULL;
}
