/* SPDX-License-Identifier: BSD-3-Clause */
/* reentry.c - scopes inside scopes of the same name, and locks that are lost inside.
 *
 *   reentry URL FACT
 *
 * The lock is given back at the end; the caller looks. */
#include "program.h"

enum { LEASE_MS = 60000 };

static char url[200];
static dlock_client *client, *other;

static bool count_lease(void *arg, const dlock_inspection *lock) {
    *(int64_t *)arg = lock->lease_ms;
    return true;
}

/* The lease as the server knows it; 0: the lock is free. */
static int64_t lease_at_server(void) {
    int64_t lease_ms = 0;
    dlock_inspect(other, "n", 20000, count_lease, &lease_ms, NULL, 0);
    return lease_ms;
}

static bool take_away(void *arg, const dlock_inspection *lock) {
    (void)arg;
    CHECK(dlock_release_token(other, "n", lock->token, NULL, 0) == DLOCK_OK);
    return true;
}

/* As an operator would. */
static void force_release(void) {
    CHECK(dlock_inspect(other, "n", 20000, take_away, NULL, NULL, 0) == DLOCK_OK);
}

/* -- the same thread */

FACT(nested_scope_needs_no_request) {
    DLOCK_SCOPED(outer, client, "n", 0, NULL);
    CHECK(outer.got == DLOCK_OK);
    uint64_t before = stats_of(client).commands;
    for (int i = 0; i < 3; i++) {
        DLOCK_SCOPED(inner, client, "n", 0, NULL);
        CHECK(inner.got == DLOCK_OK && inner.lock == outer.lock);
        CHECK(dlock_fence(inner.lock) == dlock_fence(outer.lock));
        CHECK(dlock_scope_end(&inner) == DLOCK_OK);
    }
    CHECK(stats_of(client).commands == before);
    CHECK(dlock_get_state(outer.lock) == DLOCK_STATE_HELD && lease_at_server() > 0);
}

static const char *const all[] = {"m", "n"}, *const reversed[] = {"n", "m"},
                         *const more[] = {"n", "o"};

FACT(several_names_are_taken_together) {
    DLOCK_SCOPED_ALL(held, client, all, 2, 0, NULL);
    CHECK(held.got == DLOCK_OK && lease_at_server() > 0);
    dlock_scope overlapping = dlock_scope_begin_all(other, more, 2, 0, NULL);
    CHECK(overlapping.got == DLOCK_BUSY && dlock_scope_end(&overlapping) == DLOCK_BUSY);
    CHECK(dlock_scope_end(&held) == DLOCK_OK && lease_at_server() == 0);
    overlapping = dlock_scope_begin_all(other, more, 2, 0, NULL);
    CHECK(overlapping.got == DLOCK_OK && dlock_scope_end(&overlapping) == DLOCK_OK);
}

static void look_at_both(dlock_lock *lock, dlock_status got, void *arg) {
    dlock_scope *outer = arg;
    CHECK(got == DLOCK_OK && (outer->lock == NULL || lock == outer->lock));
    CHECK(lease_at_server() > 0);
}

FACT(nested_scope_may_take_some_of_the_names) {
    dlock_scope outer = {0};
    CHECK(dlock_scope_run_all(client, all, 2, 0, NULL, look_at_both, &outer) == DLOCK_OK);
    CHECK(lease_at_server() == 0);
    outer = dlock_scope_begin_all(client, all, 2, 0, NULL);
    uint64_t before = stats_of(client).commands;
    CHECK(dlock_scope_run(client, "n", 0, NULL, look_at_both, &outer) == DLOCK_OK);
    CHECK(dlock_scope_run(client, "m", 0, NULL, look_at_both, &outer) == DLOCK_OK);
    CHECK(dlock_scope_run_all(client, reversed, 2, 0, NULL, look_at_both, &outer) == DLOCK_OK);
    CHECK(stats_of(client).commands == before);
    CHECK(dlock_scope_end(&outer) == DLOCK_OK && lease_at_server() == 0);
}

FACT(nested_scope_with_further_names_is_refused) {
    DLOCK_SCOPED_ALL(outer, client, all, 2, 0, NULL);
    DLOCK_SCOPED_ALL(inner, client, more, 2, DLOCK_WAIT_FOREVER, NULL);
    CHECK(inner.got == DLOCK_INVALID && inner.lock == NULL);
    CHECK(strstr(dlock_error(), "would wait for itself") != NULL);
    DLOCK_SCOPED(single, client, "o", 0, NULL); /* another name is no part of it */
    CHECK(single.got == DLOCK_OK && single.lock != outer.lock);
    DLOCK_SCOPED_ALL(spread, client, more, 2, DLOCK_WAIT_FOREVER, NULL);
    CHECK(spread.got == DLOCK_INVALID); /* held, but by two handles */
}

