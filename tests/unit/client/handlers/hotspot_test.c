/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot_test.c - which names have a local lock. */
#include "hotspot_world.h"

/* -- which names */

TEST(without_names_all_go_out) {
    begin((hotspot){.queue_max = 10});
    handle *one = holder_of("n");
    contend("n");
    CHECK_EQUAL(world.acquires, 2);
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 0);
    release(one);
    end();
}

TEST(a_registered_name_has_a_local_lock_and_others_have_none) {
    begin((hotspot){.queue_max = 10});
    CHECK(hot_names_add(&world.layer.names, "n"));
    CHECK(hot_names_add(&world.layer.names, "n"));
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 1);
    CHECK(is_local("n"));
    CHECK(!is_local("m"));
    CHECK(!is_local("n2"));
    hot_names_remove(&world.layer.names, "m");
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 1);
    hot_names_remove(&world.layer.names, "n");
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 0);
    CHECK(!is_local("n"));
    end();
}

TEST(as_many_names_as_one_likes_can_be_registered_and_removed) {
    char name[16];
    begin((hotspot){.queue_max = 10});
    for (int i = 0; i < NAMES * 10; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        CHECK(hot_names_add(&world.layer.names, name));
    }
    CHECK_EQUAL(atomic_load(&world.layer.names.count), NAMES * 10);
    for (int i = 0; i < NAMES * 10; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        CHECK(is_local(name));
        hot_names_remove(&world.layer.names, name);
        CHECK(!is_local(name));
    }
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 0);
    end();
}

/* -- found by contention */

static void check_found(dlock_status says, uint32_t attempts, int64_t takes_us, bool is_expected) {
    begin((hotspot){.names.auto_max = 2, .queue_max = 10});
    world.says = says;
    world.attempts_each = attempts;
    world.takes_us = takes_us;
    handle *asker = handle_of("n");
    acquire(asker);
    CHECK_EQUAL(asker->status, says);
    CHECK_EQUAL(atomic_load(&world.layer.names.count), is_expected);
    end();
}

TEST(a_name_is_contended_when_it_was_busy_or_asked_for_again_or_took_long) {
    check_found(DLOCK_BUSY, 1, 0, true);
    check_found(DLOCK_TIMEOUT, 1, 0, true);
    check_found(DLOCK_OK, 2, 0, true);
    check_found(DLOCK_OK, 1, 6 * MS, true);
    check_found(DLOCK_OK, 1, 4 * MS, false);
    check_found(DLOCK_OK, 1, 0, false);
    check_found(DLOCK_REFUSED, 1, 0, false);
}

TEST(a_call_that_waits_here_for_long_has_not_found_the_name_again) {
    begin((hotspot){.names.auto_max = 2, .queue_max = 10});
    hot_names_add(&world.layer.names, "n");
    handle *holder = holder_of("n");
    acquire(handle_of("n"));
    CHECK(after_start_us(fake.now_us) >= WAIT_MS * MS);
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 1);
    hot_names_remove(&world.layer.names, "n");
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 0);
    release(holder);
    end();
}

TEST(without_auto_nothing_is_found) {
    begin((hotspot){.queue_max = 10});
    contend("n");
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 0);
    end();
}

TEST(no_more_names_are_found_than_allowed) {
    char name[16];
    begin((hotspot){.names.auto_max = 3, .queue_max = 10});
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        contend(name);
        CHECK_EQUAL(atomic_load(&world.layer.names.count), i < 3 ? i + 1 : 3);
    }
    CHECK(is_local("n97") && is_local("n98") && is_local("n99"));
    CHECK(!is_local("n96"));
    end();
}

TEST(the_name_that_was_used_least_recently_leaves_first) {
    begin((hotspot){.names.auto_max = 3, .queue_max = 10});
    contend("a");
    contend("b");
    contend("c");
    release(holder_of("a"));
    contend("d");
    CHECK(!is_local("b"));
    contend("c"); /* it is there already: only used */
    contend("e");
    CHECK(!is_local("a"));
    CHECK(is_local("c") && is_local("d") && is_local("e"));
    end();
}

TEST(a_name_that_is_held_or_awaited_does_not_leave) {
    begin((hotspot){.names.auto_max = 2, .queue_max = 10});
    contend("a");
    contend("b");
    handle *a = holder_of("a"), *b = holder_of("b");
    contend("c");
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 2);
    try(handle_of("a"));
    CHECK_EQUAL(world.acquires, 5);
    release(b);
    contend("c");
    CHECK(is_local("c"));
    CHECK(!is_local("b"));
    release(a);
    CHECK(is_local("a"));
    end();
}

TEST(registered_names_do_not_count_and_do_not_leave) {
    begin((hotspot){.names.auto_max = 1, .queue_max = 10});
    contend("a");
    hot_names_add(&world.layer.names, "a"); /* from now on it stays */
    hot_names_add(&world.layer.names, "r");
    contend("b");
    contend("c");
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 3);
    CHECK(is_local("a") && is_local("r") && is_local("c"));
    CHECK(!is_local("b"));
    end();
}

TEST(a_call_that_never_went_out_has_not_found_contention) {
    begin((hotspot){.names.auto_max = 2, .queue_max = 10});
    world.is_asked = false; /* a handler between answers, or it was canceled before */
    world.says = DLOCK_CANCELED;
    acquire(handle_of("n"));
    world.says = DLOCK_OK;
    acquire(handle_of("m"));
    CHECK_EQUAL(atomic_load(&world.layer.names.count), 0);
    end();
}

TEST(a_slow_failure_is_not_contention) {
    check_found(DLOCK_UNREACHABLE, 1, 1000 * MS, false);
}

TEST(contention_of_shared_claims_makes_no_local_lock) {
    begin((hotspot){.queue_max = 10, .names.auto_max = 2});
    world.says = DLOCK_BUSY;
    for (int i = 0; i < 10; i++)
        try(reader_of("n"));
    world.says = DLOCK_OK;
    CHECK(!is_local("n"));
    end();
}

int main(void) {
    return unit_main(NULL, NULL);
}
