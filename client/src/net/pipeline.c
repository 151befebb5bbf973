/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline.c - see connection_state.h.
 *
 *   add       bytes of new commands go to the end of out, and the request gets an entry
 *   abandon   an entry that is not sent is removed, together with others: one by one, thousands of
 *             requests that time out before there is a connection would take quadratic time
 *   take      out becomes the output of the thread that sends; the entries are marked as sent
 *   put back  what the kernel did not take is the rest, which is sent first next time
 *   pop       all replies of the first entry have come
 *
 * Invariants: entries are in the order of their bytes. The first marked entries are sent, or are
 * being sent; out has the bytes of the entries behind these, which alone can be removed. Of these,
 * at most half are removed ones that are still there, and none of them is ever sent. */
#include "net/connection_state.h"

void pipeline_free(pipeline *pipeline) {
    free(pipeline->entries);
    free(pipeline->out.data);
    free(pipeline->rest.data);
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
    if (popped.is_removed) pipeline->removed--;
    return popped;
}

void pipeline_compact(pipeline *pipeline) {
    bytes *out = &pipeline->out;
    size_t kept = pipeline->marked, from = 0, to = 0;
    if (pipeline->removed == 0) return;
    for (size_t i = pipeline->marked; i < pipeline->count; i++) {
        entry each = *pipeline_at(pipeline, i);
        if (!each.is_removed) {
            if (each.size > 0) memmove(out->data + to, out->data + from, each.size);
            if (each.request != NULL) each.request->sequence = pipeline->first_sequence + kept;
            *pipeline_at(pipeline, kept++) = each;
            to += each.size;
        }
        from += each.size;
    }
    out->size = to;
    pipeline->count = kept;
    pipeline->removed = 0;
}

bool pipeline_abandon(pipeline *pipeline, const request *request) {
    size_t index = (size_t)(request->sequence - pipeline->first_sequence);
    entry *abandoned = pipeline_at(pipeline, index);
    abandoned->request = NULL;
    if (index < pipeline->marked) return true;
    abandoned->is_removed = true;
    pipeline->removed++;
    if (pipeline->removed * 2 > pipeline->count - pipeline->marked) pipeline_compact(pipeline);
    return false;
}

/* The entries before this index. */
static unsigned mark_sent(pipeline *pipeline, size_t end, int64_t now_us) {
    unsigned commands = 0;
    while (pipeline->marked < end) {
        entry *entry = pipeline_at(pipeline, pipeline->marked++);
        entry->sent_us = now_us;
        request *request = entry->request;
        if (request != NULL) request->sent_us = now_us;
        if (request != NULL && request->on_sent != NULL) request->on_sent(request);
        commands += (unsigned)entry->replies;
    }
    return commands;
}

unsigned pipeline_take(pipeline *pipeline, bool is_greeting, int64_t now_us, bytes *output) {
    bytes *rest = &pipeline->rest, *out = &pipeline->out;
    bool has_rest = rest->size > 0;
    *output = (bytes){0};
    if (!has_rest && (is_greeting || out->size == 0)) return 0;
    if (!has_rest) pipeline_compact(pipeline);
    *output = has_rest ? *rest : *out;
    if (!has_rest) *out = *rest;
    *rest = (bytes){0};
    size_t end = has_rest ? (size_t)is_greeting : pipeline->count;
    return mark_sent(pipeline, end, now_us);
}

void pipeline_put_back(pipeline *pipeline, bytes *output, size_t written) {
    bytes_remove(output, 0, written);
    pipeline->rest = *output;
}
