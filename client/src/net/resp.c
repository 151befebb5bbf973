/* SPDX-License-Identifier: BSD-3-Clause */
/* resp.c - see resp.h.
 *
 *   commands   words, then bytes: *count, and $length and the bytes of every word
 *   replies    access to the nodes
 *   reading    read_node() reads one node; resp_read() loops over nodes and keeps the unfinished
 *              arrays on a stack, so that no recursion follows a hostile server
 *
 * A long reply arrives in many pieces, and the caller has a mutex. So the reader keeps the nodes of
 * an incomplete reply, and the next call goes on behind them. The bytes may have moved by then:
 * texts are offsets until the reply is complete. Every node takes at least three bytes on the wire,
 * so the memory for nodes is proportional to the bytes that have arrived, whatever lengths the
 * server announces. */
#include "net/resp.h"

#include "base/text.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_FIRST = 16, NODES_KEPT = 1024, LINE_END_SIZE = 2, DIGITS_MAX = 20 };

/* -- commands */

void command_add_bytes(command *command, const char *bytes, size_t length) {
    assert(command->count < COMMAND_WORDS_MAX);
    command->words[command->count] = bytes;
    command->lengths[command->count++] = length;
}

void command_add(command *command, const char *word) {
    command_add_bytes(command, word, strlen(word));
}

void command_add_words(command *command, const char *const words[]) {
    for (; *words != NULL; words++)
        command_add(command, *words);
}

void command_add_number(command *command, uint64_t number) {
    assert(command->number_count < COMMAND_NUMBERS_MAX);
    char *digits = command->numbers[command->number_count++];
    size_t length = text_put_number(digits, number);
    command_add_bytes(command, digits, length);
}

/* A kind, a number and the end of the line. */
static bool append_header(bytes *out, char kind, uint64_t number) {
    if (!bytes_reserve(out, 1 + TEXT_NUMBER_SIZE + LINE_END_SIZE)) return false;
    out->data[out->size++] = kind;
    out->size += text_put_number(out->data + out->size, number);
    return bytes_append(out, "\r\n", LINE_END_SIZE);
}

static bool append_word(bytes *out, const char *word, size_t length) {
    return append_header(out, '$', length) && bytes_append(out, word, length) &&
           bytes_append(out, "\r\n", LINE_END_SIZE);
}

static bool append_list(const command *command, bytes *out) {
    const char *text = command->list;
    bool is_added = true;
    for (int i = 0; i < command->list_count && is_added; i++, text = text_behind(text))
        is_added = append_word(out, text, strlen(text));
    return is_added;
}

bool command_append(const command *command, bytes *out) {
    size_t count = (size_t)command->count + (size_t)command->list_count + command->rest_count;
    bool is_added = append_header(out, '*', count);
    for (int i = 0; i < command->count && is_added; i++) {
        if (i == command->list_at && command->list_count > 0) is_added = append_list(command, out);
        is_added = is_added && append_word(out, command->words[i], command->lengths[i]);
    }
    for (size_t i = 0; i < command->rest_count && is_added; i++)
        is_added = append_word(out, command->rest[i], command->rest_lengths[i]);
    return is_added;
}

/* -- replies */

const reply *reply_element(const reply *array, size_t index) {
    const reply *element = reply_next(array, NULL);
    while (element != NULL && index-- > 0)
        element = reply_next(array, element);
    return element;
}

const reply *reply_next(const reply *array, const reply *element) {
    if (array->kind != REPLY_ARRAY) return NULL;
    const reply *next = element == NULL ? array + 1 : element + element->size;
    return next < array + array->size ? next : NULL;
}

const reply *reply_value(const reply *map, const char *name) {
    const reply *field = NULL, *value = NULL;
    if (map->count % 2 != 0) return NULL;
    while ((field = reply_next(map, value)) != NULL) {
        value = reply_next(map, field);
        if (reply_is_text(field, name)) return value;
    }
    return NULL;
}

static bool has_text(const reply *reply) {
    return reply->kind == REPLY_STATUS || reply->kind == REPLY_TEXT || reply->kind == REPLY_ERROR;
}

bool reply_is_text(const reply *reply, const char *text) {
    return has_text(reply) && reply->kind != REPLY_ERROR && reply->length == strlen(text) &&
           memcmp(reply->text, text, reply->length) == 0;
}

bool reply_begins_with(const reply *reply, const char *prefix) {
    size_t length = strlen(prefix);
    return has_text(reply) && reply->length >= length && memcmp(reply->text, prefix, length) == 0;
}

