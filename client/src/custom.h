/* SPDX-License-Identifier: BSD-3-Clause */
/* custom.h - a backend out of a store that somebody else wrote (dlock_spi.h). */
#ifndef DLOCK_CUSTOM_H
#define DLOCK_CUSTOM_H

#include "backend.h"

/* NULL: no memory. The store itself is copied. */
backend *custom_new(const dlock_backend *store);

#endif
