/* SPDX-License-Identifier: BSD-3-Clause */
/* hotspot_test.c - the local layer before a service that is faked, in a world with one thread.
 *
 * The clock moves only while somebody sleeps or the service takes its time. What the other threads
 * do meanwhile is done by whoever sleeps: the next of world.meanwhile, with the lock it is about.
 * When nothing is left to be done, the sleeper sleeps until its deadline.
 *
 * A handle is a claim with its slots, like lock.c has it. The service grants with its next fence,
 * unless it has a status to say; and it counts. */
#include "hotspot.h"

#include "chain.h"
#include "deadline.h"
#include "text.h"
#include "unit.h"
#include "validity.h"

#define START_US INT64_C(5000000)
#define MS       INT64_C(1000)

enum { HANDLES = 64, EVENTS_MAX = 16, LEASE_MS = 10000, WAIT_MS = 1000, NAMES = 100 };

typedef struct handle {
    claim of;
    void *slots[2];
    char name[16];
    dlock_status status; /* of the last call */
} handle;

typedef struct event {
    void (*function)(handle *who);
    handle *who;
} event;

static struct {
    int64_t now_us;
    event meanwhile[EVENTS_MAX];
    size_t planned, done;

    /* The service. */
    dlock_status says;
    int64_t takes_us;
    uint32_t attempts_each;
    int acquires, releases, extends;
    uint64_t fence;
    handle *tries_meanwhile; /* while it is about to answer a release */
    bool is_asked;           /* false: one before it answers, so that nobody was asked */

    hotspot *layer;
    chain *all;
    handle handles[HANDLES];
    size_t taken;
    int tokens;
    atomic_bool is_canceled;
} world;

/* -- the environment */

static int64_t fake_now_us(const environment *self) {
    (void)self;
    return world.now_us;
}

static void fake_sleep_until(const environment *self, int64_t at_us, int wake_fd) {
    (void)self, (void)wake_fd;
    if (world.done < world.planned) {
        event next = world.meanwhile[world.done++];
        next.function(next.who);
    } else {
        world.now_us = at_us;
    }
}

static const environment env = {.now_us = fake_now_us, .sleep_until = fake_sleep_until};

static void meanwhile(void (*function)(handle *who), handle *who) {
    world.meanwhile[world.planned++] = (event){function, who};
}

/* -- the service */

static void try(handle *who);

/* It is told of a release; before it answers, somebody else tries. */
static void tell_sent(claim *of) {
    if (of->on_sent != NULL) of->on_sent(of->on_sent_arg);
    handle *other = world.tries_meanwhile;
    world.tries_meanwhile = NULL;
    if (other != NULL) try(other);
}

static dlock_status serve(void *arg, dlock_call *call, dlock_chain *rest) {
    (void)arg, (void)rest;
    if (world.is_asked && call->remote_us == 0) call->remote_us = world.now_us;
    call->asked_us = world.now_us;
    world.now_us += world.takes_us;
    if (call->operation == DLOCK_RELEASING) {
        world.releases++;
        tell_sent((claim *)call);
        return world.says;
    }
    if (call->operation == DLOCK_EXTENDING) {
        world.extends++;
        return world.says;
    }
    world.acquires++;
    if (world.is_asked) call->attempts += world.attempts_each;
    if (world.says == DLOCK_OK) call->fence = ++world.fence;
    return world.says;
}

/* -- setting the stage */

static void begin(hotspot_rule rule) {
    memset(&world, 0, sizeof(world));
    world.now_us = START_US;
    world.attempts_each = 1;
    world.is_asked = true;
    world.layer = hotspot_new(&rule, &env);
    world.all = chain_new(2);
    dlock_handler local = hotspot_handler(world.layer);
    dlock_handler remote = {
        .struct_size = sizeof(remote), .order = DLOCK_ORDER_WAITING, .handle = serve};
    chain_add(world.all, &local);
    chain_add(world.all, &remote);
}

static void end(void) {
    CHECK_EQUAL((int64_t)world.done, (int64_t)world.planned);
    chain_free(world.all);
    hotspot_free(world.layer);
}

/* One that nobody uses by now: there are more than a case has at a time. */
static handle *handle_of(const char *name) {
    handle *made = &world.handles[world.taken++ % HANDLES];
    memset(made, 0, sizeof(*made));
    text_copy(made->name, sizeof(made->name), name);
    return made;
}

