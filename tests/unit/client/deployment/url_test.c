/* SPDX-License-Identifier: BSD-3-Clause */
/* url_test.c - where a server is, from a URL. */
#include "deployment/topology.h"

#include "unit.h"
#include <stdlib.h>

enum { UNIX_PATH_MAX = 107, TEXT_MAX = 4 * URL_PART_MAX };

static const char *parse(url *url, const char *text) {
    topology got;
    size_t wrong_index;
    const char *wrong = topology_read(&got, &text, 1, NULL, &wrong_index);
    *url = got.servers[0];
    return wrong;
}

static void check_good(const char *text, const url *expected) {
    url got;
    memset(&got, 0xff, sizeof(got));
    const char *wrong = parse(&got, text);
    if (wrong != NULL) printf("    \"%s\": %s\n", text, wrong);
    CHECK(wrong == NULL);
    if (wrong != NULL) return;
    CHECK(got.is_unix == expected->is_unix);
    CHECK(got.is_tls == expected->is_tls);
    CHECK_TEXT(got.host, expected->host);
    CHECK_EQUAL(got.port, expected->port);
    CHECK_TEXT(got.user, expected->user);
    CHECK_TEXT(got.password, expected->password);
    CHECK_EQUAL(got.db, expected->db);
}

#define CHECK_GOOD(text, ...) check_good(text, &(const url){__VA_ARGS__})

/* A copy of exactly its size, so that a sanitizer sees who reads beyond it. */
static void check_bad(const char *text, const char *expected) {
    url got;
    char *copy = strdup(text);
    const char *wrong = parse(&got, copy);
    bool is_same = wrong != NULL && strcmp(wrong, expected) == 0;
    if (!is_same) printf("    \"%.80s\": %s\n", text, wrong == NULL ? "is taken" : wrong);
    CHECK(is_same);
    free(copy);
}

/* prefix, a letter that many times, suffix. */
static const char *with_letters(const char *prefix, int count, const char *suffix) {
    static char text[TEXT_MAX];
    int length = snprintf(text, sizeof(text), "%s", prefix);
    memset(text + length, 'x', (size_t)count);
    snprintf(text + length + count, sizeof(text) - (size_t)(length + count), "%s", suffix);
    return text;
}

static size_t letters_of(const char *text) {
    return strspn(text, "x");
}

TEST(a_host_alone_has_the_default_port_and_database) {
    CHECK_GOOD("redis://example.org", .host = "example.org", .port = 6379);
    CHECK_GOOD("redis://10.0.0.1", .host = "10.0.0.1", .port = 6379);
    CHECK_GOOD("redis://example.org/", .host = "example.org", .port = 6379);
}

TEST(a_port_and_a_database_may_follow) {
    CHECK_GOOD("redis://h:1", .host = "h", .port = 1);
    CHECK_GOOD("redis://h:65535", .host = "h", .port = 65535);
    CHECK_GOOD("redis://h:06380", .host = "h", .port = 6380);
    CHECK_GOOD("redis://h/0", .host = "h", .port = 6379);
    CHECK_GOOD("redis://h:7000/15", .host = "h", .port = 7000, .db = 15);
    CHECK_GOOD("redis://h:7000/", .host = "h", .port = 7000);
    CHECK_GOOD("redis://h/1000000", .host = "h", .port = 6379, .db = URL_DB_MAX);
}

TEST(a_password_may_come_with_or_without_a_user) {
    CHECK_GOOD("redis://secret@h", .host = "h", .port = 6379, .password = "secret");
    CHECK_GOOD("redis://:secret@h", .host = "h", .port = 6379, .password = "secret");
    CHECK_GOOD("redis://app:secret@h:7000/2", .host = "h", .port = 7000, .user = "app",
               .password = "secret", .db = 2);
}

TEST(what_separates_parts_may_be_encoded_in_a_password) {
    CHECK_GOOD("redis://app:a%40b%3ac%2Fd%25@h", .host = "h", .port = 6379, .user = "app",
               .password = "a@b:c/d%");
    CHECK_GOOD("redis://%3A%40%2f@h", .host = "h", .port = 6379, .password = ":@/");
    CHECK_GOOD("redis://a%3Ab:c@h", .host = "h", .port = 6379, .user = "a:b", .password = "c");
}

TEST(only_the_first_colon_and_the_last_at_sign_separate) {
    CHECK_GOOD("redis://app:a:b@h", .host = "h", .port = 6379, .user = "app", .password = "a:b");
    CHECK_GOOD("redis://app:a@b@h:1", .host = "h", .port = 1, .user = "app", .password = "a@b");
    CHECK_GOOD("redis://what#@h", .host = "h", .port = 6379, .password = "what#");
}

