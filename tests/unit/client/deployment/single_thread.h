/* SPDX-License-Identifier: BSD-3-Clause */
/* single_thread.h - net_world.h for code that starts the background thread: in place of
 * net/background.c, so that there is none. */
#ifndef DLOCK_SINGLE_THREAD_H
#define DLOCK_SINGLE_THREAD_H

#include "client/net/net_world.h"

void background_stop(loop *loop);

void background_stop(loop *loop) {
    (void)loop;
}

bool loop_start_background(loop *loop) {
    (void)loop;
    return false;
}

void loop_set_background_work(loop *loop, void (*work)(void *arg), void *arg) {
    (void)loop, (void)work, (void)arg;
}

void loop_wake_background(loop *loop) {
    (void)loop;
}

#endif
