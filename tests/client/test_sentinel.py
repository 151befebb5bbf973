"""Locks at the master that sentinels name: its death, and its successor."""

import threading
import time

import pytest

from support import figures
from support.acl import LOCKS, rules_for, set_user
from support.commands import Lock as Commands
from support.every_deployment import Deployment, EveryDeployment
from support.libdlock import Background, Client, Event, Handle, State, Status, Told
from support.sentinel import url_of
from support.server import free_port, stopped, wait_until
from support.waiting import wait_for_waiter, wait_for_waiters

IO_MS = 5000  # where an answer comes, it may be late
LEASE_MS = 60_000  # longer than any election
REPLICAS = 2
KEPT = 10  # locks, half of them sessions


class Worker(threading.Thread):
    """Takes one lock after the other, and notes when it got them. Each is a new one: of the last
    one the new master may not know that it was given back."""

    def __init__(self, dlock, number, is_over):
        super().__init__(daemon=True)
        self.dlock = dlock
        self.number = number
        self.is_over = is_over
        self.taken_at = []
        self.failure = None
        self.start()

    def run(self):
        while not self.is_over.is_set() and not self.failure:
            lock = Handle(self.dlock, f"worker:{self.number}:{time.monotonic_ns()}")
            status = lock.acquire(60_000)
            if status == Status.OK:
                self.taken_at.append(time.monotonic())
            else:
                self.failure = (status, lock.error)
            lock.free()
            time.sleep(0.002)


class Kept:
    """Locks that are renewed and that replicas know of, half of them sessions."""

    def __init__(self, url):
        self.told = Told()
        self.dlock = Client(url, on_event=self.told, io_timeout_ms=IO_MS)
        self.locks = {}
        for i in range(KEPT):
            lock = self.dlock.lock(f"kept:{i}", lease_ms=LEASE_MS, renew_every_ms=300,
                                   min_replicas=1, replica_timeout_ms=100, session=i % 2 == 1)
            wait_until(lambda: lock.acquire() == Status.OK, "a lock that a replica has")
            self.locks[f"kept:{i}"] = lock
        self.fences = self.fences_now()

    def fences_now(self):
        return {name: lock.fence for name, lock in self.locks.items()}

    def wait_for_renewals(self):
        """Of all of them, from now on."""
        enough = self.dlock.stats().renewed + 2 * KEPT

        def are_renewed():
            assert not [name for name in self.locks if self.told.find(Event.LOST, name)]
            states = {lock.state for lock in self.locks.values()}
            return states == {State.HELD} and self.dlock.stats().renewed >= enough
        wait_until(are_renewed, "that all are renewed", timeout=60)

    def seen_at(self, server, field):
        infos = {name: Commands(server.observer, name).info() for name in self.locks}
        return {name: info and info[field] for name, info in infos.items()}


class Change:
    """Of masters, while some locks are kept, one is held, one is awaited, and threads take others.
    Those that are kept or held are known to the replicas."""

    def __init__(self, dlock, sentinels):
        self.kept = Kept(url_of(*sentinels.sentinels))
        self.holder, self.waiter = dlock.lock(lease_ms=LEASE_MS), dlock.lock()
        self.idle = dlock.lock("idle")
        self.holder.acquire()
        self.first_fence = self.holder.fence
        master = sentinels.master
        master.observer.set("after", "that")  # WAIT is about one's own writes
        assert master.observer.execute_command("WAIT", 2, IO_MS) == 2
        self.waiting = Background(self.waiter.acquire, 60_000)
        wait_for_waiter(master)
        self.is_over = threading.Event()
        self.workers = [Worker(dlock, i, self.is_over) for i in range(8)]
        wait_until(lambda: all(len(w.taken_at) > 20 for w in self.workers), "some locks")
        self.begin = time.monotonic()

    def go_on_at(self, new):
        """What is seen there, from when it is known to be the master."""
        self.new, self.promoted = new, time.monotonic()
        wait_for_waiter(new)
        self.parked_at_new = Commands(new.observer).queue()
        wait_until(lambda: all(w.failure or w.taken_at[-1] > self.promoted for w in self.workers),
                   "locks of all at the new master")
        self.end()
        self.failures = [worker.failure for worker in self.workers if worker.failure]
        self.resumed = max(min(t for t in w.taken_at if t > self.promoted) for w in self.workers)
        self.holder_at_new = Commands(new.observer).info()["token"]
        self.extended = self.holder.extend()
        self.released = self.holder.release()
        self.granted = self.waiting.result()
        self.asked_once = self.idle.acquire()
        self.kept.wait_for_renewals()

    def end(self):
        self.is_over.set()
        for worker in self.workers:
            worker.join(60)
            assert not worker.is_alive(), "a worker hangs"

    def close(self):
        self.waiter.cancel()
        self.end()
        self.kept.dlock.free()


