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

static const char struct_wrong[] =
    "struct_size is wrong, or an option is set that this version does not know";

static const char owner_wrong[] =
    "the owner is not 1 to 64 printable ASCII characters without blanks and colons";

#define X16       "xxxxxxxxxxxxxxxx"
#define URLS(...) ((const char *const[]){__VA_ARGS__})
#define TLS       .urls = tls, .url_count = 1
#define CLIENT(...)                                                                                \
    { .struct_size = sizeof(dlock_client_options), __VA_ARGS__ }
#define LOCK(...)                                                                                  \
    { .struct_size = sizeof(dlock_lock_options), __VA_ARGS__ }

/* Without urls: one that is good. */
TEST(options_of_a_client_that_are_wrong_are_explained) {
    const dlock_lock_options brief = {.struct_size = sizeof(brief), .lease_ms = 9},
                             rare = {.struct_size = sizeof(rare), .renew_every_ms = 9001},
                             shared = {.struct_size = sizeof(shared), .mode = DLOCK_SHARED},
                             permits = {.struct_size = sizeof(permits), .max_holders = 1},
                             unset = {0};
    const char *const *tls = URLS("rediss://127.0.0.1");
    static const char pair_wrong[] = "of tls_cert_file and tls_key_file only one is given",
                      mode_wrong[] = "wait_mode is none of the known",
                      shared_wrong[] =
                          "lock_defaults: mode and max_holders are options of a single lock";
    const struct {
        const char *wrong; /* NULL: nothing */
        dlock_client_options given;
    } rows[] = {
        {"the URL: the port is not a number from 1 to 65535", /* and no password is shown */
         CLIENT(.urls = URLS("redis://:hunter2@host:no"), .url_count = 1)},
        {"URL 2: the port is not a number from 1 to 65535",
         CLIENT(.urls = URLS("redis://a", "redis://:hunter2@b:no", "redis://c"), .url_count = 3)},
        {"URL 3: it is NULL", CLIENT(.urls = URLS("redis://a", "redis://b", NULL), .url_count = 3)},
        {"no URL is given", CLIENT(.urls = NULL, .url_count = 1)},
        {"no URL is given", CLIENT(.urls = URLS("redis://a"), .url_count = 0)},
        {"no URL is given", CLIENT(.urls = URLS(NULL), .url_count = 1)},
        {"no URL is given", {.struct_size = sizeof(size_t)}},
        {struct_wrong, {.struct_size = 0}},
        {struct_wrong, {.struct_size = sizeof(size_t) - 1}},
        {NULL, CLIENT(TLS)},
        {NULL, CLIENT(TLS, .tls_cert_file = "c", .tls_key_file = "k")},
        {pair_wrong, CLIENT(TLS, .tls_cert_file = "c")},
        {pair_wrong, CLIENT(TLS, .tls_key_file = "k")},
        {"tls_ca_file is given, but no URL is rediss://", CLIENT(.tls_ca_file = "ca")},
        {"tls_ca_file is given, but no URL is rediss://",
         CLIENT(.tls_ca_file = "ca", .tls_cert_file = "c", .tls_key_file = "k")},
        {"tls_cert_file is given, but no URL is rediss://",
         CLIENT(.tls_cert_file = "c", .tls_key_file = "k")},
        {"connect_timeout_ms: not 1 to 86400000", CLIENT(.connect_timeout_ms = DAY_MS + 1)},
        {"io_timeout_ms: not 1 to 86400000", CLIENT(.io_timeout_ms = UINT32_MAX)},
        {"spin_min_ms: not 1 to 86400000", CLIENT(.spin_min_ms = DAY_MS + 1)},
        {"spin_random_ms: not 1 to 86400000", CLIENT(.spin_random_ms = UINT32_MAX)},
        {"spin_max_ms: not 1 to 86400000", CLIENT(.spin_max_ms = DAY_MS + 1)},
        {"spin_max_ms is less than spin_min_ms", CLIENT(.spin_min_ms = 20, .spin_max_ms = 19)},
        {NULL, CLIENT(.spin_min_ms = 20, .spin_max_ms = 20)},
        {NULL, CLIENT(.wait_mode = DLOCK_WAIT_AUTO)},
        {NULL, CLIENT(.wait_mode = DLOCK_WAIT_SPIN)},
        {NULL, CLIENT(.wait_mode = DLOCK_WAIT_SERVER)},
        {mode_wrong, CLIENT(.wait_mode = (dlock_wait_mode)(DLOCK_WAIT_SERVER + 1))},
        {mode_wrong, CLIENT(.wait_mode = (dlock_wait_mode)-1)},
        {"lease_ms: not 10 to 4294967295", CLIENT(.lock_defaults = &brief)},
        {"renew_every_ms is more than nine tenths of lease_ms", CLIENT(.lock_defaults = &rare)},
        {struct_wrong, CLIENT(.lock_defaults = &unset)},
        {shared_wrong, CLIENT(.lock_defaults = &shared)},
        {shared_wrong, CLIENT(.lock_defaults = &permits)},
        {"the URL: there is no parameter mode",
         CLIENT(.urls = URLS("redis://h?mode=shared"), .url_count = 1)},
        {"renew is no, but renew_every_ms is given",
         CLIENT(.urls = URLS("redis://h?renew=no&renew_every_ms=1000"), .url_count = 1)},
    };
    EACH_ROW(i, rows) {
        dlock_client_options given = rows[i].given;
        bool is_url_given = given.urls != NULL || given.url_count > 0;
        if (given.struct_size == sizeof(given) && !is_url_given) {
            given.urls = one_url;
            given.url_count = 1;
        }
        CHECK_TEXT(read_client(&given), rows[i].wrong);
        if (rows[i].wrong == NULL) CHECK_EQUAL(got.client.wait_mode, given.wait_mode);
        if (rows[i].wrong == NULL) CHECK_EQUAL(topology_has_tls(&got.topology), given.urls == tls);
    }
    CHECK_TEXT(read_client(NULL), "no options are given");
}

