/* SPDX-License-Identifier: BSD-3-Clause */
/* unit.h - a test program in one file: cases are functions, named as sentences.
 *
 *   TEST(a_free_lock_is_granted) { CHECK(...); }
 *   int main(void) { return unit_main(begin, end); }
 *
 * Cases run in the order of the file, each between begin() and end() of its own; either may be
 * NULL. A failed check is printed with its values and the case goes on, so a check must not be what
 * keeps the next line from crashing. The last line is "N passed, M failed", in cases. A program
 * that hangs says in which case, and ends. */
#ifndef DLOCK_UNIT_H
#define DLOCK_UNIT_H

#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { UNIT_SHOWN_PER_CASE = 5, UNIT_SHOWN_BYTES = 64, UNIT_LIMIT_S = 60 };

typedef struct unit_case {
    const char *name;
    void (*run)(void);
    struct unit_case *next;
} unit_case;

static struct {
    unit_case *first, **end;
    void (*before)(void), (*after)(void); /* each case */
    const char *name;                     /* of the running case */
    int failures;                         /* in it */
    size_t row;                           /* of EACH_ROW(), from 1; 0: none */
    int passed, failed;
    uint64_t random;
} unit;

#define CHECK(condition) unit_check(condition, __FILE__, __LINE__, #condition)
#define CHECK_EQUAL(actual, expected)                                                              \
    unit_check_equal((int64_t)(actual), (int64_t)(expected), __FILE__, __LINE__,                   \
                     #actual " == " #expected)
#define CHECK_TEXT(actual, expected)                                                               \
    unit_check_text(actual, expected, __FILE__, __LINE__, #actual " == " #expected)
#define CHECK_BYTES(actual, actual_size, expected, expected_size)                                  \
    unit_check_bytes(actual, actual_size, expected, expected_size, __FILE__, __LINE__,             \
                     #actual " == " #expected)
/* A loop over the rows of an array. A failed check says which row it was. */
#define EACH_ROW(i, rows)                                                                          \
    for (size_t i = 0; (unit.row = i < sizeof(rows) / sizeof((rows)[0]) ? i + 1 : 0) != 0; i++)
#define TEST(sentence)                                                                             \
    static void sentence(void);                                                                    \
    static unit_case sentence##_case = {#sentence, sentence, NULL};                                \
    __attribute__((constructor)) static void sentence##_add(void) {                                \
        unit_add(&sentence##_case);                                                                \
    }                                                                                              \
    static void sentence(void)

static inline void unit_add(unit_case *added) {
    if (unit.end == NULL) unit.end = &unit.first;
    *unit.end = added;
    unit.end = &added->next;
}

/* Counts a failure; true while there is room to show it. */
static inline bool unit_fail(const char *file, int line, const char *expression) {
    if (++unit.failures > UNIT_SHOWN_PER_CASE) return false;
    printf("%s:%d: %s: %s", file, line, unit.name, expression);
    if (unit.row > 0) printf(" (row %zu)", unit.row);
    printf("\n");
    return true;
}

static inline void unit_check(bool is_true, const char *file, int line, const char *expression) {
    if (!is_true) unit_fail(file, line, expression);
}

static inline void unit_check_equal(int64_t actual, int64_t expected, const char *file, int line,
                                    const char *expression) {
    if (actual == expected || !unit_fail(file, line, expression)) return;
    printf("    %" PRId64 ", not %" PRId64 "\n", actual, expected);
}

/* NULL is equal to NULL only. */
static inline void unit_check_text(const char *actual, const char *expected, const char *file,
                                   int line, const char *expression) {
    bool is_same =
        actual == NULL || expected == NULL ? actual == expected : strcmp(actual, expected) == 0;
    if (is_same || !unit_fail(file, line, expression)) return;
    printf("    \"%s\"\nnot \"%s\"\n", actual == NULL ? "(NULL)" : actual,
           expected == NULL ? "(NULL)" : expected);
}

static inline void unit_show_bytes(const char *bytes, size_t size) {
    printf("    %zu bytes:", size);
    for (size_t i = 0; i < size && i < UNIT_SHOWN_BYTES; i++)
        printf(" %02x", (unsigned)(unsigned char)bytes[i]);
    printf("%s\n", size > UNIT_SHOWN_BYTES ? " ..." : "");
}

static inline void unit_check_bytes(const char *actual, size_t actual_size, const char *expected,
                                    size_t expected_size, const char *file, int line,
                                    const char *expression) {
    bool is_same_size = actual_size == expected_size;
    if (is_same_size && (actual_size == 0 || memcmp(actual, expected, actual_size) == 0)) return;
    if (!unit_fail(file, line, expression)) return;
    unit_show_bytes(actual, actual_size);
    unit_show_bytes(expected, expected_size);
}

/* The same numbers in every run and for every case (splitmix64). */
static inline uint64_t unit_random(void) {
    uint64_t mixed = unit.random += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

/* From first to last, both included; often one of the two. */
static inline int64_t unit_random_within(int64_t first, int64_t last) {
    uint64_t chance = unit_random() % 16;
    if (chance == 0) return first;
    if (chance == 1) return last;
    return first + (int64_t)(unit_random() % ((uint64_t)(last - first) + 1));
}

/* Ends the world of the running case and begins a new one: between the rows of a table. */
static inline void unit_restart(void) {
    if (unit.after != NULL) unit.after();
    if (unit.before != NULL) unit.before();
}

static inline void unit_run(const unit_case *each) {
    unit.name = each->name;
    unit.failures = 0;
    unit.random = 0;
    unit.row = 0;
    if (unit.before != NULL) unit.before();
    each->run();
    if (unit.after != NULL) unit.after();
    if (unit.failures > UNIT_SHOWN_PER_CASE)
        printf("%s: %d more\n", unit.name, unit.failures - UNIT_SHOWN_PER_CASE);
    if (unit.failures == 0)
        unit.passed++;
    else
        unit.failed++;
}

static inline void unit_on_alarm(int number) {
    (void)number;
    const char *const parts[] = {"hangs in: ", unit.name, "\n"};
    for (int i = 0; i < 3; i++)
        if (write(STDOUT_FILENO, parts[i], strlen(parts[i])) < 0) break;
    _exit(1);
}

/* What main() returns. */
static inline int unit_main(void (*before)(void), void (*after)(void)) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGALRM, unit_on_alarm);
    alarm(UNIT_LIMIT_S);
    unit.before = before;
    unit.after = after;
    for (const unit_case *each = unit.first; each != NULL; each = each->next)
        unit_run(each);
    printf("%d passed, %d failed\n", unit.passed, unit.failed);
    return unit.failed != 0;
}

#endif
