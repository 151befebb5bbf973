/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline.h - requests that are queued or in flight on a connection, in the order of their bytes,
 * and the bytes that are still to be sent. Pure: sends nothing. */
#pragma once

#include "net/connection.h"

/* One request. */
typedef struct entry {
    request *request; /* NULL: nobody wants the replies */
    int replies, left;
    size_t size;     /* of its commands, in bytes */
    int64_t sent_us; /* 0: not yet */
    size_t reply_bytes_max;
} entry;

/* All zero: empty. */
typedef struct pipeline {
    entry *entries; /* a ring */
    size_t capacity, first, count;
    uint64_t first_sequence; /* of the first entry */
    size_t marked;           /* how many entries have a sent_us */
    bytes out;               /* queued: the commands of the other entries */
    bytes rest;              /* was taken to be sent, and the kernel had no room */
    bytes spare;             /* memory for the next out */
} pipeline;

void pipeline_free(pipeline *pipeline);

/* Appends the commands, and sets request->sequence. False: no memory, nothing changed. */
bool pipeline_add(pipeline *pipeline, const command *const commands[], int count, request *request);

entry *pipeline_at(pipeline *pipeline, size_t index);
entry pipeline_pop(pipeline *pipeline);

/* Nobody wants the replies to this request any more. False: nothing was taken to be sent, so entry
 * and bytes are gone. */
bool pipeline_abandon(pipeline *pipeline, const request *request);

/* Takes bytes to be sent: the rest, else the first limit bytes, which are whole requests. These are
 * marked as sent; the result is how many commands they are. output->size 0: there is nothing to
 * send, or no memory. */
unsigned pipeline_take(pipeline *pipeline, size_t limit, int64_t now_us, bytes *output);
/* Gives the memory back; bytes from written on are the rest. */
void pipeline_put_back(pipeline *pipeline, bytes *output, size_t written);
