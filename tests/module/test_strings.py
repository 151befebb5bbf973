"""Side by side, on the same keys, with clients that use SET NX PX and a script."""

import pytest
import redis

from support.commands import Lock

COMPARE_AND_DELETE = """
    if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
    return 0"""


@pytest.fixture
def string(client):
    """The lock of another client: token "other", 50 s."""
    client.set("lock", "other", nx=True, px=50_000)
    return Lock(client)


@pytest.mark.parametrize("token", ["me", "other"])
def test_a_string_lock_is_busy_even_for_the_same_token(string, token):
    assert string.acquire(token) is None
    assert string.client.get("lock") == b"other"


def test_set_nx_fails_while_a_lock_is_held(lock):
    lock.acquire("me")
    assert lock.client.set("lock", "other", nx=True, px=1000) is None
    assert lock.info()["token"] == b"me"


def test_the_script_of_another_client_cannot_delete_a_lock(lock):
    lock.acquire("me")
    with pytest.raises(Exception, match="WRONGTYPE"):
        lock.client.eval(COMPARE_AND_DELETE, 1, "lock", "me")
    assert lock.info()["token"] == b"me"


def test_a_string_lock_is_released_by_its_token(string):
    assert string.release("me") == 0
    assert string.client.get("lock") == b"other"
    assert string.release("other") == 1
    assert string.client.exists("lock") == 0
    assert string.acquire("me") > 0
    string.release("me")
    assert string.client.set("lock", "other", nx=True, px=1000)


def test_a_string_lock_is_extended_by_its_token(string):
    assert string.extend("me", 90_000) == 0
    assert string.client.pttl("lock") <= 50_000
    assert string.extend("other", 90_000) == 1
    assert 80_000 < string.client.pttl("lock") <= 90_000
    assert string.client.get("lock") == b"other"


def test_info_of_a_string_lock_says_so(string):
    info = string.info()
    assert 40_000 < info.pop("ttl") <= 50_000
    assert info == {"kind": b"string", "mode": b"exclusive", "token": b"other", "fence": 0,
                    "lease": 0, "since": 0, "waiters": 0, "session": 0, "via": b""}


@pytest.mark.parametrize("value", ["12345", "short", "x" * 45, "x" * 256])
def test_looking_at_a_string_changes_neither_its_value_nor_its_ttl(client, value):
    client.set("lock", value, px=600_000)
    before = [client.get("lock"), client.execute_command("PEXPIRETIME", "lock")]
    lock = Lock(client)
    assert lock.info()["token"] == value.encode()
    lock.acquire("me")
    lock.release("me")
    lock.extend("me")
    assert [client.get("lock"), client.execute_command("PEXPIRETIME", "lock")] == before
    assert lock.release(value) == 1


def test_a_number_without_expiry_can_still_be_counted_up_after_a_look(client):
    client.set("lock", 12345)
    info = Lock(client).info()
    assert (info["token"], info["ttl"]) == (b"12345", -1)
    assert client.incr("lock") == 12346


def test_a_string_longer_than_any_token_belongs_to_nobody(client):
    client.set("lock", "x" * 1000)
    lock = Lock(client)
    assert lock.release("x" * 256) == 0
    assert lock.extend("x" * 256) == 0
    assert lock.acquire("x" * 256) is None
    assert lock.info()["token"] == b"x" * 257
    assert client.strlen("lock") == 1000


def test_the_lock_of_redis_py_takes_nothing_and_complains_when_it_reads(client, lock):
    """As README.md and module/README.md say it, for teams that move one service at a time."""
    lock.acquire("me")
    theirs = client.lock(lock.key, timeout=60)
    assert not theirs.acquire(blocking=False)
    theirs.local.token = b"theirs"  # as if it had held the key before
    for call in theirs.locked, theirs.owned, theirs.release:
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            call()
    assert lock.release("me") == 1
