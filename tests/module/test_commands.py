"""The four commands as a user meets them."""

import re
import time

import pytest
import redis

from support.commands import TOKEN_MAX, Lock, stats
from support.turn import in_one_turn
from support.waiting import queue_up


def test_a_free_lock_is_granted_with_a_fence(lock):
    fence = lock.acquire("me")
    assert fence > 0
    assert lock.info()["fence"] == fence


def test_a_release_by_the_holder_frees_the_lock_once(lock):
    lock.acquire("me")
    assert lock.release("me") == 1
    assert lock.info() is None
    assert lock.client.exists(lock.key) == 0
    assert lock.release("me") == 0


@pytest.mark.parametrize("stranger", ["you", "m", "mee", "ME", "me\0", " me"])
@pytest.mark.parametrize("call, reply", [(Lock.acquire, None), (Lock.extend, 0), (Lock.release, 0)])
def test_a_call_by_a_stranger_is_a_plain_no_and_changes_nothing(lock, stranger, call, reply):
    """A token is compared whole."""
    lock.acquire("me", 10_000)
    before = lock.info()
    assert call(lock, stranger) == reply
    after = lock.info()
    assert after.pop("ttl") <= before.pop("ttl")
    assert after == before


@pytest.mark.parametrize("leases", [(10_000, 60_000), (60_000, 10_000), (10_000, 600_000, 1_000)],
                         ids=["longer", "shorter", "shorter, and late"])
@pytest.mark.parametrize("ask", [Lock.acquire, Lock.extend])
def test_the_holder_that_asks_again_never_shortens_its_lease(lock, ask, leases):
    """It keeps its fence."""
    fence = lock.acquire("me", leases[0])
    before = lock.info()
    for lease in leases[1:]:
        assert ask(lock, "me", lease) == (fence if ask is Lock.acquire else 1)
    assert max(leases) - 10_000 < lock.ttl() <= max(leases)
    assert {**before, "lease": max(leases), "ttl": 0} == {**lock.info(), "ttl": 0}


def test_an_extension_of_a_free_lock_creates_nothing(lock):
    assert lock.extend("me") == 0
    assert lock.client.dbsize() == 0


def test_a_lock_vanishes_when_its_lease_ends(lock, clock):
    lock.acquire("me", 60_000)
    clock.advance(61)
    assert lock.info() is None
    assert lock.release("me") == 0
    assert lock.acquire("you") > 0


@pytest.mark.parametrize("token", [b"x", b"\0", b"\r\n", bytes(range(256)), b"t" * TOKEN_MAX])
def test_a_token_is_any_bytes(lock, token):
    fence = lock.acquire(token)
    assert lock.info()["token"] == token
    assert lock.acquire(token) == fence
    assert lock.release(token) == 1


def test_a_name_is_any_bytes(client):
    for key in (b"", b"\0\r\n", b"k" * 100_000):
        lock = Lock(client, key)
        assert lock.acquire("me") > 0
        assert lock.release("me") == 1


def test_options_are_read_in_any_case(client):
    assert client.execute_command("dlock.acquire", "lock", "me", "pX", 60_000) > 0
    assert client.execute_command("DLock.Extend", "lock", "me", "Px", 60_000) == 1


def test_the_commands_work_in_a_transaction(client):
    fence, busy, *others = in_one_turn(
        client, ("DLOCK.ACQUIRE", "lock", "me", "PX", 60_000),
        ("DLOCK.ACQUIRE", "lock", "you", "PX", 60_000),
        ("DLOCK.EXTEND", "lock", "me", "PX", 90_000), ("DLOCK.RELEASE", "lock", "me"),
        ("DLOCK.INFO", "lock"))
    assert fence > 0 and busy is None
    assert others == [1, 1, None]


def test_the_commands_work_in_a_script(client):
    script = """
        local fence = redis.call('DLOCK.ACQUIRE', KEYS[1], ARGV[1], 'PX', 60000)
        local busy = redis.call('DLOCK.ACQUIRE', KEYS[1], 'other', 'PX', 60000)
        return {fence, busy == false, redis.call('DLOCK.RELEASE', KEYS[1], ARGV[1])}"""
    fence, busy, released = client.eval(script, 1, "lock", "me")
    assert fence > 0
    assert (busy, released) == (1, 1)


