"""Every command may be lost, repeated or late, and does no harm."""

import time

import pytest

from support.commands import Lock, stats
from support.server import wait_until
from support.turn import in_one_turn
from support.waiting import Waiting, assert_nobody_waits, queue_up, wait_for_waiters


# -- a lease is never shortened -------------------------------------------------------------------


def test_an_extension_never_shortens_a_lease(lock):
    lock.acquire("me", 60_000)
    assert lock.extend("me", 1_000) == 1
    assert 50_000 < lock.ttl() <= 60_000
    assert lock.info()["lease"] == 60_000


def test_an_extension_that_arrives_late_does_not_undo_a_newer_one(lock):
    lock.acquire("me", 1_000)
    lock.extend("me", 600_000)
    lock.extend("me", 1_000)
    assert lock.ttl() > 500_000


def test_an_acquire_by_the_holder_never_shortens_the_lease(lock):
    fence = lock.acquire("me", 60_000)
    assert lock.acquire("me", 1_000) == fence
    assert 50_000 < lock.ttl() <= 60_000
    assert lock.info()["lease"] == 60_000


def test_an_extension_that_shortens_nothing_keeps_the_lease_until_its_end(server, lock, clock):
    lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    lock.extend("me", 1)
    clock.advance(30)
    assert not waiter.is_answered()
    clock.advance(31)
    assert waiter.answer() > 0


def test_an_extension_never_shortens_the_ttl_of_a_string(lock):
    lock.client.set("lock", "me", px=60_000)
    assert lock.extend("me", 1_000) == 1
    assert 50_000 < lock.client.pttl("lock") <= 60_000


def test_an_extension_of_a_string_lengthens_its_ttl(lock):
    lock.client.set("lock", "me", px=1_000)
    assert lock.extend("me", 60_000) == 1
    assert 50_000 < lock.client.pttl("lock") <= 60_000


def test_an_extension_gives_a_string_without_ttl_none(lock):
    lock.client.set("lock", "me")
    assert lock.extend("me", 1_000) == 1
    assert lock.client.pttl("lock") == -1


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


def test_the_older_call_of_a_token_that_waits_again_is_answered_with_null(server, held):
    [older] = queue_up(server, ["same"])
    newer = wait_again(server, held, "same")
    assert older.answer() is None
    assert not newer.is_answered()
    assert older.call("PING") == b"PONG"


def test_a_token_that_waits_again_is_one_waiter(server, held):
    queue_up(server, ["same"])
    wait_again(server, held, "same")
    assert held.info()["waiters"] == 1
    assert (stats(held.client)["waiters"], stats(held.client)["queues"]) == (1, 1)


def test_the_lock_is_granted_to_the_newer_connection(server, held):
    queue_up(server, ["same"])
    newer = wait_again(server, held, "same")
    held.release("me")
    assert newer.answer() == held.info()["fence"]
    assert held.info()["token"] == b"same"


def test_a_token_that_waits_again_keeps_its_place(server, held):
    queue_up(server, ["first", "same", "last"])
    wait_again(server, held, "same")
    assert [each["token"] for each in held.queue()] == [b"first", b"same", b"last"]


def test_a_token_that_waits_again_overtakes_nobody(server, held):
    first, _, last = queue_up(server, ["first", "same", "last"])
    newer = wait_again(server, held, "same")
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


def test_the_newer_call_gets_the_lease_the_session_and_the_fence_that_it_asked_for(server, held):
    fence = time.time_ns() // 1000 + 60_000_000
    queue_up(server, ["same"], lease_ms=1_500)
    newer = wait_again(server, held, "same", lease_ms=60_000, options=["SESSION", "FENCE", fence])
    held.release("me")
    assert newer.answer() >= fence
    info = held.info()
    assert info["fence"] >= fence and info["session"] == newer.id
    assert 50_000 < info["ttl"] <= 60_000


def test_nobody_else_gets_the_lock_while_the_lease_of_the_newer_call_lasts(server, held, clock):
    queue_up(server, ["same"], lease_ms=60_000)
    newer = wait_again(server, held, "same", lease_ms=180_000)
    [third] = queue_up(server, ["third"])
    held.release("me")
    assert newer.answer() > 0
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


def test_a_release_by_a_waiting_token_ends_its_wait(server, held):
    [waiting] = queue_up(server, ["waiting"])
    assert held.release("waiting") == 0
    assert waiting.answer() is None
    assert waiting.call("PING") == b"PONG"
    assert_nobody_waits(held.client)


def test_a_release_by_a_waiting_token_takes_nothing_from_the_holder(server, held):
    fence = held.info()["fence"]
    queue_up(server, ["waiting"])
    held.release("waiting")
    assert (held.info()["token"], held.info()["fence"]) == (b"me", fence)


def test_after_a_release_by_a_waiting_token_the_next_one_is_served(server, held):
    _, second, third = queue_up(server, ["first", "second", "third"])
    held.release("first")
    held.release("me")
    assert second.answer() == held.info()["fence"]
    assert not third.is_answered()


def test_a_release_by_a_waiting_token_is_not_replicated(server, held, stream):
    queue_up(server, ["waiting"])
    stream.take()
    held.release("waiting")
    assert stream.take() == []


def test_a_release_by_a_token_that_waits_for_a_string_ends_its_wait(server, lock):
    lock.client.set("lock", "other")
    [waiting] = queue_up(server, ["waiting"])
    assert lock.release("waiting") == 0
    assert waiting.answer() is None
    assert lock.client.get("lock") == b"other"


def test_a_release_in_a_script_ends_a_wait(server, held):
    [waiting] = queue_up(server, ["waiting"])
    call = "return redis.call('DLOCK.RELEASE', KEYS[1], ARGV[1])"
    assert held.client.eval(call, 1, "lock", "waiting") == 0
    assert waiting.answer() is None


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
