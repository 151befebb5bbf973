/* SPDX-License-Identifier: BSD-3-Clause */
/* nodes.c - see nodes.h. */
#include "nodes.h"

#include "deadline.h"

bool nodes_init(nodes *made, const url at[], size_t count, const server_limits *limits,
                const environment *env) {
    made->env = env;
    for (made->count = 0; made->count < count; made->count++) {
        made->each[made->count].at = server_new(&at[made->count], limits);
        if (made->each[made->count].at == NULL) return false;
    }
    return true;
}

void nodes_free(nodes *old) {
    for (size_t i = 0; i < old->count; i++)
        server_free(old->each[i].at);
}

nodes_chosen nodes_choose(nodes *of, size_t at_least) {
    nodes_chosen made = {0};
    size_t count = 0;
    int64_t now_us = of->env->now_us(of->env);
    for (size_t i = 0; i < of->count; i++) {
        made.is_in[i] = !health_is_left_alone(&of->each[i].how, now_us);
        count += made.is_in[i];
    }
    for (size_t i = 0; count < at_least && i < of->count; i++)
        made.is_in[i] = true;
    return made;
}

nodes_chosen nodes_others(const nodes *of, const nodes_chosen *than) {
    nodes_chosen made = {0};
    for (size_t i = 0; i < of->count; i++)
        made.is_in[i] = !than->is_in[i];
    return made;
}

/* The time was over for us long before it was for the server: that says nothing about it. */
static bool was_hurried(const nodes *of, const exchange *asked, int64_t begun_us, int64_t now_us) {
    int64_t enough_us = (int64_t)nodes_io_timeout_ms(of) * 1000 / 2;
    if (!asked->is_sent)
        return now_us >= asked->send_by_us && asked->send_by_us < begun_us + enough_us;
    int64_t end_us = deadline_earlier(asked->sent_us + asked->answer_in_us, asked->answer_by_us);
    return now_us >= end_us && end_us < asked->sent_us + enough_us;
}

static void note(nodes *of, size_t which, const exchange *asked, int64_t begun_us, int64_t now_us) {
    bool is_lost = asked->status == DLOCK_IN_DOUBT || asked->status == DLOCK_UNREACHABLE;
    if (asked->is_left) is_lost = asked->was_silent && !asked->was_answered;
    if (asked->is_sent) atomic_fetch_add(&of->commands, (uint64_t)asked->request_count);
    bool is_well = (asked->is_left || asked->is_for_free) && asked->was_answered;
    if (asked->status == DLOCK_OK || is_well)
        health_note(&of->each[which].how, true, now_us);
    else if (is_lost && !asked->is_for_free && !was_hurried(of, asked, begun_us, now_us))
        health_note(&of->each[which].how, false, now_us);
}

void nodes_ask(nodes *of, const nodes_chosen *chosen, exchange *const questions[], size_t suffices,
               const interrupt *stop) {
    server *at[NODES_MAX];
    exchange *asked[NODES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < of->count; i++) {
        if (!chosen->is_in[i]) continue;
        at[count] = of->each[i].at;
        asked[count++] = questions[i];
    }
    int64_t begun_us = of->env->now_us(of->env);
    server_ask_all(at, asked, count, suffices, of->env, stop);
    int64_t now_us = of->env->now_us(of->env);
    for (size_t i = 0; i < of->count; i++)
        if (chosen->is_in[i]) note(of, i, questions[i], begun_us, now_us);
}

uint32_t nodes_io_timeout_ms(const nodes *of) {
    return server_limits_of(of->each[0].at)->io_timeout_ms;
}
