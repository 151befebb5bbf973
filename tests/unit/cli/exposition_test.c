/* SPDX-License-Identifier: BSD-3-Clause */
/* exposition_test.c - the two text formats of Prometheus. */
#define _GNU_SOURCE
#include "exposition.h"

#include "unit.h"
#include <stdlib.h>

static char *text;
static size_t size;

static exposition open_text(exposition_format format) {
    return (exposition){open_memstream(&text, &size), format};
}

static void check_text(const exposition *out, const char *expected) {
    fclose(out->file);
    CHECK_BYTES(text, size, expected, strlen(expected));
    free(text);
}

static void check_counter(exposition_format format, const char *expected) {
    exposition out = open_text(format);
    exposition_family(&out, "grants", "counter", NULL, "Grants.");
    exposition_number(&out, "grants", true, NULL, 0, 3);
    exposition_end(&out);
    check_text(&out, expected);
}

TEST(the_formats_differ_in_counters_and_in_the_end) {
    check_counter(EXPOSITION_OPENMETRICS,
                  "# HELP grants Grants.\n# TYPE grants counter\ngrants_total 3\n# EOF\n");
    check_counter(EXPOSITION_PROMETHEUS,
                  "# HELP grants_total Grants.\n# TYPE grants_total counter\ngrants_total 3\n");
}

static void check_label(const char *value, size_t length, const char *expected) {
    exposition out = open_text(EXPOSITION_OPENMETRICS);
    exposition_label label = {"n", value, length};
    exposition_number(&out, "x", false, &label, 1, 0.5);
    check_text(&out, expected);
}

TEST(values_of_labels_stay_different) {
    check_label("a\"b", 3, "x{n=\"a\\\"b\"} 0.5\n");
    check_label("a\nb", 3, "x{n=\"a\\\\x0ab\"} 0.5\n");
    check_label("a\\x0ab", 6, "x{n=\"a\\\\\\\\x0ab\"} 0.5\n");
    check_label("\xc3\xa4", 2, "x{n=\"\xc3\xa4\"} 0.5\n");
}

TEST(a_histogram_counts_upwards) {
    exposition out = open_text(EXPOSITION_OPENMETRICS);
    exposition_label label = {"s", "h", 1};
    int64_t counts[EXPOSITION_BUCKETS] = {[2] = 1, [10] = 2, [40] = 4};
    exposition_histogram(&out, "w", &label, counts, 1.5);
    fclose(out.file);
    CHECK(strstr(text, "w_bucket{s=\"h\",le=\"0.000064\"} 1\n") == text);
    CHECK(strstr(text, "w_bucket{s=\"h\",le=\"0.000512\"} 1\n") != NULL);
    CHECK(strstr(text, "w_bucket{s=\"h\",le=\"0.001024\"} 3\n") != NULL);
    CHECK(strstr(text, "w_bucket{s=\"h\",le=\"+Inf\"} 7\nw_sum{s=\"h\"} 1.500000\n"
                       "w_count{s=\"h\"} 7\n") != NULL);
    free(text);
}

int main(void) {
    return unit_main(NULL, NULL);
}
