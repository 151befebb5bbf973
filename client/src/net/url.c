/* SPDX-License-Identifier: BSD-3-Clause */
/* url.c - see url.h.
 *
 *   cut      a copy of the text is cut into scheme, login, host or path, and database
 *   decode   each part is copied into the url, with percent signs resolved
 *
 * Invariant: no message repeats a part of the text, which may be a secret. */
#include "net/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT_MAX = 65535, TEXT_SIZE = 8192, UNIX_PATH_MAX = 107 }; /* sockaddr_un has 108 */

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

/* False: the part is too long, has a bad percent sign, or encodes a NUL. */
static bool decode(const char *part, char *text, size_t max) {
    for (; *part != '\0'; part++, max--) {
        if (max == 0) return false;
        char byte = *part;
        if (byte == '%') {
            int high = hex_value(part[1]), low = high < 0 ? -1 : hex_value(part[2]);
            if (low < 0 || high + low == 0) return false;
            byte = (char)(high * 16 + low);
            part += 2;
        }
        *text++ = byte;
    }
    *text = '\0';
    return true;
}

/* -1: not a number from 0 to max. */
static int read_number(const char *digits, unsigned long max) {
    unsigned long value = strtoul(digits, NULL, 10);
    bool is_number = digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0';
    return is_number && value <= max ? (int)value : -1;
}

const char *url_set_login(url *url, const char *user, const char *password) {
    if (!decode(user, url->user, URL_PART_MAX)) return "the user is too long or badly encoded";
    if (!decode(password, url->password, URL_PART_MAX))
        return "the password is too long or badly encoded";
    return NULL;
}

const char *url_read_login(url *url, char *login) {
    const char *password = url_cut(login, ':');
    const char *wrong =
        url_set_login(url, password == NULL ? "" : login, password == NULL ? login : password);
    if (wrong != NULL) return wrong;
    return url->password[0] == '\0' ? "the password before the @ is empty" : NULL;
}

const char *url_read_db(url *url, const char *digits) {
    url->db = read_number(digits, URL_DB_MAX);
    return url->db < 0 ? "the database is not a number" : NULL;
}

const char *url_read_host(url *url, char *host, int default_port) {
    char *port;
    if (host[0] == '[') {
        port = url_cut(++host, ']');
        if (port == NULL) return "the ] of the IPv6 address is missing";
        if (*port != '\0' && *port != ':') return "there is something after the ]";
        port = *port == '\0' ? NULL : port + 1;
    } else {
        port = url_cut(host, ':');
        if (port != NULL && strchr(port, ':') != NULL) return "an IPv6 address needs [ and ]";
    }
    if (port != NULL && *port == '\0') return "the port is missing";
    if (*host == '\0') return "the host is missing";
    if (!decode(host, url->host, URL_HOST_MAX)) return "the host is too long or badly encoded";
    url->port = port == NULL ? default_port : read_number(port, PORT_MAX);
    return url->port < 1 ? "the port is not a number from 1 to 65535" : NULL;
}

static const char *parse_tcp(url *url, char *host) {
    if (strpbrk(host, "?#") != NULL) return "redis:// and rediss:// take no ? and no #";
    const char *db = url_cut(host, '/');
    const char *wrong = db == NULL || *db == '\0' ? NULL : url_read_db(url, db);
    return wrong != NULL ? wrong : url_read_host(url, host, URL_PORT);
}

static const char *parse_unix(url *url, char *path) {
    const char *option = url_cut(path, '?');
    if (option != NULL) {
        if (strncmp(option, "db=", 3) != 0) return "after the ? only db=number is known";
        const char *wrong = url_read_db(url, option + 3);
        if (wrong != NULL) return wrong;
    }
    if (path[0] != '/') return "the path of the socket must begin with /";
    return decode(path, url->host, UNIX_PATH_MAX) ? NULL : "the path is too long or badly encoded";
}

char *url_cut(char *text, char mark) {
    char *found = strchr(text, mark);
    if (found != NULL) *found++ = '\0';
    return found;
}

char *url_cut_login(char **rest) {
    char *login = *rest, *sign = login + strcspn(login, "/");
    while (sign > login && *sign != '@')
        sign--;
    if (*sign != '@') return NULL;
    *sign = '\0';
    *rest = sign + 1;
    return login;
}

const char *url_parse(url *url, const char *text) {
    char copy[TEXT_SIZE], *rest = copy;
    memset(url, 0, sizeof(*url));
    if (snprintf(copy, sizeof(copy), "%s", text) >= TEXT_SIZE) return "it is too long";
    url->is_unix = strncmp(copy, "unix://", 7) == 0;
    url->is_tls = strncmp(copy, "rediss://", 9) == 0;
    if (!url->is_unix && !url->is_tls && strncmp(copy, "redis://", 8) != 0)
        return "it must begin with redis://, rediss:// or unix://";
    rest += strcspn(rest, "/") + 2;
    char *login = url_cut_login(&rest);
    const char *wrong = login == NULL ? NULL : url_read_login(url, login);
    if (wrong != NULL) return wrong;
    return url->is_unix ? parse_unix(url, rest) : parse_tcp(url, rest);
}

void url_describe(const url *url, char *text, size_t size) {
    bool is_ipv6 = strchr(url->host, ':') != NULL;
    if (url->is_unix)
        snprintf(text, size, "%s", url->host);
    else
        snprintf(text, size, is_ipv6 ? "[%s]:%d" : "%s:%d", url->host, url->port);
}
