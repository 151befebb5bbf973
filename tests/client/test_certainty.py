"""A lock is not said to be held while another may have it; and one lock's trouble is its own."""

import threading
import time

import pytest

from support.commands import Lock as Commands
from support.fake_server import SILENCE
from support.libdlock import Background, Event, State, Status, Told
from support.server import stopped, wait_until
from support.waiting import wait_for_waiters

LEASE_MS = 60_000
PATIENT_MS = 10_000


@pytest.fixture
def through(connect, server, start_proxy, told):
    """through(**options): a client, and the proxy between it and the server."""
    def make(**options):
        proxy = start_proxy(server)
        return connect(proxy, on_event=told, **options), proxy
    return make


def grants(words):
    return b":7\r\n" if words[0] == b"DLOCK.ACQUIRE" else b":1\r\n"


def session_of(client, name="lock"):
    return Commands(client, name).info()["session"]


def rival_waits(server, taken):
    """Somebody else waits for it, and says when it has it."""
    def run():
        taken.append(server.connect().execute_command(
            "DLOCK.ACQUIRE", "lock", "rival", "PX", LEASE_MS, "WAIT", LEASE_MS))

    threading.Thread(target=run, daemon=True).start()
    wait_for_waiters(server.observer, 1)


# -- sessions -------------------------------------------------------------------------------------


def test_a_move_that_is_not_answered_is_a_loss(through, server, told):
    """The server hangs the lock on a connection that we give up then, and so releases it."""
    dlock, proxy = through(io_timeout_ms=300)
    lock = dlock.lock(session=True, lease_ms=LEASE_MS, renew_every_ms=20000)
    assert lock.acquire(PATIENT_MS) == Status.OK
    taken = []
    rival_waits(server, taken)
    proxy.mute(b"SESSION")
    proxy.cut_near()
    wait_until(lambda: taken, "that the rival has it")
    assert lock.state != State.HELD and lock.remaining_ms == 0
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert lock.state == State.LOST


def test_while_it_is_being_moved_nothing_is_certain(through, told):
    dlock, proxy = through()
    lock = dlock.lock(session=True, lease_ms=LEASE_MS)
    assert lock.acquire() == Status.OK
    proxy.mute(b"SESSION")
    proxy.cut_near()
    wait_until(lambda: lock.state == State.SUSPECT, "suspicion")
    assert lock.remaining_ms == 0
    wait_until(lambda: told.find(Event.SUSPECT), "that it is told")
    proxy.unmute()
    wait_until(lambda: lock.state == State.HELD, "that it is ours")
    assert lock.remaining_ms > 0 and Event.LOST not in told.events()


def test_a_move_that_is_refused_is_tried_again(connect, fake_server, told):
    asked = []

    def answer(words):
        if words[0] == b"DLOCK.ACQUIRE":
            asked.append(words)
            if len(asked) in (2, 3):
                return b"-LOADING Redis is loading the dataset in memory\r\n"
        return grants(words)

    server = fake_server(answer)
    lock = connect(server, on_event=told).lock(session=True, lease_ms=LEASE_MS)
    assert lock.acquire() == Status.OK
    server.break_connections()
    wait_until(lambda: len(asked) >= 4 and lock.state == State.HELD, "that it is moved")
    assert Event.LOST not in told.events()


def test_a_move_needs_no_replicas(through, server, start_replica, told):
    """A shortfall would be undone, and the lock with it."""
    replica = start_replica(server)
    dlock, proxy = through()
    lock = dlock.lock(session=True, lease_ms=LEASE_MS, min_replicas=1, replica_timeout_ms=200)
    wait_until(lambda: lock.acquire() == Status.OK, "a replica that acknowledges in time")
    first = session_of(server.observer)
    with stopped(replica):
        proxy.cut_near()
        wait_until(lambda: session_of(server.observer) != first, "that it is moved")
        wait_until(lambda: lock.state == State.HELD, "that it is ours")


# -- extensions -----------------------------------------------------------------------------------


def test_a_shorter_extension_changes_nothing(connect, server, client):
    lock = connect(server).lock(lease_ms=LEASE_MS)
    assert lock.acquire() == Status.OK
    assert lock.extend(500) == Status.OK
    assert lock.remaining_ms > LEASE_MS / 2 and Commands(client).ttl() > LEASE_MS / 2
    assert lock.state == State.HELD and lock.release() == Status.OK


def test_an_extension_that_is_not_sent_changes_nothing(connect, server):
    lock = connect(server).lock(lease_ms=LEASE_MS)
    assert lock.acquire() == Status.OK
    server.kill()
    # A connection that was used just now is used without a look at it: then there is doubt.
    wait_until(lambda: lock.extend(50) == Status.UNREACHABLE, "an extension that is not sent")
    assert lock.state == State.HELD and lock.remaining_ms > LEASE_MS / 2
    server.start(server.port)


