/* SPDX-License-Identifier: BSD-3-Clause */
/* info_sessions.c - see info_sessions.h. One line for each session, the oldest first:
 *
 *   dlock_session_0:id=5f2c9a1e,state=present,left_ms=9120,user=app,locks=2,waiters=1,client=7,
 *                   addr=10.0.0.3:51234,name=web-3:4711:api
 *
 * A field without a value is left out: an anonymous session has no id, time and user, and a session
 * that is away has no connection. Text from outside is escaped, because a comma, an equals sign or
 * the end of a line would begin another field. Work and output are bounded, because INFO blocks the
 * server. */
#include "info_sessions.h"

#include "server.h"
#include "sessions.h"
#include <stdio.h>
#include <string.h>

/* 160: a name by libdlock, host:pid:owner, fits. A whole line stays below 2 kB. */
enum { SHOWN_MAX = 100, TEXT_MAX = 160 };

static const char cut_mark[] = "...";

/* Special bytes are shown as %HH, as in a URL. */
static void show_text(RedisModuleInfoCtx *info, const char *field, const char *bytes,
                      size_t length) {
    char safe[3 * TEXT_MAX + sizeof(cut_mark)], *end = safe;
    for (size_t i = 0; i < length && i < TEXT_MAX; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte <= ' ' || byte >= 0x7F || strchr("%,=", byte) != NULL)
            end += sprintf(end, "%%%02X", byte);
        else
            *end++ = (char)byte;
    }
    strcpy(end, length > TEXT_MAX ? cut_mark : "");
    RedisModule_InfoAddFieldCString(info, field, safe);
}

static void show_string(RedisModuleInfoCtx *info, const char *field,
                        const RedisModuleString *string) {
    size_t length;
    const char *bytes = RedisModule_StringPtrLen(string, &length);
    show_text(info, field, bytes, length);
}

static void show_address(RedisModuleInfoCtx *info, const RedisModuleClientInfo *client) {
    char text[sizeof(client->addr) + 16];
    bool is_ipv6 = strchr(client->addr, ':') != NULL;
    if (client->flags & REDISMODULE_CLIENTINFO_FLAG_UNIXSOCKET)
        snprintf(text, sizeof(text), "unixsocket");
    else
        snprintf(text, sizeof(text), is_ipv6 ? "[%s]:%u" : "%s:%u", client->addr, client->port);
    show_text(info, "addr", text, strlen(text));
}

/* The connection may be gone already, when it had very many sessions: then only its id is known. */
static void show_connection(RedisModuleInfoCtx *info, uint64_t id) {
    RedisModuleClientInfo client = REDISMODULE_CLIENTINFO_INITIALIZER_V1;
    RedisModule_InfoAddFieldULongLong(info, "client", id);
    if (RedisModule_GetClientInfoById(&client, id) != REDISMODULE_OK) return;
    show_address(info, &client);
    if (server_optional.client_name == NULL) return;
    RedisModuleString *name = server_optional.client_name(server_context(), id);
    if (name == NULL) return;
    show_string(info, "name", name);
    RedisModule_FreeString(server_context(), name);
}

static void show_session(RedisModuleInfoCtx *info, const session *shown, int number,
                         int64_t now_us) {
    char field[24];
    snprintf(field, sizeof(field), "session_%d", number);
    RedisModule_InfoBeginDictField(info, field);
    /* Who knows a whole id could act for its process. */
    if (shown->id_length > 0) show_text(info, "id", shown->id, SESSION_ID_SHOWN);
    RedisModule_InfoAddFieldCString(info, "state", session_is_present(shown) ? "present" : "away");
    if (shown->born != 0) {
        int64_t left_us = shown->end_us > now_us ? shown->end_us - now_us : 0;
        RedisModule_InfoAddFieldLongLong(info, "left_ms", (left_us + 999) / 1000);
    }
    if (shown->user != NULL) show_string(info, "user", shown->user);
    RedisModule_InfoAddFieldULongLong(info, "locks", shown->hold_count);
    RedisModule_InfoAddFieldULongLong(info, "waiters", shown->wait_count);
    if (shown->client != 0) show_connection(info, shown->client);
    RedisModule_InfoEndDictField(info);
}

void info_sessions_show(RedisModuleInfoCtx *info) {
    int shown = 0, looked_at = 0;
    int64_t now_us = server_boot_us();
    if (RedisModule_InfoAddSection(info, "sessions") != REDISMODULE_OK) return;
    for (const session *next = sessions_first(); next != NULL; next = sessions_next(next)) {
        if (looked_at++ == SHOWN_MAX) break;
        if (!sessions_has_ended(next)) show_session(info, next, shown++, now_us);
    }
    int64_t all = sessions_count.sessions + sessions_count.anonymous;
    RedisModule_InfoAddFieldLongLong(info, "sessions_unlisted", all - shown);
}
