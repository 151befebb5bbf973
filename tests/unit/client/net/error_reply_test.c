/* SPDX-License-Identifier: BSD-3-Clause */
/* error_reply_test.c - errors as servers really send them, and what they mean for a lock. */
#include "net/resp.h"

#include "unit.h"

static void check_meaning(const char *text, dlock_status status, bool is_transient) {
    reply error = {.kind = REPLY_ERROR, .text = text, .length = strlen(text), .size = 1};
    error_meaning meaning = error_reply_meaning(&error);
    bool is_same = meaning.status == status && meaning.is_transient == is_transient;
    if (!is_same)
        printf("    \"%s\": %d%s\n", text, (int)meaning.status,
               meaning.is_transient ? ", transient" : "");
    CHECK(is_same);
}

TEST(a_rejected_login_is_refused_for_good) {
    check_meaning("NOAUTH Authentication required.", DLOCK_REFUSED, false);
    check_meaning("WRONGPASS invalid username-password pair or user is disabled.", DLOCK_REFUSED,
                  false);
    check_meaning("NOPERM User app has no permissions to run the 'dlock.acquire' command",
                  DLOCK_REFUSED, false);
    check_meaning("DENIED Redis is running in protected mode because protected mode is enabled",
                  DLOCK_REFUSED, false);
    check_meaning("ERR Client sent AUTH, but no password is set", DLOCK_REFUSED, false);
    check_meaning(
        "ERR AUTH <password> called without any password configured for the default user. Are "
        "you sure your configuration is correct?",
        DLOCK_REFUSED, false);
    check_meaning("ERR invalid password", DLOCK_REFUSED, false);
}

TEST(a_server_that_needs_an_administrator_refuses_for_good) {
    check_meaning("ERR FENCE must not be more than 5 minutes ahead of the server's clock",
                  DLOCK_REFUSED, false);
    check_meaning("OOM command not allowed when used memory > 'maxmemory'.", DLOCK_REFUSED, false);
    check_meaning(
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist "
        "to disk.",
        DLOCK_REFUSED, false);
}

TEST(a_server_that_cannot_write_now_is_worth_another_attempt) {
    check_meaning("LOADING Redis is loading the dataset in memory", DLOCK_REFUSED, true);
    check_meaning(
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        DLOCK_REFUSED, true);
    check_meaning("READONLY You can't write against a read only replica.", DLOCK_REFUSED, true);
    check_meaning(
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        DLOCK_REFUSED, true);
    check_meaning(
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> "
        "replica?)",
        DLOCK_REFUSED, true);
    check_meaning("UNBLOCKED client unblocked via CLIENT UNBLOCK", DLOCK_REFUSED, true);
    check_meaning("TRYAGAIN the slot of this lock is moving to another server", DLOCK_REFUSED,
                  true);
    check_meaning("CLUSTERDOWN The cluster is down", DLOCK_REFUSED, true);
    check_meaning("NOREPLICAS Not enough good replicas to write.", DLOCK_REFUSED, true);
    check_meaning("ERR max number of clients reached", DLOCK_REFUSED, true);
    check_meaning("ERR max number of clients + cluster connections reached", DLOCK_REFUSED, true);
}

TEST(a_mistake_of_the_caller_is_invalid) {
    check_meaning("WRONGTYPE Operation against a key holding the wrong kind of value",
                  DLOCK_INVALID, false);
    check_meaning("ERR DB index is out of range", DLOCK_INVALID, false);
    check_meaning("ERR SELECT is not allowed in cluster mode", DLOCK_INVALID, false);
    check_meaning("ERR PX must be an integer from 1 to 2592000000 (30 days)", DLOCK_INVALID, false);
    check_meaning("ERR token must have 1 to 256 bytes, not 257", DLOCK_INVALID, false);
}

TEST(a_full_queue_has_a_status_of_its_own) {
    check_meaning("QUEUEFULL too many clients wait for this lock already", DLOCK_QUEUE_FULL, false);
}

TEST(a_server_without_the_module_has_a_status_of_its_own) {
    check_meaning("ERR unknown command 'DLOCK.ACQUIRE', with args beginning with: 'a' 'b' ",
                  DLOCK_NO_MODULE, false);
    check_meaning("ERR unknown command `DLOCK.ACQUIRE`, with args beginning with: `a`",
                  DLOCK_NO_MODULE, false);
    check_meaning("ERR unknown command 'WAIT', with args beginning with: '1'", DLOCK_PROTOCOL,
                  false);
}

/* The words of is_allowed_or_reply() in module/commands.c. */
TEST(a_server_that_may_evict_locks_refuses_for_good) {
    check_meaning("ERR maxmemory-policy can evict locks, and dlock.require-noeviction is yes",
                  DLOCK_REFUSED, false);
}

TEST(an_unknown_error_is_not_guessed_at) {
    check_meaning("SOMETHING new", DLOCK_PROTOCOL, false);
    check_meaning("ERR something else", DLOCK_PROTOCOL, false);
    check_meaning("MOVED 3999 127.0.0.1:6381", DLOCK_PROTOCOL, false);
    check_meaning("ERR", DLOCK_PROTOCOL, false);
    check_meaning("", DLOCK_PROTOCOL, false);
}

TEST(the_whole_first_word_identifies_an_error) {
    check_meaning("BUSYGROUP Consumer Group name already exists", DLOCK_PROTOCOL, false);
    check_meaning("BUSYKEY Target key name already exists.", DLOCK_PROTOCOL, false);
    check_meaning("OOMPH no", DLOCK_PROTOCOL, false);
    check_meaning("NOAUTHORITY no", DLOCK_PROTOCOL, false);
    check_meaning("ERR LOADING is not the first word", DLOCK_PROTOCOL, false);
    check_meaning("LOADIN", DLOCK_PROTOCOL, false);
}

int main(void) {
    return unit_main(NULL, NULL);
}