def test_doubt_about_an_extension_does_not_flood_the_server(connect, fake_server):
    """Renewals go on as often as before: each comes after a pause of its length."""
    first = []

    def answer(words):
        if words[0] == b"DLOCK.EXTEND" and not first:
            first.append(words)
            return SILENCE
        return grants(words)

    server = fake_server(answer)
    lock = connect(server, io_timeout_ms=300).lock(lease_ms=LEASE_MS, renew_every_ms=200)
    assert lock.acquire(PATIENT_MS) == Status.OK
    assert lock.extend(3000) == Status.IN_DOUBT
    begin, before = time.monotonic(), len(server.asked("DLOCK.EXTEND"))
    wait_until(lambda: len(server.asked("DLOCK.EXTEND")) >= before + 4, "renewals")
    assert time.monotonic() - begin > 0.2, "at least one pause"
    assert lock.state == State.HELD and lock.remaining_ms > LEASE_MS / 2


def test_every_suspicion_is_told(connect, fake_server, told):
    is_mute = threading.Event()

    def answer(words):
        return SILENCE if words[0] == b"DLOCK.EXTEND" and is_mute.is_set() else grants(words)

    dlock = connect(fake_server(answer), on_event=told, io_timeout_ms=100)
    lock = dlock.lock(lease_ms=LEASE_MS, renew_every_ms=100)
    assert lock.acquire(20_000) == Status.OK
    for _ in range(3):
        suspicions = told.events().count(Event.SUSPECT)
        is_mute.set()
        wait_until(lambda: told.events().count(Event.SUSPECT) > suspicions, "suspicion")
        is_mute.clear()
        dlock.wait_for_renewals(2)


# -- one's trouble is one's own -------------------------------------------------------------------


def test_a_lock_that_is_lost_is_not_handed_on(connect, server, client):
    dlock = connect(server, hotspot_hand_on=10)
    dlock.hotspot_add("lock")
    lock, next_one = dlock.lock(lease_ms=LEASE_MS, renew_every_ms=100), dlock.lock()
    assert lock.acquire() == Status.OK
    waiting = Background(next_one.acquire, 60_000)
    wait_until(lambda: dlock.stats().waiting == 1, "the next in line")
    client.delete("lock")
    client.execute_command("DLOCK.ACQUIRE", "lock", "rival", "PX", LEASE_MS)
    wait_until(lambda: lock.state == State.LOST, "the loss")
    assert lock.release() == Status.LOST
    wait_for_waiters(client, 1)
    assert waiting.is_running()
    client.execute_command("DLOCK.RELEASE", "lock", "rival")
    assert waiting.result() == Status.OK


def test_replicas_that_are_slow_do_not_hold_up_other_locks(connect, server, start_replica):
    replica = start_replica(server)
    dlock = connect(server)
    safe = dlock.lock("safe", lease_ms=LEASE_MS, renew_every_ms=50, min_replicas=1,
                      replica_timeout_ms=LEASE_MS)
    plain = dlock.lock("plain", lease_ms=LEASE_MS, renew_every_ms=50)
    assert safe.acquire(20_000) == plain.acquire() == Status.OK
    with stopped(replica):
        dlock.wait_for_renewals(5)  # of the plain one: the other waits for its replica


def test_sessions_that_are_cut_off_do_not_hold_up_other_locks(through, client, told):
    """Each session asks for its lock again, and nobody answers."""
    count = 12
    dlock, proxy = through()
    plain = dlock.lock("plain", lease_ms=LEASE_MS, renew_every_ms=50)
    assert plain.acquire() == Status.OK
    sessions = [dlock.lock(f"session{i}", session=True, lease_ms=LEASE_MS) for i in range(count)]
    for each in sessions:
        assert each.acquire() == Status.OK
    proxy.delay(b"SESSION")
    client.execute_command("CLIENT", "KILL", "ID", session_of(client, "session0"))
    wait_until(lambda: proxy.delayed_count >= 1, "sessions that ask again")
    dlock.wait_for_renewals(5)
    assert State.HELD not in {each.state for each in sessions}  # some losses are told by the server
    proxy.deliver()
    wait_until(lambda: all(told.find(Event.LOST, f"session{i}") for i in range(count)),
               "the loss of all sessions")
    assert Event.LOST not in told.events("plain")


def test_for_ever_with_replicas(connect, server, start_replica):
    start_replica(server)
    lock = connect(server).lock(min_replicas=1, replica_timeout_ms=PATIENT_MS)
    assert lock.acquire(-1) == Status.OK


def test_who_is_told_that_it_has_it_may_give_it_back(connect, server, client):
    told, locks = Told(), []
    original = told._tell

    def tell(arg, event, name, why):
        original(arg, event, name, why)
        if event == Event.ACQUIRED:
            assert locks[0].extend(5000) == Status.OK
            assert locks[0].release() == Status.OK

    told.function = type(told.function)(tell)
    dlock = connect(server, on_event=told)
    locks.append(dlock.lock(lease_ms=LEASE_MS, renew_every_ms=100))
    assert locks[0].acquire() == Status.OK
    assert locks[0].state == State.FREE and not client.exists("lock")
    assert told.events() == [Event.ACQUIRED, Event.RELEASED]
