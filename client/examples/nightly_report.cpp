// SPDX-License-Identifier: BSD-3-Clause
// nightly_report.cpp - many machines start the same job at the same time; one of them does it.
//
//   c++ -std=c++17 -o nightly_report nightly_report.cpp $(pkg-config --cflags --libs dlock)
//   ./nightly_report redis://127.0.0.1:6379 DATE
//
// The lease is short, and renewed in the background while the report is written: if the machine
// dies, another one can start soon. Exit code 0: the report was written here. 1: it was not. 2:
// called in a wrong way.
#include <atomic>
#include <dlock.hpp>
#include <iostream>

using namespace std::chrono_literals;

// Looks at every page whether the lock is still held, and stops if not. Whoever stores the pages
// should store the fence with them, and refuse a fence smaller than the stored one.
static bool write_report(const std::string &date, const dlock::scope &held,
                         const std::atomic<bool> &is_lost) {
    for (int page = 1; page <= 3; page++) {
        if (is_lost || held.remaining() == 0ms) return false;
        std::cout << "page " << page << " of " << date << ", fence " << held.fence() << std::endl;
    }
    return true;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        std::cerr << "usage: nightly_report URL DATE" << std::endl;
        return 2;
    }
    std::atomic<bool> is_lost{false};
    dlock::client_options options;
    options.urls = {argv[1]};
    options.on_event = [&is_lost](const dlock::event &event) {
        if (event.kind == dlock::event_kind::lost) is_lost = true;
    };
    auto client = dlock::client::open(options);
    if (!client) {
        std::cerr << "nightly_report: no client: " << client.message() << std::endl;
        return client.code() == dlock::status::invalid ? 2 : 1;
    }

    dlock::lock_options renewed;
    renewed.lease = 3s;
    renewed.renew = true;
    dlock::scope held(*client, std::string("nightly-report:") + argv[2], 0s, renewed);
    if (held.code() == dlock::status::busy) {
        std::cout << "another machine writes the report of " << argv[2] << std::endl;
        return 1;
    }
    if (!held) {
        std::cerr << "nightly_report: " << dlock::text_of(held.code()) << ": " << held.message()
                  << std::endl;
        return 1;
    }
    if (!write_report(argv[2], held, is_lost)) {
        std::cerr << "nightly_report: the lock was lost" << std::endl;
        return 1;
    }
    return 0;
}
