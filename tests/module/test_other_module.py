"""Another module calls our commands. Its calls come from a client without a connection."""

import pytest
import redis

from support import other_module
from support.commands import Lock, Locks, stats
from support.waiting import assert_nobody_waits, queue_up


@pytest.fixture
def caller(server, tmp_path):
    client = server.client()
    client.execute_command("MODULE", "LOAD", str(other_module.build(tmp_path)))
    yield client
    client.execute_command("MODULE", "UNLOAD", "other")


def test_a_lock_is_taken_and_released_for_another_module(caller):
    fence = caller.execute_command("OTHER.CALL", "DLOCK.ACQUIRE", "lock", "me", "PX", 60_000)
    assert Lock(caller).info()["fence"] == fence
    assert caller.execute_command("OTHER.CALL", "DLOCK.RELEASE", "lock", "me") == 1


def test_a_call_of_another_module_never_waits(caller):
    """A server cannot end the wait of such a client: to abort it was an assertion."""
    Lock(caller).acquire("holder")
    words = ("DLOCK.ACQUIRE", "lock", "me", "PX", 60_000, "WAIT", 60_000)
    assert caller.execute_command("OTHER.CALL", *words) is None
    assert caller.execute_command("OTHER.PROMISE", *words) == 0
    assert_nobody_waits(caller)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_call_of_another_module_has_no_session(caller, in_transaction):
    pipe = caller.pipeline(transaction=in_transaction)
    pipe.execute_command("OTHER.CALL", "DLOCK.ACQUIRE", "lock", "me", "PX", 60_000, "SESSION")
    [reply] = pipe.execute(raise_on_error=False)
    assert isinstance(reply, redis.ResponseError) and "SESSION needs a connection" in str(reply)
    assert stats(caller)["session_holds"] == 0


def test_another_module_takes_several_locks(caller):
    words = ("DLOCK.ACQUIREALL", 2, "a", "b", "me", "PX", 60_000, "WAIT", 60_000)
    assert caller.execute_command("OTHER.CALL", *words) > 0
    assert caller.execute_command("OTHER.CALL", *words[:4], "you", *words[5:]) is None
    assert caller.execute_command("OTHER.CALL", "DLOCK.RELEASEALL", 2, "a", "b", "me") == 2
    assert_nobody_waits(caller)


def test_another_module_may_use_a_session(session, caller):
    words = ("DLOCK.ACQUIRE", "lock", "me", "VIA", session.name, "SESSION")
    assert caller.execute_command("OTHER.CALL", *words) > 0
    words = ("DLOCK.WATCH", "lock", session.name)
    assert caller.execute_command("OTHER.CALL", *words) == b"OK"


@pytest.mark.parametrize("key", ["b", "c"])
def test_a_module_that_deletes_one_of_several_locks_within_an_event(server, caller, key):
    """All keys are closed when the first event is sent."""
    locks = Locks(caller, "a", "b", "c")
    caller.execute_command("OTHER.MEDDLE", key)
    assert locks.acquire("me") > 0
    assert locks.holders() == {name: [] if name == key else ["me"] for name in "abc"}
    [waiter] = queue_up(server, ["you"], keys=["a", "b", "c"])
    caller.execute_command("OTHER.MEDDLE", key)
    assert locks.release("me") == 2
    assert waiter.answer() > 0
    held = locks.holders()
    assert held["a"] == ["you"] and set(map(tuple, held.values())) <= {("you",), ()}


@pytest.mark.parametrize("words", [("GETDEL", "list"), ("GETSET", "list", "x")], ids=" ".join)
def test_a_guarded_error_is_told_beside_a_module_that_hears_events(caller, words):
    """Valkey loses the error itself then."""
    Lock(caller).acquire("me")
    caller.lpush("list", "a")
    with pytest.raises(redis.ResponseError, match="wrong kind of value|did not say"):
        caller.execute_command("DLOCK.GUARD", "lock", "me", *words)
    assert caller.lrange("list", 0, -1) == [b"a"]
