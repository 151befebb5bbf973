/* SPDX-License-Identifier: BSD-3-Clause */
/* failing_memory.c - the whole life of a lock, with every n-th allocation failing.
 *
 *   failing_memory URL...
 *
 * For each n: whatever the library returns is allowed by its header, it does not crash, and no
 * memory is left over. Counts what the library and OpenSSL allocate, on all threads.
 *
 * With rediss:// n grows faster, as a handshake is thousands of allocations, and there is memory
 * until OpenSSL is ready for use, as it does not try that again. If it has none later, it may say
 * that it does not trust the server. */
#include "dlock.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LAST_N = 400, LAST_N_TLS = 20000, TRIES = 5, WAIT_MS = 2000 };

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *old);

static atomic_int fail_at, calls, live;

static bool is_to_fail(void) {
    int at = atomic_load(&fail_at);
    return at > 0 && atomic_fetch_add(&calls, 1) % at == at - 1;
}

static void *count(void *made) {
    if (made != NULL) atomic_fetch_add(&live, 1);
    return made;
}

DLOCK_API void *malloc(size_t size) {
    if (!is_to_fail()) return count(__libc_malloc(size));
    errno = ENOMEM;
    return NULL;
}

DLOCK_API void *calloc(size_t number, size_t size) {
    if (!is_to_fail()) return count(__libc_calloc(number, size));
    errno = ENOMEM;
    return NULL;
}

DLOCK_API void *realloc(void *old, size_t size) {
    if (old == NULL) return malloc(size);
    if (!is_to_fail()) return __libc_realloc(old, size);
    errno = ENOMEM;
    return NULL;
}

DLOCK_API void free(void *old) {
    if (old != NULL) atomic_fetch_sub(&live, 1);
    __libc_free(old);
}

static const char *const *urls;
static size_t url_count;
static bool is_tls, is_plain; /* plain: a server without the module */
static bool is_tied;          /* the lock ends with a connection, which failures end */

static void check(const char *what, dlock_status status, bool is_allowed) {
    if (is_allowed) return;
    int n = atomic_exchange(&fail_at, 0);
    fprintf(stderr, "failing_memory: every %d.: %s gave %s\n", n, what, dlock_status_name(status));
    exit(1);
}

/* A failed allocation may also be seen as a connection that could not be made. */
static bool is_failure(dlock_status status) {
    return status == DLOCK_NO_MEMORY || status == DLOCK_UNREACHABLE || status == DLOCK_IN_DOUBT ||
           status == DLOCK_PROTOCOL || status == DLOCK_NO_QUORUM ||
           (is_tls && status == DLOCK_REFUSED);
}

/* Of a call that asks for a lock that was granted. */
static bool is_fine(dlock_status status) {
    bool is_end = status == DLOCK_LOST || status == DLOCK_NOT_HELD;
    return status == DLOCK_OK || is_failure(status) || (is_tied && is_end);
}

static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg, (void)event, (void)name, (void)why;
}

static bool see(void *arg, const dlock_inspection *lock) {
    (void)arg, (void)lock;
    return true;
}

static void see_field(void *arg, const char *server, const char *field, const char *value) {
    (void)arg, (void)server, (void)field, (void)value;
}

static void see_change(void *arg, const char *name, const dlock_inspection *holder) {
    (void)arg, (void)name, (void)holder;
}

/* NULL: no memory, or several servers. */
static dlock_watcher *watch(dlock_client *client) {
    dlock_watcher *watcher = NULL;
    dlock_status status = dlock_watch(client, "memory", see_change, NULL, &watcher);
    check("watch", status, (status == DLOCK_OK) == (watcher != NULL));
    check("watch", status,
          url_count > 1 || is_plain ? status == DLOCK_INVALID
                                    : status == DLOCK_OK || status == DLOCK_NO_MEMORY);
    return watcher;
}

