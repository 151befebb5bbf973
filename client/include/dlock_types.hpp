// SPDX-License-Identifier: BSD-3-Clause
// dlock_types.hpp - statuses, results and options of dlock.hpp, which includes this file; and how
// replies and callbacks of dlock.h become theirs.
#pragma once

#include "dlock.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__cpp_exceptions)
#include <stdexcept>
#endif

namespace dlock {

using std::chrono::milliseconds;

// The values of dlock_status, see dlock.h. From 100 on: failures.
// clang-format off
enum class [[nodiscard]] status {
    ok = DLOCK_OK,
    busy = DLOCK_BUSY,
    timeout = DLOCK_TIMEOUT,
    not_held = DLOCK_NOT_HELD,
    lost = DLOCK_LOST,
    canceled = DLOCK_CANCELED,
    queue_full = DLOCK_QUEUE_FULL,
    no_quorum = DLOCK_NO_QUORUM,
    no_replicas = DLOCK_NO_REPLICAS,
    limited = DLOCK_LIMITED,
    in_doubt = DLOCK_IN_DOUBT,
    unreachable = DLOCK_UNREACHABLE,
    refused = DLOCK_REFUSED,
    protocol = DLOCK_PROTOCOL,
    invalid = DLOCK_INVALID,
    no_memory = DLOCK_NO_MEMORY,
    no_module = DLOCK_NO_MODULE
};
// clang-format on

enum class mode { exclusive = DLOCK_EXCLUSIVE, shared = DLOCK_SHARED };

enum class wait_mode {
    automatic = DLOCK_WAIT_AUTO,
    spin = DLOCK_WAIT_SPIN,
    server = DLOCK_WAIT_SERVER
};

// none: for servers without the dlock module.
enum class module { required = DLOCK_MODULE_REQUIRED, none = DLOCK_MODULE_NONE };

enum class lock_state {
    free = DLOCK_STATE_FREE,
    held = DLOCK_STATE_HELD,
    suspect = DLOCK_STATE_SUSPECT,
    lost = DLOCK_STATE_LOST
};

enum class event_kind {
    acquired = DLOCK_EVENT_ACQUIRED,
    released = DLOCK_EVENT_RELEASED,
    suspect = DLOCK_EVENT_SUSPECT,
    lost = DLOCK_EVENT_LOST
};

inline const char *name_of(status value) {
    return dlock_status_name(static_cast<dlock_status>(value));
}

inline const char *text_of(status value) {
    return dlock_status_text(static_cast<dlock_status>(value));
}

// True: no request reached the service, or no reply could be read. False: ok, or the service said
// no.
inline bool is_failure(status value) {
    return value >= status::in_doubt;
}

// For acquire(): wait until the lock is granted or cancel() is called. A duration cannot mean this:
// a computed one that is negative by accident does not wait at all.
struct forever_type {};
inline constexpr forever_type forever{};

#if defined(__cpp_exceptions)
class error : public std::runtime_error {
  public:
    error(dlock::status code, const std::string &message)
        : std::runtime_error(std::string(text_of(code)) + ": " + message), code_(code) {}
    dlock::status code() const noexcept { return code_; }

  private:
    dlock::status code_;
};
#endif

namespace detail {

[[noreturn]] inline void fail(status code, const std::string &message) {
#if defined(__cpp_exceptions)
    throw error(code, message);
#else
    std::fprintf(stderr, "dlock: %s: %s\n", text_of(code), message.c_str());
    std::abort();
#endif
}

inline status from_c(dlock_status value) {
    return static_cast<status>(value);
}

// A negative duration becomes 1 ms, not 0, which would mean the default.
inline uint32_t to_ms(milliseconds duration) {
    if (duration.count() < 0) return 1;
    return duration.count() > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(duration.count());
}

inline int64_t to_wait(milliseconds wait) {
    return wait.count() > 0 ? wait.count() : DLOCK_NO_WAIT;
}

inline constexpr char nul_in_name[] = "the name has a byte 0";
inline constexpr char no_memory[] = "no memory"; // so short that a std::string needs none

// The C functions would take such a name for a shorter one.
inline bool has_nul(const std::string &name) {
    return name.find('\0') != std::string::npos;
}
inline bool has_nul(const std::vector<std::string> &names) {
    for (const std::string &name : names)
        if (has_nul(name)) return true;
    return false;
}
// The result is valid as long as the names are.
inline std::vector<const char *> to_c(const std::vector<std::string> &names) {
    std::vector<const char *> c_names;
    for (const std::string &name : names)
        c_names.push_back(name.c_str());
    return c_names;
}

inline dlock_choice to_choice(std::optional<bool> option) {
    return !option ? DLOCK_DEFAULT : *option ? DLOCK_YES : DLOCK_NO;
}

inline const char *or_null(const std::string &text) {
    return text.empty() ? nullptr : text.c_str();
}

} // namespace detail

// How long an acquire may wait: a duration, or forever.
class wait_time {
  public:
    template <typename Rep, typename Period,
              typename = std::enable_if_t<
                  std::is_convertible_v<std::chrono::duration<Rep, Period>, milliseconds>>>
    wait_time(std::chrono::duration<Rep, Period> wait) : ms_(detail::to_wait(wait)) {}
    wait_time(forever_type) : ms_(DLOCK_WAIT_FOREVER) {}
    int64_t ms() const noexcept { return ms_; }

