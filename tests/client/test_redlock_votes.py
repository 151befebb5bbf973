"""What a majority of several servers says, and that nothing that does not count is left behind."""

import re

from support.libdlock import Background, State, Status
from support.redlock import (LEASE_MS, LONG_IO_MS, SHORT_IO_MS, awake, hold_on, take_everywhere,
                             tokens)
from support.server import wait_until


def assert_all_but_the_late_say(lock, no):
    """Three of five say no. That decides it, so one that says yes may be late."""
    assert re.fullmatch(f"2 ok, 3 {no}|1 ok, 3 {no}, 1 unanswered|0 ok, 3 {no}, 2 unanswered",
                        lock.error), lock.error


def test_a_minority_of_others_does_not_matter(connect, servers):
    hold_on(servers[:2])
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).hold()
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK
    assert tokens(servers) == [b"somebody"] * 2 + [None] * 3


def test_a_split_vote_leaves_nothing_behind(connect, servers):
    hold_on(servers[:2], token="one")
    hold_on(servers[2:3], token="another")
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock(lease_ms=LEASE_MS)
    assert lock.acquire() == Status.BUSY
    assert_all_but_the_late_say(lock, "busy")
    wait_until(lambda: tokens(servers) == [b"one", b"one", b"another", None, None],
               "nothing to be left")


def test_half_of_an_even_number_is_no_majority(connect, servers):
    hold_on(servers[:2])
    lock = connect(servers[:4], io_timeout_ms=LONG_IO_MS).lock(lease_ms=LEASE_MS)
    assert lock.acquire() == Status.BUSY
    wait_until(lambda: tokens(servers[2:4]) == [None, None], "nothing to be left")


def test_busy_and_dead_servers_together_prevent_a_majority(connect, servers):
    hold_on(servers[:2])
    servers[4].kill()
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock(lease_ms=LEASE_MS)
    assert lock.acquire() == Status.NO_QUORUM
    dead = f"127.0.0.1:{servers[4].port}"
    assert lock.error == f"2 ok, 2 busy, 1 unreachable: {dead}: Connection refused"
    wait_until(lambda: tokens(servers[2:4]) == [None, None], "nothing to be left")
    servers[3].kill()
    hold_on(servers[2:3])
    assert lock.acquire(200) == Status.TIMEOUT  # a majority says so


def test_a_split_vote_is_decided_when_somebody_gives_way(connect, servers):
    hold_on(servers[:3], lease_ms=400)
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).hold(wait_ms=60_000)
    assert tokens(servers).count(lock.token) >= 3


def test_extend_needs_a_majority_that_still_holds_it(connect, servers):
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock()
    take_everywhere(lock, servers)
    for server in servers[:2]:
        server.observer.delete("lock")
    assert lock.extend() == Status.OK
    servers[2].observer.delete("lock")
    assert lock.extend() == Status.LOST
    assert_all_but_the_late_say(lock, "not held")
    assert lock.state == State.LOST


def test_an_extension_that_is_not_known_keeps_what_is_certain(connect, servers):
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock(lease_ms=60_000)
    take_everywhere(lock, servers)
    for server in servers[:3]:
        server.kill()
    assert lock.extend(600_000) == Status.NO_QUORUM
    assert 0 < lock.remaining_ms <= 60_000
    assert lock.state == State.HELD


