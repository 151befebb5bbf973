"""Locks kept by the session of their client, and locks that also end with its connection."""

import queue
import random
import threading
import time

import pytest

from support.commands import Lock as Commands, stats
from support.fake_server import OPEN_SESSION, granting, resp
from support.libdlock import Background, Event, State, Status
from support.program import start_python
from support.server import wait_until
from support.waiting import wait_for_waiters

LEASE_MS = 60000


@pytest.fixture
def dlock(connect, server, told):
    return connect(server, on_event=told, io_timeout_ms=5000)


def session_of(client, name="lock"):
    """The id of the connection that the lock hangs on; 0: none; None: it is free."""
    info = Commands(client, name).info()
    return info and info["session"]


def hold(dlock, **options):
    return dlock.hold(session=True, lease_ms=LEASE_MS, **options)


def test_one_handle_uses_one_connection_again_and_again(dlock, client):
    lock = hold(dlock)
    first = session_of(client)
    for _ in range(5):
        assert lock.release() == Status.OK
        assert lock.acquire() == Status.OK
        assert session_of(client) == first


def test_all_waits_and_locks_of_a_client_share_two_connections(connect, server, client):
    before = len(client.client_list())
    dlock = connect(server, io_timeout_ms=5000)
    kept = [dlock.lock(f"kept {i}", session=i % 2 == 0, renew=True) for i in range(20)]
    for lock in kept:
        assert lock.acquire() == Status.OK, lock.error
    waiting = [dlock.lock("kept 0", lease_ms=LEASE_MS) for _ in range(20)]
    results = [Background(lock.acquire, 60000) for lock in waiting]
    wait_for_waiters(client, 20)
    assert len(client.client_list()) == before + 2
    assert stats(client)["sessions"] == 1 and stats(client)["session_holds"] == 20
    assert kept[0].release() == Status.OK
    for _ in waiting:
        wait_until(lambda: any(lock.state == State.HELD for lock in waiting), "the next holder")
        assert next(lock for lock in waiting if lock.state == State.HELD).release() == Status.OK
    assert {result.result() for result in results} == {Status.OK}


# -- kept by the session --------------------------------------------------------------------------


def keep(dlock, name="lock"):
    return dlock.hold(name, renew=True)


def test_a_kept_lock_costs_no_command(dlock, server, client):
    lock = keep(dlock)
    assert Commands(client).info()["via"] != b""
    commands = dlock.stats().commands
    dlock.wait_for_renewals(1)  # the heartbeat
    assert dlock.stats().commands <= commands + 2
    assert stats(client)["extended"] == 0
    assert lock.release() == Status.OK
    assert not client.exists("lock")


def test_a_kept_lock_outlives_its_connection(dlock, client, told):
    lock = keep(dlock)
    fence = lock.fence
    for _ in range(3):
        session = session_of(client)
        client.execute_command("CLIENT", "KILL", "ID", session)
        wait_until(lambda: session_of(client) not in (0, session), "a new connection")
        assert lock.state == State.HELD and lock.remaining_ms > 0
    assert Commands(client).info()["fence"] == fence and not told.events()[1:]
    assert lock.release() == Status.OK


def test_a_wait_outlives_its_connection_and_keeps_its_place(dlock, server, client, connect):
    other = connect(server, io_timeout_ms=5000).hold(lease_ms=LEASE_MS)
    first = dlock.lock(lease_ms=LEASE_MS)
    result = Background(first.acquire, 60000)
    wait_for_waiters(client, 1)
    second = connect(server, io_timeout_ms=5000).lock(lease_ms=LEASE_MS)
    later = Background(second.acquire, 60000)
    wait_for_waiters(client, 2)
    born = [each["id"] for each in client.client_list() if each["cmd"] == "dlock.session"]
    client.execute_command("CLIENT", "KILL", "ID", min(born, key=int))
    wait_until(lambda: len([each for each in client.client_list()
                            if each["cmd"] == "dlock.session" and each["id"] not in born]) == 1,
               "a new connection")
    assert stats(client)["sessions_away"] == 0 and stats(client)["waiters"] == 2
    assert other.release() == Status.OK
    assert result.result() == Status.OK and later.is_running()
    assert first.release() == Status.OK and later.result() == Status.OK


@pytest.mark.parametrize("how", [{"renew": True}, {"renew": True, "session": True}])
def test_a_kept_lock_outlives_a_restart_of_the_server(connect, start_server, told, how):
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    dlock = connect(server, on_event=told, io_timeout_ms=5000)
    lock, token = dlock.hold(**how), None
    fence, token = lock.fence, lock.token
    server.crash()
    client = server.client()
    wait_until(lambda: stats(client)["session_holds"] == 1, "that the lock is tied again")
    info = Commands(client).info()
    assert (info["fence"], info["token"]) == (fence, token)
    wait_until(lambda: lock.state == State.HELD, "that the client knows")
    assert Event.LOST not in told.events() and lock.release() == Status.OK


def test_a_kept_lock_that_is_deleted_is_told_at_once(dlock, client, told):
    lock = keep(dlock)
    client.delete("lock")
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert lock.state == State.LOST and lock.release() == Status.LOST


