/* SPDX-License-Identifier: BSD-3-Clause */
/* redlock.c - see redlock.h. Every step is a round over the servers.
 *
 *   acquire   ACQUIRE with a proposed fence. No majority: undo
 *   raise     a majority said yes, but the fences differ: the smaller ones are raised to a common
 *             fence, by a second round. No majority: undo
 *   undo      RELEASE right behind the ACQUIRE, wherever the ACQUIRE was sent. The attempt does not
 *             wait for the replies; a RELEASE without a good reply becomes a withdrawal
 *   extend    EXTEND. A renewal also heals: a server that has forgotten the lock, by a restart for
 *             instance, is asked to grant the lock again, with the same token and fence
 *   release   RELEASE, also behind requests whose replies are overdue: an ACQUIRE may arrive late.
 *             If a server that has the lock cannot be reached, a withdrawal goes on
 *
 * Fences: every server counts fences by itself. The fence of a lock is the largest one that the
 * servers of some majority granted, and before the lock is granted, all servers of a majority have
 * reached that fence. Any later majority shares a server with this one, so a later fence is larger.
 * A server whose clock is far ahead grants fences that the other servers refuse to reach; then the
 * round waits for a majority without that server.
 *
 * Invariants:
 *   - Each attempt has a token of its own, so a late RELEASE of an earlier attempt harms nobody.
 *   - Requests to a server travel in order, so a RELEASE cannot overtake its ACQUIRE. If a
 *     connection ended with an ACQUIRE in doubt, a withdrawal repeats the RELEASE.
 *   - An undo is in the list while its request is under way, and not otherwise.
 *   - A healed grant is no vote of the extension: after the server had forgotten the lock, another
 *     client may have held a majority with that server's help, and have released the lock since.
 *     Only an unbroken hold on a majority proves that nobody else held the lock. The healed server
 *     counts from the next extension on, with the majority that has held all the time. */
#include "deployment/redlock.h"

/* A renewal waits this part of the lease for servers that may have forgotten the lock. */
enum { HEAL_PARTS = 50 };

/* A proposed fence is this far ahead of the clock. If that is more than the request takes, and more
 * than clocks differ by, all servers grant the same fence and no second round is needed. */
enum { FENCE_AHEAD_US = 10000 };

/* A server refuses to count on from a fence that is 5 minutes ahead of the clock. Then none is
 * proposed for a while, until the clocks may have been put right. */
enum { FENCE_RAISE_MAX_US = 4 * 60 * 1000000, NO_FENCE_MS = 60 * 1000 };

/* -- undo */

/* A RELEASE at one server. */
typedef struct undo {
    list_node node;
    redlock *redlock;
    request request;
    bool is_done;
    uint32_t lease_ms;
    uint8_t name_count; /* as in the attempt */
    char token[DLOCK_TOKEN_SIZE];
    char name[];
} undo;

static void free_undo(undo *undo) {
    list_remove(&undo->node);
    free(undo);
}

static void on_undo_reply(request *request, int index, const reply *reply) {
    (void)index;
    undo *undo = container_of(request, struct undo, request);
    verdict verdict = {0};
    read_released_reply(&verdict, undo->name_count, reply);
    undo->is_done = is_withdrawn(verdict.status);
}

static void on_undo_done(request *request, dlock_status status, const char *cause) {
    (void)status, (void)cause;
    undo *undo = container_of(request, struct undo, request);
    attempt undone = {.name = undo->name, .name_count = undo->name_count, .token = undo->token};
    if (!undo->is_done) withdrawals_add(&undo->redlock->base, &undone, undo->lease_ms);
    free_undo(undo);
}

/* False: no memory. */
static bool undo_vote(const round_vote *vote) {
    redlock *redlock = vote->round->redlock;
    const attempt *attempt = vote->round->attempt;
    size_t name_size = text_list_size(attempt->name, attempt->name_count);
    undo *undo = calloc(1, sizeof(*undo) + name_size);
    if (undo == NULL) return false;
    undo->redlock = redlock;
    undo->request = (request){.on_reply = on_undo_reply, .on_done = on_undo_done};
    undo->lease_ms = attempt->lease_ms;
    undo->name_count = attempt->name_count;
    text_copy(undo->token, sizeof(undo->token), attempt->token);
    memcpy(undo->name, attempt->name, name_size);
    list_append(&redlock->undos, &undo->node);
    if (vote_send(vote, DLOCK_RELEASING, &undo->request)) return true;
    free_undo(undo);
    return false;
}

/* The RELEASE can be overtaken if a connection has ended. A token of an earlier attempt may be held
 * by any server, whatever this round says. */
static void undo_all(round *round) {
    attempt *attempt = round->attempt;
    bool must_withdraw = attempt->fate != TOKEN_UNHELD;
    round_each_vote(const round_vote, vote, round) {
        if (vote->fate == TOKEN_UNHELD && !vote->is_queued) continue;
        bool is_enough = vote->fate == TOKEN_HELD || vote->conn != NULL;
        if (!undo_vote(vote) || !is_enough) must_withdraw = true;
    }
    if (must_withdraw) withdrawals_add(&round->redlock->base, attempt, attempt->lease_ms);
    attempt_change_token(attempt);
}

