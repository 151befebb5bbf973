/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.h - requests and their answers, on several connections at once, by one deadline each. */
#ifndef DLOCK_EXCHANGE_H
#define DLOCK_EXCHANGE_H

#include "conn.h"
#include "environment.h"
#include "interrupt.h"

enum { EXCHANGE_MAX = 16 };

typedef struct exchange exchange;

struct exchange {
    conn *conn; /* ready, or connecting; NULL: there is none yet */
    const command *requests;
    int request_count;
    bool is_urgent; /* does not wait for a connection while others keep theirs to wait for a lock */
    bool is_for_free;     /* none is opened for it: if there is none, it is not sent */
    int64_t send_by_us;   /* a connection that is not ready by then is given up */
    int64_t answer_in_us; /* from when it is sent, or the last answer came ... */
    int64_t answer_by_us; /* ... but not later than this */
    /* If it was sent, and is given up for good (canceled, or not answered by that time): sent
     * behind it on the same connection, where it cannot overtake it; or NULL. */
    const command *farewell;
    int64_t farewell_from_us;
    /* Called just before it is sent, and may change it still; or NULL. */
    void (*prepare)(exchange *self, int64_t now_us);
    /* Called once it is on its way, before the answer; or NULL. */
    void (*on_sent)(void *arg);
    void *on_sent_arg;
    /* Called with each answer, in order. */
    void (*on_reply)(exchange *self, int which, const reply *answer);
    void *asker; /* the asker's own */
    /* Of several, as many of which suffice as are what was hoped for: is it? */
    bool (*is_yes)(const exchange *self);
    /* What it is about; 0: nothing. If it was left, the next one about the same goes the same way,
     * where it cannot overtake it. */
    uint64_t subject;
    bool is_patient; /* it is not left if many are already */
    bool is_crowded; /* of server.c: many are left there */
    /* A connection to be used, and kept, instead of one that is lent by the pool; or NULL. */
    struct claim_link *link;
    bool is_link_made; /* if there is none yet; else the pool will do */
    /* Of server.c: the next connection to try, in place of none or of one that came to nothing;
     * NULL: conn is the only one. Its result is NULL if there is no other; then either status and
     * cause are set, or it is to be called again when wait_fd is readable. */
    conn *(*connect)(exchange *self, int64_t now_us);
    void *dial;
    int wait_fd;           /* negative: none */
    int64_t connect_by_us; /* a connection that is not ready by then makes room for the next */

    /* The result. DLOCK_OK: each request was answered, maybe with an error. DLOCK_IN_DOUBT: sent,
     * not answered. DLOCK_CANCELED. Else it was not sent, and this is why. */
    dlock_status status;
    bool is_sent;
    bool is_undone; /* of DLOCK_IN_DOUBT or DLOCK_CANCELED: the farewell was sent */
    bool is_left;   /* of DLOCK_IN_DOUBT: others sufficed, the answer may still come */
    /* Of others that were left before, at the same server: some have been answered since; or else,
     * some not in their time. */
    bool was_answered, was_silent;
    int64_t sent_us;
    int reply_count;
    int64_t heard_us; /* the last of them; or when it was sent */
    char cause[CAUSE_MAX + 1];
    /* Of exchange.c. */
    bool is_done;
    bool was_awaited; /* for a moment, without poll(2) */
};

/* Until each is done; those that are, are left as they are. At most EXCHANGE_MAX. If some suffice
 * (0: only all), the others are left once so many are a yes, and all are on their way. */
void exchange_run(exchange *const all[], size_t count, size_t suffices, const environment *env,
                  const interrupt *stop);

#endif
