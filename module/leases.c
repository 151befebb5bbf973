/* SPDX-License-Identifier: BSD-3-Clause */
/* leases.c - see leases.h.
 *
 * A change to many leases costs nothing at first:
 *
 *   SWAPDB     entries have the number of a space; current[] maps a database to its space
 *   FLUSHDB    remembers the last id of each space: older entries of the space are dead, and are
 *              swept in portions
 *   a dataset  that is received has spaces of its own: in the end either these or the old ones are
 *              retired, which means that all their entries are dead
 *   take over  remembers the time of the takeover: leases_find_end() returns at least the takeover
 *              plus the length of the lease, and corrects the entry */
#include "leases.h"

#include "server.h"
#include <string.h>

/* A copy of the name: sharing the string of Redis would take twice the memory. Redis limits the
 * length of a key to 512 MB. */
struct lease_name {
    uint32_t length; /* must be the first member */
    uint32_t users;
    char bytes[];
};

/* The entry of a shared holder has a member instead of a name. No name is long enough to have the
 * mark in its length. */
#define MEMBER_MARK (UINT32_C(1) << 31)

typedef struct lease_member {
    uint32_t marked_length; /* of the token; must be the first member */
    lease_name *name;
    char token[];
} lease_member;

typedef struct space {
    int db;              /* NO_DB: retired */
    int64_t count;       /* number of entries */
    uint64_t flushed_id; /* entries up to flushed_id are dead */
    bool is_received;    /* no client has seen the locks yet */
} space;

enum { NO_DB = -1, NO_SPACE = -1 };

static lease_index leases;
static space *spaces;
static int *current, *received; /* for each database */
static int space_count, db_count;
static int64_t taken_over_us;
static bool is_loading, is_replacement;
static bool is_sweeping;
static uint32_t sweep_slot;

static int make_space(int db) {
    int number = 0;
    while (number < space_count && (spaces[number].db != NO_DB || spaces[number].count > 0))
        number++;
    if (number == space_count)
        spaces = RedisModule_Realloc(spaces, sizeof(spaces[0]) * (size_t)++space_count);
    spaces[number] = (space){.db = db};
    return number;
}

static void make_databases(int count) {
    if (count <= db_count) return;
    current = RedisModule_Realloc(current, sizeof(current[0]) * (size_t)count);
    received = RedisModule_Realloc(received, sizeof(received[0]) * (size_t)count);
    for (; db_count < count; db_count++) {
        current[db_count] = make_space(db_count);
        received[db_count] = NO_SPACE;
    }
}

static int find_space(int db, bool is_received) {
    make_databases(db + 1);
    if (!is_received) return current[db];
    if (received[db] == NO_SPACE) {
        received[db] = make_space(db);
        spaces[received[db]].is_received = true;
    }
    return received[db];
}

static lease_name *copy_name(const RedisModuleString *name) {
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(name, &length);
    lease_name *made = RedisModule_Alloc(sizeof(*made) + length);
    made->length = (uint32_t)length;
    made->users = 1;
    memcpy(made->bytes, bytes, length);
    return made;
}

void leases_release_name(lease_name *shared) {
    if (shared != NULL && --shared->users == 0) RedisModule_Free(shared);
}

static lease_member *make_member(lease_name *name, lock_token token) {
    lease_member *made = RedisModule_Alloc(sizeof(*made) + token.length);
    made->marked_length = (uint32_t)token.length | MEMBER_MARK;
    made->name = name;
    name->users++;
    memcpy(made->token, token.bytes, token.length);
    return made;
}

/* NULL: the entry belongs to an exclusive lock. */
static lease_member *find_member(const lease_entry *entry) {
    return *(const uint32_t *)entry->name & MEMBER_MARK ? entry->name : NULL;
}

static void drop(lease_entry *entry) {
    lease_member *member = find_member(entry);
    if (member != NULL) leases_release_name(member->name);
    spaces[entry->db].count--;
    RedisModule_Free(entry->name);
    lease_index_drop(&leases, entry);
}

