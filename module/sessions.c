/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.c - see sessions.h.
 *
 *   by_hold    hold -> tie: for INFO, and to undo the tie when the lock ends
 *   by_client  client -> session, with a list of ties: for the end of the connection
 *   ended      the sessions whose connection has ended, with the ties left to work off
 *
 * A connection may have a hundred thousand ties, so the end of a connection only moves the
 * session to another list. */
#include "sessions.h"

#include "server.h"
#include <stddef.h>

typedef struct session session;

typedef struct tie {
    struct tie *prev, *next; /* ties of the same session */
    session *owner;
    lease_ref hold;
} tie;

struct session {
    uint64_t client;
    bool is_ended;
    tie *first;
    session *next; /* list of ended sessions */
};

static RedisModuleDict *by_hold, *by_client;
static session *ended;
static session abandoned = {.is_ended = true}; /* holds whose holder was never told */
static int64_t count;

static tie *find_tie(uint64_t id) {
    if (count == 0) return NULL;
    return RedisModule_DictGetC(by_hold, &id, sizeof(id), NULL);
}

static void add_tie(session *owner, tie *added) {
    added->owner = owner;
    added->prev = NULL;
    added->next = owner->first;
    if (owner->first != NULL) owner->first->prev = added;
    owner->first = added;
}

static void unlink_tie(tie *old) {
    if (old->prev != NULL)
        old->prev->next = old->next;
    else
        old->owner->first = old->next;
    if (old->next != NULL) old->next->prev = old->prev;
}

/* An ended session stays in its list until sessions_take_ended() finds it empty. */
static void undo(tie *old) {
    session *owner = old->owner;
    unlink_tie(old);
    RedisModule_DictDelC(by_hold, &old->hold.id, sizeof(old->hold.id), NULL);
    count--;
    RedisModule_Free(old);
    if (owner->first != NULL || owner->is_ended) return;
    RedisModule_DictDelC(by_client, &owner->client, sizeof(owner->client), NULL);
    RedisModule_Free(owner);
}

static session *find_or_make_session(uint64_t client) {
    session *found = RedisModule_DictGetC(by_client, &client, sizeof(client), NULL);
    if (found != NULL) return found;
    session *made = RedisModule_Calloc(1, sizeof(*made));
    made->client = client;
    RedisModule_DictSetC(by_client, &client, sizeof(client), made);
    return made;
}

static void tie_hold(session *owner, lease_ref hold) {
    tie *made = RedisModule_Calloc(1, sizeof(*made));
    made->hold = hold;
    add_tie(owner, made);
    RedisModule_DictSetC(by_hold, &made->hold.id, sizeof(made->hold.id), made);
    count++;
}

void sessions_init(void) {
    by_hold = RedisModule_CreateDict(NULL);
    by_client = RedisModule_CreateDict(NULL);
}

void sessions_bind(lease_ref hold, uint64_t client) {
    sessions_forget(hold.id);
    tie_hold(find_or_make_session(client), hold);
}

void sessions_rename(uint64_t old_id, lease_ref hold) {
    tie *old = find_tie(old_id);
    if (old == NULL) return;
    session *owner = old->owner;
    if (!owner->is_ended) tie_hold(owner, hold);
    undo(old);
}

void sessions_forget(uint64_t id) {
    tie *old = find_tie(id);
    if (old != NULL) undo(old);
}

static void free_ties(session *owner) {
    while (owner->first != NULL) {
        tie *old = owner->first;
        owner->first = old->next;
        RedisModule_Free(old);
    }
}

void sessions_forget_all(void) {
    session *old;
    if (count == 0) return;
    RedisModuleDictIter *all = RedisModule_DictIteratorStartC(by_client, "^", NULL, 0);
    while (RedisModule_DictNextC(all, NULL, (void **)&old) != NULL) {
        free_ties(old);
        RedisModule_Free(old);
    }
    RedisModule_DictIteratorStop(all);
    for (session *each = ended; each != NULL; each = each->next)
        free_ties(each);
    free_ties(&abandoned);
    RedisModule_FreeDict(NULL, by_hold);
    RedisModule_FreeDict(NULL, by_client);
    sessions_init();
    count = 0;
}

uint64_t sessions_client(uint64_t id) {
    const tie *found = find_tie(id);
    return found == NULL || found->owner->is_ended ? 0 : found->owner->client;
}

int64_t sessions_count(void) {
    return count;
}

void sessions_end_all_of(uint64_t client) {
    if (count == 0) return;
    session *old = RedisModule_DictGetC(by_client, &client, sizeof(client), NULL);
    if (old == NULL) return;
    RedisModule_DictDelC(by_client, &client, sizeof(client), NULL);
    old->is_ended = true;
    old->next = ended;
    ended = old;
    server_alarm(0);
}

void sessions_abandon(lease_ref hold) {
    sessions_forget(hold.id);
    tie_hold(&abandoned, hold);
    server_alarm(0);
}

bool sessions_take_ended(lease_ref *hold) {
    while (ended != NULL && ended->first == NULL) {
        session *empty = ended;
        ended = empty->next;
        RedisModule_Free(empty);
    }
    tie *first = abandoned.first != NULL ? abandoned.first : ended != NULL ? ended->first : NULL;
    if (first == NULL) return false;
    *hold = first->hold;
    undo(first);
    return true;
}
