/* SPDX-License-Identifier: BSD-3-Clause */
/* service.c - see service.h. */
#include "service.h"

#include "deadline.h"
#include "text.h"
#include "withdraw.h"
#include <stdlib.h>

struct service {
    backend *behind;
    waiting_rule rule;
    const environment *env;
    withdrawals *withdrawn;
};

service *service_new(backend *behind, const waiting_rule *rule, const environment *env) {
    service *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        behind->table->free(behind);
        return NULL;
    }
    made->behind = behind;
    made->rule = *rule;
    made->rule.is_server_asked_to_wait &= behind->table->can_wait;
    made->env = env;
    made->withdrawn = withdrawals_new(behind, env, rule->io_timeout_ms);
    if (made->withdrawn == NULL) {
        service_free(made);
        return NULL;
    }
    return made;
}

void service_free(service *old) {
    if (old == NULL) return;
    withdrawals_free(old->withdrawn);
    old->behind->table->free(old->behind);
    free(old);
}

static void withdraw(service *of, const claim *call) {
    if (!call->is_token_chosen) withdrawals_add(of->withdrawn, call);
}

static dlock_status acquire(service *of, claim *call) {
    if (call->is_given_up) { /* by a handler that tries again */
        text_copy(call->call.cause, sizeof(call->call.cause), "it is being withdrawn");
        return DLOCK_IN_DOUBT;
    }
    dlock_status status = waiting_acquire(of->behind, call, &of->rule, of->env);
    if (status != DLOCK_OK && call->is_sent) {
        call->is_given_up = true;
        withdraw(of, call);
    }
    return status;
}

static dlock_status release(service *of, claim *call) {
    dlock_status status = waiting_release(of->behind, call, &of->rule, of->env);
    if (status != DLOCK_OK && status != DLOCK_LOST) withdraw(of, call);
    return status;
}

static dlock_status extend(service *of, claim *call) {
    int64_t now_us = of->env->now_us(of->env);
    int64_t limit_us = deadline_after_ms(now_us, of->rule.io_timeout_ms);
    return of->behind->table->extend(of->behind, call, limit_us);
}

static dlock_status handle(void *arg, dlock_call *call, dlock_chain *rest) {
    (void)rest;
    claim *of = (claim *)call;
    switch (call->operation) {
    case DLOCK_ACQUIRING:
        return acquire(arg, of);
    case DLOCK_RELEASING:
        return release(arg, of);
    case DLOCK_EXTENDING:
        return extend(arg, of);
    }
    return DLOCK_INVALID;
}

dlock_handler service_handler(service *of) {
    return (dlock_handler){.struct_size = sizeof(dlock_handler),
                           .name = "waiting",
                           .order = DLOCK_ORDER_WAITING,
                           .arg = of,
                           .handle = handle};
}

bool service_has_queue(const service *of) {
    return of->rule.is_server_asked_to_wait;
}

backend *service_backend(service *of) {
    return of->behind;
}
