"""A wrong call gets one error that names the argument, and changes nothing."""

import pytest
import redis

from support.commands import Lock, stats
from support.server import Server, running
from support.turn import in_one_turn
from support.waiting import Waiting, queue_up

LONG = "t" * 257

WRONG_LEASES = ["0", "-1", "1e3", "1.5", "", " 1", "1 ", "+1", "01", "0x10", "ten", "1\0",
                "99999999999999999999", "-99999999999999999999", "9223372036854775807", "86400001"]

WRONG_CALLS = [
    # words behind the command, what the error must say
    ("k t", "PX is missing"),
    ("k t PX", "PX needs a value"),
    ("k t PX 1000 PX 1000", "PX is given twice"),
    ("k t PX 1000 px", "PX is given twice"),
    ("k t EX 10", "unknown option 'EX'"),
    ("k t PX 1000 NX", "unknown option 'NX'"),
    ("k t PXX 1000", "unknown option 'PXX'"),
    ("k t P 1000", "unknown option 'P'"),
    (("k", "t", "", "1000"), "unknown option ''"),
    (("k", "t", "\r\n-ERR x", "1"), "unknown option '??-ERR?x'"),
    (("k", "t", "x" * 1_000_000), "unknown option '" + "x" * 32 + "'"),
    (("k", "", "PX", "1000"), "token must have 1 to 256 bytes, not 0"),
    (("k", LONG, "PX", "1000"), "token must have 1 to 256 bytes, not 257"),
    *((("k", "t", "PX", lease), "PX must be an integer from 1 to 86400000")
      for lease in WRONG_LEASES),
]


@pytest.fixture(scope="module")
def shared():
    with running(Server()) as server:
        yield server


def digests(client):
    return [client.execute_command("DEBUG", *of) for of in (["DIGEST"], ["DIGEST-VALUE", "k"])]


@pytest.mark.parametrize("command", ["DLOCK.ACQUIRE", "DLOCK.EXTEND"])
@pytest.mark.parametrize("words, message", WRONG_CALLS)
def test_a_wrong_call_names_the_argument_and_changes_nothing(shared, command, words, message):
    client = shared.client()
    client.flushall()
    lock = Lock(client, "k")
    for prepare in (lambda: None, lambda: lock.acquire("t", 50_000), lambda: client.set("k", "t")):
        prepare()
        before = digests(client)
        with pytest.raises(redis.ResponseError) as caught:
            client.execute_command(command, *(words.split() if isinstance(words, str) else words))
        assert message in str(caught.value)
        assert digests(client) == before
        assert client.pttl("k") in (-2, -1)


@pytest.mark.parametrize("token", ["", LONG])
def test_a_release_with_a_wrong_token_names_it(shared, token):
    with pytest.raises(redis.ResponseError, match="token must have 1 to 256 bytes"):
        shared.client().execute_command("DLOCK.RELEASE", "k", token)


@pytest.mark.parametrize("call", [
    ("DLOCK.ACQUIRE",), ("DLOCK.ACQUIRE", "k"), ("DLOCK.EXTEND",), ("DLOCK.EXTEND", "k"),
    ("DLOCK.RELEASE",), ("DLOCK.RELEASE", "k"), ("DLOCK.RELEASE", "k", "t", "x"),
    ("DLOCK.INFO",), ("DLOCK.APPLY",), ("DLOCK.APPLY", "k"), ("DLOCK.APPLY", "k", "t", 5),
])
def test_a_wrong_number_of_words_is_an_error(shared, call):
    with pytest.raises(redis.ResponseError, match="wrong number of arguments"):
        shared.client().execute_command(*call)


@pytest.mark.parametrize("make", [
    ("RPUSH", "k", "x"), ("HSET", "k", "f", "v"), ("SADD", "k", "x"), ("ZADD", "k", 1, "x"),
    ("XADD", "k", "*", "f", "v"),
])
def test_a_key_of_another_type_is_wrongtype(shared, make):
    client = shared.client()
    client.flushall()
    client.execute_command(*make)
    for call in (("DLOCK.ACQUIRE", "k", "t", "PX", 1000), ("DLOCK.RELEASE", "k", "t"),
                 ("DLOCK.EXTEND", "k", "t", "PX", 1000), ("DLOCK.INFO", "k")):
        digest = client.execute_command("DEBUG", "DIGEST")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.execute_command(*call)
        assert client.execute_command("DEBUG", "DIGEST") == digest


# -- DLOCK.APPLY is for masters -------------------------------------------------------------------


@pytest.mark.parametrize("user", ["default", "operator"])
@pytest.mark.parametrize("before", [
    ("DEL", "k"), ("DLOCK.ACQUIRE", "k", "holder", "PX", 60_000), ("SET", "k", "holder"),
    ("RPUSH", "k", "x"),
], ids=["free", "held", "string", "list"])
def test_nobody_but_a_master_can_apply_a_state(shared, before, user):
    client = shared.client()
    client.execute_command("ACL", "SETUSER", "operator", "on", "nopass", "~*", "+@all")
    client.flushall()
    client.execute_command(*before)
    digest, last = digests(client), stats(client)["last_fence"]
    stranger = shared.client(username=user, password="x") if user != "default" else client
    for fence in (1, last + 1, 2**61 - 1):
        with pytest.raises(redis.ResponseError):
            stranger.execute_command("DLOCK.APPLY", "k", "evil", fence, 60_000)
    assert digests(client) == digest
    assert stats(client)["last_fence"] == last


@pytest.mark.parametrize("script", ["return redis.call(unpack(ARGV))", None,
                                    "return redis.pcall(unpack(ARGV))"])
def test_no_script_and_no_transaction_can_apply_a_state(shared, script):
    client = shared.client()
    client.flushall()
    words = ["DLOCK.APPLY", "k", "evil", 5, 60_000]
    with pytest.raises(redis.ResponseError):
        client.eval(script, 0, *words) if script else in_one_turn(client, words)
    assert client.dbsize() == 0


def test_a_refused_state_disturbs_neither_session_nor_waiter(shared):
    client = shared.client()
    client.flushall()
    lock = Lock(client, "k")
    holder = Waiting(shared, "holder", key="k", options=["SESSION"])
    fence = holder.answer()
    [waiter] = queue_up(shared, ["waiter"], key="k")
    with pytest.raises(redis.ResponseError):
        client.execute_command("DLOCK.APPLY", "k", "evil", fence + 1, 100)
    assert not waiter.is_answered()
    assert (lock.info()["session"], lock.info()["fence"]) == (holder.id, fence)
    holder.close()
    assert waiter.answer() > fence


def test_nobody_can_apply_a_state_to_a_writable_replica(start_server, start_replica):
    replica = start_replica(start_server(), "--replica-read-only", "no").client()
    with pytest.raises(redis.ResponseError):
        replica.execute_command("DLOCK.APPLY", "k", "evil", 5, 60_000)
    assert replica.dbsize() == 0
