/* SPDX-License-Identifier: BSD-3-Clause */
/* screen.c - see screen.h. The few sequences are those of ECMA-48 and xterm, which all terminals of
 * today know. */
#include "screen.h"

#include "text.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ALTERNATE_PAGE "\033[?1049h"
#define ORIGINAL_PAGE  "\033[?1049l"
#define HIDE_CURSOR    "\033[?25l"
#define SHOW_CURSOR    "\033[?25h"
#define TOP_LEFT       "\033[H"
#define REST_OF_LINE   "\033[K"
#define REST_OF_PAGE   "\033[J"
#define BRIGHT         "\033[7m"
#define PLAIN          "\033[0m"

static struct termios original;
static bool is_on;
static int lines_left, width;

bool screen_is_possible(void) {
    const char *kind = getenv("TERM");
    bool is_dumb = kind == NULL || kind[0] == '\0' || kind[0] == 'd'; /* "dumb" */
    return !is_dumb && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

void screen_begin(void) {
    tcgetattr(STDIN_FILENO, &original);
    struct termios by_key = original;
    by_key.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    by_key.c_cc[VMIN] = 0;
    by_key.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &by_key);
    is_on = true;
    fputs(ALTERNATE_PAGE HIDE_CURSOR, stdout);
    fflush(stdout);
}

void screen_end(void) {
    if (!is_on) return;
    is_on = false;
    fputs(PLAIN SHOW_CURSOR ORIGINAL_PAGE, stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &original);
}

void screen_size(int *rows, int *columns) {
    struct winsize size;
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
    *rows = is_known ? size.ws_row : 24;
    *columns = is_known && size.ws_col > 0 ? size.ws_col : 80;
}

void screen_page_begin(void) {
    screen_size(&lines_left, &width);
    fputs(TOP_LEFT, stdout);
}

/* No line break behind the last line: the page would scroll. */
static void put(const char *before, const char *text, const char *after) {
    if (lines_left <= 0) return;
    lines_left--;
    printf("%s%.*s%s%s%s", before, (int)column_cut(text, (size_t)width), text, after, REST_OF_LINE,
           lines_left > 0 ? "\n" : "");
}

void screen_line(const char *text) {
    put("", text, "");
}

void screen_bright_line(const char *text) {
    char padded[512];
    snprintf(padded, sizeof(padded), "%-*s", width < 500 ? width : 500, text);
    put(BRIGHT, padded, PLAIN);
}

void screen_page_end(void) {
    if (lines_left > 0) fputs(REST_OF_PAGE, stdout);
    fflush(stdout);
}
