/* SPDX-License-Identifier: BSD-3-Clause */
/* tls.c - see tls.h.
 *
 *   ready, end   OpenSSL belongs to the program, which may shut OpenSSL down under our threads
 *   socket       reads and writes for OpenSSL, whose own way would raise SIGPIPE
 *   context      versions, trusted authorities, our certificate; made again when files change
 *   failures     errors of OpenSSL as a status and a cause
 *   connection   handshake, read, write
 *
 * Status of a failure:
 *   UNREACHABLE   the server closed or reset the connection, or is silent
 *   REFUSED       we do not trust the certificate of the server, or the server sent an alert before
 *                 any reply: that is how a server rejects our certificate. With TLS 1.3 the alert
 *                 comes after our side of the handshake; the server has not read any request then
 *   PROTOCOL      everything else
 *
 * The error queue of OpenSSL is per thread. A stale error misleads SSL_get_error(), so
 * begin_openssl() empties the queue before every call, and end_openssl() after it. */
#include "net/tls.h"

#include "net/url.h"
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 3 };

/* A file as stat(2) describes it; all zero: there is no file. */
typedef struct file_stamp {
    ino_t number;
    off_t size;
    struct timespec written;
} file_stamp;

struct tls_context {
    SSL_CTX *rules;
    BIO_METHOD *socket;
    char *paths[FILES]; /* of tls_files, or NULL */
    file_stamp stamps[FILES];
};

/* -- ready, end: global, like OpenSSL. The first user of OpenSSL decides whether OpenSSL shuts down
 * when the program ends. If the program was first, on_end() runs before that. */

static pthread_once_t is_ready = PTHREAD_ONCE_INIT;
static atomic_bool is_ended;
static atomic_int calls; /* calls to OpenSSL in progress */

enum { LONGEST_MS = 1000 };

static void nap(void) {
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
}

/* No call blocks. But a call of a thread that fork(2) did not copy never ends, hence the limit. */
static void on_end(void) {
    atomic_store(&is_ended, true);
    for (int i = 0; i < LONGEST_MS && atomic_load(&calls) > 0; i++)
        nap();
}

/* The last call fails if OpenSSL has been shut down already, perhaps before it knew of on_end(). */
static void get_ready(void) {
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    OPENSSL_atexit(on_end);
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1) atomic_store(&is_ended, true);
}

static void end_openssl(void) {
    ERR_clear_error();
    atomic_fetch_sub(&calls, 1);
}

/* False: OpenSSL must not be called. */
static bool begin_openssl(void) {
    atomic_fetch_add(&calls, 1);
    if (atomic_load(&is_ended)) {
        atomic_fetch_sub(&calls, 1);
        return false;
    }
    ERR_clear_error();
    return true;
}

/* OpenSSL keeps memory for each thread, and frees that memory when the thread ends. A shutdown
 * frees the memory of all threads, and crashes if a thread ends at the same time. So a thread gives
 * its memory back before it ends, or waits until the shutdown must be over. */
void tls_end_thread(void) {
    atomic_fetch_add(&calls, 1);
    bool is_shutdown = atomic_load(&is_ended);
    if (!is_shutdown) OPENSSL_thread_stop();
    atomic_fetch_sub(&calls, 1);
    for (int i = 0; is_shutdown && i < LONGEST_MS; i++)
        nap();
}

/* -- socket */

static bool is_temporary(int fault) {
    return fault == EAGAIN || fault == EWOULDBLOCK || fault == EINTR;
}

static int socket_read(BIO *bio, char *bytes, int size) {
    tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t count = recv(tls->fd, bytes, (size_t)size, MSG_DONTWAIT);
    if (count >= 0) return (int)count;
    if (is_temporary(errno))
        BIO_set_retry_read(bio);
    else
        tls->fault = errno;
    return -1;
}

/* After a failed write OpenSSL is asked to retry all the same: an earlier alert of the server can
 * still be read. */
