/* SPDX-License-Identifier: BSD-3-Clause */
/* top.c - the locks with the most waiters, again and again.
 *
 *   look     all locks, and INFO dlock: what has changed since the last look
 *   show     a page on a terminal (screen.h), lines elsewhere, or JSON
 *   attend   to keys and signals until it is time for the next look
 *
 * How many grants there were and how long they waited is counted by the server, for all names
 * together: so it is in the head, not beside a name. */
#include "subcommands.h"

#include "complain.h"
#include "connect.h"
#include "output.h"
#include "screen.h"
#include "sightings.h"
#include "statistics.h"
#include "text.h"
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { LINE_SIZE = 2048, WHY_SIZE = 300, LIST_TIMEOUT_MS = 30000 };
enum { NUMBERS_WIDTH = 23, NAME_PARTS = 52 }; /* of the rest of a line, in hundredths */

static const char *const sort_keys[] = {"waiters", "age", "ttl", "name"};

typedef struct watching {
    request *request;
    dlock_client *client;
    sightings seen;
    statistics before, now;
    statistics_change change;
    dlock_status status;
    char why[WHY_SIZE];
    char filter[64]; /* a part of the name */
    bool is_typing;  /* the filter */
    int signal_fd;
    int ended_by; /* a signal; 0: none */
    bool is_over;
} watching;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* -- look */

static void take_look(watching *watching) {
    const request *request = watching->request;
    const char *pattern = request->word_count > 0 ? request->words[0] : NULL;
    sightings_clear(&watching->seen);
    statistics fresh = {0};
    watching->status = dlock_list(watching->client, pattern, LIST_TIMEOUT_MS, sightings_add,
                                  &watching->seen, watching->why, sizeof(watching->why));
    if (watching->status == DLOCK_OK)
        watching->status = dlock_server_info(watching->client, LIST_TIMEOUT_MS, statistics_add,
                                             &fresh, watching->why, sizeof(watching->why));
    if (watching->status != DLOCK_OK) return;
    fresh.at_ms = now_ms();
    watching->before = watching->now;
    watching->now = fresh;
    if (watching->before.at_ms != 0)
        watching->change = statistics_since(&watching->before, &watching->now);
    sightings_sort(&watching->seen, request->sort);
}

/* -- show */

static void show_wait(char *text, size_t size, double ms) {
    if (ms < 0)
        snprintf(text, size, "-");
    else if (ms < 10)
        snprintf(text, size, "<%.2gms", ms);
    else
        snprintf(text, size, "<%.0fms", ms);
}

static void make_head(const watching *watching, char first[LINE_SIZE], char second[LINE_SIZE]) {
    char p50[16], p99[16];
    show_wait(p50, sizeof(p50), watching->change.wait_p50_ms);
    show_wait(p99, sizeof(p99), watching->change.wait_p99_ms);
    snprintf(first, LINE_SIZE, "%" PRId64 " held, %" PRId64 " waiting on %" PRId64 " server%s",
             watching->now.held, watching->now.waiters, watching->now.servers,
             watching->now.servers == 1 ? "" : "s");
    snprintf(second, LINE_SIZE,
             "%.0f grants/s, %.0f handed over/s, %.0f timeouts/s; wait p50 %s, p99 %s",
             watching->change.grants_per_s, watching->change.handovers_per_s,
             watching->change.timeouts_per_s, p50, p99);
}

static void make_row(char line[LINE_SIZE], size_t width, const char *name, size_t name_length,
                     const char *token, size_t token_length, const char *numbers) {
    char left[COLUMN_MAX * 4 + 1], right[COLUMN_MAX * 4 + 1];
    size_t room = width > 40 ? width - NUMBERS_WIDTH - 1 : 16;
    size_t name_width = room * NAME_PARTS / 100;
    if (name_width > 150) name_width = 150;
    size_t token_width = room - name_width > 150 ? 150 : room - name_width;
    snprintf(line, LINE_SIZE, "%s %s%s", column_show(left, name, name_length, name_width, 1),
             column_show(right, token, token_length, token_width, 1), numbers);
}

