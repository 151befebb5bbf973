/* SPDX-License-Identifier: BSD-3-Clause */
/* sessions.c - see sessions.h.
 *
 *   by_id      id -> the living session of that name
 *   by_client  client -> the sessions of that connection: at most one anonymous, and named ones
 *   due        when to look at each named session: to answer its parked call, or to end it
 *   all        all sessions that have not ended, the oldest first: forgotten ones are in front
 *   at_work    the sessions that have something to work off
 *   gone       the connections that have ended and still have sessions
 *
 * A session ends in one step: nobody finds it any more, and its holds count as over. Ending the
 * holds themselves, and all that else hangs on the session, is the work of work.c. */
#include "sessions.h"

#include "mailbox.h"
#include "server.h"
#include "stats.h"
#include <string.h>

/* A connection that has ended, and has more sessions than one event should deal with. */
typedef struct gone_client {
    list_node node;
    uint64_t client;
} gone_client;
enum { GONE_AT_ONCE = 256 };

static RedisModuleDict *by_id, *by_client;
static heap due;
static list all, at_work, gone;
static int64_t last_born;
static uint64_t last_run; /* of sessions_run_due() */
static uint32_t demotions;
sessions_counts sessions_count;

void sessions_init(void) {
    by_id = RedisModule_CreateDict(NULL);
    by_client = RedisModule_CreateDict(NULL);
}

/* -- all */

const session *sessions_first(void) {
    return LIST_OBJECT(all.first, session, in_all);
}

const session *sessions_next(const session *listed) {
    return LIST_OBJECT(listed->in_all.next, session, in_all);
}

/* -- work */

void sessions_need_work(session *session) {
    if (!session->has_work) list_append(&at_work, &session->in_work);
    session->has_work = true;
    server_alarm(0);
}

session *sessions_first_with_work(void) {
    return LIST_OBJECT(at_work.first, session, in_work);
}

const session *sessions_last_with_work(void) {
    return LIST_OBJECT(at_work.last, session, in_work);
}

static bool is_empty(const session *session) {
    return list_is_empty(&session->holds) && list_is_empty(&session->graced) &&
           list_is_empty(&session->armed) && list_is_empty(&session->waits) &&
           list_is_empty(&session->aside) && list_is_empty(&session->watches) &&
           list_is_empty(&session->unexplained) && list_is_empty(&session->mailbox);
}

void sessions_let_others_work(session *session) {
    list_remove(&at_work, &session->in_work);
    list_append(&at_work, &session->in_work);
}

void sessions_set_worked(session *session) {
    list_remove(&at_work, &session->in_work);
    session->has_work = false;
    if (session->state != SESSION_ENDED) return;
    if (!is_empty(session)) { /* to the end of the list, so that others have their turn */
        sessions_need_work(session);
        return;
    }
    if (session->user != NULL) RedisModule_FreeString(NULL, session->user);
    RedisModule_Free(session);
}

/* -- connections */

static session *find_of_client(uint64_t client) {
    return RedisModule_DictGetC(by_client, &client, sizeof(client), NULL);
}

static void set_first(uint64_t client, session *first) {
    RedisModule_DictReplaceC(by_client, &client, sizeof(client), first);
}

/* The anonymous session stays in front of the named ones. */
static void attach(session *added, uint64_t client) {
    session *first = find_of_client(client);
    added->client = client;
    if (first != NULL && first->born == 0) {
        added->prev = first;
        added->next = first->next;
        first->next = added;
    } else {
        added->next = first;
        set_first(client, added);
    }
    if (added->next != NULL) added->next->prev = added;
}

static void detach(session *removed) {
    if (removed->next != NULL) removed->next->prev = removed->prev;
    if (removed->prev != NULL)
        removed->prev->next = removed->next;
    else if (removed->next != NULL)
        set_first(removed->client, removed->next);
    else
        RedisModule_DictDelC(by_client, &removed->client, sizeof(removed->client), NULL);
    removed->client = 0;
    removed->prev = removed->next = NULL;
}

