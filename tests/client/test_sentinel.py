"""Locks at the master that sentinels name: its death, its successor, sentinels that are wrong."""

import os
import threading
import time

import pytest

from support import figures
from support.commands import Lock as Commands
from support.every_deployment import Deployment, EveryDeployment
from support.fake_server import CUT, SILENCE, resp
from support.libdlock import Background, Client, Lock, Status
from support.sentinel import NAME, SentinelSet, url_of
from support.server import free_port, running, wait_until
from support.waiting import wait_for_waiter

IO_MS = 5000  # where an answer comes, it may be late
REPLICAS = 2
ELECTION_S = 15  # generous: it takes three seconds or so
SLOW_S = 2  # of a busy machine; who does not look every second waits for IO_MS or longer


# -- real ones ------------------------------------------------------------------------------------


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
            lock = Lock(self.dlock, f"worker:{self.number}:{time.monotonic_ns()}")
            status = lock.acquire(60_000)
            if status == Status.OK:
                self.taken_at.append(time.monotonic())
            else:
                self.failure = (status, lock.error)
            lock.free()
            time.sleep(0.002)


class Change:
    """Of masters, while one lock is held, one is awaited, and threads take others. Those two are
    known to the replicas."""

    def __init__(self, dlock, sentinels):
        self.sentinels = sentinels
        self.holder, self.waiter = dlock.lock(lease_ms=60_000), dlock.lock()
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
        self.promoted = time.monotonic()
        wait_for_waiter(new)
        self.parked = time.monotonic()
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

    def end(self):
        self.is_over.set()
        for worker in self.workers:
            worker.join(60)
            assert not worker.is_alive(), "a worker hangs"


@pytest.fixture(scope="module")
def sentinels():
    with running(SentinelSet()) as sentinels:
        yield sentinels


@pytest.fixture(scope="module", params=["killed", "replaced"])
def change(request, sentinels):
    old = sentinels.wait_for_master()
    sentinels.wait_until_all_know_all()
    dlock = Client(url_of(*sentinels.sentinels), io_timeout_ms=IO_MS)
    change = Change(dlock, sentinels)
    try:
        if request.param == "killed":
            old.kill()
            change.go_on_at(sentinels.wait_for_new_master(old))
        else:
            change.go_on_at(sentinels.switch_master())
        figures.tell(f"Sentinel: the master is {request.param}, "
                     f"another one after {change.promoted - change.begin:.1f} s; 8 threads go on "
                     f"{change.resumed - change.promoted:.3f} s later at the latest")
        yield change
    finally:
        change.waiter.cancel()
        change.end()
        dlock.free()
        if request.param == "killed":
            sentinels.revive(old)


def test_acquires_go_on_at_the_new_master(change):
    assert not change.failures
    assert change.resumed - change.begin < ELECTION_S


def test_a_waiter_parked_at_the_old_master_is_parked_at_the_new_one(change):
    assert change.parked - change.promoted < 1 + SLOW_S


def test_a_held_lock_is_held_at_the_new_master(change):
    assert change.holder_at_new == change.holder.token
    assert (change.extended, change.released) == (Status.OK, Status.OK)


def test_the_waiter_gets_its_lock_at_the_new_master(change):
    assert change.granted == Status.OK
    assert change.waiter.fence > change.first_fence


def test_who_asks_once_is_sent_on_to_the_new_master(change):
    assert change.asked_once == Status.OK


class TestAsEveryDeployment(EveryDeployment):
    @pytest.fixture
    def deployment(self, sentinels):
        sentinels.wait_for_master()
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
    sentinels.wait_for_master()
    dlock = connect(url_of(*sentinels.sentinels), io_timeout_ms=IO_MS)
    lock = dlock.lock("known", min_replicas=1, lease_ms=60_000, renew_every_ms=50)
    assert lock.acquire(20_000) == Status.OK, lock.error
    wait_until(lambda: dlock.stats().renewed >= 3, "renewals")
    assert lock.extend() == Status.OK, lock.error
    assert lock.release() == Status.OK


def test_grants_that_all_replicas_have_survive_an_orderly_failover(connect, sentinels):
    """The old master goes on granting for about a second, and one replica stays with it: one
    acknowledgement would not do, and half of the locks of this test would be lost."""
    sentinels.wait_for_master()
    sentinels.wait_until_all_know_all()
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


# -- false ones -----------------------------------------------------------------------------------


