/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_codec_test.c - a lock as bytes and back.
 *
 * Bytes to decode are copied into an allocation of exactly their size, so that a build with
 * SANITIZE=address sees a read past their end. */
#include "lock_codec.h"

#include "unit.h"
#include <stdlib.h>

enum { MODE_AT = 1, FENCE_AT = 2, LEASE_AT = 10 };

typedef struct message {
    size_t size;
    char bytes[LOCK_CODEC_SIZE_MAX + 1];
} message;

/* Every field at its smallest, which is how a case asks for one wrong field at a time. */
static const lock_state smallest = {
    .kind = LOCK_KIND_LOCK,
    .token = {"t", 1},
    .fence = 1,
    .lease_ms = 1,
};

static message encode(const lock_state *state) {
    message encoded;
    encoded.size = lock_encode(state, encoded.bytes);
    return encoded;
}

static bool decode(const char *bytes, size_t size, lock_state *state) {
    char *exact = malloc(size > 0 ? size : 1);
    if (exact == NULL) abort();
    memcpy(exact, bytes, size);
    bool is_read = lock_decode(exact, size, state);
    /* The token must be a part of what was read; let it outlive the allocation. */
    if (is_read) {
        CHECK(state->token.bytes == exact + LOCK_CODEC_HEADER_SIZE);
        state->token.bytes = bytes + LOCK_CODEC_HEADER_SIZE;
    }
    free(exact);
    return is_read;
}

static void check_same(const lock_state *actual, const lock_state *expected) {
    CHECK_EQUAL(actual->kind, expected->kind);
    CHECK_EQUAL(actual->is_shared, expected->is_shared);
    CHECK_EQUAL(actual->fence, expected->fence);
    CHECK_EQUAL(actual->lease_ms, expected->lease_ms);
    CHECK_EQUAL(actual->left_us, expected->left_us);
    CHECK_BYTES(actual->token.bytes, actual->token.length, expected->token.bytes,
                expected->token.length);
}

static void check_within_bounds(const lock_state *state) {
    CHECK_EQUAL(state->kind, LOCK_KIND_LOCK);
    CHECK(state->fence >= 1 && state->fence < LOCK_FENCE_LIMIT);
    CHECK(state->lease_ms >= 1 && state->lease_ms <= LOCK_LEASE_MAX_MS);
    CHECK(state->token.length >= 1 && state->token.length <= LOCK_TOKEN_MAX);
}

static void check_round_trip(const lock_state *state) {
    message encoded = encode(state);
    lock_state read;
    CHECK_EQUAL(encoded.size, (LOCK_CODEC_HEADER_SIZE + state->token.length));
    bool is_read = decode(encoded.bytes, encoded.size, &read);
    CHECK(is_read);
    if (is_read) check_same(&read, state);
}

/* What is accepted is within bounds and the one spelling of what it says. True: it was accepted. */
static bool check_refused_or_sane(const message *any) {
    lock_state read;
    if (!decode(any->bytes, any->size, &read)) return false;
    check_within_bounds(&read);
    message again = encode(&read);
    CHECK_BYTES(again.bytes, again.size, any->bytes, any->size);
    return true;
}

static void check_refused(const char *bytes, size_t size) {
    static const lock_state untouched = {.fence = 42, .lease_ms = 44, .left_us = 45};
    lock_state read = untouched;
    CHECK(!decode(bytes, size, &read));
    check_same(&read, &untouched);
}

static void put_le(char *at, int64_t value, int size) {
    for (int i = 0; i < size; i++)
        at[i] = (char)(unsigned char)((uint64_t)value >> (8 * i));
}

static bool is_read_with(int at, int size, int64_t value) {
    message encoded = encode(&smallest);
    put_le(encoded.bytes + at, value, size);
    bool is_read = check_refused_or_sane(&encoded);
    if (!is_read) check_refused(encoded.bytes, encoded.size);
    return is_read;
}

static lock_state random_state(char token[LOCK_TOKEN_MAX]) {
    for (size_t i = 0; i < LOCK_TOKEN_MAX; i++)
        token[i] = (char)(unsigned char)(unit_random() & 0xff);
    return (lock_state){
        .kind = LOCK_KIND_LOCK,
        .is_shared = unit_random() % 2 == 0,
        .token = {token, (size_t)unit_random_within(1, LOCK_TOKEN_MAX)},
        .fence = unit_random_within(1, LOCK_FENCE_LIMIT - 1),
        .lease_ms = unit_random_within(1, LOCK_LEASE_MAX_MS),
    };
}

TEST(the_layout_is_the_one_in_files_already_written) {
    static const char expected[] = "\x03"
                                   "\x01"
                                   "\x77\x66\x55\x44\x33\x22\x11\x00"
                                   "\xd4\xc3\xb2\xa1"
                                   "to\0ken";
    lock_state state = {
        .kind = LOCK_KIND_LOCK,
        .is_shared = true,
        .token = {"to\0ken", 6},
        .fence = INT64_C(0x0011223344556677),
        .lease_ms = INT64_C(0xa1b2c3d4),
    };
    message encoded = encode(&state);
    CHECK_BYTES(encoded.bytes, encoded.size, expected, sizeof(expected) - 1);
    check_round_trip(&state);
}

