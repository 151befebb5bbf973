/* SPDX-License-Identifier: BSD-3-Clause */
/* escape.c - see escape.h. */
#include "escape.h"

#include <stdio.h>
#include <string.h>

size_t escape_utf8_length(const char *bytes, size_t length) {
    const unsigned char *c = (const unsigned char *)bytes;
    if (length == 0) return 0;
    size_t size = c[0] < 0x80 ? 1 : c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : 4;
    if (size == 0 || c[0] > 0xF4 || size > length) return 0;
    for (size_t i = 1; i < size; i++)
        if ((c[i] & 0xC0) != 0x80) return 0;
    bool is_overlong = (c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xF0 && c[1] < 0x90);
    bool is_none = (c[0] == 0xED && c[1] > 0x9F) || (c[0] == 0xF4 && c[1] > 0x8F);
    return is_overlong || is_none ? 0 : size;
}

/* U+200E, U+200F, U+2028 to U+202E and U+2066 to U+2069. */
static bool is_direction_mark(const unsigned char *c) {
    if (c[0] != 0xE2) return false;
    if (c[1] == 0x80) return c[2] == 0x8E || c[2] == 0x8F || (c[2] >= 0xA8 && c[2] <= 0xAE);
    return c[1] == 0x81 && c[2] >= 0xA6 && c[2] <= 0xA9;
}

size_t escape_safe_length(const char *bytes, size_t length) {
    const unsigned char *c = (const unsigned char *)bytes;
    size_t size = escape_utf8_length(bytes, length);
    bool is_control = size == 1 && (c[0] < 0x20 || c[0] == 0x7F);
    bool is_c1 = size == 2 && c[0] == 0xC2 && c[1] < 0xA0;
    return is_control || is_c1 || (size == 3 && is_direction_mark(c)) ? 0 : size;
}

const char *escape_text(char *safe, size_t size, const char *bytes, size_t length) {
    size_t used = 0;
    for (size_t i = 0; i < length;) {
        char piece[8];
        size_t whole = escape_safe_length(bytes + i, length - i), piece_length = whole;
        if (whole > 0)
            memcpy(piece, bytes + i, whole);
        else
            piece_length = (size_t)snprintf(piece, sizeof(piece), "\\x%02x", bytes[i] & 0xFF);
        if (used + piece_length >= size) break;
        memcpy(safe + used, piece, piece_length);
        used += piece_length;
        i += whole > 0 ? whole : 1;
    }
    safe[used] = '\0';
    return safe;
}
