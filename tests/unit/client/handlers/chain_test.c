/* SPDX-License-Identifier: BSD-3-Clause */
/* chain_test.c - the way of a call through handlers.
 *
 * Each handler writes down what happens to it: " a(" when it lets the call pass, " a!" when it
 * answers, " a~" when it suspends the call, and " )a" when the call comes back, with the status if
 * that is not DLOCK_OK: " )a4". */
#include "handlers/chain.h"

#include "unit.h"
#include <sched.h>
#include <unistd.h>

enum { ROOM = 8 };

typedef struct actor {
    const char *name;
    dlock_step step;      /* what enter() returns once it does not suspend */
    dlock_status answer;  /* of DLOCK_ANSWER */
    int suspends;         /* this many times before that */
    dlock_status changed; /* not DLOCK_OK: leave() changes the status into this */
    bool is_granting;     /* leave() changes the status into DLOCK_OK */
    void *mark;           /* not NULL: enter() puts it into the slot */
    void *found, *left;   /* in the slot, at enter() and leave() */
    dlock_operation operation;
} actor;

static actor passing(const char *name) {
    return (actor){.name = name};
}

static actor answering(const char *name, dlock_status answer) {
    return (actor){.name = name, .step = DLOCK_ANSWER, .answer = answer};
}

static actor suspending(const char *name, int times) {
    return (actor){.name = name, .suspends = times};
}

static char trace[512];

static void note(const char *before, const char *name, const char *after) {
    size_t length = strlen(trace);
    snprintf(trace + length, sizeof(trace) - length, "%s%s%s", before, name, after);
}

static dlock_step enter(void *arg, dlock_call *call) {
    actor *self = arg;
    self->operation = call->operation;
    self->found = *call->slot;
    if (self->mark != NULL) *call->slot = self->mark;
    if (self->suspends > 0) {
        self->suspends--;
        note(" ", self->name, "~");
        return DLOCK_SUSPEND;
    }
    note(" ", self->name, self->step == DLOCK_ANSWER ? "!" : "(");
    if (self->step == DLOCK_ANSWER) call->status = self->answer;
    return self->step;
}

static void leave(void *arg, dlock_call *call) {
    char status[8] = "";
    actor *self = arg;
    self->left = *call->slot;
    if (call->status != DLOCK_OK) snprintf(status, sizeof(status), "%d", (int)call->status);
    note(" )", self->name, status);
    if (self->changed != DLOCK_OK) call->status = self->changed;
    if (self->is_granting) call->status = DLOCK_OK;
}

static dlock_handler handler_of(actor *actor, int order) {
    return (dlock_handler){.struct_size = sizeof(dlock_handler),
                           .order = order,
                           .arg = actor,
                           .enter = enter,
                           .leave = leave};
}

static chain *chain_of(const dlock_handler *handlers, size_t count) {
    chain *made = chain_new(count);
    CHECK(made != NULL);
    for (size_t i = 0; made != NULL && i < count; i++)
        chain_add(made, handlers[i], true);
    return made;
}

/* Advances a suspended call again and again, like a thread that is woken for nothing. */
static dlock_status run_with(const dlock_handler *handlers, size_t count, void **slots,
                             dlock_operation operation) {
    call call = {.pub = {.operation = operation, .name = "name"}, .slots = slots};
    chain *made = chain_of(handlers, count);
    trace[0] = '\0';
    chain_begin(&call);
    while (!chain_advance(made, &call))
        continue;
    free(made);
    return call.pub.status;
}

static dlock_status run(const dlock_handler *handlers, size_t count) {
    void *slots[ROOM] = {NULL};
    return run_with(handlers, count, slots, DLOCK_ACQUIRING);
}

#define CHECK_TRACE(expected) CHECK_TEXT(trace, expected)

/* Handlers "a b!4 c~2", in that order: a passes, b answers with status 4, c suspends twice before
 * it passes; ">4" changes the status into 4 on the way out; "-e" has no enter(), "-l" no
 * leave(). */
static dlock_status run_line(const char *line, dlock_operation operation) {
    static actor actors[ROOM];
    static char names[ROOM][2];
    dlock_handler handlers[ROOM];
    void *slots[ROOM] = {NULL};
    size_t count = 0;
    for (const char *at = line; *at != '\0'; at++) {
        actor *actor = &actors[count > 0 ? count - 1 : 0];
        dlock_handler *handler = &handlers[count > 0 ? count - 1 : 0];
        if (*at >= 'a' && *at <= 'z') {
            names[count][0] = *at;
            actors[count] = passing(names[count]);
            handlers[count] = handler_of(&actors[count], (int)count);
            count++;
        } else if (*at == '!') {
            actor->step = DLOCK_ANSWER;
            actor->answer = (dlock_status)strtol(at + 1, NULL, 10);
        } else if (*at == '~') {
            actor->suspends = (int)strtol(at + 1, NULL, 10);
        } else if (*at == '>') {
            actor->changed = (dlock_status)strtol(at + 1, NULL, 10);
            actor->is_granting = actor->changed == DLOCK_OK;
        } else if (*at == '-' && *++at == 'e') {
            handler->enter = NULL;
        } else if (*at == 'l') {
            handler->leave = NULL;
        }
    }
    return run_with(handlers, count, slots, operation);
}

