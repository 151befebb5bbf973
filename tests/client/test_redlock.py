"""Several independent servers: a majority decides, whatever the others do."""

import re
import time

import pytest

from support.fake_server import SILENCE
from support.libdlock import Background, State, Status
from support.redlock import LEASE_MS, LONG_IO_MS, SHORT_IO_MS, take_everywhere, tokens
from support.server import free_port, wait_until


# -- all is well ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_a_free_lock_is_taken_on_all_of_them_and_given_back(connect, servers, count):
    lock = connect(servers[:count], io_timeout_ms=LONG_IO_MS).lock(lease_ms=LEASE_MS)
    take_everywhere(lock, servers[:count])
    assert lock.state == State.HELD
    assert lock.release() == Status.OK
    wait_until(lambda: tokens(servers) == [None] * 5, "all to have given it back")


def test_ping_needs_a_majority(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    assert dlock.ping(LONG_IO_MS) == Status.OK
    for server in servers[:2]:
        server.kill()
    assert dlock.ping(LONG_IO_MS) == Status.OK
    servers[2].kill()
    assert dlock.ping(LONG_IO_MS) == Status.NO_QUORUM


def test_the_servers_may_be_given_by_name(connect, servers):
    urls = [f"redis://localhost:{server.port}" for server in servers]
    lock = connect(urls, io_timeout_ms=LONG_IO_MS, connect_timeout_ms=LONG_IO_MS).lock()
    take_everywhere(lock, servers)


def test_a_name_that_is_not_known_harms_nobody_else(connect, servers):
    urls = [f"redis://127.0.0.1:{server.port}" for server in servers[:4]]
    lock = connect(["redis://no-such-host.invalid", *urls], io_timeout_ms=LONG_IO_MS).hold()
    assert lock.release() == Status.OK


# -- some are not there ---------------------------------------------------------------------------


@pytest.mark.parametrize("dead", [1, 2])
def test_a_minority_may_be_dead(connect, servers, dead):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    for server in servers[:dead]:
        server.kill()
    lock = dlock.lock(lease_ms=LEASE_MS)
    for _ in range(5):
        assert lock.acquire() == Status.OK, lock.error
        assert lock.extend() == Status.OK
        assert lock.release() == Status.OK
    wait_until(lambda: tokens(servers[dead:]) == [None] * (5 - dead), "all to have given it back")


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_nobody_waits_for_a_silent_minority(connect, servers, silent, count, is_connected):
    lock = connect(servers, io_timeout_ms=LEASE_MS, connect_timeout_ms=LEASE_MS).lock()
    if is_connected:
        take_everywhere(lock, servers)
        assert lock.release() == Status.OK
    silent(*servers[:count])
    for _ in range(5):
        status, took_ms = lock.timed_acquire()
        assert status == Status.OK, lock.error
        assert took_ms < LEASE_MS, "the timeout"
        assert lock.extend() == Status.OK
        assert lock.release() == Status.OK


def take(lock, times):
    for _ in range(times):
        assert lock.acquire() == Status.OK
        lock.release()


def test_a_server_that_came_back_is_used_again(connect, servers):
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock(lease_ms=LEASE_MS)
    servers[0].kill()
    take(lock, times=10)
    servers[0].start(servers[0].port)

    def is_used_again():
        assert lock.acquire() == Status.OK
        token = tokens(servers[:1])
        lock.release()
        return token[0] is not None

    wait_until(is_used_again, "a vote of the server that came back")


def test_a_skipped_server_is_asked_when_the_others_cannot_decide(connect, servers):
    lock = connect(servers[:3], io_timeout_ms=LONG_IO_MS).lock()
    servers[0].kill()
    take(lock, times=50)
    servers[0].start(servers[0].port)
    servers[1].kill()
    assert lock.acquire() == Status.OK, lock.error


@pytest.mark.parametrize("wait_ms", [0, 300])
def test_an_acquire_fails_while_too_many_are_dead(connect, servers, wait_ms):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    for server in servers[:3]:
        server.kill()
    lock = dlock.lock(lease_ms=LEASE_MS)
    status, took_ms = lock.timed_acquire(wait_ms)
    assert status == Status.NO_QUORUM
    assert took_ms >= wait_ms
    assert "3 unreachable: 127.0.0.1:" in lock.error  # the last of the others may be unanswered
    assert f"127.0.0.1:{servers[0].port}: Connection refused" in lock.error
    wait_until(lambda: tokens(servers[3:]) == [None, None], "nothing to be left")


@pytest.mark.parametrize("wait_ms", [0, 300])
def test_an_acquire_fails_while_too_many_are_silent(connect, servers, silent, wait_ms):
    dlock = connect(servers, io_timeout_ms=SHORT_IO_MS)
    silent(*servers[:3])
    lock = dlock.lock(lease_ms=LEASE_MS)
    status, took_ms = lock.timed_acquire(wait_ms)
    assert status == Status.NO_QUORUM
    assert took_ms >= wait_ms
    assert re.search("[012] ok, [345] unanswered", lock.error)  # on a slow machine more are late
    assert "in time" in lock.error  # a request, or the login of the next connection
    wait_until(lambda: tokens(servers[3:]) == [None, None], "the undoing")


def test_all_come_back_within_the_wait(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    ports = [server.port for server in servers]
    for server in servers:
        server.kill()
    waiting = Background(dlock.lock().acquire, 60_000)
    assert waiting.is_running()
    for server, port in zip(servers[:3], ports):
        server.start(port)
    assert waiting.result() == Status.OK


def test_a_lasting_failure_of_a_majority_ends_the_wait_at_once(connect, servers):
    for server in servers[:3]:
        server.observer.config_set("requirepass", "hunter2")
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock(lease_ms=LEASE_MS)
    status, took_ms = lock.timed_acquire(60_000)
    assert status == Status.REFUSED
    assert took_ms < 60_000, "its wait"
    assert "3 failed" in lock.error and "NOAUTH" in lock.error
    wait_until(lambda: tokens(servers[3:]) == [None, None], "nothing to be left")


def test_no_cause_has_a_password_in_it(connect):
    urls = [f"redis://app:hunter2@127.0.0.1:{free_port()}" for _ in range(3)]
    lock = connect(urls).lock()
    assert lock.acquire() == Status.NO_QUORUM
    assert "unreachable" in lock.error and "hunter2" not in lock.error


# -- some are odd ---------------------------------------------------------------------------------


def test_a_server_that_talks_nonsense_is_one_vote_less(connect, servers, fake_server):
    mad = fake_server(lambda words: b"+OK\r\n")
    lock = connect([mad, *servers[:2]], io_timeout_ms=LONG_IO_MS).hold()
    assert lock.release() == Status.OK
    servers[1].kill()
    assert lock.acquire() == Status.NO_QUORUM
    assert "1 failed" in lock.error and f"127.0.0.1:{mad.port}: " in lock.error


def test_servers_that_did_not_reply_get_a_release_behind_the_request(connect, servers, fake_server):
    mute = fake_server(lambda words: SILENCE)
    lock = connect([mute, *servers[:1]], io_timeout_ms=SHORT_IO_MS).lock()
    assert lock.acquire() == Status.NO_QUORUM
    wait_until(lambda: len(mute.asked("DLOCK.RELEASE")) >= 1, "the release behind the acquire")
    assert [words[0] for words in mute.requests][:2] == [b"DLOCK.ACQUIRE", b"DLOCK.RELEASE"]
    token = mute.requests[0][2]
    assert mute.requests[1][2] == token and lock.token.startswith(token)  # the next has another one


# -- many at once ---------------------------------------------------------------------------------


def test_of_many_everyone_gets_a_turn(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS, connect_timeout_ms=LONG_IO_MS)
    locks = [dlock.lock(lease_ms=LEASE_MS) for _ in range(32)]
    held, most, fences = [0], [0], []

    def take(lock):
        for _ in range(3):
            status = lock.acquire(100_000)
            if status != Status.OK:
                return status, lock.error
            held[0] += 1
            most[0] = max(most[0], held[0])
            fences.append(lock.fence)
            time.sleep(0.003)
            held[0] -= 1
            lock.release()
        return status, ""

    results = [task.result(110) for task in [Background(take, lock) for lock in locks]]
    assert results == [(Status.OK, "")] * 32
    assert most[0] == 1
    assert fences == sorted(set(fences))
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")
