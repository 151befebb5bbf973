"""DLOCK.GUARD: a command that runs only if the token holds the lock."""

import pytest
import redis

from support.commands import plain, stats
from support.server import wait_until
from support.turn import sleep_then


def guard(client, *words, key="lock", token="me"):
    return plain(client, "DLOCK.GUARD", key, token, *words)


def read_until(socket, end):
    received = b""
    while not received.endswith(end):
        more = socket.recv(4096)
        assert more, f"closed after {received}"
        received += more
    return received


@pytest.fixture
def held(lock):
    lock.acquire("me")
    return lock.client


# -- who may ---------------------------------------------------------------------------------------


WRITERS = {
    # what was done before; the token, and whether it may write
    "the holder": (lambda lock, clock: lock.acquire("me"), "me", True),
    "nobody": (lambda lock, clock: None, "me", False),
    "a stranger": (lambda lock, clock: lock.acquire("me"), "other", False),
    "a holder whose lease has ended": (
        lambda lock, clock: (lock.acquire("me"), clock.advance(61)), "me", False),
    "the next holder": (lambda lock, clock: pass_on(lock), "next", True),
    "the holder before": (lambda lock, clock: pass_on(lock), "me", False),
    "the token of a plain string": (lambda lock, clock: lock.client.set("lock", "me"), "me", True),
    "another token than that of a string": (
        lambda lock, clock: lock.client.set("lock", "me"), "other", False),
    "the first shared holder": (lambda lock, clock: share(lock, clock), "one", True),
    "the second shared holder": (lambda lock, clock: share(lock, clock), "two", True),
    "a stranger to shared holders": (lambda lock, clock: share(lock, clock), "me", False),
    "a shared holder whose lease has ended": (
        lambda lock, clock: share(lock, clock, pass_s=61), "one", False),
    "a shared holder whose lease has not ended": (
        lambda lock, clock: share(lock, clock, pass_s=61), "two", True),
}


def pass_on(lock):
    lock.acquire("me")
    lock.release("me")
    lock.acquire("next")


def share(lock, clock, pass_s=0):
    lock.acquire("one", 60_000, "SHARED")
    lock.acquire("two", 600_000, "SHARED")
    clock.advance(pass_s)


@pytest.mark.parametrize("before, token, may_write", WRITERS.values(), ids=WRITERS.keys())
def test_only_a_holder_writes(lock, clock, before, token, may_write):
    before(lock, clock)
    if may_write:
        assert guard(lock.client, "SET", "data", "1", token=token) == b"OK"
    else:
        with pytest.raises(redis.ResponseError, match="^NOTHELD "):
            guard(lock.client, "SET", "data", "1", token=token)
    assert lock.client.exists("data") == may_write
    counted = stats(lock.client)
    assert (counted["guarded"], counted["guards_refused"]) == (may_write, not may_write)


def test_a_lease_that_is_over_does_not_count_before_it_is_removed(server, held):
    [reply] = sleep_then(server, 61, "DLOCK.GUARD lock me SET data 1")
    assert reply.startswith(b"-NOTHELD ")
    assert held.get("data") is None


def test_another_type_is_no_lock(client):
    client.rpush("lock", "me")
    with pytest.raises(redis.ResponseError, match="^WRONGTYPE "):
        guard(client, "INCR", "data")


@pytest.mark.parametrize("token, words, message", [
    ("", ["INCR", "data"], "token must have 1 to 256 bytes"),
    ("x" * 257, ["INCR", "data"], "token must have 1 to 256 bytes"),
    ("me", [], "wrong number of arguments"),
], ids=["no token", "a long token", "no command"])
def test_a_bad_call_is_told(client, token, words, message):
    with pytest.raises(redis.ResponseError, match=message):
        guard(client, *words, token=token)


@pytest.mark.parametrize("words, count", [
    (("BLPOP", "x", 1), 0), (("EVAL", "return 1", 0), 0), (("NOSUCH",), 0), (("GET",), 0),
    (("INCR", "text"), 1),
], ids=["refused", "a script", "unknown", "too few words", "a failure"])
def test_only_a_command_that_was_run_is_counted(held, words, count):
    held.set("text", "no number")
    with pytest.raises(redis.ResponseError):
        guard(held, *words)
    assert stats(held)["guarded"] == count


# -- replies ---------------------------------------------------------------------------------------


def test_the_reply_is_that_of_the_command(held):
    held.rpush("list", "a", "b")
    assert guard(held, "GET", "nothing") is None
    assert guard(held, "LRANGE", "list", 0, -1) == [b"a", b"b"]
    assert guard(held, "DLOCK.RELEASE", "lock", "me") == 1


