/* SPDX-License-Identifier: BSD-3-Clause */
/* reply_reader.h - one reply, from bytes as a server sends them. */
#ifndef DLOCK_REPLY_READER_H
#define DLOCK_REPLY_READER_H

#include "net/resp.h"
#include "unit.h"

static resp_reader reader;

/* Points into the bytes, until the next call. */
static inline const reply *parse(const char *bytes) {
    const reply *root = NULL;
    size_t used;
    CHECK_EQUAL(resp_read(&reader, bytes, strlen(bytes), &root, &used), RESP_REPLY);
    return root;
}

static inline void free_reader(void) {
    resp_reader_free(&reader);
}

#endif
