/* SPDX-License-Identifier: BSD-3-Clause */
/* info_section.h - the section "dlock" of INFO. */
#ifndef DLOCK_INFO_SECTION_H
#define DLOCK_INFO_SECTION_H

#include "redismodule.h"

int info_section_register(RedisModuleCtx *ctx);

#endif
