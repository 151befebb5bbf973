/* SPDX-License-Identifier: BSD-3-Clause */
/* text_test.c - short texts. */
#include "base/text.h"

#include "unit.h"

static void check_number(uint64_t number, const char *expected) {
    char text[TEXT_NUMBER_SIZE];
    size_t length = text_put_number(text, number);
    CHECK_BYTES(text, length, expected, strlen(expected));
    CHECK(text[length] == '\0');
}

static void numbers_are_decimal(void) {
    check_number(0, "0");
    check_number(9, "9");
    check_number(10, "10");
    check_number(86400000, "86400000");
    check_number(UINT64_MAX, "18446744073709551615");
}

static void check_read(const char *digits, int64_t expected) {
    CHECK_EQUAL(text_read_number(digits, strlen(digits)), expected);
}

static void digits_are_read_as_a_number(void) {
    check_read("0", 0);
    check_read("0065535", 65535);
    check_read("9223372036854775807", INT64_MAX);
    check_read("9223372036854775808", -1);
    check_read("99999999999999999999", -1);
    check_read("", -1);
    check_read("-1", -1);
    check_read("+1", -1);
    check_read("1 ", -1);
    CHECK_EQUAL(text_read_number("123", 2), 12);
}

static void bytes_are_two_digits_each(void) {
    const unsigned char bytes[] = {0x00, 0x0f, 0xf0, 0xff, 0x1a};
    char text[2 * sizeof(bytes) + 1];
    text_put_hex(text, bytes, sizeof(bytes));
    CHECK_BYTES(text, strlen(text), "000ff0ff1a", 10);
}

static void a_copy_is_cut_where_it_does_not_fit(void) {
    char text[4];
    text_copy(text, sizeof(text), "abc");
    CHECK_BYTES(text, strlen(text), "abc", 3);
    text_copy(text, sizeof(text), "defg");
    CHECK_BYTES(text, strlen(text), "def", 3);
    text_copy(text, sizeof(text), "");
    CHECK_BYTES(text, strlen(text), "", 0);
}

static void more_is_appended_as_far_as_it_fits(void) {
    char text[6] = "ab";
    text_append(text, sizeof(text), "cd");
    CHECK_BYTES(text, strlen(text), "abcd", 4);
    text_append(text, sizeof(text), "ef");
    CHECK_BYTES(text, strlen(text), "abcde", 5);
    text_append(text, sizeof(text), "g");
    CHECK_BYTES(text, strlen(text), "abcde", 5);
}

static void equal_texts_have_equal_hashes_and_others_differ(void) {
    CHECK(text_hash("") != text_hash("a"));
    CHECK(text_hash("ab") != text_hash("ba"));
    CHECK(text_hash("ab") == text_hash("ab"));
}

int main(void) {
    UNIT_RUN(numbers_are_decimal);
    UNIT_RUN(digits_are_read_as_a_number);
    UNIT_RUN(bytes_are_two_digits_each);
    UNIT_RUN(a_copy_is_cut_where_it_does_not_fit);
    UNIT_RUN(more_is_appended_as_far_as_it_fits);
    UNIT_RUN(equal_texts_have_equal_hashes_and_others_differ);
    return unit_summary();
}
