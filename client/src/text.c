/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - see text.h. */
#include "text.h"

#include <string.h>

size_t text_put_number(char to[TEXT_NUMBER_SIZE], uint64_t number) {
    char reversed[TEXT_NUMBER_SIZE];
    size_t length = 0;
    do {
        reversed[length++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (size_t i = 0; i < length; i++)
        to[i] = reversed[length - 1 - i];
    to[length] = '\0';
    return length;
}

void text_put_hex(char *to, const unsigned char *bytes, size_t count) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    *to = '\0';
}

void text_copy(char *to, size_t size, const char *from) {
    size_t length = strlen(from);
    if (length >= size) length = size - 1;
    memcpy(to, from, length);
    to[length] = '\0';
}

void text_append(char *to, size_t size, const char *more) {
    size_t length = strlen(to);
    text_copy(to + length, size - length, more);
}

uint64_t text_hash(const char *of) {
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (; *of != '\0'; of++)
        hash = (hash ^ (unsigned char)*of) * 1099511628211u;
    return hash;
}
