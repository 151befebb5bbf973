/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_commands.c - see lock_commands.h.
 *
 *   acquire    DLOCK.ACQUIRE name token [PX ms] [WAIT ms] [VIA id] [SESSION [GRACE 0]]
 *              [SHARED [MAX n]] [FENCE n] [FENCES n]
 *              fence; null: another token holds the lock; QUEUED: an event of the session follows
 *   several    DLOCK.ACQUIREALL count name ... token, with the same options and replies; and
 *              DLOCK.RELEASEALL count name ... token: of how many locks the token was the holder
 *   session    DLOCK.SESSION id PX ms ACK n      [born, [event, ...]]
 *   extend     DLOCK.EXTEND name token PX ms     1, or 0: the token does not hold the lock
 *   release    DLOCK.RELEASE name token          1, or 0: likewise
 *   guard      DLOCK.GUARD name token command... the reply of the command, or the error NOTHELD
 *   inspect    DLOCK.INFO name                   a list of field names and values
 *   replicas   WAIT count ms                     the number of replicas that have acknowledged
 *
 * Replicas: Redis's WAIT looks at everything that was replicated before the previous reply on the
 * connection, so a grant by another client's release counts too. */
#include "protocol/lock_commands.h"

#include "base/text.h"
#define GUARD "DLOCK.GUARD"

enum { AGE_MAX_MS = INT32_MAX }; /* of a grant: 24 days, far beyond the timeout of any session */

/* -- commands */

/* An option with a number; 0: the option is left out. */
static void add_option(command *command, const char *option, uint64_t number) {
    if (number == 0) return;
    command_add(command, option);
    command_add_number(command, number);
}

static void add_several_names(command *command, const lock_words *words) {
    bool is_acquire = words->operation == DLOCK_ACQUIRING;
    command_add(command, is_acquire ? "DLOCK.ACQUIREALL" : "DLOCK.RELEASEALL");
    command_add_number(command, words->name_count);
    command->list = words->name;
    command->list_count = (int)words->name_count;
    command->list_at = command->count;
    command_add(command, words->token);
}

void lock_command(command *command, const lock_words *words) {
    bool is_acquire = words->operation == DLOCK_ACQUIRING;
    bool is_release = words->operation == DLOCK_RELEASING;
    const char *verb = is_acquire ? "DLOCK.ACQUIRE" : is_release ? "DLOCK.RELEASE" : "DLOCK.EXTEND";
    if (words->name_count > 1)
        add_several_names(command, words);
    else
        command_add_words(command, COMMAND_WORDS(verb, words->name, words->token));
    if (is_release) return;
    if (!words->is_endless) add_option(command, "PX", words->lease_ms);
    if (!is_acquire) return;
    add_option(command, "WAIT", words->wait_ms);
    if (words->via != NULL) command_add_words(command, COMMAND_WORDS("VIA", words->via));
    if (words->is_tied) command_add(command, "SESSION");
    if (words->has_grace) command_add_words(command, COMMAND_WORDS("GRACE", "0"));
    if (words->mode == DLOCK_SHARED) command_add(command, "SHARED");
    add_option(command, "MAX", words->max_holders);
    add_option(command, "FENCE", words->fence);
    add_option(command, "FENCES", words->fences);
}

void guard_command(command *command, const char *name, const char *token,
                   const guarded_words *guarded) {
    command_add_words(command, COMMAND_WORDS(GUARD, name, token));
    command->rest_count = guarded->count;
    command->rest = guarded->words;
    command->rest_lengths = guarded->lengths;
}

void inspect_command(command *command, const char *name, size_t name_length) {
    command_add(command, "DLOCK.INFO");
    command_add_bytes(command, name, name_length);
}

void waiters_command(command *command, const char *name, uint32_t max) {
    inspect_command(command, name, strlen(name));
    command_add(command, "WAITERS");
    command_add_number(command, max);
}

