/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded: as soon as the program has received a null reply, SIGTERM comes. Once only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t recv(int fd, void *bytes, size_t size, int flags) {
    static int is_done;
    ssize_t (*next)(int, void *, size_t, int) =
        (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
    ssize_t count = next(fd, bytes, size, flags);
    if (!is_done && count >= 5 && memcmp((char *)bytes + count - 5, "$-1\r\n", 5) == 0) {
        is_done = 1;
        kill(getpid(), SIGTERM); /* for the process: other threads block it */
    }
    return count;
}
