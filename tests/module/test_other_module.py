"""Another module calls our commands. Its calls come from a client without a connection."""

import pytest
import redis

from support import other_module
from support.commands import Lock, stats
from support.waiting import assert_nobody_waits


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
