/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_state.c - the rules of a lock, as pure functions. */
#include "lock_state.h"

#include <string.h>

bool lock_is_held_by(const lock_state *held, lock_token token) {
    return held != NULL && held->token.length == token.length &&
           memcmp(held->token.bytes, token.bytes, token.length) == 0;
}

lock_verdict lock_judge_acquire(const lock_state *held, const lock_request *request) {
    if (held == NULL) return LOCK_GRANT;
    /* Refuse even an equal token: a string has no fence for the reply, and replacing the string by
     * a lock would break the release script of the client that set it. */
    if (held->kind == LOCK_KIND_STRING) return LOCK_REFUSE;
    if (held->left_us <= 0) return LOCK_GRANT;
    if (!lock_is_held_by(held, request->token)) return LOCK_REFUSE;
    return held->left_us >= request->lease_ms * 1000 ? LOCK_KEEP : LOCK_RENEW;
}
