/* SPDX-License-Identifier: BSD-3-Clause */
/* lease_index_test.c - the index of leases: references, reuse of slots, and the next to end. */
#include "lease_index.h"

#include "unit.h"
#include <stdlib.h>

enum { MANY = 3000 };

static int64_t blocks; /* of memory in use */

static void *resize(void *memory, size_t size) {
    void *made = realloc(memory, size);
    if (made == NULL) abort();
    if (memory == NULL) blocks++;
    return made;
}

static void release(void *memory) {
    if (memory != NULL) blocks--;
    free(memory);
}

static lease_index new_index(void) {
    heap_resize = resize;
    heap_release = release;
    return (lease_index){.last_id = 0};
}

static void free_index(lease_index *index) {
    while (lease_index_first(index) != NULL)
        lease_index_drop(index, lease_index_first(index));
    for (uint32_t i = 0; i < index->chunk_count; i++)
        release(index->chunks[i]);
    release(index->chunks);
    release(index->ends.nodes);
}

TEST(an_empty_index_has_nothing) {
    lease_index index = new_index();
    CHECK(lease_index_first(&index) == NULL);
    CHECK(lease_index_find(&index, (lease_ref){.id = 1, .slot = 0}) == NULL);
    CHECK_EQUAL(lease_index_slots(&index), 0);
}

TEST(an_entry_is_found_by_its_reference) {
    lease_index index = new_index();
    char name;
    lease_ref ref = lease_entry_ref(lease_index_add(&index, 100, 3, &name));
    const lease_entry *found = lease_index_find(&index, ref);
    CHECK(found != NULL && found->name == &name && found->db == 3 && found->end.key == 100);
    CHECK(lease_index_first(&index) == found);
    free_index(&index);
    CHECK_EQUAL(blocks, 0);
}

TEST(a_reference_without_an_id_finds_nothing) {
    lease_index index = new_index();
    lease_index_add(&index, 100, 0, NULL);
    CHECK(lease_index_find(&index, (lease_ref){.id = 0, .slot = 0}) == NULL);
    CHECK(lease_index_find(&index, (lease_ref){.id = 0, .slot = 1}) == NULL);
    free_index(&index);
}

TEST(a_reference_to_a_dropped_entry_finds_nothing_even_when_the_slot_is_used_again) {
    lease_index index = new_index();
    lease_ref old = lease_entry_ref(lease_index_add(&index, 100, 0, NULL));
    lease_index_drop(&index, lease_index_find(&index, old));
    CHECK(lease_index_find(&index, old) == NULL);
    lease_ref reused = lease_entry_ref(lease_index_add(&index, 200, 0, NULL));
    CHECK_EQUAL(reused.slot, old.slot);
    CHECK(lease_index_find(&index, old) == NULL);
    CHECK(lease_index_find(&index, reused) != NULL);
    free_index(&index);
}

TEST(a_reference_from_before_a_new_id_finds_nothing) {
    lease_index index = new_index();
    lease_entry *entry = lease_index_add(&index, 100, 0, NULL);
    lease_ref old = lease_entry_ref(entry);
    lease_index_renew_id(&index, entry);
    CHECK(lease_index_find(&index, old) == NULL);
    CHECK(lease_index_find(&index, lease_entry_ref(entry)) == entry);
    free_index(&index);
}

TEST(a_lease_that_is_set_later_no_longer_ends_first) {
    lease_index index = new_index();
    lease_entry *one = lease_index_add(&index, 100, 0, NULL);
    lease_entry *other = lease_index_add(&index, 200, 0, NULL);
    lease_index_set_end(&index, one, 300);
    CHECK(lease_index_first(&index) == other);
    free_index(&index);
}

TEST(memory_is_given_back_with_the_last_of_many) {
    lease_index index = new_index();
    for (int i = 0; i < MANY; i++)
        lease_index_add(&index, i, 0, NULL);
    CHECK(lease_index_slots(&index) >= MANY);
    while (lease_index_first(&index) != NULL)
        lease_index_drop(&index, lease_index_first(&index));
    CHECK_EQUAL(blocks, 0);
    CHECK_EQUAL(lease_index_slots(&index), 0);
    lease_index_add(&index, 1, 0, NULL); /* and it can be used again */
    CHECK_EQUAL(lease_index_first(&index)->end.key, 1);
    free_index(&index);
}

/* The first to end, said in another way: by a walk over all slots. */
static int64_t first_end(const lease_index *index) {
    int64_t first_us = INT64_MAX;
    for (uint32_t slot = 0; slot < lease_index_slots(index); slot++) {
        const lease_entry *each = lease_index_at(index, slot);
        if (each->id != 0 && each->end.key < first_us) first_us = each->end.key;
    }
    return first_us;
}

TEST(any_sequence_of_changes_keeps_the_order) {
    lease_index index = new_index();
    static lease_ref refs[MANY];
    int count = 0;
    for (int i = 0; i < 20000; i++) {
        int which = count == 0 ? 0 : (int)(unit_random() % (uint64_t)count);
        int64_t end_us = unit_random_within(1, 1000);
        switch (count == 0 ? 0 : unit_random() % 4) {
        case 0:
        case 1:
            if (count < MANY)
                refs[count++] = lease_entry_ref(lease_index_add(&index, end_us, 0, NULL));
            break;
        case 2:
            lease_index_set_end(&index, lease_index_find(&index, refs[which]), end_us);
            break;
        default:
            lease_index_drop(&index, lease_index_find(&index, refs[which]));
            CHECK(lease_index_find(&index, refs[which]) == NULL);
            refs[which] = refs[--count];
        }
        CHECK_EQUAL(index.ends.count, count);
        if (i % 16 == 0 && count > 0)
            CHECK_EQUAL(lease_index_first(&index)->end.key, first_end(&index));
    }
    free_index(&index);
    CHECK_EQUAL(blocks, 0);
}

int main(void) {
    return unit_main(NULL, NULL);
}
