// SPDX-License-Identifier: BSD-3-Clause
// cpp_lock.cpp - the facts about dlock.hpp that tests/client/test_cpp.py checks, one a run.
//
//   cpp_lock URL FACT
#include <dlock.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <poll.h>
#include <thread>
#include <type_traits>

using namespace std::chrono_literals;
using dlock::status;

static_assert(!std::is_copy_constructible_v<dlock::client>);
static_assert(!std::is_copy_assignable_v<dlock::client>);
static_assert(!std::is_copy_constructible_v<dlock::lock>);
static_assert(!std::is_copy_assignable_v<dlock::lock>);
static_assert(!std::is_copy_constructible_v<dlock::watcher>);
static_assert(std::is_nothrow_move_constructible_v<dlock::watcher>);
static_assert(std::is_nothrow_move_constructible_v<dlock::client>);
static_assert(std::is_nothrow_move_assignable_v<dlock::client>);
static_assert(std::is_nothrow_move_constructible_v<dlock::lock>);
static_assert(std::is_nothrow_move_assignable_v<dlock::lock>);
static_assert(!std::is_move_constructible_v<dlock::scope>);

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                   \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

static std::map<std::string, void (*)(const std::string &)> &facts() {
    static std::map<std::string, void (*)(const std::string &)> all;
    return all;
}

#define FACT(name)                                                                                 \
    static void name(const std::string &url);                                                      \
    [[maybe_unused]] static const bool is_added_##name = facts().emplace(#name, name).second;      \
    static void name([[maybe_unused]] const std::string &url)

#if defined(__cpp_exceptions)
// No memory for C++, while the library itself has enough.
static std::atomic<bool> is_out_of_memory;

void *operator new(std::size_t size) {
    void *made = is_out_of_memory ? nullptr : std::malloc(size);
    if (made == nullptr) throw std::bad_alloc();
    return made;
}

void operator delete(void *memory) noexcept {
    std::free(memory);
}

void operator delete(void *memory, std::size_t) noexcept {
    std::free(memory);
}
#endif

static dlock::client_options options_for(const std::string &url) {
    dlock::client_options options;
    options.urls.push_back(url);
    options.prefix = "cpp:";
    options.io_timeout = 20s; // however slow the machine is
    return options;
}

static dlock::client open(const std::string &url) {
    return dlock::client::open(options_for(url)).value();
}

static bool is_free(dlock::client &client, const std::string &name) {
    return client.inspect(name, 20s).value().empty();
}

FACT(a_guard_gives_the_lock_back) {
    auto client = open(url);
    {
        dlock::scope held(client, "name", 5s);
        CHECK(held);
        CHECK(held.code() == status::ok);
        CHECK(held.fence() > 0);
        CHECK(held.state() == dlock::lock_state::held);
        CHECK(held.remaining() > 5s && held.remaining() <= 10s);
        CHECK(held.extend(60s) == status::ok);
        CHECK(held.remaining() > 50s);
        CHECK(&held.require() == &held);
        CHECK(!is_free(client, "name"));
    }
    CHECK(is_free(client, "name"));
}

FACT(a_guard_says_why_it_has_no_lock) {
    auto client = open(url), other = open(url);
    dlock::scope held(other, "name", 0ms);
    dlock::scope refused(client, "name", 1ms);
    CHECK(!refused);
    CHECK(refused.code() == status::timeout);
    CHECK(!refused.message().empty());
    CHECK(refused.fence() == 0);
    CHECK(refused.remaining() == 0ms);
    CHECK(refused.state() == dlock::lock_state::free);
    CHECK(refused.extend() == status::not_held);
}

