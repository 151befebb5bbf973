/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal.c - see renewal.h.
 *
 *   wait     until the first lock is due, or a session's connection has ended
 *   collect  all that are due now or soon: a wave; or one session whose connection has ended
 *   ask      the extensions go out together (batch.c)
 *   settle   extended: due again later. Not ours any more: lost. No answer, or one that may pass:
 *            due again after a pause, as long as the lock is not gone
 *
 * Invariants: a lock is in the heap, or under way, or has nothing to come. hold, handle and link
 * are touched with the mutex held, and not after the end. What has ended while it was under way is
 * freed by the thread. */
#include "renewal.h"

#include "deadline.h"
#include "heap.h"
#include "text.h"
#include "thread.h"
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* What is due within this part of its time between two renewals joins a wave; and after that it is
 * due together with the others. */
enum { JOIN_PARTS = 2, WAVE_MAX = 16384 };
enum { PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 500, BREATH_US = 1000 };

struct renewed {
    heap_node node; /* must be the first */
    claim asked;
    hold *of; /* NULL: it has ended */
    renewal_sooner_fn on_sooner;
    void *arg;
    claim_link link;
    bool has_session, is_cut_off; /* the second: it is in that heap */
    bool is_under_way, is_moving; /* the second: its link is being made */
    bool is_paused;
    uint32_t longer_ms; /* what is under way makes it longer by this; 0: it does not */
    int64_t pause_ms;   /* before another attempt; 0: the last one was answered */
    char name[];
};

struct renewal {
    backend *by;
    const environment *env;
    uint32_t patience_ms, io_timeout_ms; /* the first: to connect and to be answered */
    pthread_mutex_t mutex;
    pthread_cond_t has_settled;
    heap due, cut_off; /* the second: sessions without a connection */
    size_t prepared;
    atomic_uint_least64_t count;
    atomic_bool is_stopping;
    worker worker;
    int listen_fd; /* to what wakes the worker, and to the sessions */
    /* Of the thread. */
    renewed **wave;
    claim **claims;
    dlock_status *outcomes;
    size_t wave_capacity;
};

static int64_t now_of(const renewal *in) {
    return in->env->now_us(in->env);
}

static interrupt stop_of(renewal *in) {
    return (interrupt){.fd = in->worker.wake_fd, .is_requested = &in->is_stopping};
}

/* -- when */

/* Locked. When it is to be looked at next. */
static void schedule(renewal *in, renewed *which, int64_t due_us) {
    if (which->is_paused || due_us == DEADLINE_NEVER) return;
    which->is_cut_off = which->has_session && which->link.conn == NULL;
    heap *to = which->is_cut_off ? &in->cut_off : &in->due;
    const heap_node *first = heap_first(to);
    bool is_first = first == NULL || due_us < first->due_us;
    heap_add(to, &which->node, due_us);
    if (is_first && !worker_is_self(&in->worker)) interrupt_wake(in->worker.wake_fd);
}

/* Locked. */
static void unschedule(renewal *in, renewed *which) {
    heap_remove(which->is_cut_off ? &in->cut_off : &in->due, &which->node);
}

/* Locked. A session without a connection is due at once. */
static void schedule_next(renewal *in, renewed *which) {
    bool is_cut_off = which->has_session && which->link.conn == NULL;
    int64_t now_us = now_of(in), renew_us = hold_renew_at_us(which->of);
    if (renew_us < now_us + BREATH_US) renew_us = now_us + BREATH_US; /* whatever an answer said */
    schedule(in, which, is_cut_off ? now_us : renew_us);
}

/* -- sessions */

static void listen_to(renewal *in, renewed *which) {
    int fd = which->link.conn == NULL ? -1 : in->by->table->link_fd(&which->link);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = which};
    if (fd >= 0) epoll_ctl(in->listen_fd, EPOLL_CTL_ADD, fd, &event);
}

