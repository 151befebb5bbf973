/* SPDX-License-Identifier: BSD-3-Clause */
/* force.h - release --force: takes a lock away from its holder, for operators. */
#ifndef DLOCK_CLI_FORCE_H
#define DLOCK_CLI_FORCE_H

#include "request.h"

int force_release(request *request);

#endif
