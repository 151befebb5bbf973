/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.c - see lock.h: life and state of a handle. The calls are in lock_calls.c.
 *
 *   new     the options are checked against the abilities of the deployment; all memory that a call
 *           will need is taken here
 *   free    a call that is under way ends; a held lock is released
 *   state   by the local clock: any thread may look at the lease */
#include "api/lock.h"

#include "api/options.h"
#include "deployment/router.h"

/* As the module. Longer requests than a few MB would be refused by the server. */
enum { NAMES_MAX = 64, NAMES_BYTES_MAX = 1000 * 1000 };

const char *lock_read_options(dlock_lock_options *options, const dlock_client *client,
                              const dlock_lock_options *given, char *text) {
    if (client == NULL) return NO_CLIENT;
    const deployment *deployment = client->deployment;
    const char *error = options_read_lock(options, given, &client->lock_defaults, text);
    if (error != NULL) return error;
    bool has_module = deployment->protocol->has_module;
    if (options->session && !has_module) return "session: only the dlock module has sessions";
    if (options->mode == DLOCK_SHARED && !has_module)
        return "mode: only the dlock module has shared locks";
    if (options->session && deployment->session_ms == 0)
        return "session: several servers have none, nor has a store";
    if (options->min_replicas > 0 && !deployment->table->is_routed)
        return "min_replicas: several servers have none, nor has a store";
    if (options->mode == DLOCK_SHARED && !deployment->can_share)
        return "mode: the store cannot share a lock";
    if (options->max_holders > 0 && client->has_quorum)
        return "max_holders: with several servers nobody can count the holders, since every "
               "majority is another one";
    return NULL;
}

/* NULL, or why the names cannot be locked together. */
static const char *check_several(const dlock_client *client, const char *const *names,
                                 size_t count) {
    const deployment *deployment = client->deployment;
    size_t bytes = 0;
    if (!deployment->protocol->has_module)
        return "names: only the dlock module takes several in one step";
    if (deployment->table->list_servers == NULL)
        return "names: a store takes one name at a time, not several in one step";
    for (size_t i = 0; i < count; i++) {
        bytes += strlen(names[i]);
        for (size_t j = 0; j < i; j++)
            if (strcmp(names[i], names[j]) == 0) return "names: the same name is given twice";
    }
    return bytes > NAMES_BYTES_MAX ? "names: all together are longer than 1 MB" : NULL;
}

static const char *check_names(const dlock_client *client, const char *const *names, size_t count) {
    if (names == NULL || count == 0) return "names: there is none";
    if (count > NAMES_MAX) return "names: more than 64";
    for (size_t i = 0; i < count; i++)
        if (names[i] == NULL || names[i][0] == '\0') return "the name is empty";
    return count == 1 ? NULL : check_several(client, names, count);
}

static void init_call(dlock_lock *lock, const dlock_lock_options *options) {
    const dlock_client *client = lock->client;
    call *call = &lock->call;
    call->loop = client->loop;
    call->slots = lock->slots;
    call->pub.cause = text_nothing;
    call->attempt.terms.mode = options->mode;
    call->attempt.terms.max_holders = options->max_holders;
    call->attempt.terms.min_replicas = options->min_replicas;
    call->attempt.terms.replica_timeout_ms = options->replica_timeout_ms != 0
                                                 ? options->replica_timeout_ms
                                                 : client->deployment->io_timeout_ms;
}

static void init_lease(dlock_lock *lock, const dlock_lock_options *options) {
    lease_rule rule = {.lease_ms = options->lease_ms,
                       .renew_every_ms = options->renew_every_ms,
                       .max_hold_ms = options->max_hold_ms,
                       .io_timeout_ms = lock->client->deployment->io_timeout_ms};
    lease_init(&lock->call.lease, &rule);
    if (lock->client->notifier.on_event != NULL) lock->call.lease.has_lead = true;
}

