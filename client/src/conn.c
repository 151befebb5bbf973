/* SPDX-License-Identifier: BSD-3-Clause */
/* conn.c - see conn.h.
 *
 *   connecting   until the socket is writable without an error
 *   handshake    of TLS, if there is any
 *   greeting     AUTH and SELECT are sent; each must be answered with OK. ROLE, if it must be a
 *                master
 *   ready        requests go out, answers come in
 *   broken       for good
 *
 * Of hiredis only the reader is used: its connections would raise SIGPIPE when the server has
 * closed them, and those of 0.14 abort the program when there is no memory. Works with hiredis 0.14
 * and 1.x, and so TLS is not that of hiredis either. */
#include "conn.h"

#include "answer.h"
#include "text.h"
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* A server that is gone without a word is noticed after about eight seconds. */
enum { KEEPALIVE_IDLE_S = 5, KEEPALIVE_PAUSE_S = 1, KEEPALIVE_PROBES = 3, UNHEARD_MS = 8000 };

enum { READ_SIZE = 4096 };

typedef enum conn_phase { CONNECTING, HANDSHAKE, GREETING, READY, BROKEN } conn_phase;

struct conn {
    int fd;
    redisReader *reader;
    const url *to;
    const tls_context *trust;
    tls *tls; /* NULL: none, or not yet */
    conn_phase phase;
    bool may_wait;      /* to receive something, for a moment */
    int greetings_left; /* answers to them that are still to come */
    redisReply *last;   /* the answer that was taken last, if there is more to see of it */
    char *out;
    size_t out_size, out_sent, out_capacity;
    int left; /* answers that are still to come, and that nobody will take */
    dlock_status failure;
    char cause[CAUSE_MAX + 1];
};

static void fail(conn *c, dlock_status failure, const char *cause) {
    if (c->phase == BROKEN) return;
    c->phase = BROKEN;
    c->failure = failure;
    text_copy(c->cause, sizeof(c->cause), cause);
}

static bool is_to_be_repeated(int fault) {
    return fault == EAGAIN || fault == EWOULDBLOCK || fault == EINTR;
}

/* After -1 of receive(), transmit() or the handshake. */
static void fail_by_errno(conn *c) {
    if (is_to_be_repeated(errno)) return;
    if (c->tls != NULL)
        fail(c, tls_failure(c->tls), tls_cause(c->tls));
    else
        fail(c, DLOCK_UNREACHABLE, strerror(errno));
}

static void fail_by_end(conn *c) {
    fail(c, DLOCK_UNREACHABLE, "the server closed the connection");
}

/* -- the socket, with or without TLS */

static ssize_t receive(conn *c, char *bytes, size_t size, int flags) {
    return c->tls != NULL ? tls_read(c->tls, bytes, size) : recv(c->fd, bytes, size, flags);
}

