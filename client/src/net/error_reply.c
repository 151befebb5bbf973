/* SPDX-License-Identifier: BSD-3-Clause */
/* error_reply.c - see resp.h: what errors mean. The first word identifies an error; after a plain
 * ERR the words that follow do. To add an error: a row. */
#include "net/resp.h"

static const struct {
    const char *prefix;
    error_meaning meaning;
} rows[] = {
    {"QUEUEFULL ", {DLOCK_QUEUE_FULL, false}},
    {"WRONGTYPE ", {DLOCK_INVALID, false}}, /* the key is no lock: a bad name for a lock */
    /* The server does not accept the login or the command. */
    {"NOAUTH ", {DLOCK_REFUSED, false}},
    {"WRONGPASS ", {DLOCK_REFUSED, false}},
    {"NOPERM ", {DLOCK_REFUSED, false}},
    {"DENIED ", {DLOCK_REFUSED, false}},
    {"ERR Client sent AUTH", {DLOCK_REFUSED, false}},
    {"ERR AUTH ", {DLOCK_REFUSED, false}},
    {"ERR invalid password", {DLOCK_REFUSED, false}},
    {"ERR DB index", {DLOCK_INVALID, false}},
    {"ERR SELECT is not allowed", {DLOCK_INVALID, false}}, /* most clusters have one database */
    {"ERR max number of clients", {DLOCK_REFUSED, true}},
    /* The server refuses writes until an administrator helps. */
    {"OOM ", {DLOCK_REFUSED, false}},
    {"MISCONF ", {DLOCK_REFUSED, false}},
    {"ERR maxmemory-policy", {DLOCK_REFUSED, false}},
    {"ERR FENCE must not be more than", {DLOCK_REFUSED, false}},
    {"ERR FENCES: too many", {DLOCK_REFUSED, true}},
    /* The server refuses writes for now: starting, busy, or no longer or not yet the master. */
    {"LOADING ", {DLOCK_REFUSED, true}},
    {"BUSY ", {DLOCK_REFUSED, true}},
    {"READONLY ", {DLOCK_REFUSED, true}},
    {"MASTERDOWN ", {DLOCK_REFUSED, true}},
    {"UNBLOCKED ", {DLOCK_REFUSED, true}},
    {"NOREPLICAS ", {DLOCK_REFUSED, true}}, /* a new master, until a replica has synchronised */
    {"TRYAGAIN ", {DLOCK_REFUSED, true}},
    {"CLUSTERDOWN ", {DLOCK_REFUSED, true}},
    {"ERR unknown command 'DLOCK.", {DLOCK_NO_MODULE, false}},
    {"ERR unknown command `DLOCK.", {DLOCK_NO_MODULE, false}}, /* before Redis 7 */
    {"ERR PX", {DLOCK_INVALID, false}},
    {"ERR token holds some of these locks", {DLOCK_REFUSED, true}}, /* they are withdrawn */
    {"ERR token", {DLOCK_INVALID, false}},
};

error_meaning error_reply_meaning(const reply *error) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (reply_begins_with(error, rows[i].prefix)) return rows[i].meaning;
    return (error_meaning){DLOCK_PROTOCOL, false};
}
