/* SPDX-License-Identifier: BSD-3-Clause */
/* topology_test.c - the kind of deployment that URLs name, and the servers. */
#include "deployment/topology.h"

#include "unit.h"
#include <stdlib.h>

enum { URLS_MAX = TOPOLOGY_SERVERS_MAX + 1 };

static topology got;
static size_t wrong_index;

/* The parameters that the caller was given: "name=value;...". */
static char taken[256];

static const char *take(void *arg, const char *name, const char *value) {
    size_t length = strlen(taken);
    (void)arg;
    snprintf(taken + length, sizeof(taken) - length, "%s=%s;", name,
             value == NULL ? "(badly encoded)" : value);
    return strcmp(name, "wrong") == 0 ? "the caller says no" : NULL;
}

static const url_taker taker = {take, NULL};

/* Copies of exactly that size, so that a sanitizer sees reads beyond the end. */
static const char *read_copies(const char *const urls[], size_t count) {
    char *copies[URLS_MAX] = {0};
    for (size_t i = 0; i < count; i++)
        copies[i] = strdup(urls[i]);
    memset(&got, 0xff, sizeof(got));
    wrong_index = 99;
    taken[0] = '\0';
    const char *wrong =
        topology_read(&got, (const char *const *)copies, count, &taker, &wrong_index);
    for (size_t i = 0; i < count; i++)
        free(copies[i]);
    return wrong;
}

