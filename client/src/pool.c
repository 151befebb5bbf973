/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.c - see pool.h.
 *
 * Invariants: idle ones are at most max, and there are none while more than max are open.
 * Somebody is in line only while max or more are lent; what is given back goes to the first in
 * line directly, so nobody overtakes. */
#include "pool.h"

#include "deadline.h"
#include <pthread.h>
#include <stdlib.h>

typedef struct place {
    struct place *next;
    int wake_fd;
    bool is_served;
    conn *lent; /* of is_served; NULL: may open one */
} place;

/* One that was in use so short a time ago is lent again without a look at it. */
enum { FRESH_US = 10000 };

typedef struct idle_conn {
    conn *kept;
    int64_t since_us;
} idle_conn;

struct pool {
    pthread_mutex_t mutex;
    left_conns left;
    place *first, **last;
    size_t max, open_count, idle_count; /* open: lent or idle */
    idle_conn idle[];
};

pool *pool_new(size_t max) {
    pool *made = calloc(1, sizeof(*made) + max * sizeof(made->idle[0]));
    if (made == NULL) return NULL;
    pthread_mutex_init(&made->mutex, NULL);
    made->max = max;
    made->last = &made->first;
    return made;
}

void pool_free(pool *old) {
    if (old == NULL) return;
    while (old->idle_count > 0)
        conn_close(old->idle[--old->idle_count].kept);
    left_free(&old->left);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

static void leave_line(pool *from, place *leaving) {
    place **link = &from->first;
    while (*link != leaving)
        link = &(*link)->next;
    *link = leaving->next;
    if (leaving->next == NULL) from->last = link;
}

/* In line already. The pool is not locked. */
static dlock_status wait_in_line(pool *from, place *mine, int64_t deadline_us,
                                 const environment *env, const interrupt *stop) {
    for (;;) {
        if (!interrupt_is_requested(stop)) env->sleep_until(env, deadline_us, stop->fd);
        interrupt_drain(stop);
        bool is_late = env->now_us(env) >= deadline_us, is_canceled = interrupt_is_requested(stop);
        pthread_mutex_lock(&from->mutex);
        bool is_served = mine->is_served;
        if (!is_served && (is_late || is_canceled)) leave_line(from, mine);
        pthread_mutex_unlock(&from->mutex);
        if (is_served) return DLOCK_OK;
        if (is_canceled) return DLOCK_CANCELED;
        if (is_late) return DLOCK_UNREACHABLE;
    }
}

dlock_status pool_take(pool *from, bool is_urgent, conn **lent, int64_t deadline_us,
                       const environment *env, const interrupt *stop) {
    *lent = NULL;
    pthread_mutex_lock(&from->mutex);
    while (from->idle_count > 0) {
        idle_conn last = from->idle[--from->idle_count];
        pthread_mutex_unlock(&from->mutex);
        bool is_fresh = env->now_us(env) - last.since_us < FRESH_US;
        if (is_fresh || conn_is_quiet(last.kept)) {
            *lent = last.kept;
            return DLOCK_OK;
        }
        conn_close(last.kept);
        pthread_mutex_lock(&from->mutex);
        from->open_count--;
    }
    if (from->open_count < from->max || is_urgent) {
        from->open_count++;
        pthread_mutex_unlock(&from->mutex);
        return DLOCK_OK;
    }
    place mine = {.wake_fd = stop->fd};
    *from->last = &mine;
    from->last = &mine.next;
    pthread_mutex_unlock(&from->mutex);
    dlock_status status = wait_in_line(from, &mine, deadline_us, env, stop);
    *lent = mine.lent;
    return status;
}

void pool_give(pool *to, conn *returned, int64_t now_us) {
    pthread_mutex_lock(&to->mutex);
    place *next = to->first;
    bool is_surplus = to->open_count > to->max;
    if (is_surplus) {
        to->open_count--;
    } else if (next != NULL) {
        to->first = next->next;
        if (to->first == NULL) to->last = &to->first;
        next->lent = returned;
        next->is_served = true;
        interrupt_wake(next->wake_fd); /* locked: its place may go away after that */
    } else if (returned != NULL) {
        to->idle[to->idle_count++] = (idle_conn){returned, now_us};
    } else {
        to->open_count--;
    }
    pthread_mutex_unlock(&to->mutex);
    if (is_surplus) conn_close(returned);
}

/* -- answers that nobody waits for */

void pool_leave(pool *to, conn *left, uint64_t subject, int64_t until_us, int64_t now_us) {
    pthread_mutex_lock(&to->mutex);
    bool is_kept = left_add(&to->left, left, subject, until_us);
    pthread_mutex_unlock(&to->mutex);
    if (!is_kept) conn_close(left);
    pool_give(to, NULL, now_us);
}

bool pool_send(pool *by, const command *requests, int count) {
    pthread_mutex_lock(&by->mutex);
    bool is_sent = left_send(&by->left, requests, count);
    pthread_mutex_unlock(&by->mutex);
    return is_sent;
}

conn *pool_resume(pool *from, uint64_t subject, int64_t now_us, left_news *news) {
    conn *settled;
    pthread_mutex_lock(&from->mutex);
    *news = left_look(&from->left, now_us);
    conn *resumed = left_take(&from->left, subject);
    from->open_count += resumed != NULL;
    while ((settled = left_take_settled(&from->left)) != NULL) {
        from->open_count++;
        pthread_mutex_unlock(&from->mutex);
        pool_give(from, settled, now_us);
        pthread_mutex_lock(&from->mutex);
    }
    pthread_mutex_unlock(&from->mutex);
    return resumed;
}
