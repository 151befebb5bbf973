/* SPDX-License-Identifier: BSD-3-Clause */
/* tls_test.c - the name of the server, as the first message of the handshake has it, and the end of
 * the program. A library without TLS has neither. With servers: tests/client/test_tls.py. */
#include "net/tls.h"

#include "unit.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { HELLO_SIZE = 4096 };

/* Of OpenSSL, which a library without TLS does not need. */
__attribute__((weak)) void OPENSSL_cleanup(void);

static tls_context *context;

static void begin(void) {
    char text[256];
    tls_context_new(&context, &(tls_files){NULL, NULL, NULL}, text, sizeof(text));
}

static void end(void) {
    tls_context_free(context);
}

/* Returns its size. */
static size_t say_hello(char hello[HELLO_SIZE], const char *host) {
    int ends[2];
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    tls *tls = tls_new(context, host, ends[0]);
    CHECK(tls != NULL);
    if (tls != NULL) CHECK(tls_shake_hands(tls) == -1 && errno == EAGAIN);
    ssize_t size = recv(ends[1], hello, HELLO_SIZE, 0);
    CHECK(size > 0);
    tls_free(tls);
    close(ends[0]);
    close(ends[1]);
    return size > 0 ? (size_t)size : 0;
}

static bool has_bytes(const char *bytes, size_t size, const char *part, size_t part_size) {
    for (size_t at = 0; at + part_size <= size; at++)
        if (memcmp(bytes + at, part, part_size) == 0) return true;
    return false;
}

/* The name of a host is sent with type 0 and its length before it. */
static void check_name(const char *host, const char *name) {
    char hello[HELLO_SIZE], sent[64] = {0};
    size_t size = say_hello(hello, host), length = strlen(name);
    sent[2] = (char)length;
    memcpy(sent + 3, name, length);
    CHECK(has_bytes(hello, size, sent, 3 + length));
}

TEST(the_dot_at_the_end_of_a_full_name_is_not_part_of_the_name) {
    if (context == NULL) return;
    check_name("db.example.com", "db.example.com");
    check_name("db.example.com.", "db.example.com");
}

TEST(an_address_with_a_zone_is_not_a_name) {
    char hello[HELLO_SIZE];
    if (context == NULL) return;
    CHECK(!has_bytes(hello, say_hello(hello, "fe80::1%eth0"), "fe80", 4));
    CHECK(!has_bytes(hello, say_hello(hello, "127.0.0.1"), "127", 3));
}

/* A call before may have left EAGAIN, which would mean that the connection goes on. */
TEST(a_call_after_the_shutdown_of_openssl_fails) {
    int ends[2], result = -1;
    if (context == NULL) return;
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    tls *tls = tls_new(context, "db.example.com", ends[0]);
    pid_t child = fork();
    if (child == 0) {
        OPENSSL_cleanup();
        errno = EAGAIN;
        _exit(tls_shake_hands(tls) == -1 && errno != EAGAIN ? 0 : 1);
    }
    CHECK_EQUAL(waitpid(child, &result, 0), child);
    CHECK_EQUAL(result, 0);
    tls_free(tls);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    return unit_main(begin, end);
}
