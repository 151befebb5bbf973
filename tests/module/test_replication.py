"""What crosses to replicas: the resulting state, with the length of the lease, and nothing for a
"no"."""

import time

import pytest
import redis

from support.commands import Lock, fence_at
from support.server import stopped, wait_until
from support.stream import digest, in_sync
from support.turn import Bare, in_one_turn
from support.waiting import Waiting, assert_nobody_waits, queue_up


def test_a_grant_is_replicated_as_token_fence_and_length_of_the_lease(stream, lock):
    fence = lock.acquire("me", 50_000)
    assert stream.take() == [[b"dlock.apply", b"lock", b"me", b"%d" % fence, b"50000"]]


def test_an_extension_is_replicated_as_state(stream, lock):
    fence = lock.acquire("me", 10_000)
    lock.extend("me", 50_000)
    lock.acquire("me", 60_000)
    _, *longer = stream.take()
    assert longer == [[b"dlock.apply", b"lock", b"me", b"%d" % fence, lease]
                      for lease in (b"50000", b"60000")]


@pytest.mark.parametrize("call", [Lock.acquire, Lock.extend])
def test_an_extension_of_a_renamed_lock_is_replicated(stream, lock, call):
    """Its lease starts when a server next looks at it, which a replica may have done earlier."""
    fence = lock.acquire("me", 50_000)
    lock.client.rename("lock", "moved")
    stream.take()
    call(Lock(lock.client, "moved"), "me", 50_000)
    assert stream.take() == [[b"dlock.apply", b"moved", b"me", b"%d" % fence, b"50000"]]


def test_a_lifted_fence_is_replicated_as_one_state(stream, lock):
    fence = lock.acquire("me", 10_000) + 60_000_000
    lock.acquire("me", 50_000, "FENCE", fence)
    _, lifted = stream.take()
    assert lifted == [b"dlock.apply", b"lock", b"me", b"%d" % fence, b"50000"]


def test_a_lifted_fence_is_replicated_with_a_lease_that_is_not_shortened(stream, lock):
    """A replica that takes over must keep the longer promise."""
    fence = lock.acquire("me", 50_000) + 60_000_000
    lock.acquire("me", 10_000, "FENCE", fence)
    _, lifted = stream.take()
    assert lifted == [b"dlock.apply", b"lock", b"me", b"%d" % fence, b"50000"]


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


def test_a_lease_that_ended_is_replicated_before_the_next_grant(server, stream):
    """The server had no time to remove the key itself."""
    bare = Bare(server)
    bare.send("DLOCK.ACQUIRE lock me PX 1", "DEBUG SLEEP 0.01", "DLOCK.ACQUIRE lock you PX 60000")
    assert bare.read(3)[2].startswith(b":")
    commands = [c for c in stream.take() if c[0].upper() not in (b"MULTI", b"EXEC")]
    first, *ends, last = [[c[0].lower(), c[2]] for c in commands]
    assert (first, last) == ([b"dlock.apply", b"me"], [b"dlock.apply", b"you"])
    assert ends in ([], [[b"dlock.release", b"me"]])


def test_a_string_lock_is_replicated_in_words_of_plain_redis(stream, lock):
    lock.client.set("lock", "other", px=10_000)
    lock.extend("other", 50_000)
    _, extended = stream.take()
    assert extended[0] == b"PEXPIREAT"
    assert int(extended[2]) == lock.client.execute_command("PEXPIRETIME", "lock")


def test_a_transaction_is_replicated_as_one(stream, client):
    pipe = client.pipeline(transaction=True)
    pipe.execute_command("DLOCK.ACQUIRE", "lock", "me", "PX", 1000)
    pipe.execute_command("DLOCK.RELEASE", "lock", "me")
    pipe.execute()
    names = [c[0].upper() for c in stream.take()]
    assert names == [b"MULTI", b"DLOCK.APPLY", b"DLOCK.RELEASE", b"EXEC"]