static void count_down(dlock_lock *lock, dlock_status got, void *arg) {
    int *left = arg;
    CHECK(got == DLOCK_OK && dlock_get_state(lock) == DLOCK_STATE_HELD);
    if (--*left > 0) CHECK(dlock_scope_run(client, "n", 0, NULL, count_down, left) == DLOCK_OK);
}

FACT(guard_calls_itself) {
    int left = 100;
    CHECK(dlock_scope_run(client, "n", 0, NULL, count_down, &left) == DLOCK_OK);
    CHECK(left == 0 && lease_at_server() == 0);
}

FACT(scopes_end_in_any_order) {
    dlock_scope outer = dlock_scope_begin(client, "n", 0, NULL);
    dlock_scope inner = dlock_scope_begin(client, "n", 0, NULL);
    CHECK(dlock_scope_end(&outer) == DLOCK_OK && lease_at_server() > 0);
    CHECK(dlock_scope_end(&inner) == DLOCK_OK && lease_at_server() == 0);
}

static void release_it(dlock_lock *lock, dlock_status got, void *arg) {
    (void)arg;
    CHECK(got == DLOCK_OK && dlock_release(lock) == DLOCK_OK);
}

FACT(nested_body_releases_its_own_level) {
    DLOCK_SCOPED(outer, client, "n", 0, NULL);
    CHECK(dlock_scope_run(client, "n", 0, NULL, release_it, NULL) == DLOCK_OK);
    CHECK(dlock_get_state(outer.lock) == DLOCK_STATE_HELD && lease_at_server() > 0);
    dlock_scope inner = dlock_scope_begin(client, "n", 0, NULL);
    CHECK(dlock_release(inner.lock) == DLOCK_OK && dlock_scope_end(&inner) == DLOCK_OK);
    CHECK(dlock_get_state(outer.lock) == DLOCK_STATE_HELD && lease_at_server() > 0);
}

/* Once, before the outer scope has begun. */
static void nest(void *arg, dlock_event event, const char *name, dlock_status why) {
    dlock_client **told = arg;
    static bool is_done;
    if (event != DLOCK_EVENT_ACQUIRED || is_done) return;
    is_done = true;
    DLOCK_SCOPED(inner, *told, name, 0, NULL);
    CHECK(inner.got == DLOCK_OK && why == DLOCK_OK);
    CHECK(dlock_scope_end(&inner) == DLOCK_OK && lease_at_server() > 0);
}

FACT(on_event_begins_a_nested_scope) {
    dlock_client *told;
    dlock_client_options options = options_for((const char *const[]){url}, 1);
    options.on_event = nest;
    options.event_arg = &told;
    CHECK(dlock_client_new(&told, &options) == DLOCK_OK);
    dlock_scope outer = dlock_scope_begin(told, "n", 0, NULL);
    CHECK(outer.got == DLOCK_OK && dlock_get_state(outer.lock) == DLOCK_STATE_HELD);
    CHECK(lease_at_server() > 0 && dlock_scope_end(&outer) == DLOCK_OK);
    dlock_client_free(told);
}

/* A handler that uses the lock whose call is on its way. */
static dlock_lock *handled;

static void never_done(void *arg, dlock_lock *lock, dlock_status status) {
    (void)arg, (void)lock, (void)status;
    CHECK(false);
}

static void use_lock(void) {
    const char *words[] = {"SET", "k", "v"};
    CHECK(dlock_guarded(handled, 3, words, NULL, NULL) == DLOCK_INVALID);
    CHECK(dlock_extend(handled, 0) == DLOCK_INVALID);
    CHECK(dlock_release(handled) == DLOCK_INVALID);
    CHECK(dlock_acquire(handled, 0) == DLOCK_INVALID);
    CHECK(dlock_acquire_start(handled, 0, never_done, NULL) == DLOCK_INVALID);
}

static dlock_step use_on_the_way_in(void *arg, dlock_call *call) {
    (void)arg, (void)call;
    if (handled != NULL) use_lock();
    return DLOCK_PASS;
}

static void use_on_the_way_out(void *arg, dlock_call *call) {
    (void)arg, (void)call;
    if (handled != NULL) use_lock();
}

