/* SPDX-License-Identifier: BSD-3-Clause */
/* chain.c - see chain.h. */
#include "chain.h"

#include "deadline.h"
#include "environment.h"
#include <stdlib.h>

struct chain {
    size_t count;
    dlock_handler handlers[];
};

/* Where a call is: on the stack of whoever runs the handler before it. */
struct dlock_chain {
    const chain *of;
    size_t at; /* the next handler */
    void **slots;
};

chain *chain_new(size_t capacity) {
    return calloc(1, sizeof(chain) + capacity * sizeof(dlock_handler));
}

void chain_free(chain *old) {
    free(old);
}

void chain_add(chain *to, const dlock_handler *added) {
    size_t at = to->count++;
    for (; at > 0 && to->handlers[at - 1].order > added->order; at--)
        to->handlers[at] = to->handlers[at - 1];
    to->handlers[at] = *added;
}

size_t chain_length(const chain *of) {
    return of->count;
}

static dlock_status run_from(const chain *of, size_t at, dlock_call *call, void **slots) {
    const dlock_handler *handler = &of->handlers[at];
    dlock_chain rest = {of, at + 1, slots};
    if (handler->handle == NULL) return dlock_next(&rest, call);
    call->slot = &slots[at];
    return handler->handle(handler->arg, call, &rest);
}

dlock_status dlock_next(dlock_chain *rest, dlock_call *call) {
    if (rest->at == rest->of->count) return DLOCK_INVALID; /* the last one is ours */
    dlock_status status = run_from(rest->of, rest->at, call, rest->slots);
    const dlock_handler *passed = &rest->of->handlers[rest->at - 1];
    call->slot = &rest->slots[rest->at - 1];
    if (status != DLOCK_OK && passed->on_error != NULL) passed->on_error(passed->arg, call, status);
    return status;
}

dlock_status chain_run(const chain *of, claim *call, void **slots) {
    return run_from(of, 0, &call->call, slots);
}

int64_t dlock_call_left_ms(const dlock_call *call) {
    const environment *env = environment_system();
    int64_t left_us = deadline_left_us(call->deadline_us, env->now_us(env));
    return left_us == DEADLINE_NEVER ? INT64_MAX : left_us / 1000;
}

bool dlock_call_is_canceled(const dlock_call *call) {
    return interrupt_is_requested(&((const claim *)call)->stop);
}