static ssize_t transmit(conn *c, const char *bytes, size_t size) {
    return c->tls != NULL ? tls_write(c->tls, bytes, size)
                          : send(c->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* -- writing */

static bool reserve(conn *c, size_t more) {
    if (c->out_size + more <= c->out_capacity) return true;
    size_t capacity = (c->out_size + more) * 2;
    char *grown = realloc(c->out, capacity);
    if (grown == NULL) return false;
    c->out = grown;
    c->out_capacity = capacity;
    return true;
}

static void append(conn *c, const char *bytes, size_t length) {
    memcpy(c->out + c->out_size, bytes, length);
    c->out_size += length;
}

static void append_length(conn *c, char mark, size_t length) {
    char digits[TEXT_NUMBER_SIZE];
    append(c, &mark, 1);
    append(c, digits, text_put_number(digits, length));
    append(c, "\r\n", 2);
}

bool conn_queue(conn *to, const command *request) {
    size_t needed = 32;
    for (int i = 0; i < request->count; i++)
        needed += 32 + request->lengths[i];
    if (to->out_sent == to->out_size) to->out_sent = to->out_size = 0;
    if (!reserve(to, needed)) return false;
    append_length(to, '*', (size_t)request->count);
    for (int i = 0; i < request->count; i++) {
        append_length(to, '$', request->lengths[i]);
        append(to, request->words[i], request->lengths[i]);
        append(to, "\r\n", 2);
    }
    return true;
}

static void write_some(conn *c) {
    while (c->out_sent < c->out_size) {
        ssize_t sent = transmit(c, c->out + c->out_sent, c->out_size - c->out_sent);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) {
            fail_by_errno(c);
            return;
        }
        if (sent == 0) {
            fail_by_end(c);
            return;
        }
        c->out_sent += (size_t)sent;
    }
}

/* -- connecting */

static command words_of(int count, const char *first, const char *second, const char *third) {
    command made = {.count = count, .words = {first, second, third}};
    for (int i = 0; i < count; i++)
        made.lengths[i] = strlen(made.words[i]);
    return made;
}

static bool queue_greeting(conn *c, command greeting) {
    if (!conn_queue(c, &greeting)) return false;
    c->greetings_left++;
    return true;
}

static bool queue_greetings(conn *c) {
    char db[TEXT_NUMBER_SIZE];
    text_put_number(db, (uint64_t)c->to->db);
    bool has_user = c->to->user[0] != '\0', has_password = c->to->password[0] != '\0';
    if (has_password && has_user &&
        !queue_greeting(c, words_of(3, "AUTH", c->to->user, c->to->password)))
        return false;
    if (has_password && !has_user && !queue_greeting(c, words_of(2, "AUTH", c->to->password, NULL)))
        return false;
    if (c->to->db != 0 && !queue_greeting(c, words_of(2, "SELECT", db, NULL))) return false;
    return !c->to->must_be_master || queue_greeting(c, words_of(1, "ROLE", NULL, NULL));
}

static void greet(conn *c) {
    if (queue_greetings(c))
        c->phase = c->greetings_left > 0 ? GREETING : READY;
    else
        fail(c, DLOCK_NO_MEMORY, "no memory");
}

static void shake_hands(conn *c) {
    ssize_t done = tls_shake_hands(c->tls);
    if (done > 0)
        greet(c);
    else if (done < 0)
        fail_by_errno(c);
    else
        fail(c, DLOCK_UNREACHABLE, "the server closed the connection in the TLS handshake");
}

static void begin_handshake(conn *c) {
    c->tls = tls_new(c->trust, c->to->host, c->fd);
    if (c->tls == NULL)
        fail(c, DLOCK_NO_MEMORY, "no memory");
    else
        c->phase = HANDSHAKE;
}

/* For a moment, in conn_await_briefly(); all else says MSG_DONTWAIT. */
static void allow_to_wait(conn *c) {
    struct timeval moment = {.tv_usec = CONN_MOMENT_US};
    int flags = fcntl(c->fd, F_GETFL);
    c->may_wait = setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment)) == 0 &&
                  flags >= 0 && fcntl(c->fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

static void on_connected(conn *c) {
    int fault = 0, on = 1, idle_s = KEEPALIVE_IDLE_S, pause_s = KEEPALIVE_PAUSE_S;
    int probes = KEEPALIVE_PROBES, unheard_ms = UNHEARD_MS, fd = c->fd;
    socklen_t size = sizeof(fault);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &fault, &size) != 0) fault = errno;
    if (fault != 0) {
        fail(c, DLOCK_UNREACHABLE, strerror(fault));
        return;
    }
    if (!c->to->is_unix) { /* best effort: a connection without them works too */
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof(pause_s));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unheard_ms, sizeof(unheard_ms));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    if (c->trust != NULL) {
        begin_handshake(c);
    } else {
        allow_to_wait(c);
        greet(c);
    }
}

static void start_connecting(conn *c, const struct sockaddr *address, socklen_t size) {
    c->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) {
        fail(c, DLOCK_NO_MEMORY, strerror(errno));
        return;
    }
    if (connect(c->fd, address, size) != 0 && errno != EINPROGRESS)
        fail(c, DLOCK_UNREACHABLE, strerror(errno));
}

