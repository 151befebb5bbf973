/* SPDX-License-Identifier: BSD-3-Clause */
/* options_test.c - what callers may ask for, and what they get when they ask for nothing. */
#include "api/options.h"

#include "base/token.h"
#include "unit.h"

enum { DAY_MS = 24 * 3600 * 1000 };

static const char *const one_url[] = {"redis://127.0.0.1:7000/3"};

static settings read;
static dlock_lock_options read_options;

static dlock_client_options good_client(void) {
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = one_url;
    options.url_count = 1;
    return options;
}

static const char *read_client(const dlock_client_options *given) {
    memset(&read, 0xff, sizeof(read)); /* so that nothing is right by chance */
    return options_read_client(&read, given);
}

static const char *read_lock_with(const dlock_lock_options *given,
                                  const dlock_lock_options *defaults) {
    memset(&read_options, 0xff, sizeof(read_options));
    return options_read_lock(&read_options, given, defaults, read.error);
}

static const char *read_lock(const dlock_lock_options *given) {
    static const dlock_lock_options none = {.struct_size = sizeof(none)};
    return read_lock_with(given, &none);
}

/* wrong: NULL, or what is wrong. */
static void check_wrong(const char *actual, const char *wrong) {
    bool is_same = actual == NULL || wrong == NULL ? actual == wrong : strcmp(actual, wrong) == 0;
    if (!is_same) printf("    \"%s\"\n", actual == NULL ? "(nothing is wrong)" : actual);
    CHECK(is_same);
}

static void what_is_not_set_has_the_default(void) {
    dlock_client_options options = good_client();
    check_wrong(read_client(&options), NULL);
    CHECK_EQUAL(read.client.connect_timeout_ms, 1000);
    CHECK_EQUAL(read.client.io_timeout_ms, 200);
    CHECK_EQUAL(read.client.wait_mode, DLOCK_WAIT_AUTO);
    CHECK_EQUAL(read.client.spin_min_ms, 10);
    CHECK_EQUAL(read.client.spin_random_ms, 10);
    CHECK_EQUAL(read.client.spin_max_ms, 0);
    CHECK_BYTES(read.client.prefix, strlen(read.client.prefix), "", 0);
}

static void what_is_set_is_kept(void) {
    dlock_client_options options = good_client();
    options.prefix = "order:";
    options.connect_timeout_ms = 1;
    options.io_timeout_ms = 2;
    options.wait_mode = DLOCK_WAIT_SPIN;
    options.spin_min_ms = 3;
    options.spin_random_ms = 4;
    options.spin_max_ms = 5;
    check_wrong(read_client(&options), NULL);
    CHECK(read.client.prefix == options.prefix);
    CHECK_EQUAL(read.client.connect_timeout_ms, 1);
    CHECK_EQUAL(read.client.io_timeout_ms, 2);
    CHECK_EQUAL(read.client.wait_mode, DLOCK_WAIT_SPIN);
    CHECK_EQUAL(read.client.spin_min_ms, 3);
    CHECK_EQUAL(read.client.spin_random_ms, 4);
    CHECK_EQUAL(read.client.spin_max_ms, 5);
}

static void the_url_is_read(void) {
    dlock_client_options options = good_client();
    check_wrong(read_client(&options), NULL);
    CHECK_BYTES(read.topology.servers[0].host, strlen(read.topology.servers[0].host), "127.0.0.1",
                9);
    CHECK_EQUAL(read.topology.servers[0].port, 7000);
    CHECK_EQUAL(read.topology.servers[0].db, 3);
}

static void a_wrong_url_is_explained_without_showing_it(void) {
    dlock_client_options options = good_client();
    options.urls = (const char *const[]){"redis://:hunter2@host:no"};
    check_wrong(read_client(&options), "the URL: the port is not a number from 1 to 65535");
}

static void a_url_with_tls_needs_no_more_options(void) {
    dlock_client_options options = good_client();
    options.urls = (const char *const[]){"rediss://127.0.0.1"};
    check_wrong(read_client(&options), NULL);
    CHECK(topology_has_tls(&read.topology));
    CHECK(read.client.tls_ca_file == NULL);
}