lease_ref leases_add(int db, RedisModuleString *name, lock_token token, int64_t lease_ms,
                     int64_t now_us, bool is_loaded, lease_name **shared) {
    int number = find_space(db, is_loaded && is_replacement);
    spaces[number].count++;
    int64_t end_us = now_us + lease_ms * 1000;
    if (token.length > 0 && *shared == NULL) *shared = copy_name(name);
    void *place = token.length > 0 ? (void *)make_member(*shared, token) : copy_name(name);
    lease_entry *entry = lease_index_add(&leases, end_us, number, place);
    server_alarm(end_us);
    return lease_entry_ref(entry);
}

static void set_end(lease_entry *entry, int64_t end_us) {
    lease_index_set_end(&leases, entry, end_us);
    server_alarm(end_us);
}

bool leases_find_end(lease_ref ref, int64_t lease_ms, int64_t *end_us, void **tie) {
    lease_entry *entry = lease_index_find(&leases, ref);
    if (entry == NULL) return false;
    int64_t promised_us = taken_over_us + lease_ms * 1000;
    if (entry->tie == NULL && entry->end.key < promised_us) set_end(entry, promised_us);
    *end_us = entry->end.key;
    *tie = entry->tie;
    return true;
}

void leases_restart(lease_ref ref, int64_t lease_ms, int64_t now_us) {
    set_end(lease_index_find(&leases, ref), now_us + lease_ms * 1000);
}

void leases_set_end(lease_ref ref, int64_t end_us) {
    set_end(lease_index_find(&leases, ref), end_us);
}

void **leases_tie(lease_ref ref) {
    lease_entry *entry = lease_index_find(&leases, ref);
    return entry == NULL ? NULL : &entry->tie;
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
    const lease_member *member = find_member(entry);
    const lease_name *name = member == NULL ? entry->name : member->name;
    place->db = spaces[entry->db].db;
    place->name = RedisModule_CreateString(NULL, name->bytes, name->length);
    place->token_length = member == NULL ? 0 : member->marked_length ^ MEMBER_MARK;
    if (member != NULL) memcpy(place->token, member->token, place->token_length);
    return true;
}

bool leases_first(lease_ref *ref, int64_t *end_us) {
    const lease_entry *entry = lease_index_first(&leases);
    if (entry == NULL) return false;
    *ref = lease_entry_ref(entry);
    *end_us = entry->end.key;
    return true;
}

void leases_take_over(void) {
    taken_over_us = server_boot_us();
}

/* All entries of the space are dead. */
static void flush(int number) {
    if (spaces[number].count == 0) return;
    spaces[number].flushed_id = leases.last_id;
    is_sweeping = true;
    sweep_slot = 0;
    server_alarm(0);
}

void leases_flushed(int db) {
    for (int i = 0; i < db_count; i++)
        if (db < 0 || i == db) flush(current[i]);
}

static void retire(int number) {
    flush(number);
    spaces[number].db = NO_DB;
}

void leases_load_started(bool is_replacing) {
    is_loading = true;
    is_replacement = is_replacing;
}

void leases_load_ended(bool is_complete) {
    for (int db = 0; is_replacement && db < db_count; db++) {
        int arrived = find_space(db, true);
        received[db] = NO_SPACE;
        if (!is_complete) {
            retire(arrived);
            continue;
        }
        retire(current[db]);
        current[db] = arrived;
        spaces[arrived].is_received = false;
    }
    is_loading = is_replacement = false;
}

bool leases_are_loading(void) {
    return is_loading;
}

void leases_swapped(int db, int other_db) {
    make_databases((db > other_db ? db : other_db) + 1);
    int swapped = current[db];
    current[db] = current[other_db];
    current[other_db] = swapped;
    spaces[current[db]].db = db;
    spaces[current[other_db]].db = other_db;
}

bool leases_sweep(int64_t until_us, void (*on_drop)(lease_ref ref)) {
    enum { SLOTS_PER_LOOK = 64 };
    if (!is_sweeping) return false;
    while (sweep_slot < lease_index_slots(&leases)) {
        lease_entry *entry = lease_index_at(&leases, sweep_slot++);
        if (entry->id != 0 && entry->id <= spaces[entry->db].flushed_id) {
            if (!spaces[entry->db].is_received) on_drop(lease_entry_ref(entry));
            drop(entry);
        }
        if (sweep_slot % SLOTS_PER_LOOK == 0 && server_boot_us() >= until_us) return true;
    }
    is_sweeping = false;
    return false;
}
