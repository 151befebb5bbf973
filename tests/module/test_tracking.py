"""Client-side caching: who has read a lock by DLOCK.INFO is told when its holders change."""

import pytest

from support.commands import Lock
from support.waiting import queue_up


class Tracker:
    """A connection that reads, and one that is told: CLIENT TRACKING with REDIRECT, in RESP2."""

    def __init__(self, server):
        self.told = server.client().pubsub()
        self.told.execute_command("CLIENT", "ID")
        told_id = self.told.connection.read_response()
        self.told.subscribe("__redis__:invalidate")
        assert self.told.get_message(timeout=50)["type"] == "subscribe"
        self.reader = server.client(single_connection_client=True)
        self.reader.execute_command("CLIENT", "TRACKING", "ON", "REDIRECT", told_id, "NOLOOP")

    def read(self, name="lock"):
        return self.reader.execute_command("DLOCK.INFO", name)

    def hear(self, timeout=50):
        """The names that have changed; None: all."""
        message = self.told.handle_message(self.told.parse_response(block=True, timeout=timeout))
        return message["data"]

    def hears_nothing(self):
        """Before what is sent on the same way now."""
        self.reader.publish("__redis__:invalidate", "nothing")
        return self.hear() == b"nothing"


@pytest.fixture
def tracker(server):
    return Tracker(server)


def acquire(client, token, *more):
    return client.execute_command("DLOCK.ACQUIRE", "lock", token, "PX", 60_000, *more)


def hand_over(client, clock):
    queue_up(clock.server, ["b"])
    Lock(client).release("a")


CHANGES = {
    # what happens, and what is told: the name, or that all have changed
    "release": (lambda client, clock: Lock(client).release("a"), [b"lock"]),
    "hand-over": (hand_over, [b"lock"]),
    "lease": (lambda client, clock: clock.advance(61), [b"lock"]),
    "delete": (lambda client, clock: client.delete("lock"), [b"lock"]),
    "unlink": (lambda client, clock: client.unlink("lock"), [b"lock"]),
    "overwrite": (lambda client, clock: client.set("lock", "text"), [b"lock"]),
    "rename": (lambda client, clock: client.rename("lock", "other"), [b"lock"]),
    "expire": (lambda client, clock: client.pexpire("lock", 1), [b"lock"]),
    "FLUSHALL": (lambda client, clock: client.flushall(), None),
    "FLUSHDB": (lambda client, clock: client.flushdb(), None),
}


@pytest.mark.parametrize("change, told", CHANGES.values(), ids=CHANGES.keys())
def test_who_has_read_a_held_lock_is_told_of(client, clock, tracker, change, told):
    acquire(client, "a")
    assert tracker.read() is not None
    change(client, clock)
    assert tracker.hear() == told


def test_who_has_read_a_free_lock_is_told_of_the_next_holder(client, tracker):
    assert tracker.read() is None
    acquire(client, "a")
    assert tracker.hear() == [b"lock"]


def test_who_has_read_a_shared_lock_is_told_of_one_more_holder_and_of_one_less(client, tracker):
    acquire(client, "a", "SHARED")
    tracker.read()
    acquire(client, "b", "SHARED")
    assert tracker.hear() == [b"lock"]
    tracker.read()
    client.execute_command("DLOCK.RELEASE", "lock", "a")
    assert tracker.hear() == [b"lock"]


def test_an_extension_is_no_change(client, tracker):
    acquire(client, "a")
    tracker.read()
    client.execute_command("DLOCK.EXTEND", "lock", "a", "PX", 70_000)
    acquire(client, "a")
    assert tracker.hears_nothing()
    client.delete("lock")
    assert tracker.hear() == [b"lock"]
