/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - dlock, the command line tool: a table of subcommands, one function each.
 *
 *   run          the runner; keeper: the process that holds the lock; child: the command
 *   claim        acquire, release, extend and wait, for scripts
 *   inspect      info and list
 *   session      who is present
 *   watch        each change of a lock
 *   top          on a screen
 *   metrics      for Prometheus; exposition: the format; http: one scrape
 *   bench        the cost of a lock
 *
 * What they have in common:
 *
 *   request      what the user wants: option: the table; url: parameters and passwords
 *   connect      a client of the library, and a lock that it takes
 *   sightings    locks as they were seen; statistics: INFO dlock, and latencies
 *   text         for people; output: stdout and JSON; complain: stderr and exit codes
 *
 * The tool uses only <dlock.h> of the library: it can do what any program can. */
#include "complain.h"
#include "output.h"
#include "subcommands.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const subcommand subcommands[] = {
    {"run", FOR_RUN, "NAME [NAME... --] COMMAND [ARGUMENT...]",
     "run a command while a lock is held, or several at once",
     "ACL rules: " ACL_LOCK "\n" ACL_SEVERAL "\n" ACL_REPLICAS "\n" ACL_LOSS_AT_ONCE, 1, -1, run},
    {"acquire", FOR_ACQUIRE, "NAME", "take a lock and print its token; the lock stays held", NULL,
     1, 1, claim_acquire},
    {"extend", FOR_EXTEND, "NAME TOKEN", "make the lease of a lock longer, never shorter", NULL, 2,
     2, claim_extend},
    {"release", FOR_RELEASE, "NAME [TOKEN]", "release a lock", NULL, 1, 2, claim_release},
    {"wait", FOR_WAIT, "NAME", "wait until a lock is free, without taking it", NULL, 1, 1,
     claim_wait},
    {"info", FOR_INFO, "NAME", "show who holds a lock, since when, and who waits", NULL, 1, 1,
     inspect_info},
    {"watch", FOR_WATCH, "NAME", "print a line whenever a lock changes hands",
     "ACL rules: " ACL_INFO "\n" ACL_WATCH_AT_ONCE, 1, 1, watch},
    {"list", FOR_LIST, "[PATTERN]", "show all held locks, or those that match a pattern",
     "ACL rules: " ACL_LIST, 0, 1, inspect_list},
    {"session", FOR_SESSION, "", "show who is present at each server: sessions, and what they have",
     "ACL rules: " ACL_SERVER_INFO, 0, 0, session},
    {"top", FOR_TOP, "[PATTERN]", "show the locks with the most waiters, again and again",
     "ACL rules: " ACL_TOP, 0, 1, top},
    {"metrics", FOR_METRICS, "", "print counters, histograms and busy locks for Prometheus",
     "ACL rules: " ACL_TOP "; with --busiest 0: " ACL_SERVER_INFO, 0, 0, metrics},
    {"bench", FOR_BENCH, "", "measure the cost of a lock from this machine", NULL, 0, 0, bench},
};

enum { SUBCOMMANDS = sizeof(subcommands) / sizeof(subcommands[0]) };

static void show_help(void) {
    printf("usage: dlock COMMAND [option...] ...\n\n");
    for (int i = 0; i < SUBCOMMANDS; i++)
        printf("  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
    printf("\n\"dlock COMMAND --help\" shows the options of a command. The manual is dlock(1).\n");
}

/* Makes sure that no other file gets the numbers of stdin, stdout and stderr. A descriptor that was
 * closed still fails: what replaces stdin cannot be read, and the others cannot be written. */
static void open_standard_files(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
}

/* Output that was lost, on a full disk for example, must not look like a result: neither like
 * success, nor like the "free" of info or the "busy" of wait --json. An exit code that names a
 * failure stays, because its cause is on stderr. A reader that has ended is no news: the tool ends
 * by SIGPIPE, as others do. The library's threads, which print for "watch", block that signal. */
static int end_output(const request *request, int code) {
    int error = output_flush();
    if (error == 0) return code;
    if (error == EPIPE) raise(SIGPIPE); /* returns if the signal is ignored */
    complain("stdout: %s", strerror(error));
    bool is_result = code == EXIT_CODE_OK || code == EXIT_CODE_BUSY || code == request->busy_code;
    return is_result ? EXIT_CODE_INTERNAL : code;
}

static int obey(request *request, int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--version") == 0) {
        printf("dlock %s\n", DLOCK_VERSION);
        return EXIT_CODE_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        show_help();
        return EXIT_CODE_OK;
    }
    for (int i = 0; i < SUBCOMMANDS; i++) {
        if (strcmp(word, subcommands[i].name) != 0) continue;
        int code;
        bool is_read = request_read(request, &subcommands[i], argc - 1, argv + 1, &code);
        if (!is_read && request->is_http) metrics_decline();
        return is_read ? subcommands[i].run(request) : code;
    }
    if (argc > 1)
        complain("%s: no such command; see dlock --help", word);
    else
        complain("which command? see dlock --help");
    return EXIT_CODE_USAGE;
}

int main(int argc, char **argv) {
    static request request; /* static, so that tools that look for leaks see its strings */
    open_standard_files();
    return end_output(&request, obey(&request, argc, argv));
}