void replicas_command(command *command, uint32_t count, uint32_t timeout_ms) {
    command_add(command, "WAIT");
    command_add_number(command, count);
    command_add_number(command, timeout_ms > 0 ? timeout_ms : 1); /* 0 would mean for ever */
}

/* -- replies */

void verdict_set(verdict *verdict, dlock_status status, const char *cause) {
    *verdict = (struct verdict){.status = status};
    text_copy(verdict->cause, sizeof(verdict->cause), cause);
}

static const struct {
    const char *prefix;
    reply_hint hint;
} hints[] = {{"NOSESSION ", HINT_NO_SESSION},
             {"NOSCRIPT ", HINT_NO_SCRIPT},
             {"ERR FENCES: ", HINT_RUN_REFUSED},
             {"ERR FENCE ", HINT_FENCE_REFUSED},
             {"ERR token holds some of these locks", HINT_HOLDS_SOME}};

static reply_hint hint_of_error(const reply *error) {
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (reply_begins_with(error, hints[i].prefix)) return hints[i].hint;
    return HINT_NONE;
}

void read_failure(verdict *verdict, const reply *reply) {
    if (reply->kind != REPLY_ERROR) {
        verdict_set(verdict, DLOCK_PROTOCOL, "the server sent a reply that makes no sense");
        return;
    }
    verdict_set(verdict, DLOCK_PROTOCOL, "");
    reply_copy_text(reply, verdict->cause, sizeof(verdict->cause));
    error_meaning meaning = error_reply_meaning(reply);
    verdict->status = meaning.status;
    verdict->is_transient = meaning.is_transient;
    verdict->hint = hint_of_error(reply);
}

bool reply_is_no_lock(const reply *reply) {
    return reply->kind == REPLY_ERROR && reply_begins_with(reply, "WRONGTYPE ");
}

void read_acquire_reply(verdict *verdict, const reply *reply) {
    if (reply->kind == REPLY_NIL) {
        verdict_set(verdict, DLOCK_BUSY, "another holds it");
    } else if (reply->kind == REPLY_INTEGER && reply->integer > 0) {
        verdict_set(verdict, DLOCK_OK, "");
        verdict->fence = (uint64_t)reply->integer;
    } else if (reply->kind == REPLY_STATUS && reply_is_text(reply, "QUEUED")) {
        verdict_set(verdict, DLOCK_BUSY, "another holds it");
        verdict->hint = HINT_QUEUED;
    } else {
        read_failure(verdict, reply);
    }
}

void read_holder_reply(verdict *verdict, const reply *reply) {
    bool is_integer = reply->kind == REPLY_INTEGER;
    if (is_integer && reply->integer == 1)
        verdict_set(verdict, DLOCK_OK, "");
    else if (is_integer && reply->integer == 0)
        verdict_set(verdict, DLOCK_LOST, "the server says that the token does not hold it");
    else if (reply_is_no_lock(reply))
        verdict_set(verdict, DLOCK_LOST, "the key has been overwritten, and is no lock any more");
    else
        read_failure(verdict, reply);
}

void read_released_reply(verdict *verdict, uint32_t name_count, const reply *reply) {
    struct reply all = *reply;
    bool is_count = reply->kind == REPLY_INTEGER && reply->integer >= 0;
    if (name_count > 1 && is_count && reply->integer <= name_count)
        all.integer = reply->integer == name_count;
    else if (name_count > 1)
        all.integer = -1;
    read_holder_reply(verdict, &all);
}

static void set_too_few(verdict *verdict, uint64_t count, uint32_t needed) {
    char digits[TEXT_NUMBER_SIZE];
    verdict_set(verdict, DLOCK_NO_REPLICAS, "acknowledged in time by ");
    text_put_number(digits, count);
    text_append(verdict->cause, sizeof(verdict->cause), digits);
    text_append(verdict->cause, sizeof(verdict->cause), " of ");
    text_put_number(digits, needed);
    text_append(verdict->cause, sizeof(verdict->cause), digits);
    text_append(verdict->cause, sizeof(verdict->cause), " needed replicas");
}