def test_a_session_that_the_server_has_forgotten_is_opened_again(dlock, server, client, told):
    """As after a long silence: somebody else may have had the lock meanwhile."""
    lock = keep(dlock)
    server.clock.advance(60)
    wait_until(lambda: told.find(Event.LOST) or stats(client)["session_holds"] == 1, "the outcome")
    dlock.hold("other", lease_ms=LEASE_MS, wait_ms=20_000)
    assert keep(dlock, "third").release() == Status.OK
    lock.release()
    wait_until(lambda: not client.exists("lock"), "that nothing is left")


def test_an_extension_of_a_kept_lock_says_whether_it_is_held(dlock, client):
    lock = keep(dlock)
    assert lock.extend() == Status.OK and lock.state == State.HELD
    assert lock.release() == Status.OK
    lock = keep(dlock)
    client.execute_command("CLIENT", "PAUSE", 200, "ALL")
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK


def test_a_client_that_ends_leaves_no_session(connect, server, client):
    dlock = connect(server)
    keep(dlock).release()
    dlock.free()
    wait_until(lambda: stats(client)["sessions"] == 0, "the end of the session")


# -- ending with the connection -------------------------------------------------------------------


def test_a_process_that_is_killed_leaves_nothing_behind(server, client):
    process = start_python("""
import sys
from support.libdlock import Client
Client(sys.argv[1], io_timeout_ms=5000).hold(session=True, lease_ms=600000)
print("held", flush=True)
sys.stdin.readline()
""", f"redis://127.0.0.1:{server.port}")
    try:
        assert process.stdout.readline() == "held\n"
        assert client.exists("lock")
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: not client.exists("lock"), "that it is released")


def test_another_has_it_by_then(dlock, client, connect, server, told):
    lock = hold(dlock)
    other = connect(server, io_timeout_ms=5000).lock(lease_ms=LEASE_MS)
    waiting = Background(other.acquire, 60000)
    wait_until(lambda: Commands(client).info()["waiters"] == 1, "the waiter")
    client.execute_command("CLIENT", "KILL", "ID", session_of(client))
    assert waiting.result() == Status.OK
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert lock.release() == Status.LOST
    assert other.state == State.HELD and other.release() == Status.OK


def test_a_connection_that_only_our_side_lost_is_replaced(connect, fake_server, told):
    """The lock is asked for again with its token: with the same fence it was ours all the time."""
    server = fake_server(granting())
    dlock = connect(server, on_event=told, io_timeout_ms=5000)
    lock = hold(dlock)
    server.break_connections()
    wait_until(lambda: len(server.asked("DLOCK.ACQUIRE")) == 2, "that it is asked for again")
    first, second = server.asked("DLOCK.ACQUIRE")
    assert first[2] == second[2] and b"SESSION" in second
    assert int(second[second.index(b"PX") + 1]) > LEASE_MS / 2, "the rest of the lease"
    wait_until(lambda: lock.state == State.HELD, "that it is known to be ours")
    assert Event.LOST not in told.events()
    assert lock.release() == Status.OK


def test_a_session_that_moves_is_not_undone_for_want_of_replicas(connect, fake_server, told):
    """They had the lock before; that they do not answer just now is no reason to give it back."""
    acknowledged = [1]
    server = fake_server(granting(WAIT=lambda words: resp(acknowledged[0])))
    dlock = connect(server, on_event=told, io_timeout_ms=5000)
    lock = hold(dlock, min_replicas=1, renew_every_ms=100)
    acknowledged[0] = 0
    server.break_connections()
    wait_until(lambda: len(server.asked("DLOCK.ACQUIRE")) >= 2, "that it is asked for again")
    renewed = len(server.asked("DLOCK.EXTEND"))
    wait_until(lambda: len(server.asked("DLOCK.EXTEND")) > renewed, "a renewal after that")
    assert not server.asked("DLOCK.RELEASE")
    before, acknowledged[0] = dlock.stats().renewed, 1
    wait_until(lambda: dlock.stats().renewed > before, "a renewal that counts")
    assert lock.state == State.HELD and Event.LOST not in told.events()
    assert len(server.asked("DLOCK.ACQUIRE")) == 2
    assert lock.release() == Status.OK


def test_a_server_that_cannot_be_reached_is_asked_until_the_end(connect, server, told):
    dlock = connect(server, on_event=told, io_timeout_ms=500)
    lock = dlock.hold(session=True, lease_ms=2000)
    server.kill()
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert lock.state == State.LOST
    server.start(server.port)


def test_renewal_goes_on_beside_it(dlock, server, client, told):
    """For longer than the lease, by the server's clock."""
    lock = dlock.hold(session=True, lease_ms=6000, renew_every_ms=100)
    session = session_of(client)
    for _ in range(3):
        dlock.wait_for_renewals(2)
        server.clock.advance(2.5)
    assert session_of(client) == session and Event.LOST not in told.events()
    assert lock.release() == Status.OK