def test_an_error_is_that_of_the_command(held):
    held.rpush("list", "a")
    with pytest.raises(redis.ResponseError, match="^WRONGTYPE "):
        guard(held, "GET", "list")
    with pytest.raises(redis.ResponseError, match="wrong number of arguments for 'set'"):
        guard(held, "SET", "data")
    with pytest.raises(redis.ResponseError, match="unknown command 'NOSUCH'"):
        guard(held, "NOSUCH")


def test_a_map_is_a_map_for_a_client_of_resp3(server, held):
    held.hset("hash", "field", "value")
    with server.socket() as bare:
        bare.sendall(b"HELLO 3\r\nDLOCK.GUARD lock me HGETALL hash\r\n")
        assert read_until(bare, b"value\r\n").endswith(b"%1\r\n$5\r\nfield\r\n$5\r\nvalue\r\n")


# -- which commands --------------------------------------------------------------------------------


SCRIPTS = {
    "a script that asks and writes":
        "redis.call('DLOCK.GUARD', KEYS[1], ARGV[1], 'PING') redis.call('INCR', KEYS[3]) "
        "return redis.call('SET', KEYS[2], ARGV[2])",
    "a script that writes by it":
        "return redis.call('DLOCK.GUARD', KEYS[1], ARGV[1], 'SET', KEYS[2], ARGV[2])",
}


@pytest.mark.parametrize("is_function", [False, True], ids=["EVAL", "FCALL"])
@pytest.mark.parametrize("code", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_script_or_a_function_may_use_it(held, code, is_function):
    def run(token):
        words = (3, "lock", "data", "count", token, "new")
        return held.fcall("put", *words) if is_function else held.eval(code, *words)

    function = code.replace("KEYS", "keys").replace("ARGV", "args")
    held.function_load("#!lua name=lib\nredis.register_function('put', function(keys, args) "
                       f"{function} end)", replace=True)
    with pytest.raises(redis.ResponseError, match="NOTHELD"):
        run("other")
    assert held.exists("data", "count") == 0
    assert run("me") == b"OK"
    assert held.get("data") == b"new"


def test_a_transaction_may_use_it(held):
    with held.pipeline() as pipe:
        pipe.execute_command("DLOCK.GUARD", "lock", "me", "SET", "data", "1")
        pipe.execute_command("DLOCK.GUARD", "lock", "other", "SET", "data", "2")
        good, bad = pipe.execute(raise_on_error=False)
    assert good == b"OK" and str(bad).startswith("NOTHELD")
    assert held.get("data") == b"1"


def test_a_session_needs_a_connection_also_in_a_transaction(held):
    words = ["DLOCK.GUARD", "lock", "me", "DLOCK.ACQUIRE", "other", "me", "PX", 60_000, "SESSION"]
    with pytest.raises(redis.ResponseError, match="SESSION needs a connection"):
        plain(held, *words)
    with held.pipeline() as pipe:
        pipe.execute_command(*words)
        [reply] = pipe.execute(raise_on_error=False)
    assert str(reply).startswith("SESSION needs a connection")
    assert held.exists("other") == 0


# -- rules of the inner command --------------------------------------------------------------------


def test_the_inner_command_needs_the_permission_of_the_caller(server, held):
    held.acl_setuser("user", enabled=True, nopass=True, keys=["lock", "data"],
                     commands=["+dlock.guard", "+set"])
    user = server.client(username="user", password="any")
    assert guard(user, "SET", "data", "1") == b"OK"
    for words in (["GET", "data"], ["SET", "other", "1"], ["DEL", "data"]):
        with pytest.raises(redis.ResponseError):
            guard(user, *words)
    assert held.get("other") is None


def test_a_write_is_refused_when_memory_is_full_and_a_read_is_not(held):
    held.config_set("maxmemory-policy", "noeviction")
    held.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="OOM|maxmemory"):
        guard(held, "SET", "data", "1")
    assert guard(held, "GET", "data") is None
    assert guard(held, "DEL", "data") == 0


def at_a_replica(held, start_replica, server):
    held.set("data", "1")
    return start_replica(server).client(), "(?i)read.?only"


def with_too_few_replicas(held, start_replica, server):
    held.config_set("min-replicas-to-write", 1)
    return held, "NOREPLICAS"


@pytest.mark.parametrize("where", [at_a_replica, with_too_few_replicas])
@pytest.mark.parametrize("words", [["SET", "data", "1"], ["GET", "data"]], ids=["SET", "GET"])
def test_it_counts_as_a_write(held, start_replica, server, where, words):
    client, error = where(held, start_replica, server)
    with pytest.raises(redis.ResponseError, match=error):
        guard(client, *words)


