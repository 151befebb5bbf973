/* SPDX-License-Identifier: BSD-3-Clause */
/* fenced_writer.c - writes a text under a lock, to a store that refuses those who lost the lock.
 *
 *   cc -o fenced_file fenced_writer.c fenced_file.c $(pkg-config --cflags --libs dlock)
 *   ./fenced_file redis://127.0.0.1:6379 notes.txt "some text"
 *
 * or with fenced_sqlite.c or fenced_redis.c instead of fenced_file.c. See it refuse: with - for the
 * text, it is read from the keyboard while the lock is held. Stop it there by Ctrl-Z, write
 * something else by a second call, which gets the lock when the lease ends, then bring the first
 * back by fg and press Enter. With --unfenced before the URL it overwrites the newer text.
 *
 * Exit code 0: written. 1: it could not be done. 2: called in a wrong way. 3: refused. */
#include "fenced_store.h"

#include <dlock.h>
#include <inttypes.h>
#include <stdio.h>

enum { LEASE_MS = 3000, WAIT_MS = 5000 };
enum { EXIT_WRITTEN = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_REFUSED = 3 };

typedef struct job {
    const char *store, *text;
    bool is_fenced;
} job;

static int give_up(const char *why) {
    fprintf(stderr, "fenced_writer: %s\n", why);
    return EXIT_FAILED;
}

static int write_as_holder(const dlock_lock *lock, const job *todo) {
    const char *text = todo->text;
    char typed[1024] = "";
    uint64_t fence = dlock_fence(lock);

    /* A careful holder looks at the clock. It does not help: the pause may come right after. */
    if (dlock_remaining_ms(lock) == 0) return give_up("the lock was lost");
    printf("holding, fence %" PRIu64 "\n", fence);
    fflush(stdout);
    if (strcmp(text, "-") == 0) {
        if (scanf("%1023[^\n]", typed) != 1) return give_up("no text was typed");
        text = typed;
    }

    /* Nobody can tell here whether the lock is still ours. The store can tell whether the next
     * holder has been there. */
    switch (store_write(todo->store, text, fence, todo->is_fenced)) {
    case STORE_WRITTEN:
        printf("written\n");
        return EXIT_WRITTEN;
    case STORE_REFUSED:
        printf("refused: a larger fence was there\n");
        return EXIT_REFUSED;
    default:
        return EXIT_FAILED;
    }
}

static int write_locked(dlock_client *client, const job *todo) {
    dlock_lock_options options;
    dlock_lock_options_init(&options);
    options.lease_ms = LEASE_MS;
    dlock_lock *lock; /* one name for one store */
    dlock_status status = dlock_lock_new(&lock, client, todo->store, &options);
    if (status != DLOCK_OK) return give_up(dlock_status_text(status));
    int exit_code;
    if (dlock_acquire(lock, WAIT_MS) == DLOCK_OK) {
        exit_code = write_as_holder(lock, todo);
        dlock_release(lock); /* even if it is lost: what counts is what the store said */
    } else {
        exit_code = give_up(dlock_last_error(lock));
    }
    dlock_lock_free(lock);
    return exit_code;
}

int main(int argc, char **argv) {
    bool is_fenced = argc < 2 || strcmp(argv[1], "--unfenced") != 0;
    char **words = argv + (is_fenced ? 1 : 2);
    if (words + 3 != argv + argc) {
        fprintf(stderr, "usage: %s [--unfenced] URL STORE TEXT|-\n", argv[0]);
        return EXIT_USAGE;
    }
    dlock_client *client;
    if (dlock_client_new_url(&client, words[0]) != DLOCK_OK) return give_up(dlock_error());
    int exit_code = write_locked(client, &(job){words[1], words[2], is_fenced});
    dlock_client_free(client);
    return exit_code;
}
