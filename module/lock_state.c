/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_state.c - the rules of a lock, as pure functions. */
#include "lock_state.h"

bool lock_is_held_by(const lock_state *held, lock_token token) {
    return held != NULL && lock_is_token(held->token, token);
}

bool lock_has_room(const lock_state *held, int64_t holder_count, const lock_request *request,
                   int64_t max_holders) {
    if (!held->is_shared || !request->is_shared) return false;
    if (request->max_holders > 0 && holder_count >= request->max_holders) return false;
    return holder_count < max_holders;
}

lock_verdict lock_judge_acquire(const lock_state *held, int64_t holder_count,
                                const lock_request *request, int64_t max_holders) {
    if (held == NULL) return LOCK_GRANT;
    /* Refuse even an equal token: a string has no fence for the reply, and replacing the string by
     * a lock would break the release script of the client that set it. */
    if (held->kind == LOCK_KIND_STRING) return LOCK_REFUSE;
    if (!lock_is_held_by(held, request->token))
        return lock_has_room(held, holder_count, request, max_holders) ? LOCK_JOIN : LOCK_REFUSE;
    return held->is_shared == request->is_shared ? LOCK_AGAIN : LOCK_OTHER_MODE;
}

bool lock_restarts(const lock_state *held, int64_t lease_ms) {
    return held->left_us <= lease_ms * 1000;
}
