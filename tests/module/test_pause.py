"""Waiters while CLIENT PAUSE holds the server up: nobody is granted anything until it is over."""

import contextlib

import pytest

from support.commands import Lock, fence_at
from support.server import wait_until
from support.turn import Bare, in_one_turn
from support.waiting import Waiting, assert_nobody_waits, queue_up

PAUSE_S = 3600
MINUTE, MINUTE_MS = 60, 60_000
MODES = pytest.mark.parametrize("mode", ["WRITE", "ALL"])


@contextlib.contextmanager
def paused(server, mode, *before):
    """CLIENT PAUSE for the body of a with statement. before: commands in the same turn of the event
    loop, just before the pause. A server that pauses for all obeys nobody who would end it, so the
    wall clock has to."""
    in_one_turn(server.observer, *before, ("CLIENT", "PAUSE", PAUSE_S * 1000, mode))
    try:
        yield
    finally:
        if mode == "ALL":
            server.clock.step(PAUSE_S + 1)
            server.observer.ping()  # when it has noticed
        else:
            server.observer.execute_command("CLIENT", "UNPAUSE")


def assert_all_silent(server, *waiting):
    """However often the server looks whether it may write again."""
    for _ in range(3):
        server.clock.advance(1)
    assert not any(waiter.is_answered() for waiter in waiting), "answered during the pause"


@MODES
def test_a_lease_that_ends_in_a_pause_is_handed_on_after_it(server, lock, start_replica, mode):
    replica = start_replica(server).client()
    lock.acquire("me", MINUTE_MS)
    first, second = queue_up(server, ["first", "second"])
    with paused(server, mode):
        server.clock.advance(MINUTE + 1)
        assert_all_silent(server, first, second)
    fence = first.answer()
    assert lock.info()["fence"] == fence
    assert not second.is_answered()
    wait_until(lambda: fence_at(replica) == fence, "the replica to follow")


@MODES
def test_a_string_lock_that_ends_in_a_pause_is_followed_after_it(server, lock, mode):
    lock.client.set("lock", "other", px=MINUTE_MS)
    [waiter] = queue_up(server, ["waiter"])
    with paused(server, mode):
        server.clock.step(MINUTE + 1)
        server.clock.advance(MINUTE + 1)
        assert_all_silent(server, waiter)
    assert waiter.answer() > 0


@MODES
def test_a_session_that_ends_in_a_pause_is_ended_and_handed_on_after_it(server, lock, mode):
    holder, other = (Waiting(server, "holder", key=key, options=["SESSION"])
                     for key in ("lock", "other"))
    assert holder.answer() > 0 and other.answer() > 0
    [waiter] = queue_up(server, ["waiter"])
    with paused(server, mode):
        holder.close()
        other.close()
        assert_all_silent(server, waiter)
    assert waiter.answer() > 0
    wait_until(lambda: Lock(lock.client, "other").info() is None, "the session to end")


@MODES
@pytest.mark.parametrize("end", [("DEL", "lock"), ("PEXPIRE", "lock", "0"), ("FLUSHALL",)],
                         ids=" ".join)
def test_a_lock_deleted_right_before_a_pause_is_handed_on_after_it(server, lock, mode, end):
    lock.acquire("me")
    first, second = queue_up(server, ["first", "second"])
    with paused(server, mode, end):
        assert_all_silent(server, first, second)
    assert first.answer() > 0
    assert not second.is_answered()


@MODES
def test_a_release_right_before_a_pause_is_a_hand_over_before_it(server, lock, mode):
    """It is the release that hands over, so the pause comes too late to stop it."""
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    with paused(server, mode, ("DLOCK.RELEASE", "lock", "me")):
        assert waiter.answer() > 0


@MODES
def test_a_waiter_that_dies_untold_right_before_a_pause_keeps_nothing_after_it(server, lock, mode):
    lock.acquire("me")
    first, second = queue_up(server, ["first", "second"])
    with paused(server, mode, ("DLOCK.RELEASE", "lock", "me"), ("CLIENT", "KILL", "ID", first.id)):
        assert_all_silent(server, second)
    assert second.answer() > 0


@MODES
def test_a_wait_ends_on_time_in_a_pause(server, lock, mode):
    lock.acquire("me", 2 * MINUTE_MS)
    [waiter] = queue_up(server, ["waiter"], wait_ms=MINUTE_MS)
    with paused(server, mode):
        assert_all_silent(server, waiter)
        server.clock.advance(MINUTE)
        assert waiter.answer() is None
    wait_until(lambda: lock.info()["token"] == b"me", "the end of the pause")
    assert_nobody_waits(lock.client)


@MODES
def test_a_wait_that_ends_in_a_pause_after_the_lease_did_gets_nothing(server, lock, mode):
    lock.acquire("me", MINUTE_MS)
    first, second = (queue_up(server, ["first"], wait_ms=2 * MINUTE_MS)
                     + queue_up(server, ["second"]))
    with paused(server, mode):
        server.clock.advance(MINUTE + 1)
        assert_all_silent(server, first, second)
        server.clock.advance(MINUTE)
        assert first.answer() is None
        assert_all_silent(server, second)
    assert second.answer() > 0


@MODES
def test_a_waiter_that_dies_in_a_pause_is_passed_over(server, lock, mode):
    lock.acquire("me", MINUTE_MS)
    first, second = queue_up(server, ["first", "second"])
    with paused(server, mode):
        server.clock.advance(MINUTE + 1)
        first.close()
        assert_all_silent(server, second)
    assert second.answer() > 0


@MODES
def test_who_comes_in_a_pause_waits_behind_who_came_before(server, lock, mode):
    lock.acquire("me", MINUTE_MS)
    [first] = queue_up(server, ["first"])
    late = Bare(server)
    with paused(server, mode):
        server.clock.advance(MINUTE + 1)
        late.send("DLOCK.ACQUIRE lock late PX 60000 WAIT 600000")
        assert_all_silent(server, first)
    fence = first.answer()
    assert lock.release("first") == 1
    assert fence < int(late.read()[0][1:])


def test_an_extended_pause_delays_the_hand_over_again(server, lock):
    lock.acquire("me", MINUTE_MS)
    [waiter] = queue_up(server, ["waiter"])
    with paused(server, "WRITE"):
        server.clock.advance(MINUTE + 1)
        in_one_turn(lock.client, ("CLIENT", "PAUSE", 2 * PAUSE_S * 1000, "WRITE"))
        server.clock.step(PAUSE_S + 1)
        assert_all_silent(server, waiter)
    assert waiter.answer() > 0
