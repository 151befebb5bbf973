/* SPDX-License-Identifier: BSD-3-Clause */
/* hot.h - the ways to get a hot lock, each in a file of its own; hot.c drives them. */
#ifndef HOT_H
#define HOT_H

typedef struct hot_way {
    const char *name;
    int argument_count;
    const char *arguments; /* their names */

    /* Once, before the first contender. */
    void (*prepare)(int port, char **arguments);
    /* What one contender needs, with a connection of its own; not called by its thread. */
    void *(*open)(int port, int number);
    /* Returns when the contender holds the lock, however long that takes. */
    void (*acquire)(void *contender);
    void (*release)(void *contender);
} hot_way;

extern const hot_way hot_commands, hot_libdlock, hot_redisson, hot_blpop;

#endif