static void stop_listening_to(renewal *in, renewed *which) {
    int fd = which->link.conn == NULL ? -1 : in->by->table->link_fd(&which->link);
    if (fd >= 0) epoll_ctl(in->listen_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* Locked. The server may have given it to another by now. */
static void question_if_cut_off(renewed *which) {
    if (!which->has_session || which->link.conn != NULL) return;
    hold_question(which->of, true);
    which->on_sooner(which->arg);
}

/* Locked. Nothing is to be read from a session's connection: what is readable has ended. */
static void notice_ended_sessions(renewal *in) {
    struct epoll_event events[64];
    int count = epoll_wait(in->listen_fd, events, 64, 0);
    for (int i = 0; i < count; i++) {
        renewed *which = events[i].data.ptr;
        if (which == NULL) continue; /* the wake_fd */
        stop_listening_to(in, which);
        in->by->table->hang_up(&which->link);
        if (which->is_under_way) continue; /* it is looked at when that is settled */
        question_if_cut_off(which);
        unschedule(in, which);
        schedule_next(in, which);
    }
}

/* The same token again moves the lock to a new connection, if it is still ours: with the same
 * fence. Else somebody may have had it in between. What is sent and not answered ends it too: the
 * server may hang the lock on a connection that we give up. */
static dlock_status move_session(renewal *in, renewed *which) {
    claim asked = which->asked;
    asked.call.lease_ms = 1; /* it is not made shorter by that */
    asked.link = &which->link;
    asked.min_replicas = 0;       /* a shortfall would be undone */
    asked.is_token_chosen = true; /* and so would be what is not answered */
    int64_t limit_us = deadline_after_ms(now_of(in), in->patience_ms);
    dlock_status status = in->by->table->acquire(in->by, &asked, 0, limit_us);
    bool is_same = status == DLOCK_OK && asked.call.fence == which->asked.call.fence;
    if (is_same) return DLOCK_OK;
    in->by->table->hang_up(&which->link); /* and what it got ends with it */
    bool is_harmless = status == DLOCK_UNREACHABLE || status == DLOCK_NO_MEMORY ||
                       (status == DLOCK_REFUSED && asked.is_passing);
    return is_harmless ? status : DLOCK_LOST;
}

/* -- a wave */

/* Locked. False: no memory for more. */
static bool make_room(renewal *in, size_t count) {
    if (count <= in->wave_capacity) return true;
    size_t capacity = count * 2;
    renewed **wave = realloc(in->wave, capacity * sizeof(wave[0]));
    if (wave != NULL) in->wave = wave;
    claim **claims = realloc(in->claims, capacity * sizeof(claims[0]));
    if (claims != NULL) in->claims = claims;
    dlock_status *outcomes = realloc(in->outcomes, capacity * sizeof(outcomes[0]));
    if (outcomes != NULL) in->outcomes = outcomes;
    if (wave == NULL || claims == NULL || outcomes == NULL) return false;
    in->wave_capacity = capacity;
    return true;
}

/* Locked. The first one that is due, or may join a wave that has begun; or NULL. A wave has only
 * such that need replicas, or only such that do not: the others are not to wait for these. */
static renewed *take_due(renewal *in, int64_t now_us, const renewed *with) {
    for (;;) {
        renewed *first = (renewed *)heap_first(&in->due);
        if (first == NULL) return NULL;
        bool is_due = first->node.due_us <= now_us;
        int64_t every_us = (int64_t)first->of->rule.renew_every_ms * 1000;
        bool is_joining = with != NULL && first->pause_ms == 0;
        if (first->node.due_us > now_us + (is_joining ? every_us / JOIN_PARTS : 0)) return NULL;
        if (with != NULL && (first->asked.min_replicas > 0) != (with->asked.min_replicas > 0))
            return NULL;
        first->longer_ms = hold_renew_for_ms(first->of, now_us);
        if (first->longer_ms == 0 && !is_due) return NULL;
        heap_remove(&in->due, &first->node);
        bool is_gone = now_us >= hold_gone_at_us(first->of);
        first->asked.call.lease_ms = first->longer_ms;
        if (!is_gone && first->longer_ms > 0) return first; /* else there is nothing to come */
    }
}

/* Locked. A session to be moved; or NULL. */
static renewed *take_cut_off(renewal *in, int64_t now_us) {
    for (;;) {
        renewed *first = (renewed *)heap_first(&in->cut_off);
        if (first == NULL || first->node.due_us > now_us) return NULL;
        heap_remove(&in->cut_off, &first->node);
        if (now_us >= hold_gone_at_us(first->of)) continue; /* nothing to come */
        first->is_moving = true;
        return first;
    }
}

/* Locked. What is due; if nothing is, one session is moved: that may take longer. */
static size_t collect(renewal *in) {
    int64_t now_us = now_of(in);
    size_t count = 0;
    while (count < WAVE_MAX && make_room(in, count + 1)) {
        renewed *due = take_due(in, now_us, count > 0 ? in->wave[0] : NULL);
        if (due == NULL && count == 0) due = take_cut_off(in, now_us);
        if (due == NULL) break;
        due->is_under_way = true;
        in->claims[count] = &due->asked;
        in->wave[count++] = due;
        if (due->is_moving) break;
    }
    return count;
}

/* Locked. */
static int64_t next_due_us(const renewal *in) {
    const heap_node *due = heap_first(&in->due), *cut_off = heap_first(&in->cut_off);
    return deadline_earlier(due == NULL ? DEADLINE_NEVER : due->due_us,
                            cut_off == NULL ? DEADLINE_NEVER : cut_off->due_us);
}

static void ask(renewal *in, size_t count) {
    interrupt stop = stop_of(in);
    int64_t limit_us = deadline_after_ms(now_of(in), in->patience_ms);
    if (in->wave[0]->is_moving)
        in->outcomes[0] = move_session(in, in->wave[0]);
    else
        in->by->table->extend_all(in->by, in->claims, in->outcomes, count, &stop, limit_us);
}

/* Locked. */
static void settle(renewal *in, renewed *which, dlock_status outcome) {
    bool was_moving = which->is_moving;
    which->is_under_way = which->is_moving = false;
    if (which->of == NULL) { /* it has ended meanwhile; what the session got ends here */
        if (which->link.conn != NULL) in->by->table->hang_up(&which->link);
        free(which);
        return;
    }
    const dlock_call *call = &which->asked.call;
    int64_t now_us = now_of(in), before_us = hold_gone_at_us(which->of);
    if (outcome == DLOCK_OK && was_moving) {
        hold_question(which->of, false);
        listen_to(in, which);
    }
    if (outcome == DLOCK_OK) {
        bool is_longer =
            !was_moving && hold_extend(which->of, call->asked_us, which->longer_ms, now_us);
        if (is_longer) atomic_fetch_add(&in->count, 1);
        if (hold_gone_at_us(which->of) < before_us) which->on_sooner(which->arg);
        which->pause_ms = 0;
        question_if_cut_off(which);
        schedule_next(in, which);
        return;
    }
    if (outcome == DLOCK_LOST) {
        hold_lose(which->of, DLOCK_LOST);
        which->on_sooner(which->arg);
        return;
    }
    bool is_doubtful = outcome == DLOCK_IN_DOUBT || outcome == DLOCK_NO_REPLICAS;
    if (is_doubtful && !was_moving) hold_note_doubt(which->of, call->lease_ms);
    atomic_store(&which->of->why, (int)outcome);
    question_if_cut_off(which);
    which->pause_ms = which->pause_ms == 0 ? PAUSE_FIRST_MS : which->pause_ms * 2;
    if (which->pause_ms > PAUSE_MAX_MS) which->pause_ms = PAUSE_MAX_MS;
    schedule(in, which, deadline_after_ms(now_us, which->pause_ms));
}

static void *work(void *data) {
    renewal *in = data;
    interrupt stop = stop_of(in);
    pthread_mutex_lock(&in->mutex);
    while (!atomic_load(&in->is_stopping)) {
        notice_ended_sessions(in);
        size_t count = collect(in);
        int64_t due_us = next_due_us(in), now_us = now_of(in);
        if (due_us <= now_us) due_us = now_us + BREATH_US; /* there is no memory for it */
        pthread_mutex_unlock(&in->mutex);
        if (count > 0)
            ask(in, count);
        else
            in->env->sleep_until(in->env, due_us, in->listen_fd);
        interrupt_drain(&stop);
        pthread_mutex_lock(&in->mutex);
        for (size_t i = 0; i < count; i++)
            settle(in, in->wave[i], in->outcomes[i]);
        if (count > 0) pthread_cond_broadcast(&in->has_settled);
    }
    pthread_mutex_unlock(&in->mutex);
    return NULL;
}

/* -- public */

renewal *renewal_new(backend *by, uint32_t connect_timeout_ms, uint32_t io_timeout_ms,
                     const environment *env) {
    renewal *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->by = by;
    made->env = env;
    made->patience_ms = connect_timeout_ms + io_timeout_ms;
    made->io_timeout_ms = io_timeout_ms;
    made->worker.wake_fd = made->listen_fd = -1;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->has_settled, NULL);
    return made;
}

void renewal_free(renewal *old) {
    if (old == NULL) return;
    atomic_store(&old->is_stopping, true);
    worker_join(&old->worker);
    if (old->listen_fd >= 0) close(old->listen_fd);
    heap_free(&old->due);
    heap_free(&old->cut_off);
    free(old->wave);
    free(old->claims);
    free(old->outcomes);
    pthread_cond_destroy(&old->has_settled);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

/* Locked, and so the worker listens to nothing before all of it is done. */
static bool start(renewal *in) {
    if (in->worker.is_started) return true;
    if (in->listen_fd < 0) in->listen_fd = epoll_create1(EPOLL_CLOEXEC);
    if (in->listen_fd < 0 || !worker_start(&in->worker, work, in)) return false;
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(in->listen_fd, EPOLL_CTL_ADD, in->worker.wake_fd, &event);
    return true;
}

renewed *renewal_prepare(renewal *in, const char *name) {
    renewed *made = calloc(1, sizeof(*made) + strlen(name) + 1);
    if (made == NULL) return NULL;
    memcpy(made->name, name, strlen(name) + 1);
    pthread_mutex_lock(&in->mutex);
    bool is_possible = start(in) && heap_reserve(&in->due, in->prepared + 1) &&
                       heap_reserve(&in->cut_off, in->prepared + 1);
    if (is_possible) in->prepared++;
    pthread_mutex_unlock(&in->mutex);
    if (is_possible) return made;
    free(made);
    return NULL;
}

void renewal_drop(renewal *in, renewed *unused) {
    pthread_mutex_lock(&in->mutex);
    in->prepared--;
    pthread_mutex_unlock(&in->mutex);
    free(unused);
}

void renewal_begin(renewal *in, renewed *prepared, hold *of, const claim *held,
                   renewal_sooner_fn on_sooner, void *arg) {
    prepared->asked = *held;
    prepared->asked.call.name = prepared->name;
    prepared->asked.call.attempts = 0;
    prepared->asked.call.deadline_us = 0; /* asks once, and does not wait */
    prepared->asked.stop = stop_of(in);
    prepared->asked.link = NULL;
    prepared->asked.on_sent = NULL;
    /* Others are not to be held up. */
    if (prepared->asked.replica_timeout_ms > in->io_timeout_ms)
        prepared->asked.replica_timeout_ms = in->io_timeout_ms;
    prepared->on_sooner = on_sooner;
    prepared->arg = arg;
    pthread_mutex_lock(&in->mutex);
    prepared->of = of;
    if (held->link != NULL) {
        prepared->has_session = true;
        prepared->link = *held->link;
        *held->link = (claim_link){0};
        listen_to(in, prepared);
    }
    schedule_next(in, prepared);
    pthread_mutex_unlock(&in->mutex);
}

bool renewal_end(renewal *in, renewed *old, claim_link *link) {
    pthread_mutex_lock(&in->mutex);
    in->prepared--;
    unschedule(in, old);
    if (!old->is_moving) {
        stop_listening_to(in, old);
        *link = old->link;
        old->link = (claim_link){0};
    }
    old->of = NULL;
    bool is_under_way = old->is_under_way; /* then the thread frees it */
    pthread_mutex_unlock(&in->mutex);
    if (!is_under_way) free(old);
    return !is_under_way;
}

void renewal_pause(renewal *in, renewed *which) {
    pthread_mutex_lock(&in->mutex);
    which->is_paused = true;
    unschedule(in, which);
    while (which->is_under_way)
        pthread_cond_wait(&in->has_settled, &in->mutex);
    pthread_mutex_unlock(&in->mutex);
}

void renewal_resume(renewal *in, renewed *which) {
    pthread_mutex_lock(&in->mutex);
    which->is_paused = false;
    which->pause_ms = 0;
    question_if_cut_off(which);
    schedule_next(in, which);
    pthread_mutex_unlock(&in->mutex);
}

uint64_t renewal_count(const renewal *of) {
    return atomic_load(&of->count);
}