static void begin_call(handle *who, dlock_operation operation, uint32_t lease_ms, int64_t wait_ms) {
    dlock_call before = who->of.call;
    who->of = (claim){.call = {.operation = operation,
                               .name = who->name,
                               .lease_ms = lease_ms,
                               .started_us = world.now_us,
                               .deadline_us = deadline_after_ms(world.now_us, wait_ms)},
                      .stop = {.fd = -1, .is_requested = &world.is_canceled}};
    if (operation != DLOCK_ACQUIRING) {
        who->of.call.fence = before.fence;
        text_copy(who->of.call.token, sizeof(who->of.call.token), before.token);
    }
}

static dlock_status acquire_for(handle *who, uint32_t lease_ms, int64_t wait_ms) {
    begin_call(who, DLOCK_ACQUIRING, lease_ms, wait_ms);
    snprintf(who->of.call.token, sizeof(who->of.call.token), "token %d", ++world.tokens);
    return who->status = chain_run(world.all, &who->of, who->slots);
}

static void acquire(handle *who) {
    acquire_for(who, LEASE_MS, WAIT_MS);
}

static void try(handle *who) {
    acquire_for(who, LEASE_MS, 0);
}

static void release(handle *who) {
    begin_call(who, DLOCK_RELEASING, LEASE_MS, 0);
    who->status = chain_run(world.all, &who->of, who->slots);
}

static void extend(handle *who) {
    begin_call(who, DLOCK_EXTENDING, LEASE_MS, 0);
    who->status = chain_run(world.all, &who->of, who->slots);
}

static void cancel(handle *who) {
    (void)who;
    atomic_store(&world.is_canceled, true);
}

static void remove_name(handle *who) {
    hotspot_remove(world.layer, who->name);
}

static handle *holder_of(const char *name) {
    handle *made = handle_of(name);
    acquire(made);
    CHECK_EQUAL(made->status, DLOCK_OK);
    return made;
}

/* Asks once, with the service saying no. */
static void contend(const char *name) {
    dlock_status before = world.says;
    world.says = DLOCK_BUSY;
    try(handle_of(name));
    world.says = before;
}

/* A local lock is known by this: who only tries is refused without a word to the service. */
static bool is_local(const char *name) {
    handle *holder = holder_of(name), *other = handle_of(name);
    int before = world.acquires;
    dlock_status says = world.says;
    world.says = DLOCK_REFUSED;
    try(other);
    world.says = says;
    bool is_so = world.acquires == before;
    release(holder);
    return is_so;
}

/* -- releasing outside and inside */

static void where_there_is_a_queue_the_next_one_need_not_wait_for_the_answer(void) {
    begin((hotspot_rule){.queue_max = 10, .is_queued_outside = true});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n");
    world.tries_meanwhile = handle_of("n");
    handle *other = world.tries_meanwhile;
    release(one);
    CHECK_EQUAL(other->status, DLOCK_OK);
    release(other);
    CHECK(is_local("n"));
    end();
}

static void else_the_next_one_waits_for_the_answer(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *other = handle_of("n");
    world.tries_meanwhile = other;
    release(one);
    CHECK_EQUAL(other->status, DLOCK_BUSY);
    CHECK(is_local("n"));
    end();
}

/* -- which names */

static void without_names_all_go_out(void) {
    begin((hotspot_rule){.queue_max = 10});
    handle *one = holder_of("n");
    contend("n");
    CHECK_EQUAL(world.acquires, 2);
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 0);
    release(one);
    end();
}

static void a_registered_name_has_a_local_lock_and_others_have_none(void) {
    begin((hotspot_rule){.queue_max = 10});
    CHECK_EQUAL(hotspot_add(world.layer, "n"), DLOCK_OK);
    CHECK_EQUAL(hotspot_add(world.layer, "n"), DLOCK_OK);
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 1);
    CHECK(is_local("n"));
    CHECK(!is_local("m"));
    CHECK(!is_local("n2"));
    hotspot_remove(world.layer, "m");
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 1);
    hotspot_remove(world.layer, "n");
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 0);
    CHECK(!is_local("n"));
    end();
}

