/* SPDX-License-Identifier: BSD-3-Clause */
/* keep.c - see keep.h. The strings are linked, so that LeakSanitizer finds none. */
#include "keep.h"

#include "complain.h"
#include <stdlib.h>
#include <string.h>

typedef struct kept {
    struct kept *next;
    char text[];
} kept;

static kept *last;

char *keep_room(size_t size) {
    kept *made = malloc(sizeof(*made) + size);
    if (made == NULL) {
        complain("no memory");
        exit(EXIT_CODE_NO_RESOURCES);
    }
    made->next = last;
    last = made;
    return made->text;
}

char *keep(const char *text) {
    size_t size = strlen(text) + 1;
    return memcpy(keep_room(size), text, size);
}
