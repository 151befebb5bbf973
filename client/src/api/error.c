/* SPDX-License-Identifier: BSD-3-Clause */
/* error.c - see error.h. */
#include "api/error.h"

#include "base/text.h"

static _Thread_local char text[ERROR_TEXT_SIZE];

dlock_status error_set(dlock_status status, const char *why) {
    if (status == DLOCK_OK)
        why = "";
    else if (why[0] == '\0')
        why = dlock_status_text(status);
    text_copy(text, sizeof(text), why);
    return status;
}

const char *dlock_error(void) {
    return text;
}
