/* SPDX-License-Identifier: BSD-3-Clause */
/* tls.c - see tls.h.
 *
 *   ready, end   OpenSSL is the program's: it may take itself apart under our threads
 *   context      versions, whom to trust, our certificate; only read once it is made
 *   socket       how OpenSSL reads and writes: its own way would raise SIGPIPE
 *   connection   handshake, read, write
 *   failures     what OpenSSL says, as a status and a cause
 *
 * Which status: a server that closes, resets or is silent is unreachable. A certificate that we do
 * not trust, or an alert instead of the first word of the server, is a refusal: that is how it says
 * that it does not trust ours, and with TLS 1.3 it says so after our side of the handshake is done.
 * It has not looked at what we have sent behind it then. All else is not understood.
 *
 * OpenSSL's queue of errors is the thread's: it must be empty before a call, or SSL_get_error() is
 * misled, and is left empty. So each call begins with begin_call(), and ends with end_call(). */
#include "tls.h"

#include "text.h"
#include "url.h"
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TLS_CAUSE_SIZE = 256 };

#define PREFIX "TLS: "

struct tls_context {
    SSL_CTX *rules;
    BIO_METHOD *socket;
};

struct tls {
    SSL *ssl;
    int fd;
    int fault;      /* errno of the socket, or 0 */
    bool has_heard; /* a word of the server: it has let us in */
    bool is_over;   /* closed or failed */
    dlock_status failure;
    char cause[TLS_CAUSE_SIZE];
};

/* -- ready, end
 *
 * Global, as OpenSSL is. Whoever makes it ready first decides whether it takes itself apart when
 * the program ends; if that was not us, it tells us before, and is not called any more. */

static pthread_once_t is_ready = PTHREAD_ONCE_INIT;
static atomic_bool is_ended;
static atomic_int calls; /* that go on just now */

/* No call waits for anything; but that of a thread which fork(2) did not copy never ends. */
static void on_end(void) {
    enum { LONGEST_MS = 1000 };
    struct timespec pause = {.tv_nsec = 1000000};
    atomic_store(&is_ended, true);
    for (int i = 0; i < LONGEST_MS && atomic_load(&calls) > 0; i++)
        nanosleep(&pause, NULL);
}

static void get_ready(void) {
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    OPENSSL_atexit(on_end);
}

static void end_call(void) {
    atomic_fetch_sub(&calls, 1);
}

/* False: OpenSSL must not be called. */
static bool begin_call(void) {
    atomic_fetch_add(&calls, 1);
    if (atomic_load(&is_ended)) {
        end_call();
        return false;
    }
    ERR_clear_error();
    return true;
}

/* -- socket */

static int socket_read(BIO *bio, char *bytes, int size) {
    tls *of = BIO_get_data(bio);
    ssize_t count;
    BIO_clear_retry_flags(bio);
    do
        count = recv(of->fd, bytes, (size_t)size, MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count >= 0) return (int)count;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        BIO_set_retry_read(bio);
    else
        of->fault = errno;
    return -1;
}

/* That it failed is no reason for OpenSSL to give up: what the server has said before can be read
 * still. */
static int socket_write(BIO *bio, const char *bytes, int size) {
    tls *of = BIO_get_data(bio);
    ssize_t count;
    BIO_clear_retry_flags(bio);
    do
        count = send(of->fd, bytes, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count >= 0) return (int)count;
    if (errno != EAGAIN && errno != EWOULDBLOCK) of->fault = errno;
    BIO_set_retry_write(bio);
    return -1;
}

static long socket_control(BIO *bio, int command, long number, void *argument) {
    (void)bio, (void)number, (void)argument;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_socket(void) {
    BIO_METHOD *made = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "dlock");
    if (made == NULL) return NULL;
    BIO_meth_set_read(made, socket_read);
    BIO_meth_set_write(made, socket_write);
    BIO_meth_set_ctrl(made, socket_control);
    return made;
}

/* Empties the queue. True: a want of memory is in it, whatever came of that. */
static bool is_without_memory(void) {
    bool is_found = false;
    for (unsigned long error; (error = ERR_get_error()) != 0;)
        is_found = is_found || ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE;
    return is_found;
}

/* -- context */

static dlock_status complain(char *text, size_t size, const char *option, const char *wrong) {
    size_t length = strlen(option);
    text_copy(text, size, option);
    if (length < size) text_copy(text + length, size - length, wrong);
    return is_without_memory() ? DLOCK_NO_MEMORY : DLOCK_INVALID;
}

/* A key that needs a passphrase is of no use: OpenSSL would ask the terminal for it. */
static int have_no_passphrase(char *text, int size, int is_writing, void *data) {
    (void)text, (void)size, (void)is_writing, (void)data;
    return -1;
}

