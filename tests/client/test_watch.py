"""dlock_watch(): a program is told who holds a name, now and after each change. After a failover
and after a slot has moved: in test_sentinel.py and test_cluster_client.py."""

import random
import threading

import pytest

from support.libdlock import FORM, SHARED, Status
from support.server import stopped, wait_until

FOREVER_MS = 600_000


@pytest.fixture
def watch(connect):
    """watch(server, name): a Watcher of a client of its own."""
    def make(to, name="lock", also=None, **options):
        return connect(to, **options).watch(name, also)
    return make


def acquire(client, token, *more, name="lock"):
    return client.execute_command("DLOCK.ACQUIRE", name, token, "PX", FOREVER_MS, *more)


def release(client, token, name="lock"):
    return client.execute_command("DLOCK.RELEASE", name, token)


def overwrite(client):
    """By a value that is neither a lock nor a string."""
    client.hset("hash", "field", "value")
    client.rename("hash", "lock")


def wait_for(watcher, state, timeout=50):
    wait_until(lambda: watcher.now() == state, f"{state} instead of {watcher.told[-3:]}", timeout)


def test_the_state_at_the_begin_is_told(server, client, watch):
    wait_for(watch(server), None)
    acquire(client, "a")
    other = watch(server)
    wait_for(other, b"a")
    assert other.told == [b"a"]