FACT(a_lock_goes_through_its_life) {
    auto client = open(url);
    dlock::lock_options options;
    options.lease = 30s;
    options.owner = "me";
    auto lock = client.make_lock("name", options).value();
    CHECK(lock.state() == dlock::lock_state::free);
    CHECK(lock.release() == status::not_held);
    CHECK(!lock.message().empty());
    CHECK(lock.acquire(5s) == status::ok);
    lock.require(status::ok);
    CHECK(lock.token().find(":me:") != std::string::npos);
    CHECK(lock.remaining() > 20s && lock.remaining() <= 30s);
    CHECK(lock.extend() == status::ok);
    CHECK(lock.extend(2min) == status::ok);
    CHECK(lock.remaining() > 1min);
    CHECK(lock.lost_fd() >= 0);
    CHECK(lock.timings().attempts == 1);
    uint64_t fence = lock.fence();
    CHECK(lock.release() == status::ok);
    CHECK(lock.try_acquire() == status::ok);
    CHECK(lock.fence() > fence);
    CHECK(client.stats().acquired == 2);
}

FACT(an_acquisition_can_have_a_lease_of_its_own) {
    auto client = open(url);
    auto lock = client.make_lock("name").value();
    CHECK(lock.acquire_for(0ms, 60s) == status::ok);
    CHECK(lock.remaining() > 50s);
    CHECK(lock.release() == status::ok);
    CHECK(lock.acquire_for(dlock::forever, 90s) == status::ok);
    CHECK(lock.remaining() > 80s);
    CHECK(lock.release() == status::ok);
    CHECK(lock.acquire(0ms) == status::ok);
    CHECK(lock.remaining() <= 10s);
}

FACT(a_guarded_command_replies) {
    auto client = open(url);
    auto lock = client.make_lock("name").value();
    CHECK(lock.guarded({"SET", "data", "1"}).code() != status::ok);
    CHECK(lock.acquire(5s) == status::ok);
    auto set = lock.guarded({"SET", "data", std::string_view("a\0b", 3)}).value();
    CHECK(set.kind == dlock::reply_kind::text && set.text == "OK");
    CHECK(lock.guarded({"GET", "data"}).value().text == std::string("a\0b", 3));
    auto cut = lock.guarded({"GET", "data"}, 2).value();
    CHECK(cut.text == std::string("a\0", 2) && cut.text_length == 3);
    CHECK(lock.guarded({"SET", "data", std::string_view{}}).code() == status::ok);
    CHECK(lock.guarded({"GET", "data"}).value().text == "");
    CHECK(lock.guarded({"GET", "none"}).value().kind == dlock::reply_kind::null);
    CHECK(lock.guarded({"LPUSH", "data", "x"}).code() == status::refused);
    CHECK(lock.release() == status::ok);
    dlock::scope held(client, "name", 5s);
    auto gone = held.guarded({"DEL", "data"}).value();
    CHECK(gone.kind == dlock::reply_kind::integer && gone.integer == 1);
    CHECK(held.guarded({"LRANGE", "none", "0", "1"}).value().kind == dlock::reply_kind::array);
    dlock::scope refused(client, std::string("a\0", 2), 0ms);
    CHECK(refused.guarded({"DEL", "data"}).code() == status::not_held);
}

FACT(a_lock_outlives_its_client_object) {
    auto client = std::make_unique<dlock::client>(open(url));
    auto lock = client->make_lock("name").value();
    client.reset();
    CHECK(lock.acquire(5s) == status::ok);
    CHECK(lock.release() == status::ok);
}

FACT(a_moved_lock_is_the_same_lock) {
    auto client = open(url);
    auto moved = std::move(client);
    auto first = moved.make_lock("first").value();
    CHECK(first.acquire(5s) == status::ok);
    uint64_t fence = first.fence();
    dlock::lock second = std::move(first);
    CHECK(second.fence() == fence);
    CHECK(second.release() == status::ok);
}

FACT(an_assigned_lock_releases_what_it_held) {
    auto lock = open(url).make_lock("first").value();
    auto client = open(url);
    CHECK(lock.acquire(5s) == status::ok);
    lock = client.make_lock("second").value();
    CHECK(is_free(client, "first"));
    CHECK(lock.acquire(5s) == status::ok);
    CHECK(!is_free(client, "second"));
}

FACT(a_negative_wait_is_no_wait) {
    auto client = open(url), other = open(url);
    dlock::scope held(other, "name", 0ms);
    auto lock = client.make_lock("name").value();
    CHECK(lock.acquire(-1ms) == status::busy);
    CHECK(lock.acquire(-1h) == status::busy);
    dlock::scope refused(client, "name", -1ms);
    CHECK(refused.code() == status::busy);
}

