/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.c - one process of the torture: threads that take locks through dlock.h and record it.
 *
 *   worker url=redis://... history=FILE [kinds=xrshwpg] [threads=8] [names=4] [seed=1] ...
 *
 * settings.h has all words. The worker goes on until SIGTERM, and then ends in good order: every
 * lock is released, and the client is freed. */
#include "../client/either_form.h"
#include "transfer.h"
#include "visit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HAND_ON = 8 };

/* Told in a thread of the client, or of the call. */
static void on_event(void *arg, dlock_event event, const char *name, dlock_status why) {
    (void)arg;
    uint32_t id;
    unsigned one, two;
    char kind;
    if (sscanf(name, "{%c}%u {%*c}%u", &kind, &one, &two) == 3) /* {a}1 {a}2 */
        id = account_name(kind, one, two);
    else /* {x12} */
        id = (uint32_t)(unsigned char)name[1] << 16 | (uint32_t)strtoul(name + 2, NULL, 10);
    if (event == DLOCK_EVENT_SUSPECT || event == DLOCK_EVENT_LOST)
        history_add(RECORD_EVENT, UINT16_MAX, id, (int)why, event, 0);
}

static dlock_client *make_client(const settings *settings) {
    dlock_client *client;
    dlock_client_options options = worker_options(settings, on_event);
    options.hotspot_hand_on = HAND_ON;
    dlock_status status = dlock_client_new(&client, &options);
    if (status != DLOCK_OK) {
        fprintf(stderr, "worker: client: %s\n", dlock_status_name(status));
        exit(1);
    }
    for (unsigned i = 0; strchr(settings->kinds, 'h') != NULL && i < settings->names; i++) {
        char key[KEY_SIZE];
        visit_key(key, 'h', i);
        if (dlock_hotspot_add(client, key) != DLOCK_OK) abort();
    }
    return client;
}

static void *work(void *arg) {
    visitor *visitor = arg;
    while (!worker_is_over)
        visitor_visit(visitor);
    visitor_end(visitor);
    history_look();
    return NULL;
}

int main(int argc, char **argv) {
    static visitor visitors[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    settings settings;
    worker_begin(&settings, argc, argv, THREADS_MAX);
    dlock_client *client = make_client(&settings);
    for (unsigned i = 0; i < settings.threads; i++) {
        visitor_init(&visitors[i], &settings, client, i);
        pthread_create(&threads[i], NULL, work, &visitors[i]);
    }
    for (unsigned i = 0; i < settings.threads; i++)
        pthread_join(threads[i], NULL);
    history_add(RECORD_END, 0, 0, 0, 0, 0);
    dlock_client_free(client);
    history_look();
    history_add(RECORD_FREED, 0, 0, 0, 0, 0);
    return 0;
}