TEST(every_byte_but_nul_may_be_encoded) {
    for (int byte = 1; byte < 256; byte++) {
        char text[64];
        url expected = {.host = "h", .port = 6379, .password = {(char)byte}};
        snprintf(text, sizeof(text), "redis://%%%02x@h", (unsigned)byte);
        check_good(text, &expected);
        snprintf(text, sizeof(text), "redis://%%%02X@h", (unsigned)byte);
        check_good(text, &expected);
    }
}

TEST(a_host_may_be_encoded) {
    CHECK_GOOD("redis://%65xample.org:7000", .host = "example.org", .port = 7000);
}

TEST(an_ipv6_address_stands_in_brackets) {
    CHECK_GOOD("redis://[::1]", .host = "::1", .port = 6379);
    CHECK_GOOD("redis://[::1]:7000/4", .host = "::1", .port = 7000, .db = 4);
    CHECK_GOOD("redis://app:secret@[2001:db8::1]:7000", .host = "2001:db8::1", .port = 7000,
               .user = "app", .password = "secret");
    CHECK_GOOD("redis://[fe80::1%25eth0]", .host = "fe80::1%eth0", .port = 6379);
}

TEST(an_s_more_is_tls_and_all_else_is_the_same) {
    CHECK_GOOD("rediss://example.org", .is_tls = true, .host = "example.org", .port = 6379);
    CHECK_GOOD("rediss://app:secret@10.0.0.1:7000/2", .is_tls = true, .host = "10.0.0.1",
               .port = 7000, .user = "app", .password = "secret", .db = 2);
    CHECK_GOOD("rediss://[::1]:7000", .is_tls = true, .host = "::1", .port = 7000);
}

TEST(a_unix_socket_has_a_path_and_no_port) {
    CHECK_GOOD("unix:///run/redis.sock", .is_unix = true, .host = "/run/redis.sock");
    CHECK_GOOD("unix:///run/redis.sock?db=7", .is_unix = true, .host = "/run/redis.sock", .db = 7);
    CHECK_GOOD("unix://secret@/s", .is_unix = true, .host = "/s", .password = "secret");
    CHECK_GOOD("unix://app:a%2Fb@/s?db=1", .is_unix = true, .host = "/s", .user = "app",
               .password = "a/b", .db = 1);
}

TEST(a_path_may_have_an_at_sign_and_colons_and_encoded_bytes) {
    CHECK_GOOD("unix:///run/a@b:c.sock", .is_unix = true, .host = "/run/a@b:c.sock");
    CHECK_GOOD("unix://pw@/run/a@b", .is_unix = true, .host = "/run/a@b", .password = "pw");
    CHECK_GOOD("unix:///run/what%3f%20now", .is_unix = true, .host = "/run/what? now");
}

#define WRONG_SCHEME                                                                               \
    "it must begin with redis://, redis+sentinel://, redis+cluster://, the same with rediss, or "  \
    "unix://"

