/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.c - a parent that holds a lock, and a child with a client of its own.
 *
 *   fork URL
 *
 * Fails if the child is hindered by what it inherited, or the parent by what the child does. */
#include "dlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *url, *whose = "parent";

static void expect(const char *what, dlock_status status, dlock_status expected) {
    if (status == expected) return;
    fprintf(stderr, "fork: %s: %s gave %s\n", whose, what, dlock_status_name(status));
    _exit(1);
}

static dlock_client *make_client(void) {
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = &url;
    options.url_count = 1;
    options.io_timeout_ms = 20000; /* sanitizers are slow */
    options.connect_timeout_ms = 20000;
    dlock_client *client;
    expect("client_new", dlock_client_new(&client, &options), DLOCK_OK);
    return client;
}

static dlock_lock *make_lock(dlock_client *client, const char *name) {
    dlock_lock *lock;
    expect("lock_new", dlock_lock_new(&lock, client, name, NULL), DLOCK_OK);
    return lock;
}

static void be_the_child(const char *parents_token) {
    whose = "child";
    dlock_client *client = make_client();
    dlock_lock *parents = make_lock(client, "parent's"), *own = make_lock(client, "child's");
    expect("acquire of the parent's lock", dlock_try_acquire(parents), DLOCK_BUSY);
    expect("acquire of its own", dlock_acquire(own, 20000), DLOCK_OK);
    if (strcmp(dlock_token(own), parents_token) == 0) expect("a token", DLOCK_OK, DLOCK_INVALID);
    expect("release", dlock_release(own), DLOCK_OK);
    dlock_lock_free(parents);
    dlock_lock_free(own);
    dlock_client_free(client);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    url = argv[1];
    dlock_client *client = make_client();
    dlock_lock *lock = make_lock(client, "parent's");
    expect("acquire", dlock_acquire(lock, 20000), DLOCK_OK);
    pid_t child = fork();
    if (child == 0) be_the_child(dlock_token(lock));
    int ended;
    if (child < 0 || waitpid(child, &ended, 0) != child || ended != 0) return 1;
    expect("extend", dlock_extend(lock, 0), DLOCK_OK);
    expect("release", dlock_release(lock), DLOCK_OK);
    expect("acquire after the child", dlock_acquire(lock, 20000), DLOCK_OK);
    expect("release after the child", dlock_release(lock), DLOCK_OK);
    dlock_client_stats stats = {.struct_size = sizeof(stats)};
    dlock_client_get_stats(client, &stats);
    dlock_lock_free(lock);
    dlock_client_free(client);
    return stats.acquired == 2 && stats.commands == 5 ? 0 : 1;
}
