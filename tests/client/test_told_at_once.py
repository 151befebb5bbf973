"""A lock that is taken away is lost within a round trip, where the server tells of changes."""

import time

import pytest

from support.commands import Lock as Commands, stats
from support.libdlock import Event, State, Status
from support.server import wait_until

RENEWED = {"lease_ms": 60_000, "renew_every_ms": 50_000}
SOON = 30  # seconds: much less than until the next renewal
MOMENT_S = 0.02  # LOCK_WATCH_AFTER_MS of name_watch.h


def present(server):
    """Sessions that are not away."""
    return stats(server.observer)["sessions"] - stats(server.observer)["sessions_away"]


def wait_until_tracked(server, count=1):
    """Sessions watch so many names."""
    wait_until(lambda: stats(server.observer)["watches"] >= count, "the watches")


@pytest.fixture
def watched(server, connect):
    """watched(**options): a lock that the server knows to be watched."""
    def make(**options):
        lock = connect(server, **options).hold(**RENEWED)
        wait_until_tracked(server)
        return lock
    return make


def assert_lost_soon(lock):
    wait_until(lambda: lock.state == State.LOST, "the loss", timeout=SOON)


WAYS = ["DEL lock", "UNLINK lock", "FLUSHALL", "FLUSHDB", "SET lock text", "RENAME lock other",
        "RENAME hash lock", "COPY hash lock REPLACE"]


@pytest.mark.parametrize("way", WAYS)
def test_the_program_is_told_at_once(server, watched, told, way):
    server.client().hset("hash", "field", "value")
    lock = watched(on_event=told)
    server.client().execute_command(*way.split())
    wait_until(lambda: told.find(Event.LOST), "the loss", timeout=SOON)
    assert lock.state == State.LOST
    assert lock.release() == Status.LOST


def test_an_evicted_lock_is_lost_at_once(server, watched):
    lock = watched()
    server.client().config_set("maxmemory-policy", "allkeys-random")
    server.client().config_set("maxmemory", 1)
    assert_lost_soon(lock)
    server.client().config_set("maxmemory", 0)


def test_a_lock_that_another_holds_by_now_is_lost(server, watched):
    lock = watched()
    with server.client().pipeline(transaction=True) as pipe:
        pipe.delete("lock")
        pipe.execute_command("DLOCK.ACQUIRE", "lock", "thief", "PX", 60_000)
        pipe.execute()
    assert_lost_soon(lock)
    assert lock.release() == Status.LOST
    assert Commands(server.observer).info()["token"] == b"thief"


def test_a_lock_without_renewal_is_lost_at_once_if_its_descriptor_is_asked_for(server, connect):
    lock = connect(server).hold(lease_ms=60_000)
    assert lock.lost_fd >= 0
    wait_until_tracked(server)
    server.client().delete("lock")
    assert_lost_soon(lock)


def test_renewals_and_other_holders_are_no_loss(server, connect):
    client = connect(server)
    lock = client.hold(lease_ms=60_000, renew_every_ms=30, mode=1)
    wait_until_tracked(server)
    for token in "abc":
        server.client().execute_command("DLOCK.ACQUIRE", "lock", token, "PX", 60_000, "SHARED")
        client.wait_for_renewals(3)
        assert lock.state == State.HELD
    server.client().execute_command("DLOCK.RELEASE", "lock", "a")
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK


def test_a_loss_is_told_after_the_connections_were_lost(server, watched):
    lock = watched()
    observer = server.client()
    for kind in ("normal", "pubsub"):
        observer.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    wait_until(lambda: present(server) == 1, "the session")
    wait_until_tracked(server)
    server.client().delete("lock")
    assert_lost_soon(lock)


def test_a_loss_that_happens_while_no_connection_is_there_is_told(server, watched):
    lock = watched()
    with server.client().pipeline(transaction=True) as pipe:
        for kind in ("normal", "pubsub"):
            pipe.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        pipe.delete("lock")
        pipe.execute()
    assert_lost_soon(lock)


def test_a_lock_that_nobody_wants_to_be_told_of_costs_no_command(server, connect):
    client = connect(server)
    lock = client.hold()
    time.sleep(0.2)
    assert lock.release() == Status.OK
    assert client.stats().commands == 2
    assert present(server) == 0


def test_a_lock_that_is_held_for_a_moment_costs_no_command(server, connect):
    """A busy machine may hold it for longer. Then another client goes on."""
    client, moments = connect(server), 0
    while moments < 100:
        lock, before, begin = client.lock(**RENEWED), client.stats().commands, time.monotonic()
        assert lock.acquire() == lock.release() == Status.OK
        if time.monotonic() - begin < MOMENT_S:
            moments += 1
            assert client.stats().commands == before + 2
        else:
            client = connect(server)


def test_a_server_needs_two_connections_however_many_locks_are_held(server, connect):
    client = connect(server)
    before = int(server.observer.info("clients")["connected_clients"])
    locks = [client.lock(f"lock:{i}", **RENEWED) for i in range(50)]
    for lock in locks:
        assert lock.acquire() == Status.OK
    wait_until(lambda: present(server) == 1, "the session")
    wait_until_tracked(server, 50)
    assert int(server.observer.info("clients")["connected_clients"]) <= before + 2


@pytest.mark.parametrize("rule", ["-dlock.session", "-dlock.watch", "-dlock.info"])
def test_without_permission_the_renewal_notices_the_loss(server, connect, rule):
    server.client().execute_command("ACL", "SETUSER", "app", "on", ">x", "~*", "&*", "+@all", rule)
    lock = connect(f"redis://app:x@127.0.0.1:{server.port}").lock(lease_ms=20_000,
                                                                   renew_every_ms=300)
    assert lock.acquire() == lock.extend() == Status.OK
    assert lock.state == State.HELD
    server.client().delete("lock")
    wait_until(lambda: lock.state == State.LOST, "the loss")
