/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.c - see stream.h.
 *
 *   opening     the name is looked up by a thread; then each address has its share of the time that
 *               is left, so that one that swallows everything does not hide the next
 *   handshake   of TLS, if there is any
 *   open        bytes go out and come in
 *   ended       closed or failed, for good
 *
 * The descriptor blocks, for LOOP_BRIEF_US at most, only in loop.c's brief read; everything here
 * says MSG_DONTWAIT. SIGPIPE is never raised. */
#include "net/stream.h"

#include "base/deadline.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/time.h>

/* A server that is gone without a word is noticed after about eight seconds. */
enum { KEEPALIVE_IDLE_S = 5, KEEPALIVE_PAUSE_S = 1, KEEPALIVE_PROBES = 3, UNHEARD_MS = 8000 };

static void fail(stream *stream, dlock_status failure, const char *cause) {
    if (stream->phase == STREAM_ENDED) return;
    stream->phase = STREAM_ENDED;
    stream->on_failed(stream, failure, cause);
}

bool stream_settle(stream *stream, ssize_t count, int fault) {
    bool is_temporary = fault == EAGAIN || fault == EWOULDBLOCK || fault == EINTR;
    if (count == 0)
        fail(stream, DLOCK_UNREACHABLE, "the server closed the connection");
    else if (count < 0 && !is_temporary && stream->tls != NULL)
        fail(stream, tls_failure(stream->tls), tls_cause(stream->tls));
    else if (count < 0 && !is_temporary)
        fail(stream, DLOCK_UNREACHABLE, strerror(fault));
    return count > 0;
}

static void watch(stream *stream, uint32_t events) {
    if (!loop_watch(stream->loop, &stream->io, events | EPOLLRDHUP | EPOLLET))
        fail(stream, DLOCK_NO_MEMORY, "no memory or descriptor to watch a connection");
}

/* -- the handshake */

static void become_open(stream *stream) {
    stream->phase = STREAM_OPEN;
    loop_clear_timer(stream->loop, &stream->timer);
    watch(stream, EPOLLIN);
    if (stream->phase == STREAM_OPEN) stream->on_open(stream);
}

static void shake_hands(stream *stream) {
    ssize_t done = tls_shake_hands(stream->tls);
    if (done > 0)
        become_open(stream);
    else if (done == 0)
        fail(stream, DLOCK_UNREACHABLE, "the server closed the connection in the TLS handshake");
    else if (errno != EAGAIN)
        stream_settle(stream, done, errno);
    else
        watch(stream, tls_wants_to_write(stream->tls) ? EPOLLOUT : EPOLLIN);
}

static void begin_handshake(stream *stream) {
    const endpoint *endpoint = stream->endpoint;
    stream->tls = tls_new(endpoint->tls, endpoint->url.host, stream->io.fd);
    stream->phase = STREAM_HANDSHAKE;
    if (stream->tls == NULL)
        fail(stream, DLOCK_NO_MEMORY, "no memory");
    else
        shake_hands(stream);
}

/* -- connecting */

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

static void allow_brief_read(stream *stream) {
    struct timeval moment = {.tv_usec = LOOP_BRIEF_US};
    int fd = stream->io.fd, flags = fcntl(fd, F_GETFL);
    stream->may_read_briefly =
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment)) == 0 && flags >= 0 &&
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

static void try_next_address(stream *stream, const char *cause);

static void on_connected(stream *stream) {
    int fault = 0;
    socklen_t size = sizeof(fault);
    if (getsockopt(stream->io.fd, SOL_SOCKET, SO_ERROR, &fault, &size) != 0) fault = errno;
    struct sockaddr_storage peer;
    size = sizeof(peer);
    bool is_connected = getpeername(stream->io.fd, (struct sockaddr *)&peer, &size) == 0;
    if (fault == 0 && !is_connected) return; /* told for nothing */
    if (fault != 0) {
        try_next_address(stream, strerror(fault));
        return;
    }
    if (!stream->endpoint->url.is_unix) set_tcp_options(stream->io.fd);
    if (stream->endpoint->tls != NULL) {
        begin_handshake(stream);
        return;
    }
    allow_brief_read(stream);
    become_open(stream);
}

