/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.c - see chain.h.
 *
 *   entering   position is the handler to enter; a handler that suspends the call is entered again
 *   leaving    position counts down over the handlers that let the call pass
 *
 * The last handler (waiting.c) answers every call. */
#include "handlers/chain.h"

#include "base/text.h"
#include <stdlib.h>

chain *chain_new(size_t capacity) {
    return calloc(1, sizeof(chain) + capacity * sizeof(chain_link));
}

void chain_add(chain *chain, dlock_handler handler, bool has_slot) {
    size_t place = chain->count++;
    for (; place > 0 && chain->links[place - 1].handler.order > handler.order; place--)
        chain->links[place] = chain->links[place - 1];
    chain->links[place] = (chain_link){handler, has_slot ? chain->slot_count++ : NO_SLOT};
}

/* Other threads may read the call while its handler is entered again for nothing: an unchanged slot
 * is not written. */
static const dlock_handler *select_handler(const chain *chain, call *call) {
    const chain_link *link = &chain->links[call->position];
    void **slot = link->slot == NO_SLOT ? NULL : &call->slots[link->slot];
    if (call->pub.slot != slot) call->pub.slot = slot;
    return &link->handler;
}

static dlock_step enter_next(const chain *chain, call *call) {
    if (call->position == chain->count) { /* no handler answers: a broken chain */
        call->pub.status = DLOCK_INVALID;
        return DLOCK_ANSWER;
    }
    const dlock_handler *handler = select_handler(chain, call);
    return handler->enter == NULL ? DLOCK_PASS : handler->enter(handler->arg, &call->pub);
}

static void leave_last(const chain *chain, call *call) {
    call->position--;
    const dlock_handler *handler = select_handler(chain, call);
    bool is_granted = call->pub.operation == DLOCK_ACQUIRING && call->pub.status == DLOCK_OK;
    if (handler->leave != NULL) handler->leave(handler->arg, &call->pub);
    if (is_granted) call->pub.status = DLOCK_OK; /* the lock is held, whatever a handler says */
}

void chain_begin(call *call) {
    call->position = 0;
    call->is_under_way = true;
    call->is_leaving = false;
    call->timer = (loop_timer){0};
    call->local = (local_place){0};
    call->is_handed_on = false;
    call->waiting = (waiting_state){0};
}

bool chain_advance(const chain *chain, call *call) {
    while (!call->is_leaving) {
        dlock_step step = enter_next(chain, call);
        if (step == DLOCK_SUSPEND) return false;
        if (step == DLOCK_PASS)
            call->position++;
        else
            call->is_leaving = true;
    }
    while (call->position > 0)
        leave_last(chain, call);
    call->is_under_way = false;
    return true;
}

/* Advances; then, if the call is suspended, puts it into the loop: a thread waits for it or not. A
 * handler that has seen the cancel and suspends the call all the same is entered again only once it
 * resumes the call. */
static bool advance_or_wait(const chain *chain, call *call,
                            void (*wait)(loop *loop, waiter *waiter)) {
    loop *loop = call->loop;
    bool is_cancel_seen = call_is_canceled(call);
    if (chain_advance(chain, call)) return true;
    loop_lock(loop);
    bool can_be_canceled = atomic_load(&call->stop) == CALL_CANCELABLE && !is_cancel_seen;
    call->waiter.cancel = can_be_canceled ? &call->cancel : NULL;
    wait(loop, &call->waiter);
    loop_unlock(loop);
    return false;
}

void chain_finish(const chain *chain, call *call) {
    while (!advance_or_wait(chain, call, loop_wait)) {
    }
}

bool chain_go_on(const chain *chain, call *call) {
    return advance_or_wait(chain, call, loop_suspend);
}

void call_finish_step(attempt *attempt) {
    call *call = attempt->arg;
    call->waiting.is_step_done = true;
    loop_ready(call->loop, &call->waiter);
}

/* -- of dlock_spi.h */

void dlock_call_resume(dlock_call *pub) {
    call *call = call_of(pub);
    loop_lock(call->loop);
    loop_ready(call->loop, &call->waiter);
    loop_unlock(call->loop);
}

void dlock_call_explain(dlock_call *pub, const char *cause) {
    text_keep(&pub->cause, DLOCK_CAUSE_SIZE, cause);
}

int64_t dlock_call_left_ms(const dlock_call *pub) {
    int64_t left_us = deadline_left_us(pub->deadline_us, clock_now_us(clock_system()));
    return left_us == DEADLINE_NEVER ? INT64_MAX : left_us / 1000;
}

/* The copy that a store is given has no start; internal is the flag of custom.c. */
bool dlock_call_is_canceled(const dlock_call *pub) {
    const atomic_bool *is_abandoned = pub->internal;
    if (pub->started_us == 0) return is_abandoned != NULL && atomic_load(is_abandoned);
    return call_is_canceled((const call *)pub);
}
