/* SPDX-License-Identifier: BSD-3-Clause */
/* presence.h - the session of the client at one server (DLOCK.SESSION): one heartbeat and one
 * mailbox for all waits, kept locks and watches there.
 *
 *   guest      a wait, a kept lock or a watch. The session is opened with the first guest, and goes
 *              on until the server is freed
 *   heartbeat  a DLOCK.SESSION is always under way, on a connection of its own. The server answers
 *              with events, at the latest after a third of the timeout. The next call follows
 *   lost       a broken connection is replaced, and costs nothing while the session lives: events
 *              that were not acknowledged come again. If the server has forgotten the session, each
 *              guest asks again for what it wants, with the same token
 *   doubt      while the server is silent, a discovery looks for another one (router.h); guests
 *              whose name has another server now are told
 *
 * All functions and callbacks: locked (loop.h). */
#pragma once
#include "deployment/life.h"
#include "deployment/router.h"

typedef struct guest guest;

/* A group of functions for one kind of guest. They come from the loop; each may remove its own
 * guest, and no other. */
typedef struct guest_table {
    /* The session is open, for the first time or again. is_new: the server knows nothing of this
     * guest, which may send its commands with presence_id() now. Else the connection had ended. */
    void (*on_open)(guest *guest, bool is_new);
    /* An event for the token of the guest and its name, or one of its names. */
    void (*on_event)(guest *guest, const session_event *event);
    /* The session cannot be opened. DLOCK_UNREACHABLE: for now; else for a reason that lasts. The
     * presence goes on trying. The cause does not name the server. */
    void (*on_unopened)(guest *guest, dlock_status status, const char *cause);
    /* Another server has the name now. */
    void (*on_moved)(guest *guest);
    /* NULL, or: the connection of the session has ended. */
    void (*on_away)(guest *guest);
} guest_table;

/* Memory of the caller's, {0} but for the first group; not moved while it has a presence. */
struct guest {
    const guest_table *table;
    const char *name;
    const char *token;  /* NULL: a watch */
    uint8_t name_count; /* several: as in the attempt; 0, 1: one */
    void *arg;

    /* Private to presence.c. */
    struct presence *presence; /* NULL: none */
    list_node node, bucket_node;
};

/* How a kept lock is tied to the session of its server. Of the lock: the first group. The guest is
 * of the attempt that is under way, else of the renewal (lease/renewal.h). */
typedef struct tie {
    bool is_endless;   /* the lock lasts as long as the session; else its lease counts as well */
    bool is_momentary; /* the lock ends as soon as the connection of the session does */

    guest guest;
    /* A share, by tie_note_grant(): the server held the lock for the session in this life. NULL:
     * not known. */
    session_life *life;
    /* What happened while neither an attempt nor the renewal had the guest. */
    bool is_lost, is_forgotten;
} tie;

/* A reply or an event says that the token holds the lock. is_certain: for the session as it is now;
 * else for an earlier one that the server has forgotten, maybe. */
void tie_note_grant(tie *tie, bool is_certain);

/* May an ACQUIRE of the attempt arrive after its RELEASE, and take a lock that has no lease? */
static inline bool attempt_may_come_late(const attempt *attempt) {
    return attempt->fate == TOKEN_IN_DOUBT && attempt->terms.tie != NULL &&
           attempt->terms.tie->is_endless;
}

/* For the time between an attempt and the renewal: notes events in the tie. */
extern const guest_table tie_table;
void tie_note_lost(tie *tie, const session_event *event);

/* The guest joins the session at this server, and leaves that at another one. Opens the session if
 * it is not open. The guest keeps the server alive until it leaves. Does nothing if the
 * guest has joined here before. True: the session is open. False: on_open or on_unopened follows;
 * or there is no memory, and the guest has no presence. */
bool presence_join(router *router, server *server, guest *guest);
/* No callback comes any more. Does nothing to a guest that has joined none. */
void presence_leave(guest *guest);

/* Does no other watch of the same name hang on the session? The server has one for all of them. */
bool presence_is_only_watch(const guest *guest);

/* For the commands of a guest that has joined. */
const char *presence_id(const guest *guest);
/* False: the connection of the session has ended, and no other one is open yet. */
bool presence_is_open(const guest *guest);
/* Of the last answered heartbeat; NULL: there was none. Borrowed. */
session_life *presence_life(const guest *guest);

/* A server says that it does not know the session: opens it again. on_open follows. */
void presence_reopen(guest *guest);