static void a_certificate_and_its_key_belong_together(void) {
    dlock_client_options options = good_client();
    options.urls = (const char *const[]){"rediss://127.0.0.1"};
    options.tls_cert_file = "cert.pem";
    check_wrong(read_client(&options), "of tls_cert_file and tls_key_file only one is given");
    options.tls_key_file = "key.pem";
    check_wrong(read_client(&options), NULL);
    options.tls_cert_file = NULL;
    check_wrong(read_client(&options), "of tls_cert_file and tls_key_file only one is given");
}

static void tls_options_need_a_url_with_tls(void) {
    dlock_client_options options = good_client();
    options.tls_ca_file = "ca.pem";
    check_wrong(read_client(&options), "tls_ca_file is given, but no URL is rediss://");
    options.tls_cert_file = options.tls_key_file = "both.pem";
    check_wrong(read_client(&options), "tls_ca_file is given, but no URL is rediss://");
    options.tls_ca_file = NULL;
    check_wrong(read_client(&options), "tls_cert_file is given, but no URL is rediss://");
}

static void nothing_of_tls_is_opened_for_a_url_without(void) {
    dlock_client_options options = good_client();
    tls_context *context = (tls_context *)&options;
    log_file *file = (log_file *)&options;
    check_wrong(read_client(&options), NULL);
    CHECK_EQUAL(options_open_files(&read, &context, &file), DLOCK_OK);
    CHECK(context == NULL && file == NULL);
}

static void a_file_that_is_not_there_is_named_by_its_option(void) {
    dlock_client_options options = good_client();
    options.urls = (const char *const[]){"rediss://127.0.0.1"};
    options.tls_ca_file = "/no/such/file";
    tls_context *context = (tls_context *)&options;
    log_file *file = (log_file *)&options;
    check_wrong(read_client(&options), NULL);
    CHECK_EQUAL(options_open_files(&read, &context, &file), DLOCK_INVALID);
    CHECK(context == NULL && file == NULL);
    CHECK(strncmp(read.error, "tls_ca_file: ", 13) == 0 ||
          strstr(read.error, "without TLS") != NULL);
}

static void no_options_are_wrong(void) {
    check_wrong(read_client(NULL), "no options are given");
}

static void a_url_is_needed(void) {
    dlock_client_options options = good_client();
    options.urls = NULL;
    check_wrong(read_client(&options), "no URL is given");
    options = good_client();
    options.url_count = 0;
    check_wrong(read_client(&options), "no URL is given");
    options = good_client();
    options.urls = (const char *const[]){NULL};
    check_wrong(read_client(&options), "no URL is given");
}

static void of_several_urls_the_wrong_one_is_named_by_its_place(void) {
    dlock_client_options options = good_client();
    options.urls = (const char *const[]){"redis://a", "redis://:hunter2@b:no", "redis://c"};
    options.url_count = 3;
    check_wrong(read_client(&options), "URL 2: the port is not a number from 1 to 65535");
    options.urls = (const char *const[]){"redis://a", "redis://b", NULL};
    check_wrong(read_client(&options), "URL 3: it is NULL");
}

static void a_day_is_the_longest_time(void) {
    dlock_client_options options = good_client();
    options.connect_timeout_ms = options.io_timeout_ms = DAY_MS;
    options.spin_min_ms = options.spin_random_ms = options.spin_max_ms = DAY_MS;
    check_wrong(read_client(&options), NULL);
    CHECK_EQUAL(read.client.connect_timeout_ms, DAY_MS);
}

