/* SPDX-License-Identifier: BSD-3-Clause */
/* group.c - see group.h. */
#include "group.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

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
