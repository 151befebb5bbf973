/* SPDX-License-Identifier: BSD-3-Clause */
/* notifier.c - see notifier.h.
 *
 *   look      a lock may have become suspect or gone: its timer says so, its lease, or the life of
 *             its session (life.h), which has one timer for all locks. If so, the lock is pending
 *             and the background thread is woken; else the timer is set anew
 *   deliver   the background thread looks at pending locks again, one after the other, and tells
 *             the program without the mutex
 *
 * An extension costs nothing here: the timer finds a lock that was extended meanwhile, and is set
 * anew. A suspect lock is looked at every SUSPECT_PAUSE_US, since a lock that is renewed and
 * suspect again is told of again.
 *
 * Invariants: a watched lock has a timer, or is pending, or is known to be gone, or is held as long
 * as its session. Once the callback has begun, nothing here uses the lock of notifier->told: the
 * callback may remove that lock, or add it again. */
#include "lease/notifier.h"

enum { SUSPECT_PAUSE_US = 20000 };

static void set_notifier_timer(watched_lock *watched) {
    loop *loop = watched->notifier->loop;
    int64_t due_us = lease_own_suspect_at_us(watched->lease);
    if (watched->known == DLOCK_STATE_SUSPECT)
        due_us = deadline_earlier(lease_gone_at_us(watched->lease),
                                  loop_now_us(loop) + SUSPECT_PAUSE_US);
    loop_set_timer(loop, &watched->timer, due_us);
}

/* The state of the lock, if the program is to be told; else DLOCK_STATE_FREE. */
static dlock_state find_news(watched_lock *watched) {
    dlock_state state = lease_state(watched->lease, loop_now_us(watched->notifier->loop));
    if (state < DLOCK_STATE_SUSPECT) watched->known = DLOCK_STATE_HELD;
    return state > watched->known ? state : DLOCK_STATE_FREE;
}

void notifier_look(watched_lock *watched) {
    notifier *notifier = watched->notifier;
    if (watched->known == DLOCK_STATE_LOST || list_has(&watched->notice.node)) return;
    if (find_news(watched) == DLOCK_STATE_FREE) {
        set_notifier_timer(watched);
        return;
    }
    loop_clear_timer(notifier->loop, &watched->timer);
    list_append(&notifier->pending, &watched->notice.node);
    loop_wake_background(notifier->loop);
}

static void on_watched_due(loop_timer *timer) {
    notifier_look(container_of(timer, watched_lock, timer));
}

/* The handle may be gone once the program was told. */
static void tell_lock(notice *notice) {
    watched_lock *watched = container_of(notice, watched_lock, notice);
    notifier *notifier = watched->notifier;
    const char *name = watched->name;
    dlock_state news = find_news(watched);
    dlock_status why = lease_why(watched->lease, news);
    dlock_event event = news == DLOCK_STATE_LOST ? DLOCK_EVENT_LOST : DLOCK_EVENT_SUSPECT;
    if (news != DLOCK_STATE_FREE) watched->known = news;
    if (news == DLOCK_STATE_LOST)
        lease_lose(watched->lease, why);
    else
        set_notifier_timer(watched);
    if (news == DLOCK_STATE_FREE) return;
    loop_unlock(notifier->loop);
    notifier->on_event(notifier->event_arg, event, name, why);
    loop_lock(notifier->loop);
}

/* Locks first: there may be news of a name all the time. NULL: there is nothing to tell. */
static notice *first_notice(const notifier *notifier) {
    const list *next = list_is_empty(&notifier->pending) ? &notifier->notices : &notifier->pending;
    return list_owner(list_first(next), notice, node);
}

/* In the background thread, not locked. */
static void deliver_pending(void *arg) {
    notifier *notifier = arg;
    notice *first;
    loop_lock(notifier->loop);
    while ((first = first_notice(notifier)) != NULL) {
        list_remove(&first->node);
        notifier->told = first;
        notifier->teller = pthread_self();
        first->tell(first);
        notifier->told = NULL;
        wakeup_signal(&notifier->was_told);
    }
    loop_unlock(notifier->loop);
}

void notifier_init(notifier *notifier, loop *loop, dlock_event_fn on_event, void *event_arg) {
    *notifier = (struct notifier){.loop = loop, .on_event = on_event, .event_arg = event_arg};
    list_init(&notifier->pending);
    list_init(&notifier->notices);
    loop_set_background_work(loop, deliver_pending, notifier);
}

void notifier_add(notifier *notifier, watched_lock *watched) {
    if (watched->known != DLOCK_STATE_FREE) return;
    watched->known = DLOCK_STATE_HELD;
    watched->notifier = notifier;
    watched->timer.on_due = on_watched_due;
    watched->notice.tell = tell_lock;
    atomic_load(&watched->lease->links)->watched = watched;
    notifier_look(watched);
}

void notifier_remove(watched_lock *watched) {
    notifier *notifier = watched->notifier;
    if (watched->known == DLOCK_STATE_FREE) return;
    watched->known = DLOCK_STATE_FREE;
    atomic_load(&watched->lease->links)->watched = NULL;
    loop_clear_timer(notifier->loop, &watched->timer);
    notifier_forget(notifier, &watched->notice);
}

void notifier_post(notifier *notifier, notice *notice) {
    if (!list_has(&notice->node)) list_append(&notifier->notices, &notice->node);
    loop_wake_background(notifier->loop);
}

void notifier_forget(notifier *notifier, notice *notice) {
    list_remove(&notice->node);
    while (notifier->told == notice && !pthread_equal(notifier->teller, pthread_self())) {
        unsigned seen = wakeup_seen(&notifier->was_told);
        loop_unlock(notifier->loop);
        wakeup_wait(&notifier->was_told, seen, -1);
        loop_lock(notifier->loop);
    }
}