static dlock_status check_file(const char *option, const char *path, char *text, size_t size) {
    if (path == NULL || access(path, R_OK) == 0) return DLOCK_OK;
    char wrong[TLS_CAUSE_SIZE] = ": ";
    text_copy(wrong + 2, sizeof(wrong) - 2, strerror(errno));
    return complain(text, size, option, wrong);
}

static dlock_status check_files(const tls_files *from, char *text, size_t size) {
    dlock_status status = check_file("tls_ca_file", from->ca, text, size);
    if (status == DLOCK_OK) status = check_file("tls_cert_file", from->cert, text, size);
    if (status == DLOCK_OK) status = check_file("tls_key_file", from->key, text, size);
    return status;
}

static dlock_status load_files(SSL_CTX *rules, const tls_files *from, char *text, size_t size) {
    /* Its file and its folder; not what SSL_CTX_set_default_verify_paths() looks at besides, in
     * every handshake with an unknown server, and where OpenSSL 3.0 crashes without memory. */
    if (from->ca == NULL &&
        (SSL_CTX_set_default_verify_file(rules) != 1 || SSL_CTX_set_default_verify_dir(rules) != 1))
        return complain(text, size, "the machine's trust store", " cannot be read");
    if (from->ca != NULL && SSL_CTX_load_verify_locations(rules, from->ca, NULL) != 1)
        return complain(text, size, "tls_ca_file", " has no certificate in PEM form");
    if (from->cert == NULL) return DLOCK_OK;
    /* The key first: OpenSSL checks them against each other with the second of the two, and would
     * call a key that does not match unreadable. */
    if (SSL_CTX_use_PrivateKey_file(rules, from->key, SSL_FILETYPE_PEM) != 1)
        return complain(text, size, "tls_key_file",
                        " has no key in PEM form, or one with a passphrase");
    if (SSL_CTX_use_certificate_chain_file(rules, from->cert) != 1)
        return complain(text, size, "tls_cert_file", " has no certificate in PEM form");
    if (SSL_CTX_check_private_key(rules) != 1)
        return complain(text, size, "tls_key_file", " is not the key of tls_cert_file");
    return DLOCK_OK;
}

