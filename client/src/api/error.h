/* SPDX-License-Identifier: BSD-3-Clause */
/* error.h - of status.c: the text of dlock_error(), which each thread has for itself. */
#pragma once
#include "dlock.h"

enum { ERROR_TEXT_SIZE = 256 };

/* Of DLOCK_OK "", else why, or the meaning of the status if why is "". */
const char *error_words(dlock_status status, const char *why);
/* Sets the text for the calling thread to these words. The result is the status. */
dlock_status error_set(dlock_status status, const char *why);
