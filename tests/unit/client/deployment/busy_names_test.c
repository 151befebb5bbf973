/* SPDX-License-Identifier: BSD-3-Clause */
/* busy_names_test.c - names that were busy lately. */
#include "deployment/router.h"

#include "unit.h"

#define NOW_US INT64_C(5000000)
#define END_US (NOW_US + INT64_C(1000) * BUSY_NAMES_MS)

TEST(no_name_is_busy_at_first) {
    busy_names names = {0};
    CHECK(!busy_names_has(&names, "", 0));
    CHECK(!busy_names_has(&names, "lock", NOW_US));
}

TEST(a_noted_name_is_busy_for_a_while) {
    busy_names names = {0};
    busy_names_note(&names, "lock", NOW_US);
    CHECK(busy_names_has(&names, "lock", NOW_US));
    CHECK(busy_names_has(&names, "lock", END_US - 1));
    CHECK(!busy_names_has(&names, "lock", END_US));
}

TEST(a_name_that_is_noted_again_stays_busy) {
    busy_names names = {0};
    busy_names_note(&names, "lock", NOW_US);
    busy_names_note(&names, "lock", NOW_US + 500000);
    CHECK(busy_names_has(&names, "lock", END_US));
    CHECK(!busy_names_has(&names, "lock", END_US + 500000));
}

TEST(other_names_are_not_busy) {
    busy_names names = {0};
    char name[32];
    busy_names_note(&names, "lock", NOW_US);
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof(name), "lock%d", i);
        CHECK(!busy_names_has(&names, name, NOW_US));
    }
}

TEST(most_of_some_busy_names_are_remembered) {
    busy_names names = {0};
    char name[32];
    int count = 0;
    for (int i = 0; i < 32; i++) {
        snprintf(name, sizeof(name), "lock%d", i);
        busy_names_note(&names, name, NOW_US);
    }
    for (int i = 0; i < 32; i++) {
        snprintf(name, sizeof(name), "lock%d", i);
        count += busy_names_has(&names, name, NOW_US);
    }
    CHECK(count >= 24);
}

int main(void) {
    return unit_main(NULL, NULL);
}