static void on_io(loop_io *io, uint32_t ready) {
    stream *stream = container_of(io, struct stream, io);
    if (stream->phase == STREAM_OPENING)
        on_connected(stream);
    else if (stream->phase == STREAM_HANDSHAKE)
        shake_hands(stream);
    else if (stream->phase == STREAM_OPEN)
        stream->on_ready(stream, (ready & ~(uint32_t)EPOLLOUT) != 0 || stream->tls != NULL,
                         (ready & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
}

/* False: that address is no good; errno says why. */
static bool connect_address(stream *stream, int index) {
    const struct sockaddr *address = (const struct sockaddr *)&stream->found->each[index];
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    stream->io = (loop_io){.fd = fd,
                           .on_ready = on_io,
                           .take_output = stream->on_take_output,
                           .on_written = stream->on_written};
    if (fd < 0) return false;
    if (connect(fd, address, stream->found->sizes[index]) != 0 && errno != EINPROGRESS)
        return false;
    watch(stream, EPOLLOUT);
    return true;
}

/* cause: why the address before is no good. */
static void try_next_address(stream *stream, const char *cause) {
    dlock_status failure = DLOCK_UNREACHABLE;
    while (stream->next_address < stream->found->count) {
        int index = stream->next_address++, others = stream->found->count - index - 1;
        int64_t now_us = loop_now_us(stream->loop);
        int64_t share_us = deadline_left_us(stream->connect_by_us, now_us) / (others + 1);
        if (stream->io.fd >= 0) loop_close(stream->loop, &stream->io);
        loop_set_timer(stream->loop, &stream->timer,
                       others == 0 ? stream->connect_by_us : now_us + share_us);
        if (connect_address(stream, index)) return;
        failure = stream->io.fd < 0 ? DLOCK_NO_MEMORY : DLOCK_UNREACHABLE;
        cause = strerror(errno);
    }
    fail(stream, failure, cause);
}

const char *stream_overdue(const stream *stream) {
    if (stream->phase == STREAM_HANDSHAKE) return "no answer to the TLS handshake in time";
    return stream->found == NULL ? "the host name was not found in time" : "no connection in time";
}

static void on_timeout(loop_timer *timer) {
    stream *stream = container_of(timer, struct stream, timer);
    bool is_last = stream->found == NULL || stream->next_address >= stream->found->count ||
                   loop_now_us(stream->loop) >= stream->connect_by_us;
    if (stream->phase == STREAM_OPENING && !is_last)
        try_next_address(stream, stream_overdue(stream));
    else
        fail(stream, DLOCK_UNREACHABLE, stream_overdue(stream));
}

/* -- looking up the name */

static void on_lookup(loop_io *io, uint32_t ready) {
    (void)ready;
    stream *stream = container_of(io, struct stream, lookup_io);
    const char *cause;
    dlock_status status = lookup_result(stream->lookup, &stream->found, &cause);
    if (status == DLOCK_OK && stream->found == NULL) return;
    loop_close(stream->loop, &stream->lookup_io);
    if (status != DLOCK_OK)
        fail(stream, status, cause);
    else
        try_next_address(stream, "");
}

static void begin_lookup(stream *stream) {
    endpoint *endpoint = stream->endpoint;
    stream->lookup = lookup_join(&endpoint->last_lookup, endpoint->url.host, endpoint->url.port);
    /* The loop closes what it watches, so it gets a descriptor of its own. */
    int fd = stream->lookup == NULL ? -1 : fcntl(lookup_fd(stream->lookup), F_DUPFD_CLOEXEC, 0);
    stream->lookup_io = (loop_io){.fd = fd, .on_ready = on_lookup};
    if (fd < 0 || !loop_watch(stream->loop, &stream->lookup_io, EPOLLIN))
        fail(stream, DLOCK_NO_MEMORY, "no memory, descriptor or thread to look up the host name");
}

static void run_task(loop_task *task) {
    stream *stream = container_of(task, struct stream, task);
    if (stream->endpoint->known.count == 0) {
        begin_lookup(stream);
        return;
    }
    stream->found = &stream->endpoint->known;
    try_next_address(stream, "");
}

/* -- public */

void stream_open(stream *stream) {
    stream->phase = STREAM_OPENING;
    stream->io.fd = stream->lookup_io.fd = -1;
    stream->timer.on_due = on_timeout;
    stream->task.run = run_task;
    stream->connect_by_us =
        deadline_after_ms(loop_now_us(stream->loop), stream->endpoint->connect_timeout_ms);
    loop_set_timer(stream->loop, &stream->timer, stream->connect_by_us);
    loop_defer(stream->loop, &stream->task);
}

void stream_close(stream *stream) {
    /* A child that was forked may have a copy: the server is to notice all the same. */
    if (stream->io.fd >= 0 && stream->phase == STREAM_OPEN) shutdown(stream->io.fd, SHUT_RDWR);
    stream->phase = STREAM_ENDED;
    if (stream->tls != NULL) tls_free(stream->tls);
    stream->tls = NULL;
    if (stream->io.fd >= 0) loop_close(stream->loop, &stream->io);
    if (stream->lookup_io.fd >= 0) loop_close(stream->loop, &stream->lookup_io);
    lookup_leave(stream->lookup);
    stream->lookup = NULL;
    loop_clear_timer(stream->loop, &stream->timer);
    loop_undefer(&stream->task);
}

ssize_t stream_read(stream *stream, char *bytes, size_t size) {
    ssize_t count = stream->tls != NULL ? tls_read(stream->tls, bytes, size)
                                        : recv(stream->io.fd, bytes, size, MSG_DONTWAIT);
    stream_settle(stream, count, errno);
    return count;
}

ssize_t stream_write(stream *stream, const char *bytes, size_t size) {
    ssize_t count;
    do
        count = stream->tls != NULL ? tls_write(stream->tls, bytes, size)
                                    : send(stream->io.fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    stream_settle(stream, count, errno);
    return count;
}

void stream_want_write(stream *stream, bool is_wanted) {
    bool is_tls_wanted = stream->tls != NULL && tls_wants_to_write(stream->tls);
    watch(stream, is_wanted || is_tls_wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void stream_expect(stream *stream, bool is_expected) {
    if (stream->may_read_briefly)
        loop_expect(stream->loop, &stream->io, is_expected ? stream->on_bytes : NULL);
}

/* TLS has messages of its own, like new keys and session tickets, which are no reply. */
bool stream_is_quiet(stream *stream) {
    char byte;
    struct pollfd now = {.fd = stream->io.fd, .events = POLLIN};
    if (stream->phase != STREAM_OPEN) return false;
    if (poll(&now, 1, 0) == 0) return true;
    return stream->tls != NULL && tls_read(stream->tls, &byte, 1) < 0 && errno == EAGAIN &&
           !tls_wants_to_write(stream->tls);
}