@pytest.fixture
def fake_sentinel(fake_server):
    """fake_sentinel(master): one that names this one; master may be changed. Or bytes: what it
    answers to everything."""

    def make(master, epoch=1):
        def answer(words):
            if sentinel.master in (SILENCE, CUT) or isinstance(sentinel.master, bytes):
                return sentinel.master
            if words[1] == b"MASTER":
                return resp(["name", NAME, "config-epoch", str(epoch), "flags", "master"])
            return resp(["127.0.0.1", str(sentinel.master.port)])
        sentinel = fake_server(answer)
        sentinel.master = master
        return sentinel
    return make


@pytest.fixture
def fake_master(fake_server):
    """fake_master(): grants everything; what it says to ROLE and DLOCK.ACQUIRE may be changed."""

    def make(role="master"):
        def answer(words):
            if words[0] == b"AUTH":
                return b"+OK\r\n"
            if words[0] == b"ROLE":
                return resp([master.role, 0, []])
            return resp(master.reply)
        master = fake_server(answer)
        master.role, master.reply = role, 1
        return master
    return make


@pytest.fixture
def lock_at(fake_server, connect):
    """Freed before the servers that it talks to."""
    return lambda *sentinels, **url: connect(url_of(*sentinels, **url), io_timeout_ms=1000).lock()


@pytest.mark.alone
def test_no_sentinel_is_there(lock_at):
    port = free_port()
    lock = lock_at(port, free_port())
    status, took_ms = lock.timed_acquire(100)
    assert status == Status.UNREACHABLE
    assert f"127.0.0.1:{port}" in lock.error and "refused" in lock.error
    assert 100 <= took_ms < 1000


@pytest.mark.parametrize("garbage", [
    b"+OK\r\n", b":1\r\n", b"$3\r\nfoo\r\n", b"*0\r\n", b"*1\r\n$1\r\nx\r\n", b"*2\r\n:1\r\n:2\r\n",
    b"*2\r\n$0\r\n\r\n$4\r\n6379\r\n", b"*2\r\n$1\r\nx\r\n$5\r\n65536\r\n",
    b"*2\r\n$1\r\nx\r\n$1\r\n0\r\n", b"*2\r\n$1\r\nx\r\n$5\r\n6379x\r\n", b"*-1\r\n",
    b"*2\r\n*0\r\n*0\r\n", CUT], ids=repr)
def test_what_makes_no_sense_names_no_master(lock_at, fake_sentinel, fake_master, garbage):
    mad = fake_sentinel(garbage)
    lock = lock_at(mad)
    assert lock.acquire() == Status.UNREACHABLE
    assert f"127.0.0.1:{mad.port}: " in lock.error
    master = fake_master()
    lock = lock_at(mad, fake_sentinel(master))
    assert lock.acquire() == Status.OK
    assert len(master.asked("DLOCK.ACQUIRE")) == 1


