/* SPDX-License-Identifier: BSD-3-Clause */
/* holder.c - see holder.h. */
#include "holder.h"

#include "duration.h"
#include "sightings.h"
#include <inttypes.h>
#include <stdio.h>

void holder_describe(dlock_client *client, const request *request, const char *name, char *text,
                     size_t size) {
    char age[DURATION_SIZE], since[DURATION_SIZE + 8] = "", more[40] = "";
    sightings sightings = {0};
    text[0] = '\0';
    dlock_inspect(client, name, request->connect_timeout_ms + request->io_timeout_ms, sightings_add,
                  &sightings, NULL, 0);
    sightings_sort(&sightings, "age");
    if (sightings.count > 0) {
        const sighting *seen = &sightings.all[0];
        duration_show(seen->age_ms, age);
        if (seen->age_ms >= 0) snprintf(since, sizeof(since), " for %s", age);
        if (seen->lock.holders > 1)
            snprintf(more, sizeof(more), " and %" PRId64 " more", seen->lock.holders - 1);
        snprintf(text, size, "held by %s%s%s, %" PRId64 " waiting", seen->lock.token, more, since,
                 seen->lock.waiters);
    }
    sightings_clear(&sightings);
}
