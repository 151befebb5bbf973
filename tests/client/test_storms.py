"""What thousands of waits and kept locks of one process cost its server in trouble: as much as one
of them does. Requests and connections are counted, or compared with those of a client that has one
wait and the same trouble."""

import time

import pytest

from support.commands import served
from support.fake_server import CUT, Cut
from support.libdlock import SHARED, Background, Event, State, Status
from support.server import stopped, wait_until
from support.waiting import wait_for_waiters

MANY = 1000
WAIT_MS = 100_000
LEASE_MS = 600_000
TURNS = 8  # of one wait in trouble
LATE = 3  # so often a command is sent to a server that works again, on a machine that is busy
CONNECTIONS = 2  # of a client: commands, and the session


@pytest.fixture
def wait_for_lock(connect):
    """wait_for_lock(to, count, **options): a client, and so many calls that wait. They end with the
    test."""
    started = []

    def start(to, count=MANY, **options):
        client = connect(to, form="async", **options)
        locks = [client.lock(lease_ms=LEASE_MS) for _ in range(count)]
        started.append((client, [lock.start("acquire", WAIT_MS) for lock in locks]))
        return started[-1]

    yield start
    for client, calls in started:
        client.cancel()
        results(calls)


def results(calls):
    for call in calls:
        assert call.is_over.wait(60), "it hangs"
    return {call.result for call in calls}


def hold(client):
    assert client.execute_command("DLOCK.ACQUIRE", "lock", "somebody", "PX", LEASE_MS)


# -- waits that are canceled ----------------------------------------------------------------------


def test_a_cancel_of_all_waits_sends_one_release_for_each(server, client, wait_for_lock):
    hold(client)
    dlock, calls = wait_for_lock(server)
    wait_for_waiters(client, MANY)
    dlock.cancel()
    assert results(calls) == {Status.CANCELED}
    wait_for_waiters(client, 0)
    dlock.uncancel()
    assert dlock.lock("behind all that was sent", lease_ms=LEASE_MS).acquire() == Status.OK
    assert served(client, "release") == MANY


def test_short_waits_open_no_connections(server, client, connect):
    hold(client)
    dlock = connect(server)

    def wait_again_and_again():
        lock = dlock.lock(lease_ms=LEASE_MS)
        return {lock.acquire(5) for _ in range(20)}
    before = client.info("stats")["total_connections_received"]
    calls = [Background(wait_again_and_again) for _ in range(100)]
    assert Status.OK not in set().union(*[call.result() for call in calls])
    assert client.info("stats")["total_connections_received"] <= before + CONNECTIONS


# -- waits at a server in trouble -----------------------------------------------------------------


def test_waits_whose_connections_end_are_not_asked_for_again(server, client, wait_for_lock):
    hold(client)
    dlock, _ = wait_for_lock(server)
    wait_for_waiters(client, MANY)
    assert dlock.lock("behind", lease_ms=LEASE_MS).acquire() == Status.OK, "no reply is under way"
    acquires = served(client, "acquire")
    for _ in range(3):
        heartbeats = served(client, "session")
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        wait_until(lambda: served(client, "session") > heartbeats, "the session")
    wait_for_waiters(client, MANY)
    assert served(client, "acquire") == acquires and served(client, "release") == 0


def test_a_cancel_at_a_server_that_hangs_sends_few_releases(server, client, wait_for_lock):
    hold(client)
    dlock, calls = wait_for_lock(server, io_timeout_ms=300)
    wait_for_waiters(client, MANY)
    probe = dlock.lock("probe", lease_ms=LEASE_MS)
    with stopped(server):
        wait_until(lambda: probe.acquire() == Status.UNREACHABLE, "it to be known")
        before = dlock.stats().commands
        dlock.cancel()
        assert results(calls) == {Status.CANCELED}
    wait_for_waiters(client, 0)
    dlock.uncancel()
    wait_until(lambda: probe.acquire(WAIT_MS) == Status.OK, "replies in time")
    assert served(client, "release") <= LATE * MANY
    assert dlock.stats().commands - before <= 2 * LATE * MANY


def test_a_client_with_many_waits_ends_soon_at_a_server_that_hangs(server, client, wait_for_lock):
    """One I/O timeout for all together: one for each wait would be 100 s."""
    hold(client)
    session_ms = 1000  # then the server forgets the waits whose RELEASE it has not read
    dlock, calls = wait_for_lock(server, io_timeout_ms=100, lock_defaults={"lease_ms": session_ms})
    wait_for_waiters(client, MANY)
    with stopped(server):
        began = time.monotonic()
        dlock.free()
        took_s = time.monotonic() - began
    assert results(calls) == {Status.CANCELED} and took_s < MANY * 0.1 / 4
    wait_for_waiters(client, 0)


TROUBLE = {
    "it is down": lambda words: CUT,
    "it is a replica": lambda words: b"-READONLY You can't write against a read only replica.\r\n",
    "it loads": lambda words: b"-LOADING Redis is loading the dataset in memory\r\n",
    "it has too many clients": lambda words: Cut(b"-ERR max number of clients reached\r\n"),
}


