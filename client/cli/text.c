/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - see text.h. Pure.
 *
 *   escape      bytes that could do harm on a terminal become \xHH
 *   columns     a long text loses its middle
 *   durations   parsed, and shown in five characters */
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- escape: text from a server or another client, for a terminal */

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

/* -- columns: of tables */

/* Replaces the middle of a long text: names with the same prefix differ at the end. */
static const char gap[] = "..";

/* Characters that take two columns of a terminal: those of East Asia, and most pictures. A sequence
 * of several, such as an accent of its own, may take fewer columns than counted. */
static bool is_wide(const unsigned char *c, size_t size) {
    if (size < 3) return false;
    unsigned code = (c[0] & 0x0Fu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu);
    if (size == 4) return c[0] == 0xF0 && (c[1] >= 0xA0 || (c[1] == 0x9F && c[2] >= 0x8C));
    return (code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) ||
           (code >= 0xAC00 && code <= 0xD7A3) || (code >= 0xF900 && code <= 0xFAFF) ||
           (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60);
}

/* size: of a safe character; 0: one byte, as \xHH. */
static size_t columns_of(const char *bytes, size_t size) {
    if (size == 0) return 4;
    return is_wide((const unsigned char *)bytes, size) ? 2 : 1;
}

/* How many bytes at the front fit; columns: those that they take. */
static size_t fit_front(const char *bytes, size_t length, size_t width, size_t *columns) {
    size_t used = 0;
    for (*columns = 0; used < length;) {
        size_t size = escape_safe_length(bytes + used, length - used);
        size_t more = columns_of(bytes + used, size);
        if (*columns + more > width) break;
        *columns += more;
        used += size > 0 ? size : 1;
    }
    return used;
}

/* The same at the end. */
static size_t fit_end(const char *bytes, size_t length, size_t width, size_t *columns) {
    size_t used = 0;
    for (*columns = 0; used < length;) {
        const char *end = bytes + length - used;
        size_t size = length - used < 4 ? length - used : 4;
        while (size > 0 && escape_safe_length(end - size, size) != size)
            size--;
        size_t more = columns_of(end - size, size);
        if (*columns + more > width) break;
        *columns += more;
        used += size > 0 ? size : 1;
    }
    return used;
}

size_t column_cut(const char *text, size_t width) {
    size_t columns;
    return fit_front(text, strlen(text), width, &columns);
}

const char *column_show(char text[COLUMN_MAX * 4 + 1], const char *bytes, size_t length,
                        size_t width, int is_padded) {
    enum { SIZE = COLUMN_MAX * 4 + 1, SHORT = 8 };
    size_t shown, tail_shown;
    if (width > COLUMN_MAX) width = COLUMN_MAX;
    size_t head = fit_front(bytes, length, width, &shown);
    bool has_gap = head < length && width > SHORT;
    if (has_gap) head = fit_front(bytes, length, width - width / 3 - strlen(gap), &shown);
    escape_text(text, SIZE, bytes, head);
    if (has_gap) {
        size_t tail = fit_end(bytes + head, length - head, width / 3, &tail_shown);
        strcat(text, gap);
        escape_text(text + strlen(text), SIZE - strlen(text), bytes + length - tail, tail);
        shown += strlen(gap) + tail_shown;
    }
    size_t used = strlen(text);
    for (; is_padded && shown < width; shown++)
        text[used++] = ' ';
    text[used] = '\0';
    return text;
}

/* -- durations: 500ms, 5s, 2m, 1h, 1d; a bare number is seconds */

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR, DAYS_MAX = 366 };

static const struct unit {
    const char *name;
    int64_t ms;
} units[] = {{"ms", 1}, {"s", SECOND}, {"", SECOND}, {"m", MINUTE}, {"h", HOUR}, {"d", DAY}};

bool duration_parse(const char *text, int64_t *ms) {
    char *end;
    double number = strtod(text, &end);
    size_t digits = strspn(text, "0123456789."); /* no sign, blank, exponent or infinity */
    if (digits == 0 || text + digits != end) return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].name) != 0) continue;
        double product = number * (double)units[i].ms;
        if (product > (double)DAYS_MAX * DAY) return false;
        *ms = (int64_t)(product + 0.5);
        return product == 0 || *ms > 0; /* 0.1ms is not "do not wait" */
    }
    return false;
}

void duration_show(int64_t ms, char text[DURATION_SIZE]) {
    int64_t seconds = ms / SECOND;
    if (ms < 0)
        snprintf(text, DURATION_SIZE, "-");
    else if (ms < SECOND)
        snprintf(text, DURATION_SIZE, "%dms", (int)ms);
    else if (ms < 10 * SECOND)
        snprintf(text, DURATION_SIZE, "%d.%ds", (int)seconds, (int)(ms % SECOND / 100));
    else if (ms < MINUTE)
        snprintf(text, DURATION_SIZE, "%ds", (int)seconds);
    else if (ms < HOUR)
        snprintf(text, DURATION_SIZE, "%dm%02d", (int)(seconds / 60), (int)(seconds % 60));
    else if (ms < DAY)
        snprintf(text, DURATION_SIZE, "%dh%02d", (int)(seconds / 3600), (int)(seconds / 60 % 60));
    else
        snprintf(text, DURATION_SIZE, "%lldd", (long long)(ms / DAY));
}
