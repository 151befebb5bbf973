// SPDX-License-Identifier: BSD-3-Clause
// coroutine.cpp - locks in C++20 coroutines, all in one thread.
//
//   c++ -std=c++20 -o coroutine coroutine.cpp $(pkg-config --cflags --libs dlock)
//   ./coroutine redis://127.0.0.1:6379 NAME...
//
// Each coroutine takes a lock, and suspends until it has it. An awaiter around an asynchronous call
// of dlock.h is all that this needs.
//
// Exit code 0: each lock was ours for a moment. 1: one was not. 2: called in a wrong way.
#include <coroutine>
#include <dlock.hpp>
#include <exception>
#include <iostream>
#include <poll.h>

using namespace std::chrono_literals;

// co_await call{...}: starts the call, and resumes the coroutine in a dispatch, with the status.
template <typename Start> struct call {
    Start start; // start(done, arg): the status of dlock_..._start()
    dlock_status status = DLOCK_OK;
    std::coroutine_handle<> waiting = nullptr;

    static void done(void *arg, dlock_lock *, dlock_status status) {
        auto *self = static_cast<call *>(arg);
        self->status = status;
        self->waiting.resume();
    }
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> coroutine) {
        waiting = coroutine;
        dlock_status started = start(done, this);
        if (started != DLOCK_OK) status = started;
        return started == DLOCK_OK; // else the coroutine goes on at once
    }
    dlock::status await_resume() const noexcept { return static_cast<dlock::status>(status); }
};

static auto acquire(const dlock::lock &lock, std::chrono::milliseconds wait) {
    auto start = [&lock, wait](dlock_done_fn done, void *arg) {
        return dlock_acquire_start(lock.handle(), wait.count(), done, arg);
    };
    return call<decltype(start)>{start};
}

static auto release(const dlock::lock &lock) {
    auto start = [&lock](dlock_done_fn done, void *arg) {
        return dlock_release_start(lock.handle(), done, arg);
    };
    return call<decltype(start)>{start};
}

// A coroutine that nobody waits for: it begins at once, and ends by itself.
struct task {
    struct promise_type {
        task get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

static int under_way = 0, failures = 0;

static task visit(dlock::client &client, std::string name) {
    under_way++;
    auto lock = client.make_lock(name).value();
    dlock::status status = co_await acquire(lock, 5s);
    if (status == dlock::status::ok) {
        std::cout << name << " is ours, with fence " << lock.fence() << std::endl;
        status = co_await release(lock);
    }
    if (status != dlock::status::ok) {
        std::cerr << "coroutine: " << name << ": " << dlock::text_of(status) << ": "
                  << lock.message() << std::endl;
        failures++;
    }
    under_way--;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        std::cerr << "usage: coroutine URL NAME..." << std::endl;
        return 2;
    }
    dlock::client_options options;
    options.urls = {argv[1]};
    options.no_threads = true;
    auto client = dlock::client::open(options);
    if (!client) {
        std::cerr << "coroutine: no client: " << client.message() << std::endl;
        return 2;
    }
    for (int i = 2; i < argc; i++)
        visit(*client, argv[i]);

    pollfd source = {client->fd(), POLLIN, 0};
    while (under_way > 0) {
        poll(&source, 1, -1);
        client->dispatch();
    }
    return failures > 0;
}
