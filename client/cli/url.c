/* SPDX-License-Identifier: BSD-3-Clause */
/* url.c - see url.h.
 *
 *   passwords    found, filled in from elsewhere (percent-encoded), removed; files that other
 *                users may read
 *   parameters   that the tool has to know
 *   one text     all URLs, for DLOCK_URL of a command */
#include "url.h"

#include "complain.h"
#include "option.h"
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- passwords */

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

void secret_remove_login_password(char *url) {
    size_t length;
    const char *login = find_user(url, &length);
    if (login == NULL || length == 0) return;
    char *start = url + (login - url), *colon = memchr(start, ':', length), *rest = start + length;
    if (colon != NULL && colon > start) { /* there is a user */
        start = colon + 1;
        *start++ = '@';
    }
    memmove(start, rest, strlen(rest) + 1);
}

void secret_warn_if_open(int fd, const char *path, bool is_shared) {
    struct stat about;
    mode_t others = is_shared ? 07 : 077;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && (about.st_mode & others) != 0)
        complain("warning: others may read %s, which has a password: chmod %s", path,
                 is_shared ? "o=" : "600");
}

/* -- parameters */

#define AT(field) offsetof(request, field)

typedef struct row {
    const char *name;
    enum { NUMBER, FLAG, TEXT } kind;
    size_t offset;
} row;

/* To let the command of "dlock run" have one more text: a row. */
static const row rows[] = {
    {"lease_ms", NUMBER, AT(lease_ms)},
    {"connect_timeout_ms", NUMBER, AT(connect_timeout_ms)},
    {"io_timeout_ms", NUMBER, AT(io_timeout_ms)},
    {"min_replicas", NUMBER, AT(min_replicas)},
    {"session", FLAG, AT(is_session_by_url)},
    {"prefix", TEXT, AT(prefix)},
    {"tls_ca_file", TEXT, AT(tls_ca_file)},
    {"tls_cert_file", TEXT, AT(tls_cert_file)},
    {"tls_key_file", TEXT, AT(tls_key_file)},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* The text behind name=, up to the next &; NULL: no such parameter. */
static const char *find(const char *url, const char *name) {
    size_t length = strlen(name);
    for (const char *mark = strchr(url, '?'); mark != NULL; mark = strchr(mark + 1, '&'))
        if (strncmp(mark + 1, name, length) == 0 && mark[1 + length] == '=')
            return mark + 2 + length;
    return NULL;
}

/* A text that is no number is left to the library, which refuses the URL by the parameter's
 * name. */
static void set(request *request, const row *row, const char *value) {
    void *field = (char *)request + row->offset;
    bool is_number = value[0] >= '0' && value[0] <= '9';
    if (row->kind == NUMBER && is_number)
        *(int64_t *)field = strtoll(value, NULL, 10);
    else if (row->kind == NUMBER)
        return;
    else if (row->kind == FLAG)
        *(bool *)field = strncmp(value, "yes", 3) == 0;
    else
        *(const char **)field = NULL;
}

void url_parameters_apply(request *request) {
    for (int i = 0; i < ROWS; i++) {
        const char *value = NULL;
        for (int n = 0; n < request->url_count && value == NULL; n++)
            value = find(request->urls[n], rows[i].name);
        if (value != NULL) set(request, &rows[i], value);
    }
}

bool url_has(const request *request, const char *name, const char *value) {
    size_t length = strlen(value);
    for (int i = 0; i < request->url_count; i++) {
        const char *found = find(request->urls[i], name);
        if (found == NULL || strcspn(found, "&") != length) continue;
        if (strncmp(found, value, length) == 0) return true;
    }
    return false;
}

/* -- as one text */

/* The text that an option or a file gives; NULL: none. */
static const char *text_of(const request *request, const row *row) {
    if (row->kind != TEXT) return NULL;
    return *(const char *const *)((const char *)request + row->offset);
}

static void remove_parameter(char *url, const char *name) {
    const char *value = find(url, name);
    if (value == NULL) return;
    char *start = url + (value - url) - strlen(name) - 1;
    char *end = start + strcspn(start, "&");
    if (*end == '&')
        end++;
    else
        start--; /* the last one: also the ? or & before it */
    memmove(start, end, strlen(end) + 1);
}

static char *put_parameter(char *end, char mark, const char *name, const char *value) {
    end += sprintf(end, "%c%s=", mark, name);
    for (const char *c = value; *c != '\0'; c++) {
        bool is_plain = isalnum((unsigned char)*c) || strchr("-._~:/", *c) != NULL;
        end += sprintf(end, is_plain ? "%c" : "%%%02X", (unsigned char)*c);
    }
    return end;
}

/* The result is the end of the text. */
static char *put_url(char *end, const request *request, int number, bool has_passwords) {
    char *url = keep(request->urls[number]);
    if (!has_passwords) {
        secret_remove_login_password(url);
        remove_parameter(url, "sentinel_password");
    }
    for (int i = 0; i < ROWS; i++)
        if (text_of(request, &rows[i]) != NULL) remove_parameter(url, rows[i].name);
    end += sprintf(end, "%s%s", number > 0 ? " " : "", url);
    char mark = strchr(url, '?') == NULL ? '?' : '&';
    for (int i = 0; i < ROWS && number == 0; i++) { /* what one URL says counts for all of them */
        const char *text = text_of(request, &rows[i]);
        if (text == NULL || text[0] == '\0') continue; /* a parameter cannot be empty */
        end = put_parameter(end, mark, rows[i].name, text);
        mark = '&';
    }
    return end;
}

const char *url_write(const request *request, bool has_passwords) {
    size_t size = 1;
    for (int i = 0; i < request->url_count; i++)
        size += strlen(request->urls[i]) + 1;
    for (int i = 0; i < ROWS; i++) {
        const char *text = text_of(request, &rows[i]);
        if (text != NULL) size += strlen(rows[i].name) + 3 * strlen(text) + 2;
    }
    char *made = keep_room(size), *end = made;
    for (int i = 0; i < request->url_count; i++)
        end = put_url(end, request, i, has_passwords);
    return made;
}