/* -- life */

static void begin(session *made) {
    made->demotions = demotions;
    list_append(&all, &made->in_all);
}

bool sessions_is_forgotten(const session *session) {
    return session->demotions != demotions;
}

bool sessions_has_ended(const session *session) {
    return session->state == SESSION_ENDED || sessions_is_forgotten(session);
}

session *sessions_find(const char *id, size_t length) {
    session *found = RedisModule_DictGetC(by_id, (void *)id, length, NULL);
    return found == NULL || sessions_has_ended(found) ? NULL : found;
}

static void free_id(const char *id, size_t length) {
    session *forgotten = RedisModule_DictGetC(by_id, (void *)id, length, NULL);
    if (forgotten != NULL) sessions_end(forgotten);
}

session *sessions_make(const char *id, size_t length, int64_t timeout_ms, RedisModuleString *user) {
    free_id(id, length);
    session *made = RedisModule_Calloc(1, sizeof(*made));
    begin(made);
    memcpy(made->id, id, length);
    made->id_length = (uint8_t)length;
    made->timeout_ms = timeout_ms;
    made->user = RedisModule_HoldString(NULL, user);
    made->state = SESSION_AWAY;
    int64_t now_us = server_wall_us();
    last_born = now_us > last_born ? now_us : last_born + 1;
    /* The events of a life have numbers that no earlier life had, so a late ACK does no harm. */
    made->born = made->last_number = made->written = last_born;
    made->due.key = SERVER_NEVER;
    heap_add(&due, &made->due);
    RedisModule_DictSetC(by_id, made->id, length, made);
    sessions_count.sessions++;
    sessions_count.away++;
    return made;
}

static void set_due(session *session, int64_t due_us) {
    heap_remove(&due, &session->due);
    session->due.key = due_us;
    heap_add(&due, &session->due);
    server_alarm(due_us);
}

void sessions_hear(session *session, uint64_t client, int64_t now_us) {
    if (session->client != client) {
        if (session->client != 0) detach(session);
        attach(session, client);
    }
    if (session->state == SESSION_AWAY) {
        session->state = SESSION_PRESENT;
        sessions_count.away--;
    }
    if (!list_is_empty(&session->aside) || !list_is_empty(&session->armed))
        sessions_need_work(session);
    session->end_us = now_us + session->timeout_ms * 1000;
    session->overdue = 0;
    set_due(session, now_us + session->timeout_ms * 1000 / 3);
    stats_count(STATS_HEARTBEATS);
}

static void end_named(session *session) {
    mailbox_end(session);
    RedisModule_DictDelC(by_id, session->id, session->id_length, NULL);
    heap_remove(&due, &session->due);
    sessions_count.sessions--;
    if (session->state == SESSION_AWAY) sessions_count.away--;
    session->untaken = sessions_is_forgotten(session) ? NULL : session->mailbox.last;
}

void sessions_end(session *session) {
    list_remove(&all, &session->in_all);
    if (session->client != 0) detach(session);
    if (session->born != 0)
        end_named(session);
    else
        sessions_count.anonymous--;
    session->state = SESSION_ENDED;
    sessions_need_work(session);
}

void sessions_end_if_forgotten(session *session) {
    if (session->state != SESSION_ENDED && sessions_is_forgotten(session)) sessions_end(session);
}

/* Nothing that the session gets from now on reaches its client. */
static void go_away(session *session, int64_t now_us) {
    mailbox_supersede(session);
    session->state = SESSION_AWAY;
    session->away_us = now_us;
    if (++session->absences == 0) session->absences = 1;
    session->untaken = session->mailbox.last;
    sessions_count.away++;
    set_due(session, session->end_us);
    sessions_need_work(session);
}

/* Lets the first session of the connection go. False: it has none. */
static bool lose_next(uint64_t client) {
    session *first = find_of_client(client);
    if (first == NULL) return false;
    if (first->born == 0 || sessions_is_forgotten(first)) {
        sessions_end(first);
    } else {
        detach(first);
        go_away(first, server_boot_us());
    }
    return true;
}

