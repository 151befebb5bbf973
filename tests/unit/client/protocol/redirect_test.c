/* SPDX-License-Identifier: BSD-3-Clause */
/* redirect_test.c - the slot of a key, and redirects of a cluster. */
#include "protocol/lock_commands.h"

#include "unit.h"
#include <stdlib.h>

/* A copy of exactly that size, so that a sanitizer sees reads beyond the end. */
static unsigned slot(const char *key) {
    size_t length = strlen(key);
    char *copy = malloc(length > 0 ? length : 1);
    memcpy(copy, key, length);
    unsigned found = slot_of_key(copy, length);
    free(copy);
    return found;
}

TEST(the_slot_is_the_published_crc16) {
    CHECK_EQUAL(slot("123456789"), 0x31C3); /* the check value of CRC-16/XMODEM */
    CHECK_EQUAL(slot(""), 0);
    CHECK_EQUAL(slot("foo"), 12182); /* as CLUSTER KEYSLOT says */
    CHECK_EQUAL(slot("bar"), 5061);
    CHECK_EQUAL(slot("somekey"), 11058);
}

TEST(what_is_between_the_first_braces_counts_alone) {
    CHECK_EQUAL(slot("foo{hash_tag}"), 2515);
    CHECK_EQUAL(slot("{user1000}.following"), slot("user1000"));
    CHECK_EQUAL(slot("{user1000}.followers"), slot("user1000"));
    CHECK_EQUAL(slot("foo{{bar}}zap"), slot("{bar"));
    CHECK_EQUAL(slot("foo{bar}{zap}"), slot("bar"));
    CHECK_EQUAL(slot("foo}{bar}"), slot("bar"));
}

/* The same CRC, bit by bit. */
static unsigned slow_slot(const char *key) {
    unsigned crc = 0;
    for (; *key != '\0'; key++) {
        crc ^= (unsigned)(unsigned char)*key << 8;
        for (int i = 0; i < 8; i++)
            crc = crc & 0x8000 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1;
    }
    return crc % SLOT_COUNT;
}

TEST(braces_with_nothing_between_or_that_do_not_close_are_letters) {
    const char *keys[] = {"foo{}{bar}", "{}", "{", "}", "foo{bar", "foo}bar", "a{}b{c}d"};
    EACH_ROW(i, keys)
        CHECK_EQUAL(slot(keys[i]), slow_slot(keys[i]));
}

TEST(all_bytes_count) {
    for (int byte = 1; byte < 256; byte++) {
        if (byte == '{') continue;
        char key[] = {'a', (char)byte, (char)(255 - byte % 100), '\0'};
        CHECK_EQUAL(slot(key), slow_slot(key));
    }
}

static void check_redirect(const char *error, bool is_ask, unsigned expected_slot, const char *host,
                           int port) {
    redirect got;
    CHECK(redirect_read(&got, error));
    CHECK(got.is_ask == is_ask);
    CHECK_EQUAL(got.slot, expected_slot);
    CHECK_TEXT(got.host, host);
    CHECK_EQUAL(got.port, port);
}

TEST(a_redirect_names_the_slot_and_the_node) {
    check_redirect("MOVED 3999 127.0.0.1:6381", false, 3999, "127.0.0.1", 6381);
    check_redirect("ASK 16383 node.example.org:65535", true, 16383, "node.example.org", 65535);
    check_redirect("MOVED 0 2001:db8::1:7000", false, 0, "2001:db8::1", 7000);
}

TEST(an_unknown_host_is_the_host_that_sent_the_redirect) {
    check_redirect("MOVED 3999 :6381", false, 3999, "", 6381);
    check_redirect("ASK 3999 ?:6381", true, 3999, "", 6381);
}

TEST(other_errors_and_nonsense_are_no_redirect) {
    char long_host[REDIRECT_HOST_MAX + 40];
    memset(long_host, 'x', sizeof(long_host));
    memcpy(long_host, "MOVED 1 ", 8);
    memcpy(long_host + sizeof(long_host) - 4, ":70", 4);
    const char *errors[] = {"",
                            "ERR",
                            "MOVED",
                            "MOVED ",
                            "ASK ",
                            "MOVED 3999",
                            "MOVED 3999 ",
                            "MOVED 16384 a:1",
                            "MOVED x a:1",
                            "MOVED -1 a:1",
                            "MOVED 1 a",
                            "MOVED 1 a:",
                            "MOVED 1 a:0",
                            "MOVED 1 a:x",
                            "MOVED 1 a:65536",
                            "MOVED 1 a b:1",
                            "MOVED 1 a:1 b",
                            "MOVED  1 a:1",
                            "ASKING 1 a:1",
                            "TRYAGAIN 1 a:1",
                            "MOVED 99999999999999999999 a:1",
                            "MOVED 1 a:99999999999999999999",
                            long_host};
    EACH_ROW(i, errors) {
        redirect got;
        bool is_redirect = redirect_read(&got, errors[i]);
        if (is_redirect) printf("    \"%.80s\"\n", errors[i]);
        CHECK(!is_redirect);
    }
}

int main(void) {
    return unit_main(NULL, NULL);
}
