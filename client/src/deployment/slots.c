/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.c - one lock whose names are in several slots of a cluster.
 *
 * No command takes names of several slots. So such a lock has a part for each slot, with the names
 * in that slot, and each part is an attempt of routed.c with the same token:
 *
 *   acquire   one part after the other, in the order of the slot numbers, each with the time that
 *             is left. Whoever waits holds parts of lower slots only, and all clients have the same
 *             order: so no two of them wait for each other. Meanwhile the parts that are held are
 *             extended. All or none at the end: if a part fails or is lost, all parts are given
 *             back by withdrawals, and the next attempt begins anew, with another token
 *   extend    all parts at once. The lease counts from the earliest part; one lost part is a loss
 *   release   all parts at once. Repeated after a failure, for the parts that were not released
 *
 * Each slot has a fence of its own, maybe of another server: the fence of the lock is that of the
 * part with the first name, to which guarded commands go as well.
 *
 * There are no ties (presence.h): a tie is about one server. Attempts with names in one slot, and
 * guarded commands, are routed.c's alone.
 *
 * Invariant: while an acquire is under way, the parts before run->next are held, as far as known,
 * and the part at run->next is under way. */
#include "deployment/router.h"

/* The names in one slot. */
typedef struct slot_part {
    attempt attempt;
    unsigned slot;
    bool is_under_way;
    bool is_released; /* the server has said so */
    int64_t asked_us; /* of the grant, or of the last extension */
    char token[DLOCK_TOKEN_SIZE];
} slot_part;

/* The attempt for all parts. Behind the parts are their runs, of routed.c, and behind these their
 * names, as lists of text.h. */
typedef struct slots_run {
    deployment *deployment;
    attempt *whole;
    loop_timer timer; /* of an acquire: the parts that are held need an extension */
    size_t next;      /* of an acquire: the part under way */
    size_t first;     /* the part with the first name */
    size_t count;     /* 0: not made yet */
    slot_part parts[];
} slots_run;

static unsigned slot_of(const char *name) {
    return slot_of_key(name, strlen(name));
}

/* The lowest slot of the names that is not below; SLOT_COUNT: there is none. */
static unsigned find_slot(const attempt *attempt, unsigned from) {
    unsigned found = SLOT_COUNT;
    const char *name = attempt->name;
    for (uint8_t i = 0; i < attempt->name_count; i++, name = text_behind(name)) {
        unsigned slot = slot_of(name);
        if (slot >= from && slot < found) found = slot;
    }
    return found;
}

unsigned slots_count(const attempt *attempt) {
    unsigned count = 0;
    if (!attempt_has_several(attempt)) return 1;
    for (unsigned slot = 0; (slot = find_slot(attempt, slot)) < SLOT_COUNT; slot++)
        count++;
    return count;
}

static size_t size_slots_run(const attempt *attempt) {
    unsigned count = slots_count(attempt);
    size_t run_size = routed_table.size_run(attempt);
    if (count == 1) return run_size;
    return sizeof(slots_run) + count * (sizeof(slot_part) + run_size) +
           text_list_size(attempt->name, attempt->name_count);
}

/* Copies the names of the slot. Returns the byte behind them. */
static char *put_part_names(slot_part *part, const attempt *whole, char *text) {
    const char *name = whole->name;
    part->attempt.name = text;
    for (uint8_t i = 0; i < whole->name_count; i++, name = text_behind(name)) {
        size_t size = strlen(name) + 1;
        if (slot_of(name) != part->slot) continue;
        memcpy(text, name, size);
        text += size;
        part->attempt.name_count++;
    }
    return text;
}

/* The names of a handle stay the same, so this is done once. */
static void make_parts(slots_run *run, const attempt *whole) {
    unsigned first = slot_of(whole->name), slot = 0;
    unsigned count = slots_count(whole);
    size_t run_size = routed_table.size_run(whole);
    char *runs = (char *)&run->parts[count], *text = runs + count * run_size;
    for (; (slot = find_slot(whole, slot)) < SLOT_COUNT; slot++) {
        slot_part *part = &run->parts[run->count];
        part->slot = slot;
        part->attempt.prepared.run = runs + run->count * run_size;
        part->attempt.token = part->token;
        text = put_part_names(part, whole, text);
        if (slot == first) run->first = run->count;
        run->count++;
    }
}

/* -- parts */

static void on_part_done(attempt *attempt);

