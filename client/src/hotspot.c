/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot.c - see hotspot.h.
 *
 *   acquire   take the local lock of the name, waiting in line; then go out, unless the lock was
 *             handed on to us with enough of its lease. If the service refuses, the local lock is
 *             given back at once
 *   release   hand the lock on to the next in line, or release it outside first, then inside. If
 *             the service has a queue, "first" means told, not answered: the next one's request
 *             may overtake the release, and waits for it there
 *
 * A name has a spot while it is registered, or was contended lately. A spot is pinned by everyone
 * who holds or awaits its lock; one that is removed meanwhile lives on until the last of them is
 * through, and only new calls pass it by.
 *
 * Invariants: users counts the holder and those in line. Nobody is in line unless it is held. All
 * under one mutex, which is held for a few instructions at a time. */
#include "hotspot.h"

#include "deadline.h"
#include "spots.h"
#include "text.h"
#include "validity.h"
#include <pthread.h>
#include <stdlib.h>

#define HELD_HERE "another thread here holds it, or asks for it"

/* An acquire that took longer than this had to wait for somebody. */
enum { LONG_US = 5000 };

typedef struct place {
    struct place *next;
    interrupt wake;
    unsigned heard; /* of the bell, when it was looked at last */
    atomic_bool is_served;
} place;

struct hotspot {
    hotspot_rule rule;
    const environment *env;
    pthread_mutex_t mutex;
    spots names;
    atomic_uint_least64_t hand_on_count, waiting;
};

/* The service had others to serve: the next one for this name queues up here first. */
static void note_contention(hotspot *in, const char *name) {
    pthread_mutex_lock(&in->mutex);
    spots_note(&in->names, name);
    pthread_mutex_unlock(&in->mutex);
}

/* -- the local lock */

static void leave_line(spot *from, place *leaving) {
    place **link = &from->first;
    while (*link != leaving)
        link = &(*link)->next;
    *link = leaving->next;
    if (leaving->next == NULL) from->last = link;
    from->length--;
    from->users--;
}

static void sleep_in_line(const hotspot *in, const place *mine, const claim *call) {
    if (call->stop.bell != NULL) {
        in->env->listen_until(in->env, call->call.deadline_us, call->stop.bell, mine->heard);
        return;
    }
    in->env->sleep_until(in->env, call->call.deadline_us, call->stop.fd);
    interrupt_drain(&call->stop);
}

/* Locked. Whoever serves it after that raises the bell above what is heard now. */
static void note_bell(place *mine) {
    if (mine->wake.bell != NULL) mine->heard = atomic_load(mine->wake.bell);
}

static dlock_status wait_in_line(hotspot *in, spot *of, place *mine, claim *call) {
    for (;;) {
        if (!interrupt_is_requested(&call->stop)) sleep_in_line(in, mine, call);
        if (atomic_load(&mine->is_served)) return DLOCK_OK;
        bool is_late = in->env->now_us(in->env) >= call->call.deadline_us;
        bool is_canceled = interrupt_is_requested(&call->stop);
        pthread_mutex_lock(&in->mutex);
        bool is_served = atomic_load(&mine->is_served);
        note_bell(mine);
        if (!is_served && (is_late || is_canceled)) {
            leave_line(of, mine);
            spots_let_go(of);
        }
        pthread_mutex_unlock(&in->mutex);
        if (is_served) return DLOCK_OK;
        if (is_canceled) return DLOCK_CANCELED;
        if (is_late) return DLOCK_TIMEOUT;
    }
}

static dlock_status refuse(dlock_call *call, dlock_status status, const char *cause) {
    text_copy(call->cause, sizeof(call->cause), cause);
    return status;
}

/* DLOCK_OK: *taken is held by us, or NULL: the name has no local lock. */
static dlock_status enter(hotspot *in, claim *call, spot **taken) {
    pthread_mutex_lock(&in->mutex);
    spot *of = *taken = spots_find(&in->names, call->call.name);
    if (of == NULL || !of->is_held) {
        if (of != NULL) {
            of->is_held = true;
            of->users++;
            spots_touch(&in->names, of);
        }
        pthread_mutex_unlock(&in->mutex);
        return DLOCK_OK;
    }
    bool is_only_try = call->call.deadline_us <= call->call.started_us;
    if (is_only_try || of->length >= in->rule.queue_max) {
        pthread_mutex_unlock(&in->mutex);
        return is_only_try ? refuse(&call->call, DLOCK_BUSY, HELD_HERE)
                           : refuse(&call->call, DLOCK_QUEUE_FULL,
                                    "too many threads here wait for it (hotspot_queue_max)");
    }
    place mine = {.wake = call->stop};
    note_bell(&mine);
    *of->last = &mine;
    of->last = &mine.next;
    of->length++;
    of->users++;
    pthread_mutex_unlock(&in->mutex);
    atomic_fetch_add(&in->waiting, 1);
    dlock_status status = wait_in_line(in, of, &mine, call);
    atomic_fetch_sub(&in->waiting, 1);
    return status == DLOCK_OK
               ? status
               : refuse(&call->call, status, status == DLOCK_CANCELED ? "canceled" : HELD_HERE);
}