static void check_way(const char *line, dlock_status status, const char *expected) {
    dlock_status actual = run_line(line, DLOCK_ACQUIRING);
    if (actual != status || strcmp(trace, expected) != 0) printf("    \"%s\"\n", line);
    CHECK_EQUAL(actual, status);
    CHECK_TRACE(expected);
}

/* -- order */

TEST(handlers_are_passed_by_their_order_not_as_given) {
    actor a = passing("a"), b = passing("b"), c = answering("c", DLOCK_OK);
    const dlock_handler given[] = {handler_of(&c, 3000), handler_of(&a, -7), handler_of(&b, 100)};
    CHECK_EQUAL(run(given, 3), DLOCK_OK);
    CHECK_TRACE(" a( b( c! )b )a");
}

TEST(handlers_of_the_same_order_are_passed_as_given) {
    actor a = passing("a"), b = passing("b"), c = passing("c"), d = answering("d", DLOCK_OK);
    const dlock_handler given[] = {handler_of(&d, 6), handler_of(&a, 5), handler_of(&b, 5),
                                   handler_of(&c, 5)};
    CHECK_EQUAL(run(given, 4), DLOCK_OK);
    CHECK_TRACE(" a( b( c( d! )c )b )a");
}

TEST(every_order_of_giving_them_leads_to_the_same_chain) {
    actor a = passing("a"), b = passing("b"), c = passing("c"), d = answering("d", DLOCK_OK);
    const dlock_handler all[] = {handler_of(&a, INT32_MIN), handler_of(&b, 0), handler_of(&c, 1),
                                 handler_of(&d, INT32_MAX)};
    for (int i = 0; i < 256; i++) {
        int at[] = {i & 3, i >> 2 & 3, i >> 4 & 3, i >> 6};
        bool is_permutation = (1 << at[0] | 1 << at[1] | 1 << at[2] | 1 << at[3]) == 15;
        if (!is_permutation) continue;
        const dlock_handler given[] = {all[at[0]], all[at[1]], all[at[2]], all[at[3]]};
        run(given, 4);
        CHECK_TRACE(" a( b( c( d! )c )b )a");
    }
}

TEST(the_chain_has_a_copy_of_the_handler) {
    actor a = answering("a", DLOCK_OK), other = answering("other", DLOCK_BUSY);
    void *slots[ROOM] = {NULL};
    call call = {.pub = {.operation = DLOCK_ACQUIRING}, .slots = slots};
    dlock_handler given = handler_of(&a, 1);
    chain *made = chain_of(&given, 1);
    given = handler_of(&other, 1);
    CHECK_EQUAL(made->count, 1);
    chain_begin(&call);
    CHECK(chain_advance(made, &call));
    CHECK_EQUAL(call.pub.status, DLOCK_OK);
    free(made);
}

TEST(a_call_that_no_handler_answers_is_a_mistake) {
    check_way("a", DLOCK_INVALID, " a( )a104");
}

/* -- answers */

TEST(nothing_behind_hears_of_a_call_that_was_answered) {
    check_way("a b!1 c d!0", DLOCK_BUSY, " a( b! )a1");
    check_way("a b!0 c d!0", DLOCK_OK, " a( b! )a");
}

TEST(all_that_let_the_call_pass_see_the_answer_the_last_one_first) {
    check_way("a b c d!102 e", DLOCK_REFUSED, " a( b( c( d! )c102 )b102 )a102");
}

TEST(a_first_handler_that_answers_tells_nobody) {
    check_way("a!1 b", DLOCK_BUSY, " a!");
}

TEST(a_handler_without_enter_is_passed_by_and_still_left) {
    check_way("a-e b c!2", DLOCK_TIMEOUT, " b( c! )b2 )a2");
}

TEST(a_handler_without_leave_or_with_neither_changes_nothing) {
    check_way("a b-l c-e-l d!1", DLOCK_BUSY, " a( b( d! )a1");
}

TEST(removing_one_changes_nothing_for_the_others) {
    check_way("b c d!4", DLOCK_LOST, " b( c( d! )c4 )b4");
    check_way("a c d!4", DLOCK_LOST, " a( c( d! )c4 )a4");
    check_way("a b d!4", DLOCK_LOST, " a( b( d! )b4 )a4");
}

