/* SPDX-License-Identifier: BSD-3-Clause */
/* chain_test.c - the way of a call through handlers.
 *
 * Each handler writes down what happens to it: "a(" when it is given a call, ")a" when it gives it
 * back, "a!" when it answers itself, "a?1" when it is told of an error with status 1. */
#include "chain.h"

#include "unit.h"

enum { ROOM = 8 };

typedef struct actor {
    const char *name;
    dlock_status answer; /* not DLOCK_OK: it answers itself */
    int calls;           /* so many times it runs the rest, until it is DLOCK_OK; 0: once */
    bool is_granting;    /* answers DLOCK_OK itself */
    void *mark;          /* not NULL: put into the slot */
    void *found;         /* what was there before */
    void *told;          /* what was there when it was told of an error */
    dlock_operation operation;
} actor;

static actor passing(const char *name) {
    return (actor){.name = name};
}

static actor answering(const char *name, dlock_status answer) {
    return (actor){.name = name, .answer = answer};
}

static actor granting(const char *name) {
    return (actor){.name = name, .is_granting = true};
}

static char trace[512];

static void note(const char *before, const char *name, const char *after) {
    size_t length = strlen(trace);
    snprintf(trace + length, sizeof(trace) - length, "%s%s%s", before, name, after);
}

static dlock_status act(void *arg, dlock_call *call, dlock_chain *rest) {
    actor *self = arg;
    self->operation = call->operation;
    self->found = *call->slot;
    if (self->mark != NULL) *call->slot = self->mark;
    if (self->answer != DLOCK_OK || self->is_granting) {
        note(" ", self->name, "!");
        return self->answer;
    }
    note(" ", self->name, "(");
    dlock_status status = dlock_next(rest, call);
    for (int i = 1; i < self->calls && status != DLOCK_OK; i++)
        status = dlock_next(rest, call);
    CHECK(self->mark == NULL || *call->slot == self->mark);
    note(" )", self->name, "");
    return status;
}

static void hear(void *arg, const dlock_call *call, dlock_status status) {
    char told[8];
    actor *self = arg;
    self->told = *call->slot;
    snprintf(told, sizeof(told), "?%d", (int)status);
    note(" ", self->name, told);
}

static dlock_handler handler_of(actor *arg, int order) {
    return (dlock_handler){
        .struct_size = sizeof(dlock_handler), .order = order, .arg = arg, .handle = act};
}

static dlock_handler told(dlock_handler quiet) {
    quiet.on_error = hear;
    return quiet;
}

static dlock_handler without_handle(dlock_handler busy) {
    busy.handle = NULL;
    return busy;
}

static chain *chain_of(const dlock_handler *handlers, size_t count) {
    chain *made = chain_new(count);
    CHECK(made != NULL);
    for (size_t i = 0; made != NULL && i < count; i++)
        chain_add(made, &handlers[i]);
    return made;
}

static dlock_status run_with(const dlock_handler *handlers, size_t count, void **slots,
                             dlock_operation operation) {
    claim of = {.call = {.operation = operation, .name = "name"}, .stop.fd = -1};
    chain *made = chain_of(handlers, count);
    trace[0] = '\0';
    dlock_status status = made == NULL ? DLOCK_NO_MEMORY : chain_run(made, &of, slots);
    chain_free(made);
    return status;
}

static dlock_status run(const dlock_handler *handlers, size_t count) {
    void *slots[ROOM] = {NULL};
    return run_with(handlers, count, slots, DLOCK_ACQUIRING);
}

#define CHECK_TRACE(expected) CHECK_BYTES(trace, strlen(trace), expected, strlen(expected))

/* -- order */

static void handlers_are_passed_by_their_order_not_as_given(void) {
    actor a = passing("a"), b = passing("b"), c = granting("c");
    const dlock_handler given[] = {handler_of(&c, 3000), handler_of(&a, -7), handler_of(&b, 100)};
    CHECK_EQUAL(run(given, 3), DLOCK_OK);
    CHECK_TRACE(" a( b( c! )b )a");
}

static void handlers_of_the_same_order_are_passed_as_given(void) {
    actor a = passing("a"), b = passing("b"), c = passing("c"), d = granting("d");
    const dlock_handler given[] = {handler_of(&d, 6), handler_of(&a, 5), handler_of(&b, 5),
                                   handler_of(&c, 5)};
    CHECK_EQUAL(run(given, 4), DLOCK_OK);
    CHECK_TRACE(" a( b( c( d! )c )b )a");
}