def test_what_is_not_the_protocol_at_all(lock_at, fake_sentinel):
    lock = lock_at(fake_sentinel(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert lock.acquire(10_000) == Status.PROTOCOL


@pytest.mark.alone
def test_a_silent_sentinel_does_not_hold_up_the_others(lock_at, fake_sentinel, fake_master):
    lock = lock_at(fake_sentinel(SILENCE), fake_sentinel(fake_master()))
    status, took_ms = lock.timed_acquire()
    assert status == Status.OK
    assert took_ms < 500
    lock.release()


@pytest.mark.alone
def test_a_silent_sentinel_alone(lock_at, fake_sentinel):
    lock = lock_at(fake_sentinel(SILENCE))
    status, took_ms = lock.timed_acquire()
    assert status == Status.UNREACHABLE, "nobody was asked for the lock"
    assert took_ms < 1500


@pytest.mark.parametrize("is_first", [False, True])
def test_the_newest_configuration_counts(lock_at, fake_sentinel, fake_master, is_first):
    """A sentinel that was cut off still names the old master."""
    old, new = fake_master(), fake_master()
    sentinels = [fake_sentinel(old, epoch=6), fake_sentinel(new, epoch=7)]
    lock = lock_at(*reversed(sentinels) if is_first else sentinels)
    assert lock.acquire() == Status.OK
    assert len(new.asked("DLOCK.ACQUIRE")) == 1
    assert not old.requests


def test_a_replica_is_not_asked_for_a_lock(lock_at, fake_sentinel, fake_master):
    replica = fake_master("slave")
    lock = lock_at(fake_sentinel(replica))
    assert lock.acquire() == Status.UNREACHABLE
    assert f"127.0.0.1:{replica.port}" in lock.error and "not the master" in lock.error
    assert not replica.asked("DLOCK.ACQUIRE")


@pytest.mark.parametrize("refusal", ["READONLY no", "UNBLOCKED no", "MASTERDOWN no", "LOADING no"])
def test_a_master_that_refuses_is_asked_for_again_at_once(lock_at, fake_sentinel, fake_master,
                                                          refusal):
    old, new = fake_master(), fake_master()
    sentinel = fake_sentinel(old)
    lock = lock_at(sentinel)
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.OK
    old.reply, sentinel.master = Exception(refusal), new
    time.sleep(0.05)  # sentinels are not asked more often than this
    assert lock.acquire() == Status.OK, lock.error
    assert len(new.asked("DLOCK.ACQUIRE")) == 1


def test_nothing_is_left_of_old_masters(connect, fake_sentinel, fake_master):
    """Of their connections, while some are held by sessions and others by nobody."""
    masters = [fake_master(), fake_master()]
    sentinel = fake_sentinel(masters[0])
    dlock = connect(url_of(sentinel), io_timeout_ms=IO_MS)
    kept = [dlock.lock(f"kept{i}", lease_ms=60_000, renew_every_ms=20, session=i == 0)
            for i in range(2)]
    lock = dlock.lock()
    for each in kept:
        assert each.acquire() == Status.OK
    counts = []
    for i in range(20):
        new, old = masters[(i + 1) % 2], masters[i % 2]
        new.role, new.reply, sentinel.master = "master", 1, new
        old.role, old.reply = "slave", Exception("READONLY no")
        old.break_connections()
        assert lock.acquire(20_000) == Status.OK, lock.error
        assert lock.release() == Status.OK
        renewed = len(new.asked("DLOCK.EXTEND"))
        wait_until(lambda: len(new.asked("DLOCK.EXTEND")) > renewed + 2, "renewals")
        counts.append(len(os.listdir("/proc/self/fd")))
    assert max(counts[-5:]) <= max(counts[:5]) + 4, counts
    assert {each.release() for each in kept} == {Status.OK}


def test_a_refusal_says_who_refused(lock_at, fake_sentinel, fake_master):
    master = fake_master()
    master.reply = Exception("READONLY no")
    lock = lock_at(fake_sentinel(master))
    assert lock.acquire() == Status.REFUSED
    assert lock.error == f"127.0.0.1:{master.port}: READONLY no"


def test_a_known_master_does_without_sentinels(lock_at, fake_sentinel, fake_master):
    master = fake_master()
    sentinel = fake_sentinel(master)
    lock = lock_at(sentinel)
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.OK
    sentinel.close()
    master.reply = Exception("LOADING it is")
    assert lock.acquire() == Status.REFUSED
    master.reply = 1
    assert lock.acquire(5000) == Status.OK


def test_sentinels_are_not_asked_too_often(connect, fake_sentinel):
    sentinel = fake_sentinel(type("Dead", (), {"port": free_port()}))
    dlock = connect(url_of(sentinel), io_timeout_ms=1000, spin_min_ms=1, spin_random_ms=1)
    waiting = [Background(dlock.lock().acquire, 400) for _ in range(8)]
    assert {each.result() for each in waiting} == {Status.UNREACHABLE}
    asked = len([words for words in sentinel.requests if words[1] == b"GET-MASTER-ADDR-BY-NAME"])
    assert 2 < asked < 40


def test_each_gets_its_own_login(lock_at, fake_server, fake_master):
    master = fake_master()

    def answer(words):
        if words[0] == b"AUTH":
            return b"+OK\r\n"
        return resp(["127.0.0.1", str(master.port)])
    sentinel = fake_server(answer)
    lock = lock_at(sentinel, login="me:secret@", options="?sentinel_password=other")
    assert lock.acquire() == Status.OK
    assert master.asked("AUTH") == [[b"AUTH", b"me", b"secret"]]
    assert sentinel.asked("AUTH") == [[b"AUTH", b"other"]]


def test_a_sentinel_that_lets_nobody_in(lock_at, fake_server):
    lock = lock_at(fake_server(lambda words: b"-NOAUTH Authentication required.\r\n"))
    assert lock.acquire(10_000) == Status.REFUSED
    assert "NOAUTH" in lock.error
