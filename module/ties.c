/* SPDX-License-Identifier: BSD-3-Clause */
/* ties.c - see ties.h. A tie is in one list of its session at a time:
 *
 *   holds    without GRACE                    graced   with GRACE
 *   armed    with GRACE, while its session is away: the lease entry has the end of the grace
 *
 * The ties of an ended session, and of holds whose holder was never told, are taken one by one by
 * work.c, which ends the holds. */
#include "ties.h"

#include "leases.h"
#include "losses.h"
#include "server.h"
#include "sessions.h"

typedef struct tie {
    list_node node; /* in a list of the session */
    session *owner;
    lease_ref hold;
    int64_t end_us; /* limit of the hold of a named session; SERVER_NEVER: none */
    int32_t grace_ms;
    uint32_t armed; /* in the list of armed ties, for this absence of the session; 0: it is not */
} tie;

static session abandoned = {.state = SESSION_ENDED}; /* holds whose holder was never told */
static int64_t count;

static tie *find_tie(lease_ref hold) {
    if (count == 0) return NULL;
    void **place = leases_tie(hold);
    return place == NULL ? NULL : *place;
}

static list *list_of(const tie *tie) {
    if (tie->grace_ms == LOCK_NO_GRACE) return &tie->owner->holds;
    return tie->armed != 0 ? &tie->owner->armed : &tie->owner->graced;
}

static void undo(tie *old) {
    session *owner = old->owner;
    void **place = leases_tie(old->hold);
    if (place != NULL && *place == old) *place = NULL;
    list_remove(list_of(old), &old->node);
    RedisModule_Free(old);
    owner->hold_count--;
    count--;
    sessions_free_if_unused(owner);
}

/* Undoes the tie of a hold that goes on: its lease gets an end of its own again. */
static void loosen(tie *old) {
    if (leases_tie(old->hold) != NULL && old->owner->born != 0)
        leases_set_end(old->hold, ties_hold_end(old, old->end_us, server_boot_us()));
    undo(old);
}

static tie *make_tie(session *owner, lease_ref hold, int64_t grace_ms, int64_t end_us) {
    tie *made = RedisModule_Calloc(1, sizeof(*made));
    made->owner = owner;
    made->hold = hold;
    made->grace_ms = (int32_t)grace_ms;
    made->end_us = end_us;
    list_append(list_of(made), &made->node);
    *leases_tie(hold) = made;
    owner->hold_count++;
    count++;
    return made;
}

void ties_bind_to_client(lease_ref hold, uint64_t client) {
    tie *old = find_tie(hold);
    if (old != NULL) loosen(old);
    make_tie(sessions_of_client(client), hold, LOCK_NO_GRACE, SERVER_NEVER);
}

void ties_bind(lease_ref hold, session *session, int64_t grace_ms, int64_t end_us) {
    tie *old = find_tie(hold);
    if (old != NULL) {
        if (old->owner == session && old->end_us > end_us) end_us = old->end_us;
        undo(old);
    }
    make_tie(session, hold, grace_ms, end_us);
    leases_set_end(hold, end_us);
    /* The session may have gone away while the request waited. */
    if (session->state == SESSION_AWAY && grace_ms != LOCK_NO_GRACE) sessions_need_work(session);
}

void ties_rename(lease_ref hold) {
    tie *old = find_tie(hold);
    if (old == NULL) return;
    old->hold = hold;
    if (sessions_has_ended(old->owner)) loosen(old);
}

void ties_forget(lease_ref hold) {
    tie *old = find_tie(hold);
    if (old != NULL) undo(old);
}

void ties_lose(lease_ref hold, int db, RedisModuleString *name, lock_token token, const char *why) {
    tie *old = find_tie(hold);
    if (old == NULL) return;
    session *owner = old->owner;
    bool is_anonymous = owner->born == 0;
    undo(old); /* may free an anonymous owner */
    if (is_anonymous || sessions_has_ended(owner)) return;
    losses_add(owner, db, name, token, why);
    if (why == NULL) sessions_need_work(owner);
}