/* -- changing the answer */

TEST(a_changed_status_is_what_those_before_see) {
    check_way("a b>1 c!101", DLOCK_BUSY, " a( b( c! )b101 )a1");
}

TEST(a_lock_that_was_granted_stays_so_whatever_a_handler_says) {
    check_way("a>102 b>0 c d!1", DLOCK_OK, " a( b( c( d! )c1 )b1 )a");
    CHECK_EQUAL(run_line("a>102 b>0 c d!1", DLOCK_RELEASING), DLOCK_REFUSED);
}

/* -- suspending */

TEST(a_handler_that_suspends_is_entered_again_and_no_other_is) {
    check_way("a b~3 c!0", DLOCK_OK, " a( b~ b~ b~ b( c! )b )a");
}

TEST(each_handler_can_suspend) {
    check_way("a~1 b~1 c~2!4", DLOCK_LOST, " a~ a( b~ b( c~ c~ c! )b4 )a4");
}

TEST(a_call_stops_at_each_suspension_and_is_done_once) {
    void *slots[ROOM] = {NULL};
    actor a = suspending("a", 1), b = answering("b", DLOCK_OK);
    b.suspends = 1;
    const dlock_handler given[] = {handler_of(&a, 1), handler_of(&b, 2)};
    call call = {.pub = {.operation = DLOCK_ACQUIRING}, .slots = slots};
    chain *made = chain_of(given, 2);
    trace[0] = '\0';
    chain_begin(&call);
    CHECK(!chain_advance(made, &call));
    CHECK_TRACE(" a~");
    CHECK(!chain_advance(made, &call));
    CHECK_TRACE(" a~ a( b~");
    CHECK(chain_advance(made, &call));
    CHECK_TRACE(" a~ a( b~ b! )a");
    CHECK(chain_advance(made, &call)); /* nothing is left to be done */
    CHECK_TRACE(" a~ a( b~ b! )a");
    chain_begin(&call); /* the next call begins at the first handler */
    CHECK(chain_advance(made, &call));
    CHECK_TRACE(" a~ a( b~ b! )a a( b! )a");
    free(made);
}

TEST(a_new_call_finds_nothing_of_the_one_before) {
    void *slots[ROOM] = {NULL};
    call call = {.slots = slots};
    chain *made = chain_new(1);
    memset(&call.waiting, 1, sizeof(call.waiting));
    call.is_handed_on = true;
    chain_begin(&call);
    CHECK(call.waiting.phase == WAITING_IDLE && call.attempt.fate == TOKEN_UNHELD);
    CHECK(!call.is_handed_on && call.local.hot == NULL);
    free(made);
}

/* -- slots */

TEST(each_handler_has_a_slot_of_its_own_in_each_lock) {
    int marks[2];
    void *one[ROOM] = {NULL}, *other[ROOM] = {NULL};
    actor a = passing("a"), b = passing("b"), c = answering("c", DLOCK_OK);
    a.mark = &marks[0];
    c.mark = &marks[1];
    const dlock_handler given[] = {handler_of(&a, 1), handler_of(&b, 2), handler_of(&c, 3)};
    run_with(given, 3, one, DLOCK_ACQUIRING);
    CHECK(a.found == NULL && b.found == NULL && c.found == NULL);
    run_with(given, 3, one, DLOCK_RELEASING);
    CHECK(a.found == &marks[0] && b.found == NULL && c.found == &marks[1]);
    run_with(given, 3, other, DLOCK_ACQUIRING);
    CHECK(a.found == NULL && b.found == NULL && c.found == NULL);
    CHECK(one[3] == NULL && other[3] == NULL);
}

TEST(a_handler_finds_its_own_slot_on_the_way_out) {
    int marks[2];
    void *slots[ROOM] = {NULL};
    actor a = passing("a"), b = passing("b"), c = suspending("c", 1),
          d = answering("d", DLOCK_BUSY);
    a.mark = &marks[0];
    c.mark = &marks[1];
    const dlock_handler given[] = {handler_of(&a, 1), handler_of(&b, 2), handler_of(&c, 3),
                                   handler_of(&d, 4)};
    run_with(given, 4, slots, DLOCK_ACQUIRING);
    CHECK(a.left == &marks[0] && b.left == NULL && c.left == &marks[1]);
}

/* -- operations */

TEST(release_and_extend_take_the_same_way) {
    void *slots[ROOM] = {NULL};
    actor a = passing("a"), b = passing("b"), c = answering("c", DLOCK_LOST);
    const dlock_handler given[] = {handler_of(&a, 1), handler_of(&b, 2), handler_of(&c, 3)};
    const dlock_operation operations[] = {DLOCK_ACQUIRING, DLOCK_RELEASING, DLOCK_EXTENDING};
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQUAL(run_with(given, 3, slots, operations[i]), DLOCK_LOST);
        CHECK_TRACE(" a( b( c! )b4 )a4");
        CHECK(a.operation == operations[i] && c.operation == operations[i]);
    }
}

