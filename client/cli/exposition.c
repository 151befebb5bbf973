/* SPDX-License-Identifier: BSD-3-Clause */
/* exposition.c - see exposition.h. */
#include "exposition.h"

#include "text.h"
#include <inttypes.h>
#include <string.h>

/* The bounds of a histogram are always the same, from 64 us to 9.5 hours: a bound that came and
 * went would break rate(). */
enum { FIRST_BOUND = 6, LAST_BOUND = 35 };

static const char *counter_suffix(const exposition *out, const char *type) {
    bool is_counter = strcmp(type, "counter") == 0;
    return is_counter && out->format == EXPOSITION_PROMETHEUS ? "_total" : "";
}

void exposition_family(const exposition *out, const char *name, const char *type, const char *unit,
                       const char *help) {
    const char *suffix = counter_suffix(out, type);
    fprintf(out->file, "# HELP %s%s %s\n", name, suffix, help);
    fprintf(out->file, "# TYPE %s%s %s\n", name, suffix, type);
    if (unit != NULL && out->format == EXPOSITION_OPENMETRICS)
        fprintf(out->file, "# UNIT %s %s\n", name, unit);
}

/* Unsafe bytes are shown as \xHH, and then a backslash as two, so that different values stay
 * different. Prometheus itself wants backslash and quote escaped. */
static void put_value(FILE *file, const char *bytes, size_t length) {
    bool is_safe = memchr(bytes, '\\', length) == NULL;
    for (size_t i = 0; i < length && is_safe;) {
        size_t size = escape_safe_length(bytes + i, length - i);
        is_safe = size > 0;
        i += size;
    }
    for (size_t i = 0; i < length;) {
        size_t size = escape_safe_length(bytes + i, length - i);
        if (size == 0)
            fprintf(file, "\\\\x%02x", bytes[i] & 0xFF);
        else if (bytes[i] == '\\' && !is_safe)
            fputs("\\\\\\\\", file);
        else if (bytes[i] == '"')
            fputs("\\\"", file);
        else
            fwrite(bytes + i, 1, size, file);
        i += size == 0 ? 1 : size;
    }
}

/* bound: of a bucket, or NULL. */
static void put_labels(FILE *file, const exposition_label labels[], int count, const char *bound) {
    if (count == 0 && bound == NULL) return;
    putc('{', file);
    for (int i = 0; i < count; i++) {
        fprintf(file, "%s%s=\"", i > 0 ? "," : "", labels[i].name);
        put_value(file, labels[i].value, labels[i].length);
        putc('"', file);
    }
    if (bound != NULL) fprintf(file, "%sle=\"%s\"", count > 0 ? "," : "", bound);
    putc('}', file);
}

void exposition_number(const exposition *out, const char *name, bool is_counter,
                       const exposition_label labels[], int count, double value) {
    fprintf(out->file, "%s%s", name, is_counter ? "_total" : "");
    put_labels(out->file, labels, count, NULL);
    fprintf(out->file, " %.15g\n", value);
}

static void put_bucket(const exposition *out, const char *name, const exposition_label *label,
                       const char *bound, int64_t count) {
    fprintf(out->file, "%s_bucket", name);
    put_labels(out->file, label, 1, bound);
    fprintf(out->file, " %" PRId64 "\n", count);
}

void exposition_histogram(const exposition *out, const char *name, const exposition_label *label,
                          const int64_t counts[EXPOSITION_BUCKETS], double sum_s) {
    int64_t below = 0;
    for (int i = 0; i < EXPOSITION_BUCKETS; i++) {
        char bound[32];
        below += counts[i];
        if (i < FIRST_BOUND || i > LAST_BOUND) continue;
        snprintf(bound, sizeof(bound), "%.6f", (double)(1ULL << i) / 1e6);
        put_bucket(out, name, label, bound, below);
    }
    put_bucket(out, name, label, "+Inf", below);
    fprintf(out->file, "%s_sum", name);
    put_labels(out->file, label, 1, NULL);
    fprintf(out->file, " %.6f\n%s_count", sum_s, name);
    put_labels(out->file, label, 1, NULL);
    fprintf(out->file, " %" PRId64 "\n", below);
}

void exposition_end(const exposition *out) {
    if (out->format == EXPOSITION_OPENMETRICS) fputs("# EOF\n", out->file);
}