  private:
    int64_t ms_;
};

// A value, or a status and a text for people that say why there is none.
template <typename T> class [[nodiscard]] result {
  public:
    result(T value) : value_(std::move(value)) {}
    result(dlock::status code, std::string message) : code_(code), message_(std::move(message)) {}
    explicit operator bool() const noexcept { return value_.has_value(); }
    dlock::status code() const noexcept { return code_; }
    const std::string &message() const noexcept { return message_; }
    // Throws dlock::error if there is no value.
    T value() && {
        require();
        return std::move(*value_);
    }
    T &value() & {
        require();
        return *value_;
    }
    T &operator*() noexcept { return *value_; }
    T *operator->() noexcept { return &*value_; }

  private:
    void require() const {
        if (!value_) detail::fail(code_, message_);
    }

    std::optional<T> value_;
    dlock::status code_ = status::ok;
    std::string message_;
};

struct lock_options {
    milliseconds lease{0};
    std::optional<bool> renew; // three times in each lease, unless renew_every says how often
    milliseconds renew_every{0};
    milliseconds max_hold{0};
    uint32_t min_replicas = 0;
    milliseconds replica_timeout{0};
    std::optional<bool> session; // none: as the client says
    std::string owner;
    dlock::mode mode = dlock::mode::exclusive;
    uint32_t max_holders = 0;
};

// Held together with other shared holders, never with an exclusive one.
inline lock_options shared() {
    lock_options options;
    options.mode = mode::shared;
    return options;
}

// At most so many hold the lock together.
inline lock_options permits(uint32_t count) {
    lock_options options = shared();
    options.max_holders = count;
    return options;
}

// Told of the result of a call that was started.
using done_function = std::function<void(status)>;

struct event {
    event_kind kind;
    const char *name; // with the prefix; until the function returns
    status why;
};

struct client_options {
    std::vector<std::string> urls; // several: independent servers (Redlock)
    lock_options lock_defaults;    // for what is 0 in the options of a lock
    std::string prefix;
    milliseconds connect_timeout{0};
    milliseconds io_timeout{0};
    dlock::wait_mode wait_mode = dlock::wait_mode::automatic;
    milliseconds spin_min{0};
    milliseconds spin_random{0};
    milliseconds spin_max{0};
    uint32_t hotspot_auto = 0;
    uint32_t hotspot_queue_max = 0;
    uint32_t hotspot_hand_on = 0;
    std::string tls_ca_file, tls_cert_file, tls_key_file;
    // The functions are called by any thread, must not block and must not throw.
    std::function<void(const event &)> on_event;
    std::function<void(dlock_log_level level, const char *line)> access_log, diagnostic_log;
    std::string access_log_dir;
    size_t access_log_keep = 0;
    bool no_threads = false;
    dlock::module module = dlock::module::required;
};

enum class reply_kind {
    null = DLOCK_REPLY_NULL,
    integer = DLOCK_REPLY_INTEGER,
    text = DLOCK_REPLY_TEXT,
    array = DLOCK_REPLY_ARRAY
};

// The reply of a guarded command, see dlock_reply.
struct reply {
    reply_kind kind;
    int64_t integer; // of an array: the number of its elements
    std::string text;
    size_t text_length; // of the whole text, if it was cut
};

// Told of the reply to a guarded command that was started, or why there is none.
using reply_function = std::function<void(result<reply>)>;

// A name with a local lock, see dlock_hot_name.
struct hot_name {
    std::string name;
    uint32_t waiting;
    bool is_held, is_found;
};

// A holder of a lock, see dlock_inspection.
struct holder {
    std::string server, name, token;
    uint64_t fence;
    std::optional<milliseconds> remaining; // none: the lock does not end by itself
    milliseconds lease;
    std::chrono::system_clock::time_point since;
    int64_t waiters, session, holders;
    bool is_string;
    dlock::mode mode;
};

// Told of the holder of a watched name; none: the lock is free.
using watch_function = std::function<void(const std::optional<holder> &)>;

namespace detail {

inline holder to_holder(const dlock_inspection *found) {
    std::optional<milliseconds> remaining;
    if (found->ttl_ms >= 0) remaining = milliseconds(found->ttl_ms);
    return {found->server,
            std::string(found->name, found->name_length),
            std::string(found->token, found->token_length),
            found->fence,
            remaining,
            milliseconds(found->lease_ms),
            std::chrono::system_clock::time_point(milliseconds(found->since_ms)),
            found->waiters,
            found->session,
            found->holders,
            found->is_string,
            static_cast<mode>(found->mode)};
}

// No exception leaves a function that C code calls. False: there was no memory.
template <typename Step> bool has_memory_for(Step step) noexcept {
#if defined(__cpp_exceptions)
    try {
        step();
    } catch (...) {
        return false;
    }
#else
    step();
#endif
    return true;
}

// What was found, in the arg of the functions that list.
template <typename T> struct collection {
    std::vector<T> found;
    bool is_complete = true;
    template <typename Make> bool add(Make make) noexcept {
        is_complete = has_memory_for([&] { found.push_back(make()); });
        return is_complete;
    }
};

// The arg of dlock_inspect() and dlock_list().
inline bool add_holder(void *list, const dlock_inspection *found) noexcept {
    return static_cast<collection<holder> *>(list)->add([&] { return to_holder(found); });
}

// The arg of dlock_hotspot_list().
inline bool add_hot_name(void *list, const dlock_hot_name *hot) noexcept {
    return static_cast<collection<hot_name> *>(list)->add([&] {
        return hot_name{hot->name, hot->waiting, hot->is_held, hot->is_found};
    });
}

// The function is shared, since it may destroy its watcher. Without memory for them, the texts of
// the holder are empty.
inline void tell_change(void *arg, const char *, const dlock_inspection *found) noexcept {
    std::shared_ptr<watch_function> changed = *static_cast<std::shared_ptr<watch_function> *>(arg);
    std::optional<holder> now;
    if (found != nullptr && !has_memory_for([&] { now = to_holder(found); })) {
        dlock_inspection numbers = *found;
        numbers.server = numbers.name = numbers.token = "";
        numbers.name_length = numbers.token_length = 0;
        now = to_holder(&numbers);
    }
    (*changed)(now);
}

// A command as the C functions want it. Not moved, as the reply points to the text.
struct guarded_call {
    guarded_call(const std::vector<std::string_view> &command, size_t text_max)
        : text(text_max + 1, '\0') {
        for (std::string_view word : command) {
            words.push_back(word.data() == nullptr ? "" : word.data());
            lengths.push_back(word.size());
        }
        dlock_reply_init(&c, text.data(), text.size());
    }
    guarded_call(const guarded_call &) = delete;
    guarded_call &operator=(const guarded_call &) = delete;