FACT(a_negative_lease_is_refused) {
    auto client = open(url);
    dlock::lock_options options;
    options.lease = -5s;
    auto lock = client.make_lock("name", options);
    CHECK(!lock);
    CHECK(lock.code() == status::invalid);
    CHECK(lock.message().find("lease_ms") != std::string::npos);
}

FACT(a_wait_for_ever_can_be_canceled) {
    auto client = open(url), other = open(url);
    dlock::scope held(other, "name", 0ms);
    auto lock = client.make_lock("name").value();
    std::thread canceler([&] {
        while (other.inspect("name", 20s).value().at(0).waiters == 0)
            std::this_thread::sleep_for(1ms);
        lock.cancel();
    });
    CHECK(lock.acquire(dlock::forever) == status::canceled);
    canceler.join();
    lock.uncancel();
    CHECK(lock.try_acquire() == status::busy);
    client.cancel();
    CHECK(lock.acquire(dlock::forever) == status::canceled);
    client.uncancel();
    CHECK(lock.try_acquire() == status::busy);
}

FACT(events_are_told_to_a_function_object) {
    std::mutex mutex;
    std::vector<std::pair<dlock::event_kind, std::string>> told;
    std::vector<std::string> lines;
    auto options = options_for(url);
    options.on_event = [&](const dlock::event &event) {
        std::lock_guard<std::mutex> locked(mutex);
        told.emplace_back(event.kind, event.name);
    };
    std::atomic<bool> is_connected{false};
    options.diagnostic_log = [&](dlock_log_level level, const char *line) {
        is_connected = level == DLOCK_LOG_INFO && std::strstr(line, ": connected") != nullptr;
    };
    options.access_log = [&lines](dlock_log_level level, const char *line) {
        CHECK(level == DLOCK_LOG_INFO);
        lines.push_back(line);
    };
    auto client = dlock::client::open(options).value();
    auto moved = std::move(client); // the functions stay where they are
    { dlock::scope held(moved, "name", 5s); }
    std::vector<std::pair<dlock::event_kind, std::string>> both = {
        {dlock::event_kind::acquired, "cpp:name"}, {dlock::event_kind::released, "cpp:name"}};
    CHECK(told == both);
    CHECK(lines.size() == 2);
    while (!is_connected) // told by another thread
        std::this_thread::sleep_for(1ms);
}

FACT(a_loss_is_told) {
    std::mutex mutex;
    bool is_lost = false;
    auto options = options_for(url);
    options.on_event = [&](const dlock::event &event) {
        std::lock_guard<std::mutex> locked(mutex);
        is_lost = is_lost || event.kind == dlock::event_kind::lost;
    };
    auto client = dlock::client::open(options).value();
    dlock::lock_options short_lease;
    short_lease.lease = 200ms;
    dlock::scope held(client, "name", 5s, short_lease);
    CHECK(held);
    for (bool is_told = false; !is_told; std::this_thread::sleep_for(1ms)) {
        std::lock_guard<std::mutex> locked(mutex);
        is_told = is_lost;
    }
    CHECK(held.state() == dlock::lock_state::lost);
    CHECK(held.remaining() == 0ms);
}

FACT(readers_share_a_lock) {
    auto client = open(url);
    dlock::scope first(client, "name", 0ms, dlock::shared());
    auto second = client.make_lock("name", dlock::shared()).value();
    auto writer = client.make_lock("name").value();
    CHECK(first);
    CHECK(second.try_acquire() == status::ok);
    CHECK(writer.try_acquire() == status::busy);
    auto holders = client.inspect("name", 20s).value();
    CHECK(holders.size() == 2);
    CHECK(holders[0].mode == dlock::mode::shared);
    CHECK(holders[0].holders == 2);
}

