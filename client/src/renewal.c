/* SPDX-License-Identifier: BSD-3-Clause */
/* renewal.c - see renewal.h.
 *
 *   wait     until the first lock is due, or a session's connection has ended
 *   collect  all that are due now or very soon: a wave
 *   ask      their extensions go out together (batch.c), the sessions one by one
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
#include <sys/eventfd.h>
#include <unistd.h>

/* What is due within this part of its time between two renewals joins a wave; and after that it is
 * due together with the others. */
enum { JOIN_PARTS = 2, WAVE_MAX = 16384 };
enum { PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 500 };

/* Of a session in a wave: there was no time for it. */
static const dlock_status NOT_TRIED = DLOCK_TIMEOUT;

struct renewed {
    heap_node node; /* must be the first */
    claim asked;
    hold *of; /* NULL: it has ended */
    renewal_lost_fn on_lost;
    void *arg;
    claim_link link;
    bool has_session;
    bool is_under_way, is_moving; /* the second: its link is being made */
    bool is_paused;
    uint32_t longer_ms; /* what is under way makes it longer by this; 0: it does not */
    int64_t pause_ms;   /* before another attempt; 0: the last one was answered */
    char name[];
};

struct renewal {
    backend *by;
    const environment *env;
    uint32_t patience_ms; /* to connect and to be answered */
    pthread_mutex_t mutex;
    pthread_cond_t has_settled;
    heap due;
    size_t prepared;
    atomic_uint_least64_t count;
    atomic_bool is_stopping;
    bool is_started;
    pthread_t thread;
    int wake_fd, listen_fd; /* the second: the first one, and the sessions' */
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
    return (interrupt){.fd = in->wake_fd, .is_requested = &in->is_stopping};
}

/* -- when */

/* Locked. When it is to be looked at next. */
static void schedule(renewal *in, renewed *which, int64_t due_us) {
    if (which->is_paused || due_us == DEADLINE_NEVER) return;
    heap_node *first = heap_first(&in->due);
    bool is_first = first == NULL || due_us < first->due_us;
    heap_add(&in->due, &which->node, due_us);
    if (is_first && !pthread_equal(in->thread, pthread_self())) interrupt_wake(in->wake_fd);
}

/* Locked. A session without a connection is due at once. */
static void schedule_next(renewal *in, renewed *which) {
    bool is_cut_off = which->has_session && which->link.conn == NULL;
    schedule(in, which, is_cut_off ? now_of(in) : hold_renew_at_us(which->of));
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
        heap_remove(&in->due, &which->node);
        schedule_next(in, which);
    }
}

/* The same token again moves the lock to a new connection, if it is still ours: with the same
 * fence. Else somebody may have had it in between. Replicas are not asked: a grant that too few of
 * them have is given back, and this one is old. */
