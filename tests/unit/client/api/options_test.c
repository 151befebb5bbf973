/* SPDX-License-Identifier: BSD-3-Clause */
/* options_test.c - what callers may ask for, and what they get when they ask for nothing. */
#include "api/options.h"

#include "base/token.h"
#include "unit.h"

enum { DAY_MS = 24 * 3600 * 1000 };

static const char *const one_url[] = {"redis://127.0.0.1:7000/3"};

static settings got;
static dlock_lock_options got_options;

static dlock_client_options client;
static dlock_lock_options lock;

static void begin(void) {
    dlock_client_options_init(&client);
    client.urls = one_url;
    client.url_count = 1;
    dlock_lock_options_init(&lock);
}

static const char *read_client(const dlock_client_options *given) {
    memset(&got, 0xff, sizeof(got)); /* so that nothing is right by chance */
    return options_read_client(&got, given);
}

static const char *read_lock_with(const dlock_lock_options *given,
                                  const dlock_lock_options *defaults) {
    memset(&got_options, 0xff, sizeof(got_options));
    return options_read_lock(&got_options, given, defaults, got.error);
}

static const char *read_lock(const dlock_lock_options *given) {
    static const dlock_lock_options none = {.struct_size = sizeof(none)};
    return read_lock_with(given, &none);
}

/* wrong: NULL, or what is wrong. */
static void check_client(const char *wrong) {
    CHECK_TEXT(read_client(&client), wrong);
}

static void check_lock(const char *wrong) {
    CHECK_TEXT(read_lock(&lock), wrong);
}

TEST(what_is_not_set_has_the_default) {
    check_client(NULL);
    CHECK_EQUAL(got.client.connect_timeout_ms, 1000);
    CHECK_EQUAL(got.client.io_timeout_ms, 200);
    CHECK_EQUAL(got.client.wait_mode, DLOCK_WAIT_AUTO);
    CHECK_EQUAL(got.client.spin_min_ms, 10);
    CHECK_EQUAL(got.client.spin_random_ms, 10);
    CHECK_EQUAL(got.client.spin_max_ms, 0);
    CHECK_TEXT(got.client.prefix, "");
}

TEST(what_is_set_is_kept) {
    client.prefix = "order:";
    client.connect_timeout_ms = 1;
    client.io_timeout_ms = 2;
    client.wait_mode = DLOCK_WAIT_SPIN;
    client.spin_min_ms = 3;
    client.spin_random_ms = 4;
    client.spin_max_ms = 5;
    check_client(NULL);
    CHECK(got.client.prefix == client.prefix);
    CHECK_EQUAL(got.client.connect_timeout_ms, 1);
    CHECK_EQUAL(got.client.io_timeout_ms, 2);
    CHECK_EQUAL(got.client.wait_mode, DLOCK_WAIT_SPIN);
    CHECK_EQUAL(got.client.spin_min_ms, 3);
    CHECK_EQUAL(got.client.spin_random_ms, 4);
    CHECK_EQUAL(got.client.spin_max_ms, 5);
}

TEST(the_url_is_read) {
    check_client(NULL);
    CHECK_TEXT(got.topology.servers[0].host, "127.0.0.1");
    CHECK_EQUAL(got.topology.servers[0].port, 7000);
    CHECK_EQUAL(got.topology.servers[0].db, 3);
}

TEST(a_wrong_url_is_explained_without_showing_it) {
    client.urls = (const char *const[]){"redis://:hunter2@host:no"};
    check_client("the URL: the port is not a number from 1 to 65535");
}

TEST(a_url_with_tls_needs_no_more_options) {
    client.urls = (const char *const[]){"rediss://127.0.0.1"};
    check_client(NULL);
    CHECK(topology_has_tls(&got.topology));
    CHECK(got.client.tls_ca_file == NULL);
}

TEST(a_certificate_and_its_key_belong_together) {
    client.urls = (const char *const[]){"rediss://127.0.0.1"};
    client.tls_cert_file = "cert.pem";
    check_client("of tls_cert_file and tls_key_file only one is given");
    client.tls_key_file = "key.pem";
    check_client(NULL);
    client.tls_cert_file = NULL;
    check_client("of tls_cert_file and tls_key_file only one is given");
}

TEST(tls_options_need_a_url_with_tls) {
    client.tls_ca_file = "ca.pem";
    check_client("tls_ca_file is given, but no URL is rediss://");
    client.tls_cert_file = client.tls_key_file = "both.pem";
    check_client("tls_ca_file is given, but no URL is rediss://");
    client.tls_ca_file = NULL;
    check_client("tls_cert_file is given, but no URL is rediss://");
}

