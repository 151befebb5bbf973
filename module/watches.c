/* SPDX-License-Identifier: BSD-3-Clause */
/* watches.c - see watches.h.
 *
 *   watched   a lock that somebody watches, with its watches; by database and name
 *   watch     one session that watches one lock; also its event in the mailbox
 *
 * A lock is in one of two lists: due, the one that has waited longest first; or looked_at, the one
 * whose last look is the longest time ago first. A lock that changes all the time, and that very
 * many watch, must not hold up the others: so it goes to the end of the first list after each
 * portion. watches_mark_all() raises a number, so a lock that has not seen the last number counts
 * as marked.
 *
 * The watches of a lock are told one by one, since there may be very many: those that do not know
 * the present state stand in front. A lock that is not done with that is due, but no marked one: it
 * has not changed, so those who read it meanwhile cause no further events. */
#include "watches.h"

#include "dict.h"
#include "mailbox.h"
#include "server.h"
#include <string.h>

struct watched {
    list_node node; /* in due or looked_at */
    list watches;
    RedisModuleString *name;
    int db;
    uint64_t seen;     /* number of the last watches_mark_all() that was heeded; 0: marked */
    bool is_half_told; /* due, too: some watches do not know the present state yet */
    RedisModuleString *holder; /* as of the last look; NULL: free */
    int64_t fence, holders;
    const char *why; /* the lock is not on this server any more; NULL: it is */
    uint64_t state;  /* number of the present state; 0: the first look is still to come */
};

typedef struct watch {
    event event; /* must be the first member */
    list_node in_session, in_watched;
    session *owner;
    watched *lock;
    RedisModuleString *holder; /* what the event tells; NULL: free */
    const char *why;           /* the watch is over; NULL: it is not */
    uint64_t told;             /* number of the state of the lock that the event tells */
} watch;

static RedisModuleDict *by_name; /* database and name -> watched */
static RedisModuleDict *by_pair; /* session and watched -> watch */
static list due, looked_at;
static uint64_t last_mark = 1;
static int64_t count;

void watches_init(void) {
    by_name = RedisModule_CreateDict(NULL);
    by_pair = RedisModule_CreateDict(NULL);
}

/* -- watched locks by name */

static RedisModuleString *make_key(int db, const RedisModuleString *name) {
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(name, &length);
    RedisModuleString *key = RedisModule_CreateString(NULL, (const char *)&db, sizeof(db));
    RedisModule_StringAppendBuffer(NULL, key, bytes, length);
    return key;
}

static watched *find_lock(int db, const RedisModuleString *name) {
    RedisModuleString *key = make_key(db, name);
    watched *found = RedisModule_DictGet(by_name, key, NULL);
    RedisModule_FreeString(NULL, key);
    return found;
}

static watched *find_or_make_lock(int db, RedisModuleString *name) {
    watched *found = find_lock(db, name);
    if (found != NULL) return found;
    watched *made = RedisModule_Calloc(1, sizeof(*made));
    made->name = RedisModule_CreateStringFromString(NULL, name);
    made->db = db;
    made->seen = last_mark;
    list_append(&looked_at, &made->node);
    RedisModuleString *key = make_key(db, name);
    RedisModule_DictSet(by_name, key, made);
    RedisModule_FreeString(NULL, key);
    return made;
}

static bool is_marked(const watched *lock) {
    return lock->seen != last_mark;
}

static list *list_of(const watched *lock) {
    return is_marked(lock) || lock->is_half_told ? &due : &looked_at;
}

static void free_string(RedisModuleString *string) {
    if (string != NULL) RedisModule_FreeString(NULL, string);
}

static void free_lock(watched *old) {
    RedisModuleString *key = make_key(old->db, old->name);
    dict_forget_name(&by_name, key);
    RedisModule_FreeString(NULL, key);
    list_remove(list_of(old), &old->node);
    RedisModule_FreeString(NULL, old->name);
    free_string(old->holder);
    RedisModule_Free(old);
}

static void mark(watched *lock) {
    list *old = list_of(lock);
    lock->seen = 0;
    if (old == &due) return;
    list_remove(&looked_at, &lock->node);
    list_append(&due, &lock->node);
    server_alarm(0);
}

void watched_tell_later(watched *lock) {
    list_remove(list_of(lock), &lock->node);
    lock->is_half_told = true;
    list_append(&due, &lock->node);
    server_alarm(0);
}

void watches_mark(int db, RedisModuleString *name) {
    if (count == 0) return;
    watched *found = find_lock(db, name);
    if (found != NULL) mark(found);
}

void watches_mark_all(void) {
    last_mark++;
    list_append_all(&due, &looked_at);
    if (count > 0) server_alarm(0);
}

void watches_note_read(int db, const RedisModuleString *name) {
    watched *found = count == 0 ? NULL : find_lock(db, name);
    if (found != NULL && is_marked(found)) found->state++;
}

void watches_note_return(int db, const RedisModuleString *name) {
    watched *found = count == 0 ? NULL : find_lock(db, name);
    if (found == NULL) return;
    found->state++;
    mark(found);
}

void watches_mark_oldest(int most) {
    while (!list_is_empty(&looked_at) && most-- > 0)
        mark(LIST_OBJECT(looked_at.first, watched, node));
}

/* -- events */