conn *conn_open(const url *to, const tls_context *trust, const struct sockaddr *address,
                socklen_t size) {
    conn *opened = calloc(1, sizeof(*opened));
    if (opened == NULL) return NULL;
    opened->to = to;
    opened->trust = trust;
    opened->fd = -1;
    opened->reader = redisReaderCreate();
    if (opened->reader == NULL) {
        conn_close(opened);
        return NULL;
    }
    start_connecting(opened, address, size);
    return opened;
}

void conn_shut(conn *c) {
    if (c->fd >= 0) shutdown(c->fd, SHUT_RDWR);
}

void conn_close(conn *old) {
    if (old == NULL) return;
    tls_free(old->tls);
    if (old->fd >= 0) close(old->fd);
    if (old->reader != NULL) redisReaderFree(old->reader);
    freeReplyObject(old->last);
    free(old->out);
    free(old);
}

/* -- reading */

static void read_reply(const redisReply *from, reply *to) {
    *to = (reply){.kind = REPLY_OTHER};
    switch (from->type) {
    case REDIS_REPLY_INTEGER:
        to->kind = REPLY_INTEGER;
        to->integer = from->integer;
        return;
    case REDIS_REPLY_NIL:
        to->kind = REPLY_NIL;
        return;
    case REDIS_REPLY_STATUS:
        to->kind = REPLY_STATUS;
        break;
    case REDIS_REPLY_ERROR:
        to->kind = REPLY_ERROR;
        break;
    case REDIS_REPLY_STRING:
        to->kind = REPLY_TEXT;
        to->bytes = from->str;
        to->length = from->len;
        break;
    case REDIS_REPLY_ARRAY:
        to->kind = REPLY_ARRAY;
        to->integer = (int64_t)from->elements;
        to->elements = from;
        return;
    default:
        return;
    }
    text_copy(to->text, sizeof(to->text), from->str);
}

bool reply_element(const reply *of, size_t which, reply *element) {
    const redisReply *from = of->elements;
    if (of->kind != REPLY_ARRAY || which >= from->elements) return false;
    read_reply(from->element[which], element);
    return true;
}

static void fail_by_reader(conn *c) {
    bool is_memory = c->reader->err == REDIS_ERR_OOM;
    fail(c, is_memory ? DLOCK_NO_MEMORY : DLOCK_PROTOCOL, c->reader->errstr);
}

/* True: *answer is the next of those that have arrived. */
static bool next_reply(conn *c, reply *answer) {
    void *parsed = NULL;
    freeReplyObject(c->last);
    c->last = NULL;
    if (redisReaderGetReply(c->reader, &parsed) != REDIS_OK) {
        fail_by_reader(c);
        return false;
    }
    if (parsed == NULL) return false;
    read_reply(parsed, answer);
    if (answer->kind == REPLY_ARRAY || answer->kind == REPLY_TEXT)
        c->last = parsed;
    else
        freeReplyObject(parsed);
    return true;
}

/* The answer to ROLE, which is the last greeting; to the others it is OK. */
static bool is_role(const conn *c, const reply *answer, reply *role) {
    bool is_asked = c->to->must_be_master && c->greetings_left == 1;
    return is_asked && reply_element(answer, 0, role) && role->kind == REPLY_TEXT;
}

static void read_greetings(conn *c) {
    reply answer, role;
    while (c->phase == GREETING && next_reply(c, &answer)) {
        bool has_role = is_role(c, &answer, &role);
        if (has_role && strcmp(role.text, "master") != 0) {
            fail(c, DLOCK_UNREACHABLE, "it is not the master");
        } else if (has_role || (answer.kind == REPLY_STATUS && strcmp(answer.text, "OK") == 0)) {
            if (--c->greetings_left == 0) c->phase = READY;
        } else if (answer.kind == REPLY_ERROR) {
            fail(c, answer_status_of_error(answer.text).status, answer.text);
        } else {
            fail(c, DLOCK_PROTOCOL, "an unexpected answer to AUTH, SELECT or ROLE");
        }
    }
}

