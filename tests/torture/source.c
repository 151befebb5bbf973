/* SPDX-License-Identifier: BSD-3-Clause */
/* source.c - see source.h. The definition of connect() in a program goes before that of libc. */
#include "source.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sockaddr_in source; /* without a family: any */

void source_set(const char *host) {
    source.sin_family = AF_INET;
    if (inet_pton(AF_INET, host, &source.sin_addr) == 1) return;
    fprintf(stderr, "worker: %s is no address\n", host);
    exit(2);
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
    if (source.sin_family == AF_INET && address->sa_family == AF_INET &&
        bind(fd, (const struct sockaddr *)&source, sizeof(source)) != 0)
        return -1;
    return (int)syscall(SYS_connect, fd, address, length);
}
