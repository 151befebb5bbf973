/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_commands.h - locks as commands, and what the replies mean: the DLOCK.* commands of the
 * module, and those of plain Redis (plain_commands.c). Pure: nothing is sent here. */
#pragma once
#include "dlock_spi.h"
#include "net/resp.h"

typedef struct lock_words {
    dlock_operation operation;
    const char *name, *token;
    /* Several names: so many texts from name on, each behind the NUL of the text before. 0, 1: one
     * name. Not for an extension, and not for plain Redis. */
    uint32_t name_count;
    uint32_t lease_ms; /* not of a release */
    /* For an acquire. */
    uint32_t wait_ms; /* 0: does not wait */
    const char *via;  /* the id of a session: the outcome of the wait comes by it; or NULL */
    bool is_tied;     /* the lock ends with that session */
    bool is_endless;  /* with nothing else: it has no lease of its own */
    bool has_grace;   /* also as soon as the connection of the session ends */
    dlock_mode mode;
    uint32_t max_holders; /* of a shared acquire; 0: no limit */
    uint64_t fence;       /* at least; 0: whatever the server gives */
    uint32_t fences;      /* a run of so many; 0: one */
    /* For plain Redis. */
    bool is_repeated; /* an acquire: one with the token may have been granted before */
    bool has_hash;    /* of a script, instead of its text: the reply may be NOSCRIPT */
} lock_words;

/* Each fills an empty command; names and tokens are borrowed. */
void lock_command(command *command, const lock_words *words);
void inspect_command(command *command, const char *name, size_t name_length);
/* The same, with the first waiters. */
void waiters_command(command *command, const char *name, uint32_t max);
/* The words of a command that is to run only while the token holds the lock. */
typedef struct guarded_words {
    size_t count;
    const char *const *words;
    const size_t *lengths;
} guarded_words;

/* The same, with the words of another command; they are borrowed too. */
void guard_command(command *command, const char *name, const char *token,
                   const guarded_words *guarded);
/* Redis's own WAIT: the number of replicas that have the writes of this connection. */
void replicas_command(command *command, uint32_t count, uint32_t timeout_ms);

/* What a reply says besides its status. */
typedef enum reply_hint {
    HINT_NONE,
    HINT_QUEUED,        /* DLOCK_BUSY, and the token waits: an event tells the outcome */
    HINT_NO_SESSION,    /* the server does not know the session */
    HINT_NO_SCRIPT,     /* to be sent again, without has_hash */
    HINT_RUN_REFUSED,   /* too many FENCES were reserved lately */
    HINT_FENCE_REFUSED, /* FENCE was minutes ahead of the server's clock */
    HINT_HOLDS_SOME     /* the token holds some of the names, and others hold the rest */
} reply_hint;

/* The meaning of a reply for the lock. Each read_...() sets all fields. */
typedef struct verdict {
    dlock_status status;
    bool is_transient; /* of a failure: another attempt may succeed */
    reply_hint hint;
    uint64_t fence;               /* of DLOCK_OK to an acquire */
    char cause[DLOCK_CAUSE_SIZE]; /* of anything but DLOCK_OK */
} verdict;

void verdict_set(verdict *verdict, dlock_status status, const char *cause);
/* An error, or a reply that makes no sense. */
void read_failure(verdict *verdict, const reply *reply);
/* DLOCK_OK with a fence; DLOCK_BUSY: another token holds the lock. */
void read_acquire_reply(verdict *verdict, const reply *reply);
/* The key has a value that is neither a lock nor a string: nobody holds the lock. */
bool reply_is_no_lock(const reply *reply);
/* Extend and release. DLOCK_OK; DLOCK_LOST: the token does not hold the lock. */
void read_holder_reply(verdict *verdict, const reply *reply);
/* To a RELEASE of so many names (0, 1: one). DLOCK_LOST: also if the token held only some. */
void read_released_reply(verdict *verdict, uint32_t name_count, const reply *reply);
/* DLOCK_OK; DLOCK_NO_REPLICAS: fewer than needed have acknowledged. */
void read_replicas_reply(verdict *verdict, const reply *reply, uint32_t needed);
/* Sets *value, which may be NULL, to the reply of the guarded command. DLOCK_OK; DLOCK_LOST: the
 * token does not hold the lock; DLOCK_REFUSED: the error of the guarded command. Whatever the
 * failure is: the command was not run, or has failed itself. */