    // Once: takes the text. Without memory for it, there is no message.
    result<reply> take_result(dlock_lock *lock, dlock_status code) noexcept {
        if (code != DLOCK_OK) {
            std::string message;
            has_memory_for([&] { message = dlock_last_error(lock); });
            return {from_c(code), std::move(message)};
        }
        text.resize(c.text_length < text.size() ? c.text_length : text.size() - 1);
        return reply{static_cast<reply_kind>(c.kind), c.integer, std::move(text), c.text_length};
    }

    std::vector<const char *> words;
    std::vector<size_t> lengths;
    std::string text;
    dlock_reply c;
    reply_function done; // empty: the call is not started, but run
};

inline result<reply> run_guarded(dlock_lock *lock, const std::vector<std::string_view> &command,
                                 size_t text_max) {
    guarded_call call(command, text_max);
    return call.take_result(lock, dlock_guarded(lock, call.words.size(), call.words.data(),
                                                call.lengths.data(), &call.c));
}

inline void tell_reply(void *arg, dlock_lock *lock, dlock_status done) noexcept {
    std::unique_ptr<guarded_call> call(static_cast<guarded_call *>(arg));
    call->done(call->take_result(lock, done));
}

inline void tell_done(void *arg, dlock_lock *, dlock_status done) noexcept {
    std::unique_ptr<done_function> told(static_cast<done_function *>(arg));
    (*told)(from_c(done));
}

// The function lives until tell_done() has called it, or until the call could not be started. None
// is a NULL of dlock.h, which refuses the call.
template <typename Call> status start(done_function done, Call call) {
    auto kept = std::make_unique<done_function>(std::move(done));
    dlock_status started = call(*kept ? tell_done : nullptr, kept.get());
    if (started == DLOCK_OK) static_cast<void>(kept.release());
    return from_c(started);
}

} // namespace detail

} // namespace dlock
