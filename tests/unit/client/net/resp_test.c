/* SPDX-License-Identifier: BSD-3-Clause */
/* resp_test.c - commands as bytes, bytes as replies, and what a hostile server may send. */
#include "net/resp.h"

#include "unit.h"
#include <stdlib.h>

static resp_reader reader;
static const reply *root;
static size_t used;
static char *copy; /* the bytes that the root points into */

/* A copy of exactly that size, so that a sanitizer sees reads beyond the end. */
static resp_result read_bytes(const char *bytes, size_t size) {
    free(copy);
    copy = malloc(size > 0 ? size : 1);
    memcpy(copy, bytes, size);
    root = NULL;
    used = 0;
    resp_result result = resp_read(&reader, copy, size, &root, &used);
    if (result == RESP_INCOMPLETE) /* the next bytes are of another reply */
        reader = (resp_reader){.nodes = reader.nodes, .node_capacity = reader.node_capacity};
    return result;
}

static void free_copies(void) {
    resp_reader_free(&reader);
    free(copy);
    copy = NULL;
}

static resp_result read_text(const char *text) {
    return read_bytes(text, strlen(text));
}

static void check_text(const reply *reply, reply_kind kind, const char *text) {
    CHECK(reply != NULL && reply->kind == kind);
    if (reply != NULL) CHECK_BYTES(reply->text, reply->length, text, strlen(text));
}

static void check_integer(const char *text, int64_t expected) {
    CHECK_EQUAL(read_text(text), RESP_REPLY);
    if (root == NULL) return;
    CHECK_EQUAL(root->kind, REPLY_INTEGER);
    CHECK_EQUAL(root->integer, expected);
}

/* -- commands */

static void check_command(const command *made, const char *expected, size_t size) {
    bytes out = {0};
    CHECK(bytes_append(&out, "before", 6));
    CHECK(command_append(made, &out));
    CHECK_BYTES(out.data + 6, out.size - 6, expected, size);
    free(out.data);
}

TEST(a_command_is_an_array_of_words) {
    const char expected[] = "*4\r\n$4\r\nEVAL\r\n$0\r\n\r\n$3\r\na\0b\r\n$20\r\n"
                            "18446744073709551615\r\n";
    command made = {0};
    command_add(&made, "EVAL");
    command_add(&made, "");
    command_add_bytes(&made, "a\0b", 3);
    command_add_number(&made, UINT64_MAX);
    check_command(&made, expected, sizeof(expected) - 1);
}

TEST(further_words_follow_the_first_ones) {
    const char expected[] = "*3\r\n$4\r\nECHO\r\n$3\r\na\0b\r\n$0\r\n\r\n";
    command made = {.rest_count = 2,
                    .rest = (const char *const[]){"a\0b", "not counted"},
                    .rest_lengths = (const size_t[]){3, 0}};
    command_add(&made, "ECHO");
    check_command(&made, expected, sizeof(expected) - 1);
}

TEST(a_word_of_any_length_is_counted) {
    static char word[2000];
    memset(word, 'x', sizeof(word));
    for (size_t length = 0; length < sizeof(word); length += 7) {
        command made = {0};
        bytes out = {0};
        command_add_bytes(&made, word, length);
        CHECK(command_append(&made, &out));
        CHECK_EQUAL(read_bytes(out.data, out.size), RESP_REPLY);
        CHECK_EQUAL(used, out.size);
        if (root != NULL) CHECK_EQUAL(reply_element(root, 0)->length, length);
        free(out.data);
    }
}

/* -- replies */

TEST(each_kind_of_reply_is_read) {
    CHECK_EQUAL(read_text("+OK\r\n"), RESP_REPLY);
    check_text(root, REPLY_STATUS, "OK");
    CHECK_EQUAL(read_text("-ERR no such thing\r\n"), RESP_REPLY);
    check_text(root, REPLY_ERROR, "ERR no such thing");
    CHECK_EQUAL(read_text("$5\r\nhello\r\n"), RESP_REPLY);
    check_text(root, REPLY_TEXT, "hello");
    CHECK_EQUAL(read_text("$0\r\n\r\n"), RESP_REPLY);
    check_text(root, REPLY_TEXT, "");
    CHECK_EQUAL(read_text("+\r\n"), RESP_REPLY);
    check_text(root, REPLY_STATUS, "");
    CHECK_EQUAL(read_text("$-1\r\n"), RESP_REPLY);
    CHECK(root != NULL && root->kind == REPLY_NIL);
    CHECK_EQUAL(read_text("*-1\r\n"), RESP_REPLY);
    CHECK(root != NULL && root->kind == REPLY_NIL);
    CHECK_EQUAL(read_text("*0\r\n"), RESP_REPLY);
    CHECK(root != NULL && root->kind == REPLY_ARRAY && root->count == 0 && root->size == 1);
}