static void write_watch(RedisModuleCtx *ctx, const event *event, int64_t arrived_us) {
    (void)arrived_us;
    const watch *written = (const watch *)event;
    RedisModule_ReplyWithArray(ctx, written->why == NULL ? 4 : 5);
    RedisModule_ReplyWithLongLong(ctx, event->number);
    RedisModule_ReplyWithSimpleString(ctx, written->why == NULL ? "changed" : "ended");
    RedisModule_ReplyWithString(ctx, written->lock->name);
    if (written->why != NULL) {
        RedisModule_ReplyWithEmptyString(ctx);
        RedisModule_ReplyWithSimpleString(ctx, written->why);
    } else if (written->holder != NULL) {
        RedisModule_ReplyWithString(ctx, written->holder);
    } else {
        RedisModule_ReplyWithNull(ctx);
    }
}

static void free_watch(watch *old) {
    watched *lock = old->lock;
    const void *pair[] = {old->owner, lock};
    RedisModule_DictDelC(by_pair, pair, sizeof(pair), NULL);
    if (old->event.number != 0) mailbox_remove(old->owner, &old->event);
    list_remove(&old->owner->watches, &old->in_session);
    list_remove(&lock->watches, &old->in_watched);
    free_string(old->holder);
    RedisModule_Free(old);
    count--;
    if (list_is_empty(&lock->watches)) free_lock(lock);
}

/* A watch outlives its events, unless it is over. */
static void forget_watch(event *event) {
    watch *acknowledged = (watch *)event;
    if (acknowledged->why != NULL) free_watch(acknowledged);
}

static const event_kind watch_kind = {.write = write_watch, .forget = forget_watch};

static const char no_permission[] = "NOPERM the permission to watch this lock was withdrawn";

static bool is_permitted(const watch *watch) {
    const session *owner = watch->owner;
    return !owner->is_user_in_acl || server_user_may_watch(owner->user, watch->lock->name);
}

/* An event that may have been written gets a new number with its new contents. */
static void tell(watch *watch) {
    const watched *lock = watch->lock;
    const char *why = is_permitted(watch) ? lock->why : no_permission;
    watch->told = lock->state;
    if (why == no_permission && watch->why == why) return; /* the session was told so */
    free_string(watch->holder);
    watch->holder = lock->holder == NULL ? NULL : RedisModule_HoldString(NULL, lock->holder);
    watch->why = why;
    if (watch->event.number != 0) mailbox_remove(watch->owner, &watch->event);
    mailbox_add(watch->owner, &watch->event);
}

/* -- looks */

watched *watches_take_marked(void) {
    watched *first = LIST_OBJECT(due.first, watched, node);
    if (first == NULL) return NULL;
    list_remove(&due, &first->node);
    first->seen = last_mark;
    first->is_half_told = false;
    list_append(&looked_at, &first->node);
    return first;
}

int watched_db(const watched *lock) {
    return lock->db;
}

RedisModuleString *watched_name(const watched *lock) {
    return lock->name;
}

static bool is_same(const watched *lock, const RedisModuleString *holder, int64_t fence,
                    int64_t holders) {
    if (lock->state == 0 || lock->why != NULL || holders != lock->holders) return false;
    if (fence != lock->fence || (holder == NULL) != (lock->holder == NULL)) return false;
    return holder == NULL ||
           RedisModule_StringCompare((RedisModuleString *)holder, lock->holder) == 0;
}

void watched_set_holder(watched *lock, RedisModuleString *holder, int64_t fence, int64_t holders) {
    if (!is_same(lock, holder, fence, holders)) lock->state++;
    free_string(lock->holder);
    lock->holder = holder;
    lock->fence = fence;
    lock->holders = holders;
    lock->why = NULL;
}

void watched_set_gone(watched *lock, const char *why) {
    if (lock->why == NULL) lock->state++;
    lock->why = why;
}

bool watched_tell_next(watched *lock) {
    watch *first = LIST_OBJECT(lock->watches.first, watch, in_watched);
    if (first->told == lock->state) return false;
    list_remove(&lock->watches, &first->in_watched);
    list_append(&lock->watches, &first->in_watched);
    tell(first);
    return true;
}

/* -- commands */

static watch *find_watch(const session *session, const watched *lock) {
    const void *pair[] = {session, lock};
    return lock == NULL ? NULL : RedisModule_DictGetC(by_pair, pair, sizeof(pair), NULL);
}

/* A watch that was over begins anew, so an acknowledgement of its end must not end it again. */
static void begin_again(watch *over) {
    over->why = NULL;
    if (over->event.number != 0) mailbox_remove(over->owner, &over->event);
}

void watches_add(session *session, int db, RedisModuleString *name) {
    watched *lock = find_or_make_lock(db, name);
    watch *made = find_watch(session, lock);
    if (made == NULL) {
        made = RedisModule_Calloc(1, sizeof(*made));
        made->event.kind = &watch_kind;
        made->owner = session;
        made->lock = lock;
        list_append(&session->watches, &made->in_session);
        const void *pair[] = {session, lock};
        RedisModule_DictSetC(by_pair, pair, sizeof(pair), made);
        count++;
    } else {
        if (made->why != NULL) begin_again(made);
        list_remove(&lock->watches, &made->in_watched);
    }
    made->told = 0;
    list_prepend(&lock->watches, &made->in_watched);
    mark(lock);
}

bool watches_has(const session *session, int db, const RedisModuleString *name) {
    return find_watch(session, find_lock(db, name)) != NULL;
}

void watches_remove(session *session, int db, RedisModuleString *name) {
    watch *found = find_watch(session, find_lock(db, name));
    if (found != NULL) free_watch(found);
}

bool watches_clear(session *session) {
    watch *first = LIST_OBJECT(session->watches.first, watch, in_session);
    if (first != NULL) free_watch(first);
    return first != NULL;
}

int64_t watches_count(void) {
    return count;
}
