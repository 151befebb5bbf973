"""A waiter notices within seconds that its server hangs or is gone, and looks for another; if it is
the same server that comes back, or if only the connection was lost, the waiter keeps its place."""

import os
import time

import pytest

from support.commands import Lock as Commands
from support.libdlock import Background, State, Status, assert_in_time
from support.proxy import Gate
from support.sentinel import SentinelSet, url_of
from support.server import running, stopped, wait_until
from support.waiting import Waiting, wait_for_waiters

WAIT_MS = 100_000
LEASE_MS = 600_000
IO_MS = 300
NOTICED_S = 10  # a probe every two seconds, a timeout, and a machine that is busy


def hold(server, token="holder"):
    assert Commands(server.observer).acquire(token, LEASE_MS)


def tokens_in_line(server):
    return [each["token"] for each in Commands(server.observer).queue() or []]


@pytest.fixture
def impatient(connect):
    return lambda to, **options: connect(to, io_timeout_ms=IO_MS, **options)


@pytest.fixture
def wait_in_line(impatient):
    """wait_in_line(client, **options): a handle, and its acquire, which waits. Whoever still waits
    at the end of the test is told to stop."""
    begun = []

    def begin(client, **options):
        lock = client.lock(**{"lease_ms": LEASE_MS, **options})
        begun.append((lock, Background(lock.acquire, WAIT_MS)))
        return begun[-1]

    yield begin
    for lock, waiting in begun:
        if waiting.is_running():
            lock.cancel()
            waiting.result()


# -- a server that hangs --------------------------------------------------------------------------


@pytest.mark.parametrize("hangs_s", [1, 6, 15])
def test_a_server_that_hangs_and_comes_back_gives_waiters_the_lock_in_their_order(
        impatient, wait_in_line, server, hangs_s):
    hold(server)
    lock, waiting = wait_in_line(impatient(server))
    wait_for_waiters(server.observer, 1)
    behind = Waiting(server, "behind")
    wait_for_waiters(server.observer, 2)
    with stopped(server):
        time.sleep(hangs_s)  # so long it hangs, which the waiter notices or not
    wait_until(lambda: len(tokens_in_line(server)) == 2, "that both are in line")
    Commands(server.observer).release("holder")
    assert waiting.result() == Status.OK
    assert Commands(server.observer).info()["token"] == lock.token
    assert lock.release() == Status.OK
    assert behind.answer() > 0


def test_a_server_that_hangs_takes_no_more_connections_than_before(
        impatient, wait_in_line, server):
    hold(server)
    client = impatient(server)
    waiters = []
    for count in range(1, 11):
        waiters.append(wait_in_line(client))
        wait_for_waiters(server.observer, count)
    before = len(os.listdir("/proc/self/fd"))
    with stopped(server):
        time.sleep(7)  # several probes
        assert len(os.listdir("/proc/self/fd")) <= before + 2
    Commands(server.observer).release("holder")
    for lock, waiting in waiters:
        wait_until(lambda: lock.state == State.HELD, "its turn")
        assert waiting.result() == Status.OK
        assert lock.release() == Status.OK


def test_a_wait_ends_in_time_at_a_server_that_hangs(impatient, server):
    hold(server)
    client = impatient(server)
    lock = client.lock(lease_ms=LEASE_MS)
    assert lock.acquire(100) == Status.TIMEOUT  # it will be parked at once from now on

    def late_ms():
        waiting = Background(lock.timed_acquire, 3000)
        wait_for_waiters(server.observer, 1)
        with stopped(server):
            status, took_ms = waiting.result()
        assert status == Status.IN_DOUBT
        wait_for_waiters(server.observer, 0)
        return took_ms - 3000

    assert_in_time(late_ms, IO_MS + 200)


def test_a_waiter_at_a_master_that_hangs_gets_the_lock_at_the_new_one(connect, wait_in_line):
    """The old one is there still, as far as its kernel can tell."""
    with running(SentinelSet()) as deployment:
        client = connect(url_of(*deployment.sentinels), io_timeout_ms=1000)
        held = client.lock(lease_ms=3000)
        assert held.acquire(WAIT_MS) == Status.OK
        lock, waiting = wait_in_line(client)
        old = deployment.wait_for_master()
        wait_for_waiters(old.observer, 1)
        with stopped(old):
            new = deployment.wait_for_new_master(old)
            begin = time.monotonic()
            assert waiting.result() == Status.OK
            assert time.monotonic() - begin < 3 + NOTICED_S
            assert Commands(new.observer).info()["token"] == lock.token
            assert lock.release() == Status.OK


# -- a connection that is lost --------------------------------------------------------------------


@pytest.fixture
def ghost(impatient, wait_in_line, server, start_proxy):
    """A waiter of which only its own side of the connection is lost: the server still has the other
    side in its queue, and somebody behind. The handle, its acquire, and the one behind."""
    hold(server)
    proxy = start_proxy(server, {"others": Gate(is_kept=True)})
    lock, waiting = wait_in_line(impatient(proxy))
    wait_for_waiters(server.observer, 1)
    behind = Waiting(server, "behind")
    wait_for_waiters(server.observer, 2)
    before = proxy.count
    for number in range(before):
        proxy.cut_near(number)
    wait_until(lambda: proxy.count > before, "that it asks again")
    return lock, waiting, behind


def test_a_waiter_does_not_stand_in_line_behind_its_own_ghost(ghost, server):
    lock, waiting, behind = ghost
    wait_until(lambda: tokens_in_line(server)[0] == lock.token, "that it asked again")
    assert waiting.is_running() and len(tokens_in_line(server)) == 2
    begin = time.monotonic()
    Commands(server.observer).release("holder")
    assert waiting.result() == Status.OK
    assert time.monotonic() - begin < NOTICED_S  # the ghost would keep it for a lease
    assert lock.release() == Status.OK
    assert behind.answer() > 0


def test_a_ghost_is_not_left_in_line(ghost, server):
    lock, waiting, behind = ghost
    lock.cancel()
    assert waiting.result() == Status.CANCELED
    wait_until(lambda: tokens_in_line(server) == [b"behind"], "that only the other waits")
    Commands(server.observer).release("holder")
    assert behind.answer() > 0
