"""Restart: from RDB, from AOF, from a rewritten AOF. Damaged files are refused."""

import time

import pytest
import redis

from support.commands import Lock
from support.dump import forge, of_another_version
from support.files import AOF, by_aof, by_rdb, by_rewritten_aof, write_aof

KEYS = 20


def fill(client):
    """Locks of every sort; returns what must be there afterwards."""
    for i in range(KEYS):
        Lock(client, f"lock:{i}").acquire(bytes([i]) * (i + 1), 50_000 + i)
    Lock(client, "lock:1").extend(bytes([1]) * 2, 70_000)
    Lock(client, "lock:2").release(bytes([2]) * 3)
    client.pexpireat("lock:3", int(time.time() * 1000) + 600_000)
    client.rename("lock:4", "renamed")
    client.set("string", "other", px=50_000)
    Lock(client, "string").extend("other", 70_000)
    return snapshot(client)


def snapshot(client):
    """What does not change with time, and the TTL of those that have one."""
    states = {}
    for key in sorted(client.keys()):
        info = Lock(client, key).info()
        state = {name: info[name] for name in ("kind", "mode", "token", "fence", "lease")}
        states[key] = state, client.execute_command("PEXPIRETIME", key)
    return states, client.execute_command("DEBUG", "DIGEST")


@pytest.mark.parametrize("options, prepare", [
    ((), by_rdb),
    (AOF, by_aof),
    ((*AOF, "--aof-use-rdb-preamble", "no"), by_rewritten_aof),
    ((*AOF, "--aof-use-rdb-preamble", "yes"), by_rewritten_aof),
], ids=["rdb", "aof", "rewritten aof", "rewritten aof with rdb preamble"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restarted_server_agrees_on_token_fence_and_lease(start_server, options, prepare, end):
    server = start_server(*options)
    expected = fill(server.client())
    last = Lock(server.client(), "last").acquire("me")
    server.client().delete("last")
    prepare(server.client())
    getattr(server, end)()
    server.start()
    client = server.client()
    assert snapshot(client) == expected
    assert Lock(client, "next").acquire("you") > last
    assert Lock(client, "lock:5").acquire("you") is None
    assert Lock(client, "lock:5").release(bytes([5]) * 6) == 1


def test_a_debug_reload_agrees(server):
    client = server.client()
    expected = fill(client)
    client.execute_command("DEBUG", "RELOAD")
    assert snapshot(client) == expected


def test_a_damaged_payload_is_refused_and_said(server, client):
    lock = Lock(client)
    fence = lock.acquire("me")
    payload = client.dump("lock")
    client.delete("lock")
    client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    for damaged in (forge(payload, fence, 2**64 - 1), forge(payload, fence, 0),
                    of_another_version(payload)):
        assert damaged != payload
        with pytest.raises(redis.ResponseError, match="Bad data format"):
            client.restore("lock", 0, damaged)
    assert "a corrupt lock" in server.log()
    assert client.dbsize() == 0
    client.restore("lock", 0, payload)
    assert lock.info()["fence"] == fence


def test_a_damaged_file_stops_the_start_instead_of_inventing_a_lock(start_server):
    server = start_server("--rdbchecksum", "no")
    fence = Lock(server.client()).acquire("me")
    server.client().save()
    server.stop()
    path = server.dir / "dump.rdb"
    whole = path.read_bytes()
    path.write_bytes(forge(whole, fence, 2**64 - 1))
    with pytest.raises(AssertionError, match="a corrupt lock"):
        server.start()
    path.write_bytes(whole)
    server.start()
    assert Lock(server.client()).info()["fence"] == fence


@pytest.mark.parametrize("words", [
    ("DLOCK.APPLY", "lock", "me", 1), ("DLOCK.RELEASE", "lock"), ("DLOCK.CLOCK",),
    ("DLOCK.APPLYALL",), ("DLOCK.APPLYALL", 1, "lock", "me", 1), ("DLOCK.RELEASEALL",),
    ("DLOCK.ACQUIRE", "lock"), ("DLOCK.EXTEND", "lock"), ("DLOCK.GUARD", "lock"),
    ("DLOCK.INFO",), ("DLOCK.SESSION",), ("DLOCK.WATCH",), ("DLOCK.UNWATCH",)])
def test_a_command_without_its_last_words_in_a_file_changes_nothing(start_server, words):
    """Most servers do not count them when they load a file. Others do, and do not start."""
    server = start_server(*AOF)
    server.stop()
    write_aof(server, ("SELECT", 0), words, ("SET", "behind", "it"))
    try:
        server.start()
    except AssertionError as refused:
        assert "wrong number of arguments" in str(refused) and "crash" not in str(refused).lower()
    else:
        assert server.observer.keys() == [b"behind"]