static void more_than_a_day_is_too_long(void) {
    dlock_client_options options = good_client();
    options.connect_timeout_ms = DAY_MS + 1;
    check_wrong(read_client(&options), "connect_timeout_ms: not 1 to 86400000");
    options = good_client();
    options.io_timeout_ms = DAY_MS + 1;
    check_wrong(read_client(&options), "io_timeout_ms: not 1 to 86400000");
    options = good_client();
    options.spin_min_ms = DAY_MS + 1;
    check_wrong(read_client(&options), "spin_min_ms: not 1 to 86400000");
    options = good_client();
    options.spin_random_ms = DAY_MS + 1;
    check_wrong(read_client(&options), "spin_random_ms: not 1 to 86400000");
    options = good_client();
    options.spin_max_ms = UINT32_MAX;
    check_wrong(read_client(&options), "spin_max_ms: not 1 to 86400000");
}

static void every_known_wait_mode_is_taken_and_no_other(void) {
    dlock_client_options options = good_client();
    for (int mode = DLOCK_WAIT_AUTO; mode <= DLOCK_WAIT_SERVER; mode++) {
        options.wait_mode = (dlock_wait_mode)mode;
        check_wrong(read_client(&options), NULL);
        CHECK_EQUAL(read.client.wait_mode, mode);
    }
    options.wait_mode = (dlock_wait_mode)(DLOCK_WAIT_SERVER + 1);
    check_wrong(read_client(&options), "wait_mode is none of the known");
    options.wait_mode = (dlock_wait_mode)-1;
    check_wrong(read_client(&options), "wait_mode is none of the known");
}

static const char struct_wrong[] =
    "struct_size is wrong, or an option is set that this version does not know";

static void options_of_an_older_page_have_the_defaults_of_what_it_lacks(void) {
    dlock_client_options options = good_client();
    options.struct_size = offsetof(dlock_client_options, io_timeout_ms);
    options.connect_timeout_ms = 5;
    options.io_timeout_ms = 7; /* of the older program's stack, not an option */
    check_wrong(read_client(&options), NULL);
    CHECK_EQUAL(read.client.connect_timeout_ms, 5);
    CHECK_EQUAL(read.client.io_timeout_ms, 200);
    CHECK_EQUAL((int64_t)read.client.struct_size, sizeof(dlock_client_options));
}

static void options_of_a_newer_page_are_taken_if_they_ask_for_nothing_new(void) {
    struct {
        dlock_client_options known;
        char unknown[16];
    } newer;
    memset(&newer, 0, sizeof(newer));
    newer.known = good_client();
    newer.known.struct_size = sizeof(newer);
    newer.known.hotspot_auto = 9;
    check_wrong(read_client(&newer.known), NULL);
    CHECK_EQUAL(read.client.hotspot_auto, 9);
    CHECK_EQUAL((int64_t)read.client.struct_size, sizeof(dlock_client_options));
    newer.unknown[0] = 1;
    check_wrong(read_client(&newer.known), struct_wrong);
    newer.unknown[0] = 0;
    newer.unknown[15] = 1;
    check_wrong(read_client(&newer.known), struct_wrong);
}

static void options_that_were_not_initialised_are_wrong(void) {
    dlock_client_options options = good_client();
    options.struct_size = 0;
    check_wrong(read_client(&options), struct_wrong);
    options.struct_size = sizeof(options.struct_size) - 1;
    check_wrong(read_client(&options), struct_wrong);
    dlock_lock_options lock = {0};
    check_wrong(read_lock(&lock), struct_wrong);
}

static void options_of_nothing_but_their_size_lack_the_url(void) {
    dlock_client_options options = good_client();
    options.struct_size = sizeof(options.struct_size);
    check_wrong(read_client(&options), "no URL is given");
}

static void a_lock_needs_no_options(void) {
    check_wrong(read_lock(NULL), NULL);
    CHECK_EQUAL(read_options.lease_ms, 10000);
    CHECK(read_options.owner == NULL);
}

static void a_lease_and_an_owner_are_kept(void) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = 10;
    options.owner = "mine";
    check_wrong(read_lock(&options), NULL);
    CHECK_EQUAL(read_options.lease_ms, 10);
    CHECK(read_options.owner == options.owner);
}

static void a_lease_that_would_be_over_at_once_is_refused(void) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = 9;
    check_wrong(read_lock(&options), "lease_ms: not 10 to 4294967295");
}

