/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - see watch.h.
 *
 * A lock that was extended meanwhile is noticed when its old time has come: then it is put back
 * with its new time. So extending costs nothing here.
 *
 * Invariant: told is what the function is being told about just now, without the mutex; who removes
 * that waits until it is over. */
#include "watch.h"

#include "deadline.h"
#include "interrupt.h"
#include "thread.h"
#include <stdlib.h>

enum { SUSPECT_PAUSE_US = 20000 };

struct watch {
    dlock_event_fn tell;
    void *arg;
    const environment *env;
    pthread_mutex_t mutex;
    pthread_cond_t was_told;
    heap all;
    size_t reserved;
    const watched *told; /* NULL: nobody */
    bool is_stopping;
    worker worker;
};

watch *watch_new(dlock_event_fn tell, void *arg, const environment *env) {
    watch *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->tell = tell;
    made->arg = arg;
    made->env = env;
    made->worker.wake_fd = -1;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->was_told, NULL);
    return made;
}

/* When there may be something to tell next. Of one that is suspect, whether it still is. */
static int64_t next_us(const watched *of, int64_t now_us) {
    int64_t gone_us = hold_gone_at_us(of->of);
    return of->is_suspect ? deadline_earlier(gone_us, now_us + SUSPECT_PAUSE_US)
                          : deadline_earlier(gone_us, hold_suspect_at_us(of->of));
}

/* Locked, and again when it returns. It may be gone from the heap by then. */
static void tell(watch *of, watched *about, dlock_event event) {
    of->told = about;
    pthread_mutex_unlock(&of->mutex);
    dlock_status why = (dlock_status)atomic_load(&about->of->why);
    bool is_only_late = event == DLOCK_EVENT_LOST && why == DLOCK_OK;
    of->tell(of->arg, event, about->name, is_only_late ? DLOCK_LOST : why);
    pthread_mutex_lock(&of->mutex);
    of->told = NULL;
    pthread_cond_broadcast(&of->was_told);
}

/* Its time has come. Locked. */
static void look_at(watch *of, watched *due) {
    int64_t now_us = of->env->now_us(of->env);
    heap_remove(&of->all, &due->node);
    if (hold_state(due->of, now_us) == DLOCK_FREE) return;
    if (hold_expire(due->of, now_us)) {
        tell(of, due, DLOCK_EVENT_LOST);
        return;
    }
    int64_t suspect_us = hold_suspect_at_us(due->of);
    bool is_overdue = now_us >= suspect_us;
    bool is_news = is_overdue && !due->is_suspect;
    due->is_suspect = is_overdue;
    heap_add(&of->all, &due->node, next_us(due, now_us));
    if (is_news) tell(of, due, DLOCK_EVENT_SUSPECT);
}

static void *work(void *data) {
    watch *of = data;
    pthread_mutex_lock(&of->mutex);
    while (!of->is_stopping) {
        heap_node *first = heap_first(&of->all);
        int64_t due_us = first == NULL ? DEADLINE_NEVER : first->due_us;
        if (due_us <= of->env->now_us(of->env)) {
            look_at(of, (watched *)first);
            continue;
        }
        pthread_mutex_unlock(&of->mutex);
        of->env->sleep_until(of->env, due_us, of->worker.wake_fd);
        interrupt_drain(&(interrupt){.fd = of->worker.wake_fd});
        pthread_mutex_lock(&of->mutex);
    }
    pthread_mutex_unlock(&of->mutex);
    return NULL;
}

void watch_free(watch *old) {
    if (old == NULL) return;
    pthread_mutex_lock(&old->mutex);
    old->is_stopping = true;
    pthread_mutex_unlock(&old->mutex);
    worker_join(&old->worker);
    heap_free(&old->all);
    pthread_cond_destroy(&old->was_told);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

dlock_status watch_reserve(watch *in) {
    pthread_mutex_lock(&in->mutex);
    bool is_possible =
        worker_start(&in->worker, work, in) && heap_reserve(&in->all, in->reserved + 1);
    if (is_possible) in->reserved++;
    pthread_mutex_unlock(&in->mutex);
    return is_possible ? DLOCK_OK : DLOCK_NO_MEMORY;
}

void watch_unreserve(watch *in) {
    pthread_mutex_lock(&in->mutex);
    in->reserved--;
    pthread_mutex_unlock(&in->mutex);
}

/* Locked. The thread is woken only if it would sleep for too long. */
static void put(watch *in, watched *which) {
    int64_t due_us = next_us(which, in->env->now_us(in->env));
    heap_node *first = heap_first(&in->all);
    bool is_first = first == NULL || due_us < first->due_us;
    heap_add(&in->all, &which->node, due_us);
    if (is_first) interrupt_wake(in->worker.wake_fd);
}

void watch_add(watch *to, watched *added) {
    pthread_mutex_lock(&to->mutex);
    added->is_suspect = false;
    put(to, added);
    pthread_mutex_unlock(&to->mutex);
}

void watch_remove(watch *from, watched *removed) {
    pthread_mutex_lock(&from->mutex);
    bool is_self = worker_is_self(&from->worker); /* the function itself */
    while (from->told == removed && !is_self)
        pthread_cond_wait(&from->was_told, &from->mutex);
    heap_remove(&from->all, &removed->node);
    pthread_mutex_unlock(&from->mutex);
}

void watch_look(watch *of, watched *again) {
    pthread_mutex_lock(&of->mutex);
    if (again->node.place != 0) {
        heap_remove(&of->all, &again->node);
        put(of, again);
    }
    pthread_mutex_unlock(&of->mutex);
}
