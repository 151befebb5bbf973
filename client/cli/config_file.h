/* SPDX-License-Identifier: BSD-3-Clause */
/* config_file.h - configuration files: lines "key = value", empty lines, and comments that begin
 * with #. */
#ifndef DLOCK_CLI_CONFIG_FILE_H
#define DLOCK_CLI_CONFIG_FILE_H

#include <stdbool.h>

/* In the order in which they are read. */
typedef enum config_file {
    CONFIG_FILE_SYSTEM, /* $DLOCK_SYSTEM_CONFIG, or /etc/dlock/config */
    CONFIG_FILE_USER,   /* $XDG_CONFIG_HOME/dlock/config, or ~/.config/dlock/config */
    CONFIG_FILES,
    CONFIG_FILE_FIRST = CONFIG_FILE_SYSTEM
} config_file;

/* The value lives as long as the program. False: *wrong says what would have been right. */
typedef bool (*config_file_set)(void *arg, const char *key, const char *value, const char **wrong);

/* A missing file is no mistake. A file that is there and cannot be read is one, as the tool would
 * then use another service than its users expect. False: complained. */
bool config_file_read(config_file which, config_file_set set, void *arg);

#endif
