/* SPDX-License-Identifier: BSD-3-Clause */
/* look.c - see look.h.
 *
 *   name    DLOCK.INFO. A node of a cluster that does not have the name says MOVED: that is no news
 *   all     SCAN, and DLOCK.INFO of each name that it gives, in one pipeline; until the cursor is 0
 *   info    INFO dlock, line by line */
#include "look.h"

#include "answer.h"
#include "deadline.h"
#include "server.h"
#include "text.h"
#include <stdlib.h>

#define LOCK_TYPE "dlock-key" /* as TYPE says it: module/README.md */

enum { WHERE_SIZE = 300 };

typedef struct text_part {
    char *bytes;
    size_t length;
} text_part;

/* One exchange with one server. */
typedef struct asking {
    exchange x; /* must be the first */
    look *for_whom;
    const char *where;
    dlock_status refusal; /* DLOCK_OK: none of the answers was an error */
    text_part *names;     /* of SCAN: what it gave; of DLOCK.INFO: what was asked for */
    size_t name_count;
    char cursor[TEXT_NUMBER_SIZE + 2];
} asking;

static const char nonsense[] = "the server gave an answer that makes no sense";

static void add_word(command *to, const char *word, size_t length) {
    to->words[to->count] = word;
    to->lengths[to->count++] = length;
}

static void add_text(command *to, const char *word) {
    add_word(to, word, strlen(word));
}

static void refuse(asking *to, dlock_status status, const char *cause) {
    claim *of = to->for_whom->of;
    if (to->refusal != DLOCK_OK) return;
    to->refusal = status;
    text_copy(of->call.cause, sizeof(of->call.cause), to->where);
    size_t length = strlen(of->call.cause);
    text_copy(of->call.cause + length, sizeof(of->call.cause) - length, ": ");
    if (length + 2 < sizeof(of->call.cause))
        text_copy(of->call.cause + length + 2, sizeof(of->call.cause) - length - 2, cause);
}

static void refuse_answer(asking *to, const reply *answer) {
    if (answer->kind == REPLY_ERROR)
        refuse(to, answer_status_of_error(answer->text).status, answer->text);
    else
        refuse(to, DLOCK_PROTOCOL, nonsense);
}

static dlock_status ask(asking *of, server *at, const command *requests, int count) {
    look *whom = of->for_whom;
    uint32_t io_timeout_ms = server_limits_of(at)->io_timeout_ms;
    of->x.requests = requests;
    of->x.request_count = count;
    of->x.is_urgent = true;
    of->x.send_by_us = whom->limit_us;
    of->x.answer_in_us = (int64_t)io_timeout_ms * 1000;
    of->x.answer_by_us = deadline_after_ms(whom->limit_us, io_timeout_ms);
    of->refusal = DLOCK_OK;
    server_ask(at, &of->x, whom->env, &whom->of->stop);
    if (of->x.status == DLOCK_OK) return of->refusal;
    text_copy(whom->of->call.cause, sizeof(whom->of->call.cause), of->x.cause);
    return of->x.status == DLOCK_IN_DOUBT ? DLOCK_UNREACHABLE : of->x.status; /* only looked */
}

/* -- DLOCK.INFO */

static bool read_field(dlock_inspection *to, const reply *field, const reply *value) {
    const struct number {
        const char *name;
        int64_t *at;
    } numbers[] = {{"ttl", &to->ttl_ms},
                   {"lease", &to->lease_ms},
                   {"since", &to->since_ms},
                   {"waiters", &to->waiters},
                   {"session", &to->session}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(field->text, numbers[i].name) == 0) {
            *numbers[i].at = value->integer;
            return value->kind == REPLY_INTEGER;
        }
    if (strcmp(field->text, "fence") == 0) {
        to->fence = (uint64_t)value->integer;
        return value->kind == REPLY_INTEGER;
    }
    if (strcmp(field->text, "token") == 0) {
        to->token = value->bytes;
        to->token_length = value->length;
        return value->kind == REPLY_TEXT;
    }
    if (strcmp(field->text, "kind") == 0) to->is_string = strcmp(value->text, "string") == 0;
    return true; /* a newer server may say more */
}

static bool read_map(dlock_inspection *to, const reply *map) {
    reply field, value, holder;
    for (size_t i = 0; reply_element(map, i, &field); i += 2) {
        if (!reply_element(map, i + 1, &value)) return false;
        if (strcmp(field.text, "holders") != 0) {
            if (!read_field(to, &field, &value)) return false;
        } else if (!reply_element(&value, 0, &holder) || !read_map(to, &holder)) {
            return false;
        }
    }
    return map->kind == REPLY_ARRAY;
}

static bool read_lock(dlock_inspection *to, const reply *answer) {
    return read_map(to, answer) && to->token != NULL;
}

static bool is_elsewhere(const reply *answer) {
    if (answer->kind != REPLY_ERROR) return false;
    return strncmp(answer->text, "MOVED ", 6) == 0 || strncmp(answer->text, "ASK ", 4) == 0;
}

static void on_lock(exchange *x, int which, const reply *answer) {
    asking *of = (asking *)x;
    look *whom = of->for_whom;
    if (answer->kind == REPLY_NIL || whom->is_enough) return; /* free, or free by now */
    if (is_elsewhere(answer)) return;
    dlock_inspection seen = {.struct_size = sizeof(seen),
                             .server = of->where,
                             .name = of->names[which].bytes + whom->prefix_length,
                             .name_length = of->names[which].length - whom->prefix_length};
    if (!read_lock(&seen, answer)) {
        refuse_answer(of, answer);
        return;
    }
    whom->is_found = true;
    whom->is_enough = !whom->tell(whom->arg, &seen);
}

