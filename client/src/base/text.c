/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - see text.h. */
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

const char text_nothing[] = "";

size_t text_put_number(char text[TEXT_NUMBER_SIZE], uint64_t number) {
    char reversed[TEXT_NUMBER_SIZE];
    size_t length = 0;
    do {
        reversed[length++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (size_t i = 0; i < length; i++)
        text[i] = reversed[length - 1 - i];
    text[length] = '\0';
    return length;
}

int64_t text_read_number(const char *digits, size_t length) {
    int64_t number = length == 0 ? -1 : 0;
    for (size_t i = 0; i < length; i++) {
        int digit = digits[i] - '0';
        if (digit < 0 || digit > 9 || number > (INT64_MAX - digit) / 10) return -1;
        number = number * 10 + digit;
    }
    return number;
}

void text_put_hex(char *text, const unsigned char *bytes, size_t count) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
}

void text_copy(char *text, size_t size, const char *source) {
    size_t length = strlen(source);
    if (length >= size) length = size - 1;
    memcpy(text, source, length);
    text[length] = '\0';
}

void text_append(char *text, size_t size, const char *more) {
    size_t length = strlen(text);
    text_copy(text + length, size - length, more);
}

void text_drop(const char **text) {
    if (*text != text_nothing) free((void *)*text);
    *text = text_nothing;
}

void text_keep(const char **text, size_t size, const char *source) {
    size_t length = strnlen(source, size - 1);
    char *kept = length == 0 ? NULL : malloc(length + 1); /* the source may be the old text */
    if (kept != NULL) text_copy(kept, length + 1, source);
    text_drop(text);
    if (kept != NULL) *text = kept;
}

uint64_t text_hash_bytes(const char *bytes, size_t count) {
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
    return hash;
}

const char *text_behind(const char *text) {
    return text + strlen(text) + 1;
}

size_t text_list_size(const char *first, size_t count) {
    const char *end = text_behind(first);
    while (count-- > 1)
        end = text_behind(end);
    return (size_t)(end - first);
}

uint64_t text_hash(const char *text) {
    return text_hash_bytes(text, strlen(text));
}
