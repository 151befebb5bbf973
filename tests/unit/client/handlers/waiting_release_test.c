/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting_release_test.c - releases and extensions that fail, and what is known then. */
#include "waiting_world.h"

/* -- release */

typedef struct release_row {
    const char *name;
    steps releases;
    int64_t asked_us; /* 0: at the start */
    dlock_status status;
    int64_t calls, ends_us, withdrawn;
} release_row;

TEST(a_release_is_tried_until_it_is_answered_or_an_io_timeout_is_over) {
    const release_row rows[] = {
        {"it is sent once", SCRIPT(granted, lost), .calls = 1},
        {"lost before", SCRIPT(lost, granted), .status = DLOCK_LOST, .calls = 1},
        {"a failure that stays is withdrawn and not repeated",
         SCRIPT(for_good(DLOCK_REFUSED), granted), .status = DLOCK_REFUSED, .calls = 1,
         .withdrawn = 1},
        {"likewise", SCRIPT(for_good(DLOCK_PROTOCOL), granted), .status = DLOCK_PROTOCOL,
         .calls = 1, .withdrawn = 1},
        {"likewise", SCRIPT(for_good(DLOCK_NO_MEMORY), granted), .status = DLOCK_NO_MEMORY,
         .calls = 1, .withdrawn = 1},
        {"likewise", SCRIPT(for_good(DLOCK_IN_DOUBT), granted), .status = DLOCK_IN_DOUBT,
         .calls = 1, .withdrawn = 1},
        {"repeated after a pause", SCRIPT(slowly(unreachable, 30 * MS), refused_now, granted),
         .calls = 3, .ends_us = 50 * MS},
        {"lost after a lost reply: it had worked", SCRIPT(in_doubt, lost), .calls = 2,
         .ends_us = 10 * MS},
        {"also with a failure in between", SCRIPT(in_doubt, unreachable, lost), .calls = 3,
         .ends_us = 20 * MS},
        {"but lost if the lease had ended before", SCRIPT(in_doubt, lost),
         .asked_us = -LEASE_MS * MS, .status = DLOCK_LOST, .calls = 2, .ends_us = 10 * MS},
        {"lost after too few have heard it: it had worked", SCRIPT(no_quorum, lost), .calls = 2,
         .ends_us = 10 * MS},
        {"lost after nothing was sent", SCRIPT(unreachable, refused_now, lost),
         .status = DLOCK_LOST, .calls = 3, .ends_us = 20 * MS},
        {"gives up within an I/O timeout", SCRIPT(unreachable), .status = DLOCK_UNREACHABLE,
         .calls = 20, .ends_us = 190 * MS, .withdrawn = 1},
        {"refused all the time", SCRIPT(refused_now), .status = DLOCK_REFUSED, .calls = 20,
         .ends_us = 190 * MS, .withdrawn = 1},
        {"no reply: in doubt", SCRIPT(slowly(in_doubt, 200 * MS)), .status = DLOCK_IN_DOUBT,
         .calls = 1, .ends_us = IO_MS * MS, .withdrawn = 1},
        {"once in doubt, it stays so", SCRIPT(in_doubt, unreachable), .status = DLOCK_IN_DOUBT,
         .calls = 20, .ends_us = 190 * MS, .withdrawn = 1},
    };
    EACH_ROW(i, rows) {
        const release_row *row = &rows[i];
        unit.name = row->name;
        call *call = begin_release(row->releases);
        call->pub.asked_us += row->asked_us;
        CHECK_EQUAL(run(call, &spin), row->status);
        CHECK_CALLS(world.release, row->calls);
        CHECK_EQUAL(after_start_us(fake.now_us), row->ends_us);
        CHECK_EQUAL(fake.withdrawn, row->withdrawn);
        CHECK_TEXT(fake.withdrawn_token, row->withdrawn > 0 ? "token" : "");
        CHECK_TEXT(world.release.seen[0].token, "token");
        CHECK_EQUAL(is_text(call->pub.cause, ""), row->status == DLOCK_OK);
        for (size_t tried = 0; tried < world.release.calls; tried++)
            CHECK_EQUAL(after_start_us(world.release.seen[tried].limit_us), IO_MS * MS);
    }
}

