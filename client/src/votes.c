/* SPDX-License-Identifier: BSD-3-Clause */
/* votes.c - see votes.h. */
#include "votes.h"

#include "text.h"

size_t votes_quorum(size_t voters) {
    return voters / 2 + 1;
}

void votes_add(votes *to, dlock_status answer, bool is_passing) {
    if (answer == DLOCK_OK) {
        to->yes++;
    } else if (answer == DLOCK_BUSY || answer == DLOCK_LOST) {
        to->no++;
    } else if (answer == DLOCK_CANCELED) {
        to->canceled++;
    } else if (answer == DLOCK_IN_DOUBT) {
        to->silent++;
    } else if (answer == DLOCK_UNREACHABLE) {
        to->unreachable++;
    } else if (is_passing) {
        to->failed++;
    } else if (to->lasting++ == 0) {
        to->failure = answer;
    }
}

/* So many that are not yes make a majority impossible. */
static size_t blocking(const votes *of) {
    return of->voters - votes_quorum(of->voters) + 1;
}

dlock_status votes_result(const votes *of, dlock_status no) {
    if (of->yes >= votes_quorum(of->voters)) return DLOCK_OK;
    if (of->canceled > 0) return DLOCK_CANCELED;
    if (of->no >= blocking(of)) return no;
    if (of->lasting >= blocking(of)) return of->failure;
    return DLOCK_NO_QUORUM;
}

static size_t unasked(const votes *of) {
    return of->voters - of->yes - of->no - of->silent - of->unreachable - of->failed - of->lasting -
           of->canceled;
}

bool votes_are_open(const votes *of, dlock_status no) {
    if (unasked(of) == 0 || votes_result(of, no) != DLOCK_NO_QUORUM) return false;
    return of->yes + unasked(of) >= votes_quorum(of->voters) ||
           of->no + unasked(of) >= blocking(of);
}

static void put_count(char *text, size_t size, size_t count, const char *what) {
    char digits[TEXT_NUMBER_SIZE];
    if (count == 0) return;
    text_put_number(digits, count);
    if (text[0] != '\0') text_append(text, size, ", ");
    text_append(text, size, digits);
    text_append(text, size, " ");
    text_append(text, size, what);
}

void votes_describe(const votes *of, const char *yes, const char *no, char *text, size_t size) {
    text[0] = '\0';
    put_count(text, size, of->yes, yes);
    put_count(text, size, of->no, no);
    put_count(text, size, of->silent, "unanswered");
    put_count(text, size, of->unreachable, "unreachable");
    put_count(text, size, of->failed + of->lasting, "failed");
    put_count(text, size, of->canceled, "canceled");
    put_count(text, size, unasked(of), "left alone");
}
