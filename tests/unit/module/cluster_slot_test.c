/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster_slot_test.c - hash slots. The expected numbers are those of CLUSTER KEYSLOT. */
#include "cluster_slot.h"

#include "unit.h"

static int64_t slot_of(const char *key) {
    return cluster_slot(key, strlen(key));
}

TEST(the_slot_of_a_key_is_the_one_of_the_server) {
    CHECK_EQUAL(slot_of(""), 0);
    CHECK_EQUAL(slot_of("123456789"), 12739);
    CHECK_EQUAL(slot_of("foo"), 12182);
    CHECK_EQUAL(slot_of("order:product:1000"), 4117);
}

TEST(only_the_first_tag_counts) {
    CHECK_EQUAL(slot_of("a{foo}b"), slot_of("foo"));
    CHECK_EQUAL(slot_of("{foo}{bar}"), slot_of("foo"));
    CHECK_EQUAL(slot_of("a{{foo}b"), slot_of("{foo"));
}

TEST(an_empty_or_open_tag_is_none) {
    CHECK(slot_of("a{}foo") != slot_of(""));
    CHECK_EQUAL(slot_of("{}{foo}"), 2263);
    CHECK(slot_of("a{foo") != slot_of("foo"));
    CHECK(slot_of("a}foo{") != slot_of("foo"));
}

TEST(there_is_a_key_for_every_slot) {
    static uint32_t suffixes[CLUSTER_SLOTS];
    cluster_slot_find_suffixes("dlock:0123:", 11, suffixes);
    for (int slot = 0; slot < CLUSTER_SLOTS; slot++) {
        char key[64];
        snprintf(key, sizeof(key), "dlock:0123:%u", suffixes[slot]);
        CHECK_EQUAL(slot_of(key), slot);
    }
}

int main(void) {
    return unit_main(NULL, NULL);
}