static void as_many_names_as_one_likes_can_be_registered_and_removed(void) {
    char name[16];
    begin((hotspot_rule){.queue_max = 10});
    for (int i = 0; i < NAMES * 10; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        CHECK_EQUAL(hotspot_add(world.layer, name), DLOCK_OK);
    }
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), NAMES * 10);
    for (int i = 0; i < NAMES * 10; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        CHECK(is_local(name));
        hotspot_remove(world.layer, name);
        CHECK(!is_local(name));
    }
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 0);
    end();
}

/* -- found by contention */

static void check_found(dlock_status says, uint32_t attempts, int64_t takes_us, bool is_expected) {
    begin((hotspot_rule){.auto_max = 2, .queue_max = 10});
    world.says = says;
    world.attempts_each = attempts;
    world.takes_us = takes_us;
    handle *who = handle_of("n");
    acquire(who);
    CHECK_EQUAL(who->status, says);
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), is_expected);
    end();
}

static void a_name_is_contended_when_it_was_busy_or_asked_for_again_or_took_long(void) {
    check_found(DLOCK_BUSY, 1, 0, true);
    check_found(DLOCK_TIMEOUT, 1, 0, true);
    check_found(DLOCK_OK, 2, 0, true);
    check_found(DLOCK_OK, 1, 6 * MS, true);
    check_found(DLOCK_OK, 1, 4 * MS, false);
    check_found(DLOCK_OK, 1, 0, false);
    check_found(DLOCK_REFUSED, 1, 0, false);
}

static void who_waits_here_for_long_has_not_found_the_name_again(void) {
    begin((hotspot_rule){.auto_max = 2, .queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *holder = holder_of("n");
    acquire(handle_of("n"));
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 1);
    hotspot_remove(world.layer, "n");
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 0);
    release(holder);
    end();
}

static void without_auto_nothing_is_found(void) {
    begin((hotspot_rule){.queue_max = 10});
    contend("n");
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 0);
    end();
}

static void no_more_names_are_found_than_allowed(void) {
    char name[16];
    begin((hotspot_rule){.auto_max = 3, .queue_max = 10});
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        contend(name);
        CHECK_EQUAL((int64_t)hotspot_count(world.layer), i < 3 ? i + 1 : 3);
    }
    CHECK(is_local("n97") && is_local("n98") && is_local("n99"));
    CHECK(!is_local("n96"));
    end();
}

static void the_name_that_was_used_least_recently_leaves_first(void) {
    begin((hotspot_rule){.auto_max = 3, .queue_max = 10});
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

static void a_name_that_is_held_or_awaited_does_not_leave(void) {
    begin((hotspot_rule){.auto_max = 2, .queue_max = 10});
    contend("a");
    contend("b");
    handle *a = holder_of("a"), *b = holder_of("b");
    contend("c");
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 2);
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

static void registered_names_do_not_count_and_do_not_leave(void) {
    begin((hotspot_rule){.auto_max = 1, .queue_max = 10});
    contend("a");
    hotspot_add(world.layer, "a"); /* from now on it stays */
    hotspot_add(world.layer, "r");
    contend("b");
    contend("c");
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 3);
    CHECK(is_local("a") && is_local("r") && is_local("c"));
    CHECK(!is_local("b"));
    end();
}

/* -- in line */

static void who_waits_gets_it_when_it_is_given_back(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(release, one);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.acquires, 2);
    CHECK_EQUAL(world.releases, 1);
    CHECK(two->of.call.fence > one->of.call.fence);
    release(two);
    CHECK(is_local("n"));
    end();
}

static void who_came_first_is_served_first(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    meanwhile(acquire, three); /* while two sleeps; and while three sleeps: */
    meanwhile(release, one);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(three->status, DLOCK_TIMEOUT);
    release(two);
    end();
}

static void a_wait_in_line_ends_at_the_deadline(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    CHECK_EQUAL(world.now_us, START_US + WAIT_MS * MS);
    CHECK_EQUAL(two->of.call.attempts, 0);
    CHECK_EQUAL(two->of.call.remote_us, 0);
    CHECK(two->of.call.cause[0] != '\0');
    CHECK_EQUAL(world.acquires, 1);
    release(one);
    CHECK(is_local("n"));
    end();
}

static void a_wait_in_line_can_be_canceled(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(cancel, two);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_CANCELED);
    CHECK_EQUAL(world.now_us, START_US);
    atomic_store(&world.is_canceled, false);
    release(one);
    CHECK(is_local("n"));
    end();
}

