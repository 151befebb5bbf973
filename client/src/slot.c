/* SPDX-License-Identifier: BSD-3-Clause */
/* slot.c - see slot.h. */
#include "slot.h"

#include <string.h>

enum { PORT_MAX = 65535 };

/* CRC-16/XMODEM: polynomial 0x1021, begins with 0, most significant bit first; eight bits of it in
 * one step. */
static uint16_t crc16(const char *bytes, size_t length) {
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned mixed = (crc >> 8 ^ (unsigned char)bytes[i]) & 0xff;
        mixed ^= mixed >> 4;
        crc = (crc << 8 ^ mixed << 12 ^ mixed << 5 ^ mixed) & 0xffff;
    }
    return (uint16_t)crc;
}

unsigned slot_of(const char *key, size_t length) {
    const char *open = memchr(key, '{', length);
    if (open != NULL) {
        size_t left = length - (size_t)(open + 1 - key);
        const char *close = memchr(open + 1, '}', left);
        if (close != NULL && close > open + 1)
            return crc16(open + 1, (size_t)(close - open - 1)) % SLOT_COUNT;
    }
    return crc16(key, length) % SLOT_COUNT;
}

/* Takes digits from the text, and the mark behind them. -1: there is no number up to max. */
static int take_number(const char **text, char mark, int max) {
    const char *at = *text;
    int value = 0;
    if (*at < '0' || *at > '9') return -1;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (*at - '0');
        if (value > max) return -1;
    }
    if (*at != mark) return -1;
    *text = mark == '\0' ? at : at + 1;
    return value;
}

bool slot_read_hint(slot_hint *to, const char *error) {
    *to = (slot_hint){0};
    to->is_ask = strncmp(error, "ASK ", 4) == 0;
    if (!to->is_ask && strncmp(error, "MOVED ", 6) != 0) return false;
    const char *rest = error + (to->is_ask ? 4 : 6);
    int slot = take_number(&rest, ' ', SLOT_COUNT - 1);
    const char *colon = strrchr(rest, ':'); /* the last one: an IPv6 address has others */
    if (slot < 0 || colon == NULL) return false;
    size_t length = (size_t)(colon - rest);
    if (length > SLOT_HOST_MAX || memchr(rest, ' ', length) != NULL) return false;
    memcpy(to->host, rest, length);
    if (slot_known_host(to->host)[0] == '\0') to->host[0] = '\0';
    rest = colon + 1;
    to->slot = (unsigned)slot;
    to->port = take_number(&rest, '\0', PORT_MAX);
    return to->port > 0;
}

const char *slot_known_host(const char *host) {
    return strcmp(host, "?") == 0 ? "" : host;
}
