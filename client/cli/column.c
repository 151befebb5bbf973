/* SPDX-License-Identifier: BSD-3-Clause */
/* column.c - see column.h. */
#include "column.h"

#include <stdio.h>
#include <string.h>

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
