/* SPDX-License-Identifier: BSD-3-Clause */
/* fenced_sqlite.c - a table with a column for the fence.
 *
 *   cc -o fenced_sqlite fenced_writer.c fenced_sqlite.c $(pkg-config --cflags --libs dlock sqlite3)
 *   ./fenced_sqlite redis://127.0.0.1:6379 notes.db "some text"
 *
 * One statement looks and writes; if it changed no row, a larger fence was there. It is the same
 * for PostgreSQL, with $1 and $2. Where a write is more than one row, the row with the fence comes
 * first, and if it was not changed, the transaction is rolled back. */
#include "fenced_store.h"

#include <sqlite3.h>
#include <stdio.h>

#define TABLE                                                                                      \
    "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL,"                \
    " fence BIGINT NOT NULL)"
#define WRITE                                                                                      \
    "INSERT INTO notes (id, text, fence) VALUES (1, ?1, ?2)"                                       \
    " ON CONFLICT (id) DO UPDATE SET text = excluded.text, fence = excluded.fence"
#define CHECK " WHERE notes.fence <= excluded.fence"

enum { BUSY_MS = 5000 }; /* how long to wait for others who write to this database */

store_answer store_write(const char *where, const char *text, uint64_t fence, bool is_fenced) {
    const char *statement = is_fenced ? WRITE CHECK : WRITE;
    sqlite3 *db = NULL;
    sqlite3_stmt *write = NULL;
    bool is_done = sqlite3_open(where, &db) == SQLITE_OK &&
                   sqlite3_busy_timeout(db, BUSY_MS) == SQLITE_OK &&
                   sqlite3_exec(db, TABLE, NULL, NULL, NULL) == SQLITE_OK &&
                   sqlite3_prepare_v2(db, statement, -1, &write, NULL) == SQLITE_OK &&
                   sqlite3_bind_text(write, 1, text, -1, SQLITE_STATIC) == SQLITE_OK &&
                   sqlite3_bind_int64(write, 2, (sqlite3_int64)fence) == SQLITE_OK &&
                   sqlite3_step(write) == SQLITE_DONE;
    store_answer answer = STORE_FAILED;
    if (is_done) answer = sqlite3_changes(db) > 0 ? STORE_WRITTEN : STORE_REFUSED;
    if (!is_done) fprintf(stderr, "%s: %s\n", where, sqlite3_errmsg(db));
    sqlite3_finalize(write);
    sqlite3_close(db);
    return answer;
}
