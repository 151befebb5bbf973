/* SPDX-License-Identifier: BSD-3-Clause */
#include "settings.h"

#include "source.h"

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

static void read_number(settings *settings, const char *name, const char *word, const char *value) {
    unsigned long number = strtoul(value, NULL, 10);
    if (strcmp(name, "process") == 0)
        settings->process = (unsigned)number;
    else if (strcmp(name, "threads") == 0)
        settings->threads = (unsigned)number;
    else if (strcmp(name, "names") == 0)
        settings->names = (unsigned)number;
    else if (strcmp(name, "seed") == 0)
        settings->seed = number;
    else if (strcmp(name, "io_timeout_ms") == 0)
        settings->io_timeout_ms = (uint32_t)number;
    else if (strcmp(name, "lease_ms") == 0)
        settings->lease_ms = (uint32_t)number;
    else if (strcmp(name, "replicas") == 0)
        settings->replicas = (uint32_t)number;
    else if (strcmp(name, "data_port") == 0)
        settings->data_port = (int)number;
    else if (strcmp(name, "pause_every") == 0)
        settings->pause_every = number;
    else if (strcmp(name, "work_us") == 0)
        settings->work_us = (int64_t)number;
    else
        fail(word);
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

void settings_read(settings *settings, int argc, char **argv) {
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
