/* SPDX-License-Identifier: BSD-3-Clause */
/* complain.h - why something failed: one line on stderr, "dlock: ...", and the exit code. */
#ifndef DLOCK_CLI_COMPLAIN_H
#define DLOCK_CLI_COMPLAIN_H

#include "request.h"

/* -- exit codes: as in flock(1) and sysexits.h. The man page has the same table */

typedef enum exit_code {
    EXIT_CODE_OK = 0,
    EXIT_CODE_BUSY = 1,          /* held by another; or not held, when it should be */
    EXIT_CODE_USAGE = 64,        /* EX_USAGE */
    EXIT_CODE_UNREACHABLE = 69,  /* EX_UNAVAILABLE */
    EXIT_CODE_INTERNAL = 70,     /* EX_SOFTWARE */
    EXIT_CODE_NO_RESOURCES = 71, /* EX_OSERR */
    EXIT_CODE_IN_DOUBT = 75,     /* EX_TEMPFAIL; also too few replicas or servers, a full queue */
    EXIT_CODE_PROTOCOL = 76,     /* EX_PROTOCOL: also of a server without the module */
    EXIT_CODE_REFUSED = 77,      /* EX_NOPERM */
    EXIT_CODE_CONFIG = 78,       /* EX_CONFIG */
    EXIT_CODE_LOST = 79,         /* the lock was lost while the command ran */
    EXIT_CODE_CANNOT_RUN = 126,  /* as a shell has it */
    EXIT_CODE_NOT_FOUND = 127,   /* likewise */
    EXIT_CODE_SIGNAL = 128       /* and the number of the signal */
} exit_code;

exit_code exit_code_of(dlock_status status);

/* -- lines. Text from outside may be passed as it is: the line is escaped. A reader of stderr that
 *    does not read delays a complaint only for a moment; then the line is dropped, so that no full
 *    pipe and no stopped terminal keeps the tool from its work */

__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

/* Complains about the status. request: for hints about its URL, for which the server may be asked
 * once more; context: the lock or the
 * subcommand; cause: the library's, or "". The result is the exit code. */
exit_code complain_status(const request *request, const char *context, dlock_status status,
                          const char *cause);

/* The same. rules: the ACL rules that the user needs, printed if permission is missing. */
exit_code complain_query(const request *request, const char *context, dlock_status status,
                         const char *cause, const char *rules);

/* Names each of the servers that gave no result, although the query succeeded: see sightings.h. */
void complain_failures(const char *context, const char *why);

/* -- ACL rules that a user needs, for --help and for complaints. The man page has them too */

#define ACL_LOCK     "+dlock.session +dlock.acquire +dlock.extend +dlock.release ~*"
#define ACL_SEVERAL  "for several names: +dlock.acquireall +dlock.releaseall"
#define ACL_REPLICAS "for --min-replicas: +wait"
#define ACL_INFO     "+dlock.info %R~*"

/* Only for --help: without these, changes and losses are noticed later. */
#define ACL_WATCH_AT_ONCE "to be told at once: +dlock.session +dlock.watch +dlock.unwatch"
#define ACL_LOSS_AT_ONCE  "to be told of a loss at once: +dlock.watch +dlock.unwatch +dlock.info"

#define ACL_LIST "+scan +dlock.info %R~*"
#define ACL_TOP  "+scan +dlock.info +info %R~*"

#define ACL_SERVER_INFO "+info"

#endif
