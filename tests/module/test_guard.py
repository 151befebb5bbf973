"""DLOCK.GUARD: a command that runs only if the token holds the lock."""

import pytest
import redis

from support.cluster import Cluster
from support.commands import Lock, details_of, plain, stats
from support.server import running, wait_until


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


@pytest.mark.parametrize("words", [
    ["BLPOP", "list", "0"], ["bzmpop", "0", "1", "set", "MIN"],  # wait
    ["SELECT", "1"], ["CLIENT", "ID"], ["AUTH", "x"], ["SUBSCRIBE", "x"],  # connection
    ["CONFIG", "GET", "*"], ["SHUTDOWN"], ["SAVE"], ["DEBUG", "SLEEP", "0"],  # administration
    ["MULTI"], ["WATCH", "data"],
    ["DLOCK.GUARD", "lock", "me", "GET", "data"]], ids=lambda words: words[0])
def test_a_command_that_makes_no_sense_is_refused_by_name(held, words):
    with pytest.raises(redis.ResponseError, match=f"(?i){words[0]}"):
        guard(held, *words)
    assert held.ping()


def test_a_name_with_a_nul_is_no_command(held):
    with pytest.raises(redis.ResponseError, match="NUL"):
        guard(held, b"SET\0x", "data", "1")
    assert held.get("data") is None


@pytest.mark.parametrize("name", ["EVAL", "evalsha", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"])
def test_a_script_is_refused(held, name):
    with pytest.raises(redis.ResponseError, match="let the script call DLOCK.GUARD"):
        guard(held, name, "return 1", 0)
    with pytest.raises(redis.ResponseError, match="let the script call DLOCK.GUARD"):
        held.eval("return redis.call('DLOCK.GUARD', 'lock', 'me', ARGV[1], 'return 1', 0)", 0, name)


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


def test_a_write_is_refused_without_enough_replicas_and_a_read_is_not(held):
    held.config_set("min-replicas-to-write", 1)
    with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
        guard(held, "SET", "data", "1")
    assert guard(held, "GET", "data") is None


def test_a_replica_refuses_a_write_and_serves_a_read(start_server, server, held):
    held.set("data", "1")
    replica = start_server("--replicaof", "127.0.0.1", str(server.port)).client()
    wait_until(lambda: Lock(replica).info() is not None, "the lock at the replica")
    with pytest.raises(redis.ResponseError, match="(?i)read.?only"):
        guard(replica, "SET", "data", "2")
    assert guard(replica, "GET", "data") == b"1"


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


@pytest.mark.parametrize("words, keys", [
    (["SET", "data", "1"], [b"lock", b"data"]),
    (["MSET", "a", "1", "b", "2"], [b"lock", b"a", b"b"]),
    (["EVAL", "return 1", "2", "a", "b", "c"], [b"lock", b"a", b"b"]),
    (["PING"], [b"lock"]),
    (["NOSUCH", "x"], [b"lock"])], ids=lambda value: str(value[0]))
def test_its_keys_are_the_lock_and_those_of_the_command(client, words, keys):
    assert plain(client, "COMMAND", "GETKEYS", "DLOCK.GUARD", "lock", "me", *words) == keys


def test_a_hundred_thousand_guards_inside_each_other_have_the_key_of_the_first(server, held):
    words = ["DLOCK.GUARD", "lock", "me"] * 100_000 + ["GET", "data"]
    assert plain(held, "COMMAND", "GETKEYS", *words) == [b"lock"]
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


def test_in_a_cluster_lock_and_data_share_a_slot():
    with running(Cluster(masters=2)) as cluster:
        node = cluster.owner("{shop}lock").client()
        Lock(node, "{shop}lock").acquire("me")
        assert guard(node, "SET", "{shop}data", "1", key="{shop}lock") == b"OK"
        with pytest.raises(redis.ResponseError, match="CROSSSLOT|same slot"):
            guard(node, "SET", "{other}data", "1", key="{shop}lock")
