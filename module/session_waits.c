/* SPDX-License-Identifier: BSD-3-Clause */
/* session_waits.c - see session_waits.h. A wait is in one list of its session at a time:
 *
 *   waits     in line                 aside    passed over, because the session is away
 *   mailbox   granted or ended: now it is an event, until the client has acknowledged it
 *
 * A grant that was never written to a connection becomes a wait again when the session goes away or
 * ends, with its old place in the queue; or it ends, if too many fences are used up. */
#include "session_waits.h"

#include "fences.h"
#include "leases.h"
#include "mailbox.h"
#include "server.h"
#include "sessions.h"
#include "stats.h"
#include <string.h>

typedef struct session_wait {
    event event;   /* must be the first member */
    waiter waiter; /* request.via is the session */
    int db;
    bool is_granted; /* else ended, once it is an event */
    union {
        struct {
            int64_t fence;
            int64_t at_us;
        } granted;
        const char *why; /* it has ended */
    } outcome;
    char token[];
} session_wait;

static int64_t count; /* of waits that are no events yet */

static session_wait *of_waiter(waiter *waiter) {
    return (session_wait *)((char *)waiter - offsetof(session_wait, waiter));
}

static session *owner_of(const session_wait *wait) {
    return wait->waiter.request.via;
}

static void free_wait(session_wait *old) {
    queues_forget(&old->waiter);
    RedisModule_Free(old);
}

static void add_to_counts(session *owner, int change) {
    owner->wait_count += (uint32_t)change;
    count += change;
}

/* -- as an event */

static int64_t age_ms(const session_wait *wait, int64_t arrived_us) {
    int64_t age_us = arrived_us - wait->outcome.granted.at_us;
    return age_us <= 0 ? 0 : (age_us + 999) / 1000;
}

static void write_wait(RedisModuleCtx *ctx, const event *event, int64_t arrived_us) {
    const session_wait *wait = (const session_wait *)event;
    RedisModule_ReplyWithArray(ctx, wait->is_granted ? 6 : 5);
    RedisModule_ReplyWithLongLong(ctx, event->number);
    RedisModule_ReplyWithSimpleString(ctx, wait->is_granted ? "granted" : "ended");
    RedisModule_ReplyWithString(ctx, wait->waiter.first.name);
    RedisModule_ReplyWithStringBuffer(ctx, wait->token, wait->waiter.request.token.length);
    if (!wait->is_granted) {
        RedisModule_ReplyWithSimpleString(ctx, wait->outcome.why);
        return;
    }
    RedisModule_ReplyWithLongLong(ctx, wait->outcome.granted.fence);
    RedisModule_ReplyWithLongLong(ctx, age_ms(wait, arrived_us));
}

static void forget_wait(event *event) {
    free_wait((session_wait *)event);
}

static const event_kind wait_kind = {.write = write_wait, .forget = forget_wait};

/* -- in line */

void session_waits_add(const wait_names *names, const lock_request *request, waiter *older) {
    session_wait *made = RedisModule_Calloc(1, sizeof(*made) + request->token.length);
    session *owner = request->via;
    made->event.kind = &wait_kind;
    memcpy(made->token, request->token.bytes, request->token.length);
    made->waiter.request = *request;
    made->waiter.request.token.bytes = made->token;
    made->waiter.parked_us = server_boot_us();
    made->waiter.end.key = made->waiter.parked_us + request->wait_ms * INT64_C(1000);
    made->db = names->db;
    if (older != NULL)
        queues_replace(older, names, &made->waiter);
    else
        queues_append(names, &made->waiter);
    add_to_counts(owner, 1);
    if (session_is_present(owner)) {
        list_append(&owner->waits, &made->event.node);
    } else {
        queues_step_aside(&made->waiter);
        list_append(&owner->aside, &made->event.node);
    }
}

static list *list_of(const session_wait *wait) {
    return wait->waiter.is_in_line ? &owner_of(wait)->waits : &owner_of(wait)->aside;
}

static void become_event(session_wait *wait) {
    add_to_counts(owner_of(wait), -1);
    mailbox_add(owner_of(wait), &wait->event);
}

void session_waits_grant(waiter *granted, int64_t fence) {
    session_wait *wait = of_waiter(granted);
    list_remove(list_of(wait), &wait->event.node);
    queues_leave(granted);
    wait->is_granted = true;
    wait->outcome.granted.fence = fence;
    wait->outcome.granted.at_us = server_boot_us();
    stats_add(&stats_wait_us, wait->outcome.granted.at_us - granted->parked_us);
    become_event(wait);
}