TEST(integers_have_64_bits) {
    check_integer(":0\r\n", 0);
    check_integer(":-1\r\n", -1);
    check_integer(":+7\r\n", 7);
    check_integer(":9223372036854775807\r\n", INT64_MAX);
    check_integer(":-9223372036854775808\r\n", INT64_MIN);
}

TEST(a_text_may_have_any_bytes) {
    CHECK_EQUAL(read_bytes("$6\r\na\r\n\0b\n\r\n", 12), RESP_REPLY);
    CHECK(root != NULL);
    if (root != NULL) CHECK_BYTES(root->text, root->length, "a\r\n\0b\n", 6);
    CHECK_EQUAL(read_text("+a\rb\r\n"), RESP_REPLY);
    check_text(root, REPLY_STATUS, "a\rb");
}

TEST(arrays_are_trees) {
    CHECK_EQUAL(read_text("*4\r\n:1\r\n*2\r\n+a\r\n*1\r\n$1\r\nb\r\n*0\r\n$-1\r\n"), RESP_REPLY);
    if (root == NULL) return;
    CHECK_EQUAL(root->size, 8);
    CHECK_EQUAL(reply_element(root, 0)->integer, 1);
    const reply *inner = reply_element(root, 1);
    CHECK_EQUAL(inner->count, 2);
    check_text(reply_element(inner, 0), REPLY_STATUS, "a");
    check_text(reply_element(reply_element(inner, 1), 0), REPLY_TEXT, "b");
    CHECK_EQUAL(reply_element(root, 2)->count, 0);
    CHECK_EQUAL(reply_element(root, 3)->kind, REPLY_NIL);
    CHECK(reply_element(root, 4) == NULL);
    CHECK(reply_element(reply_element(root, 0), 0) == NULL);
    CHECK(reply_element(reply_element(root, 2), 0) == NULL);
}

TEST(a_loop_sees_every_element_once) {
    CHECK_EQUAL(read_text("*4\r\n*2\r\n:1\r\n:2\r\n:3\r\n*0\r\n*1\r\n*1\r\n:4\r\n"), RESP_REPLY);
    if (root == NULL) return;
    size_t count = 0;
    for (const reply *each = NULL; (each = reply_next(root, each)) != NULL; count++)
        CHECK(each == reply_element(root, count));
    CHECK_EQUAL(count, 4);
    CHECK(reply_next(reply_element(root, 2), NULL) == NULL);
    CHECK(reply_next(reply_element(root, 1), NULL) == NULL);
}

TEST(only_the_first_reply_is_taken) {
    CHECK_EQUAL(read_text("+OK\r\n:2\r\n"), RESP_REPLY);
    CHECK_EQUAL(used, 5);
    CHECK_EQUAL(read_text("*1\r\n:2\r\n?"), RESP_REPLY);
    CHECK_EQUAL(used, 8);
}

TEST(texts_are_compared_and_copied) {
    char text[4];
    read_text("$5\r\nhello\r\n");
    CHECK(reply_is_text(root, "hello") && !reply_is_text(root, "hell"));
    CHECK(!reply_is_text(root, "hello!") && !reply_is_text(root, ""));
    CHECK(reply_begins_with(root, "hell") && reply_begins_with(root, ""));
    CHECK(!reply_begins_with(root, "hello!"));
    reply_copy_text(root, text, sizeof(text));
    CHECK_TEXT(text, "hel");
    read_text("-ERR x\r\n");
    CHECK(!reply_is_text(root, "ERR x") && reply_begins_with(root, "ERR "));
    read_text(":1\r\n");
    reply_copy_text(root, text, sizeof(text));
    CHECK(text[0] == '\0' && !reply_begins_with(root, ""));
}

static void check_number(const char *text, int64_t expected) {
    CHECK_EQUAL(read_text(text), RESP_REPLY);
    if (root != NULL) CHECK_EQUAL(reply_number(root), expected);
}

TEST(a_number_may_come_as_a_text) {
    check_number(":12\r\n", 12);
    check_number(":-12\r\n", -1);
    check_number("$3\r\n120\r\n", 120);
    check_number("+7\r\n", 7);
    check_number("$19\r\n9223372036854775807\r\n", INT64_MAX);
    check_number("$19\r\n9223372036854775808\r\n", -1);
    check_number("$40\r\n1111111111111111111111111111111111111111\r\n", -1);
    check_number("$0\r\n\r\n", -1);
    check_number("$2\r\n-1\r\n", -1);
    check_number("$2\r\n1x\r\n", -1);
    check_number("-1\r\n", -1);
    check_number("$-1\r\n", -1);
}

/* -- incomplete and hostile */

