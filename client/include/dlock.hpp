// SPDX-License-Identifier: BSD-3-Clause
// dlock.hpp - distributed locks inside Redis, from C++17. Header only; link with libdlock.
//
//     using namespace std::chrono_literals;
//     auto client = dlock::client::open("redis://127.0.0.1?lease_ms=5000&renew=yes").value();
//     dlock::scope held(client, "nightly-report", 5s);
//     if (!held) return complain(held.message());
//     write_report(held.fence());
//                                                     // released at the end of the block
//
// Nothing here throws, except value(), require() and the standard library without memory: all other
// functions return a status or a result. Everything compiles with -fno-exceptions -fno-rtti; then
// value() and require() end the program instead of throwing.
//
// client, lock and watcher can be moved, not copied. A client lives until its last lock and watcher
// are gone, whichever of the objects is destroyed first. What dlock.h says of threads holds here
// too. handle() gives the object of dlock.h, for all that is not wrapped.
//
// Durations are milliseconds, and coarser units convert by themselves. 0 in the options means the
// default, as in dlock.h.
#pragma once

#include "dlock_types.hpp"

namespace dlock {

namespace detail {

// The client of dlock.h, and the functions that it calls.
struct client_core {
    client_core() = default;
    client_core(const client_core &) = delete;
    client_core &operator=(const client_core &) = delete;
    ~client_core() { dlock_client_free(handle); }

    static void tell_event(void *arg, dlock_event kind, const char *name,
                           dlock_status why) noexcept {
        auto *core = static_cast<client_core *>(arg);
        core->on_event(event{static_cast<event_kind>(kind), name, from_c(why)});
    }
    static void tell_line(void *arg, dlock_log_level level, const char *line) noexcept {
        static_cast<client_core *>(arg)->access_log(level, line);
    }
    static void tell_diagnostic(void *arg, dlock_log_level level, const char *line) noexcept {
        static_cast<client_core *>(arg)->diagnostic_log(level, line);
    }

    dlock_client *handle = nullptr;
    std::function<void(const event &)> on_event;
    std::function<void(dlock_log_level, const char *)> access_log, diagnostic_log;
};

using core_pointer = std::shared_ptr<client_core>;

struct free_lock {
    core_pointer core; // the client outlives the lock
    void operator()(dlock_lock *lock) const noexcept { dlock_lock_free(lock); }
};

struct watch_state {
    watch_state() = default;
    watch_state(const watch_state &) = delete;
    watch_state &operator=(const watch_state &) = delete;
    ~watch_state() { dlock_watcher_free(handle); }