/* -- acquire */

static void start_acquire_round(round *round);

static bool has_quorum(const round *round, size_t count) {
    return count >= votes_quorum(round->redlock->count);
}

static size_t count_fences(const round *round, uint64_t least, uint64_t most) {
    size_t count = 0;
    round_each_vote(const round_vote, vote, round)
        count += vote_is_yes(vote) && vote->fence >= least && vote->fence <= most;
    return count;
}

/* The fence of the lock: sorted by size, that of the grant which completes a majority. A majority
 * has said yes. */
static uint64_t common_fence(const round *round) {
    uint64_t smallest = UINT64_MAX;
    round_each_vote(const round_vote, vote, round) {
        bool is_smaller = vote_is_yes(vote) && vote->fence < smallest;
        if (is_smaller && has_quorum(round, count_fences(round, 0, vote->fence)))
            smallest = vote->fence;
    }
    return smallest;
}

/* Will a majority count on from the common fence, if asked to? */
static bool is_fence_in_reach(const round *round) {
    uint64_t fence = common_fence(round);
    uint64_t least = fence > FENCE_RAISE_MAX_US ? fence - FENCE_RAISE_MAX_US : 0;
    return has_quorum(round, count_fences(round, least, UINT64_MAX));
}

static void grant(round *round, uint64_t fence) {
    if (fence > round->redlock->last_fence) round->redlock->last_fence = fence;
    round->attempt->fence = fence;
    round_end(round, DLOCK_OK, "");
}

static void on_raised(round *round, dlock_status result) {
    if (result == DLOCK_OK) {
        grant(round, round->plan.fence);
        return;
    }
    undo_all(round);
    round->attempt->is_split = true;
    round_end(round, DLOCK_NO_QUORUM, "a majority granted it, but not with the same fence");
}

/* Servers that granted a smaller fence are asked again, with the same token. */
static void raise_fences(round *round) {
    bool is_lower[TOPOLOGY_SERVERS_MAX];
    uint64_t fence = common_fence(round);
    size_t raised = count_fences(round, fence, UINT64_MAX);
    if (has_quorum(round, raised)) {
        grant(round, fence);
        return;
    }
    round_each_vote(const round_vote, vote, round)
        is_lower[vote - round->server_votes] = vote_is_yes(vote) && vote->fence < fence;
    round_plan plan = {.fence = fence,
                       .is_fence_needed = true,
                       .limit_us = round->attempt->limit_us,
                       .on_done = on_raised};
    round_start(round, &plan, is_lower, raised);
}

/* Servers whose clocks are far behind ours refuse to count on from our clock: if these servers
 * prevent a majority, the attempt is repeated without a proposed fence. */
static void on_voted(round *round, dlock_status result) {
    redlock *redlock = round->redlock;
    if (result == DLOCK_OK) {
        raise_fences(round);
        return;
    }
    undo_all(round);
    if (round->plan.fence == 0 || has_quorum(round, redlock->count - round->fence_refusals)) {
        round->attempt->is_split = votes_are_split(&round->votes);
        round_end(round, result, NULL);
        return;
    }
    redlock->no_fence_until_us = deadline_after_ms(round_now_us(round), NO_FENCE_MS);
    round_init(round, redlock, round->attempt);
    start_acquire_round(round);
}

/* A reply after half of the lease is of no use. */
static int64_t useful_until_us(const round *round) {
    return round_now_us(round) + (int64_t)round->attempt->lease_ms * 500;
}

/* A fence that no server should have passed when the request arrives. 0: none is proposed. */
static uint64_t propose_fence(const redlock *redlock) {
    const clock_source *clock = loop_clock(redlock->base.loop);
    if (loop_now_us(redlock->base.loop) < redlock->no_fence_until_us) return 0;
    if (!redlock->base.protocol->has_module) return 0;
    uint64_t ahead = (uint64_t)clock->unix_us(clock) + FENCE_AHEAD_US;
    return ahead > redlock->last_fence ? ahead : redlock->last_fence + 1;
}

/* Asks all servers but those with an open circuit; all servers if too few are left. A silent server
 * must leave time to raise fences, and most of the lease to the holder. */
static void start_acquire_round(round *round) {
    const redlock *redlock = round->redlock;
    int64_t now_us = round_now_us(round);
    int64_t limit_us = now_us + deadline_left_us(round->attempt->limit_us, now_us) / 4 * 3;
    round_plan plan = {.fence = propose_fence(redlock),
                       .asks_others = true,
                       .limit_us = deadline_earlier(limit_us, useful_until_us(round)),
                       .is_enough = is_fence_in_reach,
                       .on_done = on_voted};
    bool is_chosen[TOPOLOGY_SERVERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < redlock->count; i++)
        count += is_chosen[i] = server_is_available(redlock->servers[i]);
    round_start(round, &plan, has_quorum(round, count) ? is_chosen : NULL, 0);
}