FACT(permits_are_counted) {
    auto client = open(url);
    std::vector<dlock::lock> locks;
    for (int i = 0; i < 3; i++)
        locks.push_back(client.make_lock("name", dlock::permits(2)).value());
    CHECK(locks[0].try_acquire() == status::ok);
    CHECK(locks[1].try_acquire() == status::ok);
    CHECK(locks[2].try_acquire() == status::busy);
}

FACT(several_names_are_one_lock) {
    auto client = open(url);
    auto both = client.make_lock({"one", "two"}).value();
    auto two = client.make_lock("two").value();
    auto listed = client.make_lock(std::vector<std::string>{"two", "three"}).value();
    CHECK(both.try_acquire() == status::ok);
    CHECK(two.try_acquire() == status::busy);
    CHECK(listed.try_acquire() == status::busy);
    CHECK(client.inspect("one", 20s).value().at(0).fence == both.fence());
    CHECK(both.release() == status::ok);
    CHECK(listed.try_acquire() == status::ok);
    CHECK(client.make_lock({"one", "one"}).code() == status::invalid);
    CHECK(client.make_lock({"one", std::string("t\0o", 3)}).code() == status::invalid);
}

FACT(a_scope_takes_several_names) {
    auto client = open(url), other = open(url);
    auto two = other.make_lock("two").value();
    {
        dlock::scope held(client, {"one", "two"}, 5s);
        CHECK(held && held.fence() == client.inspect("one", 20s).value().at(0).fence);
        CHECK(two.try_acquire() == status::busy);
        dlock::scope nested(client, "two", 0ms), same(client, {"two", "one"}, 0ms);
        CHECK(nested.handle() == held.handle() && same.handle() == held.handle());
        dlock::scope refused(client, std::vector<std::string>{"two", "three"}, 0ms);
        CHECK(refused.code() == status::invalid && !refused.message().empty());
    }
    CHECK(two.try_acquire() == status::ok);
    dlock::scope busy(client, {"one", "two"}, 1ms);
    CHECK(busy.code() == status::timeout);
    dlock::scope nul(client, {"one", std::string("t\0o", 3)}, dlock::forever);
    CHECK(nul.code() == status::invalid);
}

FACT(locks_can_be_listed) {
    auto client = open(url);
    CHECK(client.ping(20s) == status::ok);
    CHECK(client.hotspot_add("one") == status::ok);
    dlock::scope one(client, "one", 5s), two(client, "two", 5s), other(client, "x", 5s);
    auto found = client.list("*o*", 20s).value();
    std::sort(found.begin(), found.end(), [](auto &a, auto &b) { return a.name < b.name; });
    CHECK(found.size() == 2);
    CHECK(found[0].name == "one" && found[0].fence == one.fence());
    CHECK(found[1].name == "two" && found[1].token == dlock_token(two.handle()));
    CHECK(found[0].lease == 10s);
    CHECK(found[0].remaining && *found[0].remaining <= 10s);
    CHECK(std::chrono::abs(found[0].since - std::chrono::system_clock::now()) < 10min);
    CHECK(client.hotspot_remove("one") == status::ok);
}

FACT(a_name_with_a_zero_byte_is_refused) {
    auto client = open(url);
    std::string name("na\0me", 5);
    CHECK(client.make_lock(name).code() == status::invalid);
    CHECK(client.inspect(name, 5s).code() == status::invalid);
    CHECK(client.list(name, 5s).code() == status::invalid);
    CHECK(client.hotspot_add(name) == status::invalid);
    CHECK(client.hotspot_remove(name) == status::invalid);
    dlock::scope refused(client, name, 0ms);
    CHECK(refused.code() == status::invalid);
    CHECK(!refused.message().empty());
}

FACT(a_wrong_url_is_explained) {
    auto client = dlock::client::open("http://127.0.0.1");
    CHECK(!client);
    CHECK(client.code() == status::invalid);
    CHECK(dlock::is_failure(client.code()));
    CHECK(!dlock::is_failure(status::busy));
    CHECK(std::strcmp(dlock::name_of(client.code()), "DLOCK_INVALID") == 0);
    CHECK(client.message().find("URL") != std::string::npos ||
          client.message().find("url") != std::string::npos);
}

