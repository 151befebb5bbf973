/* SPDX-License-Identifier: BSD-3-Clause */
/* acl.h - the ACL rules of Redis that a user needs for a subcommand: for --help and for complaints.
 * The man page has the same rules. */
#ifndef DLOCK_CLI_ACL_H
#define DLOCK_CLI_ACL_H

#define ACL_INFO "+dlock.info %R~*"
#define ACL_WATCH                                                                                  \
    "+dlock.info %R~*; to be told at once: +client|id +client|tracking +client|caching "           \
    "+subscribe &__redis__:invalidate"
#define ACL_LIST "+scan +dlock.info %R~*"
#define ACL_TOP  "+scan +dlock.info +info %R~*"

#define ACL_SERVER_INFO "+info"

#endif
