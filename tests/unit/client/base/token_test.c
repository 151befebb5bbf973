/* SPDX-License-Identifier: BSD-3-Clause */
/* token_test.c - tokens: fresh, labelled, varied. */
#include "base/token.h"

#include "unit.h"
#include <stdlib.h>
#include <unistd.h>

enum { DIGITS = 32, MANY = 1000 };

static char tokens[MANY][TOKEN_MAX + 1];

static int compare(const void *one, const void *other) {
    return strcmp(one, other);
}

TEST(tokens_are_all_different) {
    token_source source;
    token_source_init(&source);
    for (int i = 0; i < MANY; i++)
        CHECK(token_source_take(&source, NULL, tokens[i]));
    qsort(tokens, MANY, sizeof(tokens[0]), compare);
    for (int i = 1; i < MANY; i++)
        CHECK(strcmp(tokens[i - 1], tokens[i]) != 0);
}

/* host:pid:, then the text, then the digits. */
static void check_form(const char *token, const char *text) {
    char expected[TOKEN_MAX + 1], host[65] = "";
    gethostname(host, sizeof(host) - 1);
    int length = snprintf(expected, sizeof(expected), "%s:%ld:%s", host, (long)getpid(), text);
    CHECK_BYTES(token, (size_t)length, expected, (size_t)length);
    CHECK_EQUAL(strlen(token), length + DIGITS);
    CHECK_EQUAL(strspn(token + length, "0123456789abcdef"), DIGITS);
}

TEST(a_token_names_host_process_and_owner) {
    char token[TOKEN_MAX + 1];
    token_source source;
    token_source_init(&source);
    CHECK(token_source_take(&source, NULL, token));
    check_form(token, "");
    CHECK(token_source_take(&source, "", token));
    check_form(token, "");
    CHECK(token_source_take(&source, "worker 7", token));
    check_form(token, "worker 7:");
}

TEST(the_longest_owner_is_kept_and_leaves_room_to_vary) {
    char token[TOKEN_MAX + 1], owner[TOKEN_OWNER_MAX + 1], text[TOKEN_OWNER_MAX + 4];
    memset(owner, 'x', TOKEN_OWNER_MAX);
    owner[TOKEN_OWNER_MAX] = '\0';
    snprintf(text, sizeof(text), "%s:", owner);
    token_source source;
    token_source_init(&source);
    CHECK(token_source_take(&source, owner, token));
    check_form(token, text);
    char before[TOKEN_MAX + 1];
    strcpy(before, token);
    token_vary(token);
    CHECK(strcmp(before, token) != 0);
}

TEST(a_varied_token_counts_attempts) {
    char token[TOKEN_MAX + 1] = "host:1:abc9";
    token_vary(token);
    CHECK(strcmp(token, "host:1:abc9~2") == 0);
    token_vary(token);
    CHECK(strcmp(token, "host:1:abc9~3") == 0);
    for (int i = 0; i < 7; i++)
        token_vary(token);
    CHECK(strcmp(token, "host:1:abc9~10") == 0);
}

TEST(a_tilde_elsewhere_is_no_number) {
    char token[TOKEN_MAX + 1] = "a~b";
    token_vary(token);
    CHECK(strcmp(token, "a~b~2") == 0);
    strcpy(token, "a~");
    token_vary(token);
    CHECK(strcmp(token, "a~~2") == 0);
}

int main(void) {
    return unit_main(NULL, NULL);
}
