/* SPDX-License-Identifier: BSD-3-Clause */
/* fenced_writer.c - a file that takes no writes of one who had the lock and lost it.
 *
 *   cc -o fenced_writer fenced_writer.c $(pkg-config --cflags --libs dlock)
 *   ./fenced_writer redis://127.0.0.1:6379 notes.txt "some text"
 *
 * A lease can end while its holder is stopped, swapped out or slow, and no check by the holder
 * helps: the pause may come right after it. So the fence goes with the write, and the file
 * remembers, in its first line, the largest it has seen. See it refuse: with - for the text, it
 * is read from the keyboard while the lock is held. Take longer than the lease, and write from
 * elsewhere before you press Enter. */
#include <dlock.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

enum { LEASE_MS = 2000, WAIT_MS = 5000 };

/* The resource. Look and write must be one step here: flock(2) makes it one until fclose(). */
static bool store_write(const char *path, uint64_t fence, const char *text) {
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    FILE *store = fd >= 0 && flock(fd, LOCK_EX) == 0 ? fdopen(fd, "r+") : NULL;
    if (store == NULL) {
        perror(path);
        if (fd >= 0) close(fd);
        return false;
    }
    uint64_t seen = 0;
    int found = fscanf(store, "fence %" SCNu64 "\n", &seen);
    bool is_taken = (found == 1 || (found == EOF && feof(store))) && fence >= seen;
    if (is_taken) {
        /* What is behind is cut off last, so that a crash never leaves a store without a fence. */
        rewind(store);
        fprintf(store, "fence %020" PRIu64 "\n%s\n", fence, text);
        is_taken = fflush(store) == 0 && ftruncate(fd, ftell(store)) == 0;
        if (!is_taken) perror(path);
    } else if (found == 1) {
        fprintf(stderr, "%s: refused: your fence is %" PRIu64 ", and %" PRIu64 " was here\n", path,
                fence, seen);
    } else {
        fprintf(stderr, "%s: refused: its first line has no fence\n", path);
    }
    return fclose(store) == 0 && is_taken;
}

static bool write_locked(dlock_lock *lock, const char *path, const char *text) {
    char typed[1024] = "";
    if (dlock_acquire(lock, WAIT_MS) != DLOCK_OK) {
        fprintf(stderr, "fenced_writer: no lock: %s\n", dlock_last_error(lock));
        return false;
    }
    printf("fence %" PRIu64 "\n", dlock_fence(lock));
    fflush(stdout);
    if (text[0] == '-' && text[1] == '\0' && scanf("%1023[^\n]", typed) == 1) text = typed;
    bool is_written = store_write(path, dlock_fence(lock), text);
    dlock_release(lock); /* even when it is lost: what counts is what the store said */
    return is_written;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: fenced_writer URL FILE TEXT|-\n");
        return 2;
    }
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){argv[1]};
    options.url_count = 1;
    dlock_lock_options lock_options;
    dlock_lock_options_init(&lock_options);
    lock_options.lease_ms = LEASE_MS;
    dlock_client *client;
    dlock_lock *lock = NULL;
    dlock_status status = dlock_client_new(&client, &options);
    if (status == DLOCK_OK) status = dlock_lock_new(&lock, client, argv[2], &lock_options);
    if (status != DLOCK_OK) fprintf(stderr, "fenced_writer: %s\n", dlock_status_text(status));
    bool is_written = status == DLOCK_OK && write_locked(lock, argv[2], argv[3]);
    dlock_lock_free(lock);
    dlock_client_free(client);
    if (is_written) printf("written\n");
    return is_written ? 0 : 1;
}
