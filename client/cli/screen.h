/* SPDX-License-Identifier: BSD-3-Clause */
/* screen.h - the terminal as a screen: single keys, a separate page. screen_end() restores the
 * terminal. */
#ifndef DLOCK_CLI_SCREEN_H
#define DLOCK_CLI_SCREEN_H

#include <stdbool.h>

/* Input and output are both a terminal. */
bool screen_is_possible(void);

void screen_begin(void);
void screen_end(void);

void screen_size(int *rows, int *columns);

/* Lines from here on are the new page, which is shown at screen_page_end(). */
void screen_page_begin(void);
void screen_line(const char *text);        /* cut where the screen ends */
void screen_bright_line(const char *text); /* likewise */
void screen_page_end(void);

#endif