FACT(a_client_can_be_made_of_a_url) {
    auto client = dlock::client::open(url + "?lease_ms=45000&io_timeout_ms=20000").value();
    dlock::scope held(client, "name", 5s);
    CHECK(held.remaining() > 40s);
    auto other = dlock::client::from_environment().value();
    dlock::scope prefixed(other, "name", 5s);
    CHECK(prefixed);
    CHECK(client.list("e:*", 20s).value().size() == 1);
}

FACT(a_client_has_defaults_for_its_locks) {
    auto options = options_for(url);
    options.lock_defaults.lease = 45s;
    options.lock_defaults.owner = "default";
    auto client = dlock::client::open(options).value();
    dlock::lock_options renewed;
    renewed.renew = true;
    dlock::scope held(client, "name", 5s, renewed);
    CHECK(held.remaining() > 40s);
    CHECK(std::strstr(dlock_token(held.handle()), ":default:") != nullptr);
}

FACT(a_guard_can_end_early) {
    auto client = open(url);
    dlock::scope held(client, "name", 5s);
    CHECK(held.release() == status::ok);
    CHECK(!held);
    CHECK(held.fence() == 0);
    CHECK(held.extend() == status::not_held);
    CHECK(is_free(client, "name"));
    dlock::scope lost(client, "name", 5s);
    CHECK(client.handle() != nullptr && lost);
    auto told =
        dlock_release_token(client.handle(), "name", dlock_token(lost.handle()), nullptr, 0);
    CHECK(told == DLOCK_OK);
    CHECK(lost.release() == status::lost);
    CHECK(lost.code() == status::lost);
}

static void wait_for(dlock::client &client, const bool &is_done) {
    while (!is_done) {
        pollfd source{client.fd(), POLLIN, 0};
        CHECK(poll(&source, 1, 60000) == 1);
        client.dispatch();
    }
}

#if defined(__cpp_exceptions)
FACT(without_memory_functions_fail_and_nothing_ends) {
    auto client = open(url);
    auto lock = client.make_lock("name").value(), other = client.make_lock("other").value();
    CHECK(client.hotspot_add("name") == status::ok);
    CHECK(lock.acquire(5s) == status::ok);
    is_out_of_memory = true;
    auto holders = client.inspect("name", 20s);
    auto hot = client.hotspot_list();
    is_out_of_memory = false;
    CHECK(!holders && holders.code() == status::no_memory && holders.message() == "no memory");
    CHECK(!hot && hot.code() == status::no_memory);
    CHECK(client.inspect("name", 20s).value().size() == 1);

    bool is_done = false;
    CHECK(lock.guarded_start({"SET"}, [&](dlock::result<dlock::reply> got) {
        CHECK(got.code() == status::refused && got.message().empty());
        is_done = true;
    }) == status::ok);
    is_out_of_memory = true;
    wait_for(client, is_done);
    is_out_of_memory = false;

    std::atomic<int> told{0};
    std::atomic<uint64_t> fence{0};
    auto watcher = client.watch("other", [&](const std::optional<dlock::holder> &now) {
        if (now) fence = now->token.empty() ? now->fence : 0;
        told++;
    });
    CHECK(watcher);
    while (told == 0)
        std::this_thread::yield();
    is_out_of_memory = true;
    status got = other.acquire(5s);
    while (told == 1)
        std::this_thread::yield();
    is_out_of_memory = false;
    CHECK(got == status::ok && fence == other.fence());
}
#endif

FACT(a_call_can_be_started) {
    auto client = open(url);
    auto lock = client.make_lock("name").value();
    std::vector<status> told;
    bool is_done = false;
    auto done = [&](status result) {
        told.push_back(result);
        is_done = true;
    };
    CHECK(lock.acquire_start(5s, done) == status::ok);
    CHECK(lock.acquire_start(5s, done) == status::invalid); // one call at a time
    wait_for(client, is_done);
    CHECK(lock.fence() > 0);
    is_done = false;
    CHECK(lock.extend_start(60s, done) == status::ok);
    wait_for(client, is_done);
    CHECK(lock.remaining() > 50s);
    is_done = false;
    CHECK(lock.release_start(done) == status::ok);
    wait_for(client, is_done);
    CHECK(told == std::vector<status>(3, status::ok));
}

