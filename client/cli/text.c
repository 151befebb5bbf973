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

static size_t append(char *end, unsigned char byte) {
    if (byte >= 0x20 && byte < 0x7F) {
        *end = (char)byte;
        return 1;
    }
    return (size_t)sprintf(end, "\\x%02x", byte);
}

const char *column_show(char text[COLUMN_MAX * 4 + 1], const char *bytes, size_t length,
                        size_t width, int is_padded) {
    char all[4 * COLUMN_MAX + 8];
    size_t size = 0;
    if (width > COLUMN_MAX) width = COLUMN_MAX;
    for (size_t i = 0; i < length && i < COLUMN_MAX; i++)
        size += append(all + size, (unsigned char)bytes[i]);
    if (size > width && width > 8) {
        size_t tail = width / 3, head = width - tail - strlen(gap);
        sprintf(text, "%.*s%s%.*s", (int)head, all, gap, (int)tail, all + size - tail);
    } else {
        size_t shown = size < width ? size : width;
        memcpy(text, all, shown);
        text[shown] = '\0';
    }
    for (size_t shown = strlen(text); is_padded && shown < width; shown++)
        strcpy(text + shown, " ");
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