def test_a_replica_agrees_on_everything(server, start_replica):
    begin, begin_ms = time.monotonic(), time.time_ns() // 1_000_000
    master = server.client()
    Lock(master, "before").acquire("early")
    replica_server = start_replica(server)
    replica = replica_server.client()
    for i in range(50):
        Lock(master, f"lock:{i}").acquire(f"token:{i}", 300_000 + i)
    for i in range(0, 50, 2):
        Lock(master, f"lock:{i}").extend(f"token:{i}", 600_000)
    for i in range(0, 50, 5):
        Lock(master, f"lock:{i}").release(f"token:{i}")
    master.pexpire("lock:1", 600_000)
    master.set("string", "other", px=300_000)
    Lock(master, "string").extend("other", 700_000)
    master.set("gone", "other")
    Lock(master, "gone").release("other")
    in_sync(master, replica)
    assert digest(replica) == digest(master)
    for key in master.keys():
        ours, theirs = Lock(master, key).info(), Lock(replica, key).info()
        spent_ms = (time.monotonic() - begin) * 1000 + 1
        for info in ours, theirs:
            ttl, since = info.pop("ttl"), info.pop("since")
            if info["kind"] == b"lock":
                assert info["lease"] - spent_ms <= ttl <= info["lease"]
                assert begin_ms - 1000 <= since <= time.time() * 1000 + 1000  # it may be corrected
        assert ours == theirs
        assert master.execute_command("PEXPIRETIME", key) == replica.execute_command(
            "PEXPIRETIME", key)


def test_a_waiter_with_the_token_of_the_ended_holder_leaves_master_replica_and_file_agreed(
        start_server, start_replica):
    """RENAME brings a lock of the waiter's own token. The TTL of its key ends with that holder, on
    the master and everywhere else."""
    server = start_server("--appendonly", "yes")
    master = server.client()
    replica = start_replica(server).client()
    Lock(master).acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    Lock(master, "brought").acquire("waiter", 60_000)
    in_one_turn(master, ("RENAME", "brought", "lock"), ("PEXPIRE", "lock", 600_000))
    server.clock.turn()  # the lease counts from when the server has looked at the new name
    server.clock.advance(61)
    assert waiter.answer() > 0
    in_sync(master, replica)
    assert (master.pttl("lock"), replica.pttl("lock")) == (-1, -1)
    assert digest(replica) == digest(master)
    before = digest(master)
    master.execute_command("DEBUG", "LOADAOF")
    assert digest(master) == before


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


def test_a_release_that_arrives_after_the_lease_is_applied(server, start_replica):
    """By the replica's count the lease may have ended meanwhile; the master's word counts."""
    master = server.client()
    replica_server = start_replica(server)
    replica = replica_server.client()
    with stopped(replica_server):
        replies = in_one_turn(master, ("DLOCK.ACQUIRE", "lock", "me", "PX", 60_000),
                              ("DLOCK.RELEASE", "lock", "me"))
        assert replies[1] == 1
        replica_server.clock.advance(61, turns=0)
    in_sync(master, replica)
    assert replica.dbsize() == 0


def test_an_extension_that_arrives_after_the_lease_is_applied(server, start_follower):
    """The replica has counted a shorter lease to its end, and the master a longer one."""
    master = server.client()
    replica_server = start_follower(server)
    replica = replica_server.client()
    fence = Lock(master).acquire("me", 60_000)
    wait_until(lambda: fence_at(replica) == fence, "the replica to follow")
    with stopped(replica_server):
        assert Lock(master).extend("me", 120_000) == 1
        replica_server.clock.advance(61, turns=0)
    in_sync(master, replica)
    assert fence_at(replica) == fence
    assert digest(replica) == digest(master)


def test_a_state_from_the_master_replaces_whatever_is_there(server, start_replica):
    replica = start_replica(server, "--replica-read-only", "no").client()
    lock = Lock(server.client())
    for before in (("SET", "lock", "x"), ("RPUSH", "lock", "x"), ("DEL", "lock")):
        replica.delete("lock")
        replica.execute_command(*before)
        fence = lock.acquire("me")
        in_sync(lock.client, replica)
        assert fence_at(replica) == fence
        lock.release("me")
        in_sync(lock.client, replica)
        assert replica.exists("lock") == 0


