/* SPDX-License-Identifier: BSD-3-Clause */
/* secret.h - passwords: their sources, and the risk of other readers. No message contains a
 * password. */
#ifndef DLOCK_CLI_SECRET_H
#define DLOCK_CLI_SECRET_H

#include <stdbool.h>

/* Does a text with URLs contain a password? Also a sentinel_password=. */
bool secret_is_in_text(const char *text);

/* A copy of an argument of the command line. If there is a password in it, the argument itself is
 * overwritten, so that the list of processes does not show it. */
const char *secret_take(char *argument);

/* Puts the password, or else the first line of the file, into those URLs that have none: without a
 * user, or with a user and a colon ("redis://worker:@host"). False: complained. */
bool secret_fill_in(const char *urls[], int count, const char *password, const char *file);

/* Warns of a file with a password that others may read. is_shared: the group may read the file. */
void secret_warn_if_open(int fd, const char *path, bool is_shared);

#endif
