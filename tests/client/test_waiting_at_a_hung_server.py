"""A waiter notices within seconds that its server hangs or is gone, and looks for another; if it is
the same server that comes back, or if only the connection was lost, the waiter keeps its place."""

import os
import time

import pytest

from support.commands import Lock as Commands
from support.libdlock import Background, Status
from support.server import stopped, wait_until
from support.waiting import Waiting, wait_for_waiters

WAIT_MS = 100_000
LEASE_MS = 600_000
IO_MS = 300
LATE = (Status.OK, Status.IN_DOUBT)  # a release whose reply is late goes on in the background


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


def has_parked_heartbeat(server):
    """A client that was heard of again, and not only by what it had sent before it gave up."""
    return any(each["cmd"] == "dlock.session" and each["flags"] == "b"
               for each in server.observer.client_list())


# -- a server that hangs --------------------------------------------------------------------------


@pytest.mark.parametrize("hangs_s", [0.5, 6, pytest.param(15, marks=pytest.mark.long(
    "the kernel gives connections up that are not heard for eight seconds"))])
def test_a_server_that_hangs_and_comes_back_gives_waiters_the_lock_in_their_order(
        impatient, wait_in_line, server, hangs_s):
    """Nor does it take more connections than before."""
    hold(server)
    client, waiters = impatient(server), []
    for count in range(1, 6):
        waiters.append(wait_in_line(client))
        wait_for_waiters(server.observer, count)
    behind = Waiting(server, "behind")
    wait_for_waiters(server.observer, 6)
    before = len(os.listdir("/proc/self/fd"))
    with stopped(server):
        time.sleep(hangs_s)  # so long it hangs, which the waiters notice or not: by several probes
        assert len(os.listdir("/proc/self/fd")) <= before + 2
    wait_until(lambda: len(tokens_in_line(server)) == 6, "that all are in line")
    wait_until(lambda: has_parked_heartbeat(server), "that the session is back")
    Commands(server.observer).release("holder")
    for lock, waiting in waiters:
        assert waiting.result() == Status.OK
        assert Commands(server.observer).info()["token"] == lock.token
        assert lock.release() in LATE
    assert behind.answer() > 0


def test_a_wait_ends_in_time_at_a_server_that_hangs(impatient, server):
    hold(server)
    client = impatient(server)
    lock = client.lock(lease_ms=LEASE_MS)
    lock.acquire(100)  # it will be parked at once from now on
    waiting = Background(lock.timed_acquire, 5000)
    wait_for_waiters(server.observer, 1)
    with stopped(server):  # until the wait has ended
        status, took_ms = waiting.result()
    assert status == Status.IN_DOUBT and took_ms >= 5000
    wait_for_waiters(server.observer, 0)


# -- a connection that is lost --------------------------------------------------------------------


@pytest.fixture
def ghost(impatient, wait_in_line, server, start_proxy):
    """A waiter of which only its own side of the connection is lost: the server still has the other
    side in its queue, and somebody behind. The handle, its acquire, and the one behind."""
    hold(server)
    proxy = start_proxy(server)
    lock, waiting = wait_in_line(impatient(proxy))
    wait_for_waiters(server.observer, 1)
    behind = Waiting(server, "behind")
    wait_for_waiters(server.observer, 2)
    before = proxy.count
    proxy.cut_near()
    wait_until(lambda: proxy.count > before, "that it asks again")
    return lock, waiting, behind


def test_a_waiter_does_not_stand_in_line_behind_its_own_ghost(ghost, server):
    lock, waiting, behind = ghost
    wait_until(lambda: tokens_in_line(server)[0] == lock.token, "that it asked again")
    assert waiting.is_running() and len(tokens_in_line(server)) == 2
    Commands(server.observer).release("holder")
    assert waiting.result() == Status.OK, "the ghost would keep it for a lease"
    assert lock.release() in LATE
    assert behind.answer() > 0


def test_a_ghost_is_not_left_in_line(ghost, server):
    lock, waiting, behind = ghost
    lock.cancel()
    assert waiting.result() == Status.CANCELED
    wait_until(lambda: tokens_in_line(server) == [b"behind"], "that only the other waits")
    Commands(server.observer).release("holder")
    assert behind.answer() > 0
