/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline.c - see connection_state.h.
 *
 *   add       bytes of new commands go to the end of out, and the request gets an entry
 *   take      out becomes the output of the thread that sends; the entries are marked as sent
 *   put back  the kernel took all bytes: the memory is spare. Else the rest is sent first next time
 *   pop       all replies of the first entry have come
 *
 * Invariants: entries are in the order of their bytes. The first marked entries are sent, or are
 * being sent; out has the bytes of the entries behind these, which alone can be removed. */
#include "net/connection_state.h"

void pipeline_free(pipeline *pipeline) {
    free(pipeline->entries);
    free(pipeline->out.data);
    free(pipeline->rest.data);
    free(pipeline->spare.data);
}

entry *pipeline_at(pipeline *pipeline, size_t index) {
    return &pipeline->entries[(pipeline->first + index) & (pipeline->capacity - 1)];
}

static bool reserve_entry(pipeline *pipeline) {
    if (pipeline->count < pipeline->capacity) return true;
    size_t capacity = pipeline->capacity == 0 ? 8 : pipeline->capacity * 2;
    entry *grown = malloc(capacity * sizeof(grown[0]));
    if (grown == NULL) return false;
    for (size_t i = 0; i < pipeline->count; i++)
        grown[i] = *pipeline_at(pipeline, i);
    free(pipeline->entries);
    pipeline->entries = grown;
    pipeline->capacity = capacity;
    pipeline->first = 0;
    return true;
}

bool pipeline_add(pipeline *pipeline, const command commands[], int count, request *request) {
    bytes *out = &pipeline->out;
    size_t before = out->size;
    bool is_added = reserve_entry(pipeline);
    for (int i = 0; i < count && is_added; i++)
        is_added = command_append(&commands[i], out);
    if (!is_added) {
        out->size = before;
        return false;
    }
    entry *added = pipeline_at(pipeline, pipeline->count);
    *added = (entry){.request = request,
                     .replies = count,
                     .left = count,
                     .size = out->size - before,
                     .reply_bytes_max = REPLY_BYTES};
    if (request != NULL && request->reply_bytes_max > 0)
        added->reply_bytes_max = request->reply_bytes_max;
    if (request != NULL) request->sequence = pipeline->first_sequence + pipeline->count;
    pipeline->count++;
    return true;
}

entry pipeline_pop(pipeline *pipeline) {
    entry popped = *pipeline_at(pipeline, 0);
    pipeline->first = (pipeline->first + 1) & (pipeline->capacity - 1);
    pipeline->first_sequence++;
    pipeline->count--;
    if (pipeline->marked > 0) pipeline->marked--;
    return popped;
}

static void remove_unsent(pipeline *pipeline, size_t index) {
    size_t begin = 0;
    for (size_t i = pipeline->marked; i < index; i++)
        begin += pipeline_at(pipeline, i)->size;
    bytes_remove(&pipeline->out, begin, pipeline_at(pipeline, index)->size);
    pipeline->count--;
    for (size_t i = index; i < pipeline->count; i++) {
        entry *moved = pipeline_at(pipeline, i);
        *moved = *pipeline_at(pipeline, i + 1);
        if (moved->request != NULL) moved->request->sequence--;
    }
}

bool pipeline_abandon(pipeline *pipeline, const request *request) {
    size_t index = (size_t)(request->sequence - pipeline->first_sequence);
    pipeline_at(pipeline, index)->request = NULL;
    bool was_sent = index < pipeline->marked;
    if (!was_sent) remove_unsent(pipeline, index);
    return was_sent;
}

static unsigned mark_sent(pipeline *pipeline, size_t size, int64_t now_us) {
    unsigned commands = 0;
    while (size > 0) {
        entry *entry = pipeline_at(pipeline, pipeline->marked++);
        size -= entry->size;
        entry->sent_us = now_us;
        request *request = entry->request;
        if (request != NULL) request->sent_us = now_us;
        if (request != NULL && request->on_sent != NULL) request->on_sent(request);
        commands += (unsigned)entry->replies;
    }
    return commands;
}

unsigned pipeline_take(pipeline *pipeline, size_t limit, int64_t now_us, bytes *output) {
    bytes *out = &pipeline->out;
    *output = (bytes){0};
    if (pipeline->rest.size > 0) {
        *output = pipeline->rest;
        pipeline->rest = (bytes){0};
        return 0;
    }
    if (limit == 0) return 0;
    if (limit == out->size) {
        *output = *out;
        *out = pipeline->spare;
        pipeline->spare = (bytes){0};
    } else if (bytes_reserve(output, limit)) {
        memcpy(output->data, out->data, limit);
        output->size = limit;
        bytes_remove(out, 0, limit);
    } else {
        return 0;
    }
    return mark_sent(pipeline, limit, now_us);
}

void pipeline_put_back(pipeline *pipeline, bytes *output, size_t written) {
    bytes_remove(output, 0, written);
    bytes *place = output->size > 0 ? &pipeline->rest : &pipeline->spare;
    if (place->data != NULL) free(place->data);
    *place = *output;
}
