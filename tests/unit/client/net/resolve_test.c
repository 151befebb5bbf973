/* SPDX-License-Identifier: BSD-3-Clause */
/* resolve_test.c - addresses of hosts. */
#include "net/resolve.h"

#include "unit.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

static void check_port(const addresses *found, int port) {
    CHECK_EQUAL(found->count, 1);
    const void *first = &found->each[0];
    bool is_v4 = found->each[0].ss_family == AF_INET;
    const struct sockaddr_in *v4 = first;
    const struct sockaddr_in6 *v6 = first;
    CHECK_EQUAL(ntohs(is_v4 ? v4->sin_port : v6->sin6_port), port);
    CHECK_EQUAL(found->sizes[0], is_v4 ? sizeof(*v4) : sizeof(*v6));
}

TEST(an_address_needs_no_look_up) {
    addresses found;
    CHECK(resolve_literal(&found, "127.0.0.1", 7000));
    check_port(&found, 7000);
    CHECK(resolve_literal(&found, "::1", 7001));
    check_port(&found, 7001);
    CHECK(!resolve_literal(&found, "localhost", 7000));
    CHECK(!resolve_literal(&found, "example.invalid", 7000));
}

static dlock_status wait_for(const lookup *lookup) {
    struct pollfd done = {.fd = lookup->done_fd, .events = POLLIN};
    CHECK_EQUAL(poll(&done, 1, 60000), 1);
    CHECK(atomic_load(&lookup->is_done));
    CHECK((lookup->status == DLOCK_OK) == (lookup->found.count > 0));
    CHECK((lookup->status == DLOCK_OK) == (lookup->cause == NULL));
    CHECK_EQUAL(poll(&done, 1, 0), 1);
    return lookup->status;
}

TEST(callers_share_a_look_up) {
    lookup *last = NULL;
    lookup *one = lookup_join(&last, "127.0.0.1", 7000, true);
    lookup *other = lookup_join(&last, "127.0.0.1", 7000, true);
    CHECK(one != NULL && other != NULL);
    if (one == NULL || other == NULL) return;
    CHECK_EQUAL(wait_for(one), DLOCK_OK);
    check_port(&one->found, 7000);
    lookup_leave(one);
    CHECK_EQUAL(wait_for(other), DLOCK_OK);
    lookup_leave(last);
    lookup_leave(other);
}

TEST(a_new_look_up_begins_after_the_last_has_ended) {
    lookup *last = NULL;
    lookup *first = lookup_join(&last, "127.0.0.1", 7000, true);
    wait_for(first);
    lookup *second = lookup_join(&last, "127.0.0.1", 7000, true);
    CHECK(first != second);
    lookup_leave(first);
    wait_for(second);
    lookup_leave(second);
    lookup_leave(last);
}

TEST(a_look_up_outlives_everybody) {
    lookup *last = NULL;
    lookup_leave(lookup_join(&last, "127.0.0.1", 7000, true));
    lookup_leave(last);
    lookup_leave(NULL);
}

TEST(a_bad_name_is_unreachable) {
    lookup *last = NULL;
    lookup *lookup = lookup_join(&last, "a..b", 7000, true);
    CHECK_EQUAL(wait_for(lookup), DLOCK_UNREACHABLE);
    lookup_leave(lookup);
    lookup_leave(last);
}

int main(void) {
    return unit_main(NULL, NULL);
}
