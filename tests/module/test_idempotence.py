"""Every command may be lost, repeated or late, and does no harm."""

import time

import pytest

from support.commands import Lock, stats
from support.server import wait_until
from support.turn import in_one_turn
from support.waiting import Waiting, assert_nobody_waits, queue_up, wait_for_waiters


# -- a lease is never shortened: see also test_commands.py ----------------------------------------


def test_an_extension_that_shortens_nothing_keeps_the_lease_until_its_end(server, lock, clock):
    lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    lock.extend("me", 1)
    clock.advance(30)
    assert not waiter.is_answered()
    clock.advance(31)
    assert waiter.answer() > 0


@pytest.mark.parametrize("before_ms, asked_ms, left_ms", [
    (60_000, 1_000, 60_000), (1_000, 60_000, 60_000), (None, 1_000, -1)],
    ids=["shorter", "longer", "a string without one"])
def test_an_extension_never_shortens_the_ttl_of_a_string(lock, before_ms, asked_ms, left_ms):
    lock.client.set("lock", "me", px=before_ms)
    assert lock.extend("me", asked_ms) == 1
    assert left_ms - 10_000 < lock.client.pttl("lock") <= left_ms


def test_an_extension_that_changes_nothing_is_replicated_as_it_is(stream, lock):
    """So Redis's WAIT behind an extension always speaks of the lock."""
    fence = lock.acquire("me", 60_000)
    stream.take()
    lock.extend("me", 1_000)
    assert stream.take() == [[b"dlock.apply", b"lock", b"me", str(fence).encode(), b"60000"]]


def test_an_extension_that_changes_nothing_of_a_string_is_not_replicated(stream, lock):
    lock.client.set("lock", "me", px=60_000)
    stream.take()
    assert lock.extend("me", 1_000) == 1
    assert stream.take() == []


# -- the same token waits again -------------------------------------------------------------------


@pytest.fixture
def held(lock):
    lock.acquire("me", 600_000)
    return lock


def wait_again(server, lock, token, **options):
    """On a new connection; returns once the server knows that the token waits there."""
    again = Waiting(server, token, **options)
    wait_until(lambda: again.id in [each["client"] for each in lock.queue()], "the newer call")
    return again


def test_a_token_that_waits_again_is_one_waiter_whose_newer_call_is_served(server, held):
    [older] = queue_up(server, ["same"])
    newer = wait_again(server, held, "same")
    assert older.answer() is None
    assert older.call("PING") == b"PONG"
    assert not newer.is_answered()
    assert held.info()["waiters"] == 1
    assert (stats(held.client)["waiters"], stats(held.client)["queues"]) == (1, 1)
    held.release("me")
    assert newer.answer() == held.info()["fence"]
    assert held.info()["token"] == b"same"


def test_a_token_that_waits_again_keeps_its_place(server, held):
    first, _, last = queue_up(server, ["first", "same", "last"])
    newer = wait_again(server, held, "same")
    assert [each["token"] for each in held.queue()] == [b"first", b"same", b"last"]
    fences = []
    for holder, waiter in (("me", first), ("first", newer), ("same", last)):
        held.release(holder)
        fences.append(waiter.answer())
    assert fences == sorted(set(fences))


def test_a_token_may_wait_again_many_times(server, held):
    calls = queue_up(server, ["same"])
    for _ in range(20):
        calls.append(wait_again(server, held, "same"))
    held.release("me")
    assert [call.answer() for call in calls] == [None] * 20 + [held.info()["fence"]]
    assert_nobody_waits(held.client)


def test_the_newer_call_says_how_long_the_token_waits(server, held, clock):
    queue_up(server, ["same"], wait_ms=240_000)
    newer = wait_again(server, held, "same", wait_ms=120_000)
    clock.advance(60)
    assert not newer.is_answered()
    clock.advance(61)
    assert newer.answer() is None
    assert_nobody_waits(held.client)


def test_a_newer_call_waits_past_the_end_of_the_older_one(server, held, clock):
    queue_up(server, ["same"], wait_ms=60_000)
    newer = wait_again(server, held, "same")
    clock.advance(120)
    assert not newer.is_answered()
    held.release("me")
    assert newer.answer() > 0


def test_the_end_of_the_older_connection_does_not_end_the_wait(server, held):
    [older] = queue_up(server, ["same"])
    newer = wait_again(server, held, "same")
    held.client.client_kill_filter(_id=older.id)
    assert not newer.is_answered()
    held.release("me")
    assert newer.answer() > 0


def test_the_end_of_the_newer_connection_ends_the_wait(server, held):
    [_, second] = queue_up(server, ["same", "second"])
    newer = wait_again(server, held, "same")
    newer.close()
    wait_for_waiters(held.client, 1)
    held.release("me")
    assert second.answer() > 0


