"""Taking, keeping and giving back a lock, at one server and at several. What holds at every
deployment is in support/every_deployment.py."""

import re
import socket
import time

import pytest

from support.commands import Lock as Commands
from support.libdlock import SPIN, Background, State, Status
from support.server import wait_until
from support.waiting import wait_for_waiters


class Everywhere:
    """One server, or several with a client that locks on all of them, though it waits for a
    majority only."""

    def __init__(self, dlock, servers):
        self.dlock, self.servers = dlock, servers
        self.clients = [server.client() for server in servers]

    def lock(self, *arguments, **options):
        return self.dlock.lock(*arguments, **options)

    def hold(self, *arguments, **options):
        return self.dlock.hold(*arguments, **options)

    def info(self, name="lock"):
        """What they say about a lock, once all of them say the same: of different fences the
        first."""
        return wait_until(lambda: self._infos(name), "the same lock everywhere")[0]

    def _infos(self, name):
        infos = [Commands(client, name).info() for client in self.clients]
        return infos if len({info and info["token"] for info in infos}) == 1 else None

    def ttl(self, name):
        self.info(name)
        return min(Commands(client, name).ttl() for client in self.clients)

    def advance(self, seconds):
        for server in self.servers:
            server.clock.advance(seconds)

    def delete(self, name):
        for client in self.clients:
            assert client.delete(name) == 1


@pytest.fixture(params=[1, 3])
def everywhere(request, lend, connect):
    servers = lend(request.param)
    return Everywhere(connect(servers if len(servers) > 1 else servers[0], io_timeout_ms=5000),
                      servers)


def test_spinning_asks_again_and_again(connect, server):
    dlock = connect(server, wait_mode=SPIN, spin_min_ms=5, spin_random_ms=5)
    dlock.hold()
    waiter = dlock.lock()
    begin, before = time.monotonic(), dlock.stats().commands
    waiting = Background(waiter.acquire, 60_000)
    wait_until(lambda: dlock.stats().commands >= before + 20, "attempts")
    waiter.cancel()
    assert waiting.result() == Status.CANCELED
    pauses = (time.monotonic() - begin) * 1000 / 5
    assert 20 <= waiter.timings.attempts <= 1 + pauses


def test_growing_pauses_ask_less_often(connect, server):
    dlock = connect(server, wait_mode=SPIN, spin_min_ms=1, spin_random_ms=1, spin_max_ms=100)
    dlock.hold()
    waiter = dlock.lock()
    waiter.acquire(300)
    assert waiter.timings.attempts < 20


def test_each_acquisition_has_a_token_of_its_own(everywhere):
    lock = everywhere.lock()
    tokens = set()
    for _ in range(20):
        assert lock.acquire() == Status.OK
        tokens.add(lock.token)
        lock.release()
    assert len(tokens) == 20
    host = re.escape(socket.gethostname()[:64].encode())
    assert all(re.fullmatch(host + rb":\d+:[0-9a-f]{32}", token) for token in tokens)


def test_an_owner_is_a_label_inside_a_fresh_token(everywhere):
    lock = everywhere.lock("a", owner="job-7")
    tokens = set()
    for _ in range(3):
        assert lock.acquire() == Status.OK
        assert everywhere.info("a")["token"] == lock.token
        assert re.fullmatch(rb"[^:]+:\d+:job-7:[0-9a-f]{32}", lock.token)
        tokens.add(lock.token)
        assert lock.release() == Status.OK
    assert len(tokens) == 3


def test_the_same_owner_is_not_the_same_holder(everywhere):
    everywhere.hold(owner="me")
    assert everywhere.lock(owner="me").acquire() == Status.BUSY


@pytest.mark.parametrize("owner", ["a b", "a:b", "é", "tab\t"])
def test_an_owner_that_would_spoil_the_token_is_refused(dlock, owner):
    with pytest.raises(ValueError):
        dlock.lock(owner=owner)


def test_the_lease_is_the_locks_own(everywhere):
    everywhere.hold("short", lease_ms=5000)
    assert 1000 < everywhere.ttl("short") <= 5000
    everywhere.hold("default")
    assert 6000 < everywhere.ttl("default") <= 10_000


def test_taking_it_again_after_its_end_says_so(everywhere):
    lock = everywhere.hold(lease_ms=200, wait_ms=20_000)
    wait_until(lambda: lock.state == State.LOST, "the end of the lease")
    assert lock.acquire() == Status.LOST
    everywhere.advance(1)  # the server's lease ends a little later
    assert lock.release() == Status.LOST
    assert lock.acquire(20_000) == Status.OK


def test_a_release_does_not_touch_the_next_holders_lock(everywhere):
    lock = everywhere.hold("next")
    assert everywhere.info("next")["token"] == lock.token
    everywhere.delete("next")
    for client in everywhere.clients:
        Commands(client, "next").acquire("somebody else")
    assert lock.release() == Status.LOST
    assert everywhere.info("next")["token"] == b"somebody else"


def test_validity_is_less_than_the_lease_by_the_allowance(everywhere):
    lock = everywhere.hold(lease_ms=10_000)
    assert 5000 < lock.remaining_ms <= 10_000 - 100 - 2


def test_freeing_a_held_lock_releases_it(everywhere):
    lock = everywhere.hold("freed")
    lock.acquire()
    everywhere.dlock.locks.remove(lock)
    lock.free()
    assert everywhere.info("freed") is None


def test_a_wait_longer_than_the_lease_leaves_a_whole_lease(dlock, client):
    holder, waiter = dlock.hold(lease_ms=60_000), dlock.lock(lease_ms=3000)
    waiting = Background(waiter.acquire, 20_000)
    wait_for_waiters(client, 1)
    time.sleep(3.1)  # longer than the waiter's own lease
    assert holder.release() == Status.OK
    assert waiting.result() == Status.OK
    assert waiter.state == State.HELD and 0 < waiter.remaining_ms < 3000


def test_counters(everywhere):
    lock, other = everywhere.hold(), everywhere.lock()
    other.acquire()
    other.acquire(20)
    lock.release()
    stats = everywhere.dlock.stats()
    assert (stats.acquired, stats.busy, stats.timeouts, stats.released) == (1, 1, 1, 1)


def test_commands_are_counted(dlock):
    lock, other = dlock.hold(), dlock.lock()
    other.acquire()
    lock.release()
    assert dlock.stats().commands == 3


def test_bad_calls_are_refused(everywhere):
    lock = everywhere.lock()
    assert lock.acquire(-2) == Status.INVALID
    for bad in ({"owner": ""}, {"owner": "x" * 65}, {"struct_size": 1}):
        with pytest.raises(ValueError):
            everywhere.lock("bad", **bad)
    with pytest.raises(ValueError):
        everywhere.lock("")


def test_a_lease_that_the_server_does_not_allow_is_a_callers_mistake(everywhere):
    lock = everywhere.lock(lease_ms=2 * 24 * 3600 * 1000)
    assert lock.acquire() == Status.INVALID
    assert "PX" in lock.error


def test_a_loss_is_counted_once(connect, server, client):
    dlock = connect(server)
    lock = dlock.hold()
    client.delete("lock")
    assert lock.extend() == Status.LOST
    assert lock.release() == Status.LOST
    assert (dlock.stats().lost, dlock.stats().released) == (1, 0)
