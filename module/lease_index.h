/* SPDX-License-Identifier: BSD-3-Clause */
/* lease_index.h - every hold with the end of its lease; the next end is known at once. Pure.
 *
 * A hold is one holder of a stored lock. The holder refers to its entry in the index by slot and
 * id. An entry never refers to a lock in the keyspace, because Redis can free a lock without
 * notice (FLUSHALL ASYNC frees in another thread, newer servers trim migrated slots in the
 * background). An entry whose lock is gone is dropped when the lease ends. Ids are never reused:
 * a reference to a dropped entry finds nothing, even if the slot is in use again. */
#ifndef DLOCK_LEASE_INDEX_H
#define DLOCK_LEASE_INDEX_H

#include "heap.h"
#include <stdbool.h>

/* A reference to a hold. Id 0: no hold. */
typedef struct lease_ref {
    uint64_t id;
    uint32_t slot;
} lease_ref;

typedef struct lease_entry {
    heap_node end; /* end of the lease; must be the first member */
    void *tie;     /* for ties.c; NULL: the lease alone ends the hold */
    uint64_t id;   /* 0: the slot is free */
    void *name;    /* the lock's name; in a free slot, the next free slot */
    int32_t db;
    uint32_t slot;
} lease_entry;

/* The end of a lease that does not end by itself. */
#define LEASE_INDEX_NEVER INT64_MAX

typedef struct lease_index {
    heap ends; /* of the entries that end by themselves */
    uint32_t count;
    lease_entry **chunks;
    uint32_t chunk_count;
    lease_entry *first_free;
    uint64_t last_id;
} lease_index;

/* Adds an entry with a new id. */
lease_entry *lease_index_add(lease_index *index, int64_t end_us, int32_t db, void *name);

/* The entry, or NULL if it was dropped. */
lease_entry *lease_index_find(const lease_index *index, lease_ref ref);

static inline lease_ref lease_entry_ref(const lease_entry *entry) {
    return (lease_ref){.id = entry->id, .slot = entry->slot};
}

void lease_index_set_end(lease_index *index, lease_entry *entry, int64_t end_us);

/* Gives the entry a new id. References with the old id find nothing from now on. */
void lease_index_renew_id(lease_index *index, lease_entry *entry);

/* The caller frees the name. Dropping the last entry frees the memory of a large index. */
void lease_index_drop(lease_index *index, lease_entry *entry);

/* The entry whose lease ends first, or NULL. */
lease_entry *lease_index_first(const lease_index *index);

/* The entry in the slot; its id is 0 if the slot is free. slot < lease_index_slots(). */
lease_entry *lease_index_at(const lease_index *index, uint32_t slot);
uint32_t lease_index_slots(const lease_index *index);

#endif