def test_the_newer_call_gets_the_lease_the_session_and_the_fence_that_it_asked_for(
        server, held, clock):
    fence = time.time_ns() // 1000 + 60_000_000
    queue_up(server, ["same"], lease_ms=60_000)
    newer = wait_again(server, held, "same", lease_ms=180_000, options=["SESSION", "FENCE", fence])
    [third] = queue_up(server, ["third"])
    held.release("me")
    assert newer.answer() >= fence
    info = held.info()
    assert info["fence"] >= fence and info["session"] == newer.id
    assert 170_000 < info["ttl"] <= 180_000
    clock.advance(120)
    assert not third.is_answered()


def test_the_older_connection_of_a_session_may_end_late(server, held):
    """It is half-open: the client is gone from it, and the server learns so when the token holds
    the lock on a newer connection."""
    [older] = queue_up(server, ["same"], options=["SESSION"])
    newer = wait_again(server, held, "same", options=["SESSION"])
    held.release("me")
    fence = newer.answer()
    [third] = queue_up(server, ["third"])
    held.client.client_kill_filter(_id=older.id)
    assert not third.is_answered()
    assert (held.info()["fence"], held.info()["session"]) == (fence, newer.id)


def test_a_waiter_for_a_string_may_wait_again(server, lock):
    lock.client.set("lock", "other")
    [older] = queue_up(server, ["same"])
    newer = wait_again(server, lock, "same")
    assert older.answer() is None
    lock.client.delete("lock")
    assert newer.answer() == lock.info()["fence"]


def test_the_same_token_may_wait_for_several_locks(server, held):
    other = Lock(held.client, "other")
    other.acquire("me", 600_000)
    [here], [there] = queue_up(server, ["same"]), queue_up(server, ["same"], key="other")
    assert held.info()["waiters"] == other.info()["waiters"] == 1
    held.release("me")
    assert here.answer() > 0
    assert not there.is_answered()


def test_a_full_queue_lets_a_token_wait_again(server, held):
    held.client.config_set("dlock.max-waiters", 2)
    first, _ = queue_up(server, ["first", "second"])
    newer = wait_again(server, held, "first")
    assert first.answer() is None
    held.release("me")
    assert newer.answer() > 0


def test_an_acquire_without_wait_leaves_the_waiting_call_of_its_token_alone(server, held):
    [waiting] = queue_up(server, ["same"])
    assert held.acquire("same") is None
    assert held.info()["waiters"] == 1
    held.release("me")
    assert waiting.answer() > 0


def test_a_token_that_asks_again_in_the_turn_of_its_grant_gets_the_same_fence(server, held):
    [waiting] = queue_up(server, ["same"])
    _, fence = in_one_turn(held.client, ("DLOCK.RELEASE", "lock", "me"),
                           ("DLOCK.ACQUIRE", "lock", "same", "PX", 60_000))
    assert fence == held.info()["fence"]
    assert waiting.answer() in (None, fence)


# -- a release by a token that waits --------------------------------------------------------------


def by_command(lock):
    return lock.release("waiting")


def by_script(lock):
    call = "return redis.call('DLOCK.RELEASE', KEYS[1], ARGV[1])"
    return lock.client.eval(call, 1, "lock", "waiting")


@pytest.mark.parametrize("is_string", [False, True], ids=["a lock", "a string"])
@pytest.mark.parametrize("release", [by_command, by_script])
def test_a_release_by_a_waiting_token_ends_its_wait_and_nothing_else(
        server, lock, stream, is_string, release):
    lock.client.set("lock", "me") if is_string else lock.acquire("me")
    before = lock.info()
    [waiting] = queue_up(server, ["waiting"])
    stream.take()
    assert release(lock) == 0
    assert waiting.answer() is None
    assert waiting.call("PING") == b"PONG"
    assert_nobody_waits(lock.client)
    assert {**lock.info(), "ttl": before["ttl"]} == before
    assert stream.take() == []


def test_after_a_release_by_a_waiting_token_the_next_one_is_served(server, held):
    _, second, third = queue_up(server, ["first", "second", "third"])
    held.release("first")
    held.release("me")
    assert second.answer() == held.info()["fence"]
    assert not third.is_answered()


def test_a_token_that_was_granted_the_lock_in_this_turn_gives_it_back(server, held):
    """The release comes after the hand-over and before its answer."""
    first, second = queue_up(server, ["first", "second"])
    replies = in_one_turn(held.client, ("DLOCK.RELEASE", "lock", "me"),
                          ("DLOCK.RELEASE", "lock", "first"))
    assert replies == [1, 1]
    assert second.answer() == held.info()["fence"]
    first.answer()
    assert first.call("PING") == b"PONG"


def test_a_waiting_token_that_was_released_may_wait_again(server, held):
    queue_up(server, ["waiting", "other"])
    held.release("waiting")
    wait_for_waiters(held.client, 1)
    queue_up(server, ["waiting"])
    assert [each["token"] for each in held.queue()] == [b"other", b"waiting"]