def in_line(words):
    return b"+QUEUED\r\n" if b"WAIT" in words else b"$-1\r\n"


@pytest.mark.parametrize("trouble", TROUBLE)
def test_waits_in_trouble_ask_no_more_often_than_one(fake_server, wait_for_lock, trouble):
    servers = {count: fake_server(in_line) for count in (1, MANY)}
    for count, server in servers.items():
        wait_for_lock(server, count)
        wait_until(lambda: sum(b"WAIT" in words for words in server.asked("DLOCK.ACQUIRE"))
                   == count, "all to be in line")
    for server in servers.values():
        server.has_sessions, server.answer = False, TROUBLE[trouble]
        server.requests.clear()
        server.connection_count = 0
        server.break_connections()
    one, many = servers.values()
    wait_until(lambda: len(one.requests) >= TURNS, "some turns")
    assert many.connection_count <= 3 * one.connection_count + TURNS
    assert len(many.requests) <= 3 * len(one.requests) + TURNS


def test_waits_that_begin_in_trouble_ask_as_often_as_a_few(fake_server, wait_for_lock):
    """16 of them, each of which pauses for 10 ms at least, ask 1,600 times a second."""
    server = fake_server(TROUBLE["it is a replica"])
    begun = time.monotonic()
    wait_for_lock(server)
    wait_until(lambda: len(server.requests) >= 2 * MANY, "each to ask about twice")
    asked, passed = len(server.requests), time.monotonic() - begun
    assert asked <= MANY + 1600 * passed


def test_waits_without_a_session_open_no_more_connections_than_one(fake_server, wait_for_lock):
    """The server replies to commands, but has no place for the connection of the session."""
    too_many = TROUBLE["it has too many clients"]([])
    servers = {count: fake_server(lambda words: too_many if words[0] == b"DLOCK.SESSION"
                                  else in_line(words)) for count in (MANY, 1)}
    for count, server in servers.items():
        server.has_sessions = False
        wait_for_lock(server, count)
    many, one = servers.values()
    wait_until(lambda: one.connection_count >= TURNS, "some turns")
    assert many.connection_count <= 3 * one.connection_count + TURNS


def test_many_cancels_in_trouble_are_repeated_less_often_than_one(fake_server, wait_for_lock):
    """Each RELEASE is refused. Once one is not, all others follow."""
    servers = {count: fake_server(in_line) for count in (1, MANY)}
    for count, server in servers.items():
        client, calls = wait_for_lock(server, count)
        wait_until(lambda: sum(b"WAIT" in words for words in server.asked("DLOCK.ACQUIRE"))
                   == count, "all to be in line")
        server.answer = TROUBLE["it is a replica"]
        client.cancel()
        assert results(calls) == {Status.CANCELED}
    one, many = servers.values()
    wait_until(lambda: len(one.asked("DLOCK.RELEASE")) >= TURNS, "some turns")
    assert len(many.asked("DLOCK.RELEASE")) <= 5 * MANY < TURNS * MANY
    many.requests.clear()
    many.answer = lambda words: b":1\r\n"
    wait_until(lambda: len(many.asked("DLOCK.RELEASE")) >= MANY, "all others")


# -- kept locks -----------------------------------------------------------------------------------


def test_renewals_do_not_queue_behind_each_other_for_a_replica(server, client, connect,
                                                               start_follower):
    """All of them are sent while the replica has not acknowledged the first; then it acknowledges
    all others at once."""
    replica, count = start_follower(server), 400
    dlock = connect(server, form="async")

    def waits():
        return client.info("commandstats")["cmdstat_wait"]["calls"]
    locks = [dlock.lock(f"lock {i}", lease_ms=LEASE_MS, renew_every_ms=300, min_replicas=1,
                        replica_timeout_ms=WAIT_MS) for i in range(count)]
    assert results([lock.start("acquire", WAIT_MS) for lock in locks]) == {Status.OK}
    with stopped(replica):
        before, renewed = served(client, "extend"), dlock.stats().renewed
        wait_until(lambda: served(client, "extend") - before >= count, "all renewals")
        before = waits()
    wait_until(lambda: dlock.stats().renewed - renewed >= count, "the acknowledgements")
    rounds = waits() - before
    assert rounds <= (dlock.stats().renewed - renewed) / 50 + TURNS
    assert {lock.state for lock in locks} == {State.HELD}


def test_readers_who_come_and_go_cost_the_other_readers_nothing(server, client, connect, told):
    dlock, count = connect(server, on_event=told), 50
    readers = [dlock.lock(renew=True, mode=SHARED) for _ in range(count)]
    for reader in readers:
        assert reader.acquire() == Status.OK
    another = connect(server).lock(mode=SHARED, lease_ms=LEASE_MS)
    for _ in range(10):
        assert another.acquire() == another.release() == Status.OK
    client.delete("lock")
    wait_until(lambda: told.events().count(Event.LOST) == count, "the losses: all else was before")
    assert served(client, "info") == 0