static void who_leaves_the_middle_of_the_line_leaves_the_others_in_it(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    handle *four = handle_of("n");
    meanwhile(try, four); /* it is refused, and is not in line */
    meanwhile(acquire, three);
    /* Three sleeps until its deadline, which is that of two as well: both leave. */
    acquire(two);
    CHECK_EQUAL(four->status, DLOCK_BUSY);
    CHECK_EQUAL(three->status, DLOCK_TIMEOUT);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    meanwhile(release, one);
    acquire(four);
    CHECK_EQUAL(four->status, DLOCK_OK);
    release(four);
    CHECK(is_local("n"));
    end();
}

static void a_line_that_is_full_refuses_at_once(void) {
    begin((hotspot_rule){.queue_max = 1});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n"), *three = handle_of("n");
    meanwhile(acquire, three);
    meanwhile(release, one);
    acquire(two);
    CHECK_EQUAL(three->status, DLOCK_QUEUE_FULL);
    CHECK(three->of.call.cause[0] != '\0');
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.now_us, START_US);
    release(two);
    end();
}

static void a_refusal_by_the_service_frees_the_local_lock(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 5});
    hotspot_add(world.layer, "n");
    handle *one = handle_of("n");
    world.says = DLOCK_TIMEOUT;
    acquire(one);
    CHECK_EQUAL(one->status, DLOCK_TIMEOUT);
    world.says = DLOCK_OK;
    CHECK(is_local("n"));
    end();
}

static void a_release_that_fails_outside_frees_the_local_lock_too(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n");
    world.says = DLOCK_IN_DOUBT;
    release(one);
    CHECK_EQUAL(one->status, DLOCK_IN_DOUBT);
    world.says = DLOCK_OK;
    CHECK(is_local("n"));
    end();
}

/* -- removed meanwhile */

static void a_name_that_is_removed_while_it_is_held_harms_nobody(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(remove_name, one);
    meanwhile(try, handle_of("n")); /* goes out now */
    meanwhile(release, one);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.acquires, 3);
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 0);
    release(two);
    CHECK_EQUAL(two->status, DLOCK_OK);
    CHECK_EQUAL(world.releases, 2);
    end();
}

static void a_name_that_is_removed_and_added_again_begins_anew(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n");
    hotspot_remove(world.layer, "n");
    hotspot_add(world.layer, "n");
    handle *two = holder_of("n"); /* the service has granted it twice: it is no business of ours */
    CHECK_EQUAL(world.acquires, 2);
    release(one);
    try(handle_of("n")); /* two has it still */
    CHECK_EQUAL(world.acquires, 2);
    release(two);
    CHECK(is_local("n"));
    end();
}

static void a_name_that_is_removed_while_all_wait_in_vain_is_gone_at_the_end(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(remove_name, one);
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    release(one); /* a leak would be seen by the sanitizer */
    end();
}

/* -- hand-on */

/* One holds it, and two gets it while it waits for lease_ms. */
static void hand_over(handle *one, handle *two, uint32_t lease_ms) {
    meanwhile(release, one);
    CHECK_EQUAL(acquire_for(two, lease_ms, WAIT_MS), DLOCK_OK);
}

static bool is_same_lock(const handle *one, const handle *two) {
    return one->of.call.fence == two->of.call.fence &&
           strcmp(one->of.call.token, two->of.call.token) == 0;
}

static void without_hand_on_every_release_goes_out(void) {
    begin((hotspot_rule){.queue_max = 10});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.releases, 1);
    CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), 0);
    release(two);
    end();
}

static void a_lock_is_handed_on_so_many_times_in_a_row(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *holder = holder_of("n");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            handle *next = handle_of("n");
            hand_over(holder, next, LEASE_MS);
            CHECK_EQUAL(holder->status, DLOCK_OK);
            CHECK_EQUAL(is_same_lock(holder, next), i < 3);
            holder = next;
        }
        CHECK_EQUAL(world.acquires, round + 2);
        CHECK_EQUAL(world.releases, round + 1);
        CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), (round + 1) * 3);
    }
    release(holder);
    end();
}

