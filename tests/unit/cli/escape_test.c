/* SPDX-License-Identifier: BSD-3-Clause */
/* escape_test.c - text from outside, on a terminal. */
#include "escape.h"

#include "unit.h"

static void check_escaped(const char *bytes, const char *expected) {
    char safe[200];
    escape_text(safe, sizeof(safe), bytes, strlen(bytes));
    CHECK_BYTES(safe, strlen(safe), expected, strlen(expected));
}

static void printable_text_stays(void) {
    check_escaped("", "");
    check_escaped("order:product:1000 ~!", "order:product:1000 ~!");
    check_escaped("t\xc3\xa4glich \xe2\x82\xac \xf0\x9f\x94\x92",
                  "t\xc3\xa4glich \xe2\x82\xac \xf0\x9f\x94\x92");
    check_escaped("a\\b", "a\\b");
}

static void what_moves_the_cursor_is_shown(void) {
    check_escaped("\033[2J\r\n\t\x7f", "\\x1b[2J\\x0d\\x0a\\x09\\x7f");
    check_escaped("\xc2\x9b"
                  "31m",
                  "\\xc2\\x9b31m");
}

static void what_changes_the_direction_is_shown(void) {
    check_escaped("\xe2\x80\xae", "\\xe2\\x80\\xae");
    check_escaped("\xe2\x81\xa9", "\\xe2\\x81\\xa9");
    check_escaped("\xe2\x80\x93", "\xe2\x80\x93");
}

static void bytes_that_are_not_utf8_are_shown(void) {
    check_escaped("\x80\xff", "\\x80\\xff");
    check_escaped("\xc0\xaf", "\\xc0\\xaf");
    check_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80");
    check_escaped("\xe2\x82", "\\xe2\\x82");
    check_escaped("\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80");
}

static void a_long_text_is_cut_between_characters(void) {
    char safe[6];
    CHECK_BYTES(escape_text(safe, sizeof(safe), "abcdefgh", 8), 5, "abcde", 5);
    escape_text(safe, sizeof(safe), "abc\033", 4);
    CHECK_BYTES(safe, strlen(safe), "abc", 3);
    escape_text(safe, sizeof(safe), "abcd\xc3\xa4", 6);
    CHECK_BYTES(safe, strlen(safe), "abcd", 4);
}

int main(void) {
    UNIT_RUN(printable_text_stays);
    UNIT_RUN(what_moves_the_cursor_is_shown);
    UNIT_RUN(what_changes_the_direction_is_shown);
    UNIT_RUN(bytes_that_are_not_utf8_are_shown);
    UNIT_RUN(a_long_text_is_cut_between_characters);
    return unit_summary();
}
