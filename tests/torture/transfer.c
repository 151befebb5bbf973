/* SPDX-License-Identifier: BSD-3-Clause */
#include "transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_SIZE = 48 };

typedef struct account {
    uint64_t id;
    int64_t balance;
} account;

/* redis.call() raises the error NOTHELD, and nothing is written. */
static const char WRITE[] =
    "for i = 1, 2 do redis.call('DLOCK.GUARD', KEYS[i], ARGV[3], 'PING') end "
    "return redis.call('MSET', KEYS[3], ARGV[1], KEYS[4], ARGV[2])";

static bool guarded_get(dlock_lock *lock, const char *key, char text[VALUE_SIZE]) {
    dlock_reply reply;
    dlock_reply_init(&reply, text, VALUE_SIZE);
    const char *get[] = {"GET", key};
    if (dlock_guarded(lock, 2, get, NULL, &reply) != DLOCK_OK) return false;
    if (reply.kind != DLOCK_REPLY_TEXT) text[0] = '\0';
    return true;
}

static bool read_account(store *store, const transfer *transfer, int which, account *account) {
    const char *key = transfer->data_keys[which];
    char text[VALUE_SIZE] = "";
    bool is_read = transfer->is_raw ? store_get(store, key, text, sizeof(text))
                                    : guarded_get(transfer->lock, key, text);
    if (!is_read) return false;
    *account = (struct account){0};
    return text[0] == '\0' ||
           sscanf(text, "%" SCNu64 ":%" SCNd64, &account->id, &account->balance) == 2;
}

static void note(const transfer *transfer, record_kind kind, int status, const uint64_t ids[2],
                 const account before[2]) {
    for (int i = 0; i < 2; i++)
        history_add(kind, transfer->thread, transfer->names[i], status, (int64_t)ids[i],
                    before == NULL ? 0 : (int64_t)before[i].id);
}

static update_result write_both(store *store, const transfer *transfer, const char *one,
                                const char *two) {
    const char *const *data = transfer->data_keys;
    if (!transfer->is_raw) {
        const char *set[] = {"MSET", data[0], one, data[1], two};
        return update_guarded(transfer->lock, 5, set);
    }
    const char *write[] = {
        "EVAL",  WRITE, "4", transfer->lock_keys[0],     transfer->lock_keys[1], data[0],
        data[1], one,   two, dlock_token(transfer->lock)};
    return store_write(store, 10, write);
}

/* A write in doubt is sent again: done twice in a row it does no harm. */
static update_result write_surely(store *store, const transfer *transfer, const uint64_t ids[2],
                                  const account before[2]) {
    char texts[2][VALUE_SIZE];
    snprintf(texts[0], VALUE_SIZE, "%" PRIu64 ":%" PRId64, ids[0],
             before[0].balance - transfer->amount);
    snprintf(texts[1], VALUE_SIZE, "%" PRIu64 ":%" PRId64, ids[1],
             before[1].balance + transfer->amount);
    update_result result = write_both(store, transfer, texts[0], texts[1]);
    if (result == UPDATE_IN_DOUBT && write_both(store, transfer, texts[0], texts[1]) == UPDATE_DONE)
        result = UPDATE_DONE;
    return result;
}

update_result store_transfer(store *store, const transfer *transfer) {
    account before[2];
    for (int i = 0; i < 2; i++)
        if (!read_account(store, transfer, i, &before[i])) return UPDATE_NOT_BEGUN;
    update_work(transfer->work_ns);
    const uint64_t ids[2] = {store->last_id + 1, store->last_id + 2};
    store->last_id += 2;
    note(transfer, RECORD_WRITE, 0, ids, before);
    update_result result = write_surely(store, transfer, ids, before);
    note(transfer, RECORD_WRITTEN, result, ids, NULL);
    return result;
}
