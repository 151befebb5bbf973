/* SPDX-License-Identifier: BSD-3-Clause */
/* secret.c - see secret.h.
 *
 *   find      the login of a URL, and whether a text contains a password
 *   fill in   a password from elsewhere into the URLs that lack one, percent-encoded
 *   warn      of files that other users may read */
#include "secret.h"

#include "complain.h"
#include "keep.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* scheme://[login@]rest: the begin of the login, and its length with the @; 0: no login. */
static const char *find_user(const char *url, size_t *length) {
    const char *start = strstr(url, "://");
    *length = 0;
    if (start == NULL) return NULL;
    start += 3;
    for (size_t i = 0; i < strcspn(start, "/?"); i++)
        if (start[i] == '@') *length = i + 1; /* the last one counts, as in the library */
    return start;
}

static bool wants_password(const char *url) {
    size_t length;
    const char *user = find_user(url, &length);
    return user != NULL && (length == 0 || (length > 1 && user[length - 2] == ':'));
}

/* Is there a password between the begin of the URL and this @? "user:@" has none. */
static bool has_password(const char *text, const char *sign) {
    const char *login = sign;
    while (login > text && login[-1] != ' ' && login[-1] != '\t' && strncmp(login, "://", 3) != 0)
        login--;
    if (strncmp(login, "://", 3) == 0) login += 3;
    const char *colon = memchr(login, ':', (size_t)(sign - login));
    return (colon == NULL ? login : colon + 1) < sign;
}

bool secret_is_in_text(const char *text) {
    for (const char *sign = strchr(text, '@'); sign != NULL; sign = strchr(sign + 1, '@'))
        if (has_password(text, sign)) return true;
    const char *option = strstr(text, "password=");
    return option != NULL && strchr("& \t", option[strlen("password=")]) == NULL;
}

const char *secret_take(char *argument) {
    const char *copy = keep(argument);
    if (secret_is_in_text(argument)) memset(argument, '*', strlen(argument));
    return copy;
}

static char *fill_in(const char *url, const char *password) {
    size_t length;
    const char *user = find_user(url, &length);
    size_t head = (size_t)(user - url) + (length > 0 ? length - 1 : 0);
    const char *rest = user + length;
    char *made = keep_room(head + 3 * strlen(password) + strlen(rest) + 2);
    memcpy(made, url, head);
    char *end = made + head;
    for (const char *c = password; *c != '\0'; c++)
        end += sprintf(end, "%%%02X", (unsigned char)*c);
    sprintf(end, "@%s", rest);
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
    secret_warn_if_open(fileno(file), path, false);
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

void secret_warn_if_open(int fd, const char *path, bool is_shared) {
    struct stat about;
    mode_t others = is_shared ? 07 : 077;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && (about.st_mode & others) != 0)
        complain("warning: others may read %s, which has a password: chmod %s", path,
                 is_shared ? "o=" : "600");
}
