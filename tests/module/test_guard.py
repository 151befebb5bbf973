"""DLOCK.GUARD: a command that runs only if the token holds the lock."""

import pytest
import redis

from support.commands import Lock, details_of, plain, stats
from support.server import wait_until


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


def test_the_holder_writes(held):
    assert guard(held, "SET", "data", "1") == b"OK"
    assert held.get("data") == b"1"


def test_nobody_writes_without_the_lock(client):
    with pytest.raises(redis.ResponseError, match="^NOTHELD "):
        guard(client, "SET", "data", "1")
    assert client.dbsize() == 0


def test_a_stranger_does_not_write(held):
    with pytest.raises(redis.ResponseError, match="^NOTHELD "):
        guard(held, "SET", "data", "1", token="other")
    assert held.get("data") is None


def test_a_holder_whose_lease_has_ended_does_not_write(client, lock):
    lock.acquire("me", 50)
    wait_until(lambda: lock.info() is None, "the lease to end")
    with pytest.raises(redis.ResponseError, match="^NOTHELD "):
        guard(client, "SET", "data", "1")
    assert client.get("data") is None


def test_the_next_holder_writes_and_the_one_before_does_not(client, lock):
    lock.acquire("me")
    lock.release("me")
    lock.acquire("next")
    assert guard(client, "SET", "data", "next", token="next") == b"OK"
    with pytest.raises(redis.ResponseError, match="^NOTHELD "):
        guard(client, "SET", "data", "me")
    assert client.get("data") == b"next"


def test_a_plain_string_is_a_lock_too(client):
    client.set("lock", "me", nx=True, px=60_000)
    assert guard(client, "INCR", "data") == 1
    with pytest.raises(redis.ResponseError, match="^NOTHELD "):
        guard(client, "INCR", "data", token="other")


def test_every_shared_holder_writes(client, lock):
    lock.acquire("me", 60_000, "SHARED")
    lock.acquire("you", 60_000, "SHARED")
    assert guard(client, "INCR", "data") == 1
    assert guard(client, "INCR", "data", token="you") == 2
    with pytest.raises(redis.ResponseError, match="^NOTHELD "):
        guard(client, "INCR", "data", token="other")


def test_a_shared_holder_whose_lease_has_ended_does_not_write(client, lock):
    lock.acquire("me", 50, "SHARED")
    lock.acquire("you", 60_000, "SHARED")
    wait_until(lambda: len(details_of(plain(client, "DLOCK.INFO", "lock"))["holders"]) == 1,
               "the lease to end")
    with pytest.raises(redis.ResponseError, match="^NOTHELD "):
        guard(client, "INCR", "data")
    assert guard(client, "INCR", "data", token="you") == 1


def test_another_type_is_no_lock(client):
    client.rpush("lock", "me")
    with pytest.raises(redis.ResponseError, match="^WRONGTYPE "):
        guard(client, "INCR", "data")


@pytest.mark.parametrize("token", ["", "x" * 257])
def test_a_bad_token_is_named(client, token):
    with pytest.raises(redis.ResponseError, match="token must have 1 to 256 bytes"):
        guard(client, "INCR", "data", token=token)


def test_a_command_is_needed(client):
    with pytest.raises(redis.ResponseError, match="wrong number of arguments"):
        guard(client)


def test_guards_are_counted(held):
    guard(held, "INCR", "data")
    with pytest.raises(redis.ResponseError):
        guard(held, "INCR", "data", token="other")
    counted = stats(held)
    assert (counted["guarded"], counted["guards_refused"]) == (1, 1)


@pytest.mark.parametrize("words", [("BLPOP", "x", 1), ("EVAL", "return 1", 0), ("NOSUCH",),
                                   ("GET",)])
def test_a_command_that_is_not_run_is_not_counted(held, words):
    with pytest.raises(redis.ResponseError):
        guard(held, *words)
    assert stats(held)["guarded"] == 0


def test_a_command_that_fails_is_counted(held):
    held.set("text", "no number")
    with pytest.raises(redis.ResponseError):
        guard(held, "INCR", "text")
    assert stats(held)["guarded"] == 1


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


def test_a_script_makes_several_writes(held):
    script = ("redis.call('DLOCK.GUARD', KEYS[1], ARGV[1], 'PING') "
              "redis.call('SET', KEYS[2], ARGV[2]) return redis.call('INCR', KEYS[3])")
    with pytest.raises(redis.ResponseError, match="NOTHELD"):
        held.eval(script, 3, "lock", "data", "count", "other", "new")
    assert held.exists("data", "count") == 0
    assert held.eval(script, 3, "lock", "data", "count", "me", "new") == 1
    assert (held.get("data"), held.get("count")) == (b"new", b"1")


def test_a_function_may_use_it(held):
    held.function_load("#!lua name=lib\nredis.register_function('put', function(keys, args) "
                       "redis.call('DLOCK.GUARD', keys[1], args[1], 'PING') "
                       "return redis.call('SET', keys[2], args[2]) end)")
    with pytest.raises(redis.ResponseError, match="NOTHELD"):
        held.fcall("put", 2, "lock", "data", "other", "new")
    assert held.fcall("put", 2, "lock", "data", "me", "new") == b"OK"
    assert held.get("data") == b"new"


def test_a_script_may_use_it(held):
    script = "return redis.call('DLOCK.GUARD', KEYS[1], ARGV[1], 'SET', KEYS[2], 'x')"
    assert held.eval(script, 2, "lock", "data", "me") == b"OK"
    with pytest.raises(redis.ResponseError, match="NOTHELD"):
        held.eval(script, 2, "lock", "data", "other")


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


def test_it_counts_as_a_write_where_too_few_replicas_are_there(held):
    held.config_set("min-replicas-to-write", 1)
    for words in (["SET", "data", "1"], ["GET", "data"]):
        with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
            guard(held, *words)


def test_it_counts_as_a_write_at_a_replica(start_server, server, held):
    held.set("data", "1")
    replica = start_server("--replicaof", "127.0.0.1", str(server.port)).client()
    wait_until(lambda: Lock(replica).info() is not None, "the lock at the replica")
    for words in (["SET", "data", "2"], ["GET", "data"]):
        with pytest.raises(redis.ResponseError, match="(?i)read.?only"):
            guard(replica, *words)


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