FACT(handler_cannot_disturb_its_own_call) {
    dlock_client *handling;
    dlock_handler uses = {.struct_size = sizeof(uses),
                          .name = "uses",
                          .enter = use_on_the_way_in,
                          .leave = use_on_the_way_out};
    dlock_client_options options = options_for((const char *const[]){url}, 1);
    options.handlers = (const dlock_handler *const[]){&uses};
    options.handler_count = 1;
    CHECK(dlock_client_new(&handling, &options) == DLOCK_OK);
    dlock_lock *lock = new_lock(handling, "n", 0);
    CHECK(dlock_acquire(lock, 0) == DLOCK_OK);
    handled = lock;
    CHECK(dlock_extend(lock, 0) == DLOCK_OK && dlock_get_state(lock) == DLOCK_STATE_HELD);
    CHECK(dlock_release(lock) == DLOCK_OK && lease_at_server() == 0);
    CHECK(stats_of(handling).released == 1);
    handled = NULL;
    dlock_lock_free(lock);
    dlock_client_free(handling);
}

/* Takes the lock again as soon as it is told of the release. */
static void take_again(void *arg, dlock_event event, const char *name, dlock_status why) {
    dlock_status *got = arg;
    (void)name, (void)why;
    if (event == DLOCK_EVENT_RELEASED && handled != NULL) *got = dlock_acquire(handled, 0);
}

FACT(lock_is_not_taken_again_while_it_is_freed) {
    dlock_status got = DLOCK_OK;
    dlock_client *told;
    dlock_client_options options = options_for((const char *const[]){url}, 1);
    options.on_event = take_again;
    options.event_arg = &got;
    CHECK(dlock_client_new(&told, &options) == DLOCK_OK);
    handled = new_lock(told, "n", 0);
    CHECK(dlock_acquire(handled, 0) == DLOCK_OK);
    dlock_lock_free(handled);
    handled = NULL;
    dlock_client_free(told);
    CHECK(got == DLOCK_INVALID && lease_at_server() == 0);
}

static void note_done(void *arg, dlock_lock *lock, dlock_status status) {
    (void)lock, (void)status;
    ++*(int *)arg;
}

/* What on_event has started, and how often done() was called. */
typedef struct starts {
    dlock_status got[3];
    int done;
} starts;

static void start_again(void *arg, dlock_event event, const char *name, dlock_status why) {
    starts *starts = arg;
    (void)name, (void)why;
    if (event != DLOCK_EVENT_RELEASED) return;
    starts->got[0] = dlock_acquire_start(handled, 0, note_done, &starts->done);
    starts->got[1] = dlock_extend_start(handled, 0, note_done, &starts->done);
    starts->got[2] = dlock_release_start(handled, note_done, &starts->done);
}

FACT(no_call_is_started_while_the_lock_is_freed) {
    starts starts = {.done = 0};
    dlock_client *told;
    dlock_client_options options = options_for((const char *const[]){url}, 1);
    options.on_event = start_again;
    options.event_arg = &starts;
    CHECK(dlock_client_new(&told, &options) == DLOCK_OK);
    handled = new_lock(told, "n", 0);
    CHECK(dlock_acquire(handled, 0) == DLOCK_OK);
    dlock_lock_free(handled);
    handled = NULL;
    for (int i = 0; i < 3; i++)
        CHECK(starts.got[i] == DLOCK_INVALID);
    CHECK(dlock_client_dispatch(told) == 0 && starts.done == 0);
    dlock_client_free(told);
}

FACT(longer_lease_is_extended) {
    dlock_lock_options shorter = terms_of(1000, DLOCK_EXCLUSIVE);
    dlock_lock_options longer = terms_of(2 * LEASE_MS, DLOCK_EXCLUSIVE);
    DLOCK_SCOPED(outer, client, "n", 0, NULL);
    DLOCK_SCOPED(inner, client, "n", 0, &shorter);
    CHECK(inner.got == DLOCK_OK && lease_at_server() == LEASE_MS);
    DLOCK_SCOPED(innermost, client, "n", 0, &longer);
    CHECK(innermost.got == DLOCK_OK && lease_at_server() == 2 * LEASE_MS);
}

/* -- modes and more */

FACT(shared_inside_exclusive) {
    dlock_lock_options shared = terms_of(0, DLOCK_SHARED);
    DLOCK_SCOPED(outer, client, "n", 0, NULL);
    DLOCK_SCOPED(inner, client, "n", 0, &shared);
    CHECK(inner.got == DLOCK_OK);
    DLOCK_SCOPED(stranger, other, "n", 0, &shared);
    CHECK(stranger.got == DLOCK_BUSY); /* held exclusively all the same */
}

