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

static bool read_account(const transfer *transfer, int which, account *account) {
    char text[VALUE_SIZE] = "";
    dlock_reply reply;
    dlock_reply_init(&reply, text, sizeof(text));
    const char *get[] = {"GET", transfer->data_keys[which]};
    if (dlock_guarded(transfer->lock, 2, get, NULL, &reply) != DLOCK_OK) return false;
    *account = (struct account){0};
    return reply.kind != DLOCK_REPLY_TEXT ||
           sscanf(text, "%" SCNu64 ":%" SCNd64, &account->id, &account->balance) == 2;
}

static void note(const transfer *transfer, record_kind kind, int status, const uint64_t ids[2],
                 const account before[2]) {
    for (int i = 0; i < 2; i++)
        history_add(kind, transfer->thread, transfer->names[i], status, (int64_t)ids[i],
                    before == NULL ? 0 : (int64_t)before[i].id);
}

/* A write in doubt is sent again: done twice in a row it does no harm. */
static update_result write_both(const transfer *transfer, const uint64_t ids[2],
                                const account before[2]) {
    char texts[2][VALUE_SIZE];
    snprintf(texts[0], VALUE_SIZE, "%" PRIu64 ":%" PRId64, ids[0],
             before[0].balance - transfer->amount);
    snprintf(texts[1], VALUE_SIZE, "%" PRIu64 ":%" PRId64, ids[1],
             before[1].balance + transfer->amount);
    const char *set[] = {"MSET", transfer->data_keys[0], texts[0], transfer->data_keys[1],
                         texts[1]};
    update_result result = update_guarded(transfer->lock, 5, set);
    if (result == UPDATE_IN_DOUBT && update_guarded(transfer->lock, 5, set) == UPDATE_DONE)
        result = UPDATE_DONE;
    return result;
}

update_result store_transfer(store *store, const transfer *transfer) {
    account before[2];
    for (int i = 0; i < 2; i++)
        if (!read_account(transfer, i, &before[i])) return UPDATE_NOT_BEGUN;
    update_work(transfer->work_ns);
    const uint64_t ids[2] = {store->last_id + 1, store->last_id + 2};
    store->last_id += 2;
    note(transfer, RECORD_WRITE, 0, ids, before);
    update_result result = write_both(transfer, ids, before);
    note(transfer, RECORD_WRITTEN, result, ids, NULL);
    return result;
}