static void start_part(slots_run *run, slot_part *part, dlock_operation operation,
                       int64_t limit_us) {
    const attempt *whole = run->whole;
    attempt *attempt = &part->attempt;
    bool is_acquire = operation == DLOCK_ACQUIRING;
    attempt->terms = whole->terms;
    attempt->prepared.protocol = whole->prepared.protocol;
    attempt->operation = operation;
    attempt->lease_ms = whole->lease_ms;
    attempt->wait_until_us = is_acquire ? whole->wait_until_us : 0;
    attempt->limit_us = limit_us;
    attempt->is_background = whole->is_background;
    attempt->on_done = on_part_done;
    attempt->arg = run;
    part->is_under_way = true;
    text_copy(part->token, sizeof(part->token), whole->token);
    routed_table.start(run->deployment, attempt);
}

static void stop_part(slots_run *run, slot_part *part) {
    if (part->is_under_way) routed_table.abandon(run->deployment, &part->attempt);
    part->is_under_way = false;
    text_drop(&part->attempt.cause);
}

/* Ends what goes on beside the part that has ended. */
static void stop_all(slots_run *run) {
    loop_clear_timer(run->deployment->loop, &run->timer);
    for (size_t i = 0; i < run->count; i++)
        stop_part(run, &run->parts[i]);
}

static bool is_under_way(const slots_run *run) {
    for (size_t i = 0; i < run->count; i++)
        if (run->parts[i].is_under_way) return true;
    return false;
}

/* -- acquire */

/* Each third of the lease. */
static void set_slots_timer(slots_run *run) {
    int64_t now_us = loop_now_us(run->deployment->loop);
    loop_set_timer(run->deployment->loop, &run->timer,
                   now_us + (int64_t)run->whole->lease_ms * 1000 / 3);
}

static void on_extension_due(loop_timer *timer) {
    slots_run *run = container_of(timer, slots_run, timer);
    int64_t limit_us =
        deadline_after_ms(loop_now_us(run->deployment->loop), deployment_short_ms(run->deployment));
    for (size_t i = 0; i < run->next; i++)
        if (!run->parts[i].is_under_way) start_part(run, &run->parts[i], DLOCK_EXTENDING, limit_us);
    set_slots_timer(run);
}

/* A RELEASE of the token is on its way from here on, so the token is not used again. */
static void give_parts_back(slots_run *run) {
    stop_all(run);
    for (size_t i = 0; i < run->count; i++) {
        slot_part *part = &run->parts[i];
        if (part->attempt.fate != TOKEN_UNHELD)
            withdrawals_add(run->deployment, &part->attempt, run->whole->lease_ms);
        part->attempt.fate = TOKEN_UNHELD;
    }
    attempt_change_token(run->whole);
}

static void fail_acquire(slots_run *run, dlock_status status, bool is_transient,
                         const char *cause) {
    attempt *whole = run->whole;
    attempt_set_result(whole, status, is_transient, cause);
    give_parts_back(run);
    whole->on_done(whole);
}

/* The lock is held from when all parts are, and certainly until the first of their leases ends. */
static void finish_acquire(slots_run *run) {
    attempt *whole = run->whole;
    stop_all(run);
    whole->asked_us = run->parts[0].asked_us;
    for (size_t i = 1; i < run->count; i++)
        whole->asked_us = deadline_earlier(whole->asked_us, run->parts[i].asked_us);
    whole->fence = run->parts[run->first].attempt.fence;
    attempt_set_result(whole, DLOCK_OK, false, "");
    whole->on_done(whole);
}

static void take_part(slots_run *run, slot_part *part) {
    attempt *attempt = &part->attempt;
    if (attempt->status != DLOCK_OK) {
        fail_acquire(run, attempt->status, attempt->is_transient, attempt->cause);
        return;
    }
    attempt_note_grant(attempt);
    part->asked_us = attempt->asked_us;
    if (++run->next == run->count) {
        finish_acquire(run);
        return;
    }
    if (run->next == 1) set_slots_timer(run);
    start_part(run, &run->parts[run->next], DLOCK_ACQUIRING, run->whole->limit_us);
}

/* After another failure the next extension may succeed: the lease has not ended by then, or the
 * extension tells. A part of several names that has lost one of them may hold the others. */
static void take_extension(slots_run *run, slot_part *part) {
    attempt *attempt = &part->attempt;
    if (attempt->status == DLOCK_OK) part->asked_us = attempt->asked_us;
    if (attempt->status != DLOCK_LOST) return;
    if (!attempt_has_several(attempt)) attempt->fate = TOKEN_UNHELD;
    fail_acquire(run, DLOCK_BUSY, true, "a name was lost while another one was awaited");
}

