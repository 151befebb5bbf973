/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_codec.h - a lock as bytes: its form in RDB files, DUMP payloads and full synchronisation.
 *
 *   offset  size  little-endian
 *        0     1  version, 2
 *        1     8  fence
 *        9     4  lease, ms
 *       13     n  token, 1..256 bytes, to the end
 *
 * The length of the lease is stored, not its end: whoever loads the lock starts the lease anew.
 * To extend it: a new version number, and a decoder that still reads the old ones. */
#ifndef DLOCK_LOCK_CODEC_H
#define DLOCK_LOCK_CODEC_H

#include "lock_state.h"

#define LOCK_CODEC_HEADER_SIZE 13
#define LOCK_CODEC_SIZE_MAX    (LOCK_CODEC_HEADER_SIZE + LOCK_TOKEN_MAX)

/* Writes state, which must be a lock and not a string; returns how many bytes of out it took. */
size_t lock_encode(const lock_state *state, char out[LOCK_CODEC_SIZE_MAX]);

/* Reads a lock; the token points into bytes, left_us is 0. False, and *state
 * untouched, for anything that lock_encode() could not have written. */
bool lock_decode(const char *bytes, size_t size, lock_state *state);

#endif
