"""Locks that are renewed, and sessions, while a master dies or is replaced."""

import pytest

from support import figures
from support.commands import Lock as Commands
from support.libdlock import Client, Event, State, Status, Told
from support.sentinel import SentinelSet, url_of
from support.server import running, wait_until

IO_MS = 5000  # where an answer comes, it may be late
LEASE_MS = 30_000  # longer than any election
RENEW_MS = 300
REPLICA_MS = 100  # less than a new master takes to get its replicas
COUNT = 20


@pytest.fixture(scope="module")
def sentinels():
    with running(SentinelSet()) as sentinels:
        yield sentinels


class Kept:
    """Locks that replicas know of, half of them sessions, and what becomes of them."""

    def __init__(self, sentinels):
        self.told = Told()
        self.sentinels, self.first_epoch = sentinels, sentinels.epoch
        url = url_of(*sentinels.sentinels)
        self.dlock = Client(url, on_event=self.told, io_timeout_ms=IO_MS)
        self.locks = {}
        for i in range(COUNT):
            lock = self.dlock.lock(f"kept:{i}", lease_ms=LEASE_MS, renew_every_ms=RENEW_MS,
                                   min_replicas=1, replica_timeout_ms=REPLICA_MS,
                                   session=i % 2 == 1)
            wait_until(lambda: lock.acquire() == Status.OK, "a lock that a replica has")
            self.locks[f"kept:{i}"] = lock
        self.fences = self.fences_now()
        self.wait_for_renewals()

    def fences_now(self):
        return {name: lock.fence for name, lock in self.locks.items()}

    def wait_for_renewals(self):
        """Of all of them, from now on."""
        enough = self.dlock.stats().renewed + 3 * COUNT

        def are_renewed():
            lost = [name for name in self.locks if self.told.find(Event.LOST, name)]
            assert not lost, f"after {self.sentinels.epoch - self.first_epoch} failovers"
            states = {lock.state for lock in self.locks.values()}
            return states == {State.HELD} and self.dlock.stats().renewed >= enough
        wait_until(are_renewed, "that all are renewed", timeout=60)

    def seen_at(self, server):
        infos = {name: Commands(server.observer, name).info() for name in self.locks}
        return {name: info and info["fence"] for name, info in infos.items()}


@pytest.fixture(scope="module", params=["killed", "replaced"])
def kept(request, sentinels):
    old = sentinels.wait_for_master()
    sentinels.wait_until_all_know_all()
    kept = Kept(sentinels)
    try:
        if request.param == "killed":
            old.kill()
            sentinels.wait_for_new_master(old)
        else:
            sentinels.switch_master()
        kept.wait_for_renewals()
        kept.new = sentinels.master  # a busy machine may have failed over once more
        figures.tell(f"Sentinel: the master is {request.param}; {COUNT} locks that are renewed, "
                     f"half of them sessions: 0 lost")
        yield kept
    finally:
        kept.dlock.free()
        if request.param == "killed":
            sentinels.revive(old)


def test_none_is_lost(kept):
    assert {event for event, *_ in kept.told.all} <= {Event.ACQUIRED, Event.SUSPECT}
    assert not any(lock.is_lost_by_fd() for lock in kept.locks.values())


def test_the_new_master_knows_them_by_the_same_fence(kept):
    assert kept.seen_at(kept.new) == kept.fences == kept.fences_now()


def test_a_session_hangs_on_a_connection_to_the_new_master(kept):
    sessions = [Commands(kept.new.observer, name).info()["session"] for name in kept.locks]
    assert [session > 0 for session in sessions] == [False, True] * (COUNT // 2)


def test_they_are_given_back_at_the_new_master(kept):
    assert {lock.release() for lock in kept.locks.values()} == {Status.OK}
    assert set(kept.seen_at(kept.new).values()) == {None}
