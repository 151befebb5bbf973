/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_test.c - how many bytes a program with many acquisitions under way needs for each. */
#include "api/lock.h"
#include "base/token.h"
#include "deployment/routed.h"

#include "unit.h"

enum { HANDLERS = 3, NAME_SIZE = 24, KILOBYTE = 1024 };

/* As glibc takes it for malloc(size). */
static size_t chunk(size_t size) {
    return (size + sizeof(size_t) + 15) / 16 * 16;
}

static size_t handle_size(void) {
    token_source source;
    token_source_init(&source);
    strcpy(source.prefix, "a-host-name.example:1234567:");
    return chunk(sizeof(dlock_lock) + HANDLERS * sizeof(void *) + NAME_SIZE +
                 token_source_room(&source, NULL));
}

static void an_acquisition_that_waits_in_the_server_takes_less_than_a_kilobyte(void) {
    size_t bytes = handle_size() + chunk(sizeof(routed_run)); /* and its connection */
    printf("an acquisition that waits in the server takes %zu bytes beside its connection\n",
           bytes);
    CHECK(bytes < KILOBYTE);
}

int main(void) {
    UNIT_RUN(an_acquisition_that_waits_in_the_server_takes_less_than_a_kilobyte);
    return unit_summary();
}