/* -- extend and release */

static void heal(round *round) {
    round_each_vote(round_vote, vote, round) {
        if (vote->state != VOTE_COUNTED || vote->status != DLOCK_LOST) continue;
        vote_send(vote, DLOCK_ACQUIRING, NULL);
        vote->fate = TOKEN_IN_DOUBT;
    }
}

/* A majority has released the lock. Is there another server that may have it, and was not reached?
 * Until its lease ends, such a server is as good as down for the next acquires. A straggler with a
 * connection is not awaited: as a rule its RELEASE arrives. */
static bool is_left_behind(const round *round) {
    round_each_vote(const round_vote, vote, round)
        if (vote_may_hold(vote) && vote->conn == NULL) return true;
    return false;
}

static void release_behind(const round *round) {
    for (size_t i = 0; i < round->redlock->count; i++)
        attempt_release_behind(round->attempt, false, round->redlock->servers[i]);
}

static void on_changed(round *round, dlock_status result) {
    const attempt *attempt = round->attempt;
    bool is_renewal = attempt->operation == DLOCK_EXTENDING && attempt->is_background;
    if (result == DLOCK_OK && is_renewal) heal(round);
    release_behind(round);
    bool is_release = attempt->operation == DLOCK_RELEASING && !attempt->is_background;
    bool is_over = result == DLOCK_OK || result == DLOCK_LOST; /* else waiting.c goes on with it */
    if (is_release && is_over && is_left_behind(round))
        withdrawals_add(&round->redlock->base, attempt, attempt->lease_ms);
    round_end(round, result, NULL);
}

/* A slow server that has forgotten the lock is to be healed as well; a silent one must not delay
 * renewals for long. */
static int64_t heal_linger_us(const round *round) {
    int64_t part_us = (int64_t)round->attempt->lease_ms * 1000 / HEAL_PARTS;
    int64_t most_us = (int64_t)round->redlock->base.io_timeout_ms * 500;
    int64_t linger_us = deadline_earlier(part_us, most_us);
    return linger_us > ROUND_LINGER_US ? linger_us : ROUND_LINGER_US;
}

static void start_change(round *round) {
    attempt *attempt = round->attempt;
    round_plan plan = {
        .fence = attempt->fence, .limit_us = attempt->limit_us, .on_done = on_changed};
    if (attempt->operation == DLOCK_RELEASING) {
        plan.awaits_all = attempt->is_background;
    } else {
        plan.limit_us = deadline_earlier(attempt->limit_us, useful_until_us(round));
        if (attempt->is_background) plan.linger_us = heal_linger_us(round);
    }
    round_start(round, &plan, NULL, 0);
    if (attempt->on_sent != NULL) attempt->on_sent(attempt);
}

/* -- the deployment */

static void start_redlock(deployment *deployment, attempt *attempt) {
    round *round = attempt->prepared.run;
    round_init(round, container_of(deployment, redlock, base), attempt);
    attempt->is_split = false;
    if (attempt->operation == DLOCK_ACQUIRING)
        start_acquire_round(round);
    else
        start_change(round);
}

static void abandon_redlock(deployment *deployment, attempt *attempt) {
    (void)deployment;
    round_stop(attempt->prepared.run, DLOCK_NO_QUORUM);
    release_behind(attempt->prepared.run);
    if (attempt->operation == DLOCK_ACQUIRING) undo_all(attempt->prepared.run);
}

static void list_servers(deployment *deployment, int64_t limit_us, server_list *list) {
    (void)limit_us;
    const redlock *redlock = container_of(deployment, struct redlock, base);
    for (; list->count < redlock->count; list->count++)
        list->servers[list->count] = server_share(redlock->servers[list->count]);
}

static void free_redlock(deployment *deployment) {
    redlock *redlock = container_of(deployment, struct redlock, base);
    for (size_t i = 0; i < redlock->count; i++)
        server_free(redlock->servers[i]);
    list_each(undo, each, &redlock->undos, node)
        free_undo(each); /* abandoned by their connections */
    free(redlock);
}

static const deployment_table table = {.start = start_redlock,
                                       .abandon = abandon_redlock,
                                       .list_servers = list_servers,
                                       .free = free_redlock,
                                       .run_size = sizeof(round),
                                       .guarded_error =
                                           "several independent servers cannot check the lock and "
                                           "run a command in one step"};

deployment *redlock_new(const topology *topology, const server_options *options) {
    redlock *redlock = calloc(1, sizeof(*redlock));
    if (redlock == NULL) return NULL;
    deployment_init(&redlock->base, &table, options);
    list_init(&redlock->undos);
    redlock->count = topology->count;
    if (servers_new(redlock->servers, topology->servers, topology->count, options))
        return &redlock->base;
    free_redlock(&redlock->base);
    return NULL;
}
