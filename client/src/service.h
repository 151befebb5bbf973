/* SPDX-License-Identifier: BSD-3-Clause */
/* service.h - the last handler of every chain: it asks the backend, waits, and cleans up after
 * claims that nobody knows the fate of. */
#ifndef DLOCK_SERVICE_H
#define DLOCK_SERVICE_H

#include "backend.h"
#include "environment.h"
#include "waiting.h"

typedef struct service service;

/* Owns the backend from now on, also when the result is NULL: no memory. */
service *service_new(backend *behind, const waiting_rule *rule, const environment *env);
void service_free(service *old);

dlock_handler service_handler(service *of);
/* The backend has a queue, and it is used. */
bool service_has_queue(const service *of);

backend *service_backend(service *of);

#endif
