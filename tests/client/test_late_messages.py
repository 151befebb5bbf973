"""A request that arrives late, after the client has gone on without its reply, does no harm: it
neither shortens a lease nor frees or takes a lock, so that never two hold it. The proxy delays what
one connection says, as a lost segment does, and delivers it in the end."""

import pytest

from support.commands import Lock as Commands
from support.commands import served
from support.libdlock import SERVER_WAIT, SPIN, Background, State, Status
from support.server import wait_until

LONG_MS = 60_000
WAIT_MS = 20_000  # for what must succeed, however slow the machine is
IO_MS = 300
PATIENT_MS = 2500  # a server may stand still for two seconds


@pytest.fixture
def proxy(start_proxy, server):
    return start_proxy(server)


@pytest.fixture
def impatient(connect, proxy):
    """impatient(**options): a client behind the proxy, which goes on after a short while."""
    return lambda **options: connect(proxy, **{"io_timeout_ms": IO_MS, **options})


@pytest.fixture
def rival(connect, server):
    """A handle of somebody else, who talks to the server without a proxy."""
    return connect(server).lock(lease_ms=LONG_MS)


@pytest.fixture
def calls(server):
    """calls(command): how many of them the server has served."""
    return lambda command: served(server.observer, command)


def deliver(proxy, calls, command):
    """What is late has arrived, and has been served."""
    before = calls(command)
    assert proxy.delayed_count >= 1
    proxy.deliver()
    wait_until(lambda: calls(command) > before, f"the late {command}")


def delay_the_extension_of_the_grant(proxy, server, waiting, holder):
    """Somebody waits for the lock, and for more than a tenth of its lease, so that the grant is
    extended at once; that extension is late. The result of the wait."""
    commands = Commands(server.observer)
    wait_until(lambda: commands.info()["waiters"] == 1, "the waiter")
    queued_at = holder.remaining_ms
    wait_until(lambda: holder.remaining_ms < queued_at - 600, "a tenth of the lease")
    proxy.delay(b"DLOCK.EXTEND", is_once=True)
    assert holder.release() == Status.OK
    status = waiting.result()
    assert proxy.delayed_count == 1
    return status


def assert_it_is_held_by_one(server, lock, rival):
    """The lock is as long at the server as its holder thinks, and nobody else gets it."""
    assert lock.state == State.HELD
    assert Commands(server.observer).ttl() >= lock.remaining_ms
    assert rival.acquire() == Status.BUSY
    assert Commands(server.observer).info()["token"] == lock.token
    assert lock.release() in (Status.OK, Status.IN_DOUBT)  # the reply may be late


def test_a_late_extension_of_a_grant_does_not_shorten_a_later_one(
        impatient, proxy, server, calls, connect, rival):
    lock, holder = impatient().lock(lease_ms=5000), connect(server).lock(lease_ms=LONG_MS)
    assert holder.acquire() == Status.OK
    waiting = Background(lock.acquire, WAIT_MS)
    assert delay_the_extension_of_the_grant(proxy, server, waiting, holder) == Status.OK
    wait_until(lambda: lock.extend(LONG_MS) == Status.OK, "the extension, on a new connection")
    assert lock.remaining_ms > LONG_MS / 2
    deliver(proxy, calls, "extend")
    assert_it_is_held_by_one(server, lock, rival)


def test_a_late_extension_by_hand_does_not_shorten_a_later_one(
        impatient, proxy, server, calls, rival):
    lock = impatient().hold(lease_ms=5000, wait_ms=WAIT_MS)
    proxy.delay(b"DLOCK.EXTEND", is_once=True)
    assert lock.extend(6000) == Status.IN_DOUBT
    wait_until(lambda: lock.extend(LONG_MS) == Status.OK, "the extension, on a new connection")
    deliver(proxy, calls, "extend")
    assert_it_is_held_by_one(server, lock, rival)


def test_a_late_release_does_not_free_what_the_same_handle_took_again(
        impatient, proxy, server, calls, rival):
    lock = impatient().hold(lease_ms=LONG_MS, owner="worker-7", wait_ms=WAIT_MS)
    proxy.delay(b"DLOCK.RELEASE", is_once=True)
    assert lock.release() == Status.IN_DOUBT
    assert lock.acquire(WAIT_MS) == Status.OK
    deliver(proxy, calls, "release")
    assert_it_is_held_by_one(server, lock, rival)