void read_replicas_reply(verdict *verdict, const reply *reply, uint32_t needed) {
    bool is_count = reply->kind == REPLY_INTEGER && reply->integer >= 0;
    if (!is_count)
        read_failure(verdict, reply);
    else if (reply->integer < (int64_t)needed)
        set_too_few(verdict, (uint64_t)reply->integer, needed);
    else
        verdict_set(verdict, DLOCK_OK, "");
}

static void set_value(dlock_reply *value, const reply *reply) {
    bool is_text = reply->kind == REPLY_TEXT || reply->kind == REPLY_STATUS;
    value->kind = is_text                        ? DLOCK_REPLY_TEXT
                  : reply->kind == REPLY_INTEGER ? DLOCK_REPLY_INTEGER
                  : reply->kind == REPLY_ARRAY   ? DLOCK_REPLY_ARRAY
                                                 : DLOCK_REPLY_NULL;
    value->integer = reply->kind == REPLY_INTEGER ? reply->integer
                     : reply->kind == REPLY_ARRAY ? (int64_t)reply->count
                                                  : 0;
    value->text_length = is_text ? reply->length : 0;
    if (value->text_size > 0) reply_copy_text(reply, value->text, value->text_size);
}

void read_guard_reply(verdict *verdict, dlock_reply *value, const reply *reply) {
    if (reply->kind != REPLY_ERROR) {
        verdict_set(verdict, DLOCK_OK, "");
        if (value != NULL) set_value(value, reply);
    } else if (reply_begins_with(reply, "NOTHELD ")) {
        verdict_set(verdict, DLOCK_LOST, "the server says that the token does not hold it");
    } else {
        read_failure(verdict, reply);
        bool is_unknown = reply_begins_with(reply, "ERR unknown command") &&
                          strstr(verdict->cause, GUARD) != NULL;
        if (!is_unknown) verdict->status = DLOCK_REFUSED;
    }
}

/* -- inspection */

/* False: the field is missing, or not a number. Other fields are skipped: a newer server may send
 * more. */
static bool read_number(const reply *map, const char *name, int64_t *number) {
    const reply *value = reply_value(map, name);
    if (value == NULL || value->kind != REPLY_INTEGER) return false;
    *number = value->integer;
    return true;
}

/* The same, of a field that may be missing. */
static bool read_optional(const reply *map, const char *name, int64_t *number) {
    return reply_value(map, name) == NULL || read_number(map, name, number);
}

static bool read_token(const reply *map, const char **token, size_t *length) {
    const reply *value = reply_value(map, "token");
    if (value == NULL || value->kind != REPLY_TEXT) return false;
    *token = value->text;
    *length = value->length;
    return true;
}

static bool is_field(const reply *map, const char *name, const char *text) {
    const reply *value = reply_value(map, name);
    return value != NULL && reply_is_text(value, text);
}

static dlock_mode read_mode(const reply *map) {
    return is_field(map, "mode", "shared") ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
}

const reply *inspection_holders(const reply *reply) {
    const struct reply *holders = reply_value(reply, "holders");
    return holders != NULL && reply_element(holders, 0) != NULL ? holders : NULL;
}

bool inspection_read(dlock_inspection *inspection, const reply *reply, const struct reply *holder) {
    inspection->holders = (int64_t)inspection_holders(reply)->count;
    inspection->is_string = is_field(reply, "kind", "string");
    inspection->mode = read_mode(reply);
    return read_optional(reply, "waiters", &inspection->waiters) &&
           read_optional(holder, "ttl", &inspection->ttl_ms) &&
           read_optional(holder, "lease", &inspection->lease_ms) &&
           read_optional(holder, "since", &inspection->since_ms) &&
           read_optional(holder, "session", &inspection->session) &&
           read_optional(holder, "fence", (int64_t *)&inspection->fence) &&
           read_token(holder, &inspection->token, &inspection->token_length);
}