/* An end of its own that the hold has while its session lives. The grace counts once the tie is
 * armed for this absence. Otherwise a look in between would find the hold over, and the hold would
 * go on unnoticed if the session comes back before the tie is armed. */
static int64_t own_end(const tie *tie, int64_t end_us) {
    const session *owner = tie->owner;
    bool is_away = owner->state == SESSION_AWAY && !sessions_has_ended(owner);
    if (!is_away || tie->armed != owner->absences) return end_us;
    int64_t grace_us = owner->away_us + tie->grace_ms * INT64_C(1000);
    return grace_us < end_us ? grace_us : end_us;
}

int64_t ties_hold_end(const void *opaque, int64_t end_us, int64_t now_us) {
    const tie *tie = opaque;
    const session *owner = tie->owner;
    if (owner->born == 0) return end_us;
    if (owner->state == SESSION_ENDED && !sessions_is_forgotten(owner)) return 0;
    end_us = own_end(tie, end_us);
    int64_t session_us = owner->end_us > now_us ? owner->end_us : now_us + SESSIONS_PATIENCE_US;
    return session_us < end_us ? session_us : end_us;
}

void ties_extend(lease_ref hold, int64_t end_us) {
    tie *found = find_tie(hold);
    if (found == NULL || found->owner->born == 0 || end_us <= found->end_us) return;
    found->end_us = end_us;
    leases_set_end(hold, found->armed == 0 ? end_us : own_end(found, end_us));
}

bool ties_has_limit(lease_ref hold) {
    const tie *found = find_tie(hold);
    return found == NULL || found->owner->born == 0 || found->end_us != SERVER_NEVER;
}

const session *ties_keeper(lease_ref hold) {
    const session *owner = ties_session(hold);
    return owner == NULL || owner->born == 0 ? NULL : owner;
}

/* Ties that are armed for an earlier absence stand in front of those armed for the present one. */
static tie *next_to_move(const session *session) {
    tie *armed = LIST_OBJECT(session->armed.first, tie, node);
    if (session->state == SESSION_PRESENT) return armed;
    if (armed != NULL && armed->armed != session->absences) return armed;
    return LIST_OBJECT(session->graced.first, tie, node);
}

static bool is_over(lease_ref hold, int64_t now_us) {
    int64_t end_us = SERVER_NEVER;
    void *tie;
    leases_find_end(hold, 0, &end_us, &tie);
    return end_us <= now_us;
}

bool ties_move_graced(session *session, lease_ref *revived) {
    bool is_away = session->state == SESSION_AWAY;
    int64_t now_us = server_boot_us();
    tie *moved = next_to_move(session);
    if (moved == NULL) return false;
    bool was_over = is_over(moved->hold, now_us);
    list_remove(list_of(moved), &moved->node);
    moved->armed = is_away ? session->absences : 0;
    list_append(list_of(moved), &moved->node);
    leases_set_end(moved->hold, own_end(moved, moved->end_us));
    bool is_revived = was_over && !is_over(moved->hold, now_us);
    *revived = is_revived ? moved->hold : (lease_ref){.id = 0};
    return true;
}

void ties_abandon(lease_ref hold) {
    tie *old = find_tie(hold);
    if (old != NULL) loosen(old);
    if (leases_tie(hold) == NULL) return;
    make_tie(&abandoned, hold, LOCK_NO_GRACE, SERVER_NEVER);
    server_alarm(0);
}

bool ties_take_hold(session *session, lease_ref *hold) {
    const list *lists[] = {&session->holds, &session->graced, &session->armed};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (list_is_empty(lists[i])) continue;
        tie *first = LIST_OBJECT(lists[i]->first, tie, node);
        *hold = first->hold;
        loosen(first);
        return true;
    }
    return false;
}

bool ties_take_abandoned(lease_ref *hold) {
    return ties_take_hold(&abandoned, hold);
}

bool ties_have_abandoned(void) {
    return !list_is_empty(&abandoned.holds);
}

const session *ties_session(lease_ref hold) {
    const tie *found = find_tie(hold);
    return found == NULL || sessions_has_ended(found->owner) ? NULL : found->owner;
}

int64_t ties_count(void) {
    return count;
}