def test_a_late_extension_does_not_shorten_what_was_handed_on(
        impatient, proxy, server, calls, connect, rival):
    """The next thread asks for a longer lease with the same token."""
    client, holder = impatient(hotspot_hand_on=5), connect(server).lock(lease_ms=LONG_MS)
    client.hotspot_add()
    first, second = client.lock(lease_ms=5000), client.lock(lease_ms=LONG_MS)
    assert holder.acquire() == Status.OK
    waiting = Background(first.acquire, WAIT_MS)
    wait_until(lambda: Commands(server.observer).info()["waiters"] == 1, "the first")
    in_line = client.wait_in_line(second)
    assert delay_the_extension_of_the_grant(proxy, server, waiting, holder) == Status.OK
    token = first.token
    assert first.release() == Status.OK
    assert in_line.result() == Status.OK
    assert client.stats().hand_ons == 1 and second.token == token
    deliver(proxy, calls, "extend")
    assert_it_is_held_by_one(server, second, rival)


@pytest.mark.parametrize("is_overdue", [False, True])
def test_a_late_renewal_does_not_shorten_what_was_handed_on(
        impatient, proxy, server, calls, rival, is_overdue):
    """The release comes while the renewal is under way, or after that has been given up."""
    client = impatient(hotspot_hand_on=5)
    client.hotspot_add()
    first = client.lock(lease_ms=5000, renew_every_ms=200)
    second = client.lock(lease_ms=LONG_MS)
    assert first.acquire(WAIT_MS) == Status.OK
    in_line = client.wait_in_line(second)
    proxy.delay(b"DLOCK.EXTEND", is_once=True)
    wait_until(lambda: proxy.delayed_count >= 1, "a renewal under way")
    if is_overdue:
        client.wait_for_renewals()  # by another connection
    assert first.release() == Status.OK
    assert in_line.result() == Status.OK
    assert second.remaining_ms > LONG_MS / 2
    deliver(proxy, calls, "extend")
    assert_it_is_held_by_one(server, second, rival)


@pytest.fixture
def replica(start_server, server):
    """Of the server, and in step with it."""
    replica = start_server("--replicaof", "127.0.0.1", str(server.port))
    client = server.client()
    wait_until(lambda: client.execute_command("WAIT", 1, 100) == 1, "the replica")
    return replica


@pytest.mark.parametrize("mode, min_replicas", [(SPIN, 0), (SERVER_WAIT, 0), (SPIN, 1)])
def test_a_late_request_does_not_take_a_lock_that_was_given_back(
        impatient, proxy, server, calls, mode, min_replicas, replica):
    """The second attempt is granted and used; then the first one arrives."""
    lock = impatient(wait_mode=mode).lock(lease_ms=LONG_MS, min_replicas=min_replicas)
    proxy.delay(b"DLOCK.ACQUIRE", is_once=True)
    acquiring = Background(lock.acquire, WAIT_MS)
    wait_until(lambda: proxy.delayed_count >= 1, "the first attempt")
    assert acquiring.result() == Status.OK
    assert lock.timings.attempts > 1
    assert lock.release() in (Status.OK, Status.IN_DOUBT)
    deliver(proxy, calls, "acquire")
    wait_until(lambda: not server.observer.exists("lock"), "that nobody holds it")


def test_a_late_request_that_waits_for_replicas_does_not_take_a_lock(
        impatient, proxy, server, calls):
    """A server that waits for replicas when the connection ends reads no further."""
    lock = impatient().lock(lease_ms=LONG_MS, min_replicas=1, replica_timeout_ms=200)
    proxy.delay(b"DLOCK.ACQUIRE", is_once=True)
    acquiring = Background(lock.acquire)
    wait_until(lambda: proxy.delayed_count >= 1, "the attempt")
    assert acquiring.result() == Status.IN_DOUBT
    wait_until(lambda: calls("release") > 0, "the withdrawal")
    deliver(proxy, calls, "acquire")
    wait_until(lambda: not server.observer.exists("lock"), "that nobody holds it")


def test_a_late_request_does_not_take_a_lock_after_the_wait_has_ended(
        impatient, proxy, server, calls, rival):
    """The first attempt is late, and the others find that somebody else has it: in time, or their
    connection would take the place of the one on which the withdrawal follows the first."""
    lock = impatient(wait_mode=SPIN, io_timeout_ms=PATIENT_MS).lock(lease_ms=LONG_MS)
    assert rival.acquire() == Status.OK
    proxy.delay(b"DLOCK.ACQUIRE", is_once=True)
    acquiring = Background(lock.acquire, 2 * PATIENT_MS)
    wait_until(lambda: proxy.delayed_count >= 1, "the first attempt")
    assert acquiring.result() == Status.TIMEOUT
    wait_until(lambda: calls("release") > 0, "the withdrawal")
    assert rival.release() == Status.OK
    deliver(proxy, calls, "acquire")
    wait_until(lambda: not server.observer.exists("lock"), "that nobody holds it")
