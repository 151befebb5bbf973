/* SPDX-License-Identifier: BSD-3-Clause */
/* config_file.h - $XDG_CONFIG_HOME/dlock/config, or ~/.config/dlock/config: lines "key = value",
 * empty lines, and comments that begin with #. */
#ifndef DLOCK_CLI_CONFIG_FILE_H
#define DLOCK_CLI_CONFIG_FILE_H

#include <stdbool.h>

/* The value lives as long as the program. False: *wrong says what would have been right. */
typedef bool (*config_file_set)(void *arg, const char *key, const char *value, const char **wrong);

/* No file is no mistake. False: it was complained about. */
bool config_file_read(config_file_set set, void *arg);

#endif