// The client of dlock.h ends when the dispatch does, and tells of its connection then.
FACT(a_started_call_may_destroy_lock_and_client) {
    auto lines = std::make_shared<std::vector<std::string>>();
    std::weak_ptr<std::vector<std::string>> log = lines;
    auto options = options_for(url);
    options.no_threads = true;
    options.diagnostic_log = [lines](dlock_log_level, const char *line) { lines->push_back(line); };
    auto client = std::make_unique<dlock::client>(dlock::client::open(options).value());
    options.diagnostic_log = nullptr;
    auto lock = std::make_unique<dlock::lock>(client->make_lock("name").value());
    CHECK(lock->release_start([&](status result) {
        CHECK(result == status::not_held); // without a connection
        CHECK(lock->acquire(5s) == status::ok && lines->empty());
        lock.reset();
        client.reset();
        CHECK(log.use_count() > 1); // the function that is told of lines
    }) == status::ok);
    client->dispatch();
    CHECK(lines->size() == 1 && log.use_count() == 1);
}

FACT(a_function_that_is_not_there_is_refused) {
    auto client = open(url);
    auto lock = client.make_lock("name").value();
    CHECK(lock.acquire_start(5s, nullptr) == status::invalid);
    CHECK(lock.acquire_for_start(5s, 2min, {}) == status::invalid);
    CHECK(lock.acquire(5s) == status::ok);
    CHECK(lock.extend_start(60s, nullptr) == status::invalid);
    CHECK(lock.guarded_start({"GET", "name"}, nullptr) == status::invalid);
    CHECK(lock.release_start(nullptr) == status::invalid);
    CHECK(lock.state() == dlock::lock_state::held);
    CHECK(client.watch("name", nullptr).code() == status::invalid);
    CHECK(client.dispatch() == 0);
}

FACT(a_started_acquire_can_have_a_lease_of_its_own) {
    auto client = open(url);
    auto lock = client.make_lock("name").value();
    bool is_done = false;
    auto done = [&](status result) {
        CHECK(result == status::ok);
        is_done = true;
    };
    CHECK(lock.acquire_for_start(5s, 2min, done) == status::ok);
    wait_for(client, is_done);
    CHECK(lock.remaining() > 1min);
    CHECK(lock.release() == status::ok);
    is_done = false;
    CHECK(lock.acquire_for_start(dlock::forever, 2min, done) == status::ok);
    wait_for(client, is_done);
    CHECK(lock.remaining() > 1min);
    CHECK(lock.release() == status::ok);
    is_done = false;
    CHECK(lock.acquire_start(dlock::forever, done) == status::ok);
    wait_for(client, is_done);
    CHECK(lock.remaining() <= 1min);
}

FACT(a_started_guarded_command_replies) {
    auto client = open(url);
    auto lock = client.make_lock("{t}name").value();
    bool is_done = false;
    dlock::result<dlock::reply> told(status::invalid, "not told");
    auto done = [&](dlock::result<dlock::reply> result) {
        told = std::move(result);
        is_done = true;
    };
    auto run = [&](const std::vector<std::string_view> &command, size_t text_max) {
        is_done = false;
        CHECK(lock.guarded_start(command, done, text_max) == status::ok);
        CHECK(lock.guarded_start(command, done) == status::invalid); // one call at a time
        wait_for(client, is_done);
    };
    CHECK(lock.acquire(5s) == status::ok);
    run({"SET", "{t}key", "seven letters"}, 100);
    CHECK(told && told->text == "OK");
    run({"GET", "{t}key"}, 5);
    CHECK(told->kind == dlock::reply_kind::text);
    CHECK(told->text == "seven" && told->text_length == 13);
    run({"DEL", "{t}key"}, 100);
    CHECK(told->kind == dlock::reply_kind::integer && told->integer == 1);
    CHECK(dlock_release_token(client.handle(), "{t}name", lock.token().c_str(), nullptr, 0) ==
          DLOCK_OK);
    run({"DEL", "{t}key"}, 100);
    CHECK(!told && told.code() == status::lost && !told.message().empty());
}