static void every_order_of_giving_them_leads_to_the_same_chain(void) {
    actor a = passing("a"), b = passing("b"), c = passing("c"), d = granting("d");
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

static void the_chain_has_a_copy_of_the_handler(void) {
    actor a = granting("a"), other = answering("other", DLOCK_BUSY);
    void *slots[ROOM] = {NULL};
    claim of = {.call = {.operation = DLOCK_ACQUIRING}};
    dlock_handler given = handler_of(&a, 1);
    chain *made = chain_of(&given, 1);
    given = handler_of(&other, 1);
    CHECK_EQUAL((int64_t)chain_length(made), 1);
    CHECK_EQUAL(chain_run(made, &of, slots), DLOCK_OK);
    chain_free(made);
}

static void without_one_that_answers_the_call_is_a_mistake(void) {
    actor a = passing("a");
    const dlock_handler given[] = {handler_of(&a, 1)};
    CHECK_EQUAL(run(given, 1), DLOCK_INVALID);
}

/* -- answers and errors */

static void one_who_answers_itself_stops_there(void) {
    actor a = passing("a"), b = answering("b", DLOCK_BUSY), c = passing("c"), d = granting("d");
    const dlock_handler given[] = {handler_of(&a, 1), handler_of(&b, 2), told(handler_of(&c, 3)),
                                   told(handler_of(&d, 4))};
    CHECK_EQUAL(run(given, 4), DLOCK_BUSY);
    CHECK_TRACE(" a( b! )a");
    b.answer = DLOCK_OK;
    b.is_granting = true;
    CHECK_EQUAL(run(given, 4), DLOCK_OK);
    CHECK_TRACE(" a( b! )a");
}

static void an_error_is_told_to_all_that_were_passed_the_last_one_first(void) {
    actor a = passing("a"), b = passing("b"), c = passing("c"), d = answering("d", DLOCK_REFUSED),
          e = passing("e");
    const dlock_handler given[] = {told(handler_of(&a, 1)), told(handler_of(&b, 2)),
                                   told(handler_of(&c, 3)), told(handler_of(&d, 4)),
                                   told(handler_of(&e, 5))};
    CHECK_EQUAL(run(given, 5), DLOCK_REFUSED);
    CHECK_TRACE(" a( b( c( d! c?102 )c b?102 )b a?102 )a");
}

static void one_who_answers_first_of_all_tells_nobody(void) {
    actor a = answering("a", DLOCK_BUSY), b = passing("b");
    const dlock_handler given[] = {told(handler_of(&a, 1)), told(handler_of(&b, 2))};
    CHECK_EQUAL(run(given, 2), DLOCK_BUSY);
    CHECK_TRACE(" a!");
}

static void nobody_is_told_of_a_success(void) {
    actor a = passing("a"), b = granting("b");
    const dlock_handler given[] = {told(handler_of(&a, 1)), told(handler_of(&b, 2))};
    CHECK_EQUAL(run(given, 2), DLOCK_OK);
    CHECK_TRACE(" a( b! )a");
}

static void who_has_no_handle_is_passed_by_and_still_told(void) {
    actor a = passing("a"), b = passing("b"), c = passing("c"), d = answering("d", DLOCK_TIMEOUT);
    const dlock_handler given[] = {without_handle(told(handler_of(&a, 1))), handler_of(&b, 2),
                                   without_handle(told(handler_of(&c, 3))), handler_of(&d, 4)};
    CHECK_EQUAL(run(given, 4), DLOCK_TIMEOUT);
    CHECK_TRACE(" b( d! c?2 )b a?2");
}

static void who_has_neither_changes_nothing(void) {
    actor a = passing("a"), none = passing("none"), b = answering("b", DLOCK_BUSY);
    const dlock_handler given[] = {told(handler_of(&a, 1)), without_handle(handler_of(&none, 2)),
                                   told(handler_of(&b, 3))};
    CHECK_EQUAL(run(given, 3), DLOCK_BUSY);
    CHECK_TRACE(" a( b! a?1 )a");
}

static void removing_one_changes_nothing_for_the_others(void) {
    actor a = passing("a"), b = passing("b"), c = passing("c"), d = answering("d", DLOCK_LOST);
    const dlock_handler given[] = {told(handler_of(&a, 1)), told(handler_of(&b, 2)),
                                   told(handler_of(&c, 3)), handler_of(&d, 4)};
    const char *const expected[] = {" b( c( d! c?4 )c b?4 )b", " a( c( d! c?4 )c a?4 )a",
                                    " a( b( d! b?4 )b a?4 )a"};
    for (size_t without = 0; without < 3; without++) {
        dlock_handler left[3];
        for (size_t i = 0, count = 0; i < 4; i++)
            if (i != without) left[count++] = given[i];
        CHECK_EQUAL(run(left, 3), DLOCK_LOST);
        CHECK_TRACE(expected[without]);
    }
}

static void who_runs_the_rest_again_is_told_of_each_failure(void) {
    actor a = passing("a"), b = {.name = "b", .calls = 3}, c = passing("c"),
          d = answering("d", DLOCK_UNREACHABLE);
    const dlock_handler given[] = {told(handler_of(&a, 1)), told(handler_of(&b, 2)),
                                   told(handler_of(&c, 3)), handler_of(&d, 4)};
    CHECK_EQUAL(run(given, 4), DLOCK_UNREACHABLE);
    CHECK_TRACE(" a( b( c( d! c?101 )c b?101 c( d! c?101 )c b?101 c( d! c?101 )c b?101 )b"
                " a?101 )a");
}

/* Busy once, then granted. */
static dlock_status relent(void *arg, dlock_call *call, dlock_chain *rest) {
    (void)call, (void)rest;
    int *calls = arg;
    return (*calls)++ == 0 ? DLOCK_BUSY : DLOCK_OK;
}

static void a_retry_that_succeeds_is_a_success_to_those_before(void) {
    int calls = 0;
    actor a = passing("a"), b = {.name = "b", .calls = 2};
    const dlock_handler given[] = {told(handler_of(&a, 1)),
                                   told(handler_of(&b, 2)),
                                   {.order = 3, .arg = &calls, .handle = relent}};
    CHECK_EQUAL(run(given, 3), DLOCK_OK);
    CHECK_TRACE(" a( b( b?1 )b )a");
}

/* -- slots */

static void each_handler_has_a_slot_of_its_own_in_each_lock(void) {
    int marks[2];
    void *one[ROOM] = {NULL}, *other[ROOM] = {NULL};
    actor a = {.name = "a", .mark = &marks[0]}, b = passing("b"),
          c = {.name = "c", .mark = &marks[1]};
    c.is_granting = true;
    const dlock_handler given[] = {handler_of(&a, 1), handler_of(&b, 2), handler_of(&c, 3)};
    run_with(given, 3, one, DLOCK_ACQUIRING);
    CHECK(a.found == NULL && b.found == NULL && c.found == NULL);
    run_with(given, 3, one, DLOCK_RELEASING);
    CHECK(a.found == &marks[0] && b.found == NULL && c.found == &marks[1]);
    run_with(given, 3, other, DLOCK_ACQUIRING);
    CHECK(a.found == NULL && b.found == NULL && c.found == NULL);
    CHECK(one[3] == NULL && other[3] == NULL);
}

static void who_is_told_of_an_error_sees_its_own_slot(void) {
    int marks[2];
    void *slots[ROOM] = {NULL};
    actor a = {.name = "a", .mark = &marks[0]}, b = passing("b"),
          c = {.name = "c", .mark = &marks[1]}, d = passing("d");
    d.answer = DLOCK_BUSY;
    const dlock_handler given[] = {told(handler_of(&a, 1)), without_handle(told(handler_of(&b, 2))),
                                   told(handler_of(&c, 3)), handler_of(&d, 4)};
    run_with(given, 4, slots, DLOCK_ACQUIRING);
    CHECK(a.told == &marks[0] && b.told == NULL && c.told == &marks[1]);
}

/* -- operations */

static void release_and_extend_take_the_same_way(void) {
    void *slots[ROOM] = {NULL};
    actor a = passing("a"), b = passing("b"), c = answering("c", DLOCK_LOST);
    const dlock_handler given[] = {told(handler_of(&a, 1)), told(handler_of(&b, 2)),
                                   handler_of(&c, 3)};
    const dlock_operation operations[] = {DLOCK_ACQUIRING, DLOCK_RELEASING, DLOCK_EXTENDING};
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQUAL(run_with(given, 3, slots, operations[i]), DLOCK_LOST);
        CHECK_TRACE(" a( b( c! b?4 )b a?4 )a");
        CHECK(a.operation == operations[i] && c.operation == operations[i]);
    }
}

