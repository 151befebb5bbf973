"""Waits that end without the lock: the time is over, or the client was unblocked or has gone. What
comes between a grant and its answer is in test_told.py."""

import time

import pytest
import redis

from support.commands import stats
from support.server import wait_until
from support.turn import Bare, in_one_turn
from support.waiting import Waiting, assert_nobody_waits, queue_up, wait_for_waiters


def test_a_wait_ends_on_time_with_null(server, lock, clock):
    """In the turn in which it is over, not with the next tick of the server."""
    lock.acquire("me", 600_000)
    [waiter] = queue_up(server, ["waiter"], wait_ms=60_000)
    clock.advance(30)
    assert not waiter.is_answered()
    clock.advance(31)
    assert stats(lock.client)["wait_timeouts"] == 1
    assert waiter.answer() is None
    assert_nobody_waits(lock.client)
    assert lock.release("me") == 1
    assert lock.info() is None


@pytest.mark.parametrize("wait_ms", [1, 30])
def test_a_wait_ends_on_the_clock_of_the_machine(server, lock, wait_ms):
    lock.acquire("me")
    waiter = Waiting(server, "waiter", wait_ms=wait_ms)
    assert waiter.answer() is None
    assert time.monotonic() - waiter.sent_at >= wait_ms / 1000


def test_long_waits_cost_an_idle_server_nothing(server, lock, clock):
    """7.0 spins on a timer that is more than 35 minutes away, unless one takes care."""
    hours = 3_600_000
    lock.acquire("me", hours)
    waiting = queue_up(server, ["first", "second"], wait_ms=hours, lease_ms=hours)
    lock.client.delete("lock")
    waiting[0].answer()
    assert clock.turns_a_second(0.3) < 1000, "it spins"


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


@pytest.mark.parametrize("leave", [
    Waiting.close, Waiting.abort, lambda it: it.server.observer.client_kill_filter(_id=it.id),
], ids=["close", "abort", "kill"])
def test_a_dead_waiter_leaves_with_its_socket(server, lock, leave):
    lock.acquire("me")
    first, second = queue_up(server, ["first", "second"])
    leave(first)
    wait_for_waiters(lock.client, 1)
    lock.release("me")
    assert second.answer() > 0


@pytest.mark.parametrize("error", [False, True], ids=["with null", "with an error"])
def test_client_unblock_ends_a_wait(server, lock, error):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    assert lock.client.client_unblock(waiter.id, error=error) == 1
    if error:
        with pytest.raises(redis.ResponseError, match="UNBLOCKED"):
            waiter.answer()
    else:
        assert waiter.answer() is None
    assert_nobody_waits(lock.client)
    assert waiter.call("PING") == b"PONG"


def test_the_last_waiter_that_dies_between_grant_and_answer_leaves_the_lock_free(
        server, lock, stream):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    stream.take()
    in_one_turn(lock.client, ("DLOCK.RELEASE", "lock", "me"), ("CLIENT", "KILL", "ID", waiter.id))
    wait_until(lambda: lock.info() is None, "the lock to be taken back")
    commands = [c for c in stream.take() if c[0] not in (b"MULTI", b"EXEC")]
    assert [c[0].lower() for c in commands] == [b"dlock.apply", b"dlock.release"]
    assert commands[1][1:] == [b"lock", b"waiter"]


def test_a_lock_asked_for_again_is_not_taken_back_from_the_dead_connection(server, lock):
    """The waiter's connection dies, but the same token has asked on another one meanwhile."""
    lock.acquire("me")
    first, second = queue_up(server, ["first", "second"])
    _, fence, _ = in_one_turn(lock.client, ("DLOCK.RELEASE", "lock", "me"),
                              ("DLOCK.ACQUIRE", "lock", "first", "PX", 60_000),
                              ("CLIENT", "KILL", "ID", first.id))
    assert not second.is_answered()
    assert lock.info()["fence"] == fence


# -- permissions ----------------------------------------------------------------------------------


def user_waits(server, token="user", options=""):
    """The user "bob" waits, and may do anything for now."""
    server.observer.execute_command("ACL", "SETUSER", "bob", "reset", "on", "nopass", "~*", "+@all")
    waiter = Bare(server)
    server.keep(waiter)
    assert waiter.call("AUTH bob x") == b"+OK"
    before = stats(server.observer)["waiters"]
    waiter.send(f"DLOCK.ACQUIRE lock {token} PX 60000 WAIT 60000 {options}")
    wait_for_waiters(server.observer, before + 1)
    return waiter


WITHDRAWN = {"the command": ["-dlock.acquire"], "the key": ["resetkeys", "~other"],
             "writing": ["resetkeys", "%R~*"], "everything": ["-@all"]}


@pytest.mark.parametrize("rules", WITHDRAWN.values(), ids=WITHDRAWN.keys())
def test_a_waiter_whose_permission_was_withdrawn_gets_no_lock(server, lock, rules):
    """It could not even release it."""
    lock.acquire("me")
    waiter = user_waits(server)
    [next_one] = queue_up(server, ["next"])
    lock.client.execute_command("ACL", "SETUSER", "bob", *rules)
    lock.release("me")
    assert next_one.answer() == lock.info()["fence"]
    assert waiter.read()[0].startswith(b"-NOPERM")
    assert lock.info()["token"] == b"next"


@pytest.mark.parametrize("options", ["", "SHARED"])
def test_the_last_waiter_without_permission_leaves_the_lock_free(server, lock, options):
    lock.acquire("me")
    waiters = [user_waits(server, f"user:{i}", options) for i in range(3)]
    in_one_turn(lock.client, ("ACL", "SETUSER", "bob", "-dlock.acquire"),
                ("DLOCK.RELEASE", "lock", "me"))
    assert all(waiter.read()[0].startswith(b"-NOPERM") for waiter in waiters)
    assert lock.info() is None
    assert_nobody_waits(lock.client)


def test_a_waiter_whose_other_permissions_were_withdrawn_gets_the_lock(server, lock):
    lock.acquire("me")
    waiter = user_waits(server)
    lock.client.execute_command("ACL", "SETUSER", "bob", "reset", "on",
                                "(+dlock.acquire ~lock)", "+dlock.acquire", "~other")
    lock.release("me")
    assert int(waiter.read()[0][1:]) == lock.info()["fence"]
