/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_state_test.c - the rules of the lock. */
#include "lock_state.h"

#include "unit.h"

enum { LEASE_MS = 10000, LEASE_US = LEASE_MS * 1000, MAX_HOLDERS = 100 };

static lock_token token_of(const char *text) {
    return (lock_token){text, strlen(text)};
}

static lock_state lock_of(const char *token, int64_t left_us) {
    return (lock_state){
        .kind = LOCK_KIND_LOCK,
        .token = token_of(token),
        .fence = 7,
        .lease_ms = LEASE_MS,
        .left_us = left_us,
    };
}

static lock_state string_of(const char *value) {
    return (lock_state){.kind = LOCK_KIND_STRING, .token = token_of(value)};
}

static lock_request request_of(const char *token, int64_t lease_ms) {
    return (lock_request){.token = token_of(token), .lease_ms = lease_ms};
}

static lock_verdict judge(lock_state held, lock_request request) {
    return lock_judge_acquire(&held, 1, &request, MAX_HOLDERS);
}

static bool is_held_by(lock_state held, lock_token token) {
    return lock_is_held_by(&held, token);
}

TEST(tokens_are_compared_by_all_their_bytes) {
    static const struct {
        lock_token one, other;
        bool are_equal;
    } rows[] = {
        {{"me", 2}, {"me", 2}, true},        {{"me", 2}, {"my", 2}, false},
        {{"me", 2}, {"mee", 3}, false},      {{"token", 5}, {"toke", 4}, false},
        {{"token", 5}, {"Token", 5}, false}, {{"token", 5}, {"x", 1}, false},
        {{"a\0b", 3}, {"a\0b", 3}, true},    {{"a\0b", 3}, {"a\0c", 3}, false},
        {{"a\0b", 3}, {"a", 1}, false},      {{"a\0b", 3}, {"a\0b\0", 4}, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        lock_state held = lock_of("", 1);
        held.token = rows[i].one;
        CHECK_EQUAL(lock_is_token(rows[i].one, rows[i].other), rows[i].are_equal);
        CHECK_EQUAL(is_held_by(held, rows[i].other), rows[i].are_equal);
    }
}

TEST(a_free_lock_is_granted) {
    lock_request request = request_of("me", LEASE_MS);
    CHECK_EQUAL(lock_judge_acquire(NULL, 0, &request, MAX_HOLDERS), LOCK_GRANT);
}

static bool restarts(int64_t left_us, int64_t lease_ms) {
    lock_state held = lock_of("me", left_us);
    return lock_restarts(&held, lease_ms);
}

TEST(the_holder_restarts_a_lease_that_is_no_longer) {
    static const struct {
        int64_t left_us, lease_ms;
        bool restarts;
    } rows[] = {
        {LEASE_US + 1, LEASE_MS, false},
        {LEASE_US, LEASE_MS, true},
        {LEASE_US - 1, LEASE_MS, true},
        {1, LEASE_MS, true},
        /* and the longest lease does not overflow */
        {LOCK_LEASE_MAX_MS * 1000 + 1, LOCK_LEASE_MAX_MS, false},
        {LOCK_LEASE_MAX_MS * 1000, LOCK_LEASE_MAX_MS, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_EQUAL(restarts(rows[i].left_us, rows[i].lease_ms), rows[i].restarts);
}

TEST(nobody_holds_a_free_lock) {
    CHECK(!lock_is_held_by(NULL, token_of("me")));
}

TEST(the_token_of_a_string_holds_it) {
    CHECK(is_held_by(string_of("me"), token_of("me")));
    CHECK(!is_held_by(string_of("me"), token_of("you")));
    CHECK(!is_held_by(string_of(""), token_of("me")));
}

TEST(every_byte_of_the_longest_token_counts) {
    char held_bytes[LOCK_TOKEN_MAX], asked_bytes[LOCK_TOKEN_MAX];
    memset(held_bytes, 0xa5, sizeof(held_bytes));
    memcpy(asked_bytes, held_bytes, sizeof(held_bytes));
    lock_state held = lock_of("", 1);
    held.token = (lock_token){held_bytes, sizeof(held_bytes)};
    lock_token asked = {asked_bytes, sizeof(asked_bytes)};
    CHECK(is_held_by(held, asked));
    for (size_t i = 0; i < sizeof(asked_bytes); i++) {
        asked_bytes[i] ^= 1;
        CHECK(!is_held_by(held, asked));
        asked_bytes[i] ^= 1;
    }
}

/* One holder, "other", of so many that share the lock. */
static lock_verdict judge_shared(int64_t holder_count, lock_request request) {
    lock_state held = lock_of("other", LEASE_US);
    held.is_shared = true;
    return lock_judge_acquire(&held, holder_count, &request, MAX_HOLDERS);
}

static lock_request shared_request(const char *token, int32_t max_holders) {
    lock_request request = request_of(token, LEASE_MS);
    request.is_shared = true;
    request.max_holders = max_holders;
    return request;
}

TEST(a_free_lock_is_granted_to_a_shared_request) {
    lock_request request = shared_request("me", 1);
    CHECK_EQUAL(lock_judge_acquire(NULL, 0, &request, MAX_HOLDERS), LOCK_GRANT);
}

TEST(shared_requests_join_shared_holders) {
    CHECK_EQUAL(judge_shared(1, shared_request("me", 0)), LOCK_JOIN);
    CHECK_EQUAL(judge_shared(MAX_HOLDERS - 1, shared_request("me", 0)), LOCK_JOIN);
    CHECK_EQUAL(judge_shared(MAX_HOLDERS, shared_request("me", 0)), LOCK_REFUSE);
}

TEST(modes_exclude_each_other) {
    CHECK_EQUAL(judge_shared(1, request_of("me", LEASE_MS)), LOCK_REFUSE);
    CHECK_EQUAL(judge(lock_of("other", 1), shared_request("me", 0)), LOCK_REFUSE);
    CHECK_EQUAL(judge(string_of("other"), shared_request("me", 0)), LOCK_REFUSE);
}

TEST(each_request_brings_its_own_limit) {
    for (int32_t count = 1; count < 10; count++)
        for (int32_t limit = 1; limit < 10; limit++)
            CHECK_EQUAL(judge_shared(count, shared_request("me", limit)),
                        count < limit ? LOCK_JOIN : LOCK_REFUSE);
    CHECK_EQUAL(judge_shared(MAX_HOLDERS, shared_request("me", INT32_MAX)), LOCK_REFUSE);
}

TEST(a_holder_among_many_may_ask_again_whatever_the_limit) {
    CHECK_EQUAL(judge_shared(MAX_HOLDERS, shared_request("other", 1)), LOCK_AGAIN);
}

TEST(a_holder_cannot_change_the_mode) {
    CHECK_EQUAL(judge_shared(1, request_of("other", LEASE_MS)), LOCK_OTHER_MODE);
    CHECK_EQUAL(judge_shared(2, request_of("other", LEASE_MS)), LOCK_OTHER_MODE);
    CHECK_EQUAL(judge(lock_of("me", 1), shared_request("me", 0)), LOCK_OTHER_MODE);
}

TEST(no_token_holds_a_lock_seen_without_a_holder) {
    lock_state held = {.kind = LOCK_KIND_LOCK, .is_shared = true, .left_us = 1};
    lock_request request = shared_request("me", 3);
    CHECK(!lock_is_held_by(&held, token_of("me")));
    CHECK_EQUAL(lock_judge_acquire(&held, 2, &request, MAX_HOLDERS), LOCK_JOIN);
    CHECK_EQUAL(lock_judge_acquire(&held, 3, &request, MAX_HOLDERS), LOCK_REFUSE);
}

/* What is left of the lease does not matter: a holder counts until the caller has removed it. A
 * plain string is refused even with an equal token. */
TEST(any_verdict_follows_from_the_kind_and_the_token) {
    for (int i = 0; i < 20000; i++) {
        bool is_string = unit_random() % 4 == 0;
        bool is_same = unit_random() % 2 == 0;
        int64_t lease_ms = unit_random_within(1, 5);
        int64_t left_ms = unit_random_within(-3, 8);
        lock_state held = lock_of("me", left_ms * 1000);
        held.kind = is_string ? LOCK_KIND_STRING : LOCK_KIND_LOCK;

        lock_verdict expected = is_same ? LOCK_AGAIN : LOCK_REFUSE;
        if (is_string) expected = LOCK_REFUSE;
        CHECK_EQUAL(judge(held, request_of(is_same ? "me" : "you", lease_ms)), expected);
    }
}

int main(void) {
    return unit_main(NULL, NULL);
}