FACT(hot_names_can_be_listed) {
    auto client = open(url);
    CHECK(client.hotspot_list().value().empty());
    CHECK(client.hotspot_add("name") == status::ok);
    dlock::scope held(client, "name", 5s);
    auto found = client.hotspot_list().value();
    CHECK(found.size() == 1);
    CHECK(found[0].name == "name");
    CHECK(found[0].waiting == 0 && found[0].is_held && !found[0].is_found);
}

FACT(a_name_can_be_watched) {
    std::mutex mutex;
    std::vector<std::string> told; // tokens; "": free
    auto count = [&] {
        std::lock_guard<std::mutex> locked(mutex);
        return told.size();
    };
    auto note = [&](const std::optional<dlock::holder> &holder) {
        std::lock_guard<std::mutex> locked(mutex);
        told.push_back(holder ? holder->token : "");
    };
    auto wait_for_count = [&](size_t wanted) {
        for (int i = 0; i < 20000 && count() < wanted; i++)
            std::this_thread::sleep_for(1ms);
        CHECK(count() == wanted);
    };
    auto watcher = open(url).watch("a", note).value();
    wait_for_count(1);
    auto client = open(url);
    auto lock = client.make_lock("a").value();
    CHECK(lock.acquire(20s) == status::ok);
    wait_for_count(2);
    std::string token = lock.token();
    { auto ended = std::move(watcher); }
    CHECK(lock.release() == status::ok);
    CHECK((told == std::vector<std::string>{"", token}));

    std::atomic<int> calls{0};
    std::optional<dlock::watcher> own;
    std::mutex is_set;
    {
        std::lock_guard<std::mutex> locked(is_set);
        own.emplace(client
                        .watch("a",
                               [&](const std::optional<dlock::holder> &) {
                                   std::lock_guard<std::mutex> waits(is_set);
                                   own.reset();
                                   calls++;
                               })
                        .value());
    }
    for (int i = 0; i < 20000 && calls == 0; i++)
        std::this_thread::sleep_for(1ms);
    CHECK(calls == 1);
    CHECK(client.watch("", note).code() == status::invalid);
}

FACT(the_module_is_not_needed) {
    auto options = options_for(url);
    options.module = dlock::module::none;
    auto client = dlock::client::open(options).value();
    auto lock = client.make_lock("name").value();
    CHECK(lock.acquire(5s) == status::ok);
    CHECK(lock.fence() == 0); // SET NX PX has none
    CHECK(open(url).inspect("name", 20s).value().at(0).is_string);
    auto refused = client.make_lock("name", dlock::shared());
    CHECK(!refused && refused.code() == status::invalid && !refused.message().empty());
}

FACT(a_client_in_c_can_be_adopted) {
    const char *text = url.c_str();
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = &text;
    options.url_count = 1;
    dlock_client *handle = nullptr;
    CHECK(dlock_client_new(&handle, &options) == DLOCK_OK);
    auto client = dlock::client::adopt(handle);
    CHECK(client.handle() == handle);
    CHECK(client.ping(20s) == status::ok);
}

#if defined(__cpp_exceptions)
FACT(errors_can_be_thrown) {
    auto client = open(url), other = open(url);
    dlock::scope held(other, "name", 0ms);
    auto lock = client.make_lock("name").value();
    try {
        lock.require(lock.try_acquire());
        CHECK(false);
    } catch (const dlock::error &error) {
        CHECK(error.code() == status::busy);
        CHECK(std::strlen(error.what()) > 0);
    }
    try {
        dlock::scope(client, "name", 0ms).require();
        CHECK(false);
    } catch (const std::runtime_error &) {
    }
}
#endif

FACT(a_value_that_is_not_there_ends_the_program) {
    dlock::client::open("http://127.0.0.1").value();
}

int main(int argc, char **argv) {
    if (argc != 3 || facts().count(argv[2]) == 0) return 2;
    facts()[argv[2]](argv[1]);
    return 0;
}
