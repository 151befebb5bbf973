/* SPDX-License-Identifier: BSD-3-Clause */
/* output.c - see output.h.
 *
 *   JSON      written as it comes; the open levels know whether a comma is due
 *   the end   the first error of a write is kept */
#include "output.h"

#include "text.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* -- JSON */

enum { DEPTH_MAX = 8 };

/* The open levels, from the outside to the inside. */
static struct level { bool is_array, has_item; } levels[DEPTH_MAX];
static int depth;

static void begin_item(const char *key) {
    struct level *level = &levels[depth];
    if (depth > 0 && level->is_array)
        printf("%s\n", level->has_item ? "," : "");
    else if (depth > 0)
        printf("%s\"%s\": ", level->has_item ? ", " : "", key);
    level->has_item = true;
}

static void begin_level(const char *key, bool is_array) {
    begin_item(key);
    levels[++depth] = (struct level){.is_array = is_array};
    putchar(is_array ? '[' : '{');
}

static void end_level(void) {
    struct level old = levels[depth--];
    if (old.is_array && old.has_item) putchar('\n');
    putchar(old.is_array ? ']' : '}');
    if (depth == 0) putchar('\n');
}

void json_array_begin(const char *key) {
    begin_level(key, true);
}

void json_array_end(void) {
    end_level();
}

void json_object_begin(const char *key) {
    begin_level(key, false);
}

void json_object_end(void) {
    end_level();
}

/* The code point of a character of up to three bytes. Characters of four bytes are all safe. */
static unsigned code_point(const unsigned char *c, size_t size) {
    if (size == 1) return c[0];
    if (size == 2) return (c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu);
    return (c[0] & 0x0Fu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu);
}

void json_bytes(const char *key, const char *bytes, size_t length) {
    begin_item(key);
    putchar('"');
    for (size_t i = 0; i < length;) {
        const unsigned char *c = (const unsigned char *)bytes + i;
        size_t size = escape_utf8_length(bytes + i, length - i);
        if (size == 0)
            printf("\\ufffd");
        else if (*c == '"' || *c == '\\')
            printf("\\%c", *c);
        else if (escape_safe_length(bytes + i, length - i) == 0)
            printf("\\u%04x", code_point(c, size));
        else
            fwrite(c, 1, size, stdout);
        i += size == 0 ? 1 : size;
    }
    putchar('"');
}

void json_text(const char *key, const char *text) {
    json_bytes(key, text, strlen(text));
}

void json_number(const char *key, int64_t number) {
    begin_item(key);
    printf("%" PRId64, number);
}

void json_decimal(const char *key, double number) {
    begin_item(key);
    printf("%.3f", number);
}

void json_fact(const char *key, bool fact) {
    begin_item(key);
    printf(fact ? "true" : "false");
}

/* -- the end */

/* stdio forgets the cause: ferror(3) is a flag, and the next fflush(3) succeeds. */
static int first_error;

int output_flush(void) {
    bool is_flushed = fflush(stdout) == 0;
    if (first_error == 0 && !is_flushed) first_error = errno;
    if (first_error == 0 && ferror(stdout)) first_error = EIO; /* a write between two flushes */
    return first_error;
}
