/* SPDX-License-Identifier: BSD-3-Clause */
/* connecting.c - how a connection is made, see connection.h.
 *
 *   connecting   the name is looked up by a thread; then each address has its share of the time
 *                that is left, so that one that swallows everything does not hide the next
 *   handshake    of TLS, if there is any */
#include "net/connection_state.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

/* A server that is gone without a word is noticed after about eight seconds. */
enum { KEEPALIVE_IDLE_S = 5, KEEPALIVE_PAUSE_S = 1, KEEPALIVE_PROBES = 3, UNHEARD_MS = 8000 };

/* -- the handshake */

static void shake_hands(connection *conn) {
    ssize_t done = tls_shake_hands(conn->tls);
    if (done > 0)
        connection_on_open(conn);
    else if (done == 0)
        connection_fail(conn, DLOCK_UNREACHABLE,
                        "the server closed the connection in the TLS handshake");
    else if (errno != EAGAIN)
        connection_fail(conn, conn->tls->failure, conn->tls->cause);
    else
        connection_watch(conn, conn->tls->wants_to_write ? EPOLLOUT : EPOLLIN);
}

/* Certificates that are about to end are replaced while the program runs. */
static void refresh_files(const endpoint *endpoint) {
    char wrong[CAUSE_SIZE] = "";
    if (!tls_context_refresh(endpoint->options.tls, wrong, sizeof(wrong))) return;
    bool is_good = wrong[0] == '\0';
    diagnose(endpoint->options.diagnostics, is_good ? DLOCK_LOG_INFO : DLOCK_LOG_ERROR, "TLS",
             is_good ? "the files have changed, and were read again"
                     : "the files have changed, and the old ones are used",
             wrong);
}

static void begin_handshake(connection *conn) {
    refresh_files(conn->endpoint);
    conn->tls = tls_new(conn->endpoint->options.tls, conn->endpoint->url.host, conn->io.fd);
    conn->phase = HANDSHAKE;
    if (conn->tls == NULL)
        connection_fail(conn, DLOCK_NO_MEMORY, "no memory");
    else
        shake_hands(conn);
}

/* -- addresses */

/* Best effort: a connection without these options works too. */
static void set_tcp_options(int fd) {
    const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
                   {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_PAUSE_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, UNHEARD_MS},
                   {IPPROTO_TCP, TCP_NODELAY, 1}};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                   sizeof(options[i].value));
}

static void try_next_address(connection *conn, const char *cause);

static void on_connected(connection *conn) {
    int fault = 0, fd = conn->io.fd;
    socklen_t size = sizeof(fault);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &size) != 0) fault = errno;
    struct sockaddr_storage peer;
    size = sizeof(peer);
    bool is_connected = getpeername(fd, (struct sockaddr *)&peer, &size) == 0;
    if (fault == 0 && !is_connected) return; /* told for nothing */
    if (fault != 0) {
        try_next_address(conn, strerror(fault));
        return;
    }
    if (!conn->endpoint->url.is_unix) set_tcp_options(fd);
    if (!conn->endpoint->url.is_tls)
        connection_on_open(conn);
    else
        begin_handshake(conn);
}

/* Until the connection is open. */
static void on_connecting_io(loop_io *io, uint32_t ready) {
    (void)ready;
    connection *conn = container_of(io, connection, io);
    if (conn->phase == CONNECTING)
        on_connected(conn);
    else
        shake_hands(conn);
}

/* False: that address is no good; errno says why. */
static bool connect_address(connection *conn, int index) {
    const addresses *found = conn->connecting.found;
    const struct sockaddr *address = (const struct sockaddr *)&found->each[index];
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    conn->io = (loop_io){.fd = fd, .on_ready = on_connecting_io};
    if (fd < 0) return false;
    if (connect(fd, address, found->sizes[index]) != 0 && errno != EINPROGRESS) return false;
    connection_watch(conn, EPOLLOUT);
    return true;
}