static command info_command(const text_part *name) {
    command made = {0};
    add_text(&made, "DLOCK.INFO");
    add_word(&made, name->bytes, name->length);
    return made;
}

dlock_status look_at_name(void *arg, server *at) {
    look *whom = arg;
    char where[WHERE_SIZE], *name = strdup(whom->name);
    if (name == NULL) return DLOCK_NO_MEMORY;
    text_part only = {name, strlen(name)};
    asking of = {.for_whom = whom, .where = where, .names = &only, .name_count = 1};
    of.x.on_reply = on_lock;
    server_describe(at, where, sizeof(where));
    command request = info_command(&only);
    dlock_status status = ask(&of, at, &request, 1);
    free(name);
    return status;
}

/* -- SCAN */

static void free_names(asking *of) {
    for (size_t i = 0; i < of->name_count; i++)
        free(of->names[i].bytes);
    free(of->names);
    of->names = NULL;
    of->name_count = 0;
}

static dlock_status copy_names(asking *to, const reply *from) {
    reply each;
    to->names = calloc((size_t)from->integer + 1, sizeof(to->names[0]));
    if (to->names == NULL) return DLOCK_NO_MEMORY;
    while (reply_element(from, to->name_count, &each)) {
        /* Who lies about the type may lie about the prefix. */
        if (each.kind != REPLY_TEXT || each.length < to->for_whom->prefix_length)
            return DLOCK_PROTOCOL;
        char *bytes = malloc(each.length + 1);
        if (bytes == NULL) return DLOCK_NO_MEMORY;
        memcpy(bytes, each.bytes, each.length + 1);
        to->names[to->name_count++] = (text_part){bytes, each.length};
    }
    return DLOCK_OK;
}

static void on_scan(exchange *x, int which, const reply *answer) {
    (void)which;
    asking *of = (asking *)x;
    reply cursor, names;
    bool is_pair = reply_element(answer, 0, &cursor) && reply_element(answer, 1, &names);
    if (!is_pair || cursor.kind != REPLY_TEXT || names.kind != REPLY_ARRAY) {
        refuse_answer(of, answer);
        return;
    }
    text_copy(of->cursor, sizeof(of->cursor), cursor.text);
    dlock_status status = copy_names(of, &names);
    if (status != DLOCK_OK) refuse(of, status, status == DLOCK_NO_MEMORY ? "no memory" : nonsense);
}

static dlock_status scan(asking *of, server *at) {
    command request = {0};
    const char *words[] = {"SCAN",  of->cursor, "MATCH", of->for_whom->pattern,
                           "COUNT", "1000",     "TYPE",  LOCK_TYPE};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        add_text(&request, words[i]);
    of->x = (exchange){.on_reply = on_scan};
    return ask(of, at, &request, 1);
}

static dlock_status look_at_names(asking *of, server *at) {
    if (of->name_count == 0) return DLOCK_OK;
    command *requests = malloc(of->name_count * sizeof(requests[0]));
    if (requests == NULL) return DLOCK_NO_MEMORY;
    for (size_t i = 0; i < of->name_count; i++)
        requests[i] = info_command(&of->names[i]);
    of->x = (exchange){.on_reply = on_lock};
    dlock_status status = ask(of, at, requests, (int)of->name_count);
    free(requests);
    return status;
}

dlock_status look_at_all(void *arg, server *at) {
    look *whom = arg;
    char where[WHERE_SIZE];
    asking of = {.for_whom = whom, .where = where, .cursor = "0"};
    dlock_status status;
    server_describe(at, where, sizeof(where));
    do {
        status = scan(&of, at);
        if (status == DLOCK_OK) status = look_at_names(&of, at);
        free_names(&of);
    } while (status == DLOCK_OK && strcmp(of.cursor, "0") != 0 && !whom->is_enough);
    return status;
}

/* -- INFO */

/* "dlock_held:3", without the end of the line. */
static void tell_line(asking *of, const char *line, size_t length) {
    char text[2048];
    if (length >= sizeof(text) || strncmp(line, "dlock_", 6) != 0) return;
    memcpy(text, line, length);
    text[length] = '\0';
    char *colon = strchr(text, ':');
    if (colon == NULL) return;
    *colon = '\0';
    of->for_whom->is_found = true;
    of->for_whom->tell_field(of->for_whom->arg, of->where, text, colon + 1);
}

static void on_info(exchange *x, int which, const reply *answer) {
    (void)which;
    asking *of = (asking *)x;
    if (answer->kind != REPLY_TEXT) {
        refuse_answer(of, answer);
        return;
    }
    for (const char *line = answer->bytes; *line != '\0'; line += strspn(line, "\r\n")) {
        size_t length = strcspn(line, "\r\n");
        tell_line(of, line, length);
        line += length;
    }
    if (!of->for_whom->is_found) refuse(of, DLOCK_PROTOCOL, "it does not have the dlock module");
}

dlock_status look_at_info(void *arg, server *at) {
    char where[WHERE_SIZE];
    asking of = {.for_whom = arg, .where = where};
    of.for_whom->is_found = false;
    of.x.on_reply = on_info;
    server_describe(at, where, sizeof(where));
    command request = {0};
    add_text(&request, "INFO");
    add_text(&request, "dlock");
    return ask(&of, at, &request, 1);
}