const reply *waiters_queue(const reply *reply) {
    const struct reply *queue = reply_value(reply, "queue");
    return queue != NULL && queue->kind == REPLY_ARRAY ? queue : NULL;
}

bool waiting_read(dlock_waiting *waiting, const reply *element) {
    waiting->mode = read_mode(element);
    return read_number(element, "waited", &waiting->waited_ms) &&
           read_number(element, "left", &waiting->left_ms) &&
           read_number(element, "client", &waiting->client) &&
           read_token(element, &waiting->token, &waiting->token_length);
}

/* -- sessions */

void session_command(command *command, const char *id, uint32_t timeout_ms, uint64_t acknowledged) {
    command_add_words(command, COMMAND_WORDS("DLOCK.SESSION", id, "PX"));
    command_add_number(command, timeout_ms);
    add_option(command, "ACK", acknowledged);
}

void session_end_command(command *command, const char *id) {
    command_add_words(command, COMMAND_WORDS("DLOCK.SESSION", id, "END"));
}

void watch_command(command *command, const char *name, const char *id, bool is_on) {
    command_add_words(command, COMMAND_WORDS(is_on ? "DLOCK.WATCH" : "DLOCK.UNWATCH", name, id));
}

bool read_session_reply(const reply *reply, int64_t *born, const struct reply **events) {
    const struct reply *number = reply_element(reply, 0);
    *events = reply_element(reply, 1);
    if (number == NULL || *events == NULL || number->kind != REPLY_INTEGER) return false;
    *born = number->integer;
    return (*events)->kind == REPLY_ARRAY;
}

static bool read_kind(session_event *event, const reply *word) {
    if (reply_is_text(word, "granted"))
        event->kind = EVENT_GRANTED;
    else if (reply_is_text(word, "ended"))
        event->kind = event->token_length == 0 ? EVENT_WATCH_ENDED : EVENT_ENDED;
    else if (reply_is_text(word, "lost"))
        event->kind = EVENT_LOST;
    else
        event->kind = EVENT_CHANGED;
    return event->kind != EVENT_CHANGED || reply_is_text(word, "changed");
}

bool session_event_read(session_event *event, const reply *element) {
    const reply *parts[6] = {NULL};
    size_t count = 0;
    for (const reply *part = NULL; count < 6 && (part = reply_next(element, part)) != NULL;)
        parts[count++] = part;
    *event = (session_event){.kind = EVENT_CHANGED};
    if (count == 0 || parts[0]->kind != REPLY_INTEGER) return false;
    event->number = parts[0]->integer;
    if (count < 4 || parts[2]->kind != REPLY_TEXT) return false;
    event->name = parts[2]->text;
    event->name_length = parts[2]->length;
    if (parts[3]->kind == REPLY_TEXT) {
        event->token = parts[3]->text;
        event->token_length = parts[3]->length;
    }
    event->why = count > 4 ? parts[4] : NULL;
    if (!read_kind(event, parts[1])) return false;
    if (event->kind == EVENT_CHANGED || event->kind == EVENT_WATCH_ENDED) return true;
    if (event->kind != EVENT_GRANTED) return event->token != NULL && event->why != NULL;
    if (count < 6 || parts[4]->kind != REPLY_INTEGER || parts[5]->kind != REPLY_INTEGER)
        return false;
    event->fence = (uint64_t)parts[4]->integer;
    event->age_ms = parts[5]->integer;
    bool is_age = event->age_ms >= 0 && event->age_ms <= AGE_MAX_MS;
    return event->token != NULL && event->fence > 0 && is_age;
}

void read_ended_event(verdict *verdict, const session_event *event) {
    reply error = *event->why;
    error.kind = REPLY_ERROR;
    if (reply_is_text(event->why, "timeout") || reply_is_text(event->why, "released"))
        verdict_set(verdict, DLOCK_BUSY, "another holds it");
    else
        read_failure(verdict, &error);
}

const lock_protocol module_protocol = {
    .write = lock_command, .read_acquire = read_acquire_reply, .has_module = true};
