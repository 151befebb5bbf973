/* SPDX-License-Identifier: BSD-3-Clause */
/* redirect.c - see redirect.h. */
#include "protocol/redirect.h"

#include <string.h>

enum { PORT_MAX = 65535 };

/* CRC-16/XMODEM: polynomial 0x1021, initial value 0, most significant bit first. */
static unsigned crc16(const char *bytes, size_t length) {
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned mixed = (crc >> 8 ^ (unsigned char)bytes[i]) & 0xff;
        mixed ^= mixed >> 4;
        crc = (crc << 8 ^ mixed << 12 ^ mixed << 5 ^ mixed) & 0xffff;
    }
    return crc;
}

unsigned slot_of_key(const char *key, size_t length) {
    const char *end = key + length, *open = memchr(key, '{', length);
    const char *close = open == NULL ? NULL : memchr(open, '}', (size_t)(end - open));
    if (close == NULL || close == open + 1) return crc16(key, length) % SLOT_COUNT;
    return crc16(open + 1, (size_t)(close - open - 1)) % SLOT_COUNT;
}

/* Moves *text behind a number and the mark after the number. -1: no number up to max, or no
 * mark. */
static int take_number(const char **text, char mark, int max) {
    const char *next = *text;
    int value = 0;
    if (*next < '0' || *next > '9') return -1;
    for (; *next >= '0' && *next <= '9'; next++) {
        value = value * 10 + (*next - '0');
        if (value > max) return -1;
    }
    if (*next != mark) return -1;
    *text = mark == '\0' ? next : next + 1;
    return value;
}

bool redirect_read(redirect *redirect, const char *error) {
    memset(redirect, 0, sizeof(*redirect));
    redirect->is_ask = strncmp(error, "ASK ", 4) == 0;
    if (!redirect->is_ask && strncmp(error, "MOVED ", 6) != 0) return false;
    const char *rest = error + (redirect->is_ask ? 4 : 6);
    int slot = take_number(&rest, ' ', SLOT_COUNT - 1);
    const char *colon = strrchr(rest, ':'); /* the last colon: an IPv6 address has more */
    if (slot < 0 || colon == NULL) return false;
    size_t length = (size_t)(colon - rest);
    if (length > REDIRECT_HOST_MAX || memchr(rest, ' ', length) != NULL) return false;
    memcpy(redirect->host, rest, length);
    if (strcmp(redirect->host, HOST_UNKNOWN) == 0) redirect->host[0] = '\0';
    rest = colon + 1;
    redirect->slot = (unsigned)slot;
    redirect->port = take_number(&rest, '\0', PORT_MAX);
    return redirect->port > 0;
}
