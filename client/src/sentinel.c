/* SPDX-License-Identifier: BSD-3-Clause */
/* sentinel.c - see sentinel.h.
 *
 *   find     the master that is known, unless it is in doubt: then all sentinels are asked, and the
 *            newest of their answers counts
 *   ask      there, as of a single server; each new connection asks it whether it is a master
 *   doubt    it did not answer, or does not take writes any more, or lacks replicas: the next
 *            attempt asks the sentinels again, who may name the same one
 *
 * One thread at a time asks the sentinels, and not too often; meanwhile others go on with the
 * master that is known. If no sentinel answers, that goes for all: it says itself whether it is
 * one. */
#include "sentinel.h"

#include "batch.h"
#include "deadline.h"
#include "question.h"
#include "survey.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Between two rounds of questions; and how long a round goes on after its first answer. */
enum { PAUSE_MS = 20, GRACE_MS = 20 };

enum { SENTINEL_REQUESTS = 2 };

typedef struct sentinel {
    backend base;
    const environment *env;
    server_limits limits;
    url login; /* of the master: its address is still to be filled in */
    char name[DEPLOYMENT_NAME_MAX + 1];
    server *sentinels[DEPLOYMENT_SERVERS_MAX];
    size_t count;
    atomic_uint_least64_t commands;

    pthread_mutex_t mutex;
    server *master; /* NULL: not known yet */
    bool is_doubted, is_asking;
    int64_t asked_us; /* when the sentinels have answered last */
} sentinel;

/* -- asking the sentinels */

/* What one of them says. */
typedef struct opinion {
    char host[URL_HOST_MAX + 1];
    int port; /* 0: it has named none */
} opinion;

/* A round of questions. */
typedef struct inquiry {
    survey asked;
    opinion each[DEPLOYMENT_SERVERS_MAX], newest;
    int64_t epoch; /* of the newest; negative: there is none */
} inquiry;

static int64_t number_of(const reply *text) {
    char *end;
    long long number = strtoll(text->text, &end, 10);
    return text->kind == REPLY_TEXT && text->text[0] != '\0' && *end == '\0' ? number : -1;
}

static const char *read_address(opinion *to, const reply *answer) {
    reply host, port;
    if (answer->kind == REPLY_NIL) return "the sentinel knows no master of that name";
    bool is_pair = reply_element(answer, 0, &host) && reply_element(answer, 1, &port);
    if (!is_pair || host.kind != REPLY_TEXT || host.text[0] == '\0')
        return "the sentinel gave an answer that makes no sense";
    int64_t number = number_of(&port);
    if (number < 1 || number > 65535) return "the sentinel named a master with a bad port";
    text_copy(to->host, sizeof(to->host), host.text);
    to->port = (int)number;
    return NULL;
}

/* Each configuration that sentinels agree on has a number of its own, and the next is larger. 0: it
 * is not said. */
static int64_t read_epoch(const reply *answer) {
    reply field, value;
    for (size_t i = 0; reply_element(answer, i, &field) && reply_element(answer, i + 1, &value);
         i += 2)
        if (field.kind == REPLY_TEXT && strcmp(field.text, "config-epoch") == 0)
            return number_of(&value) > 0 ? number_of(&value) : 0;
    return 0;
}

static const char *on_reply(survey *self, size_t who, int which, const reply *answer) {
    inquiry *of = self->asker;
    opinion *said = &of->each[who];
    const char *useless = which == 0 ? read_address(said, answer) : NULL;
    int64_t epoch = which == 0 ? 0 : read_epoch(answer);
    if (said->port == 0 || epoch <= of->epoch) return useless;
    if (of->epoch < 0) survey_hurry(self, (int64_t)GRACE_MS * 1000);
    of->newest = *said;
    of->epoch = epoch;
    return NULL;
}

static command sentinel_command(const char *verb, const char *name) {
    return (command){.count = 3,
                     .words = {"SENTINEL", verb, name},
                     .lengths = {strlen("SENTINEL"), strlen(verb), strlen(name)}};
}

static dlock_status inquire(sentinel *self, inquiry *made, int64_t limit_us, const interrupt *stop,
                            char cause[CAUSE_MAX + 1]) {
    command requests[SENTINEL_REQUESTS] = {sentinel_command("GET-MASTER-ADDR-BY-NAME", self->name),
                                           sentinel_command("MASTER", self->name)};
    *made = (inquiry){.epoch = -1};
    made->asked.at = self->sentinels;
    made->asked.count = self->count;
    made->asked.requests = requests;
    made->asked.request_count = SENTINEL_REQUESTS;
    made->asked.on_reply = on_reply;
    made->asked.asker = made;
    made->asked.env = self->env;
    made->asked.stop = stop;
    atomic_fetch_add(&self->commands, survey_run(&made->asked, limit_us));
    return made->epoch >= 0 ? DLOCK_OK : survey_failure(&made->asked, cause);
}

