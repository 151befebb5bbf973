/* SPDX-License-Identifier: BSD-3-Clause */
/* votes.c - see redlock.h. */
#include "deployment/redlock.h"

size_t votes_quorum(size_t voters) {
    return voters / 2 + 1;
}

void votes_add(votes *votes, dlock_status reply, bool is_transient) {
    if (reply == DLOCK_OK) {
        votes->yes++;
    } else if (reply == DLOCK_BUSY || reply == DLOCK_LOST) {
        votes->no++;
    } else if (reply == DLOCK_IN_DOUBT) {
        votes->unanswered++;
    } else if (reply == DLOCK_UNREACHABLE) {
        votes->unreachable++;
    } else {
        votes->failed++;
        if (!is_transient && votes->lasting++ == 0) votes->failure = reply;
    }
}

/* With so many servers that do not say yes, a majority is impossible. */
static size_t blocking(const votes *votes) {
    return votes->voters - votes_quorum(votes->voters) + 1;
}

dlock_status votes_result(const votes *votes, dlock_status no) {
    if (votes->yes >= votes_quorum(votes->voters)) return DLOCK_OK;
    if (votes->no >= blocking(votes)) return no;
    if (votes->lasting >= blocking(votes)) return votes->failure;
    return DLOCK_NO_QUORUM;
}

bool votes_are_open(const votes *votes, dlock_status no, size_t more) {
    if (more == 0 || votes_result(votes, no) != DLOCK_NO_QUORUM) return false;
    return votes->yes + more >= votes_quorum(votes->voters) || votes->no + more >= blocking(votes);
}

bool votes_are_split(const votes *votes) {
    size_t quorum = votes_quorum(votes->voters);
    return votes->yes > 0 && votes->yes < quorum && votes->yes + votes->no >= quorum;
}

static void put_count(char *text, size_t size, size_t count, const char *meaning) {
    char digits[TEXT_NUMBER_SIZE];
    if (count == 0) return;
    text_put_number(digits, count);
    if (text[0] != '\0') text_append(text, size, ", ");
    text_append(text, size, digits);
    text_append(text, size, " ");
    text_append(text, size, meaning);
}

void votes_describe(const votes *votes, const char *yes, const char *no, char *text, size_t size) {
    size_t counted =
        votes->yes + votes->no + votes->unanswered + votes->unreachable + votes->failed;
    text[0] = '\0';
    put_count(text, size, votes->yes, yes);
    put_count(text, size, votes->no, no);
    put_count(text, size, votes->unanswered, "unanswered");
    put_count(text, size, votes->unreachable, "unreachable");
    put_count(text, size, votes->failed, "failed");
    put_count(text, size, votes->voters - counted, "skipped");
}
