"""Waits that end without the lock: the time is over, or the client was unblocked or has gone. What
comes between a grant and its answer is in test_told.py."""

import time

import pytest
import redis

from support.commands import stats
from support.server import wait_until
from support.stream import ReplicationStream
from support.waiting import Waiting, assert_nobody_waits, queue_up, wait_for_waiters


@pytest.mark.parametrize("wait_ms", [1, 30, 120])
def test_a_wait_ends_on_time_with_null(server, lock, wait_ms):
    lock.acquire("me")
    waiter = Waiting(server, "waiter", wait_ms=wait_ms)
    assert waiter.answer() is None
    assert time.monotonic() - waiter.sent_at >= wait_ms / 1000
    assert stats(lock.client)["wait_timeouts"] == 1
    assert_nobody_waits(lock.client)
    assert lock.release("me") == 1
    assert lock.info() is None


@pytest.mark.alone
def test_a_wait_is_not_ended_by_the_next_100_ms_tick(server, lock):
    lock.acquire("me")
    late = []
    for _ in range(20):
        waiter = Waiting(server, "waiter", wait_ms=20)
        waiter.answer()
        late.append(time.monotonic() - waiter.sent_at - 0.020)
    assert sorted(late)[2] < 0.020  # each begins with the end of the one before: all would be late


def test_long_waits_cost_an_idle_server_nothing(server, lock):
    """7.0 spins on a timer that is more than 35 minutes away, unless one takes care."""
    hours = 3_600_000
    lock.acquire("me", hours)
    waiting = queue_up(server, ["first", "second"], wait_ms=hours, lease_ms=hours)
    lock.client.delete("lock")
    waiting[0].answer()

    def cpu_seconds():
        info = lock.client.info("cpu")
        return info["used_cpu_user"] + info["used_cpu_sys"]

    before = cpu_seconds()
    time.sleep(0.5)  # not for luck: so long it is idle
    assert cpu_seconds() - before < 0.25


def test_waiters_may_leave_in_any_order(server, lock):
    lock.acquire("me")
    waiting = queue_up(server, [f"waiter:{i}" for i in range(6)])
    for i in (3, 0, 5):
        waiting[i].close()
    wait_for_waiters(lock.client, 3)
    holder = "me"
    for i in (1, 2, 4):
        lock.release(holder)
        assert waiting[i].answer() > 0
        holder = waiting[i].token
    assert_nobody_waits(lock.client)


@pytest.mark.parametrize("leave", ["close", "abort"])
def test_a_dead_waiter_leaves_with_its_socket(server, lock, leave):
    lock.acquire("me")
    first, second = queue_up(server, ["first", "second"])
    getattr(first, leave)()
    wait_for_waiters(lock.client, 1)
    lock.release("me")
    assert second.answer() > 0


def test_a_killed_waiter_leaves(server, lock):
    lock.acquire("me")
    first, second = queue_up(server, ["first", "second"])
    lock.client.client_kill_filter(_id=first.id)
    wait_for_waiters(lock.client, 1)
    lock.release("me")
    assert second.answer() > 0


def test_client_unblock_ends_a_wait_with_null(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    assert lock.client.client_unblock(waiter.id) == 1
    assert waiter.answer() is None
    assert_nobody_waits(lock.client)
    assert waiter.call("PING") == b"PONG"


def test_client_unblock_with_error_ends_a_wait_with_an_error(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    assert lock.client.client_unblock(waiter.id, error=True) == 1
    with pytest.raises(redis.ResponseError, match="UNBLOCKED"):
        waiter.answer()
    assert_nobody_waits(lock.client)
    assert waiter.call("PING") == b"PONG"


def test_the_last_waiter_that_dies_between_grant_and_answer_leaves_the_lock_free(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    stream = ReplicationStream(server)
    pipe = lock.client.pipeline(transaction=True)
    pipe.execute_command("DLOCK.RELEASE", "lock", "me")
    pipe.execute_command("CLIENT", "KILL", "ID", waiter.id)
    pipe.execute()
    wait_until(lambda: lock.info() is None, "the lock to be taken back")
    commands = [c for c in stream.take() if c[0] not in (b"MULTI", b"EXEC")]
    assert [c[0].lower() for c in commands] == [b"dlock.apply", b"dlock.release"]
    assert commands[1][1:] == [b"lock", b"waiter"]
    stream.close()


def test_a_lock_asked_for_again_is_not_taken_back_from_the_dead_connection(server, lock):
    """The waiter's connection dies, but the same token has asked on another one meanwhile."""
    lock.acquire("me")
    first, second = queue_up(server, ["first", "second"])
    pipe = lock.client.pipeline(transaction=True)
    pipe.execute_command("DLOCK.RELEASE", "lock", "me")
    pipe.execute_command("DLOCK.ACQUIRE", "lock", "first", "PX", 60_000)
    pipe.execute_command("CLIENT", "KILL", "ID", first.id)
    fence = pipe.execute()[1]
    assert not second.is_answered(0.1)
    assert lock.info()["fence"] == fence
