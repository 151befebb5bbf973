/* SPDX-License-Identifier: BSD-3-Clause */
/* connection_threads_test.c - real threads share the command connection of a server: each gets its
 * own replies, whatever the others send, abandon or break. The peer is a thread that answers "GET
 * n" by n, and now and then hangs up. */
#include "threads_world.h"

#include "net/server.h"
#include <sys/un.h>

enum { THREADS = 4, ROUNDS = 400, HANG_UP_EVERY = 97 };

static struct {
    char directory[32];
    int listen_fd;
    server *server;
    atomic_uint_least64_t command_count;
    atomic_bool is_unreliable;
    int answered, broken; /* locked */
} shared;

/* -- the peer */

/* False: the connection is over. */
static bool answer_all(int fd, char *bytes, size_t *size, int *count) {
    resp_reader reader = {0};
    const reply *words;
    size_t used;
    bool is_open = true;
    while (is_open && resp_read(&reader, bytes, *size, &words, &used) == RESP_REPLY) {
        char text[32], answer[48];
        reply_copy_text(reply_element(words, 1), text, sizeof(text));
        int length = snprintf(answer, sizeof(answer), ":%s\r\n", text);
        is_open = send(fd, answer, (size_t)length, MSG_NOSIGNAL) == length;
        if (shared.is_unreliable && ++*count % HANG_UP_EVERY == 0) is_open = false;
        memmove(bytes, bytes + used, *size - used);
        *size -= used;
    }
    resp_reader_free(&reader);
    return is_open;
}

static void *serve(void *arg) {
    (void)arg;
    int fd, count = 0;
    while ((fd = accept(shared.listen_fd, NULL, NULL)) >= 0) {
        static char bytes[1 << 16];
        size_t size = 0;
        ssize_t got;
        while ((got = recv(fd, bytes + size, sizeof(bytes) - size, 0)) > 0) {
            size += (size_t)got;
            if (!answer_all(fd, bytes, &size, &count)) break;
        }
        close(fd);
    }
    return NULL;
}

/* -- threads that ask */

typedef struct asker {
    pthread_t thread;
    request request;
    waiter waiter;
    int64_t expected, got;
    bool is_done;
} asker;

static void take_number(request *request, int index, const reply *reply) {
    (void)index;
    container_of(request, asker, request)->got = reply->integer;
}

static void finish(request *request, dlock_status status, const char *cause) {
    (void)cause;
    asker *asker = container_of(request, struct asker, request);
    asker->is_done = true;
    if (status == DLOCK_OK)
        shared.answered += asker->got == asker->expected;
    else
        shared.broken++;
    loop_ready(the_loop, &asker->waiter);
}

static void ask_once(asker *asker, bool is_abandoned) {
    char number[24];
    snprintf(number, sizeof(number), "%" PRId64, asker->expected);
    command command = {0};
    command_add(&command, "GET");
    command_add(&command, number);
    asker->is_done = false;
    asker->got = -1;
    loop_lock(the_loop);
    server_send(shared.server, &command, 1, &asker->request);
    if (is_abandoned) {
        if (asker->expected % 2 == 0) { /* others may send it meanwhile */
            loop_unlock(the_loop);
            loop_lock(the_loop);
        }
        if (!asker->is_done) connection_abandon(&asker->request);
        if (!asker->is_done) shared.broken++;
    } else {
        while (!asker->is_done)
            loop_wait(the_loop, &asker->waiter);
    }
    loop_unlock(the_loop);
}

static void *ask_often(void *arg) {
    asker *asker = arg;
    asker->request = (request){.on_reply = take_number, .on_done = finish};
    int64_t first = asker->expected;
    for (int i = 0; i < ROUNDS; i++) {
        asker->expected = first + i;
        ask_once(asker, shared.is_unreliable && i % 7 == 0);
    }
    return NULL;
}

static void ask_from_all_threads(bool has_background) {
    begin();
    snprintf(shared.directory, sizeof(shared.directory), "/tmp/net_world.XXXXXX");
    if (mkdtemp(shared.directory) == NULL) abort();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/peer", shared.directory);
    shared.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(shared.listen_fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(shared.listen_fd, 16) == 0);
    url url = {.is_unix = true};
    snprintf(url.host, sizeof(url.host), "%s", address.sun_path);
    pthread_t peer;
    CHECK(pthread_create(&peer, NULL, serve, NULL) == 0);
    loop_lock(the_loop);
    if (has_background) CHECK(loop_start_background(the_loop));
    shared.answered = shared.broken = 0;
    shared.server = server_new(&url, &(server_options){.loop = the_loop,
                                                       .connect_timeout_ms = LATE_MS,
                                                       .io_timeout_ms = LATE_MS,
                                                       .command_count = &shared.command_count});
    loop_unlock(the_loop);
    static asker askers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        askers[i] = (asker){.expected = i * 1000000};
        if (pthread_create(&askers[i].thread, NULL, ask_often, &askers[i]) != 0) abort();
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(askers[i].thread, NULL);
    loop_lock(the_loop);
    server_free(shared.server);
    loop_unlock(the_loop);
    shutdown(shared.listen_fd, SHUT_RDWR);
    pthread_join(peer, NULL);
    close(shared.listen_fd);
    unlink(address.sun_path);
    rmdir(shared.directory);
    end();
}

TEST(threads_that_share_a_connection_get_their_own_replies) {
    shared.is_unreliable = false;
    for (int has_background = 0; has_background < 2; has_background++) {
        ask_from_all_threads(has_background);
        CHECK_EQUAL(shared.answered, THREADS * ROUNDS);
        CHECK_EQUAL(shared.broken, 0);
    }
}

/* A reply that belongs to another request would be counted neither as answered nor as broken. */
TEST(nobody_gets_the_reply_of_another_when_connections_break) {
    shared.is_unreliable = true;
    for (int has_background = 0; has_background < 2; has_background++) {
        ask_from_all_threads(has_background);
        CHECK_EQUAL(shared.answered + shared.broken, THREADS * ROUNDS);
        CHECK(shared.answered > THREADS * ROUNDS / 2);
        CHECK(shared.broken > 0);
    }
}

int main(void) {
    return unit_main(NULL, NULL);
}
