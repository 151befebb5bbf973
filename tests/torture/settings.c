/* SPDX-License-Identifier: BSD-3-Clause */
#include "settings.h"

#include "history.h"
#include "source.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *word) {
    fprintf(stderr, "worker: what is %s?\n", word);
    exit(2);
}

static update_way read_way(const char *value) {
    if (strcmp(value, "bare") == 0) return UPDATE_BARE;
    if (strcmp(value, "fence") == 0) return UPDATE_FENCE;
    if (strcmp(value, "guard") != 0) fail(value);
    return UPDATE_GUARD;
}

#define NUMBER(field)                                                                              \
    { #field, offsetof(settings, field), sizeof(((settings *)0)->field) }

static const struct {
    const char *name;
    size_t offset, size;
} numbers[] = {NUMBER(process),       NUMBER(threads),  NUMBER(names),    NUMBER(seed),
               NUMBER(io_timeout_ms), NUMBER(lease_ms), NUMBER(replicas), NUMBER(data_port),
               NUMBER(pause_every),   NUMBER(work_us)};

static void read_number(settings *settings, const char *name, const char *word, const char *value) {
    uint64_t number = strtoul(value, NULL, 10);
    uint32_t half = (uint32_t)number;
    size_t i = 0;
    while (strcmp(numbers[i].name, name) != 0)
        if (++i == sizeof(numbers) / sizeof(numbers[0])) fail(word);
    bool is_half = numbers[i].size == sizeof(half);
    memcpy((char *)settings + numbers[i].offset, is_half ? (void *)&half : (void *)&number,
           numbers[i].size);
}

static void read_word(settings *settings, const char *word) {
    char name[32];
    const char *value = strchr(word, '=');
    if (value == NULL || (size_t)(value - word) >= sizeof(name)) fail(word);
    memcpy(name, word, (size_t)(value - word));
    name[value++ - word] = '\0';
    if (strcmp(name, "url") == 0) {
        if (settings->url_count == URLS_MAX) fail(word);
        settings->urls[settings->url_count++] = value;
    } else if (strcmp(name, "history") == 0) {
        settings->history = value;
    } else if (strcmp(name, "kinds") == 0) {
        settings->kinds = value;
    } else if (strcmp(name, "data_host") == 0) {
        settings->data_host = value;
    } else if (strcmp(name, "source") == 0) {
        source_set(value);
    } else if (strcmp(name, "way") == 0) {
        settings->way = read_way(value);
    } else {
        read_number(settings, name, word, value);
    }
}

static void settings_read(settings *settings, int argc, char **argv) {
    *settings = (struct settings){.threads = 8,
                                  .names = 4,
                                  .io_timeout_ms = 200,
                                  .lease_ms = 600,
                                  .way = UPDATE_GUARD,
                                  .data_host = "127.0.0.1",
                                  .kinds = "x",
                                  .seed = 1};
    for (int i = 1; i < argc; i++)
        read_word(settings, argv[i]);
    if (settings->url_count == 0) fail("no url=");
    if (settings->history == NULL) fail("no history=");
    if (settings->names > NAMES_MAX) fail("names=: too many");
}

/* -- the worker */

volatile sig_atomic_t worker_is_over;

static void end(int number) {
    (void)number;
    worker_is_over = 1;
}

void worker_begin(settings *settings, int argc, char **argv, unsigned threads_max) {
    pthread_t pulse;
    settings_read(settings, argc, argv);
    if (settings->threads > threads_max) fail("threads=: too many");
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = end}, NULL);
    signal(SIGPIPE, SIG_IGN); /* of hiredis */
    history_open(settings->history);
    pthread_create(&pulse, NULL, history_watch_stalls, NULL);
}

dlock_client_options worker_options(const settings *settings, dlock_event_fn on_event) {
    static dlock_lock_options defaults;
    dlock_client_options options;
    dlock_client_options_init(&options);
    dlock_lock_options_init(&defaults);
    defaults.lease_ms = SESSION_LEASES * settings->lease_ms;
    options.lock_defaults = &defaults;
    options.urls = settings->urls;
    options.url_count = settings->url_count;
    options.io_timeout_ms = settings->io_timeout_ms;
    options.on_event = on_event;
    return options;
}
