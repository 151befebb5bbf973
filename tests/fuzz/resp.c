/* SPDX-License-Identifier: BSD-3-Clause */
/* resp.c - bytes from a server, read as a reply (client/src/net/resp.c). However the bytes arrive,
 * the reply is the same: a shorter part of a whole reply is incomplete, and bytes behind the reply
 * change nothing. */
#include "net/resp.h"

#include "fuzz.h"

enum { SPLITS_MAX = 64 };

/* The sizes of the elements add up, and every text lies within the bytes. */
static void check_tree(const reply *root, const char *bytes, size_t used) {
    for (size_t i = 0; i < root->size; i++) {
        const reply *node = &root[i], *element = NULL;
        size_t count = 0, size = 1;
        MUST(node->size >= 1 && i + node->size <= root->size);
        if (node->kind == REPLY_STATUS || node->kind == REPLY_TEXT || node->kind == REPLY_ERROR)
            MUST(node->text >= bytes && node->text + node->length + 2 <= bytes + used);
        while ((element = reply_next(node, element)) != NULL && count < node->count) {
            MUST(element == reply_element(node, count));
            size += element->size;
            count++;
        }
        MUST(count == node->count && size == node->size);
    }
}

static bool is_same_node(const reply *one, const reply *other) {
    if (one->kind != other->kind || one->integer != other->integer) return false;
    if (one->count != other->count || one->size != other->size) return false;
    return one->length == other->length &&
           (one->length == 0 || memcmp(one->text, other->text, one->length) == 0);
}

static void check_copy(const reply *root) {
    reply *copy = reply_copy(root);
    MUST(copy != NULL);
    for (size_t i = 0; i < root->size; i++) {
        MUST(is_same_node(&root[i], &copy[i]));
        MUST(reply_number(&root[i]) == reply_number(&copy[i]));
    }
    free(copy);
}

/* Fewer bytes give no other reply, and no error. Reads up to SPLITS_MAX parts. */
static void check_parts(const uint8_t *data, size_t used) {
    size_t step = used / SPLITS_MAX + 1;
    for (size_t part = 0; part < used; part += step) {
        resp_reader reader = {0};
        const reply *root = NULL;
        size_t part_used;
        char *bytes = fuzz_copy(data, part);
        MUST(resp_read(&reader, bytes, part, &root, &part_used) == RESP_INCOMPLETE);
        resp_reader_free(&reader);
        free(bytes);
    }
}

/* A reply that arrives in pieces is the same. */
static void check_pieces(const uint8_t *data, size_t used, const reply *root) {
    resp_reader reader = {0};
    const reply *joined = NULL;
    size_t step = used / SPLITS_MAX + 1, part_used = 0;
    for (size_t part = step; part < used; part += step) {
        char *bytes = fuzz_copy(data, part);
        MUST(resp_read(&reader, bytes, part, &joined, &part_used) == RESP_INCOMPLETE);
        free(bytes);
    }
    char *bytes = fuzz_copy(data, used);
    MUST(resp_read(&reader, bytes, used, &joined, &part_used) == RESP_REPLY);
    MUST(part_used == used && joined->size == root->size);
    for (size_t i = 0; i < root->size; i++)
        MUST(is_same_node(&joined[i], &root[i]));
    resp_reader_free(&reader);
    free(bytes);
}

/* The reply alone is the same as the reply with further bytes behind it. */
static void check_alone(const uint8_t *data, size_t used, const reply *root) {
    resp_reader reader = {0};
    const reply *alone = NULL;
    size_t alone_used = 0;
    char *bytes = fuzz_copy(data, used);
    MUST(resp_read(&reader, bytes, used, &alone, &alone_used) == RESP_REPLY);
    MUST(alone_used == used && alone->size == root->size);
    for (size_t i = 0; i < root->size; i++)
        MUST(is_same_node(&alone[i], &root[i]));
    resp_reader_free(&reader);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    resp_reader reader = {0};
    char *bytes = fuzz_copy(data, size);
    size_t begin = 0, used = 0;
    const reply *root = NULL;
    while (resp_read(&reader, bytes + begin, size - begin, &root, &used) == RESP_REPLY) {
        MUST(used > 0 && used <= size - begin);
        check_tree(root, bytes + begin, used);
        check_copy(root);
        check_parts(data + begin, used);
        check_pieces(data + begin, used, root);
        check_alone(data + begin, used, root);
        begin += used;
    }
    resp_reader_free(&reader);
    free(bytes);
    return 0;
}