static int socket_write(BIO *bio, const char *bytes, int size) {
    tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t count = send(tls->fd, bytes, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return (int)count;
    if (!is_temporary(errno)) tls->fault = errno;
    BIO_set_retry_write(bio);
    return -1;
}

static long socket_control(BIO *bio, int command, long number, void *argument) {
    (void)bio, (void)number, (void)argument;
    return command == BIO_CTRL_FLUSH;
}

static bool make_socket(tls_context *context) {
    BIO_METHOD *socket = context->socket = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "dlock");
    return socket != NULL && BIO_meth_set_read(socket, socket_read) == 1 &&
           BIO_meth_set_write(socket, socket_write) == 1 &&
           BIO_meth_set_ctrl(socket, socket_control) == 1;
}

/* Empties the error queue. True: one of the errors was a lack of memory. */
static bool is_without_memory(void) {
    bool is_found = false;
    for (unsigned long error; (error = ERR_get_error()) != 0;)
        is_found = is_found || ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE;
    return is_found;
}

/* -- context */

/* wrong: with a file that can be read. path NULL: no file is to blame. */
static dlock_status complain(char *text, size_t size, const char *option, const char *path,
                             const char *wrong) {
    bool is_unreadable = path != NULL && access(path, R_OK) != 0;
    text_copy(text, size, option);
    text_append(text, size, is_unreadable ? ": " : " ");
    text_append(text, size, is_unreadable ? strerror(errno) : wrong);
    return is_without_memory() ? DLOCK_NO_MEMORY : DLOCK_INVALID;
}

/* Without this function OpenSSL would ask the terminal for the passphrase of a key. */
static int have_no_passphrase(char *text, int size, int is_writing, void *arg) {
    (void)text, (void)size, (void)is_writing, (void)arg;
    return -1;
}

static dlock_status load_files(SSL_CTX *rules, const tls_files *files, char *text, size_t size) {
    /* SSL_CTX_set_default_verify_paths() would also load a store that every handshake with an
     * unknown server consults, and in which OpenSSL 3.0 crashes without memory. */
    if (files->ca == NULL &&
        (SSL_CTX_set_default_verify_file(rules) != 1 || SSL_CTX_set_default_verify_dir(rules) != 1))
        return complain(text, size, "the machine's trust store", NULL, "cannot be read");
    if (files->ca != NULL && SSL_CTX_load_verify_locations(rules, files->ca, NULL) != 1)
        return complain(text, size, "tls_ca_file", files->ca, "has no certificate in PEM form");
    if (files->cert == NULL) return DLOCK_OK;
    /* The key first: OpenSSL compares the two when the second is loaded, and would report a key
     * that does not match as unreadable. */
    if (SSL_CTX_use_PrivateKey_file(rules, files->key, SSL_FILETYPE_PEM) != 1)
        return complain(text, size, "tls_key_file", files->key,
                        "has no key in PEM form, or one with a passphrase");
    if (SSL_CTX_use_certificate_chain_file(rules, files->cert) != 1)
        return complain(text, size, "tls_cert_file", files->cert, "has no certificate in PEM form");
    if (SSL_CTX_check_private_key(rules) != 1)
        return complain(text, size, "tls_key_file", NULL, "is not the key of tls_cert_file");
    return DLOCK_OK;
}

