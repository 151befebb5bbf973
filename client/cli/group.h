/* SPDX-License-Identifier: BSD-3-Clause */
/* group.h - the process group of the command: the command and its descendants. */
#ifndef DLOCK_CLI_GROUP_H
#define DLOCK_CLI_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

/* Stopped processes are continued, so that they receive the signal. */
void group_signal(pid_t group, int signal);

/* Does the group have a process that can still run? Zombies do not count: their parent may never
 * reap them. */
bool group_is_alive(pid_t group);

#endif