static void nobody_in_line_means_that_the_lock_is_given_back(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    release(holder_of("n"));
    CHECK_EQUAL(world.releases, 1);
    handle *one = holder_of("n"), *two = handle_of("n");
    hand_over(one, two, LEASE_MS);
    release(two);
    CHECK_EQUAL(world.releases, 2);
    CHECK_EQUAL(world.acquires, 2);
    end();
}

static void the_row_begins_again_after_the_lock_was_given_back(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 1});
    hotspot_add(world.layer, "n");
    for (int i = 1; i <= 5; i++) {
        handle *one = holder_of("n"), *two = handle_of("n");
        hand_over(one, two, LEASE_MS);
        release(two);
        CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), i);
    }
    end();
}

/* The lock has been held for so long when it is handed on to one who wants lease_ms. */
static bool is_asked_for_again(int64_t held_us, uint32_t lease_ms) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    int64_t asked_us = one->of.call.asked_us;
    world.now_us += held_us;
    hand_over(one, two, lease_ms);
    bool is_again = world.acquires == 2;
    CHECK_EQUAL(world.releases, 0);
    CHECK(strcmp(two->of.call.token, one->of.call.token) == 0); /* so that it is renewed */
    CHECK_EQUAL(two->of.is_sent, is_again);
    if (!is_again) {
        CHECK(is_same_lock(one, two));
        CHECK_EQUAL(two->of.call.lease_ms, LEASE_MS); /* what is left of the one before */
        CHECK_EQUAL(two->of.call.asked_us, asked_us);
        CHECK_EQUAL(two->of.call.remote_us, 0);
        CHECK_EQUAL(two->of.call.attempts, 0);
    } else {
        CHECK_EQUAL(two->of.call.lease_ms, lease_ms);
        CHECK_EQUAL(two->of.call.asked_us, world.now_us);
    }
    release(two);
    end();
    return is_again;
}

static void half_of_the_lease_that_is_asked_for_must_be_left(void) {
    int64_t valid_us = validity_end_us(0, LEASE_MS);
    CHECK(!is_asked_for_again(0, LEASE_MS));
    CHECK(!is_asked_for_again(valid_us - LEASE_MS / 2 * MS, LEASE_MS));
    CHECK(is_asked_for_again(valid_us - LEASE_MS / 2 * MS + 1, LEASE_MS));
    CHECK(is_asked_for_again(0, LEASE_MS * 2));
    CHECK(!is_asked_for_again(0, LEASE_MS));
    CHECK(!is_asked_for_again(valid_us - 5 * MS, 10));
    CHECK(is_asked_for_again(valid_us - 5 * MS + 1, 10));
}

static void a_lease_that_has_ended_is_not_handed_on(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.now_us = validity_end_us(START_US, LEASE_MS);
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.releases, 1);
    CHECK(!is_same_lock(one, two));
    CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), 0);
    release(two);
    end();
}

static void an_extended_lease_is_handed_on_as_it_is(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.now_us += 9000 * MS;
    extend(one);
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.acquires, 1);
    CHECK_EQUAL(two->of.call.asked_us, START_US + 9000 * MS);
    release(two);
    end();
}

static void an_extension_that_failed_leaves_the_lease_as_it_was(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.now_us += 9000 * MS;
    world.says = DLOCK_UNREACHABLE;
    extend(one);
    world.says = DLOCK_OK;
    hand_over(one, two, LEASE_MS);
    CHECK_EQUAL(world.acquires, 2); /* one second is not enough */
    release(two);
    end();
}

static void a_renewal_that_fails_is_left_to_be_withdrawn_and_the_next_one_goes_out(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.now_us += 9000 * MS;
    meanwhile(release, one);
    world.says = DLOCK_TIMEOUT;
    acquire(two);
    CHECK_EQUAL(two->status, DLOCK_TIMEOUT);
    CHECK(two->of.is_sent);
    CHECK(strcmp(two->of.call.token, one->of.call.token) == 0);
    world.says = DLOCK_OK;
    handle *three = holder_of("n");
    CHECK(strcmp(three->of.call.token, one->of.call.token) != 0);
    CHECK(!three->of.is_sent);
    release(three);
    end();
}

static void a_name_that_is_removed_is_still_handed_on_to_those_in_line(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    meanwhile(remove_name, one);
    hand_over(one, two, LEASE_MS);
    CHECK(is_same_lock(one, two));
    release(two);
    CHECK_EQUAL(world.releases, 1);
    end();
}

