// SPDX-License-Identifier: BSD-3-Clause
// usable_from_cpp.cpp - the life of a lock in C++11.
//
//   usable_from_cpp URL
#include <dlock.h>
#include <iostream>
#include <memory>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const char *url = argv[1];
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = &url;
    options.url_count = 1;
    options.io_timeout_ms = 20000; // however slow the machine is
    dlock_client *new_client = nullptr;
    if (dlock_client_new(&new_client, &options) != DLOCK_OK) return 1;
    std::unique_ptr<dlock_client, decltype(&dlock_client_free)> client(new_client,
                                                                       dlock_client_free);
    dlock_lock *new_lock = nullptr;
    if (dlock_lock_new(&new_lock, client.get(), "from C++", nullptr) != DLOCK_OK) return 1;
    std::unique_ptr<dlock_lock, decltype(&dlock_lock_free)> lock(new_lock, dlock_lock_free);

    dlock_status status = dlock_acquire(lock.get(), 1000);
    if (status == DLOCK_OK) {
        std::cout << "fence " << dlock_fence(lock.get()) << std::endl;
        status = dlock_release(lock.get());
    }
    std::cout << dlock_status_name(status) << std::endl;
    if (status != DLOCK_OK) std::cerr << dlock_last_error(lock.get()) << std::endl;
    return status == DLOCK_OK ? 0 : 1;
}