/* -- what a handler may ask */

TEST(a_call_that_is_resumed_is_ready) {
    call call = {.loop = loop_new(clock_system())};
    dlock_call_resume(&call.pub);
    loop_lock(call.loop);
    CHECK(call.waiter.is_ready);
    loop_wait(call.loop, &call.waiter); /* returns at once */
    CHECK(!call.waiter.is_ready);
    loop_unlock(call.loop);
    loop_free(call.loop);
}

/* Does not care about a cancel, and lets the call go on when the test says so. */
typedef struct stubborn {
    atomic_int enters;
    atomic_bool may_go_on;
} stubborn;

static dlock_step enter_stubborn(void *arg, dlock_call *call) {
    stubborn *self = arg;
    atomic_fetch_add(&self->enters, 1);
    if (!atomic_load(&self->may_go_on)) return DLOCK_SUSPEND;
    call->status = DLOCK_CANCELED;
    return DLOCK_ANSWER;
}

typedef struct running {
    chain *chain;
    call call;
} running;

static void *run_in_thread(void *arg) {
    running *running = arg;
    chain_begin(&running->call);
    chain_finish(running->chain, &running->call);
    return NULL;
}

static void wait_for_enters(stubborn *handler, int count) {
    while (atomic_load(&handler->enters) < count)
        sched_yield();
}

TEST(a_handler_that_ignores_a_cancel_is_not_entered_before_it_resumes_the_call) {
    stubborn stubborn = {0};
    void *slots[1] = {NULL};
    pthread_t thread;
    running running = {
        .chain = chain_new(1),
        .call = {.loop = loop_new(clock_system()), .slots = slots, .stop = CALL_CANCELABLE}};
    dlock_handler handler = {.arg = &stubborn, .enter = enter_stubborn};
    chain_add(running.chain, handler, true);
    CHECK(thread_start(&thread, run_in_thread, &running));
    wait_for_enters(&stubborn, 1);
    cancel_set(&running.call.cancel);
    loop_interrupt(running.call.loop);
    wait_for_enters(&stubborn, 2);
    usleep(20000); /* a thread that spins enters it some thousand times */
    atomic_store(&stubborn.may_go_on, true);
    dlock_call_resume(&running.call.pub);
    pthread_join(thread, NULL);
    CHECK_EQUAL(running.call.pub.status, DLOCK_CANCELED);
    CHECK_EQUAL(atomic_load(&stubborn.enters), 3);
    loop_free(running.call.loop);
    free(running.chain);
}

TEST(a_call_tells_whether_it_is_canceled) {
    call call = {.pub.started_us = 1, .loop = loop_new(clock_system()), .stop = CALL_CANCELABLE};
    CHECK(!dlock_call_is_canceled(&call.pub));
    loop_cancel(call.loop, true);
    CHECK(dlock_call_is_canceled(&call.pub));
    loop_cancel(call.loop, false);
    CHECK(dlock_call_is_canceled(&call.pub)); /* this call; not the next one */
    loop_note_cancels(call.loop, &call.waiter, &call.cancel);
    CHECK(!dlock_call_is_canceled(&call.pub));
    cancel_set(&call.cancel);
    CHECK(dlock_call_is_canceled(&call.pub));
    atomic_store(&call.stop, CALL_GOES_ON);
    CHECK(!dlock_call_is_canceled(&call.pub));
    cancel_lift(&call.cancel);
    atomic_store(&call.stop, CALL_STOPPED);
    CHECK(dlock_call_is_canceled(&call.pub));
    loop_free(call.loop);
    atomic_bool is_canceled = true;
    dlock_call copy = {.name = "the copy that a store is given"};
    CHECK(!dlock_call_is_canceled(&copy));
    copy.internal = &is_canceled;
    CHECK(dlock_call_is_canceled(&copy));
    atomic_store(&is_canceled, false);
    CHECK(!dlock_call_is_canceled(&copy));
}

TEST(a_call_tells_how_much_time_is_left) {
    dlock_call call = {.deadline_us = clock_now_us(clock_system()) + 100000000};
    CHECK(dlock_call_left_ms(&call) > 90000 && dlock_call_left_ms(&call) <= 100000);
    call.deadline_us = 1;
    CHECK_EQUAL(dlock_call_left_ms(&call), 0);
    call.deadline_us = INT64_MAX;
    CHECK_EQUAL(dlock_call_left_ms(&call), INT64_MAX);
}

int main(void) {
    return unit_main(NULL, NULL);
}