TEST(every_beginning_of_a_reply_is_incomplete) {
    static const char *const replies[] = {
        "+OK\r\n",
        "-ERR a\rb\r\n",
        ":-123\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "$12\r\nhello\r\nworld\r\n",
        "*3\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n+x\r\n",
    };
    EACH_ROW(i, replies) {
        size_t size = strlen(replies[i]);
        for (size_t length = 0; length < size; length++)
            CHECK_EQUAL(read_bytes(replies[i], length), RESP_INCOMPLETE);
        CHECK_EQUAL(read_bytes(replies[i], size), RESP_REPLY);
        CHECK_EQUAL(used, size);
    }
}

/* Each piece comes with all bytes before it, in another place. The bytes of nodes that are complete
 * are made unreadable: only their texts may be needed again. */
TEST(a_reply_in_pieces_is_read_once) {
    static const char whole[] =
        "*4\r\n*2\r\n:12\r\n+yes\r\n$5\r\nhello\r\n-ERR a\rb\r\n*1\r\n*0\r\n";
    const size_t size = sizeof(whole) - 1, node_ends[] = {4, 8, 13, 19, 30, 40, 44, 48};
    for (size_t step = 1; step <= size; step++) {
        resp_result result = RESP_INCOMPLETE;
        for (size_t length = step; result == RESP_INCOMPLETE; length += step) {
            if (length > size) length = size;
            free(copy);
            copy = malloc(length);
            memcpy(copy, whole, length);
            for (size_t i = 0, begin = 0; i < 8 && node_ends[i] <= length - step; i++) {
                copy[begin] = '?';
                begin = node_ends[i];
            }
            result = resp_read(&reader, copy, length, &root, &used);
            if (length == size) break;
        }
        CHECK_EQUAL(result, RESP_REPLY);
        if (result != RESP_REPLY) return;
        CHECK_EQUAL(used, size);
        CHECK_EQUAL(root->size, 8);
        CHECK_EQUAL(reply_element(reply_element(root, 0), 0)->integer, 12);
        check_text(reply_element(reply_element(root, 0), 1), REPLY_STATUS, "yes");
        check_text(reply_element(root, 1), REPLY_TEXT, "hello");
        check_text(reply_element(root, 2), REPLY_ERROR, "ERR a\rb");
        CHECK_EQUAL(reply_element(reply_element(root, 3), 0)->count, 0);
    }
}

/* The beginning of the line is not searched again for its end. */
TEST(a_long_line_in_pieces_is_searched_once) {
    resp_reader_free(&reader);
    CHECK_EQUAL(resp_read(&reader, "+abcdef", 7, &root, &used), RESP_INCOMPLETE);
    CHECK_EQUAL(resp_read(&reader, "+ab\r\nfgh\r", 9, &root, &used), RESP_INCOMPLETE);
    CHECK_EQUAL(resp_read(&reader, "+ab\r\nfgh\r\n", 10, &root, &used), RESP_REPLY);
    check_text(root, REPLY_STATUS, "ab\r\nfgh");
}

TEST(the_reply_after_one_in_pieces_is_read_from_its_beginning) {
    CHECK_EQUAL(resp_read(&reader, "*2\r\n:1\r\n", 8, &root, &used), RESP_INCOMPLETE);
    CHECK_EQUAL(resp_read(&reader, "*2\r\n:1\r\n:2\r\n", 12, &root, &used), RESP_REPLY);
    CHECK_EQUAL(resp_read(&reader, "*1\r\n+x", 6, &root, &used), RESP_INCOMPLETE);
    CHECK_EQUAL(resp_read(&reader, "*1\r\n+x\n\r_", 9, &root, &used), RESP_INCOMPLETE);
    CHECK_EQUAL(resp_read(&reader, "*1\r\n+x\n\r_\r\n", 11, &root, &used), RESP_REPLY);
    check_integer(":3\r\n", 3);
}

TEST(nonsense_is_malformed) {
    static const char *const bad[] = {
        "HTTP/1.1 400 Bad Request\r\n",
        "\r\n",
        " +OK\r\n",
        "_\r\n",
        "#t\r\n",
        "%1\r\n",
        "~1\r\n",
        ">1\r\n",
        ",1.5\r\n",
        "(123\r\n",
        "=5\r\n",
        ":\r\n",
        ":-\r\n",
        ":1x\r\n",
        ":x",
        ":1 \r\n",
        ": 1\r\n",
        ":--1\r\n",
        ":1\rx",
        ":9223372036854775808\r\n",
        ":-9223372036854775809\r\n",
        ":99999999999999999999",
        ":18446744073709551616",
        ":000000000000000000001",
        "$-2\r\n",
        "$-9223372036854775808\r\n",
        "$9223372036854775806\r\n",
        "$9223372036854775807\r\n",
        "$18446744073709551615\r\n",
        "$536870913\r\n",
        "$\r\n",
        "$2\r\nabc\r\n",
        "$2\r\nab\rx",
        "$2\n",
        "*-2\r\n",
        "*\r\n",
        "*1\r\nx",
        "*2\r\n:1\r\n*-5\r\n",
    };
    EACH_ROW(i, bad) {
        resp_result result = read_text(bad[i]);
        if (result != RESP_MALFORMED) printf("    \"%.20s\": %d\n", bad[i], (int)result);
        CHECK_EQUAL(result, RESP_MALFORMED);
    }
}

