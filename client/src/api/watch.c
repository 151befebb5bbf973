/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - tells the program of every change of the holder of a name.
 *
 *   read     name_watch.h reads the name now, and after each change: the newest reply is kept
 *   tell     the background thread takes the reply and calls the function, if the holder is not
 *            the one that was told last. Several changes in a row may be told as one
 *
 * Invariant: a reply that is not told yet is newer than what was told last. */
#include "api/client.h"

struct dlock_watcher {
    dlock_client *client;
    char *full_name;
    dlock_watch_fn changed;
    void *arg;
    name_watch watch;
    notice notice;
    reply *news; /* a copy; NULL: none, or no memory for a copy of the last one */
    char *server_name;
    /* Told last. */
    int64_t holders; /* negative: nothing was told yet; 0: free */
    uint64_t fence, token_hash;
};

/* -- reading */

static void on_watched_read(name_watch *watch, server *server, const reply *info) {
    dlock_watcher *watcher = container_of(watch, dlock_watcher, watch);
    free(watcher->news);
    free(watcher->server_name);
    watcher->news = reply_copy(info);
    watcher->server_name = strdup(server->name);
    notifier_post(&watcher->client->notifier, &watcher->notice);
}

static void start_reading(dlock_watcher *watcher) {
    name_watch_begin(&watcher->watch, watcher->client->deployment, watcher->full_name,
                     on_watched_read);
}

/* The holder that has held longest. False: the lock is free, or the reply makes no sense. */
static bool read_oldest(dlock_inspection *oldest, const reply *info) {
    const reply *holders = inspection_holders(info), *holder = NULL;
    dlock_inspection each = *oldest;
    oldest->fence = UINT64_MAX;
    while (holders != NULL && (holder = reply_next(holders, holder)) != NULL)
        if (inspection_read(&each, info, holder) && each.fence <= oldest->fence) *oldest = each;
    return oldest->token != NULL;
}

/* -- telling */

/* False: the program knows. */
static bool note_told(dlock_watcher *watcher, const dlock_inspection *holder) {
    int64_t holders = holder == NULL ? 0 : holder->holders;
    uint64_t fence = holder == NULL ? 0 : holder->fence;
    uint64_t hash = holder == NULL ? 0 : text_hash_bytes(holder->token, holder->token_length);
    bool is_known =
        watcher->holders == holders && watcher->fence == fence && watcher->token_hash == hash;
    watcher->holders = holders;
    watcher->fence = fence;
    watcher->token_hash = hash;
    return !is_known;
}

/* The function may free the watcher. */
static void tell_change(notice *notice) {
    dlock_watcher *watcher = container_of(notice, dlock_watcher, notice);
    loop *loop = watcher->client->loop;
    const char *name = watcher->full_name + strlen(watcher->client->prefix);
    reply *news = watcher->news;
    char *server_name = watcher->server_name;
    dlock_inspection holder = {.struct_size = sizeof(holder),
                               .server = server_name,
                               .name = name,
                               .name_length = strlen(name)};
    watcher->news = NULL;
    watcher->server_name = NULL;
    if (news == NULL || server_name == NULL) { /* no memory: the name is read again */
        name_watch_end(&watcher->watch);
        start_reading(watcher);
    } else {
        bool is_held = read_oldest(&holder, news);
        if (note_told(watcher, is_held ? &holder : NULL)) {
            dlock_watch_fn changed = watcher->changed;
            void *arg = watcher->arg;
            loop_unlock(loop);
            changed(arg, name, is_held ? &holder : NULL);
            loop_lock(loop);
        }
    }
    free(news);
    free(server_name);
}

/* -- public */

dlock_status dlock_watch(dlock_client *client, const char *name, dlock_watch_fn changed, void *arg,
                         dlock_watcher **out) {
    *out = NULL;
    if (client == NULL || name == NULL || name[0] == '\0' || changed == NULL)
        return error_set(DLOCK_INVALID, "no client, name or function");
    if (!deployment_can_watch(client->deployment))
        return error_set(
            DLOCK_INVALID,
            "several servers cannot be watched, nor can a store, nor a server without the module");
    dlock_watcher *watcher = calloc(1, sizeof(*watcher));
    if (watcher == NULL) return error_set(DLOCK_NO_MEMORY, "no memory");
    client_share(client);
    watcher->client = client;
    watcher->full_name = client_full_name(client, name);
    watcher->changed = changed;
    watcher->arg = arg;
    watcher->holders = -1;
    watcher->notice.tell = tell_change;
    loop_lock(client->loop);
    bool is_started = watcher->full_name != NULL && loop_start_background(client->loop);
    if (is_started) {
        *out = watcher; /* the function may be called before this one returns */
        start_reading(watcher);
    }
    loop_unlock(client->loop);
    if (is_started) return error_set(DLOCK_OK, "");
    dlock_watcher_free(watcher);
    return error_set(DLOCK_NO_MEMORY, "no memory or thread to watch a lock");
}

void dlock_watcher_free(dlock_watcher *watcher) {
    if (watcher == NULL) return;
    dlock_client *client = watcher->client;
    loop_lock(client->loop);
    name_watch_end(&watcher->watch);
    notifier_forget(&client->notifier, &watcher->notice);
    loop_unlock(client->loop);
    free(watcher->news);
    free(watcher->server_name);
    free(watcher->full_name);
    free(watcher);
    client_unshare(client);
}
