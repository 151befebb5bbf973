/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.h - attempts for names in several slots of a cluster: see slots.c. */
#pragma once
#include "deployment/router.h"

/* In how many slots are the names of the attempt? */
unsigned slots_count(const attempt *attempt);

/* As routed_table, and for names in several slots. */
extern const deployment_table slots_table;