/* A family that this machine does not have, like IPv6, is no lack of resources. */
static bool is_lack(int fault) {
    return fault == EMFILE || fault == ENFILE || fault == ENOMEM || fault == ENOBUFS;
}

/* cause: why the address before is no good. */
static void try_next_address(connection *conn, const char *cause) {
    connecting *state = &conn->connecting;
    dlock_status failure = DLOCK_UNREACHABLE;
    while (state->next_address < state->found->count) {
        int index = state->next_address++, others = state->found->count - index - 1;
        int64_t now_us = loop_now_us(conn->loop);
        int64_t share_us = deadline_left_us(state->until_us, now_us) / (others + 1);
        if (conn->io.fd >= 0) loop_close(conn->loop, &conn->io);
        loop_set_timer(conn->loop, &conn->timer, others == 0 ? state->until_us : now_us + share_us);
        if (connect_address(conn, index)) return;
        failure = is_lack(errno) ? DLOCK_NO_MEMORY : DLOCK_UNREACHABLE;
        cause = strerror(errno);
    }
    connection_fail(conn, failure, cause);
}

const char *connection_overdue(const connection *conn) {
    if (conn->phase == HANDSHAKE) return "no answer to the TLS handshake in time";
    if (conn->phase == GREETING) return "no answer to the login or PING in time";
    return conn->connecting.found == NULL ? "the host name was not found in time"
                                          : "no connection in time";
}

static void on_connect_due(loop_timer *timer) {
    connection *conn = container_of(timer, connection, timer);
    const connecting *state = &conn->connecting;
    bool is_last = state->found == NULL || state->next_address >= state->found->count ||
                   loop_now_us(conn->loop) >= state->until_us;
    if (conn->phase == CONNECTING && !is_last)
        try_next_address(conn, connection_overdue(conn));
    else
        connection_fail(conn, DLOCK_UNREACHABLE, connection_overdue(conn));
}

/* -- looking up the name */

static void on_lookup(loop_io *io, uint32_t ready) {
    (void)ready;
    connection *conn = container_of(io, connection, connecting.lookup_io);
    const lookup *lookup = conn->connecting.lookup;
    if (!atomic_load(&lookup->is_done)) return; /* told for nothing */
    loop_close(conn->loop, io);
    if (lookup->status != DLOCK_OK) {
        connection_fail(conn, lookup->status, lookup->cause);
        return;
    }
    conn->connecting.found = &lookup->found;
    try_next_address(conn, "");
}

static void begin_lookup(connection *conn) {
    connecting *state = &conn->connecting;
    endpoint *endpoint = conn->endpoint;
    state->lookup = lookup_join(&endpoint->last_lookup, endpoint->url.host, endpoint->url.port,
                                loop_has_threads(conn->loop));
    /* The loop closes what it watches, so it gets a descriptor of its own. */
    int fd = state->lookup == NULL ? -1 : fcntl(state->lookup->done_fd, F_DUPFD_CLOEXEC, 0);
    state->lookup_io = (loop_io){.fd = fd, .on_ready = on_lookup};
    if (fd < 0 || !loop_watch(conn->loop, &state->lookup_io, EPOLLIN))
        connection_fail(conn, DLOCK_NO_MEMORY,
                        "no memory, descriptor or thread to look up the host name");
}

void connection_connect(connection *conn) {
    connecting *state = &conn->connecting;
    const endpoint *endpoint = conn->endpoint;
    conn->phase = CONNECTING;
    conn->timer.on_due = on_connect_due;
    state->until_us =
        deadline_after_ms(loop_now_us(conn->loop), endpoint->options.connect_timeout_ms);
    loop_set_timer(conn->loop, &conn->timer, state->until_us);
    if (endpoint->known.count == 0) {
        begin_lookup(conn);
        return;
    }
    state->found = &endpoint->known;
    try_next_address(conn, "");
}
