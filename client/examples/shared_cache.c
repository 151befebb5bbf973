/* SPDX-License-Identifier: BSD-3-Clause */
/* shared_cache.c - a cache that one process fills and many read: a read/write lock.
 *
 *   cc -o shared_cache shared_cache.c $(pkg-config --cflags --libs dlock)
 *   ./shared_cache redis://127.0.0.1:6379 /var/cache/prices
 *
 * Run the program on many machines at once, with a file that they all see. Readers hold the lock
 * together, so nobody waits while the cache is there. If the file is missing, each reader releases
 * the lock and asks for it as a writer: a mode cannot change while a lock is held. The first writer
 * fills the cache; the others look again, and find it. No reader sees half of the file. */
#include <dlock.h>
#include <stdio.h>
#include <unistd.h>

enum { LEASE_MS = 10000, WAIT_MS = 60000, LINES = 1000 };

static bool read_cache(const char *path) {
    int lines = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    printf("read %d lines\n", lines);
    return true;
}

/* Stands for a query that takes long, and that only one process should make. */
static bool fill_cache(const char *path, uint64_t fence) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return false;
    for (int i = 0; i < LINES; i++)
        fprintf(file, "price %d, computed under fence %llu\n", i, (unsigned long long)fence);
    if (fclose(file) != 0) return false;
    printf("filled\n");
    return true;
}

static int explain(const char *what, const char *cause) {
    fprintf(stderr, "shared_cache: %s: %s\n", what, cause);
    return 1;
}

static dlock_scope begin(dlock_client *client, dlock_mode mode) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.mode = mode;
    options.lease_ms = LEASE_MS;
    options.renew_every_ms = LEASE_MS / 3; /* the work may take longer than the lease */
    return dlock_scope_begin(client, "cache:prices", WAIT_MS, &options);
}

/* *is_read: the cache was there. */
static int try_to_read(dlock_client *client, const char *path, bool *is_read) {
    dlock_scope scope = begin(client, DLOCK_SHARED);
    bool is_held = scope.got == DLOCK_OK;
    if (is_held) *is_read = read_cache(path);
    int code = is_held ? 0 : explain("as a reader", dlock_status_text(scope.got));
    dlock_scope_end(&scope);
    return code;
}

static int fill_if_missing(dlock_client *client, const char *path) {
    dlock_scope scope = begin(client, DLOCK_EXCLUSIVE);
    int code = 0;
    if (scope.got != DLOCK_OK)
        code = explain("as a writer", dlock_status_text(scope.got));
    else if (access(path, F_OK) != 0 && !fill_cache(path, dlock_fence(scope.lock)))
        code = explain(path, "it cannot be written");
    dlock_scope_end(&scope);
    return code;
}

static int get_prices(dlock_client *client, const char *path) {
    bool is_read = false;
    int code = try_to_read(client, path, &is_read);
    if (code == 0 && !is_read) code = fill_if_missing(client, path);
    if (code == 0 && !is_read) code = try_to_read(client, path, &is_read);
    return code == 0 && !is_read ? explain(path, "it was removed again") : code;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: shared_cache URL FILE\n");
        return 2;
    }
    dlock_client *client;
    if (dlock_client_new_url(&client, argv[1]) != DLOCK_OK)
        return explain("no client", dlock_error());
    int code = get_prices(client, argv[2]);
    dlock_client_free(client);
    return code;
}
