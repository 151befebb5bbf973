/* SPDX-License-Identifier: BSD-3-Clause */
/* lock_codec.h - a holder as bytes in RDB files, DUMP payloads and full synchronisation.
 *
 *   offset  size  little-endian
 *        0     1  version, 3
 *        1     1  mode: 0 exclusive, 1 shared
 *        2     8  fence
 *       10     4  lease, ms
 *       14     n  token, 1..256 bytes, to the end
 *
 * The format stores the length of the lease, not the end: a server that loads the lock starts
 * the lease again. To extend the format: a new version number, and a decoder that still reads
 * the old versions. */
#ifndef DLOCK_LOCK_CODEC_H
#define DLOCK_LOCK_CODEC_H

#include "lock_state.h"

#define LOCK_CODEC_HEADER_SIZE 14
#define LOCK_CODEC_SIZE_MAX    (LOCK_CODEC_HEADER_SIZE + LOCK_TOKEN_MAX)

/* Encodes state, which must be a lock and not a string. Returns the number of bytes in out. */
size_t lock_encode(const lock_state *state, char out[LOCK_CODEC_SIZE_MAX]);

/* Decodes a holder; the token points into bytes, left_us is 0. Returns false, and leaves *state
 * alone, for any bytes that lock_encode() could not have written. */
bool lock_decode(const char *bytes, size_t size, lock_state *state);

#endif
