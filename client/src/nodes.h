/* SPDX-License-Identifier: BSD-3-Clause */
/* nodes.h - several servers that are asked the same thing at once, and which of them are worth the
 * wait. */
#ifndef DLOCK_NODES_H
#define DLOCK_NODES_H

#include "environment.h"
#include "health.h"
#include "server.h"

enum { NODES_MAX = EXCHANGE_MAX - 1 };

typedef struct nodes {
    size_t count;
    const environment *env;
    struct {
        server *at;
        health how;
    } each[NODES_MAX];
    atomic_uint_least64_t commands; /* sent so far */
} nodes;

/* Whom a round is for. */
typedef struct nodes_chosen {
    bool is_in[NODES_MAX];
} nodes_chosen;

/* False: no memory; to be freed all the same. */
bool nodes_init(nodes *made, const url at[], size_t count, const server_limits *limits,
                const environment *env);
void nodes_free(nodes *old);

/* All but those that are left alone; but at least so many, if there are. */
nodes_chosen nodes_choose(nodes *of, size_t at_least);
nodes_chosen nodes_others(const nodes *of, const nodes_chosen *than);

/* Each of the chosen is asked its own question, all at once; urgent ones only. What comes of it
 * counts for whether it is left alone from now on. How many suffice: see exchange_run(). */
void nodes_ask(nodes *of, const nodes_chosen *chosen, exchange *const questions[], size_t suffices,
               const interrupt *stop);

uint32_t nodes_io_timeout_ms(const nodes *of);

#endif