static dlock_status move_session(renewal *in, renewed *which, int64_t limit_us) {
    claim *asked = &which->asked;
    uint64_t fence = asked->call.fence;
    uint32_t min_replicas = asked->min_replicas;
    if (now_of(in) >= limit_us) return NOT_TRIED;
    asked->link = &which->link;
    asked->min_replicas = 0;
    dlock_status status = in->by->table->acquire(in->by, asked, 0, limit_us);
    asked->min_replicas = min_replicas;
    asked->link = NULL;
    bool is_another = status == DLOCK_OK && asked->call.fence != fence;
    asked->call.fence = fence;
    if (status != DLOCK_BUSY && !is_another) return status;
    in->by->table->hang_up(&which->link); /* and what it got ends with it */
    text_copy(asked->call.cause, sizeof(asked->call.cause), "the session has ended");
    return DLOCK_LOST;
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

/* Locked. The first one that is due, or may join a wave that has begun; or NULL. */
static renewed *take_due(renewal *in, int64_t now_us, bool has_begun) {
    for (;;) {
        renewed *first = (renewed *)heap_first(&in->due);
        if (first == NULL) return NULL;
        int64_t every_us = (int64_t)first->of->rule.renew_every_ms * 1000;
        bool is_joining = has_begun && first->pause_ms == 0;
        if (first->node.due_us > now_us + (is_joining ? every_us / JOIN_PARTS : 0)) return NULL;
        heap_remove(&in->due, &first->node);
        bool is_gone = now_us >= hold_gone_at_us(first->of), is_renewed = every_us > 0;
        if (is_gone) continue; /* nothing to come */
        first->is_moving = first->has_session && first->link.conn == NULL;
        bool is_longer = is_renewed && !(first->is_moving && first->asked.min_replicas > 0);
        first->longer_ms = is_longer ? hold_renew_for_ms(first->of, now_us) : 0;
        if (first->is_moving || first->longer_ms > 0) return first;
    }
}

/* Locked. The result is how many; the sessions that are cut off are the last of them. */
static size_t collect(renewal *in, size_t *cut_off) {
    int64_t now_us = now_of(in);
    size_t count = 0, moved = 0;
    while (count < WAVE_MAX && make_room(in, count + 1)) {
        renewed *due = take_due(in, now_us, count > 0);
        if (due == NULL) break;
        due->is_under_way = true;
        in->wave[count++] = due;
    }
    for (size_t i = 0; i + moved < count;) {
        renewed *each = in->wave[i];
        /* The same token again makes it not shorter than asked, so that is as little as can be. */
        each->asked.call.lease_ms = each->longer_ms > 0 ? each->longer_ms : 1;
        if (!each->is_moving) {
            i++;
            continue;
        }
        in->wave[i] = in->wave[count - ++moved];
        in->wave[count - moved] = each;
    }
    *cut_off = moved;
    return count;
}

static void ask(renewal *in, size_t count, size_t cut_off) {
    size_t extended = count - cut_off;
    for (size_t i = 0; i < count; i++)
        in->claims[i] = &in->wave[i]->asked;
    interrupt stop = stop_of(in);
    int64_t limit_us = deadline_after_ms(now_of(in), in->patience_ms);
    if (extended > 0)
        in->by->table->extend_all(in->by, in->claims, in->outcomes, extended, &stop, limit_us);
    /* All together have the time of one: a server that is silent must not hold up what is to be
     * renewed elsewhere. The first one that is due is the last of them. */
    limit_us = deadline_after_ms(now_of(in), in->patience_ms);
    for (size_t i = count; i-- > extended;)
        in->outcomes[i] = move_session(in, in->wave[i], limit_us);
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
    int64_t now_us = now_of(in);
    if (outcome == DLOCK_OK) {
        bool is_longer = which->longer_ms > 0 &&
                         hold_extend(which->of, call->asked_us, which->longer_ms, now_us);
        if (is_longer) atomic_fetch_add(&in->count, 1);
        if (was_moving) listen_to(in, which);
        which->pause_ms = 0;
        schedule_next(in, which);
        return;
    }
    if (outcome == NOT_TRIED) { /* before those that were, so that each gets its turn */
        schedule(in, which, which->node.due_us);
        return;
    }
    if (outcome == DLOCK_LOST) {
        hold_lose(which->of, DLOCK_LOST);
        which->on_lost(which->arg);
        return;
    }
    /* The same token again makes no lease shorter, an extension may. */
    if (outcome == DLOCK_IN_DOUBT && !was_moving) hold_note_doubt(which->of, call->lease_ms);
    atomic_store(&which->of->why, (int)outcome);
    which->pause_ms = which->pause_ms == 0 ? PAUSE_FIRST_MS : which->pause_ms * 2;
    if (which->pause_ms > PAUSE_MAX_MS) which->pause_ms = PAUSE_MAX_MS;
    schedule(in, which, deadline_after_ms(now_us, which->pause_ms));
}

static void *work(void *data) {
    renewal *in = data;
    interrupt stop = stop_of(in);
    pthread_mutex_lock(&in->mutex);
    while (!atomic_load(&in->is_stopping)) {
        size_t cut_off;
        notice_ended_sessions(in);
        size_t count = collect(in, &cut_off);
        heap_node *first = heap_first(&in->due);
        int64_t due_us = first == NULL ? DEADLINE_NEVER : first->due_us;
        pthread_mutex_unlock(&in->mutex);
        if (count > 0)
            ask(in, count, cut_off);
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
    made->wake_fd = made->listen_fd = -1;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->has_settled, NULL);
    return made;
}

void renewal_free(renewal *old) {
    if (old == NULL) return;
    atomic_store(&old->is_stopping, true);
    if (old->is_started) {
        interrupt_wake(old->wake_fd);
        pthread_join(old->thread, NULL);
    }
    if (old->wake_fd >= 0) close(old->wake_fd);
    if (old->listen_fd >= 0) close(old->listen_fd);
    heap_free(&old->due);
    free(old->wave);
    free(old->claims);
    free(old->outcomes);
    pthread_cond_destroy(&old->has_settled);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

/* Locked. */
static bool start(renewal *in) {
    if (in->is_started) return true;
    if (in->wake_fd < 0) in->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (in->listen_fd < 0) in->listen_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (in->wake_fd < 0 || in->listen_fd < 0) return false;
    epoll_ctl(in->listen_fd, EPOLL_CTL_ADD, in->wake_fd, &event);
    in->is_started = thread_start(&in->thread, work, in);
    return in->is_started;
}

renewed *renewal_prepare(renewal *in, const char *name) {
    renewed *made = calloc(1, sizeof(*made) + strlen(name) + 1);
    if (made == NULL) return NULL;
    memcpy(made->name, name, strlen(name) + 1);
    pthread_mutex_lock(&in->mutex);
    bool is_possible = start(in) && heap_reserve(&in->due, in->prepared + 1);
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
                   renewal_lost_fn on_lost, void *arg) {
    prepared->asked = *held;
    prepared->asked.call.name = prepared->name;
    prepared->asked.call.attempts = 0;
    prepared->asked.call.deadline_us = 0; /* asks once, and does not wait */
    prepared->asked.stop = stop_of(in);
    prepared->asked.link = NULL;
    prepared->on_lost = on_lost;
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

void renewal_end(renewal *in, renewed *old, claim_link *link) {
    pthread_mutex_lock(&in->mutex);
    in->prepared--;
    heap_remove(&in->due, &old->node);
    if (!old->is_moving) {
        stop_listening_to(in, old);
        *link = old->link;
        old->link = (claim_link){0};
    }
    old->of = NULL;
    bool is_under_way = old->is_under_way; /* then the thread frees it */
    pthread_mutex_unlock(&in->mutex);
    if (!is_under_way) free(old);
}

void renewal_pause(renewal *in, renewed *which) {
    pthread_mutex_lock(&in->mutex);
    which->is_paused = true;
    heap_remove(&in->due, &which->node);
    while (which->is_under_way)
        pthread_cond_wait(&in->has_settled, &in->mutex);
    pthread_mutex_unlock(&in->mutex);
}

void renewal_resume(renewal *in, renewed *which) {
    pthread_mutex_lock(&in->mutex);
    which->is_paused = false;
    which->pause_ms = 0;
    schedule_next(in, which);
    pthread_mutex_unlock(&in->mutex);
}

uint64_t renewal_count(const renewal *of) {
    return atomic_load(&of->count);
}
