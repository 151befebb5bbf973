/* SPDX-License-Identifier: BSD-3-Clause */
/* cluster_slot.c - see cluster_slot.h. The hash is CRC-16/XMODEM, as Redis Cluster specifies. */
#include "cluster_slot.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { POLYNOMIAL = 0x1021, TOP_BIT = 0x8000, KEY_MAX = 64 + 11 };

static uint16_t crc16(uint16_t crc, const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        crc = (uint16_t)(crc ^ (unsigned)(unsigned char)bytes[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & TOP_BIT ? crc << 1 ^ POLYNOMIAL : crc << 1);
    }
    return crc;
}

uint16_t cluster_slot(const char *key, size_t length) {
    const char *open = memchr(key, '{', length);
    if (open != NULL) {
        const char *tag = open + 1;
        const char *close = memchr(tag, '}', length - (size_t)(tag - key));
        if (close != NULL && close != tag)
            return crc16(0, tag, (size_t)(close - tag)) % CLUSTER_SLOTS;
    }
    return crc16(0, key, length) % CLUSTER_SLOTS;
}

void cluster_slot_find_suffixes(const char *prefix, size_t length,
                                uint32_t suffixes[CLUSTER_SLOTS]) {
    static bool is_found[CLUSTER_SLOTS];
    memset(is_found, 0, sizeof(is_found));
    uint16_t start = crc16(0, prefix, length);
    for (uint32_t number = 0, missing = CLUSTER_SLOTS; missing > 0; number++) {
        char digits[KEY_MAX];
        int count = snprintf(digits, sizeof(digits), "%u", number);
        uint16_t slot = crc16(start, digits, (size_t)count) % CLUSTER_SLOTS;
        if (is_found[slot]) continue;
        is_found[slot] = true;
        suffixes[slot] = number;
        missing--;
    }
}
