/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h - tells in time that a lock is suspect, and that it is lost. In a thread of its own, so
 * that neither a silent server nor a slow renewal keeps it from telling. */
#ifndef DLOCK_WATCH_H
#define DLOCK_WATCH_H

#include "environment.h"
#include "heap.h"
#include "hold.h"

typedef struct watch watch;

/* A lock that is watched: of the handle, which must not go away while it is. */
typedef struct watched {
    heap_node node; /* must be the first */
    hold *of;
    const char *name;
    bool is_suspect; /* and that was told */
} watched;

/* No thread yet. NULL: no memory. */
watch *watch_new(dlock_event_fn tell, void *arg, const environment *env);
/* Nothing may be watched. */
void watch_free(watch *old);

/* Room for one lock more, so that watching it cannot fail. DLOCK_NO_MEMORY: also no thread. */
dlock_status watch_reserve(watch *in);
void watch_unreserve(watch *in);

/* From now on, and until when the caller returns nobody is being told about it any more. */
void watch_add(watch *to, watched *added);
void watch_remove(watch *from, watched *removed);

/* It may be gone sooner than was thought. */
void watch_look(watch *of, watched *again);

#endif
