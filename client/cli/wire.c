/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.c - see wire.h. */
#include "wire.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

wire_times *wire_open(int ends[2]) {
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return NULL;
    void *shared =
        mmap(NULL, sizeof(wire_times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared != MAP_FAILED) return shared;
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

void wire_close(int fd, wire_times *times) {
    close(fd);
    munmap(times, sizeof(*times));
}

void wire_send(int fd, const wire_message *message) {
    /* Reading tells whether the partner is gone; a partner that does not read is not waited for. */
    while (send(fd, message, sizeof(*message), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR)
        continue;
}

wire_message wire_receive(int fd) {
    wire_message message;
    ssize_t size;
    do
        size = recv(fd, &message, sizeof(message), 0);
    while (size < 0 && errno == EINTR);
    if (size != (ssize_t)sizeof(message)) return (wire_message){.kind = WIRE_END};
    return message;
}

int64_t wire_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