/* The next in line has it, or it is free. Locked. */
static void pass_on(spot *of) {
    place *next = of->first;
    of->users--;
    if (next == NULL) {
        of->is_held = false;
        spots_let_go(of);
        return;
    }
    of->first = next->next;
    if (of->first == NULL) of->last = &of->first;
    of->length--;
    interrupt wake = next->wake;
    if (wake.bell != NULL) interrupt_raise_bell(wake.bell);
    atomic_store(&next->is_served, true); /* its place may go away after that */
    if (wake.bell != NULL)
        interrupt_ring_bell(wake.bell);
    else
        interrupt_wake(wake.fd);
}

static void leave(hotspot *in, spot *of) {
    pthread_mutex_lock(&in->mutex);
    of->hand_ons = 0;
    of->is_handed_on = false;
    pass_on(of);
    pthread_mutex_unlock(&in->mutex);
}

/* -- handing on */

static int64_t left_us(const hotspot *in, const spot *of) {
    return validity_end_us(of->lock.asked_us, of->lock.lease_ms) - in->env->now_us(in->env);
}

/* True: somebody here goes on with the lock. */
static bool hand_on(hotspot *in, spot *of) {
    if (in->rule.hand_on == 0 || left_us(in, of) <= 0) return false;
    pthread_mutex_lock(&in->mutex);
    bool is_handed_on = of->first != NULL && of->hand_ons < in->rule.hand_on;
    if (is_handed_on) {
        of->hand_ons++;
        of->is_handed_on = true;
        pass_on(of);
    }
    pthread_mutex_unlock(&in->mutex);
    if (is_handed_on) atomic_fetch_add(&in->hand_on_count, 1);
    return is_handed_on;
}

/* The lock was handed on to us. True: with half of the lease that was asked for or more, and as
 * safe as was asked for. Else it is to be asked for again with its token, which renews it if it is
 * still held outside. */
static bool accept(const hotspot *in, spot *of, claim *call) {
    uint32_t asked_ms = call->call.lease_ms;
    text_copy(call->call.token, sizeof(call->call.token), of->lock.token);
    of->is_handed_on = false;
    bool is_long_enough = left_us(in, of) * 2 >= (int64_t)asked_ms * 1000;
    bool is_safe_enough = call->link == NULL && call->min_replicas <= of->lock.min_replicas;
    if (!is_long_enough || !is_safe_enough) {
        call->is_sent = true; /* if nothing comes of it, it is to be withdrawn */
        return false;
    }
    call->call.fence = of->lock.fence;
    call->call.asked_us = of->lock.asked_us;
    call->call.lease_ms = of->lock.lease_ms;
    return true;
}

/* -- the handler */

static void keep(spot *of, const claim *held) {
    const dlock_call *call = &held->call;
    of->lock.min_replicas = held->min_replicas;
    of->lock.fence = call->fence;
    of->lock.asked_us = call->asked_us;
    of->lock.lease_ms = call->lease_ms;
    text_copy(of->lock.token, sizeof(of->lock.token), call->token);
}

/* Others wanted it too, as far as can be seen from here. */
static bool is_contended(const hotspot *in, const dlock_call *call, dlock_status status) {
    if (call->remote_us == 0) return false; /* the service was not asked */
    if (status == DLOCK_BUSY || status == DLOCK_TIMEOUT) return true;
    bool has_waited = call->attempts > 1 || in->env->now_us(in->env) - call->remote_us > LONG_US;
    return status == DLOCK_OK && has_waited;
}

/* A lock was handed on to us and could not be renewed: a handler in between has kept us from it, or
 * it was asked for with another token, and then only that one is withdrawn. */
static bool is_to_give_back(const spot *of, const dlock_call *call) {
    return call->remote_us == 0 || strcmp(call->token, of->lock.token) != 0;
}

static void give_back(const spot *of, const dlock_call *call, dlock_chain *rest) {
    claim release = *(const claim *)call;
    release.call.operation = DLOCK_RELEASING;
    release.stop.is_requested = NULL;
    text_copy(release.call.token, sizeof(release.call.token), of->lock.token);
    dlock_next(rest, &release.call);
}