@pytest.fixture(scope="module", params=["killed", "replaced"])
def change(request, shared_sentinels):
    shared_sentinels.restore()
    old = shared_sentinels.master
    dlock = Client(url_of(*shared_sentinels.sentinels), io_timeout_ms=IO_MS)
    change = Change(dlock, shared_sentinels)
    try:
        if request.param == "killed":
            old.kill()
            change.go_on_at(shared_sentinels.wait_for_new_master(old))
        else:
            change.go_on_at(shared_sentinels.switch_master())
        figures.tell(f"Sentinel: the master is {request.param}, "
                     f"another one after {change.promoted - change.begin:.1f} s; 8 threads go on "
                     f"{change.resumed - change.promoted:.3f} s later at the latest; {KEPT} locks "
                     f"that are renewed, half of them sessions: 0 lost")
        yield change
    finally:
        change.close()
        dlock.free()


def test_acquires_go_on_at_the_new_master(change):
    assert not change.failures


def test_a_waiter_parked_at_the_old_master_is_parked_at_the_new_one(change):
    assert len(change.parked_at_new) == 1


def test_a_held_lock_is_held_at_the_new_master(change):
    assert change.holder_at_new == change.holder.token
    assert (change.extended, change.released) == (Status.OK, Status.OK)


def test_the_waiter_gets_its_lock_at_the_new_master(change):
    assert change.granted == Status.OK
    assert change.waiter.fence > change.first_fence


def test_who_asks_once_is_sent_on_to_the_new_master(change):
    assert change.asked_once == Status.OK


def test_no_lock_that_is_renewed_is_lost(change):
    kept = change.kept
    assert {event for event, *_ in kept.told.all} <= {Event.ACQUIRED, Event.SUSPECT}
    assert not any(lock.is_lost_by_fd() for lock in kept.locks.values())


def test_the_new_master_knows_the_locks_that_are_renewed_by_the_same_fence(change):
    kept = change.kept
    assert kept.seen_at(change.new, "fence") == kept.fences == kept.fences_now()