/* Makes what the lock needs to be kept, or to be told of a loss. False: no memory. */
static bool make_kept_parts(dlock_lock *lock, bool is_session) {
    kept_parts *parts = calloc(1, sizeof(*parts));
    if (parts == NULL) return false;
    lease_link(&lock->call.lease, &parts->links);
    parts->watched = (watched_lock){.lease = &lock->call.lease, .name = lock->call.pub.name};
    parts->kept = (kept_lock){.lease = &lock->call.lease, .attempt = &lock->call.attempt};
    parts->tie.is_momentary = is_session;
    lock->kept = parts;
    return true;
}

static void free_kept_parts(dlock_lock *lock) {
    if (lock->kept == NULL) return;
    loop_lock(lock->client->loop);
    life_free(lock->kept->tie.life);
    loop_unlock(lock->client->loop);
    free(lock->kept->watches);
    free(lock->kept);
}

/* With the prefix before each. separator: '\0' or a blank. Returns the byte behind. */
static char *put_full_names(char *text, const dlock_client *client, const char *const *names,
                            size_t count, char separator) {
    size_t prefix_length = strlen(client->prefix);
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(names[i]);
        memcpy(text, client->prefix, prefix_length);
        memcpy(text + prefix_length, names[i], length);
        text += prefix_length + length;
        *text++ = separator;
    }
    text[-1] = '\0';
    return text;
}

/* One piece of memory: a program may have thousands of handles. NULL: no memory. */
static dlock_lock *allocate(dlock_client *client, const char *const *names, size_t count,
                            const dlock_lock_options *options) {
    size_t slots_size = client->chain->slot_count * sizeof(void *);
    size_t names_size = count * (strlen(client->prefix) + 1);
    for (size_t i = 0; i < count; i++)
        names_size += strlen(names[i]);
    if (count > 1) names_size *= 2; /* also for people */
    size_t owner_size = options->owner == NULL ? 0 : strlen(options->owner) + 1;
    /* A handler may put in another token; a lock that is handed on has that of its first owner. */
    bool has_others = client->has_handlers || client->hotspot.hand_on > 0;
    size_t token_room =
        has_others ? DLOCK_TOKEN_SIZE : token_source_room(&client->tokens, options->owner);
    dlock_lock *lock = calloc(1, sizeof(*lock) + slots_size + token_room + names_size + owner_size);
    if (lock == NULL) return NULL;
    client_share(client);
    lock->client = client;
    lock->call.attempt.token = (char *)lock->slots + slots_size;
    char *list = lock->call.attempt.token + token_room;
    lock->call.pub.name = list;
    char *behind = put_full_names(list, client, names, count, '\0');
    if (count > 1) {
        lock->call.pub.name = behind;
        behind = put_full_names(behind, client, names, count, ' ');
    }
    lock->call.attempt.name = list;
    lock->call.attempt.name_count = (uint8_t)count;
    if (owner_size > 0) lock->owner = memcpy(behind, options->owner, owner_size);
    return lock;
}

bool lock_has_slots(const dlock_lock *lock) {
    return lock->client->deployment->table == &slots_table && slots_count(&lock->call.attempt) > 1;
}

dlock_status dlock_lock_new(dlock_lock **out, dlock_client *client, const char *name,
                            const dlock_lock_options *given) {
    return dlock_lock_new_all(out, client, &name, 1, given);
}

