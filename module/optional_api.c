/* SPDX-License-Identifier: BSD-3-Clause */
/* optional_api.c - see optional_api.h. */
#include "optional_api.h"

optional_functions optional_api;

void optional_api_look_up(void) {
    RedisModule_GetApi("RedisModule_SetCommandACLCategories", &optional_api.set_acl_categories);
}
