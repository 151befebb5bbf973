/* SPDX-License-Identifier: BSD-3-Clause */
/* group.h - the process group of the command: the command, and what it has started. */
#ifndef DLOCK_CLI_GROUP_H
#define DLOCK_CLI_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

/* Whoever is stopped is woken up to hear it. */
void group_signal(pid_t group, int signal);

bool group_is_there(pid_t group);

#endif