TEST(arrays_nest_up_to_a_limit) {
    char text[200] = "";
    for (int i = 0; i < RESP_DEPTH_MAX; i++)
        strcat(text, "*1\r\n");
    size_t length = strlen(text);
    strcpy(text + length, ":1\r\n");
    CHECK_EQUAL(read_text(text), RESP_REPLY);
    strcpy(text + length, "*0\r\n");
    CHECK_EQUAL(read_text(text), RESP_REPLY);
    strcpy(text + length, "*1\r\n");
    CHECK_EQUAL(read_text(text), RESP_MALFORMED);
}

TEST(a_deep_nest_does_not_deepen_the_stack) {
    enum { LEVELS = 100000 };
    char *text = malloc(4 * LEVELS);
    for (int i = 0; i < LEVELS; i++)
        memcpy(text + 4 * i, "*1\r\n", 4);
    CHECK_EQUAL(read_bytes(text, 4 * LEVELS), RESP_MALFORMED);
    free(text);
}

TEST(an_announced_length_costs_no_memory) {
    resp_reader_free(&reader);
    CHECK_EQUAL(read_text("*1048576\r\n"), RESP_INCOMPLETE);
    CHECK(reader.node_capacity <= 64);
    CHECK_EQUAL(read_text("$536870912\r\nx"), RESP_INCOMPLETE);
    CHECK(reader.node_capacity <= 64);
    CHECK_EQUAL(read_text("*1000000\r\n*1000000\r\n*1000000\r\n*1000000\r\n"), RESP_INCOMPLETE);
    CHECK(reader.node_capacity <= 64);
}

TEST(a_line_without_end_is_incomplete) {
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE);
    memset(text, 'x', SIZE);
    text[0] = '+';
    CHECK_EQUAL(read_bytes(text, SIZE), RESP_INCOMPLETE);
    text[0] = '-';
    CHECK_EQUAL(read_bytes(text, SIZE), RESP_INCOMPLETE);
    free(text);
}

TEST(a_reply_of_too_many_nodes_is_too_long) {
    enum { INNER = RESP_NODES_MAX / 2, SIZE = 40 + 2 * INNER * 4 };
    char *text = malloc(SIZE);
    int length = sprintf(text, "*2\r\n");
    for (int i = 0; i < 2; i++) {
        length += sprintf(text + length, "*%d\r\n", INNER);
        for (int n = 0; n < INNER; n++, length += 4)
            memcpy(text + length, ":1\r\n", 4);
    }
    CHECK_EQUAL(read_bytes(text, (size_t)length), RESP_TOO_LONG);
    free(text);
    CHECK_EQUAL(read_text("*1048577\r\n"), RESP_TOO_LONG);
    CHECK_EQUAL(read_text("*9223372036854775807\r\n"), RESP_TOO_LONG);
}

TEST(a_long_reply_is_read_and_its_memory_is_not_kept) {
    enum { COUNT = 100000 };
    char *text = malloc(20 + COUNT * 4);
    int length = sprintf(text, "*%d\r\n", COUNT);
    for (int i = 0; i < COUNT; i++, length += 4)
        memcpy(text + length, ":7\r\n", 4);
    CHECK_EQUAL(read_bytes(text, (size_t)length), RESP_REPLY);
    if (root != NULL) CHECK_EQUAL(reply_element(root, COUNT - 1)->integer, 7);
    CHECK_EQUAL(read_text("+OK\r\n"), RESP_REPLY);
    CHECK(reader.node_capacity <= 1024);
    free(text);
}

/* Whatever arrives is a reply, incomplete or malformed; a sanitizer sees if more happens. */
TEST(random_bytes_are_survived) {
    static const char letters[] = "+-:$*\r\n\r\n\r\n0123a";
    for (int i = 0; i < 30000; i++) {
        char text[40];
        size_t size = (size_t)unit_random_within(0, sizeof(text));
        for (size_t n = 0; n < size; n++)
            text[n] = letters[unit_random() % (sizeof(letters) - 1)];
        if (read_bytes(text, size) != RESP_REPLY) continue;
        CHECK(used > 0 && used <= size && root->size == reader.node_count);
    }
}

int main(void) {
    return unit_main(NULL, free_copies);
}
