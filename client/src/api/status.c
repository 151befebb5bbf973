/* SPDX-License-Identifier: BSD-3-Clause */
/* status.c - the names of the statuses, and what they mean; the text of dlock_error(). */
#include "api/client.h"

#include "base/text.h"

typedef struct row {
    dlock_status status;
    const char *name, *text;
} row;

#define ROW(status, text)                                                                          \
    { status, #status, text }

static const row rows[] = {
    ROW(DLOCK_OK, "ok"),
    ROW(DLOCK_BUSY, "another holds the lock"),
    ROW(DLOCK_TIMEOUT, "another still held the lock when the wait ran out"),
    ROW(DLOCK_NOT_HELD, "this handle does not hold the lock"),
    ROW(DLOCK_LOST, "the lock was lost before this call"),
    ROW(DLOCK_CANCELED, "the wait was canceled"),
    ROW(DLOCK_QUEUE_FULL, "too many wait for this lock already"),
    ROW(DLOCK_NO_QUORUM, "too few servers agreed"),
    ROW(DLOCK_NO_REPLICAS, "too few replicas acknowledged"),
    ROW(DLOCK_LIMITED, "the program itself refused the call"),
    ROW(DLOCK_IN_DOUBT, "the request was sent, and no answer came"),
    ROW(DLOCK_UNREACHABLE, "the server could not be reached"),
    ROW(DLOCK_REFUSED, "the server refused"),
    ROW(DLOCK_PROTOCOL, "the server gave an answer that a server with dlock does not give"),
    ROW(DLOCK_INVALID, "an argument is wrong"),
    ROW(DLOCK_NO_MEMORY, "out of memory, descriptors or threads"),
    ROW(DLOCK_NO_MODULE, "the server has no dlock module: loadmodule in redis.conf (on Debian: "
                         "dlock-module enable), or ?module=none in the URL"),
};

static const row *find_status(dlock_status status) {
    static const row unknown = {DLOCK_INVALID, "DLOCK_?", "an unknown status"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].status == status) return &rows[i];
    return &unknown;
}

const char *dlock_status_name(dlock_status status) {
    return find_status(status)->name;
}

const char *dlock_status_text(dlock_status status) {
    return find_status(status)->text;
}

const char *error_words(dlock_status status, const char *why) {
    if (status == DLOCK_OK) return "";
    return why[0] != '\0' ? why : dlock_status_text(status);
}

static _Thread_local char error_text[256]; /* which each thread has for itself */

dlock_status error_set(dlock_status status, const char *why) {
    text_copy(error_text, sizeof(error_text), error_words(status, why));
    return status;
}

const char *dlock_error(void) {
    return error_text;
}

int dlock_version(void) {
    return DLOCK_VERSION_NUMBER;
}