TEST(nothing_of_tls_is_opened_for_a_url_without) {
    tls_context *context = (tls_context *)&client;
    log_file *file = (log_file *)&client;
    check_client(NULL);
    CHECK_EQUAL(options_open_files(&got, &context, &file), DLOCK_OK);
    CHECK(context == NULL && file == NULL);
}

TEST(a_file_that_is_not_there_is_named_by_its_option) {
    client.urls = (const char *const[]){"rediss://127.0.0.1"};
    client.tls_ca_file = "/no/such/file";
    tls_context *context = (tls_context *)&client;
    log_file *file = (log_file *)&client;
    check_client(NULL);
    CHECK_EQUAL(options_open_files(&got, &context, &file), DLOCK_INVALID);
    CHECK(context == NULL && file == NULL);
    CHECK(strncmp(got.error, "tls_ca_file: ", 13) == 0 || strstr(got.error, "without TLS") != NULL);
}

TEST(no_options_are_wrong) {
    CHECK_TEXT(read_client(NULL), "no options are given");
}

TEST(a_url_is_needed) {
    client.urls = NULL;
    check_client("no URL is given");
    begin();
    client.url_count = 0;
    check_client("no URL is given");
    begin();
    client.urls = (const char *const[]){NULL};
    check_client("no URL is given");
}

TEST(of_several_urls_the_wrong_one_is_named_by_its_place) {
    client.urls = (const char *const[]){"redis://a", "redis://:hunter2@b:no", "redis://c"};
    client.url_count = 3;
    check_client("URL 2: the port is not a number from 1 to 65535");
    client.urls = (const char *const[]){"redis://a", "redis://b", NULL};
    check_client("URL 3: it is NULL");
}

TEST(a_day_is_the_longest_time) {
    client.connect_timeout_ms = client.io_timeout_ms = DAY_MS;
    client.spin_min_ms = client.spin_random_ms = client.spin_max_ms = DAY_MS;
    check_client(NULL);
    CHECK_EQUAL(got.client.connect_timeout_ms, DAY_MS);
}