# -- replicas never decide ------------------------------------------------------------------------


@pytest.fixture
def writable(server, start_replica):
    return start_replica(server, "--replica-read-only", "no")


def test_on_a_writable_replica_nobody_waits(lock, writable):
    fence = lock.acquire("me")
    wait_until(lambda: fence_at(writable.observer) == fence, "the replica to follow")
    assert Waiting(writable, "local", wait_ms=20_000).answer() is None
    assert_nobody_waits(writable.observer)


def test_a_release_by_the_master_grants_nothing_on_a_writable_replica(server, lock, writable):
    """The master gives the lock to somebody else in the same moment."""
    fence = lock.acquire("me")
    wait_until(lambda: fence_at(writable.observer) == fence, "the replica to follow")
    local = Waiting(writable, "local", wait_ms=20_000)
    pipe = lock.client.pipeline(transaction=False)
    pipe.execute_command("DLOCK.RELEASE", "lock", "me")
    pipe.execute_command("DLOCK.ACQUIRE", "lock", "other", "PX", 60_000)
    _, fence = pipe.execute()
    assert local.answer() is None
    in_sync(lock.client, writable.observer)
    assert fence_at(writable.observer) == fence


def test_a_lease_ends_after_a_load_that_failed_and_a_promotion(start_server, start_follower):
    """A replica that can be written to gets a request while it loads another dataset beside the old
    one. Then the load fails, and what was noted meanwhile belongs to the old dataset."""
    server = start_server("--repl-diskless-sync", "yes", "--repl-backlog-size", "16kb")
    replica = start_follower(server, "--repl-diskless-load", "swapdb", "--replica-read-only", "no",
                             "--loading-process-events-interval-bytes", 1024)
    master, there = server.client(), replica.client()
    fence = Lock(master).acquire("me", 600_000)
    master.mset({f"key:{i}": "x" * 100 for i in range(5000)})
    master.config_set("rdb-key-save-delay", 2000)
    wait_until(lambda: there.exists("key:0"), "the replica to follow")
    with stopped(replica):  # and has to get everything again
        master.execute_command("CLIENT", "KILL", "TYPE", "replica")
        for _ in range(20):
            master.set("filler", "x" * 10_000)
    wait_until(lambda: there.info("persistence")["async_loading"], "the load")
    assert Lock(there).acquire("me", 600_000) == fence
    server.kill()
    wait_until(lambda: not there.info("persistence")["async_loading"], "the load to fail")
    there.execute_command("REPLICAOF", "NO", "ONE")
    assert there.exists("lock")
    replica.clock.advance(601)
    assert not there.exists("lock")


def test_a_replica_that_loads_again_and_again_keeps_no_leases_of_the_past(server, start_replica):
    """With repl-diskless-load swapdb the old dataset is served until the new one is complete."""
    fill = "for i = 1, 20000 do redis.call('DLOCK.ACQUIRE', 'k' .. i, 't', 'PX', 86400000) end"
    server.observer.eval(fill, 0)
    replica = start_replica(server, "--repl-diskless-load", "swapdb")
    used = []
    for _ in range(4):
        loads = server.observer.info("stats")["sync_full"]
        server.observer.execute_command("DEBUG", "CHANGE-REPL-ID")
        server.observer.execute_command("CLIENT", "KILL", "TYPE", "replica")
        wait_until(lambda: server.observer.info("stats")["sync_full"] > loads, "a full resync")
        wait_until(lambda: replica.observer.info("replication")["master_link_status"] == "up",
                   "the replica to be in sync")
        wait_until(lambda: replica.observer.info("dlock")["dlock_held"] == 20_000, "the old to go")
        used.append(replica.observer.info("memory")["used_memory"])
    assert used[-1] < used[0] * 1.2, used
