"""Waiters while CLIENT PAUSE holds the server up: nobody is granted anything until it is over."""

import time

import pytest

from support.commands import fence_at
from support.server import wait_until
from support.turn import Bare, BriefHolder, in_one_turn
from support.waiting import Waiting, assert_nobody_waits, queue_up, wait_for_waiters

PAUSE_MS = 400
MODES = pytest.mark.parametrize("mode", ["WRITE", "ALL"])


class Pause:
    """CLIENT PAUSE. While it lasts nobody may be granted anything. It has begun by begun_by, and
    lasts at least until lasts_to."""

    def __init__(self, client, mode, *before, pause_ms=PAUSE_MS):
        """before: commands in the same turn of the event loop, just before the pause."""
        self.lasts_to = time.time() + pause_ms / 1000
        in_one_turn(client, *before, ("CLIENT", "PAUSE", pause_ms, mode))
        self.begun_by = time.time()

    def assert_granted_after(self, fence):
        assert fence / 1e6 > self.lasts_to - 0.050, "granted during the pause"

    def assert_all_silent(self, *waiting):
        time.sleep(PAUSE_MS / 2 / 1000)
        are_answered = [waiter.is_answered() for waiter in waiting]
        is_over = time.time() > self.lasts_to - 0.050  # a machine that was away for so long
        assert is_over or not any(are_answered), "answered during the pause"


@MODES
def test_a_lease_that_ends_in_a_pause_is_handed_on_after_it(server, lock, start_replica, mode):
    replica = start_replica(server).client()
    brief = BriefHolder(server, 100)
    first, second = queue_up(server, ["first", "second"])
    pause = Pause(lock.client, mode, brief.begin)
    pause.assert_all_silent(first, second)
    fence = first.answer()
    pause.assert_granted_after(fence)
    assert lock.info()["fence"] == fence
    assert not second.is_answered(0.05)
    wait_until(lambda: fence_at(replica) == fence, "the replica to follow")


@MODES
def test_a_string_lock_that_ends_in_a_pause_is_followed_after_it(server, lock, mode):
    lock.client.set("lock", "other", px=60_000)
    [waiter] = queue_up(server, ["waiter"])
    pause = Pause(lock.client, mode, ("PEXPIRE", "lock", 100))
    pause.assert_all_silent(waiter)
    pause.assert_granted_after(waiter.answer())


@MODES
def test_a_session_that_ends_in_a_pause_is_handed_on_after_it(server, lock, mode):
    holder = Waiting(server, "holder", options=["SESSION"])
    holder.answer()
    [waiter] = queue_up(server, ["waiter"])
    pause = Pause(lock.client, mode)
    holder.close()
    pause.assert_all_silent(waiter)
    pause.assert_granted_after(waiter.answer())


@MODES
def test_a_session_that_ends_in_a_pause_is_released_after_it(server, lock, mode):
    holder = Waiting(server, "holder", options=["SESSION"])
    holder.answer()
    Pause(lock.client, mode)
    holder.close()
    wait_until(lambda: lock.info() is None, "the session to end")


@MODES
@pytest.mark.parametrize("end", [("DEL", "lock"), ("PEXPIRE", "lock", 0), ("FLUSHALL",)],
                         ids=["del", "pexpire", "flushall"])
def test_a_lock_deleted_right_before_a_pause_is_handed_on_after_it(server, lock, mode, end):
    lock.acquire("me")
    first, second = queue_up(server, ["first", "second"])
    pause = Pause(lock.client, mode, end)
    pause.assert_all_silent(first, second)
    pause.assert_granted_after(first.answer())
    assert not second.is_answered(0.05)


@MODES
def test_a_release_right_before_a_pause_is_a_hand_over_before_it(server, lock, mode):
    """It is the release that hands over, so the pause comes too late to stop it."""
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    pause = Pause(lock.client, mode, ("DLOCK.RELEASE", "lock", "me"), pause_ms=20_000)
    assert waiter.is_answered(10)
    assert waiter.answer() / 1e6 < pause.begun_by


@MODES
def test_a_waiter_that_dies_untold_right_before_a_pause_keeps_nothing_after_it(server, lock, mode):
    lock.acquire("me")
    first, second = queue_up(server, ["first", "second"])
    pause = Pause(lock.client, mode, ("DLOCK.RELEASE", "lock", "me"),
                  ("CLIENT", "KILL", "ID", first.id))
    pause.assert_all_silent(second)
    pause.assert_granted_after(second.answer())


@MODES
def test_a_wait_ends_on_time_in_a_pause(server, lock, mode):
    lock.acquire("me")
    waiter = Waiting(server, "waiter", wait_ms=700)
    wait_for_waiters(lock.client, 1)
    pause = Pause(lock.client, mode, pause_ms=2500)
    assert waiter.answer() is None
    assert time.monotonic() - waiter.sent_at >= 0.7
    assert time.time() < pause.lasts_to
    assert_nobody_waits(lock.client)
    assert lock.info()["token"] == b"me"


@MODES
def test_a_wait_that_ends_in_a_pause_after_the_lease_did_gets_nothing(server, lock, mode):
    brief = BriefHolder(server, 50)
    first, second = queue_up(server, ["first"], wait_ms=700) + queue_up(server, ["second"])
    pause = Pause(lock.client, mode, brief.begin, pause_ms=2500)
    assert first.answer() is None
    assert time.time() < pause.lasts_to
    pause.assert_granted_after(second.answer())


@MODES
def test_a_waiter_that_dies_in_a_pause_is_passed_over(server, lock, mode):
    brief = BriefHolder(server, 100)
    first, second = queue_up(server, ["first", "second"])
    pause = Pause(lock.client, mode, brief.begin)
    first.close()
    pause.assert_granted_after(second.answer())


@MODES
def test_who_comes_in_a_pause_waits_behind_who_came_before(server, lock, mode):
    brief = BriefHolder(server, 100)
    [first] = queue_up(server, ["first"], lease_ms=100)
    pause = Pause(lock.client, mode, brief.begin)
    late = Bare(server)
    late.send("DLOCK.ACQUIRE lock late PX 1000 WAIT 10000")
    pause.assert_all_silent(first)
    assert first.answer() < int(late.read()[0][1:])


def test_an_extended_pause_delays_the_hand_over_again(server, lock):
    brief = BriefHolder(server, 50)
    [waiter] = queue_up(server, ["waiter"])
    Pause(lock.client, "WRITE", brief.begin, pause_ms=1500)
    time.sleep(PAUSE_MS / 2 / 1000)
    pause = Pause(lock.client, "WRITE", pause_ms=1500)
    pause.assert_granted_after(waiter.answer())
