/* SPDX-License-Identifier: BSD-3-Clause */
/* greeting.h - what is said first on a connection: AUTH, SELECT and ROLE, as the URL asks for.
 * Pure. */
#ifndef DLOCK_NET_GREETING_H
#define DLOCK_NET_GREETING_H

#include "dlock.h"
#include "net/resp.h"
#include "net/url.h"

enum { GREETING_MAX = 3 };

/* The commands borrow from the URL. The result is how many there are. */
int greeting_commands(command commands[GREETING_MAX], const url *url);

/* The reply to one of them. DLOCK_OK, or why the connection is no good; DLOCK_UNREACHABLE may pass.
 * text: the cause. */
dlock_status greeting_check(const url *url, int index, const reply *reply, char *text, size_t size);

#endif