def test_a_release_of_a_lock_that_a_majority_has_lost_is_told(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    lock = dlock.lock(lease_ms=LEASE_MS)
    take_everywhere(lock, servers)
    for server in servers[:2]:
        server.observer.delete("lock")
    assert lock.release() == Status.OK
    take_everywhere(lock, servers)
    for server in servers[:3]:
        server.observer.delete("lock")
    assert lock.release() == Status.LOST
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")


def test_a_release_that_too_few_hear_goes_on_in_the_background(connect, servers):
    lock = connect(servers, io_timeout_ms=SHORT_IO_MS).hold(lease_ms=LEASE_MS, wait_ms=60_000)
    wait_until(lambda: tokens(servers) == [lock.token] * 5, "all to have granted it")
    ports = [server.port for server in servers]
    for server in servers[:3]:
        server.kill()
    assert lock.release() == Status.NO_QUORUM
    assert lock.state == State.FREE
    wait_until(lambda: tokens(servers[3:]) == [None, None], "the release of the others")
    servers[0].start(ports[0])


def test_a_silent_server_hears_of_the_release_when_it_wakes_up(connect, servers, silent):
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).lock(lease_ms=LEASE_MS)
    take_everywhere(lock, servers)
    silent(servers[0])
    assert lock.release() == Status.OK
    awake(servers[0])
    wait_until(lambda: tokens(servers) == [None] * 5, "the release to be heard")


def test_a_server_that_grants_too_late_hears_of_the_release_too(connect, servers, silent):
    silent(*servers[:2])
    lock = connect(servers, io_timeout_ms=LONG_IO_MS).hold(lease_ms=LEASE_MS)
    assert lock.release() == Status.OK
    awake(*servers[:2])
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")


def test_late_grants_of_a_failed_acquire_are_undone(connect, servers, silent):
    silent(*servers[:3])
    lock = connect(servers, io_timeout_ms=SHORT_IO_MS).lock(lease_ms=LEASE_MS)
    assert lock.acquire(2 * SHORT_IO_MS) == Status.NO_QUORUM
    awake(*servers[:3])
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")


def test_after_doubt_the_next_attempt_has_another_token(connect, servers, silent):
    """What is under way for the first one must not give back the second one's grant."""
    silent(*servers[:3])
    lock = connect(servers, io_timeout_ms=SHORT_IO_MS).lock(lease_ms=LEASE_MS)
    waiting = Background(lock.acquire, 60_000)
    wait_until(lambda: any(b"~2" in (token or b"") for token in tokens(servers[3:])),
               "the second attempt")
    awake(*servers[:3])
    assert waiting.result() == Status.OK
    assert b"~" in lock.token
    held = tokens(servers).count(lock.token)
    assert held >= 3
    assert lock.release() == Status.OK
    wait_until(lambda: tokens(servers) == [None] * 5, "nothing to be left")


def test_a_server_that_was_restarted_empty_is_one_vote_less(connect, servers):
    """It has forgotten the lock, and gives it to another; the majority has not."""
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    lock, other = dlock.lock(), dlock.lock()
    take_everywhere(lock, servers)
    servers[0].crash()
    assert other.acquire() == Status.BUSY
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK
    fence = lock.fence
    assert other.acquire() == Status.OK
    assert other.fence > fence


def test_a_canceled_wait_leaves_nothing_behind(connect, servers):
    dlock = connect(servers, io_timeout_ms=LONG_IO_MS)
    hold_on(servers[:3])
    lock = dlock.lock(lease_ms=LEASE_MS)
    waiting = Background(lock.acquire, -1)
    wait_until(lambda: dlock.stats().commands >= 10, "a second attempt")
    lock.cancel()
    assert waiting.result() == Status.CANCELED
    wait_until(lambda: tokens(servers) == [b"somebody"] * 3 + [None] * 2, "nothing to be left")


def test_a_cancel_does_not_wait_for_the_silent(connect, servers, silent):
    silent(*servers[:3])
    lock = connect(servers, io_timeout_ms=60_000).lock()
    waiting = Background(lock.acquire, -1)
    assert waiting.is_running()
    lock.cancel()
    assert waiting.result(20) == Status.CANCELED


def test_a_silent_server_does_not_use_up_a_short_lease(connect, servers, silent):
    lock = connect(servers, io_timeout_ms=60_000).lock(lease_ms=3000)
    silent(servers[0])
    assert lock.acquire() == Status.OK, lock.error
    assert lock.remaining_ms > 0
