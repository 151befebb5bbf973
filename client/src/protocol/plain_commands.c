/* SPDX-License-Identifier: BSD-3-Clause */
/* plain_commands.c - see lock_commands.h.
 *
 *   acquire   SET name token NX PX ms    OK, or null: the key is there
 *             again: a script            1, or 0: another token, or another type of key, is there
 *   extend    a script                   1, or 0: the token does not hold the lock
 *   release   a script                   1, or 0: likewise
 *
 * The same contract as that of the module: a repeated acquire finds its own token and makes the
 * lease long enough again, an extension never makes a lease shorter, a release deletes only its own
 * token. An extension always writes, so that Redis's WAIT behind it speaks of the lock. A key of
 * another type is a lock of the module, or no lock: pcall() makes no error of it.
 *
 * Scripts are sent by their SHA-1 if somebody awaits the reply: a server that does not know the
 * hash has run nothing, gets the text, and remembers. Else, and with several servers, where nobody
 * waits for the slower ones, the text is sent at once. */
#include "protocol/lock_commands.h"

#define IF_HELD "if redis.pcall('GET',KEYS[1])~=ARGV[1] then return 0 end "
#define PROLONG                                                                                    \
    "local left=redis.call('PTTL',KEYS[1]) "                                                       \
    "if left>=0 then redis.call('PEXPIRE',KEYS[1],math.max(left,tonumber(ARGV[2]))) end "          \
    "return 1"

const char plain_acquire[] = "if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then return 1 "
                             "end " IF_HELD PROLONG;
const char plain_extend[] = IF_HELD PROLONG;
const char plain_release[] = IF_HELD "return redis.call('DEL',KEYS[1])";

/* -- commands */

typedef struct script {
    const char *text, *hash;
} script;

static const script acquire = {plain_acquire, "2edf833d3fc1985158fbc0834f5c01b097ccb270"};
static const script extend = {plain_extend, "245839efebce0c627739f0eca6d04a0acce74edd"};
static const script release = {plain_release, "3518922bc982336f43f932c6665d05e5d564b4bd"};

static void write_script(command *command, const script *script, const lock_words *words) {
    const char *verb = words->has_hash ? "EVALSHA" : "EVAL";
    const char *body = words->has_hash ? script->hash : script->text;
    command_add_words(command, COMMAND_WORDS(verb, body, "1", words->name, words->token));
    if (words->operation != DLOCK_RELEASING) command_add_number(command, words->lease_ms);
}

static void write(command *command, const lock_words *words) {
    bool is_acquire = words->operation == DLOCK_ACQUIRING;
    if (!is_acquire || words->is_repeated) {
        bool is_release = words->operation == DLOCK_RELEASING;
        write_script(command, is_acquire ? &acquire : is_release ? &release : &extend, words);
        return;
    }
    command_add_words(command, COMMAND_WORDS("SET", words->name, words->token, "NX", "PX"));
    command_add_number(command, words->lease_ms);
}

/* -- replies */

static void read_acquire(verdict *verdict, const reply *reply) {
    bool is_integer = reply->kind == REPLY_INTEGER;
    if (reply_is_text(reply, "OK") || (is_integer && reply->integer == 1))
        verdict_set(verdict, DLOCK_OK, "");
    else if (reply->kind == REPLY_NIL || (is_integer && reply->integer == 0))
        verdict_set(verdict, DLOCK_BUSY, "another holds it");
    else
        read_failure(verdict, reply);
}

/* -- inspection */

void string_commands(command commands[2], const char *name) {
    command_add_words(&commands[0], COMMAND_WORDS("GET", name));
    command_add_words(&commands[1], COMMAND_WORDS("PTTL", name));
}

/* A TTL of -1: the string does not end by itself; -2: ended between the two commands. */
bool string_read(dlock_inspection *inspection, const reply *value, const reply *ttl) {
    if (value->kind != REPLY_TEXT || ttl->kind != REPLY_INTEGER || ttl->integer < -1) return false;
    inspection->token = value->text;
    inspection->token_length = value->length;
    inspection->ttl_ms = ttl->integer;
    inspection->is_string = true;
    inspection->holders = 1;
    return true;
}

const lock_protocol plain_protocol = {.write = write, .read_acquire = read_acquire};