/* The token of an earlier acquire in doubt is not used again: while the earlier parts would be
 * asked for once more, a later one might be held, against the order. */
static void begin_parts(slots_run *run) {
    attempt *whole = run->whole;
    for (size_t i = 0; i < run->count; i++) {
        run->parts[i].attempt.fate = whole->fate;
        run->parts[i].is_released = false;
        text_copy(run->parts[i].token, sizeof(run->parts[i].token), whole->token);
    }
    if (whole->fate != TOKEN_UNHELD) give_parts_back(run);
    whole->fences = 0;
    run->next = 0;
}

/* -- extend and release */

/* Which result of two parts is that of the lock? A higher rank wins. */
static int rank_of(dlock_operation operation, dlock_status status) {
    if (status == DLOCK_OK) return 0;
    bool is_lost = status == DLOCK_LOST;
    return is_lost == (operation == DLOCK_EXTENDING) ? 2 : 1;
}

static void finish_all(slots_run *run) {
    attempt *whole = run->whole;
    const attempt *worst = &run->parts[0].attempt;
    whole->asked_us = worst->asked_us;
    for (size_t i = 1; i < run->count; i++) {
        const attempt *each = &run->parts[i].attempt;
        whole->asked_us = deadline_earlier(whole->asked_us, each->asked_us);
        if (rank_of(whole->operation, each->status) > rank_of(whole->operation, worst->status))
            worst = each;
    }
    attempt_set_result(whole, worst->status, worst->is_transient, worst->cause);
    stop_all(run);
    whole->on_done(whole);
}

static void end_part(slots_run *run, slot_part *part) {
    if (run->whole->operation == DLOCK_RELEASING && part->attempt.status == DLOCK_OK)
        part->is_released = true;
    if (!is_under_way(run)) finish_all(run);
}

static void on_part_done(attempt *attempt) {
    slots_run *run = attempt->arg;
    slot_part *part = container_of(attempt, slot_part, attempt);
    part->is_under_way = false;
    if (run->whole->operation != DLOCK_ACQUIRING)
        end_part(run, part);
    else if (attempt->operation == DLOCK_EXTENDING)
        take_extension(run, part);
    else
        take_part(run, part);
}

/* After a release that reached all parts, the next one is not a repetition. */
static void forget_release(slots_run *run) {
    for (size_t i = 0; i < run->count; i++)
        if (!run->parts[i].is_released) return;
    for (size_t i = 0; i < run->count; i++)
        run->parts[i].is_released = false;
}

static void start_all(slots_run *run) {
    const attempt *whole = run->whole;
    forget_release(run);
    for (size_t i = 0; i < run->count; i++) {
        slot_part *part = &run->parts[i];
        bool is_done = whole->operation == DLOCK_RELEASING && part->is_released;
        part->attempt.fate = whole->fate;
        if (!is_done) start_part(run, part, whole->operation, whole->limit_us);
    }
}

/* -- the table */

static void start_slots_run(deployment *deployment, attempt *whole) {
    if (slots_count(whole) == 1) {
        routed_table.start(deployment, whole);
        return;
    }
    slots_run *run = whole->prepared.run;
    run->deployment = deployment;
    run->whole = whole;
    run->timer.on_due = on_extension_due;
    if (run->count == 0) make_parts(run, whole);
    if (whole->operation != DLOCK_ACQUIRING) {
        start_all(run);
        return;
    }
    begin_parts(run);
    start_part(run, &run->parts[0], DLOCK_ACQUIRING, whole->limit_us);
}

static void abandon_slots_run(deployment *deployment, attempt *whole) {
    if (slots_count(whole) == 1) {
        routed_table.abandon(deployment, whole);
        return;
    }
    slots_run *run = whole->prepared.run;
    if (!is_under_way(run)) return;
    attempt_set_result(whole, DLOCK_CANCELED, false, "canceled");
    if (whole->operation == DLOCK_ACQUIRING)
        give_parts_back(run);
    else
        stop_all(run);
}

const deployment_table slots_table = {.start = start_slots_run,
                                      .abandon = abandon_slots_run,
                                      .list_servers = router_list,
                                      .free = router_free,
                                      .size_run = size_slots_run,
                                      .is_routed = true};