void session_waits_end(waiter *ended, const char *why) {
    session_wait *wait = of_waiter(ended);
    list_remove(list_of(wait), &wait->event.node);
    queues_give_up(ended);
    wait->is_granted = false;
    wait->outcome.why = why;
    become_event(wait);
}

bool session_waits_is_permitted(waiter *waiting) {
    const session *owner = waiting->request.via;
    return !owner->is_user_in_acl || queues_is_permitted(waiting, owner->user);
}

void session_waits_drop(waiter *dropped) {
    session_wait *wait = of_waiter(dropped);
    list_remove(list_of(wait), &wait->event.node);
    add_to_counts(owner_of(wait), -1);
    free_wait(wait);
}

/* -- away, back and ended */

/* The token of a taken back grant may hold the locks under new ids, or wait again: its client has
 * asked again. Of several locks some may be gone, or held under new ids: then the others stay,
 * since a request that waits must not hold a part. */
static bool is_taken_back(session_wait *wait) {
    if (wait->event.kind != &wait_kind || !wait->is_granted) return false;
    for (int i = 0; i < wait->waiter.place_count; i++) {
        const wait_place *place = waiter_place(&wait->waiter, i);
        const wait_queue *queue = queues_find(wait->db, place->name);
        if (leases_tie(place->hold) == NULL) return false;
        if (queue != NULL && queues_find_token(queue, wait->waiter.request.token) != NULL)
            return false;
    }
    return true;
}

/* The fences of the grant are used up, and the next grant takes a new run. A session that goes away
 * again and again must not get more of them than requests may reserve. */
static bool may_wait_again(const session_wait *wait) {
    const lock_request *request = &wait->waiter.request;
    return request->fences == 0 || fence_may_reserve(request->fence, request->fences,
                                                     queues_pending_fences(), fences_time());
}

/* The event was never written, so it may tell something else. */
static void refuse_wait(session_wait *wait) {
    queues_abandon(&wait->waiter);
    wait->is_granted = false;
    wait->outcome.why = FENCES_USED_UP;
}

static void become_wait(session *session, session_wait *wait) {
    mailbox_remove(session, &wait->event);
    queues_abandon(&wait->waiter);
    add_to_counts(session, 1);
    queues_rejoin(wait->db, &wait->waiter);
    list_append(&session->aside, &wait->event.node);
}

/* Events are written in their order, so those that are not written are the last ones. */
static bool take_back(session *session) {
    event *last = LIST_OBJECT(session->untaken, event, node);
    if (last == NULL || mailbox_is_written(session, last)) return false;
    session->untaken = last->node.prev;
    session_wait *wait = (session_wait *)last;
    if (!is_taken_back(wait)) return true;
    if (may_wait_again(wait))
        become_wait(session, wait);
    else
        refuse_wait(wait);
    return true;
}

void session_waits_pass_over(waiter *passed) {
    session_wait *wait = of_waiter(passed);
    session *owner = owner_of(wait);
    list_remove(&owner->waits, &wait->event.node);
    queues_step_aside(passed);
    list_append(&owner->aside, &wait->event.node);
}

bool session_waits_step_aside(session *session) {
    if (take_back(session)) return true;
    session_wait *first = LIST_OBJECT(session->waits.first, session_wait, event.node);
    if (first == NULL) return false;
    session_waits_pass_over(&first->waiter);
    return true;
}

bool session_waits_step_back(session *session) {
    session_wait *first = LIST_OBJECT(session->aside.first, session_wait, event.node);
    if (first == NULL) return false;
    list_remove(&session->aside, &first->event.node);
    queues_step_back(&first->waiter);
    list_append(&session->waits, &first->event.node);
    return true;
}

bool session_waits_clear(session *session) {
    if (take_back(session)) return true;
    list *lists[] = {&session->waits, &session->aside};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        session_wait *first = LIST_OBJECT(lists[i]->first, session_wait, event.node);
        if (first == NULL) continue;
        list_remove(lists[i], &first->event.node);
        queues_give_up(&first->waiter);
        add_to_counts(session, -1);
        free_wait(first);
        return true;
    }
    return false;
}

int64_t session_waits_count(void) {
    return count;
}
