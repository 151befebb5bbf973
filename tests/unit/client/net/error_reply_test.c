/* SPDX-License-Identifier: BSD-3-Clause */
/* error_reply_test.c - errors as servers really send them, and what they mean for a lock. */
#include "net/resp.h"

#include "unit.h"

#define CHECK_ALL(status, is_transient, ...)                                                       \
    check_all(status, is_transient, (const char *const[]){__VA_ARGS__, NULL})

static void check_all(dlock_status status, bool is_transient, const char *const texts[]) {
    for (; *texts != NULL; texts++) {
        reply error = {.kind = REPLY_ERROR, .text = *texts, .length = strlen(*texts), .size = 1};
        error_meaning meaning = error_reply_meaning(&error);
        bool is_same = meaning.status == status && meaning.is_transient == is_transient;
        if (!is_same) printf("    \"%s\": %d\n", *texts, (int)meaning.status);
        CHECK(is_same);
    }
}

TEST(a_rejected_login_is_refused_for_good) {
    CHECK_ALL(DLOCK_REFUSED, false, "NOAUTH Authentication required.",
              "WRONGPASS invalid username-password pair or user is disabled.",
              "NOPERM User app has no permissions to run the 'dlock.acquire' command",
              "DENIED Redis is running in protected mode because protected mode is enabled",
              "ERR Client sent AUTH, but no password is set",
              "ERR AUTH <password> called without any password configured for the default user. "
              "Are you sure your configuration is correct?",
              "ERR invalid password");
}

/* One of them has the words of is_allowed_or_reply() in module/commands.c. */
TEST(a_server_that_needs_an_administrator_refuses_for_good) {
    CHECK_ALL(DLOCK_REFUSED, false,
              "ERR FENCE must not be more than 5 minutes ahead of the server's clock",
              "ERR maxmemory-policy can evict locks, and dlock.require-noeviction is yes",
              "OOM command not allowed when used memory > 'maxmemory'.",
              "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to "
              "persist to disk.");
}

TEST(a_server_that_cannot_write_now_is_worth_another_attempt) {
    CHECK_ALL(DLOCK_REFUSED, true, "LOADING Redis is loading the dataset in memory",
              "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN "
              "NOSAVE.",
              "READONLY You can't write against a read only replica.",
              "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
              "UNBLOCKED force unblock from blocking operation, instance state changed (master -> "
              "replica?)",
              "UNBLOCKED client unblocked via CLIENT UNBLOCK",
              "TRYAGAIN the slot of this lock is moving to another server",
              "CLUSTERDOWN The cluster is down", "NOREPLICAS Not enough good replicas to write.",
              "ERR max number of clients reached",
              "ERR max number of clients + cluster connections reached");
}

TEST(a_mistake_of_the_caller_is_invalid) {
    CHECK_ALL(DLOCK_INVALID, false,
              "WRONGTYPE Operation against a key holding the wrong kind of value",
              "ERR DB index is out of range", "ERR SELECT is not allowed in cluster mode",
              "ERR PX must be an integer from 1 to 2592000000 (30 days)",
              "ERR token must have 1 to 256 bytes, not 257");
}

TEST(a_full_queue_and_a_missing_module_have_statuses_of_their_own) {
    CHECK_ALL(DLOCK_QUEUE_FULL, false, "QUEUEFULL too many clients wait for this lock already");
    CHECK_ALL(DLOCK_NO_MODULE, false,
              "ERR unknown command 'DLOCK.ACQUIRE', with args beginning with: 'a' 'b' ",
              "ERR unknown command `DLOCK.ACQUIRE`, with args beginning with: `a`");
}

TEST(an_unknown_error_is_not_guessed_at) {
    CHECK_ALL(DLOCK_PROTOCOL, false, "SOMETHING new", "ERR something else",
              "ERR unknown command 'WAIT', with args beginning with: '1'",
              "MOVED 3999 127.0.0.1:6381", "ERR", "");
}

TEST(the_whole_first_word_identifies_an_error) {
    CHECK_ALL(DLOCK_PROTOCOL, false, "BUSYGROUP Consumer Group name already exists",
              "BUSYKEY Target key name already exists.", "OOMPH no", "NOAUTHORITY no",
              "ERR LOADING is not the first word", "LOADIN");
}

int main(void) {
    return unit_main(NULL, NULL);
}