static void a_limit_needs_shared_holders(void) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    check_wrong(read_lock(&options), NULL);
    CHECK_EQUAL(read_options.mode, DLOCK_EXCLUSIVE);
    options.max_holders = 1;
    check_wrong(read_lock(&options), "max_holders is given, but mode is not DLOCK_SHARED");
    options.mode = DLOCK_SHARED;
    options.max_holders = INT32_MAX;
    check_wrong(read_lock(&options), NULL);
    CHECK_EQUAL(read_options.mode, DLOCK_SHARED);
    CHECK_EQUAL(read_options.max_holders, INT32_MAX);
    options.max_holders++;
    check_wrong(read_lock(&options), "max_holders is more than 2147483647");
    options.max_holders = 0;
    check_wrong(read_lock(&options), NULL);
}

static void no_other_mode_is_taken(void) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.mode = (dlock_mode)2;
    check_wrong(read_lock(&options), "mode is none of the known");
}

static const char owner_wrong[] =
    "the owner is not 1 to 64 printable ASCII characters without blanks and colons";

static void an_owner_has_1_to_64_bytes(void) {
    char owner[TOKEN_OWNER_MAX + 2];
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.owner = owner;
    memset(owner, 'x', sizeof(owner));
    owner[TOKEN_OWNER_MAX] = '\0';
    check_wrong(read_lock(&options), NULL);
    owner[TOKEN_OWNER_MAX] = 'x';
    owner[TOKEN_OWNER_MAX + 1] = '\0';
    check_wrong(read_lock(&options), owner_wrong);
    owner[0] = '\0';
    check_wrong(read_lock(&options), owner_wrong);
    owner[0] = 'x';
    owner[1] = '\0';
    check_wrong(read_lock(&options), NULL);
}

static void an_owner_is_printable_without_blanks_and_colons(void) {
    char owner[] = "a?b";
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.owner = owner;
    for (int c = 1; c < 256; c++) {
        owner[1] = (char)c;
        bool is_good = c > ' ' && c <= '~' && c != ':';
        check_wrong(read_lock(&options), is_good ? NULL : owner_wrong);
    }
}

/* -- defaults of locks, and parameters of URLs */

static dlock_lock_options lock_options(void) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    return options;
}

static void a_lock_gets_the_defaults_where_it_says_nothing(void) {
    dlock_lock_options defaults = lock_options(), options = lock_options();
    defaults.lease_ms = 5000;
    defaults.min_replicas = 2;
    defaults.session = true;
    defaults.owner = "app";
    options.lease_ms = 700;
    check_wrong(read_lock_with(&options, &defaults), NULL);
    CHECK_EQUAL(read_options.lease_ms, 700);
    CHECK_EQUAL(read_options.min_replicas, 2);
    CHECK(read_options.session && read_options.owner == defaults.owner);
}

static void renewal_is_every_third_of_the_lease_unless_told_otherwise(void) {
    dlock_lock_options options = lock_options();
    options.renew = true;
    options.lease_ms = 9000;
    check_wrong(read_lock(&options), NULL);
    CHECK_EQUAL(read_options.renew_every_ms, 3000);
    options.renew_every_ms = 8100;
    check_wrong(read_lock(&options), NULL);
    CHECK_EQUAL(read_options.renew_every_ms, 8100);
    options.renew_every_ms = 8101;
    check_wrong(read_lock(&options), "renew_every_ms is more than nine tenths of lease_ms");
}

static void the_defaults_of_locks_are_checked_with_the_client(void) {
    dlock_lock_options defaults = lock_options();
    dlock_client_options options = good_client();
    options.lock_defaults = &defaults;
    defaults.lease_ms = 9;
    check_wrong(read_client(&options), "lease_ms: not 10 to 4294967295");
    defaults.lease_ms = 0;
    defaults.renew_every_ms = 9001;
    check_wrong(read_client(&options), "renew_every_ms is more than nine tenths of lease_ms");
    defaults.struct_size = 0;
    check_wrong(read_client(&options), struct_wrong);
}

