"""What crosses to replicas: the resulting state, with absolute times, and nothing for a "no"."""

import signal
import time

import pytest
import redis

from support.commands import Lock
from support.server import wait_until


def in_sync(master, replica):
    """Wait until the replica has everything the master wrote."""
    wait_until(lambda: master.info("replication")["master_repl_offset"]
               == replica.info("replication")["master_repl_offset"], "replica to catch up")


def expiry(client, key):
    return client.execute_command("PEXPIRETIME", key)


def digest(client):
    return client.execute_command("DEBUG", "DIGEST")


def test_a_grant_is_replicated_as_one_state_with_an_absolute_expiry(stream, lock):
    fence = lock.acquire("me", 50_000)
    [command] = stream.take()
    assert command[:2] == [b"dlock.apply", b"lock"]
    state = command[2]
    assert state[:1] == b"\x01"
    assert int.from_bytes(state[1:9], "little") == fence
    assert int.from_bytes(state[9:17], "little") == lock.info()["since"]
    assert int.from_bytes(state[17:21], "little") == 50_000
    assert int.from_bytes(state[21:29], "little") == expiry(lock.client, "lock")
    assert state[29:] == b"me"


def test_an_extension_is_replicated_as_state(stream, lock):
    fence = lock.acquire("me", 10_000)
    lock.extend("me", 50_000)
    lock.acquire("me", 60_000)
    _, extended, again = stream.take()
    for command, lease in ((extended, 50_000), (again, 60_000)):
        assert command[0] == b"dlock.apply"
        assert int.from_bytes(command[2][1:9], "little") == fence
        assert int.from_bytes(command[2][17:21], "little") == lease


def test_a_lifted_fence_is_replicated_as_one_state(stream, lock):
    fence = lock.acquire("me", 10_000) + 60_000_000
    lock.acquire("me", 50_000, "FENCE", fence)
    _, lifted = stream.take()
    assert lifted[0] == b"dlock.apply"
    assert int.from_bytes(lifted[2][1:9], "little") == fence
    assert int.from_bytes(lifted[2][17:21], "little") == 50_000
    assert lifted[2][29:] == b"me"


def test_a_release_is_replicated_as_itself(stream, lock):
    lock.acquire("me")
    lock.release("me")
    assert stream.take()[1] == [b"DLOCK.RELEASE", b"lock", b"me"]


def test_a_no_is_not_replicated(stream, lock):
    lock.acquire("me")
    stream.take()
    lock.acquire("you")
    lock.acquire("me", 1)
    lock.release("you")
    lock.extend("you")
    lock.info()
    with pytest.raises(redis.ResponseError):
        lock.acquire("me", 0)
    assert stream.take() == []


def test_a_lease_that_ended_is_replicated_as_del_before_the_next_grant(stream, lock):
    lock.client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)  # else it might be faster
    lock.acquire("me", 1)
    wait_until(lambda: lock.acquire("you") is not None, "the lease to end")
    commands = stream.take()
    names = [c[0].lower().replace(b"unlink", b"del") for c in commands]
    assert names == [b"dlock.apply", b"multi", b"del", b"dlock.apply", b"exec"]


def test_a_string_lock_is_replicated_in_words_of_plain_redis(stream, lock):
    lock.client.set("lock", "other", px=10_000)
    lock.extend("other", 50_000)
    _, extended = stream.take()
    assert extended[0] == b"PEXPIREAT"
    assert int(extended[2]) == expiry(lock.client, "lock")


def test_a_transaction_is_replicated_as_one(stream, client):
    pipe = client.pipeline(transaction=True)
    pipe.execute_command("DLOCK.ACQUIRE", "lock", "me", "PX", 1000)
    pipe.execute_command("DLOCK.RELEASE", "lock", "me")
    pipe.execute()
    names = [c[0].upper() for c in stream.take()]
    assert names == [b"MULTI", b"DLOCK.APPLY", b"DLOCK.RELEASE", b"EXEC"]


