/* SPDX-License-Identifier: BSD-3-Clause */
/* metrics.h - INFO dlock and the busiest locks for Prometheus: printed, written to a file for the
 * textfile collector of node_exporter, or as the reply to one HTTP request (socket activation). */
#ifndef DLOCK_CLI_METRICS_H
#define DLOCK_CLI_METRICS_H

#include "request.h"

int metrics(request *request);

/* Reads the HTTP request and replies that the tool cannot serve it. */
void metrics_decline(void);

#endif