/* Until sessions_run_gone() comes to them, the remaining sessions of the connection count as
 * present: what they are granted is taken back then. */
void sessions_client_gone(uint64_t client) {
    for (int lost = 0; lost < GONE_AT_ONCE; lost++)
        if (!lose_next(client)) return;
    if (find_of_client(client) == NULL) return;
    gone_client *made = RedisModule_Alloc(sizeof(*made));
    made->client = client;
    list_append(&gone, &made->node);
    server_alarm(0);
}

bool sessions_run_gone(int64_t until_us) {
    for (gone_client *first; (first = LIST_OBJECT(gone.first, gone_client, node)) != NULL;) {
        do {
            if (server_boot_us() >= until_us) return false;
        } while (lose_next(first->client));
        list_remove(&gone, &first->node);
        RedisModule_Free(first);
    }
    return true;
}

void sessions_forget_all(void) {
    demotions++;
    server_alarm(0);
}

bool sessions_run_forgotten(int64_t until_us) {
    for (session *first; (first = LIST_OBJECT(all.first, session, in_all)) != NULL;) {
        if (!sessions_is_forgotten(first)) return true;
        if (server_boot_us() >= until_us || mailbox_has_answered_enough()) return false;
        sessions_end(first);
    }
    return true;
}

bool sessions_may_be_granted(const session *session, int64_t now_us) {
    return session->state == SESSION_PRESENT && now_us < session->end_us &&
           !sessions_has_ended(session);
}

/* The time of the session is over. Its heartbeat may have arrived all the same:
 *
 *   CLIENT PAUSE      holds heartbeats up, and the session goes on as long
 *   a long command    kept the server from reading; so a session ends in the next turn of the event
 *                     loop at the earliest, after the server has read from all connections */
static void end_or_wait(session *session, int64_t now_us) {
    if (server_is_frozen()) {
        session->overdue = 0;
        session->end_us = now_us + SESSIONS_PATIENCE_US;
        set_due(session, session->end_us);
    } else if (session->overdue == 0) {
        session->overdue = last_run;
        set_due(session, now_us); /* behind all others that are due */
    } else {
        stats_count(STATS_SESSION_TIMEOUTS);
        sessions_end(session);
    }
}

bool sessions_run_due(int64_t until_us) {
    last_run++;
    for (session *first; (first = (session *)heap_first(&due)) != NULL;) {
        int64_t now_us = server_boot_us();
        if (first->due.key > now_us) return true;
        if (now_us >= until_us || first->overdue == last_run) return false;
        if (mailbox_has_answered_enough()) return false;
        if (sessions_is_forgotten(first)) {
            sessions_end(first);
        } else if (now_us >= first->end_us) {
            end_or_wait(first, now_us);
        } else {
            mailbox_answer(first);
            set_due(first, first->end_us);
        }
    }
    return true;
}

int64_t sessions_next_due(void) {
    const heap_node *first = heap_first(&due);
    return first == NULL ? SERVER_NEVER : first->key;
}

/* -- anonymous sessions */

session *sessions_of_client(uint64_t client) {
    session *owner = find_of_client(client);
    if (owner != NULL && owner->born == 0) sessions_end_if_forgotten(owner);
    if (owner != NULL && owner->born == 0 && !sessions_has_ended(owner)) return owner;
    owner = RedisModule_Calloc(1, sizeof(*owner));
    begin(owner);
    attach(owner, client);
    sessions_count.anonymous++;
    return owner;
}

void sessions_free_if_unused(session *session) {
    if (session->born != 0 || session->state == SESSION_ENDED || !is_empty(session)) return;
    detach(session);
    list_remove(&all, &session->in_all);
    sessions_count.anonymous--;
    RedisModule_Free(session);
}

bool sessions_have_work(void) {
    return !list_is_empty(&at_work);
}
