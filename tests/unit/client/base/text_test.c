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

TEST(numbers_are_decimal) {
    check_number(0, "0");
    check_number(9, "9");
    check_number(10, "10");
    check_number(86400000, "86400000");
    check_number(UINT64_MAX, "18446744073709551615");
}

static void check_read(const char *digits, int64_t expected) {
    CHECK_EQUAL(text_read_number(digits, strlen(digits)), expected);
}

TEST(digits_are_read_as_a_number) {
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

TEST(bytes_are_two_digits_each) {
    const unsigned char bytes[] = {0x00, 0x0f, 0xf0, 0xff, 0x1a};
    char text[2 * sizeof(bytes) + 1];
    text_put_hex(text, bytes, sizeof(bytes));
    CHECK_TEXT(text, "000ff0ff1a");
}

TEST(a_copy_is_cut_where_it_does_not_fit) {
    char text[4];
    text_copy(text, sizeof(text), "abc");
    CHECK_TEXT(text, "abc");
    text_copy(text, sizeof(text), "defg");
    CHECK_TEXT(text, "def");
    text_copy(text, sizeof(text), "");
    CHECK_TEXT(text, "");
}

TEST(more_is_appended_as_far_as_it_fits) {
    char text[6] = "ab";
    text_append(text, sizeof(text), "cd");
    CHECK_TEXT(text, "abcd");
    text_append(text, sizeof(text), "ef");
    CHECK_TEXT(text, "abcde");
    text_append(text, sizeof(text), "g");
    CHECK_TEXT(text, "abcde");
}

TEST(equal_texts_have_equal_hashes_and_others_differ) {
    CHECK(text_hash("") != text_hash("a"));
    CHECK(text_hash("ab") != text_hash("ba"));
    CHECK(text_hash("ab") == text_hash("ab"));
}

int main(void) {
    return unit_main(NULL, NULL);
}
