/* SPDX-License-Identifier: BSD-3-Clause */
/* top.h - "dlock top": the locks that most wait for, again and again. */
#ifndef DLOCK_CLI_TOP_H
#define DLOCK_CLI_TOP_H

#include "request.h"

int top(request *request);

#endif
