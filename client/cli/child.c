/* SPDX-License-Identifier: BSD-3-Clause */
/* child.c - see child.h. */
#include "child.h"

#include "complain.h"
#include "secret.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_environment(const child_options *options) {
    char digits[24];
    const char *url = getenv("DLOCK_URL");
    snprintf(digits, sizeof(digits), "%" PRIu64, options->fence);
    setenv("DLOCK_NAME", options->name, 1);
    setenv("DLOCK_TOKEN", options->token, 1);
    setenv("DLOCK_FENCE", digits, 1);
    if (url != NULL && secret_is_in_text(url) && !options->has_url) unsetenv("DLOCK_URL");
}

/* False: the parent is gone, or wants no command. */
static bool await_go(int fd) {
    char byte;
    ssize_t size;
    do
        size = read(fd, &byte, 1);
    while (size < 0 && errno == EINTR);
    return size == 1;
}

/* Ends the child without a command. The exec of a command closes the socket instead. */
static _Noreturn void give_up(int fd, int code) {
    bool is_told = send(fd, "", 1, MSG_NOSIGNAL) == 1;
    _exit(is_told ? code : EXIT_CODE_INTERNAL);
}

static _Noreturn void run(const child_options *options, int fd) {
    char *const *words = options->words;
    if (!await_go(fd)) _exit(EXIT_CODE_INTERNAL);
    if (wire_now_ms() >= atomic_load(&options->times->kill_at_ms)) give_up(fd, EXIT_CODE_LOST);
    execvp(words[0], words);
    bool is_missing = errno == ENOENT || errno == ENOTDIR;
    complain("%s: %s", words[0], strerror(errno));
    give_up(fd, is_missing ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_RUN);
}

child child_start(const child_options *options) {
    int ends[2];
    pid_t parent = getpid();
    child made = {.pid = -1, .fd = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return made;
    made.pid = fork();
    made.fd = ends[1];
    if (made.pid != 0) {
        close(ends[0]);
        if (made.pid > 0) setpgid(made.pid, made.pid); /* so does the child: either may be first */
        if (made.pid < 0) close(ends[1]);
        return made;
    }
    close(ends[1]);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_CODE_INTERNAL);
    set_environment(options);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &options->mask, NULL);
    run(options, ends[0]);
}

void child_go(child *child) {
    if (send(child->fd, "", 1, MSG_NOSIGNAL) < 0) complain("the command cannot be started");
}

bool child_has_begun(child *child) {
    char byte;
    bool is_given_up = recv(child->fd, &byte, 1, MSG_DONTWAIT) == 1;
    close(child->fd);
    child->fd = -1;
    return !is_given_up;
}

void child_drop(child *child) {
    close(child->fd);
    kill(child->pid, SIGKILL);
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    *child = (struct child){.pid = -1, .fd = -1};
}
