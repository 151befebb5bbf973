/* SPDX-License-Identifier: BSD-3-Clause */
/* session.c - who is present at each server, by its INFO dlock: first the numbers of each server,
 * then a line for each session that the server lists.
 *
 *   dlock_sessions:3                                    a number
 *   dlock_session_0:id=5f2c9a1e,state=present,locks=2   a session; special bytes are %HH
 *   dlock_sessions_unlisted:0                           how many more there are
 *
 * Names come from outside: each is escaped. */
#include "subcommands.h"

#include "complain.h"
#include "connect.h"
#include "option.h"
#include "output.h"
#include "sightings.h"
#include "text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SERVER_WIDTH = 28, PEER_WIDTH = 21, USER_WIDTH = 10, TEXT_SIZE = 1024 };

static const struct {
    const char *field; /* of INFO dlock */
    const char *title, *key;
} numbers[] = {{"dlock_sessions", "SESSIONS", "sessions"},
               {"dlock_sessions_away", "AWAY", "away"},
               {"dlock_session_holds", "LOCKS", "locks"},
               {"dlock_session_waiters", "WAITERS", "waiters"},
               {"dlock_watches", "WATCHES", "watches"},
               {"dlock_events_unacknowledged", "EVENTS", "events"}};

enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static const char list_field[] = "dlock_session_", unlisted_field[] = "dlock_sessions_unlisted";

/* A session: the fields of its line, as they came. */
typedef struct line {
    struct line *next;
    char *fields;
} line;

typedef struct presence {
    struct presence *next;
    char *server;
    int64_t counts[NUMBERS], unlisted;
    line *first, **end;
} presence;

typedef struct presences {
    presence *first, *last;
} presences;

/* -- reading */

/* The fields of a server come together. */
static presence *find_server(presences *seen, const char *server) {
    presence *last = seen->last;
    if (last != NULL && strcmp(last->server, server) == 0) return last;
    presence *added = (presence *)(void *)keep_room(sizeof(*added));
    *added = (presence){.server = keep(server)};
    added->end = &added->first;
    if (last == NULL)
        seen->first = added;
    else
        last->next = added;
    return seen->last = added;
}

static void add_line(presence *presence, const char *fields) {
    line *added = (line *)(void *)keep_room(sizeof(*added));
    *added = (line){.fields = keep(fields)};
    *presence->end = added;
    presence->end = &added->next;
}

static bool is_line(const char *field) {
    size_t length = strlen(list_field);
    return strncmp(field, list_field, length) == 0 && field[length] >= '0' && field[length] <= '9';
}

static void add_field(void *arg, const char *server, const char *field, const char *value) {
    presence *presence = find_server(arg, server);
    if (is_line(field)) add_line(presence, value);
    if (strcmp(field, unlisted_field) == 0) presence->unlisted = atoll(value);
    for (int i = 0; i < NUMBERS; i++)
        if (strcmp(field, numbers[i].field) == 0) presence->counts[i] = atoll(value);
}

/* -- the fields of a line */

/* The bytes of the value, and how many; 0: the field is missing. */
static size_t read_text(const line *line, const char *field, char text[TEXT_SIZE]) {
    size_t length = 0, name_length = strlen(field);
    const char *next = line->fields;
    while (strncmp(next, field, name_length) != 0 || next[name_length] != '=') {
        next += strcspn(next, ",");
        if (*next++ == '\0') return 0;
    }
    next += name_length + 1;
    while (*next != '\0' && *next != ',' && length < TEXT_SIZE) {
        char hex[] = {next[0] == '%' ? next[1] : '\0', '\0', '\0'};
        if (hex[0] != '\0') hex[1] = next[2];
        bool is_escaped = strspn(hex, "0123456789ABCDEF") == 2;
        text[length++] = is_escaped ? (char)strtol(hex, NULL, 16) : *next;
        next += is_escaped ? 3 : 1;
    }
    return length;
}

/* otherwise: the number if the field is missing. */
static int64_t read_number(const line *line, const char *field, int64_t otherwise) {
    char text[TEXT_SIZE];
    size_t length = read_text(line, field, text);
    if (length == 0 || length == TEXT_SIZE) return otherwise;
    text[length] = '\0';
    return atoll(text);
}

/* -- for people */

/* width 0: in the last column, which has no limit. */
static void show_column(const line *line, const char *field, size_t width) {
    char text[TEXT_SIZE], shown[COLUMN_MAX * 4 + 1];
    size_t length = read_text(line, field, text);
    if (length == 0) text[length++] = '-';
    printf(" %s", column_show(shown, text, length, width > 0 ? width : COLUMN_MAX, width > 0));
}

