/* SPDX-License-Identifier: BSD-3-Clause */
/* config_file.c - see config_file.h. */
#include "config_file.h"

#include "complain.h"
#include "keep.h"
#include "secret.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEM_FILE "/etc/dlock/config"

/* False: no such file is wanted. */
static bool find_path(config_file which, char *path, size_t size) {
    const char *system = getenv("DLOCK_SYSTEM_CONFIG");
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int length;
    if (which == CONFIG_FILE_SYSTEM)
        length = snprintf(path, size, "%s", system != NULL ? system : SYSTEM_FILE);
    else if (base != NULL && base[0] == '/') /* XDG says that relative paths are ignored */
        length = snprintf(path, size, "%s/dlock/config", base);
    else if (home != NULL && home[0] != '\0')
        length = snprintf(path, size, "%s/.config/dlock/config", home);
    else
        return false;
    return length > 0 && (size_t)length < size;
}

static char *trim(char *text) {
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL)
        text[--length] = '\0';
    return text;
}

/* Never shows a value, which may be a secret. */
static bool read_line(char *line, const char *path, int number, config_file_set set, void *arg,
                      bool *has_secret) {
    char *key = trim(line), *equals = strchr(key, '=');
    if (key[0] == '\0' || key[0] == '#') return true;
    if (equals == NULL) {
        complain("%s, line %d: not of the form key = value", path, number);
        return false;
    }
    *equals = '\0';
    key = trim(key);
    const char *value = keep(trim(equals + 1)), *wrong = "";
    if (strcmp(key, "password") == 0 || secret_is_in_text(value)) *has_secret = true;
    if (set(arg, key, value, &wrong)) return true;
    complain("%s, line %d: %s: not %s", path, number, key, wrong);
    return false;
}

bool config_file_read(config_file which, config_file_set set, void *arg) {
    char path[4096];
    if (!find_path(which, path, sizeof(path))) return true;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        if (errno == ENOENT || errno == ENOTDIR) return true;
        complain("%s: %s", path, strerror(errno));
        return false;
    }
    char *line = NULL;
    size_t size = 0;
    bool is_right = true, has_secret = false;
    for (int number = 1; is_right && getline(&line, &size, file) >= 0; number++)
        is_right = read_line(line, path, number, set, arg, &has_secret);
    if (has_secret) secret_warn_if_open(fileno(file), path, which == CONFIG_FILE_SYSTEM);
    free(line);
    fclose(file);
    return is_right;
}
