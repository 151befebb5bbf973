/* SPDX-License-Identifier: BSD-3-Clause */
/* diagnostics.c - see diagnostics.h. */
#include "net/diagnostics.h"

#include <stdio.h>
#include <stdlib.h>

enum { LINES_MAX = 1000, LINE_SIZE = 600 };

typedef struct line {
    list_node node;
    dlock_log_level level;
    char text[LINE_SIZE];
} line;

void diagnostics_init(diagnostics *diagnostics, loop *loop, dlock_log_fn log, void *arg) {
    *diagnostics = (struct diagnostics){.loop = loop, .log = log, .arg = arg};
    list_init(&diagnostics->lines);
}

void diagnose(diagnostics *diagnostics, dlock_log_level level, const char *server, const char *what,
              const char *cause) {
    if (diagnostics == NULL || diagnostics->log == NULL || diagnostics->count >= LINES_MAX) return;
    line *line = calloc(1, sizeof(*line));
    if (line == NULL) return;
    line->level = level;
    snprintf(line->text, LINE_SIZE, "%s: %s%s%s", server, what, cause[0] != '\0' ? ": " : "",
             cause);
    list_append(&diagnostics->lines, &line->node);
    diagnostics->count++;
    diagnostics->on_line(diagnostics);
}

void diagnostics_tell(diagnostics *diagnostics) {
    list_node *first;
    while ((first = list_first(&diagnostics->lines)) != NULL) {
        line *line = container_of(first, struct line, node);
        list_remove(first);
        diagnostics->count--;
        loop_unlock(diagnostics->loop);
        diagnostics->log(diagnostics->arg, line->level, line->text);
        free(line);
        loop_lock(diagnostics->loop);
    }
}
