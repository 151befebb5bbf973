"""At several servers, too: what arrives late, or is still to be answered, does no harm. A proxy
delays what one connection says, as a lost segment does, and delivers it in the end."""

import pytest

from support.commands import Lock as Commands
from support.libdlock import Background, State, Status
from support.redlock import LEASE_MS, SHORT_IO_MS, give_back, hold_on, served, tokens
from support.server import wait_until

LONG_MS = 60_000
WAIT_MS = 20_000  # for what must succeed, however slow the machine is


@pytest.fixture
def servers(lend):
    return lend(3)


@pytest.fixture
def proxies(servers, start_proxy):
    return [start_proxy(server) for server in servers]


@pytest.fixture
def impatient(connect, proxies):
    """A client behind the proxies, which goes on after a short while."""
    return connect(proxies, io_timeout_ms=SHORT_IO_MS)


@pytest.fixture
def rival(connect, servers):
    """A handle of somebody else, who talks to the servers without a proxy."""
    return connect(servers).lock(lease_ms=LONG_MS)


def deliver(proxies, servers, command):
    """What is late has arrived, and has been served."""
    for proxy, server in zip(proxies, servers):
        before = served(server, command)
        assert proxy.delayed_count >= 1
        proxy.deliver()
        wait_until(lambda: served(server, command) > before, f"the late {command}")


def assert_it_is_held_by_one(servers, lock, rival):
    """It lasts as long at a majority as its holder thinks, and nobody else gets it."""
    assert lock.state == State.HELD
    holders = [info for info in (Commands(server.observer).info() for server in servers) if info]
    left_ms = lock.remaining_ms  # last: time goes on while servers are asked
    lasting = [info for info in holders if info["token"] == lock.token and info["ttl"] >= left_ms]
    assert len(lasting) > len(servers) // 2, holders
    assert rival.acquire() in (Status.BUSY, Status.NO_QUORUM)
    assert lock.release() in (Status.OK, Status.NO_QUORUM)  # replies may be late


def test_late_renewals_do_not_shorten_a_later_extension(
        impatient, proxies, servers, rival):
    """A renewal that two of three servers get late fails; then the holder asks for more."""
    lock = impatient.hold(lease_ms=10_000, renew_every_ms=1000, wait_ms=WAIT_MS)
    for proxy in proxies[:2]:
        proxy.delay(b"DLOCK.EXTEND")
    wait_until(lambda: all(proxy.delayed_count for proxy in proxies[:2]), "a renewal under way")
    for proxy in proxies[:2]:
        proxy.delay_no_more()
    wait_until(lambda: lock.extend(LONG_MS) == Status.OK, "the extension, on new connections")
    assert lock.remaining_ms > LONG_MS / 2
    deliver(proxies[:2], servers, "extend")
    assert_it_is_held_by_one(servers, lock, rival)


def test_renewals_that_each_missed_another_server_do_not_shorten_a_later_extension(
        impatient, proxies, servers, rival):
    """Each renewal has a majority; what two of them said arrives after the extension."""
    lock = impatient.hold(lease_ms=10_000, renew_every_ms=1000, wait_ms=WAIT_MS)
    for proxy in proxies[:2]:
        renewed = impatient.stats().renewed
        proxy.delay(b"DLOCK.EXTEND")
        wait_until(lambda: proxy.delayed_count, "a renewal under way")
        proxy.delay_no_more()
        wait_until(lambda: impatient.stats().renewed > renewed, "a majority to renew it")
    wait_until(lambda: lock.extend(LONG_MS) == Status.OK, "the extension, on new connections")
    deliver(proxies[:2], servers, "extend")
    assert_it_is_held_by_one(servers, lock, rival)


def test_a_grant_that_is_being_undone_is_no_vote_of_the_next_attempt(
        impatient, proxies, servers, rival):
    """The first server has granted a lock that the others had given to somebody else, and the
    RELEASE that undoes the grant is late. If that grant counted, the RELEASE would end it."""
    hold_on(servers[1:])
    proxies[0].delay(b"DLOCK.RELEASE")
    lock = impatient.lock(lease_ms=LEASE_MS)
    acquiring = Background(lock.acquire, WAIT_MS)
    wait_until(lambda: proxies[0].delayed_count >= 1, "the RELEASE on its way")
    proxies[0].delay_no_more()
    wait_until(lambda: tokens(servers[:1]) != [None], "the grant")
    undone = tokens(servers[:1])
    give_back(servers[1:2])
    before = served(servers[0], "acquire")
    wait_until(lambda: served(servers[0], "acquire") > before + 2, "attempts on a newer connection")
    assert acquiring.is_running()
    assert tokens(servers[:1]) == undone
    deliver(proxies[:1], servers, "release")
    assert acquiring.result() == Status.OK, lock.error
    give_back(servers[2:])
    assert_it_is_held_by_one(servers, lock, rival)


def test_a_late_request_does_not_take_a_lock_that_was_given_back(impatient, proxies, servers):
    """Two servers grant the lock at once. The third gets the request after the release, which has
    travelled a newer connection meanwhile."""
    proxies[2].delay(b"DLOCK.ACQUIRE")
    lock, other = impatient.hold(lease_ms=LEASE_MS, wait_ms=WAIT_MS), impatient.lock("other")
    wait_until(lambda: proxies[2].delayed_count >= 1, "the request on its way")
    proxies[2].delay_no_more()

    def is_there_a_newer_connection():
        assert other.acquire(WAIT_MS) == Status.OK
        assert other.release() in (Status.OK, Status.NO_QUORUM)
        return served(servers[2], "release") > 0

    wait_until(is_there_a_newer_connection, "a newer connection")
    assert lock.release() in (Status.OK, Status.NO_QUORUM)
    deliver(proxies[2:], servers[2:], "acquire")
    wait_until(lambda: tokens(servers) == [None] * 3, "nobody to hold it")