static void show_line(const presence *presence, const line *line) {
    char server[COLUMN_MAX * 4 + 1], left[DURATION_SIZE];
    duration_show(read_number(line, "left_ms", -1), left);
    printf("%s", column_show(server, presence->server, strlen(presence->server), SERVER_WIDTH, 1));
    show_column(line, "id", 8);
    show_column(line, "state", 7);
    printf(" %6s %6" PRId64 " %7" PRId64, left, read_number(line, "locks", 0),
           read_number(line, "waiters", 0));
    show_column(line, "user", USER_WIDTH);
    show_column(line, "addr", PEER_WIDTH);
    show_column(line, "name", 0);
    printf("\n");
}

static void show_lines(const presences *seen) {
    bool is_begun = false;
    for (const presence *next = seen->first; next != NULL; next = next->next) {
        if (next->first != NULL && !is_begun)
            printf("\n%-*s %-8s %-7s %6s %6s %7s %-*s %-*s %s\n", SERVER_WIDTH, "SERVER", "SESSION",
                   "STATE", "LEFT", "LOCKS", "WAITERS", USER_WIDTH, "USER", PEER_WIDTH, "ADDRESS",
                   "NAME");
        is_begun = is_begun || next->first != NULL;
        for (const line *line = next->first; line != NULL; line = line->next)
            show_line(next, line);
    }
}

static void show_unlisted(const presences *seen) {
    char server[COLUMN_MAX * 4 + 1];
    for (const presence *next = seen->first; next != NULL; next = next->next)
        if (next->unlisted > 0)
            printf("%s and %" PRId64 " more\n",
                   column_show(server, next->server, strlen(next->server), SERVER_WIDTH, 1),
                   next->unlisted);
}

static void show_numbers(const presence *presence) {
    char server[COLUMN_MAX * 4 + 1];
    printf("%s", column_show(server, presence->server, strlen(presence->server), SERVER_WIDTH, 1));
    for (int i = 0; i < NUMBERS; i++)
        printf(" %8" PRId64, presence->counts[i]);
    printf("\n");
}

static void show_tables(const presences *seen) {
    printf("%-*s", SERVER_WIDTH, "SERVER");
    for (int i = 0; i < NUMBERS; i++)
        printf(" %8s", numbers[i].title);
    printf("\n");
    for (const presence *next = seen->first; next != NULL; next = next->next)
        show_numbers(next);
    show_lines(seen);
    show_unlisted(seen);
}

/* -- as JSON */

static void show_member(const line *line, const char *key, const char *field) {
    char text[TEXT_SIZE];
    json_bytes(key, text, read_text(line, field, text));
}

static void show_line_json(const line *line) {
    json_object_begin(NULL);
    show_member(line, "id", "id");
    show_member(line, "state", "state");
    json_number("left_ms", read_number(line, "left_ms", -1));
    json_number("locks", read_number(line, "locks", 0));
    json_number("waiters", read_number(line, "waiters", 0));
    show_member(line, "user", "user");
    json_number("client", read_number(line, "client", 0));
    show_member(line, "address", "addr");
    show_member(line, "name", "name");
    json_object_end();
}

static void show_json(const presences *seen) {
    json_array_begin(NULL);
    for (const presence *next = seen->first; next != NULL; next = next->next) {
        json_object_begin(NULL);
        json_text("server", next->server);
        for (int i = 0; i < NUMBERS; i++)
            json_number(numbers[i].key, next->counts[i]);
        json_array_begin("listed");
        for (const line *line = next->first; line != NULL; line = line->next)
            show_line_json(line);
        json_array_end();
        json_number("unlisted", next->unlisted);
        json_object_end();
    }
    json_array_end();
}

/* -- the subcommand */

int session(request *request) {
    int code;
    char why[FAILURES_SIZE];
    presences seen = {0};
    dlock_client *client = connect_client(request, &code);
    if (client == NULL) return code;
    dlock_status status =
        dlock_server_info(client, request->connect_timeout_ms + request->io_timeout_ms, add_field,
                          &seen, why, sizeof(why));
    dlock_client_free(client);
    if (seen.first != NULL && request->is_json)
        show_json(&seen);
    else if (seen.first != NULL)
        show_tables(&seen);
    if (status == DLOCK_OK)
        complain_failures("session", why);
    else
        complain_query(request, "session", status, why, ACL_SERVER_INFO);
    return (int)exit_code_of(status);
}