TEST(a_release_that_has_no_time_for_a_pause_is_tried_once) {
    call *call = begin_release(SCRIPT(unreachable));
    world.deployment.io_timeout_ms = 10;
    CHECK_EQUAL(run(call, &spin), DLOCK_UNREACHABLE);
    CHECK_CALLS(world.release, 1);
    CHECK_EQUAL(fake.now_us, START_US);
}

/* -- on_sent */

static void count_sent(attempt *attempt) {
    call *call = attempt->arg;
    world.sent++;
    call->attempt.on_sent = NULL; /* as hotspot.c does */
}

/* Tells the release, behind the waiting handler's chain_begin(), whom to tell. */
static dlock_step ask_for_on_sent(void *arg, dlock_call *pub) {
    (void)arg;
    call_of(pub)->attempt.on_sent = count_sent;
    return DLOCK_PASS;
}

TEST(a_release_on_its_way_is_told_once) {
    void *slots[2] = {NULL, NULL};
    call *call = begin_release(SCRIPT(unreachable, granted));
    dlock_handler last = waiting_handler(&spin), first = {.order = 1, .enter = ask_for_on_sent};
    chain *chain = chain_new(2);
    chain_add(chain, first, true);
    chain_add(chain, last, true);
    call->slots = slots;
    chain_begin(call);
    CHECK_EQUAL(finish_call(chain, call), DLOCK_OK);
    CHECK_CALLS(world.release, 2);
    CHECK_EQUAL(world.sent, 1);
    free(chain);
}

/* -- extend */

TEST(an_extension_is_one_attempt_within_one_io_timeout) {
    call *call = begin_extend(SCRIPT(slowly(granted, 3 * MS)));
    call->pub.asked_us = START_US - SECOND;
    CHECK_EQUAL(run(call, &spin), DLOCK_OK);
    CHECK_CALLS(world.extend, 1);
    CHECK(is_text(world.extend.seen[0].token, "token"));
    CHECK_EQUAL(after_start_us(world.extend.seen[0].limit_us), IO_MS * MS);
    CHECK_EQUAL(call->pub.asked_us, START_US);
    CHECK(call->attempt.fence == FENCE);
}

TEST(an_extension_is_repeated_once) {
    const struct {
        const char *name;
        steps extends;
        dlock_status status;
        int64_t calls, ends_us;
    } rows[] = {
        {"no reply, then one", SCRIPT(in_doubt, granted), DLOCK_OK, 2, 10 * MS},
        {"not sent, then sent", SCRIPT(unreachable, granted), DLOCK_OK, 2, 10 * MS},
        {"not yet, then", SCRIPT(refused_now, granted), DLOCK_OK, 2, 10 * MS},
        {"lost", SCRIPT(lost, granted), DLOCK_LOST, 1, 0},
        {"lost after a lost reply", SCRIPT(in_doubt, lost), DLOCK_LOST, 2, 10 * MS},
        {"a failure that stays", SCRIPT(for_good(DLOCK_REFUSED), granted), DLOCK_REFUSED, 1, 0},
        {"never sent", SCRIPT(unreachable), DLOCK_UNREACHABLE, 2, 10 * MS},
        {"once in doubt, it stays so", SCRIPT(in_doubt, unreachable), DLOCK_IN_DOUBT, 2, 10 * MS},
        {"no reply in time", SCRIPT(slowly(in_doubt, 200 * MS)), DLOCK_IN_DOUBT, 1, IO_MS * MS},
    };
    EACH_ROW(i, rows) {
        unit.name = rows[i].name;
        call *call = begin_extend(rows[i].extends);
        call->pub.asked_us = START_US - SECOND;
        CHECK_EQUAL(run(call, &spin), rows[i].status);
        CHECK_CALLS(world.extend, rows[i].calls);
        CHECK_EQUAL(after_start_us(fake.now_us), rows[i].ends_us);
        bool is_extended = rows[i].status == DLOCK_OK;
        CHECK_EQUAL(call->pub.asked_us, is_extended ? fake.now_us : START_US - SECOND);
        CHECK_TEXT(call->pub.cause, is_extended ? "" : "as scripted");
        CHECK_EQUAL(fake.withdrawn, 0);
    }
}

int main(void) {
    return unit_main(NULL, NULL);
}