TEST(each_mistake_has_its_message) {
    static const struct {
        const char *text, *wrong;
    } rows[] = {
        {"", WRONG_SCHEME},
        {"redis:/", WRONG_SCHEME},
        {"example.org:6379", WRONG_SCHEME},
        {"redisss://h", WRONG_SCHEME},
        {"REDISS://h", WRONG_SCHEME},
        {"http://h", WRONG_SCHEME},
        {" redis://h", WRONG_SCHEME},
        {"redis://", "the host is missing"},
        {"redis:///3", "the host is missing"},
        {"rediss://", "the host is missing"},
        {"rediss:///3", "the host is missing"},
        {"redis://:7000", "the host is missing"},
        {"redis://secret@", "the host is missing"},
        {"redis://[]", "the host is missing"},
        {"redis://[]:7000", "the host is missing"},
        {"redis://h:", "the port is missing"},
        {"redis://h:/3", "the port is missing"},
        {"redis://[::1]:", "the port is missing"},
        {"redis://h:0", "the port is not a number from 1 to 65535"},
        {"redis://h:65536", "the port is not a number from 1 to 65535"},
        {"redis://h:99999999999999999999", "the port is not a number from 1 to 65535"},
        {"redis://h:-1", "the port is not a number from 1 to 65535"},
        {"redis://h:+1", "the port is not a number from 1 to 65535"},
        {"redis://h:63x", "the port is not a number from 1 to 65535"},
        {"redis://h: 6379", "the port is not a number from 1 to 65535"},
        {"redis://[::1]:x", "the port is not a number from 1 to 65535"},
        {"redis://[::1", "the ] of the IPv6 address is missing"},
        {"redis://[", "the ] of the IPv6 address is missing"},
        {"redis://[::1]7000", "there is something after the ]"},
        {"redis://::1", "an IPv6 address needs [ and ]"},
        {"redis://2001:db8::1", "an IPv6 address needs [ and ]"},
        {"redis://h/x", "the database is not a number"},
        {"redis://h/-1", "the database is not a number"},
        {"redis://h/1/2", "the database is not a number"},
        {"redis://h/1 ", "the database is not a number"},
        {"redis://h/1000001", "the database is not a number"},
        {"redis://h/99999999999999999999", "the database is not a number"},
        {"redis://h?db=x", "the database is not a number"},
        {"redis://h/1?x", "a parameter is not name=value"},
        {"redis://h/1#x", "the database is not a number"},
        {"redis://h#x", "there is a # in the host"},
        {"rediss://h?x=1", "there is an unknown parameter"},
        {"redis://@h", "the password before the @ is empty"},
        {"redis://:@h", "the password before the @ is empty"},
        {"redis://app:@h", "the password before the @ is empty"},
        {"unix://@/s", "the password before the @ is empty"},
        {"unix://", "the path of the socket must begin with /"},
        {"unix://s", "the path of the socket must begin with /"},
        {"unix://run/s", "the path of the socket must begin with /"},
        {"unix://secret@", "the path of the socket must begin with /"},
        {"unix://?db=1", "the path of the socket must begin with /"},
        {"unix:///s?DB=1", "there is an unknown parameter"},
        {"unix:///s?timeout=1", "there is an unknown parameter"},
        {"unix:///s?db=", "the database is not a number"},
        {"unix:///s?db=x", "the database is not a number"},
        {"unix:///s?db=1&x=2", "there is an unknown parameter"},
        {"unix:///s?db=1000001", "the database is not a number"},
    };
    EACH_ROW(i, rows)
        check_bad(rows[i].text, rows[i].wrong);
}

TEST(a_bad_percent_sign_is_refused_in_each_part) {
    static const char *const bad[] = {"%", "%4", "%4g", "%g4", "%%41", "a%", "%-1", "% 1", "%00"};
    char text[64];
    EACH_ROW(i, bad) {
        snprintf(text, sizeof(text), "redis://%s:pw@h", bad[i]);
        check_bad(text, "the user is too long or badly encoded");
        snprintf(text, sizeof(text), "redis://app:%s@h", bad[i]);
        check_bad(text, "the password is too long or badly encoded");
        snprintf(text, sizeof(text), "redis://%s", bad[i]);
        check_bad(text, "the host is too long or badly encoded");
        snprintf(text, sizeof(text), "redis://[%s]:1", bad[i]);
        check_bad(text, "the host is too long or badly encoded");
        snprintf(text, sizeof(text), "unix:///%s", bad[i]);
        check_bad(text, "the path is too long or badly encoded");
    }
}

/* "%4", what ends the part, and "1" are no "%41". */
TEST(a_percent_sign_does_not_reach_into_the_next_part) {
    check_bad("redis://app%4:1@h", "the user is too long or badly encoded");
    check_bad("redis://app:pw%4@1", "the password is too long or badly encoded");
    check_bad("redis://h%4:1", "the host is too long or badly encoded");
    check_bad("redis://h%/41", "the host is too long or badly encoded");
    check_bad("unix:///s%4?db=1", "the path is too long or badly encoded");
}

TEST(a_host_has_up_to_255_bytes) {
    url got;
    CHECK(parse(&got, with_letters("redis://", URL_HOST_MAX, ":7000")) == NULL);
    CHECK_EQUAL(letters_of(got.host), URL_HOST_MAX);
    CHECK_EQUAL(strlen(got.host), URL_HOST_MAX);
    CHECK_EQUAL(got.port, 7000);
    check_bad(with_letters("redis://", URL_HOST_MAX + 1, ":7000"),
              "the host is too long or badly encoded");
    CHECK(parse(&got, with_letters("redis://[", URL_HOST_MAX, "]")) == NULL);
    check_bad(with_letters("redis://[", URL_HOST_MAX + 1, "]"),
              "the host is too long or badly encoded");
}

