/* SPDX-License-Identifier: BSD-3-Clause */
/* secret.h - passwords: where they come from, and who else could read them there. They are in no
 * message and, if the user wants, on no command line. */
#ifndef DLOCK_CLI_SECRET_H
#define DLOCK_CLI_SECRET_H

#include <stdbool.h>

bool secret_is_in_url(const char *url);

/* Puts the password, or else the first line of the file, into those URLs that have none: without a
 * user, or with one and a colon ("redis://worker:@host"). False: it was complained about. */
bool secret_fill_in(const char *urls[], int count, const char *password, const char *file);

/* Warns of a file with a password that others may read. */
void secret_warn_if_open(int fd, const char *path);

#endif