def test_a_session_hangs_on_a_connection_to_the_new_master(change):
    sessions = change.kept.seen_at(change.new, "session").values()
    assert [session > 0 for session in sessions] == [False, True] * (KEPT // 2)


def test_locks_that_are_renewed_are_given_back_at_the_new_master(change):
    assert {lock.release() for lock in change.kept.locks.values()} == {Status.OK}
    assert set(change.kept.seen_at(change.new, "fence").values()) == {None}


class TestAsEveryDeployment(EveryDeployment):
    @pytest.fixture
    def deployment(self, sentinels):
        return Deployment(url_of(*sentinels.sentinels), ["a", "{a}", "b"],
                          lambda name: [sentinels.master], replicas=REPLICAS)


def test_a_name_that_no_sentinel_knows(connect, sentinels):
    lock = connect(url_of(*sentinels.sentinels, name="wrong"), io_timeout_ms=IO_MS).lock()
    assert lock.acquire() == Status.UNREACHABLE
    assert "no master of that name" in lock.error
    assert "127.0.0.1:" in lock.error


def test_a_server_that_is_no_sentinel(connect, sentinels):
    lock = connect(url_of(sentinels.servers[0]), io_timeout_ms=IO_MS).lock()
    assert lock.acquire(10_000) == Status.PROTOCOL
    assert "SENTINEL" in lock.error


def test_one_sentinel_of_several_is_enough(connect, sentinels):
    lock = connect(url_of(free_port(), sentinels.sentinels[1], free_port()),
                   io_timeout_ms=IO_MS).lock("one is enough")
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.OK


def test_grants_and_renewals_that_enough_replicas_have(connect, sentinels):
    dlock = connect(url_of(*sentinels.sentinels), io_timeout_ms=IO_MS)
    lock = dlock.hold("known", min_replicas=1, lease_ms=60_000, renew_every_ms=50, wait_ms=20_000)
    wait_until(lambda: dlock.stats().renewed >= 3, "renewals")
    assert lock.extend() == Status.OK, lock.error
    assert lock.release() == Status.OK


def test_grants_that_all_replicas_have_survive_an_orderly_failover(connect, sentinels):
    """The old master goes on granting for about a second, and one replica stays with it: one
    acknowledgement would not do, and half of the locks of this test would be lost."""
    dlock = connect(url_of(*sentinels.sentinels), io_timeout_ms=IO_MS)
    granted, is_over = [], threading.Event()

    def take_one_after_the_other():
        while not is_over.is_set():
            name = f"acknowledged:{time.monotonic_ns()}"
            lock = dlock.lock(name, lease_ms=60_000, min_replicas=REPLICAS, replica_timeout_ms=200)
            if lock.acquire() == Status.OK:
                granted.append((name, lock.token))
            time.sleep(0.005)
    taking = Background(take_one_after_the_other)
    wait_until(lambda: len(granted) > 20, "some locks")
    new = sentinels.switch_master()
    sentinels.wait_for_master()
    count = len(granted)
    wait_until(lambda: len(granted) > count + 20, "some locks at the new master")
    is_over.set()
    taking.result()
    lost = [name for name, token in granted
            if (Commands(new.observer, name).info() or {}).get("token") != token]
    assert not lost, f"{len(lost)} of {len(granted)}"


def test_a_waiter_at_a_master_that_hangs_gets_the_lock_at_the_new_one(connect, sentinels):
    """The old one is there still, as far as its kernel can tell."""
    client = connect(url_of(*sentinels.sentinels), io_timeout_ms=1000)
    client.hold(lease_ms=4000, wait_ms=20_000)
    lock = client.lock(lease_ms=LEASE_MS)
    old = sentinels.master
    old.observer.execute_command("WAIT", REPLICAS, IO_MS)
    waiting = Background(lock.acquire, 60_000)
    wait_for_waiters(old.observer, 1)
    with stopped(old):
        new = sentinels.wait_for_new_master(old)
        assert waiting.result() == Status.OK
        assert Commands(new.observer).info()["token"] == lock.token
        assert lock.release() in (Status.OK, Status.IN_DOUBT)  # the reply may be late


def test_the_next_master_is_watched_after_a_failover(connect, sentinels):
    watcher = connect(url_of(*sentinels.sentinels)).watch()
    Commands(sentinels.master.observer).acquire("a")
    wait_until(lambda: watcher.now() == b"a", "the holder at the old master")
    new = sentinels.switch_master()
    new.observer.delete("lock")
    Commands(new.observer).acquire("b")
    wait_until(lambda: watcher.now() == b"b", "the holder at the new master")


def test_a_guarded_command_runs_at_the_master(connect, sentinels):
    lock = connect(url_of(*sentinels.sentinels), io_timeout_ms=IO_MS).hold(wait_ms=20_000)
    assert lock.guarded("SET", "stock", 41) == (Status.OK, b"OK")
    assert sentinels.master.observer.get("stock") == b"41"


def test_the_acl_rules_of_the_page_are_enough(connect, sentinels):
    for more, expected in (rules_for("Sentinel"), Status.OK), ([], Status.REFUSED):
        set_user(sentinels.master, LOCKS + more)
        lock = connect(url_of(*sentinels.sentinels, login="app:x@")).lock("lock:a")
        assert lock.acquire() == expected
