/* SPDX-License-Identifier: BSD-3-Clause */
/* duration.c - see duration.h. */
#include "duration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR, DAYS_MAX = 366 };

static const struct unit {
    const char *name;
    int64_t ms;
} units[] = {{"ms", 1}, {"s", SECOND}, {"", SECOND}, {"m", MINUTE}, {"h", HOUR}, {"d", DAY}};

bool duration_parse(const char *text, int64_t *ms) {
    char *end;
    double number = strtod(text, &end);
    size_t digits = strspn(text, "0123456789."); /* no sign, blank, exponent or infinity */
    if (digits == 0 || text + digits != end) return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].name) != 0) continue;
        double product = number * (double)units[i].ms;
        if (product > (double)DAYS_MAX * DAY) return false;
        *ms = (int64_t)(product + 0.5);
        return product == 0 || *ms > 0; /* 0.1ms is not "do not wait" */
    }
    return false;
}

void duration_show(int64_t ms, char text[DURATION_SIZE]) {
    int64_t seconds = ms / SECOND;
    if (ms < 0)
        snprintf(text, DURATION_SIZE, "-");
    else if (ms < SECOND)
        snprintf(text, DURATION_SIZE, "%dms", (int)ms);
    else if (ms < 10 * SECOND)
        snprintf(text, DURATION_SIZE, "%d.%ds", (int)seconds, (int)(ms % SECOND / 100));
    else if (ms < MINUTE)
        snprintf(text, DURATION_SIZE, "%ds", (int)seconds);
    else if (ms < HOUR)
        snprintf(text, DURATION_SIZE, "%dm%02d", (int)(seconds / 60), (int)(seconds % 60));
    else if (ms < DAY)
        snprintf(text, DURATION_SIZE, "%dh%02d", (int)(seconds / 3600), (int)(seconds / 60 % 60));
    else
        snprintf(text, DURATION_SIZE, "%lldd", (long long)(ms / DAY));
}
