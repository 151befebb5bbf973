"""A lock is not said to be held while another may have it; and one lock's trouble is its own."""

import time

import pytest

from support.commands import Lock as Commands
from support.fake_server import SILENCE, granting
from support.libdlock import Event, State, Status, Told
from support.server import stopped, wait_until
from support.waiting import queue_up, wait_for_waiters

LEASE_MS = 60_000
PATIENT_MS = 10_000


@pytest.fixture
def through(connect, server, start_proxy, told):
    """through(**options): a client, and the proxy between it and the server."""
    def make(**options):
        proxy = start_proxy(server)
        return connect(proxy, on_event=told, **options), proxy
    return make


def session_of(client, name="lock"):
    return Commands(client, name).info()["session"]


# -- sessions -------------------------------------------------------------------------------------


def test_a_move_that_is_not_answered_is_a_loss(through, server, told):
    """The server hangs the lock on a connection that we give up then, and so releases it."""
    dlock, proxy = through(io_timeout_ms=300)
    lock = dlock.hold(session=True, lease_ms=LEASE_MS, renew_every_ms=20000, wait_ms=PATIENT_MS)
    [rival] = queue_up(server, ["rival"])
    proxy.mute(b"SESSION")
    proxy.cut_near()
    assert rival.answer() > lock.fence
    assert lock.state != State.HELD and lock.remaining_ms == 0
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert lock.state == State.LOST


def test_while_it_is_being_moved_nothing_is_certain(through, told):
    dlock, proxy = through()
    lock = dlock.hold(session=True, lease_ms=LEASE_MS)
    proxy.mute(b"SESSION")
    proxy.cut_near()
    wait_until(lambda: lock.state == State.SUSPECT, "suspicion")
    assert lock.remaining_ms == 0
    wait_until(lambda: told.find(Event.SUSPECT), "that it is told")
    proxy.unmute()
    wait_until(lambda: lock.state == State.HELD, "that it is ours")
    assert lock.remaining_ms > 0 and Event.LOST not in told.events()


def test_a_move_that_is_refused_is_tried_again(connect, fake_server, told):
    loading = b"-LOADING Redis is loading the dataset in memory\r\n"
    answers = iter([None, loading, loading])
    server = fake_server(granting(ACQUIRE=lambda words: next(answers, None)))
    lock = connect(server, on_event=told).hold(session=True, lease_ms=LEASE_MS)
    server.break_connections()
    wait_until(lambda: len(server.asked("DLOCK.ACQUIRE")) >= 4 and lock.state == State.HELD,
               "that it is moved")
    assert Event.LOST not in told.events()


# -- extensions -----------------------------------------------------------------------------------


def test_an_extension_that_is_not_sent_changes_nothing(connect, server):
    lock = connect(server).hold(lease_ms=LEASE_MS)
    server.kill()
    # A connection that was used just now is used without a look at it: then there is doubt.
    wait_until(lambda: lock.extend(50) == Status.UNREACHABLE, "an extension that is not sent")
    assert lock.state == State.HELD and lock.remaining_ms > LEASE_MS / 2
    server.start(server.port)


def test_doubt_about_an_extension_does_not_flood_the_server(connect, fake_server):
    """Renewals go on as often as before: each comes after a pause of its length."""
    def extend(words):
        return SILENCE if words[-1] == b"3000" else None  # and renewals are as ever
    server = fake_server(granting(EXTEND=extend))
    lock = connect(server, io_timeout_ms=300).hold(lease_ms=LEASE_MS, renew_every_ms=200,
                                                   wait_ms=PATIENT_MS)
    assert lock.extend(3000) == Status.IN_DOUBT
    begin, before = time.monotonic(), len(server.asked("DLOCK.EXTEND"))
    wait_until(lambda: len(server.asked("DLOCK.EXTEND")) >= before + 4, "renewals")
    assert time.monotonic() - begin > 0.2, "at least one pause"
    wait_until(lambda: lock.state == State.HELD, "a renewal that is answered in time")
    assert lock.remaining_ms > LEASE_MS / 2


def test_every_suspicion_is_told(connect, fake_server, told):
    answers = [None]
    server = fake_server(granting(EXTEND=lambda words: answers[0]))
    dlock = connect(server, on_event=told, io_timeout_ms=100)
    dlock.hold(lease_ms=LEASE_MS, renew_every_ms=100, wait_ms=20_000)
    for _ in range(3):
        suspicions = told.events().count(Event.SUSPECT)
        answers[0] = SILENCE
        wait_until(lambda: told.events().count(Event.SUSPECT) > suspicions, "suspicion")
        answers[0] = None
        dlock.wait_for_renewals(2)


# -- one's trouble is one's own -------------------------------------------------------------------


def test_a_lock_that_is_lost_is_not_handed_on(connect, server, client):
    dlock = connect(server, hotspot_hand_on=10)
    dlock.hotspot_add("lock")
    lock = dlock.hold(lease_ms=LEASE_MS, renew_every_ms=100)
    waiting = dlock.wait_in_line(dlock.lock())
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
    dlock.hold("plain", lease_ms=LEASE_MS, renew_every_ms=50)
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
    connect(server).hold(min_replicas=1, replica_timeout_ms=PATIENT_MS, wait_ms=-1)


def test_who_is_told_that_it_has_it_may_give_it_back(connect, server, client):
    def give_back(event):
        if event == Event.ACQUIRED:
            results.extend([lock.extend(5000), lock.release()])

    results, told = [], Told(give_back)
    lock = connect(server, on_event=told).lock(lease_ms=LEASE_MS, renew_every_ms=100)
    assert lock.acquire() == Status.OK and results == [Status.OK] * 2
    assert lock.state == State.FREE and not client.exists("lock")
    assert told.events() == [Event.ACQUIRED, Event.RELEASED]


@pytest.mark.parametrize("options", [{"lease_ms": 60_000}, {"renew": True}], ids=["lease", "kept"])
def test_a_release_that_is_refused_at_first_does_not_make_the_lock_look_lost(
        fake_server, connect, options):
    """Another RELEASE goes behind the ACQUIRE whose reply never came: not before the release has
    been served."""
    is_held = True

    def answer(words):
        nonlocal is_held
        if words[0] == b"DLOCK.ACQUIRE":
            return SILENCE if len(server.asked("DLOCK.ACQUIRE")) == 1 else b":7\r\n"
        if len(server.asked("DLOCK.RELEASE")) == 1:
            return b"-LOADING not now\r\n"
        was_held, is_held = is_held, False
        return b":%d\r\n" % was_held
    server = fake_server(answer)
    lock = connect(server, io_timeout_ms=500).hold(wait_ms=20_000, **options)
    assert lock.release() == Status.OK
    assert not is_held