static void make_title(char line[LINE_SIZE], size_t width) {
    char numbers[40];
    snprintf(numbers, sizeof(numbers), " %6s %6s %7s", "AGE", "TTL", "WAITERS");
    make_row(line, width, "NAME", 4, "HOLDER", 6, numbers);
}

static void make_lock(char line[LINE_SIZE], size_t width, const sighting *seen) {
    char numbers[80], age[DURATION_SIZE], ttl[DURATION_SIZE];
    char holder[SIGHTING_HOLDER_SIZE];
    const dlock_inspection *lock = &seen->lock;
    size_t length = sighting_holder(seen, holder);
    duration_show(seen->age_ms, age);
    duration_show(lock->ttl_ms, ttl);
    snprintf(numbers, sizeof(numbers), " %6s %6s %7" PRId64, age, ttl, lock->waiters);
    make_row(line, width, lock->name, lock->name_length, holder, length, numbers);
}

static bool is_wanted(const watching *watching, const sighting *seen) {
    return watching->filter[0] == '\0' || strstr(seen->lock.name, watching->filter) != NULL;
}

/* The server's words are in the cause, so the cause is escaped. */
static void show_head(const watching *watching) {
    char first[LINE_SIZE], second[LINE_SIZE];
    if (watching->status == DLOCK_OK) {
        make_head(watching, first, second);
        screen_line(first);
        screen_line(second);
        return;
    }
    screen_line(escape_text(first, sizeof(first), watching->why, strlen(watching->why)));
    screen_line(dlock_status_text(watching->status));
}

static void show_page(const watching *watching) {
    char line[LINE_SIZE];
    int rows, columns;
    screen_size(&rows, &columns);
    screen_page_begin();
    show_head(watching);
    if (watching->is_typing || watching->filter[0] != '\0')
        snprintf(line, sizeof(line), "name has: %s%s", watching->filter,
                 watching->is_typing ? "_" : "");
    else
        line[0] = '\0';
    screen_line(line);
    make_title(line, (size_t)columns);
    screen_bright_line(line);
    int left = rows - 5;
    for (size_t i = 0; i < watching->seen.count && left > 0; i++) {
        if (!is_wanted(watching, &watching->seen.all[i])) continue;
        make_lock(line, (size_t)columns, &watching->seen.all[i]);
        screen_line(line);
        left--;
    }
    while (left-- > 0)
        screen_line("");
    snprintf(line, sizeof(line), "q quit   s sort: %s   w %s   / filter   space look now",
             watching->request->sort,
             watching->request->is_waited_for ? "show all" : "only waited for");
    screen_bright_line(line);
    screen_page_end();
}

static void show_lines(const watching *watching) {
    char line[LINE_SIZE], first[LINE_SIZE], second[LINE_SIZE];
    make_head(watching, first, second);
    make_title(line, 80);
    printf("%s\n%s\n%s\n", first, second, line);
    for (size_t i = 0; i < watching->seen.count; i++) {
        make_lock(line, 80, &watching->seen.all[i]);
        puts(line);
    }
}

static void show_json(const watching *watching) {
    json_object_begin(NULL);
    json_number("servers", watching->now.servers);
    json_number("held", watching->now.held);
    json_number("waiters", watching->now.waiters);
    json_decimal("grants_per_s", watching->change.grants_per_s);
    json_decimal("handovers_per_s", watching->change.handovers_per_s);
    json_decimal("timeouts_per_s", watching->change.timeouts_per_s);
    json_decimal("wait_p50_ms", watching->change.wait_p50_ms);
    json_decimal("wait_p99_ms", watching->change.wait_p99_ms);
    json_array_begin("locks");
    for (size_t i = 0; i < watching->seen.count; i++)
        sighting_show_json(&watching->seen.all[i]);
    json_array_end();
    json_object_end();
}

/* -- keys and signals */

static void type_filter(watching *watching, char key) {
    size_t length = strlen(watching->filter);
    if (key == '\r' || key == '\n') {
        watching->is_typing = false;
    } else if (key == 27) { /* escape */
        watching->is_typing = false;
        watching->filter[0] = '\0';
    } else if (key == 127 || key == 8) {
        if (length > 0) watching->filter[length - 1] = '\0';
    } else if (key >= ' ' && length + 1 < sizeof(watching->filter)) {
        watching->filter[length] = key;
        watching->filter[length + 1] = '\0';
    }
}

