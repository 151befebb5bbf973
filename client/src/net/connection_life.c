/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_life.c - how a connection begins and how it ends: see connection.h.
 *
 *   opening      requests are queued already; the first task begins to connect
 *   connecting   the name is looked up by a thread; then each address has its share of the time
 *                that is left, so that one that swallows everything does not hide the next
 *   handshake    of TLS, if there is any, in the same share of the time
 *   greeting     AUTH, SELECT and ROLE, as the URL asks for, are the first request. Nothing else is
 *                sent before they are answered: a command must not reach the wrong database. For an
 *                owner that needs proof, a PING takes the place of an empty greeting
 *   ready        connection.c sends and reads
 *   broken       the owner is told, then each request, then the memory is freed; by a task of the
 *                loop
 *   closed       the same without telling anybody
 *
 * Invariant: memory is freed by a task only, so callbacks may close the connection that calls
 * them. */
#include "net/connection_state.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

/* A server that is gone without a word is noticed after about eight seconds. */
enum { KEEPALIVE_IDLE_S = 5, KEEPALIVE_PAUSE_S = 1, KEEPALIVE_PROBES = 3, UNHEARD_MS = 8000 };

enum { GREETING_MAX = 3, QUEUE_PAUSE_US = 10000 };

/* -- diagnostics: a line when the state of the server changes, not for each connection */

static void diagnose_endpoint(const endpoint *endpoint, dlock_log_level level, const char *what,
                              const char *cause) {
    char server[CAUSE_SIZE];
    url_describe(&endpoint->url, server, sizeof(server));
    diagnose(endpoint->options.diagnostics, level, server, what, cause);
}

static void note_ready(endpoint *endpoint) {
    endpoint->ready_count++;
    if (endpoint->state != ENDPOINT_UP)
        diagnose_endpoint(endpoint, DLOCK_LOG_INFO,
                          endpoint->state == ENDPOINT_NEW ? "connected" : "connected again", "");
    endpoint->state = ENDPOINT_UP;
}

void endpoint_note_loss(endpoint *endpoint, const char *cause) {
    if (endpoint->state == ENDPOINT_UP)
        diagnose_endpoint(endpoint, DLOCK_LOG_WARNING, "the connection is lost", cause);
    endpoint->state = ENDPOINT_LOST;
}

static void endpoint_note_failure(endpoint *endpoint, dlock_status failure, const char *cause) {
    dlock_log_level level = failure == DLOCK_UNREACHABLE ? DLOCK_LOG_WARNING : DLOCK_LOG_ERROR;
    if (endpoint->state != ENDPOINT_DOWN)
        diagnose_endpoint(endpoint, level, "no connection", cause);
    endpoint->state = ENDPOINT_DOWN;
}

/* -- the end */

/* Nothing comes from the loop any more but the task. */
static void disconnect(connection *conn, phase phase) {
    connecting *state = &conn->connecting;
    if (!connection_is_over(conn)) connection_count_none_owed(conn);
    tls_free(conn->tls); /* says goodbye to the server */
    conn->tls = NULL;
    /* A child that was forked may have a copy: the server is to notice all the same. */
    if (connection_is_open(conn)) shutdown(conn->io.fd, SHUT_RDWR);
    conn->phase = phase;
    if (conn->io.fd >= 0) loop_close(conn->loop, &conn->io);
    if (state->lookup_io.fd >= 0) loop_close(conn->loop, &state->lookup_io);
    lookup_leave(state->lookup);
    state->lookup = NULL;
    loop_clear_timer(conn->loop, &conn->timer);
    loop_defer(conn->loop, &conn->task);
}

void connection_fail(connection *conn, dlock_status failure, const char *cause) {
    if (connection_is_over(conn)) return;
    text_copy(conn->cause, sizeof(conn->cause), cause);
    conn->failure = failure;
    if (conn->phase == READY)
        endpoint_note_loss(conn->endpoint, conn->cause);
    else
        endpoint_note_failure(conn->endpoint, failure, conn->cause);
    disconnect(conn, BROKEN);
}

/* Before the end, what is queued is sent: a release may be queued behind an acquire. */
void connection_close(connection *conn) {
    if (conn == NULL || conn->phase == CLOSED) return;
    connection_send_last(conn);
    disconnect(conn, CLOSED);
    connection_end_requests(conn, false);
}

/* The owner first: a request that is sent again must not come here. */
static void tell_broken(connection *conn) {
    connection **place = conn->owner.place;
    if (place != NULL && *place == conn) *place = NULL;
    if (conn->owner.on_broken != NULL) conn->owner.on_broken(conn->owner.arg, conn);
    conn->phase = CLOSED;
    connection_end_requests(conn, true);
}

static void free_connection(connection *conn) {
    list_remove(&conn->task.node);
    free(conn->pipeline.entries);
    free(conn->pipeline.out.data);
    free(conn->pipeline.rest.data);
    free(conn->in.data);
    resp_reader_free(&conn->reader);
    free(conn);
}

/* -- the greeting */

