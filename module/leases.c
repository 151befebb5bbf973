/* SPDX-License-Identifier: BSD-3-Clause */
/* leases.c - see leases.h.
 *
 * Only a failed synchronisation walks over all leases at once. The other changes to many leases
 * cost nothing at first:
 *
 *   SWAPDB     entries have the number of a space; spaces[] maps a space to its database
 *   FLUSHDB    remembers the last id of each space: older entries of the space are dead, and are
 *              swept in portions
 *   take over  remembers the time of the takeover: leases_end() returns at least the takeover plus
 *              the length of the lease, and corrects the entry */
#include "leases.h"

#include "server.h"
#include <string.h>

/* A copy of the name, followed by the token of a shared holder: sharing the string of Redis would
 * take twice the memory. Redis limits the length of a key to 512 MB. */
typedef struct lock_name {
    uint32_t length;
    uint32_t token_length;
    char bytes[];
} lock_name;

typedef struct space {
    int db;
    int64_t count;       /* number of entries */
    uint64_t flushed_id; /* entries up to flushed_id are dead */
} space;

static lease_index leases = {.resize = NULL};
static space *spaces;
static int space_count;
static int64_t taken_over_us;
static uint64_t replaced_id; /* the last id before the replacement of all data */
static bool is_sweeping;
static uint32_t sweep_slot;

static void *resize(void *memory, size_t size) {
    return RedisModule_Realloc(memory, size);
}

static void release(void *memory) {
    RedisModule_Free(memory);
}

/* Returns the space of the database. Makes the spaces of all databases up to db. */
static int find_space(int db) {
    while (space_count <= db) {
        spaces = RedisModule_Realloc(spaces, sizeof(spaces[0]) * ((size_t)space_count + 1));
        spaces[space_count] = (space){.db = space_count};
        space_count++;
    }
    if (spaces[db].db == db) return db;
    for (int i = 0; i < space_count; i++)
        if (spaces[i].db == db) return i;
    return db;
}

static lock_name *copy_name(const RedisModuleString *name, lock_token token) {
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(name, &length);
    lock_name *made = RedisModule_Alloc(sizeof(*made) + length + token.length);
    made->length = (uint32_t)length;
    made->token_length = (uint32_t)token.length;
    memcpy(made->bytes, bytes, length);
    if (token.length > 0) memcpy(made->bytes + length, token.bytes, token.length);
    return made;
}

static void drop(lease_entry *entry) {
    spaces[entry->db].count--;
    RedisModule_Free(entry->name);
    lease_index_drop(&leases, entry);
}

lease_ref leases_add(int db, RedisModuleString *name, lock_token token, int64_t lease_ms,
                     int64_t now_us) {
    if (leases.resize == NULL) {
        leases.resize = resize;
        leases.release = release;
    }
    int number = find_space(db);
    spaces[number].count++;
    int64_t end_us = now_us + lease_ms * 1000;
    lease_entry *entry = lease_index_add(&leases, end_us, number, copy_name(name, token));
    server_alarm(end_us);
    return lease_entry_ref(entry);
}

static void set_end(lease_entry *entry, int64_t end_us) {
    lease_index_set_end(&leases, entry, end_us);
    server_alarm(end_us);
}

bool leases_end(lease_ref ref, int64_t lease_ms, int64_t *end_us) {
    lease_entry *entry = lease_index_find(&leases, ref);
    if (entry == NULL) return false;
    int64_t promised_us = taken_over_us + lease_ms * 1000;
    if (entry->end.at_us < promised_us) set_end(entry, promised_us);
    *end_us = entry->end.at_us;
    return true;
}

void leases_restart(lease_ref ref, int64_t lease_ms, int64_t now_us) {
    set_end(lease_index_find(&leases, ref), now_us + lease_ms * 1000);
}

void leases_postpone(lease_ref ref, int64_t end_us) {
    set_end(lease_index_find(&leases, ref), end_us);
}

lease_ref leases_renew_id(lease_ref ref) {
    lease_entry *entry = lease_index_find(&leases, ref);
    lease_index_renew_id(&leases, entry);
    return lease_entry_ref(entry);
}

bool leases_drop(lease_ref ref) {
    lease_entry *entry = lease_index_find(&leases, ref);
    if (entry != NULL) drop(entry);
    return entry != NULL;
}

bool leases_find(lease_ref ref, lease_place *place) {
    const lease_entry *entry = lease_index_find(&leases, ref);
    if (entry == NULL) return false;
    const lock_name *copy = entry->name;
    place->db = spaces[entry->db].db;
    place->name = RedisModule_CreateString(NULL, copy->bytes, copy->length);
    place->token_length = copy->token_length;
    memcpy(place->token, copy->bytes + copy->length, copy->token_length);
    return true;
}

bool leases_first(lease_ref *ref, int64_t *end_us) {
    const lease_entry *entry = lease_index_first(&leases);
    if (entry == NULL) return false;
    *ref = lease_entry_ref(entry);
    *end_us = entry->end.at_us;
    return true;
}

void leases_take_over(void) {
    taken_over_us = server_boot_us();
}

/* The entries of the database (of all databases if db is negative) up to last_id are dead. */
static void forget(int db, uint64_t last_id) {
    for (int i = 0; i < space_count; i++) {
        if (db >= 0 && spaces[i].db != db) continue;
        if (spaces[i].count == 0) continue;
        spaces[i].flushed_id = last_id;
        is_sweeping = true;
        sweep_slot = 0;
    }
    if (is_sweeping) server_alarm(0);
}

void leases_flushed(int db) {
    forget(db, leases.last_id);
}

void leases_replacement_started(void) {
    replaced_id = leases.last_id;
}

void leases_replacement_ended(void) {
    forget(-1, replaced_id);
}

/* At once, and not in portions: a replica whose synchronisation fails has no hurry. */
void leases_replacement_failed(void) {
    for (uint32_t slot = 0; slot < lease_index_slots(&leases); slot++) {
        lease_entry *entry = lease_index_at(&leases, slot);
        if (entry->id > replaced_id) drop(entry);
    }
}

void leases_swapped(int db, int other_db) {
    find_space(db > other_db ? db : other_db);
    int one = find_space(db), other = find_space(other_db);
    spaces[one].db = other_db;
    spaces[other].db = db;
}

bool leases_sweep(int64_t until_us, void (*on_drop)(lease_ref ref)) {
    enum { SLOTS_PER_LOOK = 64 };
    if (!is_sweeping) return false;
    while (sweep_slot < lease_index_slots(&leases)) {
        lease_entry *entry = lease_index_at(&leases, sweep_slot++);
        if (entry->id != 0 && entry->id <= spaces[entry->db].flushed_id) {
            on_drop(lease_entry_ref(entry));
            drop(entry);
        }
        if (sweep_slot % SLOTS_PER_LOOK == 0 && server_boot_us() >= until_us) return true;
    }
    is_sweeping = false;
    return false;
}