TEST(options_of_a_lock_are_kept_or_explained) {
    const dlock_lock_options none = {.struct_size = sizeof(dlock_lock_options)},
                             unrenewed = LOCK(.renew = DLOCK_NO),
                             renewed = LOCK(.renew = DLOCK_YES),
                             kept = LOCK(.renew_every_ms = 1000, .session = DLOCK_YES);
    static const char rare[] = "renew_every_ms is more than nine tenths of lease_ms",
                      unknown[] = "mode is none of the known";
    const struct {
        const char *wrong; /* NULL: nothing */
        dlock_lock_options given, defaults;
        uint32_t every_ms; /* then */
    } rows[] = {
        {struct_wrong, {.struct_size = 0}, none, 0},
        {"lease_ms: not 10 to 4294967295", LOCK(.lease_ms = 9), none, 0},
        {NULL, LOCK(.lease_ms = 10, .owner = "mine"), none, 0},
        {unknown, LOCK(.mode = (dlock_mode)2), none, 0},
        {"max_holders is given, but mode is not DLOCK_SHARED", LOCK(.max_holders = 1), none, 0},
        {NULL, LOCK(.mode = DLOCK_SHARED, .max_holders = INT32_MAX), none, 0},
        {NULL, LOCK(.mode = DLOCK_SHARED), none, 0},
        {"max_holders is more than 2147483647",
         LOCK(.mode = DLOCK_SHARED, .max_holders = INT32_MAX + 1u), none, 0},
        {NULL, LOCK(.owner = "x"), none, 0},
        {NULL, LOCK(.owner = X16 X16 X16 X16), none, 0},
        {owner_wrong, LOCK(.owner = X16 X16 X16 X16 "x"), none, 0},
        {owner_wrong, LOCK(.owner = ""), none, 0},
        {NULL, LOCK(.renew = DLOCK_YES, .lease_ms = 9000), none, 3000},
        {NULL, LOCK(.lease_ms = 9000, .renew_every_ms = 8100), none, 8100},
        {rare, LOCK(.lease_ms = 9000, .renew_every_ms = 8101), none, 0},
        {"renew is no, but renew_every_ms is given",
         LOCK(.renew = DLOCK_NO, .renew_every_ms = 1000), none, 0},
        {NULL, LOCK(.renew = DLOCK_NO, .session = DLOCK_NO), kept, 0},
        {NULL, LOCK(.renew = DLOCK_NO), renewed, 0},
        {NULL, LOCK(.renew_every_ms = 1000), unrenewed, 1000},
    };
    EACH_ROW(i, rows) {
        const dlock_lock_options *given = &rows[i].given;
        CHECK_TEXT(read_lock_with(given, &rows[i].defaults), rows[i].wrong);
        if (rows[i].wrong != NULL) continue;
        CHECK_EQUAL(got_options.renew_every_ms, rows[i].every_ms);
        CHECK_EQUAL(got_options.session, DLOCK_DEFAULT);
        CHECK_EQUAL(got_options.lease_ms, given->lease_ms != 0 ? given->lease_ms : 10000);
        CHECK_EQUAL(got_options.mode, given->mode);
        CHECK_EQUAL(got_options.max_holders, given->max_holders);
        CHECK(got_options.owner == given->owner);
    }
}

TEST(what_is_not_set_has_the_default) {
    check_client(NULL);
    const dlock_client_options *client = &got.client;
    CHECK(client->connect_timeout_ms == 1000 && client->io_timeout_ms == 200);
    CHECK(client->wait_mode == DLOCK_WAIT_AUTO && client->spin_max_ms == 0);
    CHECK(client->spin_min_ms == 10 && client->spin_random_ms == 10);
    CHECK_TEXT(client->prefix, "");
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

TEST(a_day_is_the_longest_time) {
    client.connect_timeout_ms = client.io_timeout_ms = DAY_MS;
    client.spin_min_ms = client.spin_random_ms = client.spin_max_ms = DAY_MS;
    check_client(NULL);
    CHECK_EQUAL(got.client.connect_timeout_ms, DAY_MS);
}

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

TEST(a_lock_needs_no_options) {
    CHECK_TEXT(read_lock(NULL), NULL);
    CHECK_EQUAL(got_options.lease_ms, 10000);
    CHECK(got_options.owner == NULL);
}

TEST(an_owner_is_printable_without_blanks_and_colons) {
    static char owner[] = "a?b";
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

int main(void) {
    return unit_main(begin, NULL);
}
