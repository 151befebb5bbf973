/* SPDX-License-Identifier: BSD-3-Clause */
/* url.h - the URLs of a request: their parameters, their passwords, and all of them as one text.
 * The library reads the parameters itself, and complains if one is wrong. No message contains a
 * password. */
#ifndef DLOCK_CLI_URL_H
#define DLOCK_CLI_URL_H

#include "request.h"
#include <stdbool.h>

/* -- parameters */

/* Settings that the URLs have as parameters go over those of files. A text is left to the
 * library. */
void url_parameters_apply(request *request);

/* Does a URL have this parameter with this value? */
bool url_has(const request *request, const char *name, const char *value);

/* A value of DLOCK_URL that leads another program to the same locks: --prefix and the files of TLS
 * become parameters. Without has_passwords, the passwords are left out ("redis://user:@host").
 * Lives as long as the program. */
const char *url_write(const request *request, bool has_passwords);

/* -- passwords */

/* Does a text with URLs contain a password? Also a sentinel_password=. */
bool secret_is_in_text(const char *text);

/* A copy of an argument of the command line. If there is a password in it, the argument itself is
 * overwritten, so that the list of processes does not show it. */
const char *secret_take(char *argument);

/* Puts the password, or else the first line of the file, into those URLs that have none: without a
 * user, or with a user and a colon ("redis://worker:@host"). False: complained. */
bool secret_fill_in(const char *urls[], int count, const char *password, const char *file);

/* Removes the password of the login, in place: "redis://user:@host", or "redis://host". */
void secret_remove_login_password(char *url);

/* Warns of a file with a password that others may read. is_shared: the group may read the file. */
void secret_warn_if_open(int fd, const char *path, bool is_shared);

#endif