#define READ(...)                                                                                  \
    read_copies((const char *const[]){__VA_ARGS__},                                                \
                sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static void check_server(size_t which, const char *host, int port) {
    CHECK(which < got.count);
    CHECK_TEXT(got.servers[which].host, host);
    CHECK_EQUAL(got.servers[which].port, port);
}

static void check_login(const url *url, const char *user, const char *password) {
    CHECK_TEXT(url->user, user);
    CHECK_TEXT(url->password, password);
}

/* -- one server, and several */

TEST(one_url_is_one_server) {
    CHECK_TEXT(READ("redis://app:secret@example.org:7000/3"), NULL);
    CHECK_EQUAL(got.kind, TOPOLOGY_SINGLE);
    CHECK_EQUAL(got.count, 1);
    check_server(0, "example.org", 7000);
    check_login(&got.servers[0], "app", "secret");
    CHECK_EQUAL(got.servers[0].db, 3);
    CHECK_TEXT(READ("unix:///run/redis.sock"), NULL);
    CHECK_EQUAL(got.kind, TOPOLOGY_SINGLE);
    CHECK(got.servers[0].is_unix);
}

TEST(several_urls_are_independent_servers) {
    CHECK_TEXT(READ("redis://a", "redis://:secret@b:7000", "unix:///run/c"), NULL);
    CHECK_EQUAL(got.kind, TOPOLOGY_REDLOCK);
    CHECK_EQUAL(got.count, 3);
    check_server(0, "a", 6379);
    check_server(1, "b", 7000);
    check_server(2, "/run/c", 0);
    check_login(&got.servers[1], "", "secret");
}

TEST(an_even_number_of_servers_is_taken) {
    CHECK_TEXT(READ("redis://a", "redis://b"), NULL);
    CHECK_EQUAL(got.kind, TOPOLOGY_REDLOCK);
    CHECK_TEXT(READ("redis://a", "redis://b", "redis://c", "redis://d"), NULL);
}

TEST(there_are_at_most_15_of_them) {
    static char texts[URLS_MAX][32];
    const char *urls[URLS_MAX];
    for (int i = 0; i < URLS_MAX; i++) {
        snprintf(texts[i], sizeof(texts[i]), "redis://h:%d", 7000 + i);
        urls[i] = texts[i];
    }
    CHECK_TEXT(read_copies(urls, 15), NULL);
    check_server(14, "h", 7014);
    CHECK_TEXT(read_copies(urls, 16), "there are more than 15 of them");
}

TEST(the_same_server_counts_only_once) {
    const char *twice = "the same server is given twice";
    CHECK_TEXT(READ("redis://a", "redis://b", "redis://a"), twice);
    CHECK_EQUAL(wrong_index, 2);
    CHECK_TEXT(READ("redis://a", "redis://a:6379"), twice);
    CHECK_TEXT(READ("redis://a", "redis://A"), twice);
    CHECK_TEXT(READ("redis://a/1", "redis://a/2"), twice);
    CHECK_TEXT(READ("redis://x:y@a", "redis://a"), twice);
    CHECK_TEXT(READ("unix:///run/a", "unix:///run/a?db=1"), twice);
    CHECK_TEXT(READ("unix:///run/a", "unix:///run/A"), NULL);
    CHECK_TEXT(READ("redis://a:1", "redis://a:2"), NULL);
}

TEST(the_wrong_one_is_told) {
    CHECK(READ("redis://a", "http://b", "redis://c") != NULL);
    CHECK_EQUAL(wrong_index, 1);
}

TEST(kinds_are_not_mixed) {
    const char *mixed = "several URLs must be of one server each: redis:// or unix://";
    CHECK_TEXT(READ("redis://a", "redis+sentinel://b/m"), mixed);
    CHECK_EQUAL(wrong_index, 1);
    CHECK_TEXT(READ("redis+cluster://a", "redis://b"), mixed);
    CHECK_EQUAL(wrong_index, 0);
    CHECK_TEXT(READ("redis+cluster://a", "redis+cluster://b"), mixed);
}

/* -- Sentinel */

TEST(a_sentinel_url_has_sentinels_and_a_name) {
    CHECK_TEXT(READ("redis+sentinel://a,b:7000,[::1],[::2]:7001/my.master-1_x"), NULL);
    CHECK_EQUAL(got.kind, TOPOLOGY_SENTINEL);
    CHECK_EQUAL(got.count, 4);
    check_server(0, "a", 26379);
    check_server(1, "b", 7000);
    check_server(2, "::1", 26379);
    check_server(3, "::2", 7001);
    CHECK_TEXT(got.master_name, "my.master-1_x");
    check_login(&got.servers[0], "", "");
    check_login(&got.master, "", "");
    CHECK_EQUAL(got.master.db, 0);
    CHECK_TEXT(got.master.host, "");
    CHECK_EQUAL(got.master.port, 0);
}

TEST(the_login_and_the_database_of_a_sentinel_url_are_the_masters) {
    CHECK_TEXT(READ("redis+sentinel://app:a%2Fb@h1,h2/m?db=3"), NULL);
    check_login(&got.master, "app", "a/b");
    CHECK_EQUAL(got.master.db, 3);
    check_login(&got.servers[0], "", "");
    CHECK_EQUAL(got.servers[1].db, 0);
    CHECK_TEXT(READ("redis+sentinel://p@ss@h1/m"), NULL);
    check_login(&got.master, "", "p@ss");
    CHECK_TEXT(READ("redis+sentinel://p%3Fss,word@h1/m"), NULL);
    check_login(&got.master, "", "p?ss,word");
    CHECK_EQUAL(got.count, 1);
}

TEST(the_sentinels_may_have_a_login_of_their_own) {
    CHECK_TEXT(READ("redis+sentinel://app:one@a,b/m?sentinel_user=s&sentinel_password=t%26wo&db=1"),
               NULL);
    check_login(&got.master, "app", "one");
    check_login(&got.servers[0], "s", "t&wo");
    check_login(&got.servers[1], "s", "t&wo");
    CHECK_TEXT(READ("redis+sentinel://a/m?sentinel_password=two"), NULL);
    check_login(&got.servers[0], "", "two");
    check_login(&got.master, "", "");
}

TEST(sentinels_may_do_without_the_tls_of_the_master) {
    CHECK_TEXT(READ("rediss+sentinel://a,b/m?sentinel_tls=no"), NULL);
    CHECK(got.master.is_tls && !got.servers[0].is_tls && !got.servers[1].is_tls);
    CHECK(topology_has_tls(&got));
    CHECK_TEXT(READ("redis+sentinel://a/m?sentinel_tls=yes"), NULL);
    CHECK(!got.master.is_tls && got.servers[0].is_tls);
    CHECK_TEXT(READ("redis+sentinel://a/m?sentinel_tls=maybe"), "sentinel_tls is not yes or no");
}

TEST(each_mistake_in_a_sentinel_url_has_its_message) {
    const char *no_name = "the name of the master is missing: redis+sentinel://hosts/name";
    CHECK_TEXT(READ("redis+sentinel://a"), no_name);
    CHECK_TEXT(READ("redis+sentinel://a/"), no_name);
    CHECK_TEXT(READ("redis+sentinel://a/?db=1"), no_name);
    CHECK_TEXT(READ("redis+sentinel:///m"), "a host of the list is missing");
    CHECK_TEXT(READ("redis+sentinel://a,/m"), "a host of the list is missing");
    CHECK_TEXT(READ("redis+sentinel://a,,b/m"), "a host of the list is missing");
    CHECK_TEXT(READ("redis+sentinel://a/m/3"),
               "the name of the master has other than letters, digits, .-_");
    CHECK_TEXT(READ("redis+sentinel://a/m?wrong=1"), "the caller says no");
    CHECK_TEXT(READ("redis+sentinel://a/m?db=x"), "the database is not a number");
    CHECK_TEXT(READ("redis+sentinel://a:x/m"), "the port is not a number from 1 to 65535");
    CHECK_TEXT(READ("redis+sentinel://a,::1/m"), "an IPv6 address needs [ and ]");
    CHECK_TEXT(READ("redis+sentinel://:@a/m"), "the password before the @ is empty");
    CHECK_TEXT(READ("redis+sentinel://a/m?sentinel_user=s"),
               "there is a sentinel_user without a password");
    CHECK_TEXT(READ("redis+sentinel://a,a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9,a,a,a,a,a,a/m"),
               "there are more than 15 hosts");
}

/* -- Cluster */

TEST(a_cluster_url_has_nodes_to_begin_with) {
    CHECK_TEXT(READ("redis+cluster://app:secret@a,b:7000,[::1]"), NULL);
    CHECK_EQUAL(got.kind, TOPOLOGY_CLUSTER);
    CHECK_EQUAL(got.count, 3);
    check_server(0, "a", 6379);
    check_server(1, "b", 7000);
    check_server(2, "::1", 6379);
    check_login(&got.servers[0], "app", "secret");
    check_login(&got.servers[2], "app", "secret");
    CHECK_TEXT(READ("redis+cluster://a/"), NULL);
    CHECK_TEXT(READ("redis+cluster://a/0"), NULL);
}

TEST(a_cluster_may_have_databases) {
    CHECK_TEXT(READ("redis+cluster://a,b/3"), NULL);
    CHECK_EQUAL(got.servers[1].db, 3);
    CHECK_TEXT(READ("redis+cluster://a/?db=0"), NULL);
    CHECK_TEXT(READ("redis+cluster://a?db=1"), NULL);
    CHECK_EQUAL(got.servers[0].db, 1);
    CHECK_TEXT(READ("redis+cluster://a/x"), "the database is not a number");
    CHECK(READ("redis+cluster://") != NULL);
}

/* -- parameters */

TEST(all_other_parameters_are_the_callers) {
    const char *both = "one=1;two=a b/c;";
    CHECK_TEXT(READ("redis://a?one=1&db=2&two=a%20b/c"), NULL);
    CHECK_TEXT(taken, both);
    CHECK_EQUAL(got.servers[0].db, 2);
    CHECK_TEXT(READ("unix:///s?one=1&two=a%20b/c"), NULL);
    CHECK_TEXT(taken, both);
    CHECK_TEXT(READ("redis+cluster://a,b?one=1&two=a%20b/c"), NULL);
    CHECK_TEXT(taken, both);
    CHECK_TEXT(READ("redis+sentinel://a/m?one=1&two=a%20b/c&sentinel_password=x"), NULL);
    CHECK_TEXT(taken, both);
    CHECK_TEXT(READ("redis://a?one=1", "redis://b?two=a%20b/c"), NULL);
    CHECK_TEXT(taken, both);
    CHECK_TEXT(READ("redis://a?"), NULL);
    CHECK_TEXT(READ("redis://a?one=%"), NULL);
    CHECK_TEXT(taken, "one=(badly encoded);");
}

TEST(a_piece_of_a_password_is_not_taken_for_a_parameter) {
    const char *sign =
        "there is an @ behind the ?; a ? in a password is written %3F, an @ in a value %40";
    CHECK_TEXT(READ("redis://app:what?pass=word@h"), sign);
    CHECK_TEXT(READ("redis+sentinel://p?ss,word@h1/m"), sign);
    CHECK_TEXT(READ("redis+sentinel://a/m?sentinel_password=what&pass=word"),
               "sentinel_password comes behind other parameters; an & in it is written %26");
    CHECK_TEXT(READ("redis://a?Pass=word"), "there is an unknown parameter");
    CHECK_TEXT(READ("redis://a?word"), "a parameter is not name=value");
    CHECK_TEXT(READ("redis://a?one=1#2"), "a # behind the ? is written %23");
    CHECK_TEXT(READ("redis://a/1?db=2"), "the database is given twice");
    CHECK_TEXT(taken, "");
}

/* -- all */

TEST(no_message_has_a_secret_in_it) {
    static const char *const bad[] = {
        "redis+sentinel://app:hunter2@",
        "redis+sentinel://app:hunter2@h",
        "redis+sentinel://app:hunter2@h:x/m",
        "redis+sentinel://app:hunter2%@h/m",
        "redis+sentinel://app:hunter2/more@h/m",
        "redis+sentinel://h/m?sentinel_password=hunter2%",
        "redis+sentinel://h/m?sentinel_user=hunter2",
        "redis+sentinel://h/m?wrong=hunter2",
        "redis+cluster://hunter2:@h",
        "redis+cluster://app:hunter2@h/more",
        "redis+cluster://app:hunter2@h,[x",
        "redis+hunter2://h",
    };
    EACH_ROW(i, bad) {
        const char *wrong = READ(bad[i]);
        CHECK(wrong != NULL);
        if (wrong != NULL) CHECK(strstr(wrong, "hunter2") == NULL && strstr(wrong, "more") == NULL);
    }
}

TEST(what_is_too_long_is_refused) {
    static char text[20000];
    memset(text, 'x', sizeof(text) - 1);
    memcpy(text, "redis+cluster://", strlen("redis+cluster://"));
    CHECK_TEXT(READ(text), "it is too long");
    memcpy(text, "redis+sentinel://a/m?db=", strlen("redis+sentinel://a/m?db="));
    CHECK_TEXT(READ(text), "it is too long");
    memcpy(text, "redis+sentinel://a/m?sentinel_password=", 39);
    CHECK_TEXT(READ(text), "it is too long");
}

TEST(nonsense_is_survived) {
    static const char letters[] = "redisunx:/@[]?#%0419afdb=-.,,&";
    static const char *const prefixes[] = {"redis+sentinel://", "redis+cluster://",
                                           "redis+sentinel://a/m?"};
    for (int i = 0; i < 20000; i++) {
        char text[64];
        int length = snprintf(text, sizeof(text), "%s", prefixes[i % 3]);
        int end = length + (int)unit_random_within(0, 24);
        while (length < end)
            text[length++] = letters[unit_random() % (sizeof(letters) - 1)];
        text[length] = '\0';
        if (READ(text) != NULL) continue;
        CHECK(got.count >= 1 && got.count <= TOPOLOGY_SERVERS_MAX);
        CHECK((got.kind == TOPOLOGY_SENTINEL) == (got.master_name[0] != '\0'));
        for (size_t n = 0; n < got.count; n++)
            CHECK(got.servers[n].host[0] != '\0' && got.servers[n].db < 100000);
    }
}

TEST(tls_is_needed_if_any_server_speaks_it) {
    CHECK_TEXT(READ("redis://a", "redis://b"), NULL);
    CHECK(!topology_has_tls(&got));
    CHECK_TEXT(READ("redis://a", "rediss://b"), NULL);
    CHECK(topology_has_tls(&got));
    CHECK_TEXT(READ("rediss+sentinel://a/m"), NULL);
    CHECK(topology_has_tls(&got) && got.servers[0].is_tls && got.master.is_tls);
    CHECK_TEXT(READ("rediss+cluster://a"), NULL);
    CHECK(topology_has_tls(&got));
}

int main(void) {
    return unit_main(NULL, NULL);
}