void reply_copy_text(const reply *reply, char *text, size_t size) {
    size_t length = has_text(reply) ? reply->length : 0;
    if (length >= size) length = size - 1;
    if (length > 0) memcpy(text, reply->text, length);
    text[length] = '\0';
}

reply *reply_copy(const reply *root) {
    size_t text_size = 0;
    for (size_t i = 0; i < root->size; i++)
        text_size += has_text(&root[i]) ? root[i].length + 1 : 0;
    reply *copy = malloc(root->size * sizeof(copy[0]) + text_size);
    if (copy == NULL) return NULL;
    char *text = (char *)(copy + root->size);
    for (size_t i = 0; i < root->size; i++) {
        copy[i] = root[i];
        if (!has_text(&root[i])) continue;
        reply_copy_text(&root[i], text, root[i].length + 1);
        copy[i].text = text;
        text += root[i].length + 1;
    }
    return copy;
}

int64_t reply_number(const reply *reply) {
    if (reply->kind == REPLY_INTEGER) return reply->integer < 0 ? -1 : reply->integer;
    if (!has_text(reply) || reply->kind == REPLY_ERROR) return -1;
    return text_read_number(reply->text, reply->length);
}

/* -- reading */

typedef struct cursor {
    const char *begin, *next, *end;
} cursor;

static size_t bytes_left(const cursor *cursor) {
    return (size_t)(cursor->end - cursor->next);
}

static resp_result skip_line_end(cursor *cursor) {
    if (bytes_left(cursor) > 0 && cursor->next[0] != '\r') return RESP_MALFORMED;
    if (bytes_left(cursor) > 1 && cursor->next[1] != '\n') return RESP_MALFORMED;
    if (bytes_left(cursor) < LINE_END_SIZE) return RESP_INCOMPLETE;
    cursor->next += LINE_END_SIZE;
    return RESP_REPLY;
}

/* A number and the end of the line. */
static resp_result read_integer(cursor *cursor, int64_t *integer) {
    if (cursor->next == cursor->end) return RESP_INCOMPLETE;
    bool is_negative = *cursor->next == '-';
    if (is_negative || *cursor->next == '+') cursor->next++;
    const char *first = cursor->next;
    uint64_t value = 0, max = (uint64_t)INT64_MAX + is_negative;
    for (; cursor->next < cursor->end && *cursor->next != '\r'; cursor->next++) {
        if (*cursor->next < '0' || *cursor->next > '9') return RESP_MALFORMED;
        if (cursor->next - first == DIGITS_MAX) return RESP_MALFORMED;
        uint64_t digit = (uint64_t)(*cursor->next - '0');
        if (value > (max - digit) / 10) return RESP_MALFORMED;
        value = value * 10 + digit;
    }
    if (cursor->next == cursor->end) return RESP_INCOMPLETE;
    if (cursor->next == first) return RESP_MALFORMED;
    *integer = is_negative ? (int64_t)(0 - value) : (int64_t)value;
    return skip_line_end(cursor);
}

/* Until the reply is complete, integer is the place of the text. */
static void begin_text(const cursor *cursor, reply *node, size_t length) {
    node->integer = cursor->next - cursor->begin;
    node->length = length;
}

/* *search: where to look for the end; when the line is incomplete, where to look the next time. */
static resp_result read_line(cursor *cursor, reply *node, size_t *search) {
    const char *from = cursor->begin + *search;
    if (from < cursor->next) from = cursor->next;
    for (;;) {
        const char *mark = memchr(from, '\r', (size_t)(cursor->end - from));
        if (mark == NULL || mark + 1 == cursor->end) {
            *search = (size_t)((mark == NULL ? cursor->end : mark) - cursor->begin);
            return RESP_INCOMPLETE;
        }
        from = mark + 1;
        if (mark[1] != '\n') continue;
        begin_text(cursor, node, (size_t)(mark - cursor->next));
        cursor->next = mark + LINE_END_SIZE;
        return RESP_REPLY;
    }
}

static resp_result read_text(cursor *cursor, reply *node) {
    size_t length = (size_t)node->integer;
    begin_text(cursor, node, length);
    if (bytes_left(cursor) < length) return RESP_INCOMPLETE;
    cursor->next += length;
    return skip_line_end(cursor);
}

/* One node; of an array without the elements. The number before a text or an array is the length;
 * -1 is a null. */
