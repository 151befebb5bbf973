/* SPDX-License-Identifier: BSD-3-Clause */
/* votes_test.c - how several servers replied, and what a majority says. */
#include "deployment/redlock.h"

#include "unit.h"

/* One letter a server: y(es), n(o), s(ilent), u(nreachable), f(ailed for now), r(efused for good),
 * - (no request). */
static votes count(const char *said) {
    static const struct {
        char letter;
        dlock_status status;
        bool is_passing;
    } meanings[] = {
        {'y', DLOCK_OK, false},         {'n', DLOCK_BUSY, false},   {'s', DLOCK_IN_DOUBT, true},
        {'u', DLOCK_UNREACHABLE, true}, {'f', DLOCK_REFUSED, true}, {'r', DLOCK_REFUSED, false},
    };
    votes made = {.voters = strlen(said)};
    for (; *said != '\0'; said++)
        EACH_ROW(i, meanings)
            if (meanings[i].letter == *said)
                votes_add(&made, meanings[i].status, meanings[i].is_passing);
    return made;
}

static void check(const char *said, dlock_status expected) {
    votes counted = count(said);
    dlock_status result = votes_result(&counted, DLOCK_BUSY);
    if (result != expected) printf("    %s: %d\n", said, (int)result);
    CHECK(result == expected);
}

TEST(a_quorum_is_more_than_half) {
    static const int64_t quorums[] = {1, 2, 2, 3, 3, 4, 4};
    for (size_t voters = 1; voters <= 7; voters++)
        CHECK_EQUAL(votes_quorum(voters), quorums[voters - 1]);
}

TEST(two_majorities_have_a_server_in_common) {
    for (size_t voters = 1; voters <= 15; voters++)
        CHECK(2 * votes_quorum(voters) > voters);
}

TEST(a_majority_of_all_says_yes) {
    check("yyy", DLOCK_OK);
    check("yyn", DLOCK_OK);
    check("yys", DLOCK_OK);
    check("yyyuu", DLOCK_OK);
    check("yyyrs", DLOCK_OK);
    check("yy", DLOCK_OK);
    check("yyyn", DLOCK_OK);
}

TEST(servers_that_are_not_there_count_as_well) {
    check("yuu", DLOCK_NO_QUORUM);
    check("yysss", DLOCK_NO_QUORUM);
    check("yy---", DLOCK_NO_QUORUM);
    check("yu", DLOCK_NO_QUORUM);
    check("yyuu", DLOCK_NO_QUORUM);
}

TEST(enough_noes_make_a_yes_impossible) {
    check("nny", DLOCK_BUSY);
    check("nnu", DLOCK_BUSY);
    check("nnnss", DLOCK_BUSY);
    check("yynn", DLOCK_BUSY); /* of four it takes two */
    check("yn", DLOCK_BUSY);
    check("nnyys", DLOCK_NO_QUORUM);
    check("nuu", DLOCK_NO_QUORUM);
    check("nyu", DLOCK_NO_QUORUM);
}

TEST(the_no_is_the_callers) {
    votes counted = count("nny");
    CHECK_EQUAL(votes_result(&counted, DLOCK_LOST), DLOCK_LOST);
}

TEST(a_lost_counts_as_a_no) {
    votes counted = {.voters = 3};
    votes_add(&counted, DLOCK_LOST, false);
    votes_add(&counted, DLOCK_LOST, false);
    CHECK_EQUAL(votes_result(&counted, DLOCK_LOST), DLOCK_LOST);
}

TEST(lasting_failures_of_too_many_are_the_result) {
    check("rry", DLOCK_REFUSED);
    check("rrrss", DLOCK_REFUSED);
    check("rryyu", DLOCK_NO_QUORUM);
    check("ffy", DLOCK_NO_QUORUM);
    check("rny", DLOCK_NO_QUORUM);
}

TEST(the_first_lasting_failure_is_told) {
    votes counted = {.voters = 3};
    votes_add(&counted, DLOCK_INVALID, false);
    votes_add(&counted, DLOCK_PROTOCOL, false);
    CHECK_EQUAL(votes_result(&counted, DLOCK_BUSY), DLOCK_INVALID);
}

static void check_open(const char *said, bool expected) {
    votes counted = count(said);
    size_t more = 0;
    for (const char *letter = said; *letter != '\0'; letter++)
        more += *letter == '-';
    bool is_open = votes_are_open(&counted, DLOCK_BUSY, more);
    if (is_open != expected) printf("    %s\n", said);
    CHECK(is_open == expected);
}

TEST(a_vote_is_open_while_more_replies_could_decide_it) {
    check_open("yy-", false); /* decided */
    check_open("nn-", false);
    check_open("yn-", true);
    check_open("yu-", true);
    check_open("uu-", false); /* lost whatever it says */
    check_open("nu-", true);
    check_open("yyu--", true);
    check_open("yuu--", true);
    check_open("uuu--", false);
    check_open("nuu--", true);
    check_open("yyn", false);
    check_open("rr-", false);
    check_open("---", true);
}

/* Whatever is said: at most one of yes and no can be, and more yes never makes it worse. */
static void check_split(const char *said, bool expected) {
    votes counted = count(said);
    bool is_split = votes_are_split(&counted);
    if (is_split != expected) printf("    %s\n", said);
    CHECK(is_split == expected);
}

TEST(a_vote_is_split_if_those_who_said_no_may_be_for_several_others) {
    check_split("yyn", false); /* decided */
    check_split("nnn", false); /* another has all */
    check_split("ynn", true);
    check_split("ynu", true);
    check_split("yuu", false); /* too few are there */
    check_split("yynnn", true);
    check_split("yynuu", true);
    check_split("ynnss", true);
    check_split("ynuuu", false);
    check_split("nnnuu", false);
    check_split("ynr", true);
}

TEST(a_yes_more_never_makes_it_worse) {
    static const char letters[] = "ynsufr-";
    for (int i = 0; i < 20000; i++) {
        char said[16] = "";
        size_t voters = 1 + (size_t)(unit_random() % 15);
        for (size_t v = 0; v < voters; v++)
            said[v] = letters[unit_random() % (sizeof(letters) - 1)];
        said[voters] = '\0';
        votes before = count(said);
        said[unit_random() % voters] = 'y';
        votes after = count(said);
        if (votes_result(&before, DLOCK_BUSY) == DLOCK_OK)
            CHECK(votes_result(&after, DLOCK_BUSY) == DLOCK_OK);
    }
}

static void check_text(const char *said, const char *expected) {
    char text[100];
    votes counted = count(said);
    votes_describe(&counted, "ok", "busy", text, sizeof(text));
    CHECK_TEXT(text, expected);
}

TEST(votes_are_described_in_words) {
    check_text("yynnu", "2 ok, 2 busy, 1 unreachable");
    check_text("nnn", "3 busy");
    check_text("ysfr-", "1 ok, 1 unanswered, 2 failed, 1 skipped");
}

TEST(a_description_that_does_not_fit_is_cut) {
    char text[12];
    votes counted = count("yynnu");
    memset(text, 'x', sizeof(text));
    votes_describe(&counted, "ok", "busy", text, 8);
    CHECK_TEXT(text, "2 ok, 2");
    CHECK(text[8] == 'x');
}

int main(void) {
    return unit_main(NULL, NULL);
}
