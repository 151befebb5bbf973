/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - dlock, the command line tool: a table of subcommands, each in a file of its own.
 *
 *   request      options (option), DLOCK_URL, configuration files (config_file), passwords (secret)
 *   run          the runner; keeper holds the lock, child is the command; wire, group, terminal
 *   claim        acquire, release, extend, wait for scripts; force: release --force
 *   watch        each change of a lock
 *   inspect      info and list; sightings: locks as they were seen; column: names in tables;
 *                failures: independent servers without a result
 *   top          on a screen; statistics: INFO dlock
 *   metrics      the same for Prometheus; exposition: the format; http: one scrape
 *   bench        latency
 *
 * The tool uses only <dlock.h> of the library: it can do what any program can. */
#include "acl.h"
#include "bench.h"
#include "claim.h"
#include "complain.h"
#include "inspect.h"
#include "metrics.h"
#include "run.h"
#include "top.h"
#include "watch.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const subcommand subcommands[] = {
    {"run", FOR_RUN, "NAME [--] COMMAND [ARGUMENT...]", "run a command while a lock is held", NULL,
     1, -1, run},
    {"acquire", FOR_ACQUIRE, "NAME", "take a lock and print its token; the lock stays held", NULL,
     1, 1, claim_acquire},
    {"extend", FOR_EXTEND, "NAME TOKEN", "start the lease of a lock anew", NULL, 2, 2,
     claim_extend},
    {"release", FOR_RELEASE, "NAME [TOKEN]", "release a lock", NULL, 1, 2, claim_release},
    {"wait", FOR_WAIT, "NAME", "wait until a lock is free, without taking it", NULL, 1, 1,
     claim_wait},
    {"info", FOR_INFO, "NAME", "show who holds a lock, since when, and who waits", NULL, 1, 1,
     inspect_info},
    {"watch", FOR_WATCH, "NAME", "print a line whenever a lock changes hands",
     "ACL rules: " ACL_WATCH, 1, 1, watch},
    {"list", FOR_LIST, "[PATTERN]", "show all held locks, or those that match a pattern",
     "ACL rules: " ACL_LIST, 0, 1, inspect_list},
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

/* Makes sure that no other file gets the numbers of stdin, stdout and stderr. */
static void open_standard_files(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv) {
    static request request; /* static, so that tools that look for leaks see its strings */
    open_standard_files();
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
        bool is_read = request_read(&request, &subcommands[i], argc - 1, argv + 1, &code);
        if (!is_read && request.is_http) metrics_decline();
        return is_read ? subcommands[i].run(&request) : code;
    }
    complain(argc > 1 ? "no such command; see dlock --help" : "which command? see dlock --help");
    return EXIT_CODE_USAGE;
}