static const char *next_sort(const char *key) {
    size_t count = sizeof(sort_keys) / sizeof(sort_keys[0]);
    for (size_t i = 0; i < count; i++)
        if (strcmp(sort_keys[i], key) == 0) return sort_keys[(i + 1) % count];
    return sort_keys[0];
}

/* True: the key wants a look at once. */
static bool obey(watching *watching, char key) {
    if (watching->is_typing) {
        type_filter(watching, key);
        return false;
    }
    if (key == 'q') watching->is_over = true;
    if (key == '/') watching->is_typing = true;
    if (key == 's') watching->request->sort = next_sort(watching->request->sort);
    if (key == 'w') watching->request->is_waited_for = !watching->request->is_waited_for;
    sightings_sort(&watching->seen, watching->request->sort);
    return key == ' ' || key == 'w';
}

static void open_signals(watching *watching) {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int *each = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH, 0};
         *each != 0; each++)
        sigaddset(&wanted, *each);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    watching->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void hear_signals(watching *watching) {
    struct signalfd_siginfo info;
    while (read(watching->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGTSTP) {
            screen_end();
            kill(getpid(), SIGSTOP);
            screen_begin();
        } else if (info.ssi_signo != SIGWINCH) {
            watching->ended_by = (int)info.ssi_signo;
            watching->is_over = true;
        }
    }
}

static bool read_keys(watching *watching) {
    char keys[64];
    ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
    bool is_look_wanted = false;
    if (count < 0) watching->is_over = true;      /* the terminal is gone */
    if (count > 1 && keys[0] == 27) return false; /* an arrow, or the like */
    for (ssize_t i = 0; i < count; i++)
        is_look_wanted = obey(watching, keys[i]) || is_look_wanted;
    return is_look_wanted;
}

/* Until the next look is due. */
static void attend(watching *watching) {
    struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = watching->signal_fd, .events = POLLIN}};
    int64_t until_ms = now_ms() + watching->request->interval_ms, left_ms;
    while (!watching->is_over && (left_ms = until_ms - now_ms()) > 0) {
        show_page(watching);
        if (poll(fds, 2, (int)left_ms) <= 0) continue;
        if (fds[1].revents != 0) hear_signals(watching);
        if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) watching->is_over = true;
        if (fds[0].revents != 0 && read_keys(watching)) return;
    }
}

/* -- public */

static void watch_on_screen(watching *watching) {
    open_signals(watching);
    screen_begin();
    for (int64_t round = 0; !watching->is_over; round++) {
        if (watching->request->rounds > 0 && round == watching->request->rounds) break;
        take_look(watching);
        attend(watching);
    }
    screen_end();
}

/* Where nobody can press a key: one print, or as many as are wanted. */
static void print(watching *watching) {
    int64_t pause_ms = watching->request->interval_ms;
    take_look(watching);
    for (int64_t round = 0; round < (watching->request->rounds > 0 ? watching->request->rounds : 1);
         round++) {
        struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
        if (watching->status == DLOCK_OK) take_look(watching);
        if (watching->status != DLOCK_OK) return;
        if (watching->request->is_json)
            show_json(watching);
        else
            show_lines(watching);
        if (output_flush() != 0) return;
    }
}

int top(request *request) {
    int code;
    watching watching = {.request = request, .seen = {.filter = request}};
    watching.change = (statistics_change){.wait_p50_ms = -1, .wait_p99_ms = -1};
    if (!sightings_can_sort(request->sort)) {
        complain("--sort needs waiters, age, ttl or name");
        return EXIT_CODE_USAGE;
    }
    watching.client = connect_client(request, &code);
    if (watching.client == NULL) return code;
    if (screen_is_possible() && !request->is_json)
        watch_on_screen(&watching);
    else
        print(&watching);
    dlock_client_free(watching.client);
    sightings_clear(&watching.seen);
    if (watching.ended_by != 0) return EXIT_CODE_SIGNAL + watching.ended_by;
    return watching.status == DLOCK_OK
               ? EXIT_CODE_OK
               : (int)complain_query(request, "top", watching.status, watching.why, ACL_TOP);
}
