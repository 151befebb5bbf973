"""The four commands as a user meets them."""

import re
import time

import pytest
import redis

from support.commands import TOKEN_MAX, Lock, stats
from support.server import wait_until


def test_a_free_lock_is_granted_with_a_fence(lock):
    fence = lock.acquire("me")
    assert fence > 0
    assert lock.info()["fence"] == fence


def test_a_held_lock_is_a_plain_no(lock):
    lock.acquire("me")
    before = lock.info()
    assert lock.acquire("you", 99_000) is None
    after = lock.info()
    assert after.pop("ttl") <= before.pop("ttl")
    assert after == before


def test_a_release_by_the_holder_frees_the_lock(lock):
    lock.acquire("me")
    assert lock.release("me") == 1
    assert lock.info() is None
    assert lock.client.exists(lock.key) == 0


def test_a_repeated_release_does_nothing(lock):
    lock.acquire("me")
    lock.release("me")
    lock.acquire("you")
    assert lock.release("me") == 0
    assert lock.info()["token"] == b"you"


def test_a_release_by_a_stranger_changes_nothing(lock):
    lock.acquire("me")
    assert lock.release("you") == 0
    assert lock.info()["token"] == b"me"


@pytest.mark.parametrize("almost", ["m", "mee", "ME", "me\0", " me"])
def test_a_token_is_compared_whole(lock, almost):
    lock.acquire("me")
    assert lock.release(almost) == 0
    assert lock.extend(almost) == 0
    assert lock.acquire(almost) is None


def test_the_same_token_gets_the_same_fence_again(lock):
    fence = lock.acquire("me")
    since = lock.info()["since"]
    assert lock.acquire("me") == fence
    assert lock.info()["since"] == since


def test_asking_again_lengthens_the_lease_to_what_was_asked(lock):
    lock.acquire("me", 10_000)
    lock.acquire("me", 60_000)
    assert 50_000 < lock.pttl() <= 60_000
    assert lock.info()["lease"] == 60_000


def test_asking_again_never_shortens_the_lease(lock):
    lock.acquire("me", 60_000)
    lock.acquire("me", 10_000)
    assert 50_000 < lock.pttl() <= 60_000
    assert lock.info()["lease"] == 60_000


def test_an_extension_lets_the_lease_end_then(lock):
    lock.acquire("me", 10_000)
    assert lock.extend("me", 60_000) == 1
    assert 50_000 < lock.pttl() <= 60_000
    assert lock.extend("me", 5_000) == 1
    assert 1_000 < lock.pttl() <= 5_000
    assert lock.info()["lease"] == 5_000


def test_an_extension_keeps_fence_and_start(lock):
    fence = lock.acquire("me")
    since = lock.info()["since"]
    lock.extend("me", 60_000)
    assert (lock.info()["fence"], lock.info()["since"]) == (fence, since)


def test_an_extension_by_a_stranger_changes_nothing(lock):
    lock.acquire("me", 10_000)
    assert lock.extend("you", 60_000) == 0
    assert lock.pttl() <= 10_000


def test_an_extension_of_a_free_lock_creates_nothing(lock):
    assert lock.extend("me") == 0
    assert lock.client.dbsize() == 0


def test_a_lock_vanishes_when_its_lease_ends(lock):
    started = time.monotonic()
    lock.acquire("me", 50)
    wait_until(lambda: lock.info() is None, "the lease to end")
    assert time.monotonic() - started >= 0.050
    assert lock.release("me") == 0
    assert lock.acquire("you") > 0


def test_a_fence_is_above_every_earlier_one_and_the_time(client):
    fences = []
    for i in range(200):
        lock = Lock(client, f"lock:{i % 3}")
        before_us = time.time_ns() // 1000
        fences.append(lock.acquire(f"token:{i}"))
        assert fences[-1] >= before_us
        if i % 2:
            lock.release(f"token:{i}")
        else:
            client.delete(lock.key)
    assert fences == sorted(set(fences))


def test_a_burst_within_one_microsecond_still_gets_distinct_fences(client):
    script = """
        local fences = {}
        for i = 1, 2000 do
            fences[i] = redis.call('DLOCK.ACQUIRE', KEYS[1], 'me', 'PX', 1000)
            redis.call('DLOCK.RELEASE', KEYS[1], 'me')
        end
        return fences"""
    fences = client.eval(script, 1, "lock")
    assert all(a < b for a, b in zip(fences, fences[1:]))


def ahead_us(seconds):
    """A fence that the clock reaches in so many seconds."""
    return time.time_ns() // 1000 + seconds * 1_000_000


def test_a_fence_may_be_asked_to_be_larger(lock):
    n = ahead_us(60)
    assert lock.acquire("me", 10_000, "FENCE", n) == n
    assert lock.info()["fence"] == n


def test_a_larger_fence_counts_for_every_later_grant(client):
    n = ahead_us(60)
    Lock(client, "a").acquire("me", 10_000, "FENCE", n)
    assert Lock(client, "b").acquire("me") == n + 1
    assert Lock(client, "c").acquire("me", 10_000, "FENCE", n) == n + 2
    assert stats(client)["last_fence"] == n + 2