TEST(more_than_a_day_is_too_long) {
    const struct {
        uint32_t *option;
        const char *wrong;
    } rows[] = {
        {&client.connect_timeout_ms, "connect_timeout_ms: not 1 to 86400000"},
        {&client.io_timeout_ms, "io_timeout_ms: not 1 to 86400000"},
        {&client.spin_min_ms, "spin_min_ms: not 1 to 86400000"},
        {&client.spin_random_ms, "spin_random_ms: not 1 to 86400000"},
        {&client.spin_max_ms, "spin_max_ms: not 1 to 86400000"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        begin();
        *rows[i].option = i % 2 == 0 ? DAY_MS + 1 : UINT32_MAX;
        check_client(rows[i].wrong);
    }
}

TEST(every_known_wait_mode_is_taken_and_no_other) {
    for (int mode = DLOCK_WAIT_AUTO; mode <= DLOCK_WAIT_SERVER; mode++) {
        client.wait_mode = (dlock_wait_mode)mode;
        check_client(NULL);
        CHECK_EQUAL(got.client.wait_mode, mode);
    }
    client.wait_mode = (dlock_wait_mode)(DLOCK_WAIT_SERVER + 1);
    check_client("wait_mode is none of the known");
    client.wait_mode = (dlock_wait_mode)-1;
    check_client("wait_mode is none of the known");
}

static const char struct_wrong[] =
    "struct_size is wrong, or an option is set that this version does not know";

TEST(options_of_an_older_page_have_the_defaults_of_what_it_lacks) {
    client.struct_size = offsetof(dlock_client_options, io_timeout_ms);
    client.connect_timeout_ms = 5;
    client.io_timeout_ms = 7; /* of the older program's stack, not an option */
    check_client(NULL);
    CHECK_EQUAL(got.client.connect_timeout_ms, 5);
    CHECK_EQUAL(got.client.io_timeout_ms, 200);
    CHECK_EQUAL(got.client.struct_size, sizeof(dlock_client_options));
}

TEST(options_of_a_newer_page_are_taken_if_they_ask_for_nothing_new) {
    struct {
        dlock_client_options known;
        char unknown[16];
    } newer;
    memset(&newer, 0, sizeof(newer));
    newer.known = client;
    newer.known.struct_size = sizeof(newer);
    newer.known.hotspot_auto = 9;
    CHECK_TEXT(read_client(&newer.known), NULL);
    CHECK_EQUAL(got.client.hotspot_auto, 9);
    CHECK_EQUAL(got.client.struct_size, sizeof(dlock_client_options));
    newer.unknown[0] = 1;
    CHECK_TEXT(read_client(&newer.known), struct_wrong);
    newer.unknown[0] = 0;
    newer.unknown[15] = 1;
    CHECK_TEXT(read_client(&newer.known), struct_wrong);
}

static dlock_step pass(void *arg, dlock_call *call) {
    (void)arg, (void)call;
    return DLOCK_PASS;
}

TEST(a_handler_of_another_page_is_taken_like_options) {
    struct {
        dlock_handler known;
        char unknown[16];
    } newer = {.known = {.struct_size = sizeof(newer), .enter = pass}};
    client.handlers = (const dlock_handler *const[]){&newer.known};
    client.handler_count = 1;
    check_client(NULL);
    newer.unknown[15] = 1;
    check_client("a handler's struct_size is wrong, or it has more than this version knows");
    newer.known.struct_size = offsetof(dlock_handler, leave);
    check_client(NULL);
}

static dlock_status serve(void *arg, dlock_call *call, int64_t limit_us) {
    (void)arg, (void)call, (void)limit_us;
    return DLOCK_OK;
}

TEST(a_store_of_an_older_page_can_do_what_it_could_then) {
    dlock_backend store = {.acquire = serve, .extend = serve, .release = serve, .waits = true};
    store.struct_size = offsetof(dlock_backend, can_share);
    client.url_count = 0;
    client.backend = &store;
    check_client(NULL);
    CHECK(got.client.backend->release == serve && !got.client.backend->waits);
    store.struct_size = 0;
    check_client("the backend's struct_size is wrong, or it has more than this version knows");
}

TEST(options_that_were_not_initialised_are_wrong) {
    client.struct_size = 0;
    check_client(struct_wrong);
    client.struct_size = sizeof(client.struct_size) - 1;
    check_client(struct_wrong);
    lock.struct_size = 0;
    check_lock(struct_wrong);
}

TEST(options_of_nothing_but_their_size_lack_the_url) {
    client.struct_size = sizeof(client.struct_size);
    check_client("no URL is given");
}

TEST(a_lock_needs_no_options) {
    CHECK_TEXT(read_lock(NULL), NULL);
    CHECK_EQUAL(got_options.lease_ms, 10000);
    CHECK(got_options.owner == NULL);
}

TEST(a_lease_and_an_owner_are_kept) {
    lock.lease_ms = 10;
    lock.owner = "mine";
    check_lock(NULL);
    CHECK_EQUAL(got_options.lease_ms, 10);
    CHECK(got_options.owner == lock.owner);
}

TEST(a_lease_that_would_be_over_at_once_is_refused) {
    lock.lease_ms = 9;
    check_lock("lease_ms: not 10 to 4294967295");
}

TEST(a_limit_needs_shared_holders) {
    check_lock(NULL);
    CHECK_EQUAL(got_options.mode, DLOCK_EXCLUSIVE);
    lock.max_holders = 1;
    check_lock("max_holders is given, but mode is not DLOCK_SHARED");
    lock.mode = DLOCK_SHARED;
    lock.max_holders = INT32_MAX;
    check_lock(NULL);
    CHECK_EQUAL(got_options.mode, DLOCK_SHARED);
    CHECK_EQUAL(got_options.max_holders, INT32_MAX);
    lock.max_holders++;
    check_lock("max_holders is more than 2147483647");
    lock.max_holders = 0;
    check_lock(NULL);
}

TEST(no_other_mode_is_taken) {
    lock.mode = (dlock_mode)2;
    check_lock("mode is none of the known");
}

static const char owner_wrong[] =
    "the owner is not 1 to 64 printable ASCII characters without blanks and colons";

TEST(an_owner_has_1_to_64_bytes) {
    char owner[TOKEN_OWNER_MAX + 2];
    lock.owner = owner;
    memset(owner, 'x', sizeof(owner));
    owner[TOKEN_OWNER_MAX] = '\0';
    check_lock(NULL);
    owner[TOKEN_OWNER_MAX] = 'x';
    owner[TOKEN_OWNER_MAX + 1] = '\0';
    check_lock(owner_wrong);
    owner[0] = '\0';
    check_lock(owner_wrong);
    owner[0] = 'x';
    owner[1] = '\0';
    check_lock(NULL);
}

TEST(an_owner_is_printable_without_blanks_and_colons) {
    char owner[] = "a?b";
    lock.owner = owner;
    for (int c = 1; c < 256; c++) {
        owner[1] = (char)c;
        bool is_good = c > ' ' && c <= '~' && c != ':';
        check_lock(is_good ? NULL : owner_wrong);
    }
}

/* -- defaults of locks, and parameters of URLs */

TEST(a_lock_gets_the_defaults_where_it_says_nothing) {
    dlock_lock_options defaults = lock;
    defaults.lease_ms = 5000;
    defaults.min_replicas = 2;
    defaults.session = true;
    defaults.owner = "app";
    lock.lease_ms = 700;
    CHECK_TEXT(read_lock_with(&lock, &defaults), NULL);
    CHECK_EQUAL(got_options.lease_ms, 700);
    CHECK_EQUAL(got_options.min_replicas, 2);
    CHECK(got_options.session && got_options.owner == defaults.owner);
}

TEST(renewal_is_every_third_of_the_lease_unless_told_otherwise) {
    lock.renew = true;
    lock.lease_ms = 9000;
    check_lock(NULL);
    CHECK_EQUAL(got_options.renew_every_ms, 3000);
    lock.renew_every_ms = 8100;
    check_lock(NULL);
    CHECK_EQUAL(got_options.renew_every_ms, 8100);
    lock.renew_every_ms = 8101;
    check_lock("renew_every_ms is more than nine tenths of lease_ms");
}

TEST(renewal_and_session_of_the_client_can_be_switched_off) {
    dlock_lock_options defaults = lock;
    defaults.renew_every_ms = 1000;
    defaults.session = DLOCK_YES;
    lock.renew = lock.session = DLOCK_NO;
    CHECK_TEXT(read_lock_with(&lock, &defaults), NULL);
    CHECK(got_options.renew_every_ms == 0 && got_options.session == DLOCK_DEFAULT);
    defaults.renew_every_ms = 0;
    defaults.renew = DLOCK_YES;
    CHECK_TEXT(read_lock_with(&lock, &defaults), NULL);
    CHECK_EQUAL(got_options.renew_every_ms, 0);
}

TEST(a_lock_can_be_renewed_though_the_client_says_no) {
    dlock_lock_options defaults = lock;
    defaults.renew = DLOCK_NO;
    lock.renew_every_ms = 1000;
    CHECK_TEXT(read_lock_with(&lock, &defaults), NULL);
    CHECK_EQUAL(got_options.renew_every_ms, 1000);
}

TEST(no_renewal_at_intervals_is_a_contradiction) {
    lock.renew = DLOCK_NO;
    lock.renew_every_ms = 1000;
    check_lock("renew is no, but renew_every_ms is given");
    client.urls = (const char *const[]){"redis://h?renew=no&renew_every_ms=1000"};
    check_client("renew is no, but renew_every_ms is given");
}

TEST(the_defaults_of_locks_are_checked_with_the_client) {
    client.lock_defaults = &lock;
    lock.lease_ms = 9;
    check_client("lease_ms: not 10 to 4294967295");
    lock.lease_ms = 0;
    lock.renew_every_ms = 9001;
    check_client("renew_every_ms is more than nine tenths of lease_ms");
    lock.struct_size = 0;
    check_client(struct_wrong);
}

TEST(no_default_makes_a_lock_shared) {
    const char *wrong = "lock_defaults: mode and max_holders are options of a single lock";
    client.lock_defaults = &lock;
    lock.mode = DLOCK_SHARED;
    check_client(wrong);
    client.lock_defaults = NULL;
    client.urls = (const char *const[]){"redis://h?mode=shared"};
    check_client("the URL: there is no parameter mode");
}

TEST(options_go_before_the_url) {
    client.urls = (const char *const[]){
        "redis://h?io_timeout_ms=300&connect_timeout_ms=400&lease_ms=5000&max_hold_ms=60000"};
    client.io_timeout_ms = 500;
    client.lock_defaults = &lock;
    lock.lease_ms = 7000;
    check_client(NULL);
    CHECK_EQUAL(got.client.io_timeout_ms, 500);
    CHECK_EQUAL(got.client.connect_timeout_ms, 400);
    CHECK_EQUAL(got.lock.lease_ms, 7000);
    CHECK_EQUAL(got.lock.max_hold_ms, 60000);
}

TEST(the_longest_pause_is_not_shorter_than_the_shortest) {
    client.spin_min_ms = 20;
    client.spin_max_ms = 19;
    check_client("spin_max_ms is less than spin_min_ms");
    client.spin_max_ms = 20;
    check_client(NULL);
}

int main(void) {
    return unit_main(begin, NULL);
}
