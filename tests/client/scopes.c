/* SPDX-License-Identifier: BSD-3-Clause */
/* scopes.c - every way out of a scope, as a function and as a block.
 *
 *   scopes URL FACT
 *
 * The lock is given back at the end: main() checks that it can be had at once, by another client
 * that has no part in it. */
#include "program.h"

static dlock_client *client, *other;

/* As others see it. */
static bool is_held(const char *name) {
    dlock_lock *lock = new_lock(other, name, 0);
    dlock_status status = dlock_try_acquire(lock);
    CHECK(status == DLOCK_OK || status == DLOCK_BUSY);
    dlock_lock_free(lock);
    return status == DLOCK_BUSY;
}

/* -- a function */

static void look(dlock_lock *lock, dlock_status got, void *arg) {
    CHECK(got == DLOCK_OK);
    CHECK(dlock_get_state(lock) == DLOCK_STATE_HELD);
    CHECK(is_held("n"));
    *(uint64_t *)arg = dlock_fence(lock);
}

FACT(guard_returns) {
    uint64_t first = 0, second = 0;
    CHECK(dlock_scope_run(client, "n", 0, NULL, look, &first) == DLOCK_OK);
    CHECK(!is_held("n"));
    CHECK(dlock_scope_run(client, "n", 0, NULL, look, &second) == DLOCK_OK);
    CHECK(second > first && first > 0);
}

static void release_it(dlock_lock *lock, dlock_status got, void *arg) {
    CHECK(got == DLOCK_OK && arg == NULL);
    CHECK(dlock_release(lock) == DLOCK_OK);
    CHECK(!is_held("n"));
}

FACT(guard_body_released) {
    CHECK(dlock_scope_run(client, "n", 0, NULL, release_it, NULL) == DLOCK_OK);
}

static void take_it_thrice(dlock_lock *lock, dlock_status got, void *arg) {
    CHECK(got == DLOCK_OK && arg == NULL);
    CHECK(dlock_acquire(lock, 0) == DLOCK_OK && dlock_acquire(lock, 0) == DLOCK_OK);
}

FACT(guard_several_levels) {
    CHECK(dlock_scope_run(client, "n", 0, NULL, take_it_thrice, NULL) == DLOCK_OK);
}

static void be_told(dlock_lock *lock, dlock_status got, void *arg) {
    CHECK(lock != NULL && dlock_last_error(lock)[0] != '\0');
    CHECK(dlock_get_state(lock) == DLOCK_STATE_FREE);
    *(dlock_status *)arg = got;
}

static void hold_against(dlock_lock *lock, dlock_status got, void *arg) {
    (void)lock;
    CHECK(got == DLOCK_OK);
    dlock_status told = DLOCK_OK;
    int64_t wait_ms = *(int64_t *)arg;
    dlock_status result = dlock_scope_run(client, "n", wait_ms, NULL, be_told, &told);
    CHECK(told == (wait_ms == 0 ? DLOCK_BUSY : DLOCK_TIMEOUT) && result == told);
    CHECK(is_held("n")); /* still ours: the one who did not get it gave nothing back */
}

FACT(guard_not_got) {
    int64_t wait_ms = 0;
    CHECK(dlock_scope_run(other, "n", 0, NULL, hold_against, &wait_ms) == DLOCK_OK);
    wait_ms = 20;
    CHECK(dlock_scope_run(other, "n", 0, NULL, hold_against, &wait_ms) == DLOCK_OK);
}

static void be_told_of_a_mistake(dlock_lock *lock, dlock_status got, void *arg) {
    CHECK(lock == NULL && got == DLOCK_INVALID);
    ++*(int *)arg;
}

FACT(guard_mistakes) {
    int calls = 0;
    dlock_lock_options options = terms_of(1, DLOCK_EXCLUSIVE);
    CHECK(dlock_scope_run(client, "", 0, NULL, be_told_of_a_mistake, &calls) == DLOCK_INVALID);
    CHECK(strcmp(dlock_error(), "the name is empty") == 0);
    CHECK(dlock_scope_run(NULL, "n", 0, NULL, be_told_of_a_mistake, &calls) == DLOCK_INVALID);
    CHECK(dlock_scope_run(client, "n", 0, &options, be_told_of_a_mistake, &calls) == DLOCK_INVALID);
    CHECK(calls == 3);
}

