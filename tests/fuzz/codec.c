/* SPDX-License-Identifier: BSD-3-Clause */
/* codec.c - bytes from a file or a master, read as a holder (module/lock_codec.c): whatever is
 * accepted is within the limits, and written again as the same bytes. */
#include "fuzz.h"
#include "lock_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *bytes = fuzz_copy(data, size), again[LOCK_CODEC_SIZE_MAX];
    lock_state state = {.fence = -7};
    if (!lock_decode(bytes, size, &state)) {
        MUST(state.fence == -7); /* a refusal changes nothing */
    } else {
        MUST(state.kind == LOCK_KIND_LOCK && state.fence > 0 && state.fence < LOCK_FENCE_LIMIT);
        MUST(state.lease_ms > 0 && state.lease_ms <= LOCK_LEASE_MAX_MS);
        MUST(state.token.length > 0 && state.token.length <= LOCK_TOKEN_MAX);
        MUST(lock_encode(&state, again) == size && memcmp(again, bytes, size) == 0);
    }
    free(bytes);
    return 0;
}
