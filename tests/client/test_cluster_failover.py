"""A node of a cluster dies, or hands over to its replica, while a lock is held and awaited."""

import time

import pytest

from support import figures
from support.cluster import Cluster
from support.commands import Lock as Commands
from support.libdlock import Background, Client, State, Status
from support.server import running
from support.waiting import wait_for_waiter

IO_MS = 5000  # where an answer comes, it may be late


class Change:
    """Of the master of one lock, which is held and awaited, and which its replica knows."""

    def __init__(self, cluster, dlock, number):
        self.cluster = cluster
        self.replica = cluster.replicas[number]
        self.key = cluster.key_on(number)
        self.holder, self.waiter = dlock.lock(self.key, lease_ms=60_000), dlock.lock(self.key)
        self.elsewhere = dlock.lock(cluster.key_on(2))
        self.idle = dlock.lock("{%s}:idle" % self.key)
        self.dlock = dlock
        self.kept = dlock.lock("{%s}:kept" % self.key, lease_ms=60_000, renew_every_ms=500)
        self.several = dlock.lock(["{%s}:a" % self.key, "{%s}:b" % self.key], lease_ms=60_000,
                                  renew_every_ms=500)
        self.slots = dlock.lock([self.key + ":c", "{%s}:d" % self.key], lease_ms=60_000,
                                renew_every_ms=500)
        for lock in (self.kept, self.several, self.slots):
            assert lock.acquire() == Status.OK, lock.error
        self.holder.acquire()
        self.first_fence = self.holder.fence
        master = cluster.nodes[number]
        master.observer.set("{%s}:after" % self.key, "that")  # WAIT is about one's own writes
        assert master.observer.execute_command("WAIT", 1, IO_MS) == 1
        self.waiting = Background(self.waiter.acquire, 60_000)
        wait_for_waiter(master, self.key)
        self.begin = time.monotonic()

    def go_on(self, kind):
        promoted = time.monotonic()
        wait_for_waiter(self.replica, self.key)
        parked_s = time.monotonic() - promoted
        self.parked_at_new = Commands(self.replica.observer, self.key).queue()
        self.asked_once = self.idle.acquire()
        self.asked_elsewhere = self.elsewhere.acquire()
        self.extended = self.holder.extend()
        self.released = self.holder.release()
        self.granted = self.waiting.result()
        self.dlock.wait_for_renewals(6)
        figures.tell(f"Cluster: the master is {kind}, another one after "
                     f"{promoted - self.begin:.1f} s; a waiter is parked there "
                     f"{parked_s:.3f} s later")


@pytest.fixture(scope="module")
def cluster():
    with running(Cluster(masters=3, replicas=3)) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=["replaced", "killed"])
def change(request, cluster):
    dlock = Client(f"redis+cluster://127.0.0.1:{cluster.nodes[2].port}", io_timeout_ms=IO_MS)
    number = ["replaced", "killed"].index(request.param)
    change = Change(cluster, dlock, number)
    try:
        if request.param == "killed":
            cluster.nodes[number].kill()
        else:
            change.replica.observer.execute_command("CLUSTER", "FAILOVER")
        cluster.wait_for_promotion(number)
        change.go_on(request.param)
        yield change
    finally:
        change.waiter.cancel()
        change.waiting.result()
        dlock.free()


def test_a_waiter_parked_at_the_old_master_is_parked_at_the_new_one(change):
    assert len(change.parked_at_new) == 1


def test_a_held_lock_is_held_at_the_new_master(change):
    assert (change.extended, change.released) == (Status.OK, Status.OK)


def test_the_waiter_gets_its_lock_at_the_new_master(change):
    assert change.granted == Status.OK
    assert change.waiter.fence > change.first_fence


def test_who_asks_once_gets_an_answer(change):
    assert change.asked_once == Status.OK
    assert change.asked_elsewhere == Status.OK


def test_a_lock_that_is_renewed_is_kept(change):
    assert change.kept.state == State.HELD
    info = Commands(change.replica.observer, "{%s}:kept" % change.key).info()
    assert (info["token"], info["fence"]) == (change.kept.token, change.kept.fence)


@pytest.mark.parametrize("which", ["several", "slots"])
def test_a_lock_of_several_names_is_kept(change, which):
    lock = getattr(change, which)
    assert lock.extend() == Status.OK, lock.error
    assert lock.state == State.HELD
    assert lock.release() == Status.OK
