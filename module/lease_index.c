/* SPDX-License-Identifier: BSD-3-Clause */
/* lease_index.c - see lease_index.h.
 *
 *   chunks   the slots, in chunks that never move, so that the heap can point at entries
 *   ends     a heap of the entries in use, without those that never end by themselves
 *
 * The index grows by one chunk at a time: only two arrays of pointers are ever copied. */
#include "lease_index.h"

#include <stddef.h>

enum { CHUNK_SLOTS = 256 };

lease_entry *lease_index_at(const lease_index *index, uint32_t slot) {
    return &index->chunks[slot / CHUNK_SLOTS][slot % CHUNK_SLOTS];
}

uint32_t lease_index_slots(const lease_index *index) {
    return index->chunk_count * CHUNK_SLOTS;
}

static void put_free(lease_index *index, lease_entry *entry) {
    entry->id = 0;
    entry->name = index->first_free;
    index->first_free = entry;
}

static void add_chunk(lease_index *index) {
    uint32_t number = index->chunk_count++;
    index->chunks = heap_resize(index->chunks, sizeof(index->chunks[0]) * index->chunk_count);
    index->chunks[number] = heap_resize(NULL, sizeof(lease_entry) * CHUNK_SLOTS);
    for (uint32_t i = CHUNK_SLOTS; i-- > 0;) {
        lease_entry *entry = &index->chunks[number][i];
        entry->slot = number * CHUNK_SLOTS + i;
        put_free(index, entry);
    }
}

static void free_memory(lease_index *index) {
    for (uint32_t i = 0; i < index->chunk_count; i++)
        heap_release(index->chunks[i]);
    heap_release(index->chunks);
    index->chunks = NULL;
    index->chunk_count = 0;
    index->first_free = NULL;
}

lease_entry *lease_index_add(lease_index *index, int64_t end_us, int32_t db, void *name) {
    if (index->first_free == NULL) add_chunk(index);
    lease_entry *entry = index->first_free;
    index->first_free = entry->name;
    entry->id = ++index->last_id;
    entry->name = name;
    entry->db = db;
    entry->tie = NULL;
    entry->end.key = LEASE_INDEX_NEVER;
    lease_index_set_end(index, entry, end_us);
    index->count++;
    return entry;
}

lease_entry *lease_index_find(const lease_index *index, lease_ref ref) {
    if (ref.id == 0 || ref.slot >= lease_index_slots(index)) return NULL;
    lease_entry *entry = lease_index_at(index, ref.slot);
    return entry->id == ref.id ? entry : NULL;
}

void lease_index_set_end(lease_index *index, lease_entry *entry, int64_t end_us) {
    if (entry->end.key != LEASE_INDEX_NEVER) heap_remove(&index->ends, &entry->end);
    entry->end.key = end_us;
    if (end_us != LEASE_INDEX_NEVER) heap_add(&index->ends, &entry->end);
}

void lease_index_renew_id(lease_index *index, lease_entry *entry) {
    entry->id = ++index->last_id;
}

void lease_index_drop(lease_index *index, lease_entry *entry) {
    lease_index_set_end(index, entry, LEASE_INDEX_NEVER);
    put_free(index, entry);
    if (--index->count == 0 && index->chunk_count > 1) free_memory(index);
}

lease_entry *lease_index_first(const lease_index *index) {
    return (lease_entry *)heap_first(&index->ends);
}