    core_pointer core; // the client outlives the watcher
    std::shared_ptr<watch_function> changed;
    dlock_watcher *handle = nullptr;
};

// Valid as long as the options that it was made of.
inline dlock_lock_options to_c(const lock_options &options) {
    dlock_lock_options c;
    dlock_lock_options_init(&c);
    c.lease_ms = to_ms(options.lease);
    c.renew = to_choice(options.renew);
    c.renew_every_ms = to_ms(options.renew_every);
    c.max_hold_ms = to_ms(options.max_hold);
    c.min_replicas = options.min_replicas;
    c.replica_timeout_ms = to_ms(options.replica_timeout);
    c.session = to_choice(options.session);
    c.owner = or_null(options.owner);
    c.mode = static_cast<dlock_mode>(options.mode);
    c.max_holders = options.max_holders;
    return c;
}

inline dlock_client_options to_c(const client_options &options, client_core &core,
                                 const std::vector<const char *> &urls,
                                 const dlock_lock_options &lock_defaults) {
    dlock_client_options c;
    dlock_client_options_init(&c);
    c.urls = urls.data();
    c.url_count = urls.size();
    c.lock_defaults = &lock_defaults;
    c.prefix = or_null(options.prefix);
    c.connect_timeout_ms = to_ms(options.connect_timeout);
    c.io_timeout_ms = to_ms(options.io_timeout);
    c.wait_mode = static_cast<dlock_wait_mode>(options.wait_mode);
    c.spin_min_ms = to_ms(options.spin_min);
    c.spin_random_ms = to_ms(options.spin_random);
    c.spin_max_ms = to_ms(options.spin_max);
    c.hotspot_auto = options.hotspot_auto;
    c.hotspot_queue_max = options.hotspot_queue_max;
    c.hotspot_hand_on = options.hotspot_hand_on;
    c.tls_ca_file = or_null(options.tls_ca_file);
    c.tls_cert_file = or_null(options.tls_cert_file);
    c.tls_key_file = or_null(options.tls_key_file);
    c.on_event = core.on_event ? client_core::tell_event : nullptr;
    c.access_log = core.access_log ? client_core::tell_line : nullptr;
    c.diagnostic_log = core.diagnostic_log ? client_core::tell_diagnostic : nullptr;
    c.event_arg = c.access_log_arg = c.diagnostic_log_arg = &core;
    c.access_log_dir = or_null(options.access_log_dir);
    c.access_log_keep = options.access_log_keep;
    c.no_threads = options.no_threads;
    c.module = static_cast<dlock_module>(options.module);
    return c;
}

} // namespace detail

// One claim on a name, or on several; see dlock_lock. One thread at a time may call the functions,
// but for cancel(), state() and remaining().
class lock {
  public:
    status try_acquire() noexcept { return detail::from_c(dlock_try_acquire(handle())); }
    status acquire(wait_time wait) noexcept {
        return detail::from_c(dlock_acquire(handle(), wait.ms()));
    }
    // With a lease for this acquisition only.
    status acquire_for(wait_time wait, milliseconds lease) noexcept {
        return detail::from_c(dlock_acquire_for(handle(), wait.ms(), detail::to_ms(lease)));
    }
    // 0: as long as the acquisition asked for.
    status extend(milliseconds lease = milliseconds(0)) noexcept {
        return detail::from_c(dlock_extend(handle(), detail::to_ms(lease)));
    }
    // Runs a Redis command only if this handle holds the lock: see dlock_guarded(). A text is cut
    // at text_max bytes.
    result<reply> guarded(const std::vector<std::string_view> &command, size_t text_max = 4096) {
        return detail::run_guarded(handle(), command, text_max);
    }
    status release() noexcept { return detail::from_c(dlock_release(handle())); }
    // The same without waiting. status::ok: the call is under way, and dispatch() of the client
    // will call the function once. Else the function is never called. The function must not throw.
    status acquire_start(wait_time wait, done_function done) {
        return detail::start(std::move(done), [&](dlock_done_fn tell, void *arg) {
            return dlock_acquire_start(handle(), wait.ms(), tell, arg);
        });
    }
    status acquire_for_start(wait_time wait, milliseconds lease, done_function done) {
        return detail::start(std::move(done), [&](dlock_done_fn tell, void *arg) {
            return dlock_acquire_for_start(handle(), wait.ms(), detail::to_ms(lease), tell, arg);
        });
    }
    // The words are copied.
    status guarded_start(const std::vector<std::string_view> &command, reply_function done,
                         size_t text_max = 4096) {
        auto call = std::make_unique<detail::guarded_call>(command, text_max);
        call->done = std::move(done);
        dlock_done_fn tell = call->done ? detail::tell_reply : nullptr;
        dlock_status started =
            dlock_guarded_start(handle(), call->words.size(), call->words.data(),
                                call->lengths.data(), &call->c, tell, call.get());
        if (started == DLOCK_OK) static_cast<void>(call.release());
        return detail::from_c(started);
    }
    status extend_start(milliseconds lease, done_function done) {
        return detail::start(std::move(done), [&](dlock_done_fn tell, void *arg) {
            return dlock_extend_start(handle(), detail::to_ms(lease), tell, arg);
        });
    }
    status release_start(done_function done) {
        return detail::start(std::move(done), [&](dlock_done_fn tell, void *arg) {
            return dlock_release_start(handle(), tell, arg);
        });
    }
    // Ends every acquire() with status::canceled, also later ones, until uncancel().
    void cancel() noexcept { dlock_cancel(handle()); }
    void uncancel() noexcept { dlock_uncancel(handle()); }
    lock_state state() const noexcept { return static_cast<lock_state>(dlock_get_state(handle())); }
    // How long the lock is certainly held.
    milliseconds remaining() const noexcept { return milliseconds(dlock_remaining_ms(handle())); }
    uint64_t fence() const noexcept { return dlock_fence(handle()); }
    std::string token() const { return dlock_token(handle()); }
    // Why the last call did not return status::ok.
    std::string message() const { return dlock_last_error(handle()); }
    // Readable once the lock is lost.
    int lost_fd() noexcept { return dlock_lost_fd(handle()); }
    dlock_timings timings() const noexcept {
        dlock_timings timings;
        dlock_timings_init(&timings);
        dlock_get_timings(handle(), &timings);
        return timings;
    }
    // lock.require(lock.acquire(5s)) throws dlock::error with the reason, unless the call returned
    // status::ok.
    void require(status code) const {
        if (code != status::ok) detail::fail(code, message());
    }
    dlock_lock *handle() const noexcept { return handle_.get(); }

