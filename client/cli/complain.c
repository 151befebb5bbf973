/* SPDX-License-Identifier: BSD-3-Clause */
/* complain.c - see complain.h. One write(2) per line: several processes may share the stream. */
#include "complain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void complain(const char *format, ...) {
    char line[1024] = "dlock: ";
    size_t length = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    if (write(STDERR_FILENO, line, strlen(line)) < 0) return; /* there is nobody to tell */
}

exit_code complain_status(const char *what, dlock_status status, const char *cause) {
    if (cause[0] == '\0')
        complain("%s: %s", what, dlock_status_text(status));
    else
        complain("%s: %s (%s)", what, dlock_status_text(status), cause);
    return exit_code_of(status);
}
