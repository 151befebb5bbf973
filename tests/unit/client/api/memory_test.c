/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_test.c - how many bytes a program with many acquisitions under way needs for each. */
#include "api/lock.h"
#include "base/token.h"
#include "deployment/router.h"

#include "unit.h"

enum { NAME_SIZE = 24, BYTES_MAX = 1024 };

/* As glibc takes it for malloc(size). */
static size_t chunk(size_t size) {
    return (size + sizeof(size_t) + 15) / 16 * 16;
}

static size_t handle_size(void) {
    token_source source;
    token_source_init(&source);
    strcpy(source.prefix, "a-host-name.example:1234567:");
    return chunk(sizeof(dlock_lock) + NAME_SIZE + token_source_room(&source, NULL));
}

/* All of them share the connection of the session. */
TEST(an_acquisition_that_waits_in_the_server_takes_less_than_a_kilobyte) {
    size_t bytes = handle_size() + chunk(routed_table.size_run(&(attempt){0}));
    printf("an acquisition that waits in the server takes %zu bytes, and no connection\n", bytes);
    CHECK(bytes < BYTES_MAX);
}

int main(void) {
    return unit_main(NULL, NULL);
}
