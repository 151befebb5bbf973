/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_state.c - the rules of the lock, as functions of what they are told. */
#include "lock_state.h"

#include <string.h>

bool lock_is_held_by(const lock_state *held, lock_token token) {
    return held != NULL && held->token.length == token.length &&
           memcmp(held->token.bytes, token.bytes, token.length) == 0;
}

lock_verdict lock_judge_acquire(const lock_state *held, const lock_request *request,
                                int64_t now_ms) {
    if (held == NULL) return LOCK_GRANT;
    /* Even with an equal token: a string has no fence to give back, and turning it into a lock
     * would break the release script of the client that set it. */
    if (held->kind == LOCK_KIND_STRING) return LOCK_REFUSE;
    if (!lock_is_held_by(held, request->token)) return LOCK_REFUSE;
    if (held->expires_ms == LOCK_NO_EXPIRY) return LOCK_KEEP;
    return held->expires_ms - now_ms >= request->lease_ms ? LOCK_KEEP : LOCK_RENEW;
}
