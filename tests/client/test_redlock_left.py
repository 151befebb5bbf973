"""What a server says late, to those who did not wait for it, must not do any harm."""

import contextlib
import threading
import time

import pytest

from support.commands import Lock as Commands
from support.fake_server import resp
from support.libdlock import State, Status
from support.proxy import Gate, Proxy
from support.server import stopped, wait_until

LONG_IO_MS = 60_000
LEFT_CROWD = 64


@pytest.fixture
def servers(start_server):
    return [start_server() for _ in range(3)]


@pytest.fixture
def through():
    with contextlib.ExitStack() as stack:
        def make(server, gates=None):
            made = Proxy(server.port, gates)
            stack.callback(made.close)
            return made
        yield make


@pytest.fixture
def connect(servers, through, connect):
    return connect


def test_a_late_farewell_does_not_take_back_a_vote_that_counts(connect, servers, through):
    """C's answer to the acquire is held up, and C is extended on another connection, so C is one of
    the two that hold the lock when A is cut off. If the lock were released at C then, because its
    answer is late, another client would get it from A and C."""
    a, b, c = servers
    to_a, to_c = through(a), through(c, {0: Gate(answered=True)})
    holder = connect([to_a, b, to_c], io_timeout_ms=200)
    lock = holder.lock(lease_ms=4000, renew_every_ms=400)
    assert lock.acquire() == Status.OK
    time.sleep(0.6)  # a renewal by all three
    to_a.hold_back()
    wait_until(lambda: Commands(a.observer, "lock").info() is None, "the end of the lease at A")
    time.sleep(0.6)  # a renewal by B and C, if C counts
    other = holder.lock("other")
    other.acquire()  # looks at what was left
    thief = connect([a, b, c]).lock()
    status = thief.acquire(1000)
    assert not (status == Status.OK and lock.state == State.HELD), \
        f"two hold it; the first for {lock.remaining_ms} ms more"


class Later:
    """Answers after a while, on each connection."""

    def __init__(self, pause):
        self.pause = pause

    def __call__(self, words):
        time.sleep(self.pause)
        return resp(time.time_ns() // 1000 if words[0] == b"DLOCK.ACQUIRE" else 1)


def share_asked(dlock, slow, rounds=10):
    """Of so many acquires, how many were asked of the slow one as well."""
    lock, before = dlock.lock("calm"), len(slow.asked("DLOCK.ACQUIRE"))
    for _ in range(rounds):
        assert lock.acquire(1000) == Status.OK
        time.sleep(0.05)
        assert lock.release() == Status.OK
        time.sleep(0.05)
    return (len(slow.asked("DLOCK.ACQUIRE")) - before) / rounds


@pytest.mark.alone
def test_who_is_slow_but_well_is_asked_again_after_a_bad_moment(connect, servers, fake_server):
    """It answers each request, 20 ms after the others: nobody waits for it, but it is heard."""
    slow = fake_server(Later(0.02))
    dlock = connect([slow, *servers[:2]], io_timeout_ms=200)
    assert share_asked(dlock, slow) > 0.8
    slow.answer.pause = 1  # the bad moment
    wait_until(lambda: share_asked(dlock, slow) < 0.8, "it to be left alone")
    slow.answer.pause = 0.02
    wait_until(lambda: share_asked(dlock, slow) > 0.8, "it to be asked again")


@pytest.mark.alone
def test_who_is_slow_but_well_is_not_left_alone_under_load(connect, servers, fake_server):
    """50 ms later than the others, without a failure: many answers are outstanding."""
    slow = fake_server(Later(0.05))
    dlock = connect([slow, *servers[:2]], io_timeout_ms=1000)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        lock = dlock.lock("fast")
        assert lock.acquire(1000) == Status.OK
        assert lock.release() == Status.OK
    wait_until(lambda: share_asked(dlock, slow) > 0.8, "it to be asked each time")


def test_a_release_is_sent_though_many_answers_have_not_come(connect, servers):
    """C has granted these locks. While it is stopped for a moment, others are left there; it must
    hear of the releases of the first all the same."""
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    first = [dlock.lock(f"first-{i}", lease_ms=LONG_IO_MS) for i in range(10)]
    for lock in first:
        assert lock.acquire() == Status.OK
    stop = servers[2]
    wait_until(lambda: stop.observer.dbsize() == 10, "all grants")
    for lock in first:  # their answers are taken
        assert lock.extend() == Status.OK
    others = [dlock.lock(f"other-{i}", lease_ms=LONG_IO_MS) for i in range(LEFT_CROWD)]
    time.sleep(0.1)
    with stopped(stop):
        for lock in others:
            assert lock.acquire() == Status.OK
        for lock in first:
            assert lock.release() == Status.OK
        for lock in others:
            assert lock.release() == Status.OK
    wait_until(lambda: stop.observer.dbsize() == 0, "all to be given back, long before their lease")


def test_two_locks_with_one_token_each_go_their_own_way(connect, servers, fake_server):
    """The same chosen token for two names: the release of one must not go the way of the other,
    where it could overtake its own acquire."""
    is_open, ways = threading.Event(), []

    def answer(words):
        ways.append((threading.get_ident(), words[:2]))  # a thread for each connection
        is_open.wait()
        return resp(time.time_ns() // 1000 if words[0] == b"DLOCK.ACQUIRE" else 1)

    slow = fake_server(answer)
    dlock = connect([*servers[:2], slow], io_timeout_ms=LONG_IO_MS)
    locks = [dlock.lock(name, token="mine", lease_ms=LONG_IO_MS) for name in ("one", "two")]
    both = [threading.Thread(target=lock.acquire) for lock in locks]
    with stopped(servers[1]):  # so that both are under way at the same time
        for thread in both:
            thread.start()
        wait_until(lambda: len(ways) == 2, "both under way")
    for thread in both:
        thread.join()
    for lock in locks:
        assert lock.release() == Status.OK
    is_open.set()
    wait_until(lambda: len(ways) == 4, "the releases")
    way = {tuple(words): connection for connection, words in ways}
    for name in b"one", b"two":
        assert way[b"DLOCK.RELEASE", name] == way[b"DLOCK.ACQUIRE", name], name


def test_what_is_given_back_before_another_attempt_goes_the_same_way(connect, servers, through):
    """A lock that is handed on with too little of its lease is asked for with a new token, and the
    old one is given back before: on the connection of its acquire at C."""
    a, b, c = servers
    gate = Gate(asked=True)
    to_c = through(c, {0: gate})
    dlock = connect([a, b, to_c], io_timeout_ms=LONG_IO_MS, hotspot_hand_on=3)
    dlock.hotspot_add("lock")
    first, second = dlock.lock(lease_ms=10_000), dlock.lock(lease_ms=60_000)
    assert first.acquire() == Status.OK
    waiter = threading.Thread(target=second.acquire, args=(20_000,))
    waiter.start()
    wait_until(lambda: dlock.stats().waiting == 1, "the second in line")
    assert first.release() == Status.OK
    waiter.join()
    assert dlock.stats().hand_ons == 1
    assert second.release() == Status.OK
    time.sleep(1)  # what goes another way is there by now
    gate.open()
    time.sleep(0.5)
    assert c.observer.keys("*") == [], "the old token has it for a lease"