def test_it_can_wait_in_line(dlock, connect, server, client):
    other = connect(server, io_timeout_ms=5000).hold(lease_ms=LEASE_MS)
    lock = dlock.lock(session=True, lease_ms=LEASE_MS)
    waiting = Background(lock.acquire, 60000)
    wait_for_waiters(client, 1)
    assert other.release() == Status.OK
    assert waiting.result() == Status.OK
    assert session_of(client) > 0


class Scripted:
    """A server whose events and replies to ACQUIRE, in order, are those of the test. A grant of an
    event is so old that the client extends it."""

    def __init__(self, fake_server, acquires, extend):
        self.acquires, self.extend = acquires, extend
        self.events, self.is_open = queue.Queue(), False
        self.acknowledged = threading.Semaphore(0)
        self.server = fake_server(self._answer)
        self.server.has_sessions = False

    def _answer(self, words):
        command = words[0].decode()
        if command == "DLOCK.EXTEND":
            return self.extend(words[2].decode())
        if command.startswith("DLOCK.ACQUIRE"):
            return self.acquires.pop(0)(words[words.index(b"PX") - 1].decode())
        if command != "DLOCK.SESSION" or b"END" in words:
            return resp(1)
        if not self.is_open:
            self.is_open = True
            return OPEN_SESSION
        if b"ACK" in words:
            self.acknowledged.release()
        return resp([1, [self.events.get()]])

    def queue_and_tell(self, *event):
        """The reply to an ACQUIRE that waits, and an event that follows."""
        def reply(token):
            number, kind, *more = event
            self.events.put([number, kind, "lock", token, *more])
            return b"+QUEUED\r\n"
        return reply


def test_a_grant_that_was_lost_before_it_was_extended_is_no_loss_of_the_next(connect, fake_server):
    def extend(token):
        script.acknowledged.acquire()
        script.events.put([2, "lost", "lock", token, "deleted"])
        script.acknowledged.acquire()
        return resp(0)

    script = Scripted(fake_server, [], extend)
    script.acquires = [lambda _: resp(None), script.queue_and_tell(1, "granted", 7, 20_000),
                       lambda _: resp(8)]
    lock = connect(script.server, io_timeout_ms=5000).lock(session=True, lease_ms=LEASE_MS)
    assert lock.acquire(20_000) == Status.OK, lock.error
    assert (lock.fence, lock.state) == (8, State.HELD)
    assert lock.release() == Status.OK


def test_who_lost_one_of_several_names_hears_of_the_next_grant(connect, fake_server):
    script = Scripted(fake_server, [], lambda _: resp(0))
    script.acquires = [lambda _: resp(None), script.queue_and_tell(1, "granted", 7, 20_000),
                       script.queue_and_tell(2, "granted", 8, 0)]
    lock = connect(script.server, io_timeout_ms=5000).lock(["lock", "door"], session=True,
                                                           lease_ms=LEASE_MS)
    assert lock.acquire(20_000) == Status.OK, lock.error
    assert (lock.fence, lock.state) == (8, State.HELD)


def test_a_hot_name_is_not_handed_on(connect, server, client):
    """The next thread asks for the lock itself: the session is tied to a connection."""
    dlock = connect(server, hotspot_hand_on=10, io_timeout_ms=5000)
    dlock.hotspot_add("lock")
    first, second = (dlock.lock(session=True, lease_ms=LEASE_MS) for _ in range(2))
    assert first.acquire() == Status.OK
    token, fence = first.token, first.fence
    waiting = dlock.wait_in_line(second)
    assert first.release() == Status.OK
    assert waiting.result() == Status.OK
    assert session_of(client) != 0
    assert second.token != token and second.fence > fence
    assert dlock.stats().hand_ons == 0


def test_a_cancel_that_meets_the_grant_leaves_no_lock_that_the_server_has_given_away(
        connect, server, client):
    """Whichever comes first: DLOCK_OK is a lock that hangs on a connection which is there, and
    DLOCK_CANCELED leaves nothing behind."""
    dlock, other = connect(server), connect(server).lock(lease_ms=LEASE_MS)
    outcomes, chance, mean_s = [], random.Random(1), 0.0005
    for _ in range(300):
        assert other.acquire(20_000) == Status.OK
        lock = dlock.lock(session=True, lease_ms=LEASE_MS)
        waiting = Background(lock.acquire, 20_000)
        wait_for_waiters(client, 1)
        releasing = Background(other.release)
        time.sleep(chance.random() * 2 * mean_s)  # about as long as the grant takes
        lock.cancel()
        outcomes.append(waiting.result())
        mean_s *= 0.8 if outcomes[-1] == Status.OK else 1.25
        assert releasing.result() == Status.OK
        if outcomes[-1] == Status.OK:
            assert Commands(client).info()["token"] == lock.token and session_of(client) > 0
            assert lock.state == State.HELD and lock.release() == Status.OK
        wait_until(lambda: not client.exists("lock"), "that nobody holds it")
        lock.free()
        dlock.locks.remove(lock)
    assert set(outcomes) == {Status.OK, Status.CANCELED}