  private:
    friend class client;
    lock(dlock_lock *handle, detail::core_pointer core) : handle_(handle, {std::move(core)}) {}

    std::unique_ptr<dlock_lock, detail::free_lock> handle_;
};

// Watches a name until it is destroyed. The function that is told may destroy its watcher, while
// the client object is still there. See dlock_watch().
class watcher {
  private:
    friend class client;
    explicit watcher(std::unique_ptr<detail::watch_state> state) : state_(std::move(state)) {}

    std::unique_ptr<detail::watch_state> state_;
};

// Where the service is; shared by threads.
class client {
  public:
    client(client &&) noexcept = default;
    client &operator=(client &&) noexcept = default;

    static result<client> open(const client_options &options) {
        auto core = std::make_shared<detail::client_core>();
        core->on_event = options.on_event;
        core->access_log = options.access_log;
        core->diagnostic_log = options.diagnostic_log;
        std::vector<const char *> urls;
        for (const std::string &url : options.urls)
            urls.push_back(url.c_str());
        dlock_lock_options lock_defaults = detail::to_c(options.lock_defaults);
        dlock_client_options c = detail::to_c(options, *core, urls, lock_defaults);
        dlock_status made = dlock_client_new(&core->handle, &c);
        if (made != DLOCK_OK) return {detail::from_c(made), dlock_error()};
        return client(std::move(core));
    }
    // Options can be parameters of the URL: see client/README.md, "In the URL".
    static result<client> open(const std::string &url) { return open_url(url.c_str()); }
    // By the environment variable DLOCK_URL.
    static result<client> from_environment() { return open_url(nullptr); }
    // Owns handle from now on. For clients with handlers or a store of their own (dlock_spi.h).
    static client adopt(dlock_client *handle) {
        auto core = std::make_shared<detail::client_core>();
        core->handle = handle;
        return client(std::move(core));
    }

