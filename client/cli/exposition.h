/* SPDX-License-Identifier: BSD-3-Clause */
/* exposition.h - the two text formats of Prometheus. Pure but for the stream.
 *
 * They differ in the names of counters (a family has the suffix _total only in the older one), in
 * units, and in the last line. */
#ifndef DLOCK_CLI_EXPOSITION_H
#define DLOCK_CLI_EXPOSITION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { EXPOSITION_BUCKETS = 64 };

typedef enum exposition_format {
    EXPOSITION_OPENMETRICS,
    EXPOSITION_PROMETHEUS /* text format 0.0.4, the only one that node_exporter and promtool read */
} exposition_format;

typedef struct exposition {
    FILE *file;
    exposition_format format;
} exposition;

/* A label; the value may have any bytes. */
typedef struct exposition_label {
    const char *name, *value;
    size_t length;
} exposition_label;

/* Begins a family; its samples follow. type: counter, gauge or histogram. unit: or NULL; the name
 * ends with it. */
void exposition_family(const exposition *out, const char *name, const char *type, const char *unit,
                       const char *help);

/* A sample of the family; a counter gets its suffix. count: how many labels. */
void exposition_number(const exposition *out, const char *name, bool is_counter,
                       const exposition_label labels[], int count, double value);

/* counts[i]: below 2^i microseconds, and not below half of that. */
void exposition_histogram(const exposition *out, const char *name, const exposition_label *label,
                          const int64_t counts[EXPOSITION_BUCKETS], double sum_s);

void exposition_end(const exposition *out);

#endif
