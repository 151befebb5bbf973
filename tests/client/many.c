/* SPDX-License-Identifier: BSD-3-Clause */
/* many.c - one thread with many acquisitions under way, for names that another process wants too.
 *
 *   many URL NAMES PENDING here|there
 *
 * Starts an acquire for each name, then PENDING - 1 more for each, without a thread of the library.
 * They wait here, since the names are hot, or there, in the queues of the server. Says how many
 * bytes each of these takes; reads a line; and releases each lock as soon as it has it. Fails if a
 * name is not served in the order of starting, if a fence does not grow, or if there is a second
 * thread. */
#include "program.h"

#include <dirent.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>

enum { WAIT_MS = 120000 };

typedef struct claim {
    dlock_lock *lock;
    int name, place;
} claim;

static dlock_client *client;
static claim *claims;
static int names, pending, *served;
static uint64_t *fences;
static int started, settled, holding;
static bool may_release;

static void fail(const char *what, const dlock_lock *lock) {
    fprintf(stderr, "many: %s: %s\n", what, lock == NULL ? "" : dlock_last_error(lock));
    exit(1);
}

static void released(void *arg, dlock_lock *lock, dlock_status status) {
    (void)arg;
    if (status != DLOCK_OK) fail("release", lock);
    settled++;
}

static void release(claim *claim) {
    if (dlock_release_start(claim->lock, released, claim) != DLOCK_OK) fail("start", claim->lock);
}

static void acquired(void *arg, dlock_lock *lock, dlock_status status) {
    claim *claim = arg;
    if (status != DLOCK_OK) fail(dlock_status_name(status), lock);
    if (served[claim->name]++ != claim->place) fail("not in order", lock);
    if (dlock_fence(lock) <= fences[claim->name]) fail("the fence does not grow", lock);
    fences[claim->name] = dlock_fence(lock);
    holding++;
    if (may_release) release(claim);
}

static void start(int name, int place) {
    char text[32];
    claim *claim = &claims[place * names + name];
    *claim = (struct claim){.name = name, .place = place};
    snprintf(text, sizeof(text), "name %d", name);
    claim->lock = new_lock(client, text, 10 * WAIT_MS);
    if (dlock_acquire_start(claim->lock, WAIT_MS, acquired, claim) != DLOCK_OK)
        fail("start", claim->lock);
    started++;
}

static void dispatch_for(int timeout_ms) {
    struct pollfd source = {.fd = dlock_client_fd(client), .events = POLLIN};
    poll(&source, 1, timeout_ms);
    dlock_client_dispatch(client);
}

static int count_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static size_t bytes_in_use(void) {
    return mallinfo2().uordblks;
}

/* Reads the line without stopping to dispatch. */
static void await_line(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    printf("waiting\n");
    fflush(stdout);
    while (poll(&input, 1, 0) == 0)
        dispatch_for(10);
}

/* Until all wait or are granted. */
static void await_replies(void) {
    for (int quiet = 0; quiet < 20; quiet++)
        dispatch_for(50);
}

static void run(void) {
    for (int i = 0; i < names; i++)
        start(i, 0);
    await_replies();
    size_t before = bytes_in_use();
    for (int place = 1; place < pending; place++)
        for (int i = 0; i < names; i++)
            start(i, place);
    await_replies();
    printf("bytes %zu\n", (bytes_in_use() - before) / ((size_t)names * (size_t)(pending - 1)));
    await_line();
    may_release = true;
    for (int i = 0; i < names; i++)
        if (served[i] > 0) release(&claims[i]);
    while (settled < names * pending)
        dispatch_for(-1);
    if (count_threads() != 1) fail("there is a second thread", NULL);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    names = atoi(argv[2]);
    pending = atoi(argv[3]);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    claims = calloc((size_t)names * (size_t)pending, sizeof(*claims));
    served = calloc((size_t)names, sizeof(*served));
    fences = calloc((size_t)names, sizeof(*fences));
    dlock_client_options options = options_for((const char *const *)&argv[1], 1);
    options.no_threads = true;
    CHECK(claims != NULL && served != NULL && fences != NULL);
    CHECK(dlock_client_new(&client, &options) == DLOCK_OK);
    for (int i = 0; i < names && strcmp(argv[4], "here") == 0; i++) {
        char text[32];
        snprintf(text, sizeof(text), "name %d", i);
        CHECK(dlock_hotspot_add(client, text) == DLOCK_OK);
    }
    run();
    for (int i = 0; i < names * pending; i++)
        dlock_lock_free(claims[i].lock);
    dlock_client_free(client);
    free(claims);
    free(served);
    free(fences);
    printf("served %d\n", settled);
    return 0;
}
