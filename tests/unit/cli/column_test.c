/* SPDX-License-Identifier: BSD-3-Clause */
/* column_test.c - texts from outside in a table. */
#include "column.h"

#include "unit.h"

static void check(const char *bytes, size_t length, size_t width, int is_padded,
                  const char *expected) {
    char text[COLUMN_MAX * 4 + 1];
    column_show(text, bytes, length, width, is_padded);
    CHECK_BYTES(text, strlen(text), expected, strlen(expected));
}

static void what_fits_is_shown_as_it_is(void) {
    check("name", 4, 10, 0, "name");
    check("name", 4, 6, 1, "name  ");
    check("name", 4, 4, 1, "name");
    check("", 0, 3, 1, "   ");
}

static void what_is_too_long_keeps_both_ends(void) {
    check("abcdefghijklmnop", 16, 12, 1, "abcdef..mnop");
    check("abcdefghij", 10, 4, 1, "abcd");
}

static void what_could_move_the_cursor_is_spelled_out(void) {
    check("\033[2J", 4, 20, 0, "\\x1b[2J");
    check("a\0b\n\xff", 5, 20, 0, "a\\x00b\\x0a\\xff");
}

static void no_length_is_too_much(void) {
    static char bytes[1000];
    char text[COLUMN_MAX * 4 + 1];
    memset(bytes, '\n', sizeof(bytes));
    for (size_t length = 0; length < sizeof(bytes); length += 7)
        for (size_t width = 0; width < 400; width += 13) {
            column_show(text, bytes, length, width, 1);
            CHECK_EQUAL((int64_t)strlen(text), (int64_t)(width < COLUMN_MAX ? width : COLUMN_MAX));
        }
}

int main(void) {
    UNIT_RUN(what_fits_is_shown_as_it_is);
    UNIT_RUN(what_is_too_long_keeps_both_ends);
    UNIT_RUN(what_could_move_the_cursor_is_spelled_out);
    UNIT_RUN(no_length_is_too_much);
    return unit_summary();
}