    result<lock> make_lock(const std::string &name, const lock_options &options = {}) {
        if (detail::has_nul(name)) return {status::invalid, detail::nul_in_name};
        dlock_lock_options c = detail::to_c(options);
        dlock_lock *made = nullptr;
        dlock_status status = dlock_lock_new(&made, handle(), name.c_str(), &c);
        if (status != DLOCK_OK) return {detail::from_c(status), dlock_error()};
        return lock(made, core_);
    }
    // One claim on all of these names: see dlock_lock_new_all().
    result<lock> make_lock(const std::vector<std::string> &names,
                           const lock_options &options = {}) {
        if (detail::has_nul(names)) return {status::invalid, detail::nul_in_name};
        std::vector<const char *> c_names = detail::to_c(names);
        dlock_lock_options c = detail::to_c(options);
        dlock_lock *made = nullptr;
        dlock_status status =
            dlock_lock_new_all(&made, handle(), c_names.data(), c_names.size(), &c);
        if (status != DLOCK_OK) return {detail::from_c(status), dlock_error()};
        return lock(made, core_);
    }
    // make_lock({"account:1", "account:2"})
    result<lock> make_lock(std::initializer_list<std::string> names,
                           const lock_options &options = {}) {
        return make_lock(std::vector<std::string>(names), options);
    }
    status ping(milliseconds timeout) noexcept {
        return detail::from_c(dlock_client_ping(handle(), detail::to_wait(timeout)));
    }
    dlock_client_stats stats() const noexcept {
        dlock_client_stats stats;
        dlock_client_stats_init(&stats);
        dlock_client_get_stats(handle(), &stats);
        return stats;
    }
    status hotspot_add(const std::string &name) noexcept {
        if (detail::has_nul(name)) return status::invalid;
        return detail::from_c(dlock_hotspot_add(handle(), name.c_str()));
    }
    status hotspot_remove(const std::string &name) noexcept {
        if (detail::has_nul(name)) return status::invalid;
        return detail::from_c(dlock_hotspot_remove(handle(), name.c_str()));
    }
    // Every name with a local lock, in no order.
    result<std::vector<hot_name>> hotspot_list() {
        detail::collection<hot_name> list;
        dlock_status told = dlock_hotspot_list(handle(), detail::add_hot_name, &list);
        if (!list.is_complete) return {status::no_memory, detail::no_memory};
        if (told != DLOCK_OK) return {detail::from_c(told), dlock_status_text(told)};
        return std::move(list.found);
    }

    // The holders of a lock; none: the lock is free.
    result<std::vector<holder>> inspect(const std::string &name, milliseconds timeout) {
        return collect(dlock_inspect, name, detail::to_wait(timeout));
    }
    // Every lock whose name matches the pattern of KEYS; see dlock_list().
    result<std::vector<holder>> list(const std::string &pattern, milliseconds timeout) {
        return collect(dlock_list, pattern, detail::to_wait(timeout));
    }
    // Calls the function with the holder of the name, now and whenever the holder is another one,
    // also before watch() has returned. The function must not throw, nor wait for locks of this
    // client.
    result<watcher> watch(const std::string &name, watch_function changed) {
        if (detail::has_nul(name)) return {status::invalid, detail::nul_in_name};
        auto state = std::make_unique<detail::watch_state>();
        state->core = core_;
        state->changed = std::make_shared<watch_function>(std::move(changed));
        dlock_watch_fn tell = *state->changed ? detail::tell_change : nullptr;
        dlock_status status =
            dlock_watch(handle(), name.c_str(), tell, &state->changed, &state->handle);
        if (status != DLOCK_OK) return {detail::from_c(status), dlock_error()};
        return watcher(std::move(state));
    }
    // For all locks of the client: see dlock_client_cancel().
    void cancel() noexcept { dlock_client_cancel(handle()); }
    void uncancel() noexcept { dlock_client_uncancel(handle()); }
    // For calls that were started: see dlock_client_fd() and dlock_client_dispatch().
    int fd() const noexcept { return dlock_client_fd(handle()); }
    size_t dispatch() noexcept {
        detail::core_pointer core = core_; // a function that is told may destroy this object
        return dlock_client_dispatch(core->handle);
    }
    dlock_client *handle() const noexcept { return core_->handle; }

  private:
    friend class scope;
    explicit client(detail::core_pointer core) : core_(std::move(core)) {}

