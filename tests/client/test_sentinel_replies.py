"""What sentinels and the masters that they name may reply, and what makes no sense."""

import os
import time

import pytest

from support.fake_server import CUT, SILENCE, resp
from support.libdlock import Background, Status
from support.sentinel import NAME, url_of
from support.server import free_port, wait_until

PATIENCE_MS = 20_000  # who waits that long for a sentinel does not end in time
PAUSE_MS = 20  # of router.c


@pytest.fixture
def fake_sentinel(fake_server):
    """fake_sentinel(master): one that names this one; master may be changed. Or bytes: what it
    answers to everything."""

    def make(master):
        def answer(words):
            if sentinel.master in (SILENCE, CUT) or isinstance(sentinel.master, bytes):
                return sentinel.master
            if words[1] == b"MASTER":
                return resp(["name", NAME, "config-epoch", "1", "flags", "master"])
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
def lock_at(connect):
    return lambda *sentinels, **url: connect(url_of(*sentinels, **url)).lock()


def test_no_sentinel_is_there(lock_at):
    port = free_port()
    lock = lock_at(port, free_port())
    status, took_ms = lock.timed_acquire(100)
    assert status == Status.UNREACHABLE
    assert f"127.0.0.1:{port}" in lock.error and "refused" in lock.error
    assert took_ms >= 100


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


def test_a_silent_sentinel_does_not_hold_up_the_others(lock_at, fake_sentinel, fake_master):
    lock = lock_at(fake_sentinel(SILENCE), fake_sentinel(fake_master()))
    status, took_ms = lock.timed_acquire()
    assert status == Status.OK
    assert took_ms < PATIENCE_MS, "its timeout"
    assert lock.release() == Status.OK


def test_a_silent_sentinel_alone(connect, fake_sentinel):
    lock = connect(url_of(fake_sentinel(SILENCE)), io_timeout_ms=200).lock()
    assert lock.acquire() == Status.UNREACHABLE, "nobody was asked for the lock"


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
    time.sleep(2 * PAUSE_MS / 1000)  # sentinels are not asked more often
    assert lock.acquire() == Status.OK, lock.error
    assert len(new.asked("DLOCK.ACQUIRE")) == 1


def test_nothing_is_left_of_old_masters(connect, fake_sentinel, fake_master):
    """Of their connections, while some are held by sessions and others by nobody."""
    masters = [fake_master(), fake_master()]
    sentinel = fake_sentinel(masters[0])
    dlock = connect(url_of(sentinel))
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
    dlock = connect(url_of(sentinel), spin_min_ms=1, spin_random_ms=1)
    begin = time.monotonic()
    waiting = [Background(dlock.lock().acquire, 3000) for _ in range(8)]
    assert {each.result() for each in waiting} == {Status.UNREACHABLE}
    pauses = (time.monotonic() - begin) * 1000 / PAUSE_MS
    asked = len([words for words in sentinel.requests if words[1] == b"GET-MASTER-ADDR-BY-NAME"])
    assert 1 < asked <= pauses + 1


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