static void read_once(conn *c, int flags) {
    char bytes[READ_SIZE];
    ssize_t count = receive(c, bytes, sizeof(bytes), flags);
    if (count < 0)
        fail_by_errno(c);
    else if (count == 0)
        fail_by_end(c);
    else if (redisReaderFeed(c->reader, bytes, (size_t)count) != REDIS_OK)
        fail_by_reader(c);
}

/* What TLS keeps of a record is read as well: poll(2) would not come back to it. */
static void read_some(conn *c) {
    do
        read_once(c, MSG_DONTWAIT);
    while (c->phase != BROKEN && c->tls != NULL && tls_has_more(c->tls));
}

/* What arrived may be of TLS alone, as new keys and session tickets are: that is no answer to
 * anything. */
static bool has_only_tls_to_read(conn *c) {
    char byte;
    return tls_read(c->tls, &byte, sizeof(byte)) < 0 && errno == EAGAIN &&
           !tls_wants_to_write(c->tls);
}

/* -- public */

int conn_fd(const conn *c) {
    return c->fd;
}

short conn_events(const conn *c) {
    bool is_tls_to_write = c->tls != NULL && tls_wants_to_write(c->tls);
    if (c->phase == CONNECTING) return POLLOUT;
    if (c->phase == HANDSHAKE) return is_tls_to_write ? POLLOUT : POLLIN;
    return c->out_sent < c->out_size || is_tls_to_write ? POLLIN | POLLOUT : POLLIN;
}

void conn_advance(conn *c, short ready) {
    if (c->phase == CONNECTING && (ready & (POLLOUT | POLLERR | POLLHUP))) on_connected(c);
    if (c->phase == HANDSHAKE) shake_hands(c);
    if (c->phase == BROKEN || c->phase == CONNECTING || c->phase == HANDSHAKE) return;
    bool is_tls_to_write = c->tls != NULL && tls_wants_to_write(c->tls);
    if (ready & (POLLIN | POLLERR | POLLHUP) || is_tls_to_write) read_some(c);
    if (c->phase == GREETING) read_greetings(c);
    if (c->phase != BROKEN) write_some(c);
}

bool conn_await_briefly(conn *c) {
    if (!c->may_wait || c->phase != READY || !conn_is_flushed(c)) return false;
    read_once(c, 0);
    return true;
}

conn_result conn_take(conn *c, reply *answer) {
    while (c->phase == READY && next_reply(c, answer)) {
        if (c->left == 0) return CONN_REPLIED;
        c->left--;
    }
    return c->phase == BROKEN ? CONN_BROKEN : CONN_WAITING;
}

void conn_leave(conn *c, int answers) {
    c->left += answers;
}

bool conn_has_left(const conn *c) {
    return c->left > 0;
}

conn_result conn_settle(conn *c) {
    reply none;
    conn_advance(c, POLLIN);
    conn_result result = conn_take(c, &none);
    return result == CONN_WAITING && c->left == 0 ? CONN_REPLIED : result;
}

bool conn_is_flushed(const conn *c) {
    return c->out_sent == c->out_size;
}

bool conn_is_ready(const conn *c) {
    return c->phase == READY;
}

bool conn_has_sent(const conn *c) {
    return c->out_sent > 0;
}

bool conn_is_quiet(conn *c) {
    struct pollfd now = {.fd = c->fd, .events = POLLIN};
    if (c->phase != READY) return false;
    return poll(&now, 1, 0) == 0 || (c->tls != NULL && has_only_tls_to_read(c));
}

const char *conn_overdue(const conn *c) {
    return c->phase == HANDSHAKE ? "no answer to the TLS handshake in time"
                                 : "no connection in time";
}

dlock_status conn_failure(const conn *c) {
    return c->failure;
}

const char *conn_cause(const conn *c) {
    return c->cause;
}
