"""Once a majority has said yes, nobody waits for the others; what they say later does no harm."""

import ctypes
import itertools
import threading

import pytest

from support.commands import Lock as Commands
from support.fake_server import SILENCE, resp
from support.libdlock import LIST_FN, Background, Status, lib
from support.redlock import granted
from support.server import stopped, wait_until

LONG_IO_MS = 30_000  # a client that goes waits so long for a mute server
SHORT_IO_MS = 300
LATE = (Status.OK, Status.NO_QUORUM)  # where a release must be heard, but not in that time
LEASE_MS = 600_000  # longer than any test


@pytest.fixture
def servers(lend):
    return lend(3)


class Slow:
    """Answers of a server that come when they are let go."""

    def __init__(self):
        self.is_open = threading.Event()
        self.given = 0

    def __call__(self, words):
        self.is_open.wait()
        self.given += 1
        return granted(words)


@pytest.fixture
def slow(fake_server):
    """A server that answers when slow.answer.is_open is set."""
    made = fake_server(Slow())
    yield made
    made.answer.is_open.set()


def test_nobody_waits_for_the_slow(connect, servers):
    """With this I/O timeout, the test would not end."""
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).hold(lease_ms=LEASE_MS)
    assert lock.release() == Status.OK
    with stopped(servers[0]):
        for _ in range(20):
            status, took_ms = lock.timed_acquire()
            assert status == Status.OK and took_ms < LONG_IO_MS / 2
            assert lock.extend() == Status.OK
            assert lock.release() == Status.OK
    wait_until(lambda: Commands(servers[0].observer, "lock").info() is None,
               "the releases to be heard")


def test_no_vote_is_counted_before_it_came(connect, servers, slow):
    """One of two that answer: no majority without the slow one, which then says yes."""
    servers[0].kill()
    lock = connect([slow, *servers[:2]], io_timeout_ms=LEASE_MS).lock()
    acquiring = Background(lock.acquire)
    wait_until(lambda: slow.requests and servers[1].observer.exists("lock"), "a vote of two")
    assert acquiring.is_running()
    slow.answer.is_open.set()
    assert acquiring.result() == Status.OK, lock.error


def test_a_release_does_not_overtake_the_acquire(connect, servers, slow):
    """All travel one connection, in order."""
    dlock = connect([slow, *servers[:2]], io_timeout_ms=LONG_IO_MS)
    locks = [dlock.lock(f"lock-{i}") for i in range(8)]
    for lock in locks:
        assert lock.acquire() == Status.OK
    for lock in reversed(locks):
        assert lock.extend() == Status.OK
        assert lock.release() == Status.OK
    slow.answer.is_open.set()
    wait_until(lambda: len(slow.requests) == 24, "all to be heard")
    for i in range(8):
        about = [words[0] for words in slow.requests if words[1] == b"lock-%d" % i]
        assert about == [b"DLOCK.ACQUIRE", b"DLOCK.EXTEND", b"DLOCK.RELEASE"]
    assert slow.connection_count == 1


def test_one_connection_is_used_again_and_again(connect, servers, slow):
    lock = connect([slow, *servers[:2]], io_timeout_ms=LONG_IO_MS).lock()
    for round_number in range(1, 11):
        slow.answer.is_open.clear()
        assert lock.acquire() == Status.OK, lock.error
        assert lock.release() == Status.OK, lock.error
        slow.answer.is_open.set()
        wait_until(lambda: slow.answer.given == 2 * round_number, "the answers")
    assert slow.connection_count == 1


def test_a_server_that_stays_silent_is_skipped(connect, servers, fake_server):
    mute = fake_server(lambda words: SILENCE)
    mute.answers_ping = False
    dlock = connect([mute, *servers[:2]], io_timeout_ms=SHORT_IO_MS)

    def is_skipped():
        """Of 50 in a row, more than half are not asked of it."""
        before = len(mute.asked("DLOCK.ACQUIRE"))
        for _ in range(50):
            lock = dlock.hold("lock", wait_ms=LONG_IO_MS)
            assert lock.release() in LATE
        return len(mute.asked("DLOCK.ACQUIRE")) - before < 25

    wait_until(is_skipped, "it to be skipped")
    assert mute.connection_count < 200


def test_a_grant_without_a_reply_is_not_given_back_while_the_lock_is_held(connect, servers,
                                                                          fake_server):
    """A renewal may count on it by then. It is given back when the lock is, and in that order."""
    mute = fake_server(lambda words: SILENCE)
    dlock = connect([mute, *servers[:2]], io_timeout_ms=SHORT_IO_MS)
    names, other = (f"lock-{i}" for i in itertools.count()), dlock.lock("other")
    name, lock = next((name, lock) for name, lock in ((name, dlock.lock(name)) for name in names)
                      if lock.acquire() == Status.OK)  # the first may not be granted in time
    wait_until(lambda: mute.asked("DLOCK.ACQUIRE"), "the acquire")

    def releases():
        return [words for words in mute.asked("DLOCK.RELEASE") if words[1] == name.encode()]

    def is_connection_given_up():
        assert other.acquire(LONG_IO_MS) == Status.OK
        assert other.release() in LATE
        return mute.connection_count >= 2
    wait_until(is_connection_given_up, "a new connection beside the silent one")
    assert not releases()
    assert lock.release() in LATE
    wait_until(releases, "the release")