def test_info_tells_who_holds_the_lock(lock):
    before_ms = time.time_ns() // 1_000_000
    fence = lock.acquire("me", 10_000)
    after_ms = time.time_ns() // 1_000_000
    info = lock.info()
    # The server counts on another clock, and the wall clock may be corrected meanwhile.
    assert before_ms - 1000 <= info.pop("since") <= after_ms + 1000
    assert 5_000 < info.pop("ttl") <= 10_000
    assert info == {"kind": b"lock", "mode": b"exclusive", "token": b"me", "fence": fence,
                    "lease": 10_000, "waiters": 0, "session": 0, "via": b""}


def test_info_of_a_free_lock_is_null(lock):
    assert lock.info() is None
    assert lock.info("WAITERS", 10) is None


def test_info_has_its_fields_in_a_fixed_order(lock):
    lock.acquire("me")
    reply = lock.client.execute_command("DLOCK.INFO", "lock", "WAITERS", 1)
    assert reply[::2] == [b"kind", b"mode", b"holders", b"waiters", b"queue"]
    [holder] = reply[5]
    assert holder[::2] == [b"token", b"fence", b"ttl", b"lease", b"since", b"session", b"via"]


def test_info_is_a_map_and_null_is_null_in_resp3(server, lock):
    lock.acquire("me")
    with server.socket() as bare:
        bare.sendall(b"HELLO 3\r\nDLOCK.INFO lock\r\nDLOCK.ACQUIRE lock you PX 1\r\nPING\r\n")
        reply = b""
        while not reply.endswith(b"+PONG\r\n"):
            reply += bare.recv(65536)
    assert b"%4\r\n+kind\r\n" in reply
    assert b"*1\r\n%7\r\n+token\r\n$2\r\nme\r\n" in reply
    assert reply.endswith(b"\r\n_\r\n+PONG\r\n")


# -- who waits ------------------------------------------------------------------------------------


def test_info_tells_who_waits_in_their_order_for_how_long_and_until_when(server, lock):
    lock.acquire("me", 600_000)
    assert lock.queue() == []
    first, second, _ = queue_up(server, ["first", "second", "third"], wait_ms=60_000)
    server.clock.advance(20)
    [one, other] = lock.queue(2)
    assert (one["token"], one["client"], one["mode"]) == (b"first", first.id, b"exclusive")
    assert (other["token"], other["client"]) == (b"second", second.id)
    assert one["waited"] >= other["waited"] >= 20_000
    assert one["left"] <= other["left"] <= 40_000
    assert 59_998 <= one["waited"] + one["left"] <= 60_000
    assert len(lock.queue(10_000)) == lock.info()["waiters"] == 3
    assert "queue" not in lock.info()


def test_info_tells_who_waits_for_a_string(server, lock):
    lock.client.set("lock", "other")
    queue_up(server, ["waiter"])
    assert [each["token"] for each in lock.queue()] == [b"waiter"]


@pytest.mark.parametrize("words, error", [
    (("WAITERS",), "WAITERS needs a value"),
    (("WAITERS", 1, "WAITERS", 1), "WAITERS is given twice"),
    (("SOONER", 1), "unknown option 'SOONER'"),
    *((("WAITERS", wrong), "WAITERS must be an integer from 1 to 10000")
      for wrong in ("0", "-1", "10001", "x", "", 2**63)),
])
def test_a_wrong_option_of_info_is_named(lock, words, error):
    lock.acquire("me")
    with pytest.raises(redis.ResponseError, match=re.escape(error)):
        lock.info(*words)


def test_locks_of_different_databases_are_different(server):
    first, second = (Lock(server.client(db=db)) for db in (0, 1))
    assert first.acquire("me") < second.acquire("you")
    assert first.release("you") == 0


def test_every_outcome_is_counted(lock):
    lock.acquire("me")
    lock.acquire("me", 1)
    lock.acquire("me", 60_000)
    lock.acquire("you")
    lock.extend("me")
    lock.extend("you")
    lock.release("you")
    assert stats(lock.client)["held"] == 1
    lock.release("me")
    counted = stats(lock.client)
    expected = {"held": 0, "granted": 1, "reacquired": 2, "contended": 1, "extended": 1,
                "released": 1, "refused": 2, "expired": 0, "forced": 0}
    assert {name: counted[name] for name in expected} == expected