/* To be freed. NULL: no memory. */
static SSL_CTX *make_rules(void) {
    SSL_CTX *rules = SSL_CTX_new(TLS_client_method());
    if (rules == NULL || SSL_CTX_set_min_proto_version(rules, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(rules);
        return NULL;
    }
    SSL_CTX_set_verify(rules, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(rules, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(rules, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_default_passwd_cb(rules, have_no_passphrase);
    return rules;
}

static void read_stamps(const tls_context *context, file_stamp stamps[FILES]) {
    memset(stamps, 0, FILES * sizeof(stamps[0]));
    for (int i = 0; i < FILES; i++) {
        struct stat found;
        if (context->paths[i] == NULL || stat(context->paths[i], &found) != 0) continue;
        stamps[i].number = found.st_ino;
        stamps[i].size = found.st_size;
        stamps[i].written = found.st_mtim;
    }
}

/* The stamps first: a file that changes meanwhile is read again. */
static dlock_status read_files(tls_context *context, char *text, size_t size) {
    file_stamp stamps[FILES];
    read_stamps(context, stamps);
    tls_files files = {
        .ca = context->paths[0], .cert = context->paths[1], .key = context->paths[2]};
    SSL_CTX *rules = make_rules();
    text_copy(text, size, "no memory");
    dlock_status status = rules == NULL ? DLOCK_NO_MEMORY : load_files(rules, &files, text, size);
    if (status != DLOCK_OK) {
        SSL_CTX_free(rules);
        return status;
    }
    SSL_CTX_free(context->rules); /* connections that use the old rules have a share of them */
    context->rules = rules;
    memcpy(context->stamps, stamps, sizeof(stamps));
    text_copy(text, size, "");
    return DLOCK_OK;
}

/* False: no memory. */
static bool copy_paths(tls_context *context, const tls_files *files) {
    const char *const paths[FILES] = {files->ca, files->cert, files->key};
    for (int i = 0; i < FILES; i++)
        if (paths[i] != NULL && (context->paths[i] = strdup(paths[i])) == NULL) return false;
    return true;
}

static dlock_status fill(tls_context *context, const tls_files *files, char *text, size_t size) {
    text_copy(text, size, "no memory");
    if (!copy_paths(context, files) || !make_socket(context)) return DLOCK_NO_MEMORY;
    return read_files(context, text, size);
}

bool tls_context_refresh(tls_context *context, char *text, size_t size) {
    file_stamp stamps[FILES];
    read_stamps(context, stamps);
    if (memcmp(stamps, context->stamps, sizeof(stamps)) == 0 || !begin_openssl()) return false;
    read_files(context, text, size);
    end_openssl();
    return true;
}

dlock_status tls_context_new(tls_context **out, const tls_files *files, char *text, size_t size) {
    *out = NULL;
    tls_context *context = calloc(1, sizeof(*context));
    if (context == NULL) return DLOCK_NO_MEMORY;
    pthread_once(&is_ready, get_ready);
    dlock_status status = DLOCK_NO_MEMORY;
    if (begin_openssl()) {
        status = fill(context, files, text, size);
        end_openssl();
    }
    if (status == DLOCK_OK)
        *out = context;
    else
        tls_context_free(context);
    return status;
}

void tls_context_free(tls_context *context) {
    if (context == NULL) return;
    if (begin_openssl()) {
        SSL_CTX_free(context->rules);
        BIO_meth_free(context->socket);
        end_openssl();
    }
    for (int i = 0; i < FILES; i++)
        free(context->paths[i]);
    free(context);
}

/* -- failures */

static void fail_tls(tls *tls, dlock_status failure, const char *cause) {
    tls->failure = failure;
    text_copy(tls->cause, sizeof(tls->cause), "TLS: ");
    text_append(tls->cause, sizeof(tls->cause), cause == NULL ? "an unknown failure" : cause);
}

/* Plain text at the start of the handshake looks like another version of TLS. */
static bool is_no_tls(const tls *tls, int reason) {
    return !SSL_is_init_finished(tls->ssl) &&
           (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG);
}

static void explain_tls(tls *tls) {
    unsigned long error = ERR_peek_error();
    int reason = ERR_GET_REASON(error);
    long verdict = SSL_get_verify_result(tls->ssl);
    bool is_alert = ERR_GET_LIB(error) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET;
    dlock_status refusal = tls->has_heard ? DLOCK_UNREACHABLE : DLOCK_REFUSED;
    if (is_without_memory() || verdict == X509_V_ERR_OUT_OF_MEM)
        fail_tls(tls, DLOCK_NO_MEMORY, "no memory");
    else if (verdict != X509_V_OK)
        fail_tls(tls, DLOCK_REFUSED, X509_verify_cert_error_string(verdict));
    else if (is_no_tls(tls, reason))
        fail_tls(tls, DLOCK_PROTOCOL, "the server does not speak TLS");
    else
        fail_tls(tls, is_alert ? refusal : DLOCK_PROTOCOL, ERR_reason_error_string(error));
}

static ssize_t fail_by_end(tls *tls) {
    fail_tls(tls, DLOCK_UNREACHABLE, "the program ends");
    errno = ECANCELED;
    return -1;
}

/* The result of a call that did not succeed. */
static ssize_t settle_tls(tls *tls, int returned) {
    int error = SSL_get_error(tls->ssl, returned);
    bool is_waiting = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    if (is_waiting && tls->fault == 0) {
        errno = EAGAIN;
        return -1;
    }
    tls->is_over = true;
    if (error == SSL_ERROR_SSL) {
        explain_tls(tls);
    } else if (tls->fault != 0) {
        tls->failure = DLOCK_UNREACHABLE;
        text_copy(tls->cause, sizeof(tls->cause), strerror(tls->fault));
    }
    errno = EPROTO;
    return error == SSL_ERROR_SSL || tls->fault != 0 ? -1 : 0;
}

/* -- connection */

/* Certificates have neither the zone of an IPv6 address (fe80::1%eth0) nor the dot at the end of a
 * full name. The expected name is never empty: an empty name would match every certificate. */
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

static bool attach_socket(tls *tls, const BIO_METHOD *method) {
    BIO *bio = BIO_new(method);
    if (bio == NULL) return false;
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio);
    return true;
}

tls *tls_new(const tls_context *context, const char *host, int fd) {
    tls *tls = calloc(1, sizeof(*tls));
    if (tls == NULL) return NULL;
    bool is_made = false;
    tls->fd = fd;
    if (begin_openssl()) {
        tls->ssl = SSL_new(context->rules);
        is_made =
            tls->ssl != NULL && attach_socket(tls, context->socket) && expect_host(tls->ssl, host);
        if (is_made) SSL_set_connect_state(tls->ssl);
        end_openssl();
    }
    if (is_made) return tls;
    tls->is_over = true;
    tls_free(tls);
    return NULL;
}

void tls_free(tls *tls) {
    if (tls == NULL) return;
    if (begin_openssl()) {
        if (!tls->is_over && SSL_is_init_finished(tls->ssl)) SSL_shutdown(tls->ssl);
        SSL_free(tls->ssl);
        end_openssl();
    }
    free(tls);
}

/* The end of a call, and what the caller is told. */
static ssize_t finish_tls(tls *tls, int returned) {
    ssize_t done = returned > 0 ? returned : settle_tls(tls, returned);
    int fault = errno; /* emptying the error queue may need memory */
    tls->wants_to_write = SSL_want_write(tls->ssl);
    end_openssl();
    errno = fault;
    return done;
}

ssize_t tls_shake_hands(tls *tls) {
    if (!begin_openssl()) return fail_by_end(tls);
    return finish_tls(tls, SSL_do_handshake(tls->ssl));
}

ssize_t tls_read(tls *tls, char *bytes, size_t size) {
    if (!begin_openssl()) return fail_by_end(tls);
    int count = SSL_read(tls->ssl, bytes, size < INT_MAX ? (int)size : INT_MAX);
    tls->has_heard = tls->has_heard || count > 0;
    return finish_tls(tls, count);
}

/* A server that closed the connection may have sent an alert with the reason before. */
ssize_t tls_write(tls *tls, const char *bytes, size_t size) {
    if (!begin_openssl()) return fail_by_end(tls);
    int count = SSL_write(tls->ssl, bytes, size < INT_MAX ? (int)size : INT_MAX);
    if (count <= 0 && tls->fault != 0 && !tls->has_heard) {
        char ignored;
        int heard = SSL_read(tls->ssl, &ignored, sizeof(ignored));
        count = heard < 0 ? heard : 0;
    }
    return finish_tls(tls, count);
}