static void on_greeting(request *greeting, int index, const reply *reply) {
    connection *conn = container_of(greeting, connection, greeting);
    const url *url = &conn->endpoint->url;
    bool is_role = url->must_be_master && index == (url->password[0] != '\0') + (url->db != 0);
    const struct reply *role = is_role ? reply_element(reply, 0) : NULL;
    if (reply->kind == REPLY_ERROR) {
        connection_fail_by_error(conn, reply);
    } else if (role != NULL && !reply_is_text(role, "master")) {
        connection_fail(conn, DLOCK_UNREACHABLE, "it is not the master");
    } else if (role == NULL && (is_role || !reply_is_text(reply, "OK"))) {
        connection_fail(conn, DLOCK_PROTOCOL, "an unexpected reply to AUTH, SELECT or ROLE");
    }
}

/* A lasting error, like NOPERM, is a sign of life as well. A server with too many clients closes
 * the connection after its error. */
static void on_pong(request *ping, int index, const reply *reply) {
    (void)index;
    if (reply->kind == REPLY_ERROR && error_reply_meaning(reply).is_transient)
        connection_fail_by_error(container_of(ping, connection, greeting), reply);
}

static void become_ready(connection *conn) {
    conn->phase = READY;
    note_ready(conn->endpoint);
    conn->heard_us = loop_now_us(conn->loop);
    loop_defer(conn->loop, &conn->task); /* sends, once the replies that came are read */
}

static void on_greeted(request *greeting, dlock_status status, const char *cause) {
    (void)cause;
    connection *conn = container_of(greeting, connection, greeting);
    if (status == DLOCK_OK) become_ready(conn);
}

/* The socket is connected, and the TLS handshake done. */
static void begin_greeting(connection *conn) {
    loop_clear_timer(conn->loop, &conn->timer);
    if (!connection_start_io(conn)) return;
    conn->phase = GREETING;
    if (conn->pipeline.rest.size == 0)
        become_ready(conn);
    else
        connection_flush(conn);
}

/* -- the handshake */

static void shake_hands(connection *conn) {
    ssize_t done = tls_shake_hands(conn->tls);
    if (done > 0)
        begin_greeting(conn);
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
        begin_greeting(conn);
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
        if (errno == EAGAIN) { /* of a unix socket: the server has too many new connections */
            int64_t again_us = deadline_earlier(state->until_us, now_us + QUEUE_PAUSE_US);
            loop_set_timer(conn->loop, &conn->timer, again_us);
            state->next_address = index;
            return;
        }
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

/* Nothing is known of a server that does not answer the handshake, so the next one may be good. */
static void on_connect_due(loop_timer *timer) {
    connection *conn = container_of(timer, connection, timer);
    const connecting *state = &conn->connecting;
    const char *cause = connection_overdue(conn);
    bool is_last = state->found == NULL || state->next_address >= state->found->count ||
                   loop_now_us(conn->loop) >= state->until_us;
    if (is_last) {
        connection_fail(conn, DLOCK_UNREACHABLE, cause);
        return;
    }
    tls_free(conn->tls);
    conn->tls = NULL;
    conn->phase = CONNECTING;
    try_next_address(conn, cause);
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

static void begin_to_connect(connection *conn) {
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

/* -- opening */

static void run_connection_task(loop_task *task) {
    connection *conn = container_of(task, connection, task);
    if (conn->phase == BROKEN) tell_broken(conn);
    if (conn->phase == CLOSED)
        free_connection(conn);
    else if (conn->phase == OPENING)
        begin_to_connect(conn);
    else
        connection_flush(conn);
}

/* The result is how many commands there are. They are empty before, and borrow from the URL. */
static int greeting_commands(command commands[GREETING_MAX], const url *url) {
    int count = 0;
    if (url->password[0] != '\0') {
        command *auth = &commands[count++];
        command_add(auth, "AUTH");
        if (url->user[0] != '\0') command_add(auth, url->user);
        command_add(auth, url->password);
    }
    if (url->db != 0) {
        command *select = &commands[count++];
        command_add(select, "SELECT");
        command_add_number(select, (uint64_t)url->db);
    }
    if (url->must_be_master) command_add(&commands[count++], "ROLE");
    return count;
}

/* False: no memory. */
static bool queue_greeting(connection *conn) {
    command commands[GREETING_MAX] = {{0}};
    int count = greeting_commands(commands, &conn->endpoint->url);
    conn->greeting.on_reply = on_greeting;
    if (count == 0 && conn->owner.needs_proof) {
        command_add(&commands[count++], "PING");
        conn->greeting.on_reply = on_pong;
    }
    conn->greeting.on_done = on_greeted;
    return count == 0 || connection_send_first(conn, commands, count, &conn->greeting);
}

/* A name is for people: nobody waits for the reply, which may be NOPERM. False: no memory. */
static bool queue_name(connection *conn) {
    const char *name = conn->endpoint->options.name;
    command named = {0};
    if (name == NULL) return true;
    command_add_words(&named, COMMAND_WORDS("CLIENT", "SETNAME", name));
    return connection_send(conn, &named, 1, NULL);
}

connection *connection_open(endpoint *endpoint, const connection_owner *owner) {
    connection *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) return NULL;
    conn->owner = *owner;
    conn->loop = endpoint->options.loop;
    conn->endpoint = endpoint;
    conn->io.fd = conn->connecting.lookup_io.fd = -1;
    conn->task.run = run_connection_task;
    if (!queue_greeting(conn) || !queue_name(conn)) {
        free_connection(conn);
        return NULL;
    }
    loop_defer(conn->loop, &conn->task);
    return conn;
}