static void a_lock_that_an_extend_found_lost_is_not_handed_on(void) {
    begin((hotspot_rule){.queue_max = 10, .hand_on = 3});
    hotspot_add(world.layer, "n");
    handle *one = holder_of("n"), *two = handle_of("n");
    world.says = DLOCK_LOST;
    extend(one);
    world.says = DLOCK_OK;
    hand_over(one, two, LEASE_MS);
    CHECK(!is_same_lock(one, two));
    CHECK_EQUAL((int64_t)hotspot_hand_ons(world.layer), 0);
    CHECK_EQUAL(world.acquires, 2);
    release(two);
    end();
}

static void a_call_that_never_went_out_has_not_found_contention(void) {
    begin((hotspot_rule){.auto_max = 2, .queue_max = 10});
    world.is_asked = false; /* a handler between answers, or it was canceled before */
    world.says = DLOCK_CANCELED;
    acquire(handle_of("n"));
    world.says = DLOCK_OK;
    acquire(handle_of("m"));
    CHECK_EQUAL((int64_t)hotspot_count(world.layer), 0);
    end();
}

static void a_slow_failure_is_not_contention(void) {
    check_found(DLOCK_UNREACHABLE, 1, 1000 * MS, false);
}

int main(void) {
    UNIT_RUN(a_lock_that_an_extend_found_lost_is_not_handed_on);
    UNIT_RUN(a_call_that_never_went_out_has_not_found_contention);
    UNIT_RUN(a_slow_failure_is_not_contention);
    UNIT_RUN(where_there_is_a_queue_the_next_one_need_not_wait_for_the_answer);
    UNIT_RUN(else_the_next_one_waits_for_the_answer);
    UNIT_RUN(without_names_all_go_out);
    UNIT_RUN(a_registered_name_has_a_local_lock_and_others_have_none);
    UNIT_RUN(as_many_names_as_one_likes_can_be_registered_and_removed);
    UNIT_RUN(a_name_is_contended_when_it_was_busy_or_asked_for_again_or_took_long);
    UNIT_RUN(who_waits_here_for_long_has_not_found_the_name_again);
    UNIT_RUN(without_auto_nothing_is_found);
    UNIT_RUN(no_more_names_are_found_than_allowed);
    UNIT_RUN(the_name_that_was_used_least_recently_leaves_first);
    UNIT_RUN(a_name_that_is_held_or_awaited_does_not_leave);
    UNIT_RUN(registered_names_do_not_count_and_do_not_leave);
    UNIT_RUN(who_waits_gets_it_when_it_is_given_back);
    UNIT_RUN(who_came_first_is_served_first);
    UNIT_RUN(a_wait_in_line_ends_at_the_deadline);
    UNIT_RUN(a_wait_in_line_can_be_canceled);
    UNIT_RUN(who_leaves_the_middle_of_the_line_leaves_the_others_in_it);
    UNIT_RUN(a_line_that_is_full_refuses_at_once);
    UNIT_RUN(a_refusal_by_the_service_frees_the_local_lock);
    UNIT_RUN(a_release_that_fails_outside_frees_the_local_lock_too);
    UNIT_RUN(a_name_that_is_removed_while_it_is_held_harms_nobody);
    UNIT_RUN(a_name_that_is_removed_and_added_again_begins_anew);
    UNIT_RUN(a_name_that_is_removed_while_all_wait_in_vain_is_gone_at_the_end);
    UNIT_RUN(without_hand_on_every_release_goes_out);
    UNIT_RUN(a_lock_is_handed_on_so_many_times_in_a_row);
    UNIT_RUN(nobody_in_line_means_that_the_lock_is_given_back);
    UNIT_RUN(the_row_begins_again_after_the_lock_was_given_back);
    UNIT_RUN(half_of_the_lease_that_is_asked_for_must_be_left);
    UNIT_RUN(a_lease_that_has_ended_is_not_handed_on);
    UNIT_RUN(an_extended_lease_is_handed_on_as_it_is);
    UNIT_RUN(an_extension_that_failed_leaves_the_lease_as_it_was);
    UNIT_RUN(a_renewal_that_fails_is_left_to_be_withdrawn_and_the_next_one_goes_out);
    UNIT_RUN(a_name_that_is_removed_is_still_handed_on_to_those_in_line);
    return unit_summary();
}
