/* SPDX-License-Identifier: BSD-3-Clause */
/* resp.h - the protocol of Redis (RESP2): commands to bytes, bytes to replies. Pure: no socket.
 *
 * A reply is read once all bytes have arrived. A reply is a tree, stored as an array of nodes in
 * the order of arrival: an array first, then the elements. Texts point into the bytes that were
 * read; nothing is copied. A hostile length cannot make the reader allocate more than in proportion
 * to the bytes that have arrived. */
#pragma once
#include "dlock.h"
#include "net/bytes.h"

/* -- commands */

enum { COMMAND_WORDS_MAX = 20, COMMAND_NUMBERS_MAX = 6, COMMAND_DIGITS = 21 };

/* Words are borrowed until the command is sent (connection.h copies them). {0}: empty. */
typedef struct command {
    int count;
    const char *words[COMMAND_WORDS_MAX];
    size_t lengths[COMMAND_WORDS_MAX];
    int number_count;
    char numbers[COMMAND_NUMBERS_MAX][COMMAND_DIGITS];
    /* Further words, before the word at list_at: list_count texts, each behind the NUL of the text
     * before. */
    const char *list;
    int list_count, list_at;
    /* Any number of further words, behind these. */
    size_t rest_count;
    const char *const *rest;
    const size_t *rest_lengths;
} command;

/* A command with numbers must not be copied: words point into the struct itself. */
void command_add(command *command, const char *word);
void command_add_bytes(command *command, const char *bytes, size_t length);
void command_add_number(command *command, uint64_t number);
/* All words of a COMMAND_WORDS(...). */
void command_add_words(command *command, const char *const words[]);
#define COMMAND_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The bytes on the wire. False: no memory; some of the bytes may be there. */
bool command_append(const command *command, bytes *out);

/* -- replies */

typedef enum reply_kind {
    REPLY_INTEGER,
    REPLY_NIL,    /* a null text or a null array */
    REPLY_STATUS, /* a text, like OK */
    REPLY_ERROR,  /* a text */
    REPLY_TEXT,   /* a text of any bytes */
    REPLY_ARRAY   /* count elements; see reply_element() */
} reply_kind;

typedef struct reply {
    reply_kind kind;
    int64_t integer;
    const char *text; /* of the three kinds of text; not ended by a NUL */
    size_t length;
    size_t count; /* of an array: its elements */
    size_t size;  /* nodes of this subtree, the root included */
} reply;

/* The next element, after NULL the first; NULL: no more, or no array. */
const reply *reply_next(const reply *array, const reply *element);
/* NULL: no array, or not so long. For the first elements: later ones take longer to find. */
const reply *reply_element(const reply *array, size_t index);
/* The value of a field, in an array of names and values. NULL: no such field, or no such array. */
const reply *reply_value(const reply *map, const char *name);

bool reply_is_text(const reply *reply, const char *text);       /* STATUS or TEXT, and equal */
bool reply_begins_with(const reply *reply, const char *prefix); /* STATUS, TEXT or ERROR */

/* Copies as much of a text as fits, and a NUL; "" for a reply without text. */
void reply_copy_text(const reply *reply, char *text, size_t size);

/* The whole tree in one piece of memory, for free(3); each text is followed by a NUL. NULL: no
 * memory. */
reply *reply_copy(const reply *root);

/* An INTEGER, or the digits of a TEXT or STATUS as a number; -1: no number, or negative. */
int64_t reply_number(const reply *reply);

/* The meaning of an error reply for a lock. */
typedef struct error_meaning {
    dlock_status status;
    bool is_transient; /* may be different in a moment: worth another attempt */
} error_meaning;

/* In error_reply.c. error: a REPLY_ERROR, e.g. "NOAUTH Authentication required." */
error_meaning error_reply_meaning(const reply *error);

/* -- reading */

/* A reply with more nodes is too long. A reply beyond the other limits is malformed: arrays in
 * arrays, bytes of a text. */
enum { RESP_DEPTH_MAX = 6, RESP_NODES_MAX = 1 << 20, RESP_TEXT_MAX = 512 << 20 };

typedef struct resp_reader {
    reply *nodes;
    size_t node_count, node_capacity;
    /* Private to resp.c: how far an incomplete reply has been read. */
    size_t bytes_read;  /* of the nodes so far */
    size_t line_search; /* no line of the next node ends before this byte */
    size_t depth;
    struct {
        size_t node, missing; /* an unfinished array, and how many elements are still to come */
    } arrays[RESP_DEPTH_MAX];
} resp_reader; /* all zero: new */

typedef enum resp_result {
    RESP_INCOMPLETE,
    RESP_REPLY,
    RESP_MALFORMED,
    RESP_TOO_LONG,
    RESP_NO_MEMORY
} resp_result;

/* The first reply in the bytes. RESP_REPLY: *reply is the root, valid until the next call, and
 * *used the number of bytes of the reply. RESP_INCOMPLETE: the next call has the same bytes, maybe
 * in another place, and more behind them; it goes on where this call ended. */
resp_result resp_read(resp_reader *reader, const char *bytes, size_t size, const reply **reply,
                      size_t *used);
void resp_reader_free(resp_reader *reader);
