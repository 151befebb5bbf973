/* SPDX-License-Identifier: BSD-3-Clause */
/* fenced_file.c - a file with the largest fence it has seen in its first line, the text below.
 *
 *   cc -o fenced_file fenced_writer.c fenced_file.c $(pkg-config --cflags --libs dlock)
 *   ./fenced_file redis://127.0.0.1:6379 notes.txt "some text"
 *
 * flock(2) makes look and write one step, for all who write by this function. On a file system that
 * is shared by machines, it must work among them. */
#include "fenced_store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

static store_answer fail(const char *path, const char *why) {
    fprintf(stderr, "%s: %s\n", path, why);
    return STORE_FAILED;
}

/* What is behind is cut off last, so that a crash never leaves a store without a fence. */
static store_answer replace(FILE *store, const char *path, const char *text, uint64_t fence) {
    rewind(store);
    fprintf(store, "fence %020" PRIu64 "\n%s\n", fence, text);
    if (fflush(store) == 0 && ftruncate(fileno(store), ftell(store)) == 0) return STORE_WRITTEN;
    return fail(path, "it could not be written");
}

store_answer store_write(const char *where, const char *text, uint64_t fence, bool is_fenced) {
    int fd = open(where, O_RDWR | O_CREAT, 0666);
    FILE *store = fd >= 0 && flock(fd, LOCK_EX) == 0 ? fdopen(fd, "r+") : NULL;
    if (store == NULL) {
        perror(where);
        if (fd >= 0) close(fd);
        return STORE_FAILED;
    }
    store_answer answer;
    uint64_t seen = 0;
    int found = fscanf(store, "fence %" SCNu64 "\n", &seen);
    bool is_new = found == EOF && feof(store);
    if (found != 1 && !is_new)
        answer = fail(where, "its first line has no fence");
    else if (is_fenced && fence < seen)
        answer = STORE_REFUSED;
    else
        answer = replace(store, where, text, fence);
    if (fclose(store) != 0) answer = fail(where, "it could not be closed"); /* and unlocked */
    return answer;
}
