/* SPDX-License-Identifier: BSD-3-Clause */
/* secret.c - see secret.h. */
#include "secret.h"

#include "complain.h"
#include "keep.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* scheme://[user information@]rest: where it begins and how long it is, with the @; 0: none. */
static const char *find_user(const char *url, size_t *length) {
    const char *start = strstr(url, "://");
    *length = 0;
    if (start == NULL) return NULL;
    start += 3;
    const char *at = memchr(start, '@', strcspn(start, "/"));
    if (at != NULL) *length = (size_t)(at - start) + 1;
    return start;
}

static bool wants_password(const char *url) {
    size_t length;
    const char *user = find_user(url, &length);
    return user != NULL && (length == 0 || (length > 1 && user[length - 2] == ':'));
}

bool secret_is_in_url(const char *url) {
    size_t length;
    const char *user = find_user(url, &length);
    return user != NULL && length > 0 && !wants_password(url);
}

static char *fill_in(const char *url, const char *password) {
    size_t length;
    const char *user = find_user(url, &length);
    size_t head = (size_t)(user - url) + (length > 0 ? length - 1 : 0);
    const char *rest = user + length;
    char *made = keep_room(head + 3 * strlen(password) + strlen(rest) + 2);
    memcpy(made, url, head);
    char *to = made + head;
    for (const char *c = password; *c != '\0'; c++)
        to += sprintf(to, "%%%02X", (unsigned char)*c);
    sprintf(to, "@%s", rest);
    return made;
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        complain("%s: %s", path, strerror(errno));
        return NULL;
    }
    char *line = NULL;
    size_t size = 0;
    ssize_t length = getline(&line, &size, file);
    secret_warn_if_open(fileno(file), path);
    fclose(file);
    while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
        line[--length] = '\0';
    if (length > 0) return line;
    complain("%s: no password in it", path);
    free(line);
    return NULL;
}

bool secret_fill_in(const char *urls[], int count, const char *password, const char *file) {
    char *kept = NULL;
    if (file != NULL) {
        kept = read_file(file);
        if (kept == NULL) return false;
        password = kept;
    }
    for (int i = 0; password != NULL && i < count; i++) {
        if (wants_password(urls[i])) urls[i] = fill_in(urls[i], password);
    }
    free(kept);
    return true;
}

void secret_warn_if_open(int fd, const char *path) {
    struct stat about;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && (about.st_mode & 077) != 0)
        complain("warning: others may read %s, which has a password: chmod 600", path);
}