def test_a_mute_server_costs_neither_time_nor_connections(connect, servers, fake_server):
    mute = fake_server(lambda words: SILENCE)
    dlock = connect([mute, *servers[:2]], io_timeout_ms=LONG_IO_MS)
    locks = [dlock.lock(f"lock-{i}") for i in range(100)]
    for lock in locks:
        status, took_ms = lock.timed_acquire()
        assert status == Status.OK and took_ms < LONG_IO_MS / 2
    for lock in locks:
        assert lock.release() == Status.OK
    wait_until(lambda: len({words[1] for words in mute.asked("DLOCK.RELEASE")}) == len(locks),
               "all of them to be taken back")
    assert mute.connection_count == 1


def test_a_grant_without_a_reply_is_given_back_when_the_client_goes(connect, servers, fake_server):
    mute = fake_server(lambda words: SILENCE)
    dlock = connect([mute, *servers[:2]], io_timeout_ms=SHORT_IO_MS)
    dlock.hold(wait_ms=LONG_IO_MS)
    dlock.free()  # after one I/O timeout, or the test would not end
    wait_until(lambda: mute.asked("DLOCK.RELEASE"), "a release behind the acquire")


def test_a_client_that_goes_waits_for_the_replies_in_flight(connect, servers, slow):
    """A server whose reply finds a closed connection drops the commands that are still unread: the
    release of a lock, for instance."""
    dlock = connect([slow, *servers[:2]], io_timeout_ms=LONG_IO_MS)
    lock = dlock.hold()
    assert lock.release() == Status.OK
    lock.free()
    opening = threading.Timer(0.2, slow.answer.is_open.set)
    opening.start()
    dlock.free()
    assert [words[0] for words in slow.requests] == [b"DLOCK.ACQUIRE", b"DLOCK.RELEASE"]
    assert slow.answer.given == 2
    opening.join()


def test_a_late_answer_is_not_taken_for_another(connect, servers, slow):
    """The acquire's late answer must not be read as that of the extend that came after it."""
    lock = connect([slow, *servers[:2]], io_timeout_ms=LONG_IO_MS).hold()
    servers[1].kill()
    opening = threading.Timer(0.2, slow.answer.is_open.set)
    opening.start()
    assert lock.extend() == Status.OK, lock.error  # only with the slow one's own answer to it
    opening.join()
    assert lock.release() == Status.OK, lock.error


def test_a_lock_that_is_handed_on_keeps_its_token_and_its_connection(connect, servers, slow):
    """It is asked for again, with the same token, for a longer lease."""
    dlock = connect([slow, *servers[:2]], io_timeout_ms=LONG_IO_MS, hotspot_hand_on=1)
    dlock.hotspot_add("lock")
    first, second = dlock.hold(lease_ms=30_000), dlock.lock(lease_ms=600_000)
    token = first.token
    waiting = dlock.wait_in_line(second)
    assert first.release() == Status.OK
    assert waiting.result() == Status.OK, second.error
    assert second.token == token
    assert second.release() == Status.OK
    slow.answer.is_open.set()
    wait_until(lambda: [b"DLOCK.RELEASE", b"lock", token] in slow.requests, "the end")
    assert slow.connection_count == 1


def test_a_skipped_server_hears_of_a_release(connect, servers, slow):
    """It has granted the lock, and then falls silent."""
    dlock = connect([slow, *servers[:2]], io_timeout_ms=SHORT_IO_MS)
    lock, other = dlock.lock("lock", lease_ms=600_000), dlock.lock("other")
    slow.answer.is_open.set()
    wait_until(lambda: lock.acquire() == Status.OK, "the lock")  # not at once on a busy machine
    wait_until(lambda: slow.answer.given >= 1, "the grant")
    token = lock.token
    slow.answer.is_open.clear()

    def is_skipped():
        before = dlock.stats().commands
        if other.acquire() != Status.OK:
            return False  # a busy machine: one of the two others was late as well
        asked = dlock.stats().commands - before
        assert other.release() in LATE
        return asked == 2

    wait_until(is_skipped, "it to be skipped")
    assert lock.release() in LATE
    slow.answer.is_open.set()
    wait_until(lambda: [b"DLOCK.RELEASE", b"lock", token] in slow.requests, "the release")


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [lib.dlock_inspect, lib.dlock_list])
def test_servers_that_are_slow_take_no_time_from_the_others(connect, servers, fake_server, read):
    """The first two servers reply once the locks of the others have been told."""
    are_told, told = threading.Event(), []

    def answer(words):
        are_told.wait(60)
        return b"$-1\r\n" if words[0] == b"DLOCK.INFO" else resp(["0", []])

    def tell(_, lock):
        told.append(lock.contents.server)
        if len(told) == len(servers):
            are_told.set()
        return True

    for server in servers:
        Commands(server.client(), "lock").acquire("me", LEASE_MS)
    dlock = connect([fake_server(answer), fake_server(answer), *servers], io_timeout_ms=LONG_IO_MS)
    why = ctypes.create_string_buffer(500)
    status = read(dlock.handle, b"lock", 60_000, LIST_FN(tell), None,
                  ctypes.cast(why, ctypes.c_void_p), 500)
    assert (status, why.value) == (Status.OK, b"")
    assert len(set(told)) == len(servers)
