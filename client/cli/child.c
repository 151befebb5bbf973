/* SPDX-License-Identifier: BSD-3-Clause */
/* child.c - see child.h. */
#include "child.h"

#include "complain.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void set_environment(const char *name, const char *token, uint64_t fence) {
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRIu64, fence);
    setenv("DLOCK_NAME", name, 1);
    setenv("DLOCK_TOKEN", token, 1);
    setenv("DLOCK_FENCE", digits, 1);
}

static _Noreturn void run(char *const words[], int go_fd) {
    char byte;
    ssize_t size;
    do
        size = read(go_fd, &byte, 1);
    while (size < 0 && errno == EINTR);
    if (size != 1) _exit(EXIT_CODE_INTERNAL); /* our parent is gone */
    execvp(words[0], words);
    bool is_missing = errno == ENOENT || errno == ENOTDIR;
    complain("%s: %s", words[0], strerror(errno));
    _exit(is_missing ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_RUN);
}

child child_start(char *const words[], const sigset_t *mask, const char *name, const char *token,
                  uint64_t fence) {
    int ends[2];
    pid_t parent = getpid();
    child made = {.pid = -1, .go_fd = -1};
    if (pipe2(ends, O_CLOEXEC) != 0) return made;
    made.pid = fork();
    made.go_fd = ends[1];
    if (made.pid != 0) {
        close(ends[0]);
        if (made.pid > 0) setpgid(made.pid, made.pid); /* so does the child: who comes first */
        return made;
    }
    close(ends[1]);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_CODE_INTERNAL);
    set_environment(name, token, fence);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    run(words, ends[0]);
}

void child_go(child *of) {
    if (write(of->go_fd, "", 1) < 0) complain("the command cannot be started");
    close(of->go_fd);
    of->go_fd = -1;
}
