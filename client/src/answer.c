/* SPDX-License-Identifier: BSD-3-Clause */
/* answer.c - see answer.h. An error is told by its first word; where that is only ERR, by what
 * follows. To know another one: a row. */
#include "answer.h"

typedef struct row {
    const char *begin;
    answer_meaning meaning;
} row;

static const row rows[] = {
    {"QUEUEFULL ", {DLOCK_QUEUE_FULL, false}},
    {"WRONGTYPE ", {DLOCK_INVALID, false}}, /* the key is something else: a bad name for a lock */
    /* It will not let us in, or not let us do that. */
    {"NOAUTH ", {DLOCK_REFUSED, false}},
    {"WRONGPASS ", {DLOCK_REFUSED, false}},
    {"NOPERM ", {DLOCK_REFUSED, false}},
    {"DENIED ", {DLOCK_REFUSED, false}},
    {"ERR Client sent AUTH", {DLOCK_REFUSED, false}},
    {"ERR AUTH ", {DLOCK_REFUSED, false}},
    {"ERR invalid password", {DLOCK_REFUSED, false}},
    {"ERR DB index", {DLOCK_INVALID, false}},
    {"ERR max number of clients", {DLOCK_REFUSED, true}},
    /* It refuses writes, for as long as somebody does not mend it. */
    {"OOM ", {DLOCK_REFUSED, false}},
    {"MISCONF ", {DLOCK_REFUSED, false}},
    {"NOREPLICAS ", {DLOCK_REFUSED, false}},
    {"ERR maxmemory-policy", {DLOCK_REFUSED, false}},
    {"ERR FENCE must not be more than", {DLOCK_REFUSED, false}},
    /* It refuses them now: it is starting, busy, or no longer or not yet the master. */
    {"LOADING ", {DLOCK_REFUSED, true}},
    {"BUSY ", {DLOCK_REFUSED, true}},
    {"READONLY ", {DLOCK_REFUSED, true}},
    {"MASTERDOWN ", {DLOCK_REFUSED, true}},
    {"UNBLOCKED ", {DLOCK_REFUSED, true}},
    {"TRYAGAIN ", {DLOCK_REFUSED, true}},
    {"CLUSTERDOWN ", {DLOCK_REFUSED, true}},
    {"ERR unknown command", {DLOCK_PROTOCOL, false}},
    {"ERR PX", {DLOCK_INVALID, false}},
    {"ERR token", {DLOCK_INVALID, false}},
};

answer_meaning answer_status_of_error(const char *text) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strncmp(text, rows[i].begin, strlen(rows[i].begin)) == 0) return rows[i].meaning;
    return (answer_meaning){DLOCK_PROTOCOL, false};
}
