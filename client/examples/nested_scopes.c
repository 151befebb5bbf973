/* SPDX-License-Identifier: BSD-3-Clause */
/* nested_scopes.c - functions that lock what they need, whoever calls them.
 *
 *   cc -o nested_scopes nested_scopes.c $(pkg-config --cflags --libs dlock)
 *   ./nested_scopes 'redis://127.0.0.1:6379?lease_ms=5000&renew=yes'
 *
 * put() locks the account. transfer() locks both accounts, in the order of their names, and calls
 * put(), which gets the lock of the same thread again, without a request. */
#include <dlock.h>
#include <stdio.h>

enum { WAIT_MS = 2000 };

typedef struct account {
    const char *name;
    long balance;
} account;

static dlock_client *client;

static int explain(const char *name, const dlock_scope *scope) {
    const char *why = scope->lock == NULL ? dlock_error() : dlock_last_error(scope->lock);
    fprintf(stderr, "nested_scopes: %s: %s: %s\n", name, dlock_status_text(scope->got), why);
    return 1;
}

/* The scope gives the lock back on every return. */
static int put(account *account, long amount) {
    DLOCK_SCOPED(held, client, account->name, WAIT_MS, NULL);
    if (held.got != DLOCK_OK) return explain(account->name, &held);
    if (account->balance + amount < 0) return 1;
    account->balance += amount;
    return 0;
}

static int transfer(account *giver, account *taker, long amount) {
    bool is_first = strcmp(giver->name, taker->name) < 0;
    account *first = is_first ? giver : taker, *second = is_first ? taker : giver;
    DLOCK_SCOPED(one, client, first->name, WAIT_MS, NULL);
    if (one.got != DLOCK_OK) return explain(first->name, &one);
    DLOCK_SCOPED(two, client, second->name, WAIT_MS, NULL);
    if (two.got != DLOCK_OK) return explain(second->name, &two);
    if (put(giver, -amount) != 0) return 1;
    if (put(taker, amount) != 0) return 1;
    /* Were both locks held until now? If not, another process may have been at work. */
    bool is_sure = dlock_scope_end(&two) == DLOCK_OK;
    is_sure = dlock_scope_end(&one) == DLOCK_OK && is_sure;
    printf("%ld from %s to %s%s\n", amount, giver->name, taker->name, is_sure ? "" : ", in doubt");
    return is_sure ? 0 : 1;
}

int main(int argc, char **argv) {
    if (dlock_client_new_url(&client, argc == 2 ? argv[1] : NULL) != DLOCK_OK) {
        fprintf(stderr, "nested_scopes: no client: %s\n", dlock_error());
        return 2;
    }
    account anna = {"account:anna", 100}, bela = {"account:bela", 0};
    int code = transfer(&anna, &bela, 30);
    if (code == 0) code = transfer(&bela, &anna, 10);
    printf("anna has %ld, bela has %ld\n", anna.balance, bela.balance);
    dlock_client_free(client);
    return code;
}
