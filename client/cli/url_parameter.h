/* SPDX-License-Identifier: BSD-3-Clause */
/* url_parameter.h - parameters of URLs that the tool has to know. The library reads all of them,
 * and complains if one is wrong. */
#pragma once

#include "request.h"

/* Settings that the URLs have as parameters go over those of files. A text is left to the
 * library. */
void url_parameters_apply(request *request);
