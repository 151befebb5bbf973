/* SPDX-License-Identifier: BSD-3-Clause */
/* url.c - see url.h. */
#include "url.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_PORT = 6379, PORT_MAX = 65535 };

typedef struct span {
    const char *at;
    size_t length;
} span;

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

/* False: it is too long, has a bad percent sign, or encodes a NUL. */
static bool decode(span from, char *to, size_t max) {
    size_t length = 0;
    for (size_t i = 0; i < from.length; i++) {
        char byte = from.at[i];
        if (byte == '%') {
            if (i + 2 >= from.length) return false;
            int high = hex_value(from.at[i + 1]), low = hex_value(from.at[i + 2]);
            if (high < 0 || low < 0 || high + low == 0) return false;
            byte = (char)(high * 16 + low);
            i += 2;
        }
        if (length == max) return false;
        to[length++] = byte;
    }
    to[length] = '\0';
    return true;
}

/* -1: not a number from 0 to max. */
static int number(span digits, int max) {
    int value = 0;
    if (digits.length == 0) return -1;
    for (size_t i = 0; i < digits.length; i++) {
        if (digits.at[i] < '0' || digits.at[i] > '9') return -1;
        value = value * 10 + (digits.at[i] - '0');
        if (value > max) return -1;
    }
    return value;
}

/* Takes what is before the mark, and the mark, from rest. False: there is no mark. */
static bool cut_before(span *rest, char mark, span *before) {
    const char *found = memchr(rest->at, mark, rest->length);
    if (found == NULL) return false;
    size_t length = (size_t)(found - rest->at);
    *before = (span){rest->at, length};
    *rest = (span){found + 1, rest->length - length - 1};
    return true;
}

static bool cut_prefix(span *rest, const char *prefix) {
    size_t length = strlen(prefix);
    if (rest->length < length || memcmp(rest->at, prefix, length) != 0) return false;
    *rest = (span){rest->at + length, rest->length - length};
    return true;
}

static const char *parse_login(url *out, span login) {
    span user = {"", 0};
    cut_before(&login, ':', &user);
    if (!decode(user, out->user, URL_PART_MAX)) return "the user is too long or badly encoded";
    if (!decode(login, out->password, URL_PART_MAX))
        return "the password is too long or badly encoded";
    if (out->password[0] == '\0') return "the password before the @ is empty";
    return NULL;
}

static const char *parse_db(url *out, span digits) {
    out->db = number(digits, URL_DB_MAX);
    return out->db < 0 ? "the database is not a number" : NULL;
}

static const char *parse_host(url *out, span host) {
    span port = {"", 0}, name = host;
    if (host.length > 0 && host.at[0] == '[') {
        span after = {host.at + 1, host.length - 1};
        if (!cut_before(&after, ']', &name)) return "the ] of the IPv6 address is missing";
        if (after.length > 0 && after.at[0] != ':') return "there is something after the ]";
        if (after.length > 0) port = (span){after.at + 1, after.length - 1};
        if (after.length > 0 && port.length == 0) return "the port is missing";
    } else if (cut_before(&host, ':', &name)) {
        port = host;
        if (memchr(port.at, ':', port.length) != NULL) return "an IPv6 address needs [ and ]";
        if (port.length == 0) return "the port is missing";
    }
    if (name.length == 0) return "the host is missing";
    if (!decode(name, out->host, URL_HOST_MAX)) return "the host is too long or badly encoded";
    out->port = port.length == 0 ? DEFAULT_PORT : number(port, PORT_MAX);
    return out->port < 1 ? "the port is not a number from 1 to 65535" : NULL;
}

static const char *parse_tcp(url *out, span rest) {
    span host = rest;
    if (memchr(rest.at, '?', rest.length) != NULL || memchr(rest.at, '#', rest.length) != NULL)
        return "redis:// and rediss:// take no ? and no #";
    if (cut_before(&rest, '/', &host) && rest.length > 0) {
        const char *wrong = parse_db(out, rest);
        if (wrong != NULL) return wrong;
    }
    return parse_host(out, host);
}

static const char *parse_unix(url *out, span rest) {
    span path = rest;
    if (cut_before(&rest, '?', &path)) {
        if (!cut_prefix(&rest, "db=")) return "after the ? only db=number is known";
        const char *wrong = parse_db(out, rest);
        if (wrong != NULL) return wrong;
    }
    if (path.length == 0 || path.at[0] != '/') return "the path of the socket must begin with /";
    enum { UNIX_PATH_MAX = 107 }; /* of sockaddr_un */
    if (!decode(path, out->host, UNIX_PATH_MAX)) return "the path is too long or badly encoded";
    return NULL;
}

const char *url_parse(url *out, const char *text) {
    *out = (url){0};
    span rest = {text, strlen(text)};
    if (cut_prefix(&rest, "unix://"))
        out->is_unix = true;
    else if (cut_prefix(&rest, "rediss://"))
        out->is_tls = true;
    else if (!cut_prefix(&rest, "redis://"))
        return "it must begin with redis://, rediss:// or unix://";
    /* A / of a password is encoded, so an @ after the first / is a part of a path. */
    const char *slash = memchr(rest.at, '/', rest.length);
    const char *at = slash == NULL ? rest.at + rest.length : slash;
    while (at > rest.at && *at != '@')
        at--;
    if (*at == '@') {
        const char *wrong = parse_login(out, (span){rest.at, (size_t)(at - rest.at)});
        if (wrong != NULL) return wrong;
        rest = (span){at + 1, rest.length - (size_t)(at + 1 - rest.at)};
    }
    return out->is_unix ? parse_unix(out, rest) : parse_tcp(out, rest);
}

void url_describe(const url *where, char *text, size_t size) {
    bool is_ipv6 = strchr(where->host, ':') != NULL;
    if (where->is_unix)
        snprintf(text, size, "%s", where->host);
    else
        snprintf(text, size, is_ipv6 ? "[%s]:%d" : "%s:%d", where->host, where->port);
}
