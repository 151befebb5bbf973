/* SPDX-License-Identifier: BSD-3-Clause */
/* redirect.c - see lock_commands.h. */
#include "protocol/lock_commands.h"

#include "base/text.h"

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

bool redirect_read(redirect *redirect, const char *error) {
    memset(redirect, 0, sizeof(*redirect));
    redirect->is_ask = strncmp(error, "ASK ", 4) == 0;
    if (!redirect->is_ask && strncmp(error, "MOVED ", 6) != 0) return false;
    const char *digits = error + (redirect->is_ask ? 4 : 6), *blank = strchr(digits, ' ');
    const char *colon = strrchr(digits, ':'); /* the last colon: an IPv6 address has more */
    if (blank == NULL || colon == NULL || colon < blank) return false;
    int64_t slot = text_read_number(digits, (size_t)(blank - digits));
    int64_t port = text_read_number(colon + 1, strlen(colon + 1));
    if (slot < 0 || slot >= SLOT_COUNT || port < 1 || port > PORT_MAX) return false;
    size_t length = (size_t)(colon - blank - 1);
    if (length > REDIRECT_HOST_MAX || memchr(blank + 1, ' ', length) != NULL) return false;
    memcpy(redirect->host, blank + 1, length);
    if (strcmp(redirect->host, HOST_UNKNOWN) == 0) redirect->host[0] = '\0';
    redirect->slot = (unsigned)slot;
    redirect->port = (int)port;
    return true;
}