static SSL_CTX *make_rules(void) {
    SSL_CTX *made = SSL_CTX_new(TLS_client_method());
    if (made == NULL || SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(made);
        return NULL;
    }
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(made, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_default_passwd_cb(made, have_no_passphrase);
    return made;
}

static dlock_status fill(tls_context *made, const tls_files *from, char *text, size_t size) {
    text_copy(text, size, "no memory");
    made->socket = make_socket();
    made->rules = make_rules();
    if (made->socket == NULL || made->rules == NULL) return DLOCK_NO_MEMORY;
    dlock_status status = check_files(from, text, size);
    return status == DLOCK_OK ? load_files(made->rules, from, text, size) : status;
}

dlock_status tls_context_new(tls_context **out, const tls_files *from, char *text, size_t size) {
    *out = NULL;
    tls_context *made = calloc(1, sizeof(*made));
    if (made == NULL) return DLOCK_NO_MEMORY;
    pthread_once(&is_ready, get_ready);
    dlock_status status = DLOCK_NO_MEMORY;
    if (begin_call()) {
        status = fill(made, from, text, size);
        ERR_clear_error();
        end_call();
    }
    if (status == DLOCK_OK)
        *out = made;
    else
        tls_context_free(made);
    return status;
}

void tls_context_free(tls_context *old) {
    if (old == NULL) return;
    if (begin_call()) {
        SSL_CTX_free(old->rules);
        BIO_meth_free(old->socket);
        end_call();
    }
    free(old);
}

/* -- failures */

static void fail(tls *of, dlock_status failure, const char *cause) {
    of->failure = failure;
    text_copy(of->cause, sizeof(of->cause), PREFIX);
    text_copy(of->cause + strlen(PREFIX), sizeof(of->cause) - strlen(PREFIX),
              cause == NULL ? "an unknown failure" : cause);
}

/* Of what is no TLS at all the beginning looks like another version of it. */
static bool is_no_tls(const tls *of, int reason) {
    return !SSL_is_init_finished(of->ssl) &&
           (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG);
}

static void explain(tls *of) {
    unsigned long error = ERR_peek_error();
    int reason = ERR_GET_REASON(error);
    long verdict = SSL_get_verify_result(of->ssl);
    bool is_alert = ERR_GET_LIB(error) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET;
    if (is_without_memory() || verdict == X509_V_ERR_OUT_OF_MEM)
        fail(of, DLOCK_NO_MEMORY, "no memory");
    else if (verdict != X509_V_OK)
        fail(of, DLOCK_REFUSED, X509_verify_cert_error_string(verdict));
    else if (is_alert)
        fail(of, of->has_heard ? DLOCK_UNREACHABLE : DLOCK_REFUSED, ERR_reason_error_string(error));
    else if (is_no_tls(of, reason))
        fail(of, DLOCK_PROTOCOL, "the server does not speak TLS");
    else
        fail(of, DLOCK_PROTOCOL, ERR_reason_error_string(error));
}

static ssize_t fail_by_end(tls *of) {
    fail(of, DLOCK_UNREACHABLE, "the program ends");
    errno = ECANCELED;
    return -1;
}

/* What a call means that did not succeed. */
static ssize_t settle(tls *of, int returned) {
    int error = SSL_get_error(of->ssl, returned);
    bool is_waiting = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    if (is_waiting && of->fault == 0) {
        errno = EAGAIN;
        return -1;
    }
    of->is_over = true;
    if (error == SSL_ERROR_SSL) {
        explain(of);
    } else if (of->fault != 0) {
        of->failure = DLOCK_UNREACHABLE;
        text_copy(of->cause, sizeof(of->cause), strerror(of->fault));
    }
    ERR_clear_error();
    errno = EPROTO;
    return error == SSL_ERROR_SSL || of->fault != 0 ? -1 : 0;
}

/* -- connection */

/* The zone of an IPv6 address (fe80::1%eth0) and the dot at the end of a full name are not in
 * certificates. What is left is never empty: that would be a certificate for anybody. */
static bool expect_host(SSL *ssl, const char *host) {
    char name[URL_HOST_MAX + 1];
    X509_VERIFY_PARAM *rules = SSL_get0_param(ssl);
    text_copy(name, sizeof(name), host);
    name[strcspn(name, "%")] = '\0';
    if (X509_VERIFY_PARAM_set1_ip_asc(rules, name) == 1) return true;
    text_copy(name, sizeof(name), host);
    size_t length = strlen(name);
    if (length > 1 && name[length - 1] == '.') name[length - 1] = '\0';
    X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(rules, name, 0) == 1 &&
           SSL_set_tlsext_host_name(ssl, name) == 1;
}

static bool attach_socket(tls *to, const BIO_METHOD *method) {
    BIO *made = BIO_new(method);
    if (made == NULL) return false;
    BIO_set_data(made, to);
    BIO_set_init(made, 1);
    SSL_set_bio(to->ssl, made, made);
    return true;
}

tls *tls_new(const tls_context *in, const char *host, int fd) {
    tls *made = calloc(1, sizeof(*made));
    if (made == NULL) return NULL;
    bool is_made = false;
    made->fd = fd;
    if (begin_call()) {
        made->ssl = SSL_new(in->rules);
        is_made =
            made->ssl != NULL && attach_socket(made, in->socket) && expect_host(made->ssl, host);
        if (is_made) SSL_set_connect_state(made->ssl);
        ERR_clear_error();
        end_call();
    }
    if (is_made) return made;
    made->is_over = true;
    tls_free(made);
    return NULL;
}

void tls_free(tls *old) {
    if (old == NULL) return;
    if (begin_call()) {
        if (!old->is_over && SSL_is_init_finished(old->ssl)) SSL_shutdown(old->ssl);
        SSL_free(old->ssl);
        ERR_clear_error();
        end_call();
    }
    free(old);
}

ssize_t tls_shake_hands(tls *with) {
    if (!begin_call()) return fail_by_end(with);
    int result = SSL_do_handshake(with->ssl);
    ssize_t done = result == 1 ? 1 : settle(with, result);
    end_call();
    return done;
}

ssize_t tls_read(tls *from, char *bytes, size_t size) {
    if (!begin_call()) return fail_by_end(from);
    int count = SSL_read(from->ssl, bytes, size < INT_MAX ? (int)size : INT_MAX);
    from->has_heard = from->has_heard || count > 0;
    ssize_t done = count > 0 ? count : settle(from, count);
    end_call();
    return done;
}

/* A server that hung up may have said before why it does not let us in. */
static ssize_t settle_write(tls *to, int returned) {
    char ignored;
    if (to->fault != 0 && !to->has_heard) returned = SSL_read(to->ssl, &ignored, sizeof(ignored));
    return settle(to, returned);
}

ssize_t tls_write(tls *to, const char *bytes, size_t size) {
    if (!begin_call()) return fail_by_end(to);
    int count = SSL_write(to->ssl, bytes, size < INT_MAX ? (int)size : INT_MAX);
    ssize_t done = count > 0 ? count : settle_write(to, count);
    end_call();
    return done;
}

bool tls_wants_to_write(const tls *with) {
    return SSL_want_write(with->ssl);
}

bool tls_has_more(const tls *from) {
    return SSL_pending(from->ssl) > 0;
}

dlock_status tls_failure(const tls *of) {
    return of->failure;
}

const char *tls_cause(const tls *of) {
    return of->cause;
}
