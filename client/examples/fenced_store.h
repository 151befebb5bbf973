/* SPDX-License-Identifier: BSD-3-Clause */
/* fenced_store.h - what fenced_writer.c needs of a store. fenced_file.c, fenced_sqlite.c and
 * fenced_redis.c are one each; yours has the same three duties:
 *
 *   remember   the fence of a write is kept beside the data, and lives and dies with it
 *   refuse     a smaller fence than that changes nothing; the same one may write again
 *   one step   nothing comes between the look and the write, or the pause could */
#ifndef FENCED_STORE_H
#define FENCED_STORE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum store_answer {
    STORE_WRITTEN,
    STORE_REFUSED, /* a larger fence was here */
    STORE_FAILED   /* the cause is on stderr; to try again with the same fence does no harm */
} store_answer;

/* Replaces the text that is kept there. Without is_fenced it does not look at the fence that is
 * there already: for those who want to see the damage. */
store_answer store_write(const char *where, const char *text, uint64_t fence, bool is_fenced);

#endif
