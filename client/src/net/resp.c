/* SPDX-License-Identifier: BSD-3-Clause */
/* resp.c - see resp.h.
 *
 *   commands   words, then bytes: *count, and $length and the bytes of every word
 *   replies    access to the nodes
 *   reading    read_node() reads one node; resp_read() loops over nodes and keeps the unfinished
 *              arrays on a stack, so that no recursion follows a hostile server
 *
 * An incomplete reply leaves no state behind: the next call reads from the first byte again. Every
 * node takes at least three bytes on the wire, so the memory for nodes is proportional to the bytes
 * that have arrived, whatever lengths the server announces. */
#include "net/resp.h"

#include "base/text.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_FIRST = 16, NODES_KEPT = 1024, LINE_END_SIZE = 2 };

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

bool command_append(const command *command, bytes *out) {
    bool is_added = append_header(out, '*', (uint64_t)command->count + command->rest_count);
    for (int i = 0; i < command->count && is_added; i++)
        is_added = append_word(out, command->words[i], command->lengths[i]);
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
    const char *next, *end;
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
        uint64_t digit = (uint64_t)(*cursor->next - '0');
        if (value > (max - digit) / 10) return RESP_MALFORMED;
        value = value * 10 + digit;
    }
    if (cursor->next == cursor->end) return RESP_INCOMPLETE;
    if (cursor->next == first) return RESP_MALFORMED;
    *integer = is_negative ? (int64_t)(0 - value) : (int64_t)value;
    return skip_line_end(cursor);
}

static resp_result read_line(cursor *cursor, reply *node) {
    node->text = cursor->next;
    for (;;) {
        const char *mark = memchr(cursor->next, '\r', bytes_left(cursor));
        if (mark == NULL || mark + 1 == cursor->end) return RESP_INCOMPLETE;
        cursor->next = mark + 1;
        if (mark[1] != '\n') continue;
        cursor->next++;
        node->length = (size_t)(mark - node->text);
        return RESP_REPLY;
    }
}

static resp_result read_text(cursor *cursor, reply *node) {
    node->text = cursor->next;
    node->length = (size_t)node->integer;
    if (bytes_left(cursor) < node->length) return RESP_INCOMPLETE;
    cursor->next += node->length;
    return skip_line_end(cursor);
}

/* One node; of an array without the elements. The number before a text or an array is the length;
 * -1 is a null. */
static resp_result read_node(cursor *cursor, reply *node) {
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
    if (node->kind == REPLY_STATUS || node->kind == REPLY_ERROR) return read_line(cursor, node);
    resp_result result = read_integer(cursor, &node->integer);
    if (result != RESP_REPLY || node->kind == REPLY_INTEGER) return result;
    int64_t max = node->kind == REPLY_TEXT ? RESP_TEXT_MAX : RESP_NODES_MAX;
    if (node->integer < -1 || node->integer > max) return RESP_MALFORMED;
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

resp_result resp_read(resp_reader *reader, const char *bytes, size_t size, const reply **reply,
                      size_t *used) {
    struct {
        size_t node, missing; /* an unfinished array, and how many elements are still to come */
    } stack[RESP_DEPTH_MAX];
    size_t depth = 0;
    cursor cursor = {bytes, bytes + size};
    /* The memory of an unusually large reply is not kept for small ones. */
    if (reader->node_capacity > NODES_KEPT) resp_reader_free(reader);
    reader->node_count = 0;
    do {
        if (reader->node_count == RESP_NODES_MAX) return RESP_MALFORMED;
        if (!reserve_node(reader)) return RESP_NO_MEMORY;
        size_t index = reader->node_count;
        resp_result result = read_node(&cursor, &reader->nodes[index]);
        if (result != RESP_REPLY) return result;
        reader->node_count++;
        if (depth > 0) stack[depth - 1].missing--;
        if (reader->nodes[index].count > 0) {
            if (depth == RESP_DEPTH_MAX) return RESP_MALFORMED;
            stack[depth].node = index;
            stack[depth++].missing = reader->nodes[index].count;
        }
        while (depth > 0 && stack[depth - 1].missing == 0) {
            size_t finished = stack[--depth].node;
            reader->nodes[finished].size = reader->node_count - finished;
        }
    } while (depth > 0);
    *reply = reader->nodes;
    *used = (size_t)(cursor.next - bytes);
    return RESP_REPLY;
}

void resp_reader_free(resp_reader *reader) {
    free(reader->nodes);
    *reader = (resp_reader){0};
}
