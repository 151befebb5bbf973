/* SPDX-License-Identifier: BSD-3-Clause */
/* json.c - see json.h. */
#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 8 };

/* What is open, from the outside to the inside. */
static struct level { bool is_array, has_item; } levels[DEPTH_MAX];
static int depth;

static void begin_item(const char *key) {
    struct level *in = &levels[depth];
    if (depth > 0 && in->is_array)
        printf("%s\n", in->has_item ? "," : "");
    else if (depth > 0)
        printf("%s\"%s\": ", in->has_item ? ", " : "", key);
    in->has_item = true;
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

/* How many bytes the character has; 0: it is not UTF-8. Overlong forms and surrogates are not. */
static size_t utf8_length(const unsigned char *c, size_t left) {
    size_t length = c[0] < 0x80 ? 1 : c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : 4;
    if (length == 0 || c[0] > 0xF4 || length > left) return 0;
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xC0) != 0x80) return 0;
    bool is_overlong = (c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xF0 && c[1] < 0x90);
    bool is_none = (c[0] == 0xED && c[1] > 0x9F) || (c[0] == 0xF4 && c[1] > 0x8F);
    return is_overlong || is_none ? 0 : length;
}

void json_bytes(const char *key, const char *bytes, size_t length) {
    begin_item(key);
    putchar('"');
    for (size_t i = 0; i < length;) {
        const unsigned char *c = (const unsigned char *)bytes + i;
        size_t size = utf8_length(c, length - i);
        if (size == 0)
            printf("\\ufffd");
        else if (*c == '"' || *c == '\\')
            printf("\\%c", *c);
        else if (*c < 0x20 || *c == 0x7F)
            printf("\\u%04x", *c);
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