int main(void) {
    UNIT_RUN(handlers_are_passed_by_their_order_not_as_given);
    UNIT_RUN(handlers_of_the_same_order_are_passed_as_given);
    UNIT_RUN(every_order_of_giving_them_leads_to_the_same_chain);
    UNIT_RUN(the_chain_has_a_copy_of_the_handler);
    UNIT_RUN(without_one_that_answers_the_call_is_a_mistake);
    UNIT_RUN(one_who_answers_itself_stops_there);
    UNIT_RUN(an_error_is_told_to_all_that_were_passed_the_last_one_first);
    UNIT_RUN(one_who_answers_first_of_all_tells_nobody);
    UNIT_RUN(nobody_is_told_of_a_success);
    UNIT_RUN(who_has_no_handle_is_passed_by_and_still_told);
    UNIT_RUN(who_has_neither_changes_nothing);
    UNIT_RUN(removing_one_changes_nothing_for_the_others);
    UNIT_RUN(who_runs_the_rest_again_is_told_of_each_failure);
    UNIT_RUN(a_retry_that_succeeds_is_a_success_to_those_before);
    UNIT_RUN(each_handler_has_a_slot_of_its_own_in_each_lock);
    UNIT_RUN(who_is_told_of_an_error_sees_its_own_slot);
    UNIT_RUN(release_and_extend_take_the_same_way);
    return unit_summary();
}
