/* SPDX-License-Identifier: BSD-3-Clause */
/* text_test.c - text for people. */
#include "text.h"

#include "unit.h"

/* -- escape */

static void check_escaped(const char *bytes, const char *expected) {
    char safe[200];
    escape_text(safe, sizeof(safe), bytes, strlen(bytes));
    CHECK_TEXT(safe, expected);
}

TEST(printable_text_stays) {
    check_escaped("", "");
    check_escaped("order:product:1000 ~!", "order:product:1000 ~!");
    check_escaped("t\xc3\xa4glich \xe2\x82\xac \xf0\x9f\x94\x92",
                  "t\xc3\xa4glich \xe2\x82\xac \xf0\x9f\x94\x92");
    check_escaped("a\\b", "a\\b");
}

TEST(what_moves_the_cursor_is_shown) {
    check_escaped("\033[2J\r\n\t\x7f", "\\x1b[2J\\x0d\\x0a\\x09\\x7f");
    check_escaped("\xc2\x9b"
                  "31m",
                  "\\xc2\\x9b31m");
}

TEST(what_changes_the_direction_is_shown) {
    check_escaped("\xe2\x80\xae", "\\xe2\\x80\\xae");
    check_escaped("\xe2\x81\xa9", "\\xe2\\x81\\xa9");
    check_escaped("\xe2\x80\x93", "\xe2\x80\x93");
}

TEST(bytes_that_are_not_utf8_are_shown) {
    check_escaped("\x80\xff", "\\x80\\xff");
    check_escaped("\xc0\xaf", "\\xc0\\xaf");
    check_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80");
    check_escaped("\xe2\x82", "\\xe2\\x82");
    check_escaped("\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80");
}

TEST(a_long_text_is_cut_between_characters) {
    char safe[6];
    CHECK_BYTES(escape_text(safe, sizeof(safe), "abcdefgh", 8), 5, "abcde", 5);
    escape_text(safe, sizeof(safe), "abc\033", 4);
    CHECK_TEXT(safe, "abc");
    escape_text(safe, sizeof(safe), "abcd\xc3\xa4", 6);
    CHECK_TEXT(safe, "abcd");
}

/* -- columns */

static void check(const char *bytes, size_t length, size_t width, int is_padded,
                  const char *expected) {
    char text[COLUMN_MAX * 4 + 1];
    column_show(text, bytes, length, width, is_padded);
    CHECK_TEXT(text, expected);
}

TEST(what_fits_is_shown_as_it_is) {
    check("name", 4, 10, 0, "name");
    check("name", 4, 6, 1, "name  ");
    check("name", 4, 4, 1, "name");
    check("", 0, 3, 1, "   ");
}

TEST(what_is_too_long_keeps_both_ends) {
    check("abcdefghijklmnop", 16, 12, 1, "abcdef..mnop");
    check("abcdefghij", 10, 4, 1, "abcd");
}

TEST(what_could_move_the_cursor_is_spelled_out) {
    check("\033[2J", 4, 20, 0, "\\x1b[2J");
    check("a\0b\n\xff", 5, 20, 0, "a\\x00b\\x0a\\xff");
}

TEST(the_end_is_the_end_of_all) {
    static char bytes[2000];
    memset(bytes, 'x', sizeof(bytes));
    memcpy(bytes + sizeof(bytes) - 4, "last", 4);
    check(bytes, sizeof(bytes), 12, 1, "xxxxxx..last");
}

TEST(letters_of_all_languages_are_shown) {
    check("\u00fcn\u00ef", 5, 5, 1, "\u00fcn\u00ef  ");
    check("\u540d\u524d", 6, 5, 1, "\u540d\u524d "); /* two columns each */
    check("\U0001F512!", 5, 4, 1, "\U0001F512! ");
    check("\u540d\u524d", 6, 3, 1, "\u540d ");
    check("\u540d\u524d\u540d\u524d\u540d\u524d", 18, 11, 1, "\u540d\u524d\u540d..\u524d ");
    check("\u00fc\xc3", 3, 20, 0, "\u00fc\\xc3"); /* the second is cut off */
    check("\u202e", 3, 20, 0, "\\xe2\\x80\\xae"); /* writes backwards */
}

TEST(a_cut_keeps_whole_letters) {
    CHECK_EQUAL(column_cut("\u00fcn\u00ef", 2), 3u);
    CHECK_EQUAL(column_cut("\u540d\u524d", 3), 3u);
    CHECK_EQUAL(column_cut("abc", 9), 3u);
}

TEST(no_length_is_too_much) {
    static char bytes[1000];
    char text[COLUMN_MAX * 4 + 1];
    memset(bytes, '\n', sizeof(bytes));
    for (size_t length = 0; length < sizeof(bytes); length += 7)
        for (size_t width = 0; width < 400; width += 13) {
            column_show(text, bytes, length, width, 1);
            CHECK_EQUAL(strlen(text), (width < COLUMN_MAX ? width : COLUMN_MAX));
        }
}

/* -- durations */

enum { NONE = -1 };

static int64_t parsed(const char *text) {
    int64_t ms;
    return duration_parse(text, &ms) ? ms : NONE;
}

static void check_shown(int64_t ms, const char *expected) {
    char text[DURATION_SIZE];
    duration_show(ms, text);
    CHECK_TEXT(text, expected);
}

TEST(a_bare_number_is_seconds) {
    CHECK_EQUAL(parsed("5"), 5000);
    CHECK_EQUAL(parsed("0"), 0);
    CHECK_EQUAL(parsed("0.25"), 250);
}

TEST(there_are_five_units) {
    CHECK_EQUAL(parsed("500ms"), 500);
    CHECK_EQUAL(parsed("5s"), 5000);
    CHECK_EQUAL(parsed("2m"), 120000);
    CHECK_EQUAL(parsed("1.5h"), 5400000);
    CHECK_EQUAL(parsed("1d"), 86400000);
}

TEST(what_is_no_time_is_refused) {
    const char *const wrong[] = {"",   "s",   "-1",  "+1", " 1",  "1 ", "1x",   "1ss", "ms",
                                 "1e", "nan", "inf", ".",  "1,5", "0x", "0x10", "1e3", "9999d"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_EQUAL(parsed(wrong[i]), NONE);
}

TEST(what_is_not_nothing_does_not_become_nothing) {
    CHECK_EQUAL(parsed("0.1ms"), NONE);
    CHECK_EQUAL(parsed("0.0001s"), NONE);
    CHECK_EQUAL(parsed("0ms"), 0);
}

TEST(they_are_shown_in_little_room) {
    check_shown(-1, "-");
    check_shown(0, "0ms");
    check_shown(999, "999ms");
    check_shown(1000, "1.0s");
    check_shown(9999, "9.9s");
    check_shown(10000, "10s");
    check_shown(60000, "1m00");
    check_shown(3599999, "59m59");
    check_shown(3600000, "1h00");
    check_shown(86399999, "23h59");
    check_shown(86400000, "1d");
}

int main(void) {
    return unit_main(NULL, NULL);
}
