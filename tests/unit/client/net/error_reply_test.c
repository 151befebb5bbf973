/* SPDX-License-Identifier: BSD-3-Clause */
/* error_reply_test.c - errors as servers really send them, and what they mean for a lock. */
#include "net/resp.h"

#include "unit.h"

typedef struct row {
    const char *text;
    dlock_status status;
    bool is_transient;
} row;

static void check_rows(const row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        reply error = {
            .kind = REPLY_ERROR, .text = rows[i].text, .length = strlen(rows[i].text), .size = 1};
        error_meaning meaning = error_reply_meaning(&error);
        bool is_same =
            meaning.status == rows[i].status && meaning.is_transient == rows[i].is_transient;
        if (!is_same)
            printf("    \"%s\": %d%s\n", rows[i].text, (int)meaning.status,
                   meaning.is_transient ? ", transient" : "");
        CHECK(is_same);
    }
}

#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof((rows)[0]))

static void a_rejected_login_is_refused_for_good(void) {
    const row rows[] = {
        {"NOAUTH Authentication required.", DLOCK_REFUSED, false},
        {"WRONGPASS invalid username-password pair or user is disabled.", DLOCK_REFUSED, false},
        {"NOPERM User app has no permissions to run the 'dlock.acquire' command", DLOCK_REFUSED,
         false},
        {"DENIED Redis is running in protected mode because protected mode is enabled",
         DLOCK_REFUSED, false},
        {"ERR Client sent AUTH, but no password is set", DLOCK_REFUSED, false},
        {"ERR AUTH <password> called without any password configured for the default user. Are "
         "you sure your configuration is correct?",
         DLOCK_REFUSED, false},
        {"ERR invalid password", DLOCK_REFUSED, false},
    };
    CHECK_ROWS(rows);
}

static void a_server_that_needs_an_administrator_refuses_for_good(void) {
    const row rows[] = {
        {"ERR FENCE must not be more than 5 minutes ahead of the server's clock", DLOCK_REFUSED,
         false},
        {"OOM command not allowed when used memory > 'maxmemory'.", DLOCK_REFUSED, false},
        {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist "
         "to disk.",
         DLOCK_REFUSED, false},
        {"NOREPLICAS Not enough good replicas to write.", DLOCK_REFUSED, false},
    };
    CHECK_ROWS(rows);
}

static void a_server_that_cannot_write_now_is_worth_another_attempt(void) {
    const row rows[] = {
        {"LOADING Redis is loading the dataset in memory", DLOCK_REFUSED, true},
        {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
         DLOCK_REFUSED, true},
        {"READONLY You can't write against a read only replica.", DLOCK_REFUSED, true},
        {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
         DLOCK_REFUSED, true},
        {"UNBLOCKED force unblock from blocking operation, instance state changed (master -> "
         "replica?)",
         DLOCK_REFUSED, true},
        {"UNBLOCKED client unblocked via CLIENT UNBLOCK", DLOCK_REFUSED, true},
        {"TRYAGAIN the slot of this lock is moving to another server", DLOCK_REFUSED, true},
        {"CLUSTERDOWN The cluster is down", DLOCK_REFUSED, true},
        {"ERR max number of clients reached", DLOCK_REFUSED, true},
        {"ERR max number of clients + cluster connections reached", DLOCK_REFUSED, true},
    };
    CHECK_ROWS(rows);
}

static void a_mistake_of_the_caller_is_invalid(void) {
    const row rows[] = {
        {"WRONGTYPE Operation against a key holding the wrong kind of value", DLOCK_INVALID, false},
        {"ERR DB index is out of range", DLOCK_INVALID, false},
        {"ERR PX must be an integer from 1 to 2592000000 (30 days)", DLOCK_INVALID, false},
        {"ERR token must have 1 to 256 bytes, not 257", DLOCK_INVALID, false},
    };
    CHECK_ROWS(rows);
}

static void a_full_queue_has_a_status_of_its_own(void) {
    const row rows[] = {
        {"QUEUEFULL too many clients wait for this lock already", DLOCK_QUEUE_FULL, false}};
    CHECK_ROWS(rows);
}

static void a_server_without_the_module_has_a_status_of_its_own(void) {
    const row rows[] = {
        {"ERR unknown command 'DLOCK.ACQUIRE', with args beginning with: 'a' 'b' ", DLOCK_NO_MODULE,
         false},
        {"ERR unknown command `DLOCK.ACQUIRE`, with args beginning with: `a`", DLOCK_NO_MODULE,
         false},
        {"ERR unknown command 'WAIT', with args beginning with: '1'", DLOCK_PROTOCOL, false},
    };
    CHECK_ROWS(rows);
}

/* The words of is_allowed_or_reply() in module/commands.c. */
static void a_server_that_may_evict_locks_refuses_for_good(void) {
    const row rows[] = {
        {"ERR maxmemory-policy can evict locks, and dlock.require-noeviction is yes", DLOCK_REFUSED,
         false},
    };
    CHECK_ROWS(rows);
}

static void an_unknown_error_is_not_guessed_at(void) {
    const row rows[] = {
        {"SOMETHING new", DLOCK_PROTOCOL, false},
        {"ERR something else", DLOCK_PROTOCOL, false},
        {"MOVED 3999 127.0.0.1:6381", DLOCK_PROTOCOL, false},
        {"ERR", DLOCK_PROTOCOL, false},
        {"", DLOCK_PROTOCOL, false},
    };
    CHECK_ROWS(rows);
}

static void the_whole_first_word_identifies_an_error(void) {
    const row rows[] = {
        {"BUSYGROUP Consumer Group name already exists", DLOCK_PROTOCOL, false},
        {"BUSYKEY Target key name already exists.", DLOCK_PROTOCOL, false},
        {"OOMPH no", DLOCK_PROTOCOL, false},
        {"NOAUTHORITY no", DLOCK_PROTOCOL, false},
        {"ERR LOADING is not the first word", DLOCK_PROTOCOL, false},
        {"LOADIN", DLOCK_PROTOCOL, false},
    };
    CHECK_ROWS(rows);
}

int main(void) {
    UNIT_RUN(a_rejected_login_is_refused_for_good);
    UNIT_RUN(a_server_that_needs_an_administrator_refuses_for_good);
    UNIT_RUN(a_server_that_cannot_write_now_is_worth_another_attempt);
    UNIT_RUN(a_mistake_of_the_caller_is_invalid);
    UNIT_RUN(a_full_queue_has_a_status_of_its_own);
    UNIT_RUN(a_server_without_the_module_has_a_status_of_its_own);
    UNIT_RUN(a_server_that_may_evict_locks_refuses_for_good);
    UNIT_RUN(an_unknown_error_is_not_guessed_at);
    UNIT_RUN(the_whole_first_word_identifies_an_error);
    return unit_summary();
}
