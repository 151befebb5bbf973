/* SPDX-License-Identifier: BSD-3-Clause */
/* withdraw.c - see withdraw.h. One thread, started with the first withdrawal, that looks at all of
 * them whenever one is due. */
#include "withdraw.h"

#include "deadline.h"
#include "text.h"
#include "thread.h"
#include <stdlib.h>

enum { COUNT_MAX = 10000, PAUSE_FIRST_MS = 20, PAUSE_MAX_MS = 1000 };

typedef struct withdrawal {
    struct withdrawal *next;
    const char *name, *token; /* both behind it */
    int64_t until_us, due_us;
    int64_t pause_ms;
    char text[];
} withdrawal;

struct withdrawals {
    backend *from;
    const environment *env;
    uint32_t io_timeout_ms;
    pthread_mutex_t mutex;
    withdrawal *added, **last; /* by other threads */
    size_t count;
    bool is_stopping;
    worker worker;
};

/* True: there is nothing more to do about it. */
static bool attempt(withdrawals *of, withdrawal *one, int64_t limit_us) {
    claim claimed = {.call = {.struct_size = sizeof(dlock_call),
                              .operation = DLOCK_RELEASING,
                              .name = one->name},
                     .stop.fd = of->worker.wake_fd};
    text_copy(claimed.call.token, sizeof(claimed.call.token), one->token);
    dlock_status status = of->from->table->release(of->from, &claimed, limit_us);
    if (!claimed.is_passing && status != DLOCK_NO_MEMORY) return true;
    int64_t now_us = of->env->now_us(of->env);
    one->due_us = deadline_after_ms(now_us, one->pause_ms);
    one->pause_ms = one->pause_ms * 2 < PAUSE_MAX_MS ? one->pause_ms * 2 : PAUSE_MAX_MS;
    return one->due_us >= one->until_us;
}

static void remove_one(withdrawals *of, withdrawal **link) {
    withdrawal *old = *link;
    *link = old->next;
    free(old);
    pthread_mutex_lock(&of->mutex);
    of->count--;
    pthread_mutex_unlock(&of->mutex);
}

/* Moves what was added to mine. True: the thread is to end. */
static bool collect(withdrawals *of, withdrawal **mine) {
    pthread_mutex_lock(&of->mutex);
    while (*mine != NULL)
        mine = &(*mine)->next;
    *mine = of->added;
    of->added = NULL;
    of->last = &of->added;
    bool is_stopping = of->is_stopping;
    pthread_mutex_unlock(&of->mutex);
    return is_stopping;
}

static bool is_stop_requested(withdrawals *of) {
    pthread_mutex_lock(&of->mutex);
    bool is_stopping = of->is_stopping;
    pthread_mutex_unlock(&of->mutex);
    return is_stopping;
}

/* Attempts all that are due; when it ends, all, within one I/O timeout. The result is when the next
 * one is due. */
static int64_t work_through(withdrawals *of, withdrawal **mine, bool is_stopping) {
    int64_t stop_us = deadline_after_ms(of->env->now_us(of->env), of->io_timeout_ms);
    int64_t next_us = DEADLINE_NEVER;
    for (withdrawal **link = mine; *link != NULL;) {
        if (!is_stopping && is_stop_requested(of)) return 0;
        int64_t now_us = of->env->now_us(of->env);
        int64_t limit_us = is_stopping ? stop_us : deadline_after_ms(now_us, of->io_timeout_ms);
        bool is_over = now_us >= (*link)->until_us || (is_stopping && now_us >= stop_us);
        bool is_due = is_stopping || (*link)->due_us <= now_us;
        if (is_over || (is_due && attempt(of, *link, limit_us)) || is_stopping) {
            remove_one(of, link);
            continue;
        }
        next_us = deadline_earlier(next_us, (*link)->due_us);
        link = &(*link)->next;
    }
    return next_us;
}

/* What woke us may have been heard, and taken for something else, while a release went on. */
static bool has_news(withdrawals *of) {
    pthread_mutex_lock(&of->mutex);
    bool is_news = of->is_stopping || of->added != NULL;
    pthread_mutex_unlock(&of->mutex);
    return is_news;
}

static void *work(void *data) {
    withdrawals *of = data;
    withdrawal *mine = NULL;
    for (;;) {
        interrupt_drain(&(interrupt){.fd = of->worker.wake_fd});
        bool is_stopping = collect(of, &mine);
        int64_t next_us = work_through(of, &mine, is_stopping);
        if (is_stopping) return NULL;
        if (!has_news(of)) of->env->sleep_until(of->env, next_us, of->worker.wake_fd);
    }
}

withdrawals *withdrawals_new(backend *from, const environment *env, uint32_t io_timeout_ms) {
    withdrawals *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->from = from;
    made->env = env;
    made->io_timeout_ms = io_timeout_ms;
    made->worker.wake_fd = -1;
    made->last = &made->added;
    pthread_mutex_init(&made->mutex, NULL);
    return made;
}

void withdrawals_free(withdrawals *old) {
    if (old == NULL) return;
    pthread_mutex_lock(&old->mutex);
    old->is_stopping = true;
    pthread_mutex_unlock(&old->mutex);
    worker_join(&old->worker);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

static withdrawal *new_withdrawal(const withdrawals *of, const claim *claimed) {
    size_t name_size = strlen(claimed->call.name) + 1, token_size = strlen(claimed->call.token) + 1;
    withdrawal *made = calloc(1, sizeof(*made) + name_size + token_size);
    if (made == NULL) return NULL;
    made->name = memcpy(made->text, claimed->call.name, name_size);
    made->token = memcpy(made->text + name_size, claimed->call.token, token_size);
    made->due_us = of->env->now_us(of->env);
    made->until_us = deadline_after_ms(made->due_us, claimed->call.lease_ms);
    made->pause_ms = PAUSE_FIRST_MS;
    return made;
}

void withdrawals_add(withdrawals *to, const claim *of) {
    withdrawal *added = new_withdrawal(to, of);
    if (added == NULL) return;
    pthread_mutex_lock(&to->mutex);
    bool is_taken = to->count < COUNT_MAX && worker_start(&to->worker, work, to);
    if (is_taken) {
        *to->last = added;
        to->last = &added->next;
        to->count++;
        interrupt_wake(to->worker.wake_fd);
    }
    pthread_mutex_unlock(&to->mutex);
    if (!is_taken) free(added);
}