def test_a_smaller_fence_than_the_next_one_changes_nothing(lock):
    before_us = time.time_ns() // 1000
    assert lock.acquire("me", 10_000, "FENCE", 1) >= before_us


def test_the_holders_fence_is_lifted_when_it_asks_for_more(lock):
    first = lock.acquire("me")
    before = lock.info()
    n = ahead_us(60)
    assert lock.acquire("me", 10_000, "FENCE", n) == n
    after = lock.info()
    assert after["fence"] == n > first
    assert (after["token"], after["since"]) == (before["token"], before["since"])
    assert lock.acquire("me") == n
    assert lock.acquire("me", 10_000, "FENCE", n) == n
    assert lock.release("me") == 1


def test_a_lifted_fence_is_nobody_elses(client):
    """Grants are known by their fence: a number that another lock may have is not given again."""
    lock = Lock(client, "a")
    lock.acquire("me")
    n = Lock(client, "b").acquire("me", 10_000, "FENCE", ahead_us(60))
    assert lock.acquire("me", 10_000, "FENCE", n) == n + 1


def test_lifting_the_fence_never_shortens_the_lease(lock):
    lock.acquire("me", 60_000)
    lock.acquire("me", 1000, "FENCE", ahead_us(60))
    assert lock.pttl() > 50_000
    lock.acquire("me", 600_000, "FENCE", ahead_us(120))
    assert lock.pttl() > 500_000
    lock.client.persist("lock")
    lock.acquire("me", 1000, "FENCE", ahead_us(180))
    assert lock.pttl() == -1


@pytest.mark.parametrize("words, error", [
    (("FENCE",), "FENCE needs a value"),
    (("FENCE", 5, "FENCE", 6), "FENCE is given twice"),
    *((("FENCE", wrong), f"FENCE must be an integer from 1 to {2**61 - 1}")
      for wrong in ("0", "-1", "x", "", 2**61, 2**63, "9" * 30))])
def test_a_wrong_fence_is_refused(lock, words, error):
    with pytest.raises(redis.ResponseError, match=re.escape(error)):
        lock.acquire("me", 10_000, *words)
    assert lock.info() is None


def test_a_stranger_lifts_nothing(lock):
    fence = lock.acquire("me")
    assert lock.acquire("you", 10_000, "FENCE", ahead_us(60)) is None
    assert lock.info()["fence"] == fence
    assert stats(lock.client)["last_fence"] == fence


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
    assert client.execute_command("dlock.acquire", "lock", "me", "pX", 1000) > 0
    assert client.execute_command("DLock.Extend", "lock", "me", "Px", 1000) == 1


def test_the_commands_work_in_a_transaction(client):
    pipe = client.pipeline(transaction=True)
    pipe.execute_command("DLOCK.ACQUIRE", "lock", "me", "PX", 1000)
    pipe.execute_command("DLOCK.ACQUIRE", "lock", "you", "PX", 1000)
    pipe.execute_command("DLOCK.EXTEND", "lock", "me", "PX", 2000)
    pipe.execute_command("DLOCK.RELEASE", "lock", "me")
    pipe.execute_command("DLOCK.INFO", "lock")
    fence, busy, extended, released, info = pipe.execute()
    assert fence > 0
    assert (busy, extended, released, info) == (None, 1, 1, None)


def test_the_commands_work_in_a_script(client):
    script = """
        local fence = redis.call('DLOCK.ACQUIRE', KEYS[1], ARGV[1], 'PX', 1000)
        local busy = redis.call('DLOCK.ACQUIRE', KEYS[1], 'other', 'PX', 1000)
        return {fence, busy == false, redis.call('DLOCK.RELEASE', KEYS[1], ARGV[1])}"""
    fence, busy, released = client.eval(script, 1, "lock", "me")
    assert fence > 0
    assert (busy, released) == (1, 1)


def test_info_tells_who_holds_the_lock(lock):
    before_ms = time.time_ns() // 1_000_000
    fence = lock.acquire("me", 10_000)
    after_ms = time.time_ns() // 1_000_000
    info = lock.info()
    assert before_ms <= info.pop("since") <= after_ms
    assert 5_000 < info.pop("ttl") <= 10_000
    assert info == {"token": b"me", "fence": fence, "lease": 10_000, "waiters": 0, "session": 0,
                    "kind": b"lock"}


def test_info_of_a_free_lock_is_null(lock):
    assert lock.info() is None


def test_info_is_a_map_and_null_is_null_in_resp3(server, lock):
    lock.acquire("me")
    with server.socket() as bare:
        bare.sendall(b"HELLO 3\r\nDLOCK.INFO lock\r\nDLOCK.ACQUIRE lock you PX 1\r\nPING\r\n")
        reply = b""
        while not reply.endswith(b"+PONG\r\n"):
            reply += bare.recv(65536)
    assert b"%8\r\n+token\r\n$2\r\nme\r\n" in reply
    assert reply.endswith(b"\r\n_\r\n+PONG\r\n")


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
    expected = {"held": 0, "acquired": 1, "reacquired": 2, "contended": 1, "extended": 1,
                "released": 1, "refused": 2}
    assert {name: counted[name] for name in expected} == expected
