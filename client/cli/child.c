/* SPDX-License-Identifier: BSD-3-Clause */
/* child.c - see child.h.
 *
 *   command    forked, with the lock in its environment; executed once the runner says go
 *   group      signals, and whether a process of the group is left
 *   terminal   the foreground is lent to the group, and taken back */
#include "child.h"

#include "complain.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- the command */

static void set_environment(const child_options *options) {
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRIu64, options->fence);
    setenv("DLOCK_URL", options->url, 1);
    setenv("DLOCK_NAME", options->name, 1);
    setenv("DLOCK_TOKEN", options->token, 1);
    if (options->fence != 0)
        setenv("DLOCK_FENCE", digits, 1);
    else /* plain Redis has none, and 0 would look like one */
        unsetenv("DLOCK_FENCE");
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

/* -- its group */

static bool wakes_up(int signal) {
    return signal == SIGTERM || signal == SIGHUP || signal == SIGINT || signal == SIGQUIT;
}

void group_signal(pid_t group, int signal) {
    kill(-group, signal);
    if (wakes_up(signal)) kill(-group, SIGCONT);
}

/* By /proc/PID/stat: "pid (name) state parent group ...", where the name may be anything. */
static bool is_living_member(const char *pid, pid_t group) {
    char path[300], line[512], state;
    int parent, its_group;
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    size_t length = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[length] = '\0';
    const char *behind_name = strrchr(line, ')');
    if (behind_name == NULL) return false;
    if (sscanf(behind_name + 1, " %c %d %d", &state, &parent, &its_group) != 3) return false;
    return its_group == group && state != 'Z' && state != 'X';
}

bool group_is_alive(pid_t group) {
    if (kill(-group, 0) != 0 && errno == ESRCH) return false; /* as a rule */
    DIR *processes = opendir("/proc");
    if (processes == NULL) return true;
    bool is_alive = false;
    for (struct dirent *each; !is_alive && (each = readdir(processes)) != NULL;)
        is_alive = isdigit((unsigned char)each->d_name[0]) && is_living_member(each->d_name, group);
    closedir(processes);
    return is_alive;
}

/* -- the terminal */

void terminal_open(terminal *made) {
    *made = (terminal){.fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)};
}

void terminal_close(terminal *old) {
    if (old->fd >= 0) close(old->fd);
    old->fd = -1;
}

bool terminal_is_all_ours(const terminal *terminal) {
    return terminal->fd >= 0 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

bool terminal_lend(terminal *terminal, pid_t group) {
    if (terminal->fd < 0 || tcgetpgrp(terminal->fd) != getpgrp()) return false;
    if (tcsetpgrp(terminal->fd, group) != 0) return false;
    terminal->lent_to = group;
    return true;
}

void terminal_take_back(terminal *terminal) {
    if (terminal->lent_to != 0 && tcgetpgrp(terminal->fd) == terminal->lent_to)
        tcsetpgrp(terminal->fd, getpgrp());
    terminal->lent_to = 0;
}
