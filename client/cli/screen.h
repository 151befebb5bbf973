/* SPDX-License-Identifier: BSD-3-Clause */
/* screen.h - the terminal as a screen: keys one by one, a page of its own. Whatever ends the
 * program by way of screen_end() leaves the terminal as it was. */
#ifndef DLOCK_CLI_SCREEN_H
#define DLOCK_CLI_SCREEN_H

#include <stdbool.h>

/* Input and output are both a terminal. */
bool screen_is_possible(void);

void screen_begin(void);
void screen_end(void);

void screen_size(int *rows, int *columns);

/* What is printed from here on is the new page; it is shown at once at its end. */
void screen_page_begin(void);
void screen_line(const char *text);        /* cut where the screen ends */
void screen_bright_line(const char *text); /* likewise */
void screen_page_end(void);

#endif
