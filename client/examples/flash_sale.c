/* SPDX-License-Identifier: BSD-3-Clause */
/* flash_sale.c - many want to buy, few can: a stock that only the holder of a lock may touch.
 *
 *   cc -pthread -o flash_sale flash_sale.c $(pkg-config --cflags --libs dlock hiredis)
 *   ./flash_sale redis://127.0.0.1:6379 100 1000
 *
 * The stock is a plain number in Redis, read with GET and written with SET: two threads that do so
 * at a time sell one item twice. Take dlock_acquire() away to see it. URL: redis://HOST:PORT. */
#include <dlock.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, WAIT_MS = 30000 };

static dlock_client *client; /* one for all: it has a pool of connections */
static char host[256];
static int port;
static atomic_int buyers_left, sold, refused, failed;

static redisContext *stock_open(void) {
    redisContext *to = redisConnect(host, port);
    if (to != NULL && to->err == 0) return to;
    fprintf(stderr, "flash_sale: %s:%d: %s\n", host, port, to != NULL ? to->errstr : "no memory");
    exit(1);
}

static long stock_ask(redisContext *to, const char *command, ...) {
    va_list words;
    va_start(words, command);
    redisReply *answer = redisvCommand(to, command, words);
    va_end(words);
    if (answer == NULL || answer->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "flash_sale: the stock: %s\n", answer ? answer->str : to->errstr);
        exit(1);
    }
    long number = answer->type == REDIS_REPLY_STRING ? atol(answer->str) : 0;
    freeReplyObject(answer);
    return number;
}

static void buy_one(redisContext *stock, dlock_lock *lock) {
    bool is_served = dlock_acquire(lock, WAIT_MS) == DLOCK_OK, is_sold = false;
    if (is_served) {
        long items = stock_ask(stock, "GET flash-sale:stock");
        is_sold = items > 0;
        if (is_sold) stock_ask(stock, "SET flash-sale:stock %ld", items - 1);
        is_served = dlock_release(lock) == DLOCK_OK; /* if not, others were there meanwhile */
    }
    if (!is_served) fprintf(stderr, "flash_sale: not served: %s\n", dlock_last_error(lock));
    atomic_fetch_add(!is_served ? &failed : is_sold ? &sold : &refused, 1);
}

static void *serve_buyers(void *unused) {
    redisContext *stock = stock_open();
    dlock_lock *lock; /* one for each thread, of the same name */
    if (dlock_lock_new(&lock, client, "flash-sale:lock", NULL) != DLOCK_OK) exit(1);
    while (atomic_fetch_sub(&buyers_left, 1) > 0)
        buy_one(stock, lock);
    dlock_lock_free(lock);
    redisFree(stock);
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 4 || sscanf(argv[1], "redis://%255[^:/]:%d", host, &port) != 2) {
        fprintf(stderr, "usage: flash_sale redis://HOST:PORT STOCK BUYERS\n");
        return 2;
    }
    if (dlock_client_new_url(&client, argv[1]) != DLOCK_OK) {
        fprintf(stderr, "flash_sale: no client: %s\n", dlock_error());
        return 2;
    }
    redisContext *stock = stock_open();
    stock_ask(stock, "SET flash-sale:stock %ld", atol(argv[2]));
    atomic_store(&buyers_left, atoi(argv[3]));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, serve_buyers, NULL) != 0) return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    long left = stock_ask(stock, "GET flash-sale:stock");
    printf("sold %d, refused %d, failed %d, left %ld\n", sold, refused, failed, left);
    redisFree(stock);
    dlock_client_free(client);
    return failed == 0 && sold + left == atol(argv[2]) ? 0 : 1;
}
