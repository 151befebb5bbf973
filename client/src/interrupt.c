/* SPDX-License-Identifier: BSD-3-Clause */
/* interrupt.c - see interrupt.h. */
#include "interrupt.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* An fd is never closed while the stock lives: somebody may be about to wake its last user. So
 * there is room for all that were ever made. */
enum { AT_FIRST = 16 };

struct interrupt_stock {
    pthread_mutex_t mutex;
    int *kept;
    size_t count, made, capacity;
};

bool interrupt_is_requested(const interrupt *of) {
    return of->is_requested != NULL && atomic_load(of->is_requested);
}

void interrupt_drain(const interrupt *of) {
    uint64_t count;
    while (of->fd >= 0 && read(of->fd, &count, sizeof(count)) < 0 && errno == EINTR)
        continue;
}

void interrupt_wake(int fd) {
    int before = errno;
    uint64_t one = 1;
    while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
    errno = before;
}

void interrupt_raise_bell(atomic_uint *bell) {
    atomic_fetch_add(bell, 1);
}

void interrupt_ring_bell(const atomic_uint *bell) {
    int before = errno;
    syscall(SYS_futex, bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = before;
}

interrupt_stock *interrupt_stock_new(void) {
    interrupt_stock *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    pthread_mutex_init(&made->mutex, NULL);
    return made;
}

void interrupt_stock_free(interrupt_stock *old) {
    if (old == NULL) return;
    while (old->count > 0)
        close(old->kept[--old->count]);
    pthread_mutex_destroy(&old->mutex);
    free(old->kept);
    free(old);
}

/* Locked. */
static int make_one(interrupt_stock *in) {
    if (in->made == in->capacity) {
        size_t capacity = in->capacity == 0 ? AT_FIRST : in->capacity * 2;
        int *grown = realloc(in->kept, capacity * sizeof(grown[0]));
        if (grown == NULL) return -1;
        in->kept = grown;
        in->capacity = capacity;
    }
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd >= 0) in->made++;
    return fd;
}

int interrupt_stock_take(interrupt_stock *from) {
    pthread_mutex_lock(&from->mutex);
    int fd = from->count > 0 ? from->kept[--from->count] : make_one(from);
    pthread_mutex_unlock(&from->mutex);
    return fd;
}

void interrupt_stock_give(interrupt_stock *to, int fd) {
    if (fd < 0) return;
    pthread_mutex_lock(&to->mutex);
    to->kept[to->count++] = fd;
    pthread_mutex_unlock(&to->mutex);
}