FACT(exclusive_inside_shared_is_refused) {
    dlock_lock_options shared = terms_of(0, DLOCK_SHARED);
    DLOCK_SCOPED(outer, client, "n", 0, &shared);
    DLOCK_SCOPED(inner, client, "n", 1000, NULL);
    CHECK(inner.got == DLOCK_INVALID);
    CHECK(strcmp(dlock_error(),
                 "mode: the thread holds the lock shared, and would wait for itself") == 0);
    CHECK(strcmp(dlock_last_error(inner.lock), dlock_error()) == 0);
    CHECK(dlock_scope_end(&inner) == DLOCK_INVALID);
    CHECK(dlock_get_state(outer.lock) == DLOCK_STATE_HELD && lease_at_server() > 0);
}

FACT(more_than_the_outer_scope_has_is_refused) {
    dlock_lock_options more = terms_of(0, DLOCK_EXCLUSIVE);
    DLOCK_SCOPED(outer, client, "n", 0, NULL);
    more.session = true;
    DLOCK_SCOPED(session, client, "n", 0, &more);
    CHECK(session.got == DLOCK_INVALID);
    more.session = false;
    more.min_replicas = 1;
    DLOCK_SCOPED(replicas, client, "n", 0, &more);
    CHECK(replicas.got == DLOCK_INVALID);
}

/* -- others */

static void *try_in_thread(void *arg) {
    DLOCK_SCOPED(held, client, "n", 0, NULL);
    *(dlock_status *)arg = held.got;
    return NULL;
}

static dlock_status try_elsewhere(void) {
    pthread_t thread;
    dlock_status got = DLOCK_OK;
    CHECK(pthread_create(&thread, NULL, try_in_thread, &got) == 0);
    pthread_join(thread, NULL);
    return got;
}

FACT(another_thread_does_not_get_it) {
    DLOCK_SCOPED(outer, client, "n", 0, NULL);
    DLOCK_SCOPED(inner, client, "n", 0, NULL);
    CHECK(try_elsewhere() == DLOCK_BUSY);
}

FACT(another_client_does_not_get_it) {
    DLOCK_SCOPED(outer, client, "n", 0, NULL);
    DLOCK_SCOPED(stranger, other, "n", 0, NULL);
    CHECK(stranger.got == DLOCK_BUSY);
}

FACT(inside_a_scope_that_did_not_get_it) {
    dlock_scope holder = dlock_scope_begin(other, "n", 0, NULL);
    DLOCK_SCOPED(outer, client, "n", 0, NULL);
    CHECK(outer.got == DLOCK_BUSY);
    DLOCK_SCOPED(inner, client, "n", 0, NULL);
    CHECK(inner.got == DLOCK_BUSY);
    CHECK(dlock_scope_end(&holder) == DLOCK_OK);
    DLOCK_SCOPED(last, client, "n", 0, NULL);
    CHECK(last.got == DLOCK_OK);
}

/* -- losses */

static void lose_it(dlock_lock *lock, dlock_status got, void *arg) {
    (void)arg, (void)lock;
    CHECK(got == DLOCK_OK);
    force_release();
}

FACT(guard_tells_of_a_loss) {
    CHECK(dlock_scope_run(client, "n", 0, NULL, lose_it, NULL) == DLOCK_LOST);
}

FACT(scope_tells_of_a_loss) {
    DLOCK_SCOPED(held, client, "n", 0, NULL);
    force_release();
    CHECK(dlock_scope_end(&held) == DLOCK_LOST);
    CHECK(dlock_scope_end(&held) == DLOCK_LOST && held.lock == NULL);
}

FACT(after_a_loss_a_nested_scope_is_refused) {
    DLOCK_SCOPED(outer, client, "n", 0, NULL);
    DLOCK_SCOPED(inner, client, "n", 0, NULL);
    force_release();
    CHECK(dlock_extend(outer.lock, 0) == DLOCK_LOST); /* the loss is known from now on */
    CHECK(dlock_get_state(outer.lock) == DLOCK_STATE_LOST);
    uint64_t before = stats_of(client).commands;
    DLOCK_SCOPED(innermost, client, "n", 1000, NULL);
    CHECK(innermost.got == DLOCK_LOST && stats_of(client).commands == before);
    CHECK(dlock_scope_end(&innermost) == DLOCK_LOST);
    CHECK(dlock_scope_end(&inner) == DLOCK_LOST && dlock_scope_end(&outer) == DLOCK_LOST);
    DLOCK_SCOPED(again, client, "n", 0, NULL);
    CHECK(again.got == DLOCK_OK);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    snprintf(url, sizeof(url), "%s?lease_ms=%d&io_timeout_ms=20000&connect_timeout_ms=20000",
             argv[1], LEASE_MS);
    CHECK(dlock_client_new_url(&client, url) == DLOCK_OK);
    CHECK(dlock_client_new_url(&other, url) == DLOCK_OK);
    int code = run_fact(argv[2]);
    dlock_client_free(client);
    dlock_client_free(other);
    return code;
}
