/* SPDX-License-Identifier: BSD-3-Clause */
/* group.h - the process group of the command: the command, and what it has started. */
#ifndef DLOCK_CLI_GROUP_H
#define DLOCK_CLI_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

/* Whoever is stopped is woken up to hear it. */
void group_signal(pid_t group, int signal);

/* Is anybody left in it who can do anything? Those who have ended and wait for their parent to
 * notice do not count: it may never do so. */
bool group_is_alive(pid_t group);

#endif
