"""Renewal in the background, and what the holder is told when it does not work. That a lock is kept
beyond its lease, and not beyond its bound, is in support/every_deployment.py."""

import time

import pytest

from support.commands import Lock as Commands
from support.fake_server import SILENCE, Cut, granting
from support.libdlock import Event, State, Status
from support.server import stopped, wait_until

PATIENT_MS = 5000  # an I/O timeout that a slow machine keeps


@pytest.fixture
def renewing(connect, told):
    """renewing(to, **options) is a client that is told."""
    return lambda to, **options: connect(to, on_event=told, **{"io_timeout_ms": PATIENT_MS,
                                                               **options})


def hold(client, name="lock", lease_ms=60_000, renew_every_ms=100, **options):
    # A grant that comes after the end of a short lease does not count, on a slow machine.
    return client.hold(name, 20_000, lease_ms=lease_ms, renew_every_ms=renew_every_ms, **options)


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# -- as long as all is well -----------------------------------------------------------------------


def test_without_renewal_it_ends(renewing, server, told):
    lock = hold(renewing(server), lease_ms=300, renew_every_ms=0)
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert lock.state == State.LOST and lock.remaining_ms == 0
    assert Event.SUSPECT not in told.events()  # nothing was overdue
    assert lock.acquire() == Status.LOST
    assert lock.extend() == Status.LOST


def test_a_released_lock_is_not_renewed(renewing, fake_server):
    server = fake_server(granting())
    dlock = renewing(server)
    lock, other = hold(dlock, renew_every_ms=20), hold(dlock, "other", renew_every_ms=20)

    def renewals():
        return [words for words in server.asked("DLOCK.EXTEND") if words[1] == b"lock"]
    wait_until(lambda: len(renewals()) >= 3, "three renewals")
    assert lock.release() == Status.OK
    at_release = len(renewals())
    dlock.wait_for_renewals(10)  # of the other one
    assert len(renewals()) <= at_release + 1  # one may have been under way
    assert other.state == State.HELD


def test_a_lock_that_is_taken_again_is_another(renewing, fake_server):
    """A late reply to an old renewal says nothing about the new holder of the handle."""
    answers = [SILENCE]
    server = fake_server(granting(EXTEND=lambda words: answers[-1]))
    lock = hold(renewing(server, io_timeout_ms=300), renew_every_ms=20)
    wait_until(lambda: server.asked("DLOCK.EXTEND"), "a renewal under way")
    # Behind the renewal that is not answered, unless that has been given up by now.
    assert lock.release() in (Status.IN_DOUBT, Status.OK)
    first = lock.token
    answers.append(b":1\r\n")
    assert lock.acquire(10_000) == Status.OK
    assert lock.token != first

    def renewals():
        return [words for words in server.asked("DLOCK.EXTEND") if words[2] == lock.token]

    server.silent[0].sendall(b":0\r\n")  # the old token does not hold it
    before = len(renewals())
    wait_until(lambda: len(renewals()) > before + 5, "renewals of the new one")
    wait_until(lambda: lock.state == State.HELD, "one that is answered in time")
    answers.append(b":0\r\n")
    wait_until(lambda: lock.state == State.LOST, "that it is lost: its own renewal said so")


def test_an_extension_by_hand_is_not_shortened(renewing, server, client):
    dlock = renewing(server)
    lock, other = (hold(dlock, name, renew_every_ms=50) for name in ("lock", "other"))
    assert lock.extend(600_000) == Status.OK
    dlock.wait_for_renewals(10)
    assert other.state == State.HELD
    assert Commands(client).ttl() > 500_000 and lock.remaining_ms > 500_000


def test_a_shorter_extension_by_hand_does_not_stop_the_renewal(renewing, server, client):
    dlock = renewing(server)
    lock = hold(dlock, lease_ms=30000, renew_every_ms=200)
    assert lock.extend(50) == Status.OK
    dlock.wait_for_renewals()
    assert lock.state == State.HELD and lock.remaining_ms > 20000


def test_many_locks_go_out_together(renewing, fake_server):
    """A wave is one round trip: it is all there before anything of it is answered."""
    count, extended = 300, []

    def extend(words):
        if len(locks) < count:  # a slow machine: the first are renewed before the last are taken
            return None
        extended.append(words)
        return b"" if len(extended) % count else b":1\r\n" * count

    server, locks = fake_server(granting(EXTEND=extend)), []
    dlock = renewing(server, io_timeout_ms=20_000)
    for i in range(count):
        locks.append(hold(dlock, f"lock{i}", lease_ms=120000, renew_every_ms=1000))
    dlock.wait_for_renewals(count)  # a wave
    assert len({words[1] for words in extended}) == count
    assert server.connection_count <= 2
    for lock in locks:
        assert lock.state == State.HELD


# -- when it does not work ------------------------------------------------------------------------


