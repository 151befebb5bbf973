/* SPDX-License-Identifier: BSD-3-Clause */
/* greeting.c - see greeting.h. */
#include "net/greeting.h"

#include "base/text.h"
#include "net/error_reply.h"

int greeting_commands(command commands[GREETING_MAX], const url *url) {
    int count = 0;
    for (int i = 0; i < GREETING_MAX; i++)
        commands[i] = (command){0};
    if (url->password[0] != '\0') {
        command *auth = &commands[count++];
        command_add(auth, "AUTH");
        if (url->user[0] != '\0') command_add(auth, url->user);
        command_add(auth, url->password);
    }
    if (url->db != 0) {
        command *select = &commands[count++];
        command_add(select, "SELECT");
        command_add_number(select, (uint64_t)url->db);
    }
    if (url->must_be_master) command_add(&commands[count++], "ROLE");
    return count;
}

dlock_status greeting_check(const url *url, int index, const reply *reply, char *text,
                            size_t size) {
    bool is_role = url->must_be_master && index == (url->password[0] != '\0') + (url->db != 0);
    const struct reply *role = is_role ? reply_element(reply, 0) : NULL;
    if (reply->kind == REPLY_ERROR) {
        reply_copy_text(reply, text, size);
        error_meaning meaning = error_reply_meaning(text);
        return meaning.is_transient ? DLOCK_UNREACHABLE : meaning.status;
    }
    if (role != NULL && reply_is_text(role, "master")) return DLOCK_OK;
    if (role != NULL) {
        text_copy(text, size, "it is not the master");
        return DLOCK_UNREACHABLE;
    }
    if (!is_role && reply_is_text(reply, "OK")) return DLOCK_OK;
    text_copy(text, size, "an unexpected reply to AUTH, SELECT or ROLE");
    return DLOCK_PROTOCOL;
}
