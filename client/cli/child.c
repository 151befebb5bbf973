/* SPDX-License-Identifier: BSD-3-Clause */
/* child.c - see child.h. */
#include "child.h"

#include "complain.h"
#include "secret.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
static bool await_go(int go_fd) {
    char byte;
    ssize_t size;
    do
        size = read(go_fd, &byte, 1);
    while (size < 0 && errno == EINTR);
    return size == 1;
}

static _Noreturn void run(const child_options *options, int go_fd) {
    char *const *words = options->words;
    if (!await_go(go_fd)) _exit(EXIT_CODE_INTERNAL);
    if (wire_now_ms() >= atomic_load(&options->times->kill_at_ms)) _exit(EXIT_CODE_LOST);
    execvp(words[0], words);
    bool is_missing = errno == ENOENT || errno == ENOTDIR;
    complain("%s: %s", words[0], strerror(errno));
    _exit(is_missing ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_RUN);
}

child child_start(const child_options *options) {
    int ends[2];
    pid_t parent = getpid();
    child made = {.pid = -1, .go_fd = -1};
    if (pipe2(ends, O_CLOEXEC) != 0) return made;
    made.pid = fork();
    made.go_fd = ends[1];
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
    if (write(child->go_fd, "", 1) < 0) complain("the command cannot be started");
    close(child->go_fd);
    child->go_fd = -1;
}

void child_drop(child *child) {
    close(child->go_fd);
    kill(child->pid, SIGKILL);
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    *child = (struct child){.pid = -1, .go_fd = -1};
}