def test_a_server_that_is_stopped_for_less_than_the_lease(renewing, server, told):
    lock = hold(renewing(server, io_timeout_ms=200))
    with stopped(server):
        wait_until(lambda: told.find(Event.SUSPECT), "suspicion")
        assert lock.state in (State.SUSPECT, State.LOST)
    wait_until(lambda: lock.state == State.HELD, "that it is held again")
    assert Event.LOST not in told.events()
    assert lock.release() in (Status.OK, Status.IN_DOUBT)


def test_a_server_that_is_stopped_for_longer_than_the_lease(renewing, server, told):
    lock = hold(renewing(server, io_timeout_ms=200), lease_ms=3000)
    with stopped(server):
        wait_until(lambda: told.find(Event.LOST), "the loss")
        assert lock.state == State.LOST
        assert lock.is_lost_by_fd()
        assert told.events().index(Event.SUSPECT) < told.events().index(Event.LOST)
    wait_until(lambda: lock.client.ping() == Status.OK, "a server that has replied to all")
    assert lock.state == State.LOST, "what is gone stays gone"
    lock.release()


def test_a_server_that_is_restarted_without_its_data(renewing, server, told):
    lock = hold(renewing(server))
    server.crash()
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert told.find(Event.LOST)[2] == Status.LOST
    assert lock.state == State.LOST and lock.is_lost_by_fd()
    assert lock.release() == Status.LOST


def test_a_server_that_is_restarted_with_its_data(renewing, start_server, told):
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    lock = hold(renewing(server))
    server.crash()
    lock.client.wait_for_renewals()
    assert Event.LOST not in told.events()
    assert lock.release() == Status.OK


@pytest.mark.parametrize("sent", range(5))
def test_a_connection_that_is_cut_at_each_byte_of_the_answer(renewing, fake_server, told, sent):
    answers = iter([Cut(b":1\r\n"[:sent])])
    server = fake_server(granting(EXTEND=lambda words: next(answers, None)))
    lock = hold(renewing(server))
    wait_until(lambda: len(server.asked("DLOCK.EXTEND")) >= 4, "renewals after the cut")
    assert lock.state == State.HELD and Event.LOST not in told.events()


@pytest.mark.parametrize("refusal", [b"-LOADING Redis is loading the dataset in memory\r\n",
                                     b"-READONLY You can't write against a read only replica.\r\n",
                                     b"-OOM command not allowed\r\n", b"-NOPERM no\r\n"])
def test_a_server_that_refuses_for_a_while(renewing, fake_server, told, refusal):
    answers = iter([refusal] * 3)
    server = fake_server(granting(EXTEND=lambda words: next(answers, None)))
    lock = hold(renewing(server))
    wait_until(lambda: lock.client.stats().renewed >= 2, "renewals after the refusals")
    assert lock.state == State.HELD and Event.LOST not in told.events()


def test_an_answer_that_comes_after_the_end_changes_nothing(renewing, fake_server, told):
    server = fake_server(granting(
        EXTEND=lambda words: wait_until(lambda: told.find(Event.LOST), "the loss") and None))
    lock = hold(renewing(server), lease_ms=1000)
    wait_until(lambda: told.find(Event.LOST), "the loss")
    assert lock.client.lock("other").acquire() == Status.OK, "whose reply comes after that one"
    assert lock.state == State.LOST and lock.remaining_ms == 0


# -- how it is told -------------------------------------------------------------------------------


def test_a_descriptor_becomes_readable(connect, server):
    lock = connect(server).lock(lease_ms=500)
    assert lock.lost_fd >= 0 and not lock.is_lost_by_fd()
    end = now() + 0.5 * 0.99 - 0.002  # at the soonest
    assert lock.acquire(20_000) == Status.OK
    assert not lock.is_lost_by_fd() or now() >= end
    assert lock.is_lost_by_fd(60000)
    assert lock.state == State.LOST
    lock.release()
    assert not lock.is_lost_by_fd(), "the handle is free, nothing is lost"


def test_a_release_is_not_a_loss(connect, server):
    lock = connect(server).lock(lease_ms=60000)
    assert lock.acquire() == Status.OK and not lock.is_lost_by_fd()
    assert lock.release() == Status.OK and not lock.is_lost_by_fd()


def test_nothing_is_told_after_the_release(renewing, server, told):
    """The loss of a lock that was taken later is told: one of this would have been told before."""
    dlock = renewing(server)
    for turn in range(20):
        hold(dlock, lease_ms=20, renew_every_ms=0).release()
        count = len(told.events())
        hold(dlock, f"other {turn}", lease_ms=30, renew_every_ms=0)
        wait_until(lambda: told.find(Event.LOST, f"other {turn}"), "the other loss")
        assert told.events()[-1] == Event.RELEASED and len(told.events()) == count


def test_wrong_options(dlock):
    for wrong in ({"lease_ms": 1000, "renew_every_ms": 1000},
                  {"lease_ms": 1000, "renew_every_ms": 2000}):
        with pytest.raises(ValueError):
            dlock.lock(**wrong)