TEST(every_field_survives_at_its_limits) {
    static char longest[LOCK_TOKEN_MAX];
    static const lock_token tokens[] = {{"t", 1}, {"\0", 1}, {longest, LOCK_TOKEN_MAX}};
    static const int64_t fences[] = {1, 2, LOCK_FENCE_LIMIT - 1};
    static const int64_t leases[] = {1, INT32_MAX, INT64_C(1) << 31, LOCK_LEASE_MAX_MS};
    memset(longest, 0xff, sizeof(longest));
    for (int i = 0; i < 3 * 3 * 4 * 2; i++) {
        lock_state state = {
            .kind = LOCK_KIND_LOCK,
            .is_shared = i / 36 == 1,
            .token = tokens[i % 3],
            .fence = fences[i / 3 % 3],
            .lease_ms = leases[i / 9 % 4],
        };
        check_round_trip(&state);
    }
}

TEST(random_states_come_back_as_they_were) {
    char token[LOCK_TOKEN_MAX];
    for (int i = 0; i < 5000; i++) {
        lock_state state = random_state(token);
        check_round_trip(&state);
    }
}

TEST(a_fence_out_of_bounds_is_refused) {
    CHECK(is_read_with(FENCE_AT, 8, 1));
    CHECK(is_read_with(FENCE_AT, 8, LOCK_FENCE_LIMIT - 1));
    CHECK(!is_read_with(FENCE_AT, 8, 0));
    CHECK(!is_read_with(FENCE_AT, 8, -1));
    CHECK(!is_read_with(FENCE_AT, 8, LOCK_FENCE_LIMIT));
    CHECK(!is_read_with(FENCE_AT, 8, INT64_MAX));
    CHECK(!is_read_with(FENCE_AT, 8, INT64_MIN));
}

TEST(a_lease_of_nothing_is_refused) {
    CHECK(is_read_with(LEASE_AT, 4, 1));
    CHECK(is_read_with(LEASE_AT, 4, LOCK_LEASE_MAX_MS));
    CHECK(!is_read_with(LEASE_AT, 4, 0));
}

TEST(any_other_version_is_refused) {
    for (int version = 0; version < 256; version++)
        CHECK_EQUAL(is_read_with(0, 1, version), version == 3);
}

TEST(any_other_mode_is_refused) {
    for (int mode = 0; mode < 256; mode++)
        CHECK_EQUAL(is_read_with(MODE_AT, 1, mode), mode < 2);
}

TEST(only_a_token_of_1_to_256_bytes_is_read) {
    message longest = encode(&smallest);
    memset(longest.bytes + LOCK_CODEC_HEADER_SIZE, 'x', LOCK_TOKEN_MAX + 1);
    for (size_t length = 0; length <= LOCK_TOKEN_MAX + 1; length++) {
        longest.size = LOCK_CODEC_HEADER_SIZE + length;
        bool is_read = check_refused_or_sane(&longest);
        CHECK_EQUAL(is_read, length >= 1 && length <= LOCK_TOKEN_MAX);
        if (!is_read) check_refused(longest.bytes, longest.size);
    }
}

TEST(much_too_long_is_refused) {
    enum { SIZE = 1 << 20 };
    char *bytes = calloc(SIZE, 1);
    if (bytes == NULL) abort();
    lock_encode(&smallest, bytes);
    check_refused(bytes, SIZE);
    free(bytes);
}

TEST(a_truncated_lock_is_refused_or_has_a_shorter_token) {
    char token[LOCK_TOKEN_MAX];
    for (int i = 0; i < 100; i++) {
        lock_state state = random_state(token), read;
        message encoded = encode(&state);
        while (encoded.size-- > 0) {
            bool is_read = check_refused_or_sane(&encoded);
            CHECK_EQUAL(is_read, encoded.size > LOCK_CODEC_HEADER_SIZE);
            if (!is_read) continue;
            state.token.length = encoded.size - LOCK_CODEC_HEADER_SIZE;
            decode(encoded.bytes, encoded.size, &read);
            check_same(&read, &state);
        }
    }
}

TEST(a_lock_with_one_wrong_byte_is_refused_or_sane) {
    char token[LOCK_TOKEN_MAX];
    for (int i = 0; i < 4; i++) {
        lock_state state = random_state(token);
        message encoded = encode(&state);
        for (size_t at = 0; at < encoded.size; at++) {
            char right = encoded.bytes[at];
            for (int change = 1; change < 256; change++) {
                encoded.bytes[at] = (char)(unsigned char)((unsigned char)right ^ change);
                check_refused_or_sane(&encoded);
            }
            encoded.bytes[at] = right;
        }
    }
}

TEST(random_bytes_are_refused_or_sane) {
    int accepted = 0;
    for (int i = 0; i < 10000; i++) {
        message any = {.size = (size_t)unit_random_within(0, LOCK_CODEC_SIZE_MAX + 1)};
        for (size_t at = 0; at < any.size; at++)
            any.bytes[at] = (char)(unsigned char)(unit_random() & 0xff);
        /* Else hardly any would get past the first byte, or past the fence. */
        if (unit_random() % 8 != 0) any.bytes[0] = 3;
        if (unit_random() % 2 == 0) any.bytes[FENCE_AT + 7] = 0;
        if (unit_random() % 8 != 0) any.bytes[MODE_AT] &= 1;
        accepted += check_refused_or_sane(&any);
    }
    CHECK(accepted > 100);
}

int main(void) {
    return unit_main(NULL, NULL);
}