static void count_lease(dlock_lock *lock, dlock_status got, void *arg) {
    CHECK(got == DLOCK_OK);
    *(int64_t *)arg = dlock_remaining_ms(lock);
}

FACT(guard_options) {
    dlock_lock_options options = terms_of(100000, DLOCK_EXCLUSIVE);
    int64_t left_ms = 0;
    CHECK(dlock_scope_run(client, "n", 0, &options, count_lease, &left_ms) == DLOCK_OK);
    CHECK(left_ms > 90000);
}

static void nest_deeper(dlock_lock *lock, dlock_status got, void *arg) {
    CHECK(got == DLOCK_OK && lock != NULL);
    static const char *const names[] = {"n", "m", "o"};
    int depth = *(int *)arg;
    for (int i = 0; i < 3; i++)
        CHECK(is_held(names[i]) == (i <= depth));
    if (depth == 2) return;
    int deeper = depth + 1;
    CHECK(dlock_scope_run(client, names[deeper], 0, NULL, nest_deeper, &deeper) == DLOCK_OK);
    CHECK(!is_held(names[deeper]) && is_held(names[depth]));
}

FACT(guard_nested) {
    int depth = 0;
    CHECK(dlock_scope_run(client, "n", 0, NULL, nest_deeper, &depth) == DLOCK_OK);
}

/* -- the scope */

static int return_early(int when) {
    DLOCK_SCOPED(held, client, "n", 0, NULL);
    CHECK(held.got == DLOCK_OK && is_held("n"));
    if (when == 1) return 1;
    {
        DLOCK_SCOPED(inner, client, "m", 0, NULL);
        CHECK(inner.got == DLOCK_OK && is_held("m"));
        if (when == 2) return 2;
    }
    CHECK(!is_held("m") && is_held("n"));
    return 3;
}

FACT(scope_returns) {
    for (int when = 1; when <= 3; when++) {
        CHECK(return_early(when) == when);
        CHECK(!is_held("n") && !is_held("m"));
    }
}

FACT(scope_in_a_loop) {
    int rounds = 0;
    uint64_t last = 0;
    for (;;) {
        DLOCK_SCOPED(held, client, "n", 0, NULL);
        CHECK(held.got == DLOCK_OK); /* the round before has given it back */
        CHECK(dlock_fence(held.lock) > last);
        last = dlock_fence(held.lock);
        if (++rounds == 2) continue;
        if (rounds == 4) break;
    }
    CHECK(!is_held("n"));
}

FACT(scope_left_by_goto) {
    int tries = 0;
again : {
    DLOCK_SCOPED(held, client, "n", 0, NULL);
    CHECK(held.got == DLOCK_OK && is_held("n"));
    if (++tries < 3) goto again;
    goto out;
}
out:
    CHECK(!is_held("n") && tries == 3);
}

FACT(scope_body_released) {
    {
        DLOCK_SCOPED(held, client, "n", 0, NULL);
        CHECK(dlock_release(held.lock) == DLOCK_OK);
    }
    {
        DLOCK_SCOPED(held, client, "n", 0, NULL);
        CHECK(dlock_scope_end(&held) == DLOCK_OK); /* and a second time at the end */
        CHECK(!is_held("n"));
    }
}

FACT(scope_not_got) {
    DLOCK_SCOPED(held, other, "n", 0, NULL);
    CHECK(held.got == DLOCK_OK);
    {
        DLOCK_SCOPED(mine, client, "n", 20, NULL);
        CHECK(mine.got == DLOCK_TIMEOUT && mine.lock != NULL);
        DLOCK_SCOPED(wrong, client, "", 0, NULL);
        CHECK(wrong.got == DLOCK_INVALID && wrong.lock == NULL);
    }
    CHECK(is_held("n"));
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    dlock_client_options options = options_for((const char *const[]){argv[1]}, 1);
    CHECK(dlock_client_new(&client, &options) == DLOCK_OK);
    CHECK(dlock_client_new(&other, &options) == DLOCK_OK);
    int code = run_fact(argv[2]);
    CHECK(!is_held("n"));
    dlock_client_free(other);
    dlock_client_free(client);
    return code;
}