dlock_status dlock_lock_new_all(dlock_lock **out, dlock_client *client, const char *const *names,
                                size_t count, const dlock_lock_options *given) {
    *out = NULL;
    dlock_lock_options options;
    char text[OPTION_ERROR_SIZE];
    const char *wrong = lock_read_options(&options, client, given, text);
    if (wrong == NULL) wrong = check_names(client, names, count);
    if (wrong != NULL) return error_set(DLOCK_INVALID, wrong);

    dlock_lock *lock = allocate(client, names, count, &options);
    if (lock == NULL) return error_set(DLOCK_NO_MEMORY, "");
    init_call(lock, &options);
    init_lease(lock, &options);
    if (options.session && lock_has_slots(lock)) {
        dlock_lock_free(lock);
        return error_set(DLOCK_INVALID,
                         "session: the names are in different slots of the cluster, and a session "
                         "is at one server: give them the same hash tag, as in {bank:7}a and "
                         "{bank:7}b");
    }
    /* A handler of the program may grant an acquire by itself, and the release must not fail for
     * want of memory. Without handlers the first acquire that goes out prepares the attempt. */
    bool is_kept =
        options.renew_every_ms > 0 || options.session || client->notifier.on_event != NULL;
    if ((is_kept && !make_kept_parts(lock, options.session)) ||
        (client->has_handlers && !attempt_prepare(&lock->call.attempt, client->deployment))) {
        dlock_lock_free(lock);
        return error_set(DLOCK_NO_MEMORY, "");
    }
    *out = lock;
    return error_set(DLOCK_OK, "");
}

void dlock_lock_free(dlock_lock *lock) {
    if (lock == NULL) return;
    dlock_client *client = lock->client;
    lock->is_ending = true;
    lock_stop_call(lock);
    if (lock->depth > 0) {
        lock->depth = 1;
        dlock_release(lock);
    }
    attempt_free(&lock->call.attempt);
    text_drop(&lock->call.pub.cause);
    lease_free(&lock->call.lease);
    free_kept_parts(lock);
    free(lock);
    client_unshare(client);
}

/* -- state */

dlock_state dlock_get_state(const dlock_lock *lock) {
    return lock == NULL ? DLOCK_STATE_FREE : lease_state(&lock->call.lease, lock_now_us(lock));
}

int64_t dlock_remaining_ms(const dlock_lock *lock) {
    return lock == NULL ? 0 : lease_left_us(&lock->call.lease, lock_now_us(lock)) / 1000;
}

void lock_begin_watches(dlock_lock *lock) {
    const attempt *attempt = &lock->call.attempt;
    const char *name = attempt->name;
    name_watch **watches = &lock->kept->watches;
    if (*watches == NULL)
        *watches = calloc(attempt->name_count, sizeof(**watches)); /* else a renewal notices */
    for (unsigned i = 0; *watches != NULL && i < attempt->name_count; i++, name = text_behind(name))
        lock_watch_begin(&(*watches)[i], lock->client->deployment, &lock->call.lease, name,
                         attempt->token);
}

int dlock_lost_fd(dlock_lock *lock) {
    if (lock == NULL || (lock->kept == NULL && !make_kept_parts(lock, false))) return -1;
    loop_lock(lock->client->loop);
    int fd = lease_lost_fd(&lock->call.lease);
    bool is_held = lease_state(&lock->call.lease, lock_now_us(lock)) != DLOCK_STATE_FREE;
    if (fd >= 0 && is_held && lock->is_served && lock->call.attempt.terms.tie == NULL)
        lock_begin_watches(lock);
    loop_unlock(lock->client->loop);
    return fd;
}

uint64_t dlock_fence(const dlock_lock *lock) {
    return lock == NULL ? 0 : lock->call.lease.fence;
}

const char *dlock_token(const dlock_lock *lock) {
    return lock == NULL ? "" : lock->call.attempt.token;
}

void dlock_get_timings(const dlock_lock *lock, dlock_timings *timings) {
    static const dlock_lock nothing;
    if (lock == NULL) lock = &nothing;
    dlock_timings all = {.struct_size = timings->struct_size,
                         .local_ms = (double)lock->local_us / 1000,
                         .remote_ms = (double)lock->remote_us / 1000,
                         .attempts = lock->attempts,
                         .refused_by = lock->refused_by};
    memcpy(timings, &all, all.struct_size < sizeof(all) ? all.struct_size : sizeof(all));
}

const char *dlock_last_error(const dlock_lock *lock) {
    return lock == NULL ? dlock_error() : lock->call.pub.cause;
}