static void no_default_makes_a_lock_shared(void) {
    const char *wrong = "lock_defaults: mode and max_holders are options of a single lock";
    dlock_lock_options defaults = lock_options();
    dlock_client_options options = good_client();
    options.lock_defaults = &defaults;
    defaults.mode = DLOCK_SHARED;
    check_wrong(read_client(&options), wrong);
    options.lock_defaults = NULL;
    options.urls = (const char *const[]){"redis://h?mode=shared"};
    check_wrong(read_client(&options), "the URL: there is no parameter mode");
}

static void options_go_before_the_url(void) {
    dlock_lock_options defaults = lock_options();
    dlock_client_options options = good_client();
    options.urls = (const char *const[]){
        "redis://h?io_timeout_ms=300&connect_timeout_ms=400&lease_ms=5000&max_hold_ms=60000"};
    options.io_timeout_ms = 500;
    options.lock_defaults = &defaults;
    defaults.lease_ms = 7000;
    check_wrong(read_client(&options), NULL);
    CHECK_EQUAL(read.client.io_timeout_ms, 500);
    CHECK_EQUAL(read.client.connect_timeout_ms, 400);
    CHECK_EQUAL(read.lock.lease_ms, 7000);
    CHECK_EQUAL(read.lock.max_hold_ms, 60000);
}

static void the_longest_pause_is_not_shorter_than_the_shortest(void) {
    dlock_client_options options = good_client();
    options.spin_min_ms = 20;
    options.spin_max_ms = 19;
    check_wrong(read_client(&options), "spin_max_ms is less than spin_min_ms");
    options.spin_max_ms = 20;
    check_wrong(read_client(&options), NULL);
}

int main(void) {
    UNIT_RUN(what_is_not_set_has_the_default);
    UNIT_RUN(what_is_set_is_kept);
    UNIT_RUN(the_url_is_read);
    UNIT_RUN(a_wrong_url_is_explained_without_showing_it);
    UNIT_RUN(a_url_with_tls_needs_no_more_options);
    UNIT_RUN(a_certificate_and_its_key_belong_together);
    UNIT_RUN(tls_options_need_a_url_with_tls);
    UNIT_RUN(nothing_of_tls_is_opened_for_a_url_without);
    UNIT_RUN(a_file_that_is_not_there_is_named_by_its_option);
    UNIT_RUN(no_options_are_wrong);
    UNIT_RUN(a_url_is_needed);
    UNIT_RUN(of_several_urls_the_wrong_one_is_named_by_its_place);
    UNIT_RUN(a_day_is_the_longest_time);
    UNIT_RUN(more_than_a_day_is_too_long);
    UNIT_RUN(every_known_wait_mode_is_taken_and_no_other);
    UNIT_RUN(options_of_an_older_page_have_the_defaults_of_what_it_lacks);
    UNIT_RUN(options_of_a_newer_page_are_taken_if_they_ask_for_nothing_new);
    UNIT_RUN(options_that_were_not_initialised_are_wrong);
    UNIT_RUN(options_of_nothing_but_their_size_lack_the_url);
    UNIT_RUN(a_lock_needs_no_options);
    UNIT_RUN(a_lease_and_an_owner_are_kept);
    UNIT_RUN(a_lease_that_would_be_over_at_once_is_refused);
    UNIT_RUN(a_limit_needs_shared_holders);
    UNIT_RUN(no_other_mode_is_taken);
    UNIT_RUN(an_owner_has_1_to_64_bytes);
    UNIT_RUN(an_owner_is_printable_without_blanks_and_colons);
    UNIT_RUN(a_lock_gets_the_defaults_where_it_says_nothing);
    UNIT_RUN(renewal_is_every_third_of_the_lease_unless_told_otherwise);
    UNIT_RUN(the_defaults_of_locks_are_checked_with_the_client);
    UNIT_RUN(no_default_makes_a_lock_shared);
    UNIT_RUN(options_go_before_the_url);
    UNIT_RUN(the_longest_pause_is_not_shorter_than_the_shortest);
    return unit_summary();
}
