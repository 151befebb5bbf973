/* SPDX-License-Identifier: BSD-3-Clause */
/* hot_list.c - the hot names of a client, as the program sees them. */
#include "api/client.h"

#include <stdlib.h>

static dlock_status set_hot(dlock_client *client, const char *name, bool is_hot) {
    if (client == NULL || name == NULL || name[0] == '\0')
        return error_set(DLOCK_INVALID, client == NULL ? NO_CLIENT : "the name is empty");
    char *full = client_full_name(client, name);
    if (full == NULL) return DLOCK_NO_MEMORY;
    bool is_done = true;
    loop_lock(client->loop);
    if (is_hot)
        is_done = hot_names_add(&client->hotspot.names, full);
    else
        hot_names_remove(&client->hotspot.names, full);
    loop_unlock(client->loop);
    free(full);
    return is_done ? DLOCK_OK : DLOCK_NO_MEMORY;
}

dlock_status dlock_hotspot_add(dlock_client *client, const char *name) {
    return set_hot(client, name, true);
}

dlock_status dlock_hotspot_remove(dlock_client *client, const char *name) {
    return set_hot(client, name, false);
}

/* A copy of both lists, to be freed: the program is told without the mutex. The texts are behind
 * the array. NULL: no memory. */
static dlock_hot_name *copy_names(dlock_client *client, size_t *count) {
    const hot_names *names = &client->hotspot.names;
    size_t prefix_length = strlen(client->prefix), size = 1;
    *count = atomic_load(&names->count);
    for (int i = 0; i < 2; i++)
        list_each(hot_name, hot, &names->lists[i], node)
            size += sizeof(dlock_hot_name) + strlen(hot->name) + 1;
    dlock_hot_name *copy = malloc(size), *entry = copy;
    if (copy == NULL) return NULL;
    char *text = (char *)(copy + *count);
    for (int i = 0; i < 2; i++)
        list_each(hot_name, hot, &names->lists[i], node) {
            *entry++ = (dlock_hot_name){.struct_size = sizeof(dlock_hot_name),
                                        .name = strcpy(text, hot->name + prefix_length),
                                        .waiting = hot->length,
                                        .is_held = hot->is_held,
                                        .is_found = hot->is_found};
            text += strlen(text) + 1;
        }
    return copy;
}

dlock_status dlock_hotspot_list(dlock_client *client, dlock_hotspot_fn tell, void *arg) {
    size_t count;
    if (client == NULL || tell == NULL)
        return error_set(DLOCK_INVALID, client == NULL ? NO_CLIENT : "no function is given");
    loop_lock(client->loop);
    dlock_hot_name *names = copy_names(client, &count);
    loop_unlock(client->loop);
    if (names == NULL) return DLOCK_NO_MEMORY;
    for (size_t i = 0; i < count && tell(arg, &names[i]); i++)
        continue;
    free(names);
    return DLOCK_OK;
}