/* -- the master */

static bool is_at(const server *known, const opinion *named) {
    const url *at = server_url(known);
    return at->port == named->port && strcmp(at->host, named->host) == 0;
}

/* Locked. False: no memory. */
static bool take_over(sentinel *self, const opinion *named) {
    if (self->master != NULL && is_at(self->master, named)) return true;
    url at = self->login;
    text_copy(at.host, sizeof(at.host), named->host);
    at.port = named->port;
    server *made = server_new(&at, &self->limits);
    if (made == NULL) return false;
    server_free(self->master);
    self->master = made;
    return true;
}

/* Locked. */
static bool must_ask(const sentinel *self) {
    if (self->master == NULL) return true;
    int64_t from_us = deadline_after_ms(self->asked_us, PAUSE_MS);
    return self->is_doubted && !self->is_asking && self->env->now_us(self->env) >= from_us;
}

/* Asks the sentinels, in half of the time that there is, and remembers whom they name. */
static dlock_status look_around(sentinel *self, int64_t limit_us, const interrupt *stop,
                                char cause[CAUSE_MAX + 1]) {
    inquiry made;
    int64_t now_us = self->env->now_us(self->env);
    int64_t by_us = deadline_after_ms(now_us, self->limits.connect_timeout_ms);
    by_us = deadline_earlier(by_us, now_us + deadline_left_us(limit_us, now_us) / 2);
    dlock_status status = inquire(self, &made, by_us, stop, cause);
    pthread_mutex_lock(&self->mutex);
    self->is_asking = false;
    self->asked_us = self->env->now_us(self->env);
    if (status == DLOCK_OK && !take_over(self, &made.newest)) {
        status = DLOCK_NO_MEMORY;
        text_copy(cause, CAUSE_MAX + 1, "no memory");
    }
    if (status != DLOCK_OK) self->is_doubted = true;
    pthread_mutex_unlock(&self->mutex);
    return status;
}

/* A share of the master. NULL: it is not known; see status and cause. */
static server *find(sentinel *self, int64_t limit_us, const interrupt *stop, dlock_status *status,
                    char cause[CAUSE_MAX + 1]) {
    pthread_mutex_lock(&self->mutex);
    if (must_ask(self)) {
        self->is_asking = true;
        self->is_doubted = false;
        pthread_mutex_unlock(&self->mutex);
        *status = look_around(self, limit_us, stop, cause);
        pthread_mutex_lock(&self->mutex);
    }
    server *known = self->master == NULL ? NULL : server_share(self->master);
    pthread_mutex_unlock(&self->mutex);
    return known;
}

static void doubt(sentinel *self, const server *at) {
    pthread_mutex_lock(&self->mutex);
    if (self->master == at) self->is_doubted = true;
    pthread_mutex_unlock(&self->mutex);
}

/* -- asking the master */

static void ask(sentinel *self, server *at, exchange *x, const interrupt *stop) {
    server_ask(at, x, self->env, stop);
    if (x->is_sent) atomic_fetch_add(&self->commands, (uint64_t)x->request_count);
}

/* The lock is granted, but not safe: it is to be free again, where it was granted, before the
 * caller hears of that. */
static bool undo(sentinel *self, server *at, const claim *of) {
    claim undone = *of;
    undone.stop.is_requested = NULL;
    question asked;
    int64_t now_us = self->env->now_us(self->env);
    question_release(&asked, &undone, self->limits.io_timeout_ms,
                     deadline_after_ms(now_us, self->limits.io_timeout_ms));
    ask(self, at, &asked.x, &undone.stop);
    dlock_status status = question_tell(&asked, &undone);
    return status == DLOCK_OK || status == DLOCK_LOST;
}

static dlock_status put(sentinel *self, server *at, const errand *to) {
    claim *of = to->of;
    question asked;
    bool was_sent_before = of->is_sent;
    question_prepare(&asked, to, self->limits.io_timeout_ms);
    ask(self, at, &asked.x, to->stop);
    dlock_status status = question_tell(&asked, of);
    bool is_its_word = asked.x.status == DLOCK_OK && status >= DLOCK_IN_DOUBT;
    if (is_its_word) server_sign(at, of->call.cause);
    bool is_unsafe = status == DLOCK_NO_REPLICAS && to->operation == DLOCK_ACQUIRING;
    if (is_unsafe && undo(self, at, of)) of->is_sent = was_sent_before;
    if (of->is_passing || status == DLOCK_NO_REPLICAS) doubt(self, at);
    return status;
}

