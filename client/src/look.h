/* SPDX-License-Identifier: BSD-3-Clause */
/* look.h - what can be seen at one server: its locks, and its statistics. Nothing is changed. */
#ifndef DLOCK_LOOK_H
#define DLOCK_LOOK_H

#include "backend.h"
#include "environment.h"

/* One look, maybe at several servers: what is asked for, whom to tell, and what came of it. */
typedef struct look {
    const environment *env;
    claim *of; /* its stop and cause */
    int64_t limit_us;
    const char *name;     /* of look_at_name(): with the prefix */
    const char *pattern;  /* of look_at_all(): with the prefix */
    size_t prefix_length; /* is not told */
    dlock_list_fn tell;
    dlock_info_fn tell_field;
    void *arg;
    bool is_found, is_enough;
} look;

/* Each is a backend_visit, with a look. */
dlock_status look_at_name(void *arg, struct server *at);
dlock_status look_at_all(void *arg, struct server *at);
dlock_status look_at_info(void *arg, struct server *at);

#endif