@pytest.mark.parametrize("call", ["return redis.call(unpack(ARGV))",
                                  "#!lua flags=no-writes\nreturn redis.call(unpack(ARGV))"])
def test_a_script_that_must_not_write_cannot_use_it(held, call):
    run = held.eval if call.startswith("#!") else held.eval_ro
    with pytest.raises(redis.ResponseError, match="Write commands are not allowed"):
        run(call, 0, "DLOCK.GUARD", "lock", "me", "SET", "data", "1")
    assert held.get("data") is None


def test_a_script_that_wrote_by_it_cannot_be_killed(server, held):
    held.config_set("busy-reply-threshold", 1)
    with server.socket() as bare, server.socket() as killer:
        bare.sendall(b"EVAL \"redis.call('DLOCK.GUARD', 'lock', 'me', 'SET', 'data', '1') "
                     b"while true do end\" 0\r\n")

        def kill():
            killer.sendall(b"SCRIPT KILL\r\n")
            answer = read_until(killer, b"\r\n")
            return answer if b"NOTBUSY" not in answer else None
        assert wait_until(kill, "the script to run").startswith(b"-UNKILLABLE ")
    server.kill()


def test_a_paused_server_runs_nothing_before_the_pause_is_over(server, held):
    held.execute_command("CLIENT", "PAUSE", "60000", "WRITE")
    with server.socket() as bare:
        bare.sendall(b"DLOCK.GUARD lock me SET data 1\r\n")
        wait_until(lambda: held.info("clients")["blocked_clients"] == 1, "the pause")
        assert held.get("data") is None
        held.execute_command("CLIENT", "UNPAUSE")
        assert read_until(bare, b"\r\n") == b"+OK\r\n"
    assert held.get("data") == b"1"


# -- keys, replication, observers ------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    ["SET", "data", "1"], ["MSET", "a", "1", "b", "2"], ["EVAL", "return 1", "2", "a", "b"],
    ["PING"], ["NOSUCH", "x"]], ids=lambda words: words[0])
def test_redis_sees_only_the_key_of_the_lock(client, words):
    assert plain(client, "COMMAND", "GETKEYS", "DLOCK.GUARD", "lock", "me", *words) == [b"lock"]


def test_redis_finds_the_key_without_asking_the_module(client):
    """An I/O thread of the server may look for it, before the client has logged in."""
    [(_, _, flags, first, last, step, *_)] = plain(client, "COMMAND", "INFO", "DLOCK.GUARD")
    assert b"movablekeys" not in flags
    assert (first, last, step) == (1, 1, 1)


def test_a_hundred_thousand_guards_inside_each_other_are_refused(server, held):
    words = ["DLOCK.GUARD", "lock", "me"] * 100_000 + ["GET", "data"]
    held.acl_setuser("user", enabled=True, nopass=True, keys=["lock"], commands=["+dlock.guard"])
    with pytest.raises(redis.ResponseError, match="(?i)dlock.guard"):
        plain(server.client(username="user", password="any"), *words)
    assert held.ping()


def test_only_the_effects_are_replicated(stream, lock):
    lock.acquire("me")
    guard(lock.client, "SET", "data", "1")
    guard(lock.client, "GET", "data")
    lock.client.eval("redis.call('DLOCK.GUARD', 'lock', 'me', 'INCR', KEYS[1]) "
                     "redis.call('INCR', KEYS[1])", 1, "data")
    with pytest.raises(redis.ResponseError):
        guard(lock.client, "SET", "data", "2", token="other")
    sent = [words for words in stream.take()[1:] if words[0].upper() not in (b"MULTI", b"EXEC")]
    assert sent == [[b"SET", b"data", b"1"], [b"INCR", b"data"], [b"INCR", b"data"]]


def test_an_observer_of_the_data_sees_the_write(held):
    with held.pipeline() as pipe:
        pipe.watch("data")
        guard(held, "SET", "data", "1")
        pipe.multi()
        pipe.set("data", "2")
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert held.get("data") == b"1"


def test_a_client_that_caches_the_data_is_told(server, held):
    held.set("data", "0")
    with server.socket() as bare:
        bare.sendall(b"HELLO 3\r\nCLIENT TRACKING ON\r\nGET data\r\n")
        read_until(bare, b"$1\r\n0\r\n")
        guard(held, "SET", "data", "1")
        assert b"invalidate" in read_until(bare, b"data\r\n")