    static result<client> open_url(const char *url) {
        dlock_client *made = nullptr;
        dlock_status status = dlock_client_new_url(&made, url);
        if (status != DLOCK_OK) return {detail::from_c(status), dlock_error()};
        return adopt(made);
    }

    template <typename Query>
    result<std::vector<holder>> collect(Query query, const std::string &word, int64_t timeout_ms) {
        if (detail::has_nul(word)) return {status::invalid, detail::nul_in_name};
        detail::collection<holder> list;
        char why[256];
        dlock_status told =
            query(handle(), word.c_str(), timeout_ms, detail::add_holder, &list, why, sizeof(why));
        if (!list.is_complete) return {status::no_memory, detail::no_memory};
        if (told == DLOCK_OK || told == DLOCK_NOT_HELD) return std::move(list.found);
        return {detail::from_c(told), why};
    }

    detail::core_pointer core_;
};

// Takes the lock, and releases it at the end of the block. Stays in the thread that made it.
class scope {
  public:
    scope(client &client, const std::string &name, wait_time wait, const lock_options &options = {})
        : scope(client, std::vector<std::string>{name}, wait, options) {}
    // scope(client, {"account:1", "account:2"}, 5s)
    scope(client &client, std::initializer_list<std::string> names, wait_time wait,
          const lock_options &options = {})
        : scope(client, std::vector<std::string>(names), wait, options) {}
    // All of these names: see dlock_lock_new_all().
    scope(client &client, const std::vector<std::string> &names, wait_time wait,
          const lock_options &options = {})
        : core_(client.core_) {
        dlock_lock_options c = detail::to_c(options);
        if (!detail::has_nul(names)) {
            std::vector<const char *> c_names = detail::to_c(names);
            scope_ = dlock_scope_begin_all(client.handle(), c_names.data(), c_names.size(),
                                           wait.ms(), &c);
            if (scope_.lock == nullptr) message_ = dlock_error();
        } else {
            scope_.got = DLOCK_INVALID;
            message_ = detail::nul_in_name;
        }
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope() { dlock_scope_end(&scope_); }

    // Was the lock granted, and not given back yet?
    explicit operator bool() const noexcept {
        return scope_.lock != nullptr && scope_.got == DLOCK_OK;
    }
    // The result of the acquire; after release(), of both.
    status code() const noexcept { return detail::from_c(scope_.got); }
    // Why the lock was not granted, or why the last extend() failed.
    std::string message() const {
        return scope_.lock != nullptr ? dlock_last_error(scope_.lock) : message_;
    }
    // Throws dlock::error unless the lock was granted.
    scope &require() {
        if (!*this) detail::fail(code(), message());
        return *this;
    }
    uint64_t fence() const noexcept { return *this ? dlock_fence(scope_.lock) : 0; }
    milliseconds remaining() const noexcept {
        return milliseconds(*this ? dlock_remaining_ms(scope_.lock) : 0);
    }
    lock_state state() const noexcept {
        return *this ? static_cast<lock_state>(dlock_get_state(scope_.lock)) : lock_state::free;
    }
    status extend(milliseconds lease = milliseconds(0)) noexcept {
        if (!*this) return status::not_held;
        return detail::from_c(dlock_extend(scope_.lock, detail::to_ms(lease)));
    }
    result<reply> guarded(const std::vector<std::string_view> &command, size_t text_max = 4096) {
        if (!*this) return {status::not_held, message()};
        return detail::run_guarded(scope_.lock, command, text_max);
    }
    // Before the end of the block, to know whether the lock was held until now: see
    // dlock_scope_end().
    status release() noexcept { return detail::from_c(dlock_scope_end(&scope_)); }
    // NULL if there was no memory for a handle, and after release().
    dlock_lock *handle() const noexcept { return scope_.lock; }

  private:
    detail::core_pointer core_; // the client outlives the scope
    dlock_scope scope_{};
    std::string message_;
};

} // namespace dlock