static resp_result read_node(cursor *cursor, reply *node, size_t *line_search) {
    static const char marks[] = {[REPLY_INTEGER] = ':',
                                 [REPLY_STATUS] = '+',
                                 [REPLY_ERROR] = '-',
                                 [REPLY_TEXT] = '$',
                                 [REPLY_ARRAY] = '*'};
    *node = (reply){.size = 1};
    if (cursor->next == cursor->end) return RESP_INCOMPLETE;
    const char *mark = *cursor->next == '\0' ? NULL : memchr(marks, *cursor->next, sizeof(marks));
    if (mark == NULL) return RESP_MALFORMED;
    cursor->next++;
    node->kind = (reply_kind)(mark - marks);
    if (node->kind == REPLY_STATUS || node->kind == REPLY_ERROR)
        return read_line(cursor, node, line_search);
    resp_result result = read_integer(cursor, &node->integer);
    if (result != RESP_REPLY || node->kind == REPLY_INTEGER) return result;
    if (node->integer < -1) return RESP_MALFORMED;
    if (node->kind == REPLY_TEXT && node->integer > RESP_TEXT_MAX) return RESP_MALFORMED;
    if (node->kind == REPLY_ARRAY && node->integer > RESP_NODES_MAX) return RESP_TOO_LONG;
    if (node->integer == -1)
        node->kind = REPLY_NIL;
    else if (node->kind == REPLY_ARRAY)
        node->count = (size_t)node->integer;
    return node->kind == REPLY_TEXT ? read_text(cursor, node) : RESP_REPLY;
}

/* Room for one more node. False: no memory. */
static bool reserve_node(resp_reader *reader) {
    if (reader->node_count < reader->node_capacity) return true;
    size_t capacity = reader->node_capacity == 0 ? NODES_FIRST : reader->node_capacity * 2;
    reply *nodes = realloc(reader->nodes, capacity * sizeof(nodes[0]));
    if (nodes == NULL) return false;
    reader->nodes = nodes;
    reader->node_capacity = capacity;
    return true;
}

/* The node is complete: it is the last element of the arrays that miss no other. */
static resp_result end_node(resp_reader *reader) {
    size_t index = reader->node_count++, count = reader->nodes[index].count;
    if (reader->depth > 0) reader->arrays[reader->depth - 1].missing--;
    if (count > 0) {
        if (reader->depth == RESP_DEPTH_MAX) return RESP_MALFORMED;
        reader->arrays[reader->depth].node = index;
        reader->arrays[reader->depth++].missing = count;
    }
    while (reader->depth > 0 && reader->arrays[reader->depth - 1].missing == 0) {
        size_t finished = reader->arrays[--reader->depth].node;
        reader->nodes[finished].size = reader->node_count - finished;
    }
    return reader->depth > 0 ? RESP_INCOMPLETE : RESP_REPLY;
}

static resp_result read_next(resp_reader *reader, cursor *cursor) {
    if (reader->node_count == RESP_NODES_MAX) return RESP_TOO_LONG;
    if (!reserve_node(reader)) return RESP_NO_MEMORY;
    return read_node(cursor, &reader->nodes[reader->node_count], &reader->line_search);
}

/* For a new reply. The memory of an unusually large reply is not kept for small ones. */
static void begin_reply(resp_reader *reader) {
    if (reader->node_capacity > NODES_KEPT) resp_reader_free(reader);
    reader->bytes_read = reader->line_search = reader->node_count = reader->depth = 0;
}

static void place_texts(resp_reader *reader, const char *bytes) {
    for (size_t i = 0; i < reader->node_count; i++) {
        reply *node = &reader->nodes[i];
        if (!has_text(node)) continue;
        node->text = bytes + node->integer;
        node->integer = 0;
    }
}

resp_result resp_read(resp_reader *reader, const char *bytes, size_t size, const reply **reply,
                      size_t *used) {
    if (reader->bytes_read == 0 && reader->line_search == 0) begin_reply(reader);
    cursor cursor = {bytes, bytes + reader->bytes_read, bytes + size};
    resp_result result = read_next(reader, &cursor);
    while (result == RESP_REPLY && (result = end_node(reader)) == RESP_INCOMPLETE) {
        reader->bytes_read = (size_t)(cursor.next - bytes);
        reader->line_search = 0;
        result = read_next(reader, &cursor);
    }
    if (result == RESP_INCOMPLETE) return result;
    reader->bytes_read = reader->line_search = 0;
    if (result != RESP_REPLY) return result;
    place_texts(reader, bytes);
    *reply = reader->nodes;
    *used = (size_t)(cursor.next - bytes);
    return RESP_REPLY;
}

void resp_reader_free(resp_reader *reader) {
    free(reader->nodes);
    *reader = (resp_reader){0};
}