def test_a_replica_agrees_on_everything(server, start_replica):
    master = server.client()
    Lock(master, "before").acquire("early")
    replica_server = start_replica(server)
    replica = replica_server.client()
    for i in range(50):
        Lock(master, f"lock:{i}").acquire(f"token:{i}", 10_000 + i)
    for i in range(0, 50, 2):
        Lock(master, f"lock:{i}").extend(f"token:{i}", 60_000)
    for i in range(0, 50, 5):
        Lock(master, f"lock:{i}").release(f"token:{i}")
    master.persist("lock:1")
    master.set("string", "other", px=10_000)
    Lock(master, "string").extend("other", 70_000)
    master.set("gone", "other")
    Lock(master, "gone").release("other")
    in_sync(master, replica)
    assert digest(replica) == digest(master)
    for key in master.keys():
        ours, theirs = Lock(master, key).info(), Lock(replica, key).info()
        assert abs(ours.pop("ttl") - theirs.pop("ttl")) < 5000  # the end is compared below
        assert ours == theirs
        assert expiry(master, key) == expiry(replica, key)


def test_a_replica_refuses_to_lock(server, start_replica):
    replica = start_replica(server).client()
    Lock(server.client()).acquire("me")
    wait_until(lambda: Lock(replica).info(), "the lock to arrive")
    for call in (Lock(replica).acquire, Lock(replica).release, Lock(replica).extend):
        with pytest.raises(redis.ResponseError, match="read only replica"):
            call("me")


def test_a_promoted_replica_keeps_locks_and_raises_fences(server, start_replica):
    master = server.client()
    fence = Lock(master).acquire("me", 50_000)
    replica = start_replica(server).client()
    latest = Lock(master, "other").acquire("me")
    in_sync(master, replica)
    replica.replicaof("NO", "ONE")
    assert Lock(replica).info()["fence"] == fence
    assert Lock(replica).acquire("you") is None
    assert Lock(replica, "new").acquire("you") > latest
    assert Lock(replica).release("me") == 1


def test_a_replica_never_ends_a_lease_by_itself(server, start_replica):
    master = server.client()
    replica = start_replica(server).client()
    master.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    Lock(master).acquire("me", 20)
    in_sync(master, replica)
    wait_until(lambda: Lock(replica).info() is None, "the lease to end")
    assert replica.dbsize() == 1
    Lock(master).acquire("you")
    in_sync(master, replica)
    assert Lock(replica).info()["token"] == b"you"
    assert digest(replica) == digest(master)


def test_a_release_that_arrives_after_the_lease_is_applied(server, start_replica):
    """By the replica's clock the lease may have ended meanwhile; the master's word counts."""
    master = server.client()
    replica_server = start_replica(server)
    replica = replica_server.client()
    replica_server.process.send_signal(signal.SIGSTOP)
    pipe = master.pipeline(transaction=True)
    pipe.execute_command("DLOCK.ACQUIRE", "lock", "me", "PX", 100)
    pipe.execute_command("DLOCK.RELEASE", "lock", "me")
    assert pipe.execute()[1] == 1
    time.sleep(0.2)  # not for luck: the lease must be over by the clock
    replica_server.process.send_signal(signal.SIGCONT)
    in_sync(master, replica)
    assert replica.dbsize() == 0


def test_a_state_from_the_master_replaces_whatever_is_there(client):
    lock = Lock(client)
    lock.acquire("me")
    state = b"\x01" + (7).to_bytes(8, "little") + (5).to_bytes(8, "little") \
        + (1000).to_bytes(4, "little") + (0).to_bytes(8, "little") + b"you"
    for before in (None, ("SET", "lock", "x", "PX", 1000), ("DEL", "lock"), ("RPUSH", "lock", "x")):
        if before:
            client.delete("lock")
            client.execute_command(*before)
        assert client.execute_command("DLOCK.APPLY", "lock", state) == b"OK"
        assert lock.info() == {"token": b"you", "fence": 7, "ttl": -1, "lease": 1000, "since": 5,
                               "waiters": 0, "session": 0, "kind": b"lock"}
