/* SPDX-License-Identifier: BSD-3-Clause */
/* server_world.h - net_world.h with one server, whose address is the scripted peer's. */
#ifndef DLOCK_SERVER_WORLD_H
#define DLOCK_SERVER_WORLD_H

#include "net/server.h"

#include "net_world.h"

static server *the_server; /* NULL: it has been freed */

static inline void make_server(void) {
    the_server = server_new(&world.url, &(server_options){.loop = world.loop,
                                                          .connect_timeout_ms = CONNECT_MS,
                                                          .io_timeout_ms = IO_MS,
                                                          .command_count = &world.command_count});
    if (the_server == NULL) abort();
}

static inline void begin_server(void) {
    begin();
    make_server();
}

static inline void free_the_server(record *record) {
    (void)record;
    server_free(the_server);
    the_server = NULL;
}

static inline void end_server(void) {
    free_the_server(NULL);
    settle();
    CHECK_EQUAL(open_links(), 0);
    end();
}

static inline void server_line(const char *text, record *record) {
    line line;
    line_read(&line, text);
    server_send(the_server, line.commands, line.count, record == NULL ? NULL : &record->request);
}

#endif
