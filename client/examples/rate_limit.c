/* SPDX-License-Identifier: BSD-3-Clause */
/* rate_limit.c - a handler of your own: no more than so many acquires per second.
 *
 *   cc -o rate_limit rate_limit.c $(pkg-config --cflags --libs dlock)
 *   ./rate_limit redis://127.0.0.1:6379 5 100
 *
 * takes and gives back a lock 100 times as fast as possible, with 5 acquires per second allowed. A
 * handler sees every call on the way to the service (enter) and on the way back (leave). This
 * handler counts acquires by a bucket of tokens: each acquire takes a token, a second brings RATE
 * tokens, and no more than RATE are kept. Without a token the handler answers DLOCK_LIMITED itself
 * (not DLOCK_BUSY: nobody may hold the lock), and neither the server nor any handler behind hears
 * of the call. */
#include <dlock_spi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct bucket {
    pthread_mutex_t mutex; /* handlers are called by many threads at once */
    double rate, tokens;
    int64_t filled_us; /* when the tokens were counted last; 0: never */
} bucket;

static bool take_token(bucket *bucket, int64_t now_us) {
    pthread_mutex_lock(&bucket->mutex);
    if (bucket->filled_us == 0) bucket->filled_us = now_us;
    if (now_us > bucket->filled_us) { /* not so for a thread that was overtaken */
        bucket->tokens += bucket->rate * (double)(now_us - bucket->filled_us) / 1e6;
        if (bucket->tokens > bucket->rate) bucket->tokens = bucket->rate;
        bucket->filled_us = now_us;
    }
    bool is_taken = bucket->tokens >= 1;
    if (is_taken) bucket->tokens -= 1;
    pthread_mutex_unlock(&bucket->mutex);
    return is_taken;
}

/* A release or extend is never limited: that would keep the lock from others. */
static dlock_step limit(void *arg, dlock_call *call) {
    bool is_let_in = call->operation != DLOCK_ACQUIRING || take_token(arg, call->started_us);
    if (is_let_in) return DLOCK_PASS;
    dlock_call_explain(call, "too many acquires per second");
    call->status = DLOCK_LIMITED;
    return DLOCK_ANSWER;
}

/* 0, or the exit code. */
static int take_and_give_back(dlock_client *client, long tries) {
    long granted = 0, refused = 0;
    dlock_lock *lock;
    if (dlock_lock_new(&lock, client, "rate-limit", NULL) != DLOCK_OK) return 1;
    dlock_status status = DLOCK_OK;
    for (long i = 0; i < tries && (status == DLOCK_OK || status == DLOCK_LIMITED); i++) {
        status = dlock_acquire(lock, DLOCK_NO_WAIT);
        if (status == DLOCK_OK) granted++;
        if (status == DLOCK_LIMITED) refused++;
        if (status == DLOCK_LIMITED && refused == 1)
            printf("limited: %s\n", dlock_last_error(lock));
        if (status == DLOCK_OK) status = dlock_release(lock);
    }
    bool is_done = granted + refused == tries;
    if (!is_done) fprintf(stderr, "rate_limit: %s\n", dlock_last_error(lock));
    if (is_done) printf("granted %ld, refused %ld\n", granted, refused);
    dlock_lock_free(lock);
    return is_done ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc != 4 || atol(argv[2]) <= 0) {
        fprintf(stderr, "usage: rate_limit URL RATE TRIES\n");
        return 2;
    }
    double rate = (double)atol(argv[2]);
    bucket tokens = {.mutex = PTHREAD_MUTEX_INITIALIZER, .rate = rate, .tokens = rate};
    dlock_handler limiter = {.struct_size = sizeof(limiter),
                             .name = "rate limit",
                             .order = 100, /* nearer to the caller than all of the library's own */
                             .arg = &tokens,
                             .enter = limit};
    dlock_client_options options;
    dlock_client_options_init(&options);
    options.urls = (const char *const[]){argv[1]};
    options.url_count = 1;
    options.handlers = (const dlock_handler *const[]){&limiter};
    options.handler_count = 1;
    dlock_client *client;
    dlock_status status = dlock_client_new(&client, &options);
    if (status != DLOCK_OK) {
        fprintf(stderr, "rate_limit: no client: %s\n", dlock_status_text(status));
        return 2;
    }
    int exit_code = take_and_give_back(client, atol(argv[3]));
    dlock_client_free(client);
    return exit_code;
}