/* What can be done without a handle. */
static void look(dlock_client *client, const char *token) {
    char why[100];
    dlock_status status = dlock_inspect(client, "memory", 2000, see, NULL, why, sizeof(why));
    check("inspect", status, is_fine(status));
    dlock_status expected = is_plain ? DLOCK_INVALID : DLOCK_OK;
    status = dlock_list(client, "mem*", 2000, see, NULL, NULL, 0);
    check("list", status, status == expected || is_failure(status));
    status = dlock_server_info(client, 2000, see_field, NULL, why, sizeof(why));
    check("server_info", status, status == expected || is_failure(status));
    status = dlock_extend_token(client, "memory", token, 10000, why, sizeof(why));
    check("extend_token", status, is_fine(status));
    status = dlock_release_token(client, "memory", "stranger", why, sizeof(why));
    check("release_token", status, status == DLOCK_NOT_HELD || is_failure(status));
}

/* is_kept: renewed and watched, on a connection of its own. */
static void use(dlock_client *client, bool is_kept) {
    dlock_lock *lock = NULL;
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.renew_every_ms = is_kept ? 1 : 0;
    options.session = is_tied = is_kept && url_count == 1 && !is_plain; /* several have none */
    dlock_status status = dlock_lock_new(&lock, client, "memory", &options);
    check("lock_new", status, (status == DLOCK_OK) == (lock != NULL));
    check("lock_new", status, status == DLOCK_OK || status == DLOCK_NO_MEMORY);
    if (status != DLOCK_OK) return;
    dlock_watcher *watcher = is_kept ? watch(client) : NULL;
    for (int i = 0; i < 3; i++) {
        status = dlock_acquire(lock, i * 20);
        /* BUSY: an earlier claim could not be withdrawn for want of memory. */
        check("acquire", status,
              status == DLOCK_OK || status == DLOCK_BUSY || status == DLOCK_TIMEOUT ||
                  is_failure(status));
        if (status != DLOCK_OK) continue;
        status = dlock_extend(lock, 0);
        check("extend", status, is_fine(status));
        status = dlock_guarded(lock, 2, (const char *const[]){"GET", "data"}, NULL, NULL);
        check("guarded", status,
              url_count > 1 || is_plain ? status == DLOCK_INVALID : is_fine(status));
        if (i == 0) look(client, dlock_token(lock));
        status = dlock_release(lock);
        check("release", status, is_fine(status));
    }
    dlock_watcher_free(watcher);
    dlock_lock_free(lock);
}

/* Allocations that are left after a while: the thread of a look-up may outlive its client. */
static int count_left_over(int before) {
    int left_over;
    for (int ms = 0; (left_over = atomic_load(&live) - before) != 0 && ms < WAIT_MS; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return left_over;
}

static bool live_once(int n, bool is_kept) {
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = urls;
    options.url_count = url_count;
    options.io_timeout_ms = 2000;
    if (is_kept) options.on_event = on_event;
    atomic_store(&calls, 0);
    atomic_store(&fail_at, n);
    dlock_client *client = NULL;
    dlock_status status = dlock_client_new(&client, &options);
    check("client_new", status, (status == DLOCK_OK) == (client != NULL));
    check("client_new", status, status == DLOCK_OK || status == DLOCK_NO_MEMORY);
    if (client != NULL) use(client, is_kept);
    dlock_client_free(client);
    atomic_store(&fail_at, 0);
    return status == DLOCK_OK;
}

static int next(int n) {
    return is_tls ? n + 1 + n / 30 : n + 1;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    urls = (const char *const *)argv + 1;
    url_count = (size_t)argc - 1;
    is_tls = strncmp(urls[0], "rediss:", 7) == 0;
    is_plain = strstr(urls[0], "module=none") != NULL;
    int worked = 0, tried = 0, last_n = is_tls ? LAST_N_TLS : LAST_N;
    if (is_tls && !live_once(0, true)) return 1;
    /* libc keeps a thing or two of the first threads and look-ups. */
    for (int n = 1; n <= last_n; n = next(n))
        live_once(n, n % 2);
    for (int n = 1; n <= last_n; n = next(n)) {
        int left_over = 1;
        /* OpenSSL keeps texts of its last errors for each thread: a leak is there every time. */
        for (int i = 0; i < TRIES && left_over != 0; i++) {
            int before = atomic_load(&live);
            worked += live_once(n, n % 2);
            tried++;
            left_over = count_left_over(before);
        }
        if (left_over == 0) continue;
        fprintf(stderr, "failing_memory: every %d.: %d allocations are left\n", n, left_over);
        return 1;
    }
    printf("%d of %d clients could be made\n", worked, tried);
    return worked > 0 && worked < tried ? 0 : 1;
}