TEST(a_user_and_a_password_have_up_to_512_bytes_each) {
    url got;
    CHECK(parse(&got, with_letters("redis://", URL_PART_MAX, ":p@h")) == NULL);
    CHECK_EQUAL(strlen(got.user), URL_PART_MAX);
    CHECK_EQUAL(letters_of(got.user), URL_PART_MAX);
    CHECK_TEXT(got.password, "p");
    CHECK(parse(&got, with_letters("redis://u:", URL_PART_MAX, "@h")) == NULL);
    CHECK_EQUAL(strlen(got.password), URL_PART_MAX);
    CHECK_EQUAL(letters_of(got.password), URL_PART_MAX);
    CHECK_TEXT(got.host, "h");
    check_bad(with_letters("redis://", URL_PART_MAX + 1, ":p@h"),
              "the user is too long or badly encoded");
    check_bad(with_letters("redis://u:", URL_PART_MAX + 1, "@h"),
              "the password is too long or badly encoded");
}

TEST(a_path_has_up_to_107_bytes) {
    url got;
    CHECK(parse(&got, with_letters("unix:///", UNIX_PATH_MAX - 1, "?db=1")) == NULL);
    CHECK_EQUAL(strlen(got.host), UNIX_PATH_MAX);
    check_bad(with_letters("unix:///", UNIX_PATH_MAX, "?db=1"),
              "the path is too long or badly encoded");
}

TEST(the_length_is_counted_after_decoding) {
    url got;
    CHECK(parse(&got, with_letters("redis://%78%78", URL_HOST_MAX - 2, "")) == NULL);
    CHECK_EQUAL(letters_of(got.host), URL_HOST_MAX);
    check_bad(with_letters("redis://%78", URL_HOST_MAX, ""),
              "the host is too long or badly encoded");
    check_bad(with_letters("redis://", URL_HOST_MAX, "%78"),
              "the host is too long or badly encoded");
}

TEST(no_message_has_a_secret_in_it) {
    static const char *const bad[] = {
        "redis://hunter2@",
        "redis://app:hunter2@h:x",
        "redis://app:hunter2%@h",
        "redis://app:hunter2@h/x",
        "redis://app:hunter2@h?x",
        "redis://app:hunter2@[h",
        "redis://app:hunter2@h:1:2",
        "redis://hunter2:@h",
        "redis://hunter2/more@h",
        "redis://app:hunter2/more@h:6379",
        "unix://app:hunter2@s",
        "unix://app:hunter2@/s?x",
        "hunter2://h",
        "app:hunter2@h",
    };
    EACH_ROW(i, bad) {
        url got;
        const char *wrong = parse(&got, bad[i]);
        CHECK(wrong != NULL);
        if (wrong != NULL) CHECK(strstr(wrong, "hunter2") == NULL && strstr(wrong, "more") == NULL);
    }
}

static void check_described(const char *text, const char *expected) {
    url got;
    char described[URL_HOST_MAX + 16];
    const char *wrong = parse(&got, text);
    CHECK(wrong == NULL);
    if (wrong != NULL) return;
    url_describe(&got, described, sizeof(described));
    CHECK_TEXT(described, expected);
}

TEST(it_is_described_by_where_it_is_and_never_by_the_login) {
    check_described("redis://app:hunter2@example.org/3", "example.org:6379");
    check_described("redis://app:hunter2@[::1]:7000", "[::1]:7000");
    check_described("rediss://app:hunter2@example.org", "example.org:6379");
    check_described("unix://app:hunter2@/run/redis.sock?db=2", "/run/redis.sock");
    check_described("unix:///run/a:b", "/run/a:b");
}

TEST(a_description_that_does_not_fit_is_cut) {
    url got;
    char described[8];
    memset(described, 'x', sizeof(described));
    CHECK(parse(&got, "redis://example.org") == NULL);
    url_describe(&got, described, 5);
    CHECK_TEXT(described, "exam");
    CHECK(described[5] == 'x');
}

/* Whatever it is made of, it is taken or refused; a sanitizer sees if more happens. */
TEST(nonsense_is_survived) {
    static const char letters[] = "redisunx:/@[]?#%0419afdb=-.";
    static const char *const schemes[] = {"redis://", "rediss://", "unix://"};
    for (int i = 0; i < 20000; i++) {
        char text[32];
        int length = snprintf(text, sizeof(text), "%s", schemes[i % 3]);
        int end = length + (int)unit_random_within(0, 20);
        while (length < end)
            text[length++] = letters[unit_random() % (sizeof(letters) - 1)];
        text[length] = '\0';
        url got;
        char *copy = strdup(text);
        if (parse(&got, copy) == NULL) {
            CHECK(got.host[0] != '\0');
            CHECK(got.is_unix ? got.port == 0 : got.port >= 1 && got.port <= 65535);
            CHECK(got.db >= 0 && got.db <= URL_DB_MAX);
            CHECK(got.user[0] == '\0' || got.password[0] != '\0');
        }
        free(copy);
    }
}

int main(void) {
    return unit_main(NULL, NULL);
}