void read_guard_reply(verdict *verdict, dlock_reply *value, const reply *reply);
/* The holders in a reply to inspect_command(), at least one; NULL: the reply makes no sense. */
const reply *inspection_holders(const reply *reply);
/* Fills in all but server and name, from the reply and one of its holders; the token points into
 * the reply. False: the reply makes no sense. */
bool inspection_read(dlock_inspection *inspection, const reply *reply, const struct reply *holder);
/* The queue in a reply to waiters_command(): an array; NULL: the reply makes no sense. */
const reply *waiters_queue(const reply *reply);
/* An element of the queue: fills in all but server. False: the element makes no sense. */
bool waiting_read(dlock_waiting *waiting, const reply *element);

/* -- sessions */

void session_command(command *command, const char *id, uint32_t timeout_ms, uint64_t acknowledged);
void session_end_command(command *command, const char *id);
void watch_command(command *command, const char *name, const char *id, bool is_on);

/* The reply to session_command(). False: an error, or the reply makes no sense. */
bool read_session_reply(const reply *reply, int64_t *born, const struct reply **events);

typedef enum session_event_kind {
    EVENT_GRANTED,
    EVENT_ENDED, /* a wait, without the lock */
    EVENT_LOST,
    EVENT_CHANGED, /* a watched lock; no token: it is free */
    EVENT_WATCH_ENDED
} session_event_kind;

typedef struct session_event {
    session_event_kind kind;
    int64_t number;
    const char *name, *token; /* not ended by a NUL */
    size_t name_length, token_length;
    uint64_t fence; /* granted */
    int64_t age_ms; /* granted: so long before the call arrived that was sent at sent_us */
    int64_t sent_us;
    const reply *why; /* ended and lost: a text */
} session_event;

/* An element of the events: sets all but sent_us; texts point into the reply. False: the element
 * makes no sense, or is of a kind that only a newer server knows; the number is set if there is
 * one, else 0. */
bool session_event_read(session_event *event, const reply *element);
/* EVENT_ENDED: DLOCK_BUSY, or as for an error reply. */
void read_ended_event(verdict *verdict, const session_event *event);

/* How servers are asked for locks. Options that need more than that are refused: dlock.h. */
typedef struct lock_protocol {
    void (*write)(command *command, const lock_words *words);
    void (*read_acquire)(verdict *verdict, const reply *reply);
    bool has_module; /* servers have queues, sessions, fences, shared and guarded locks */
} lock_protocol;

extern const lock_protocol module_protocol;

/* -- plain_commands.c: locks of a server without the module, strings with a TTL. Pure. */

extern const lock_protocol plain_protocol;

/* The scripts, for tests. */
extern const char plain_acquire[], plain_extend[], plain_release[];

/* A lock takes two commands to look at. Fills empty commands; the name is borrowed. */
void string_commands(command commands[2], const char *name);
/* Fills in all but server and name, from the replies; the token points into the first one. False:
 * there is no lock. */
bool string_read(dlock_inspection *inspection, const reply *value, const reply *ttl);

/* -- redirect.c: hash slots of a cluster, and replies that send a client to another node. Pure. */

enum { SLOT_COUNT = 16384, PORT_MAX = 65535, REDIRECT_HOST_MAX = 255 };

#define HOST_UNKNOWN "?" /* a node that does not know its own host says so, or "" */

/* The slot of a key. Only the text between the first { and the next } counts, if there is any, so
 * keys can be kept together. */
unsigned slot_of_key(const char *key, size_t length);

typedef struct redirect {
    bool is_ask; /* for a single command, after ASKING; else the slot has moved for good */
    unsigned slot;
    char host[REDIRECT_HOST_MAX + 1]; /* "": the host that sent the redirect */
    int port;
} redirect;

/* error: as the server sent it, e.g. "MOVED 3999 127.0.0.1:6381". False: no redirect. */
bool redirect_read(redirect *redirect, const char *error);