def test_a_lock_of_the_same_client_that_was_watched_too_ends_no_watch(server, client, connect):
    dlock = connect(server)
    watcher = dlock.watch("lock", None)
    wait_for(watcher, None)
    lock = dlock.lock("lock", lease_ms=FOREVER_MS, renew_every_ms=FOREVER_MS // 2)
    for watches in 2, 3, 4:
        assert lock.acquire() == Status.OK
        wait_until(lambda: client.info("commandstats")["cmdstat_dlock.watch"]["calls"] >= watches,
                   "the watch for the lock that is held")
        assert lock.release() == Status.OK
        wait_for(watcher, None)
    acquire(client, "other")
    wait_for(watcher, b"other")


def test_every_way_to_change_the_holder_is_told(server, client, watch):
    watcher = watch(server)
    wait_for(watcher, None)
    changes = [(lambda: acquire(client, "a"), b"a"), (lambda: release(client, "a"), None),
               (lambda: acquire(client, "b"), b"b"), (lambda: client.delete("lock"), None),
               (lambda: acquire(client, "c"), b"c"), (lambda: client.flushall(), None),
               (lambda: acquire(client, "d"), b"d"), (lambda: overwrite(client), None),
               (lambda: client.delete("lock") and acquire(client, "e"), b"e"),
               (lambda: client.set("lock", "text"), b"text"),
               (lambda: client.set("lock", "other"), b"other"),
               (lambda: client.pexpire("lock", 1), None)]
    for change, state in changes:
        change()
        wait_for(watcher, state)
    assert watcher.told == [None] + [state for _, state in changes]


def test_the_end_of_a_lease_is_told(server, client, watch):
    client.execute_command("DLOCK.ACQUIRE", "lock", "a", "PX", 300)
    watcher = watch(server)
    wait_for(watcher, None)
    assert watcher.told in ([b"a", None], [None])


def test_an_extension_is_not_told(server, client, watch):
    acquire(client, "a")
    watcher = watch(server)
    wait_for(watcher, b"a")
    for _ in range(3):
        client.execute_command("DLOCK.EXTEND", "lock", "a", "PX", FOREVER_MS + 1000)
    release(client, "a")
    wait_for(watcher, None)
    assert watcher.told == [b"a", None]


def test_one_more_shared_holder_is_told_and_one_less(server, client, watch):
    acquire(client, "a", "SHARED")
    watcher = watch(server)
    wait_for(watcher, b"a")
    acquire(client, "b", "SHARED")
    wait_until(lambda: watcher.holders[-1] == 2, "the second holder")
    assert watcher.now() == b"a"
    release(client, "a")
    wait_for(watcher, b"b")


def test_names_are_told_without_the_prefix(server, client, watch):
    acquire(client, "a", name="app:lock")
    watcher = watch(server, prefix="app:")
    wait_for(watcher, b"a")
    assert watcher.names == [b"lock"]


def test_several_watchers_of_one_client_are_all_told(server, client, connect):
    watching = connect(server)
    watchers = [watching.watch("lock") for _ in range(3)] + [watching.watch("other")]
    acquire(client, "a")
    for watcher in watchers[:3]:
        wait_for(watcher, b"a")
    wait_for(watchers[3], None)


def test_a_watcher_can_be_freed_by_its_own_function(server, client, watch):
    freed, freed_handles = threading.Event(), []

    def free(watcher):
        freed_handles.append(bool(watcher.handle))
        watcher.free()
        freed.set()

    watch(server, also=free)
    assert freed.wait(20)
    assert freed_handles == [True]


@pytest.mark.skipif(FORM == "loop", reason="a client that is freed cannot be polled")
def test_a_watcher_outlives_its_client_and_may_end_it_by_its_own_function(server, client,
                                                                          connect):
    before = len(client.client_list())
    watching = connect(server)
    watcher = watching.watch("lock", lambda watcher: watcher.now() == b"a" and watcher.free())
    wait_for(watcher, None)
    watching.free_before_others()
    acquire(client, "a")
    wait_until(lambda: len(client.client_list()) == before, "the end of the client")


def test_the_locks_of_the_same_client_are_seen(server, connect):
    client = connect(server)
    watcher = client.watch()
    lock = client.lock(mode=SHARED)
    for _ in range(3):
        assert lock.acquire() == Status.OK
        wait_for(watcher, lock.token)
        assert lock.release() == Status.OK
        wait_for(watcher, None)


def test_a_server_that_is_away_for_a_while(start_server, watch):
    server = start_server()
    watcher = watch(server)
    wait_for(watcher, None)
    server.stop()
    server.start(server.port)
    acquire(server.client(), "a")
    wait_for(watcher, b"a")


def test_a_server_that_hangs_for_a_while(server, client, watch):
    watcher = watch(server)
    wait_for(watcher, None)
    with stopped(server):
        threading.Event().wait(1)
    acquire(client, "a")
    wait_for(watcher, b"a")


@pytest.mark.parametrize("rule", ["-client", "-subscribe", "resetchannels"])
def test_without_permission_to_track_the_name_is_polled(server, client, watch, rule):
    client.execute_command("ACL", "SETUSER", "app", "on", ">x", "~*", "&*", "+@all", rule)
    watcher = watch(f"redis://app:x@127.0.0.1:{server.port}")
    wait_for(watcher, None)
    acquire(client, "a")
    wait_for(watcher, b"a")


def test_several_independent_servers_cannot_be_watched(lend, watch):
    with pytest.raises(ValueError, match="several servers"):
        watch(lend(3))


CHANGES, ROUNDS = 3000, 30


def test_no_final_state_is_missed_by_random_changes_and_lost_connections(server, client, watch):
    """Bursts of changes, and connections that are killed in between. After each burst the watcher
    comes to know the state."""
    chance = random.Random(7)
    watcher = watch(server)
    for _ in range(ROUNDS):
        with client.pipeline(transaction=False) as pipe:
            for _ in range(CHANGES // ROUNDS):
                token = chance.choice("abc")
                pipe.execute_command(*chance.choice([
                    ("DLOCK.ACQUIRE", "lock", token, "PX", FOREVER_MS),
                    ("DLOCK.RELEASE", "lock", token), ("DEL", "lock"), ("SET", "lock", token)]))
            if chance.random() < 0.3:
                pipe.execute_command("CLIENT", "KILL", "TYPE",
                                     chance.choice(["normal", "pubsub"]), "SKIPME", "yes")
                pipe.execute_command("DLOCK.ACQUIRE", "lock", chance.choice("abc"), "PX", 600_000)
            pipe.execute(raise_on_error=False)
        state = server.observer.execute_command("DLOCK.INFO", "lock")
        state = None if state is None else dict(zip(*[iter(state)] * 2))[b"holders"][0][1]
        wait_for(watcher, state)