static dlock_status acquire(hotspot *in, dlock_call *call, dlock_chain *rest) {
    spot *taken = NULL;
    if (atomic_load(&in->names.count) > 0) {
        dlock_status status = enter(in, (claim *)call, &taken);
        if (status != DLOCK_OK) return status;
    }
    bool is_handed_on = taken != NULL && taken->is_handed_on;
    if (is_handed_on && accept(in, taken, (claim *)call)) {
        *call->slot = taken;
        return DLOCK_OK;
    }
    dlock_status status = dlock_next(rest, call);
    if (is_handed_on && status != DLOCK_OK && is_to_give_back(taken, call))
        give_back(taken, call, rest);
    if (taken == NULL) {
        if (in->rule.auto_max > 0 && is_contended(in, call, status))
            note_contention(in, call->name);
    } else if (status == DLOCK_OK) {
        keep(taken, (claim *)call);
        *call->slot = taken;
    } else {
        leave(in, taken);
    }
    return status;
}

/* The holder on its way out. */
typedef struct leaver {
    hotspot *in;
    spot *held; /* NULL: it has left */
} leaver;

static void leave_once(void *arg) {
    leaver *who = arg;
    if (who->held != NULL) leave(who->in, who->held);
    who->held = NULL;
}

static dlock_status release(hotspot *in, dlock_call *call, dlock_chain *rest) {
    claim *of = (claim *)call;
    leaver who = {in, *call->slot};
    *call->slot = NULL;
    if (who.held == NULL) return dlock_next(rest, call);
    if (call->asked_us > who.held->lock.asked_us) keep(who.held, of); /* it was renewed */
    bool is_to_hand = of->link == NULL && !of->is_token_chosen && !of->is_doubtful;
    if (is_to_hand && hand_on(in, who.held)) return DLOCK_OK;
    if (in->rule.is_queued_outside) { /* the next one need not wait for the answer */
        of->on_sent = leave_once;
        of->on_sent_arg = &who;
    }
    dlock_status status = dlock_next(rest, call);
    of->on_sent = NULL;
    leave_once(&who);
    return status;
}

static dlock_status extend(dlock_call *call, dlock_chain *rest) {
    spot *held = *call->slot;
    dlock_status status = dlock_next(rest, call);
    if (held != NULL && status == DLOCK_OK) keep(held, (claim *)call);
    if (held != NULL && status != DLOCK_OK) held->lock.lease_ms = 0; /* nothing sure to hand on */
    return status;
}

static dlock_status handle(void *arg, dlock_call *call, dlock_chain *rest) {
    switch (call->operation) {
    case DLOCK_ACQUIRING:
        return acquire(arg, call, rest);
    case DLOCK_RELEASING:
        return release(arg, call, rest);
    case DLOCK_EXTENDING:
        return extend(call, rest);
    }
    return dlock_next(rest, call);
}

/* -- public */

hotspot *hotspot_new(const hotspot_rule *rule, const environment *env) {
    hotspot *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->rule = *rule;
    made->env = env;
    pthread_mutex_init(&made->mutex, NULL);
    if (!spots_init(&made->names, rule->auto_max)) {
        hotspot_free(made);
        return NULL;
    }
    return made;
}

void hotspot_free(hotspot *old) {
    if (old == NULL) return;
    spots_free(&old->names);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

dlock_handler hotspot_handler(hotspot *of) {
    return (dlock_handler){.struct_size = sizeof(dlock_handler),
                           .name = "hotspot",
                           .order = DLOCK_ORDER_HOTSPOT,
                           .arg = of,
                           .handle = handle};
}

dlock_status hotspot_add(hotspot *to, const char *name) {
    pthread_mutex_lock(&to->mutex);
    bool is_added = spots_add(&to->names, name) != NULL;
    pthread_mutex_unlock(&to->mutex);
    return is_added ? DLOCK_OK : DLOCK_NO_MEMORY;
}

void hotspot_remove(hotspot *from, const char *name) {
    pthread_mutex_lock(&from->mutex);
    spots_remove(&from->names, name);
    pthread_mutex_unlock(&from->mutex);
}

uint64_t hotspot_hand_ons(const hotspot *of) {
    return atomic_load(&of->hand_on_count);
}

uint64_t hotspot_waiting(const hotspot *of) {
    return atomic_load(&of->waiting);
}

size_t hotspot_count(const hotspot *of) {
    return atomic_load(&of->names.count);
}