/* Of the master; and if that has done nothing, and is not the master any more, of its successor. */
static dlock_status run(sentinel *self, const errand *to) {
    claim *of = to->of;
    dlock_status status = DLOCK_UNREACHABLE;
    char cause[CAUSE_MAX + 1] = "";
    server *at = find(self, to->limit_us, to->stop, &status, cause);
    if (at == NULL) {
        of->is_passing = status == DLOCK_UNREACHABLE;
        text_copy(of->call.cause, sizeof(of->call.cause), cause);
        return status;
    }
    dlock_status ignored;
    status = put(self, at, to);
    if (of->is_passing && status != DLOCK_IN_DOUBT) {
        server *next = find(self, to->limit_us, to->stop, &ignored, cause);
        if (next != NULL && next != at) status = put(self, next, to);
        server_free(next);
    }
    server_free(at);
    return status;
}

static dlock_status acquire(backend *base, claim *of, uint32_t wait_ms, int64_t limit_us) {
    return run((sentinel *)base, &(errand){DLOCK_ACQUIRING, of, wait_ms, limit_us, &of->stop});
}

static dlock_status extend(backend *base, claim *of, int64_t limit_us) {
    return run((sentinel *)base, &(errand){DLOCK_EXTENDING, of, 0, limit_us, &of->stop});
}

static dlock_status release(backend *base, claim *of, int64_t limit_us) {
    return run((sentinel *)base, &(errand){DLOCK_RELEASING, of, 0, limit_us, &of->stop});
}

static void extend_all(backend *base, claim *const claims[], dlock_status outcomes[], size_t count,
                       const interrupt *stop, int64_t limit_us) {
    sentinel *self = (sentinel *)base;
    batch *asked = batch_new(claims, outcomes, count, self->limits.io_timeout_ms, limit_us);
    if (asked == NULL) return;
    exchange *x = batch_exchange(asked);
    server *at = find(self, limit_us, stop, &x->status, x->cause);
    if (at != NULL) ask(self, at, x, stop);
    batch_read(asked);
    batch_free(asked);
    for (size_t i = 0; at != NULL && i < count; i++)
        if (outcomes[i] != DLOCK_OK && claims[i]->is_passing) doubt(self, at);
    server_free(at);
}

/* A release by a stranger changes nothing, and whoever may lock may ask for it. */
static dlock_status ping(backend *base, claim *of, int64_t limit_us) {
    dlock_status status = release(base, of, limit_us);
    return status == DLOCK_LOST ? DLOCK_OK : status;
}

static dlock_status visit_servers(backend *base, claim *of, int64_t limit_us, backend_visit visit,
                                  void *arg) {
    sentinel *self = (sentinel *)base;
    dlock_status status = DLOCK_OK;
    server *at = find(self, limit_us, &of->stop, &status, of->call.cause);
    if (at == NULL) return status;
    status = visit(arg, at);
    if (status >= DLOCK_IN_DOUBT) doubt(self, at);
    server_free(at);
    return status;
}

static uint64_t command_count(const backend *base) {
    return atomic_load(&((sentinel *)base)->commands);
}

static void free_sentinel(backend *base) {
    sentinel *old = (sentinel *)base;
    for (size_t i = 0; i < old->count; i++)
        server_free(old->sentinels[i]);
    server_free(old->master);
    pthread_mutex_destroy(&old->mutex);
    free(old);
}

static const backend_table table = {.acquire = acquire,
                                    .extend = extend,
                                    .extend_all = extend_all,
                                    .release = release,
                                    .ping = ping,
                                    .visit_servers = visit_servers,
                                    .hang_up = server_hang_up,
                                    .link_fd = server_link_fd,
                                    .command_count = command_count,
                                    .free = free_sentinel,
                                    .can_wait = true,
                                    .has_sessions = true,
                                    .has_replicas = true};

backend *sentinel_new(const deployment *where, const server_limits *limits,
                      const environment *env) {
    sentinel *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    made->base.table = &table;
    made->env = env;
    made->limits = *limits;
    made->login = where->master;
    made->login.must_be_master = true;
    pthread_mutex_init(&made->mutex, NULL);
    text_copy(made->name, sizeof(made->name), where->master_name);
    for (size_t i = 0; i < where->count; i++) {
        made->sentinels[i] = server_new(&where->servers[i], limits);
        if (made->sentinels[i] == NULL) {
            free_sentinel(&made->base);
            return NULL;
        }
        made->count++;
    }
    return &made->base;
}
