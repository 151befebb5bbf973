"""A lock under the commands that work on any key: what each of them means is defined here."""

import time

import pytest
import redis

from support.commands import Lock, fence_at, stats
from support.dump import forge
from support.server import wait_until
from support.turn import in_one_turn
from support.waiting import queue_up


def test_the_type_has_a_name_and_scan_finds_it(lock):
    lock.acquire("me")
    lock.client.set("string", "x")
    assert lock.client.type("lock") == b"dlock-key"
    assert list(lock.client.scan_iter(_type="dlock-key")) == [b"lock"]


@pytest.mark.parametrize("words", [("GET", "lock"), ("APPEND", "lock", "x")], ids=" ".join)
def test_a_string_command_on_a_lock_is_wrongtype(lock, words):
    lock.acquire("me")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        lock.client.execute_command(*words)


def test_set_over_a_lock_replaces_it_by_a_string_lock(lock):
    lock.acquire("me")
    lock.client.set("lock", "other", px=10_000)
    assert lock.release("me") == 0
    assert lock.info()["kind"] == b"string"


def test_a_copy_of_a_lock_is_refused(lock):
    lock.acquire("me")
    with pytest.raises(redis.ResponseError, match="not supported for this module key"):
        lock.client.copy("lock", "twin")
    assert lock.client.exists("twin") == 0
    assert lock.info()["token"] == b"me"


def test_a_renamed_lock_is_held_under_its_new_name(lock):
    fence = lock.acquire("me", 50_000)
    lock.client.rename("lock", "moved")
    moved = Lock(lock.client, "moved")
    assert lock.info() is None
    assert (moved.info()["token"], moved.info()["fence"]) == (b"me", fence)
    assert moved.ttl() > 40_000
    assert lock.acquire("you") > fence
    assert moved.release("me") == 1


def test_a_rename_over_a_lock_ends_it(client):
    first, second = Lock(client, "first"), Lock(client, "second")
    first.acquire("me")
    second.acquire("you")
    client.rename("first", "second")
    assert second.info()["token"] == b"me"
    assert second.release("you") == 0


def test_a_moved_lock_is_held_in_the_other_database(server, lock):
    fence = lock.acquire("me")
    assert lock.client.move("lock", 1)
    there = Lock(server.client(db=1))
    assert lock.info() is None
    assert there.info()["fence"] == fence
    assert there.release("me") == 1


def test_swapped_databases_swap_their_locks(server, lock):
    other = Lock(server.client(db=1))
    lock.acquire("me")
    other.acquire("you")
    lock.client.swapdb(0, 1)
    assert lock.info()["token"] == b"you"
    assert other.info()["token"] == b"me"


@pytest.mark.parametrize("how", ["SYNC", "ASYNC"])
@pytest.mark.parametrize("what", ["FLUSHALL", "FLUSHDB"])
def test_a_flush_frees_every_lock(client, what, how):
    locks = [Lock(client, f"lock:{i}") for i in range(1000)]
    last = max(lock.acquire("me") for lock in locks)
    client.execute_command(what, how)
    assert locks[0].acquire("you") > last
    wait_until(lambda: stats(client)["held"] == 1, "the freed locks to be counted off")


@pytest.mark.parametrize("when", [2**52 + 1, 2**53 + 1, 2**62])
def test_a_far_expire_leaves_master_replica_and_file_agreed(start_server, start_replica, when):
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    master, replica = server.client(), start_replica(server).client()
    lock = Lock(master)
    lock.acquire("me", 60_000)
    master.execute_command("PEXPIREAT", "lock", when)
    fence = lock.acquire("me", 60_000, "FENCE", time.time_ns() // 1000 + 10_000_000)
    wait_until(lambda: fence_at(replica) == fence, "the replica to follow")
    digests = [client.execute_command("DEBUG", "DIGEST") for client in (master, replica)]
    assert digests[0] == digests[1]
    server.restart()
    assert fence_at(server.client()) == fence


def test_the_farthest_expire_disturbs_no_waiter(server, lock):
    """The farthest that the server takes: any sum with it is too large for a number."""
    lock.acquire("me", 600_000)
    [waiter] = queue_up(server, ["waiter"])
    for when in (2**63 - 1, 2**62, 2**53):
        try:
            lock.client.execute_command("PEXPIREAT", "lock", when)
        except redis.ResponseError as refusal:
            assert "invalid expire time" in str(refusal)
    assert server.clock.turns_a_second(0.1) < 1000, "the server is busy with it"
    assert not waiter.is_answered()
    assert lock.release("me") == 1
    assert waiter.answer() > 0


def test_a_dumped_lock_is_restored_with_token_fence_and_lease(lock, clock):
    """With a TTL, it is forced open then."""
    fence = lock.acquire("me", 500_000)
    payload = lock.client.dump("lock")
    lock.release("me")
    lock.client.restore("lock", 60_000, payload)
    restored = lock.info()
    assert [restored[f] for f in ("token", "fence", "lease")] == [b"me", fence, 500_000]
    assert 400_000 < restored["ttl"] <= 500_000
    clock.step(61)
    assert lock.info() is None


def test_a_restored_fence_raises_the_counter(start_server, lock):
    """By a minute here: the clock of the other server may have been ahead."""
    fence = lock.acquire("me")
    ahead = fence + 60_000_000
    forged = forge(lock.client.dump("lock"), fence, ahead)
    other = start_server().client()
    other.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    other.restore("lock", 0, forged)
    assert fence_at(other) == ahead
    assert Lock(other, "next").acquire("you") > ahead


@pytest.mark.parametrize("ahead", [2**61 - 2, 2**52, "an hour"])
def test_a_forged_fence_is_refused_and_changes_nothing_for_others(start_server, ahead):
    """Fences of everybody would follow it, out of what Lua can count; after a restart, they would
    come back."""
    server = start_server()
    lock = Lock(server.client())
    fence = lock.acquire("me")
    far = fence + 3_600_000_000 if ahead == "an hour" else ahead
    lock.client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)
    with pytest.raises(redis.ResponseError, match="Bad data format"):
        lock.client.restore("forged", 0, forge(lock.client.dump("lock"), fence, far))
    assert "a corrupt lock" in server.log()
    assert stats(lock.client)["last_fence"] == fence
    later = Lock(lock.client, "later").acquire("me")
    assert fence < later < fence + 3_600_000_000
    lock.client.save()
    server.restart()
    assert fence_at(server.client(), "later") == later
    assert Lock(server.client(), "next").acquire("me") > later


def test_a_lock_that_is_restored_too_late_leaves_nothing_behind(client):
    """RESTORE throws away what it has loaded when its TTL is over. The lease would last a day."""
    lock = Lock(client, "n" * 10_000)
    lock.acquire("me", 86_400_000)
    payload = client.dump(lock.key)
    before = client.info("memory")["used_memory"]
    for _ in range(2000):
        client.restore(lock.key, 1, payload, replace=True, absttl=True)
    assert client.exists(lock.key) == 0
    wait_until(lambda: client.info("memory")["used_memory"] < before + 2_000_000, "the memory")


def test_a_lock_that_is_restored_and_renamed_at_once_ends_with_its_lease(lock, clock):
    lock.acquire("me", 60_000)
    payload = lock.client.dump("lock")
    in_one_turn(lock.client, ("DEL", "lock"), ("RESTORE", "lock", 0, payload),
                ("RENAME", "lock", "renamed"))
    assert lock.client.exists("renamed")
    clock.advance(2)  # a search finds it
    clock.advance(61)
    assert not lock.client.exists("renamed")


def test_a_lock_shows_its_size_and_encoding(lock):
    lock.acquire("me")
    assert 32 <= lock.client.memory_usage("lock") < 300
    assert lock.client.object("encoding", "lock") is not None
    assert lock.client.object("idletime", "lock") < 10  # seconds, of a clock that ticks seldom


CHANGES = {
    # whether "me" holds the lock, what is done, whether a transaction that watches it is aborted
    "a grant": (False, lambda lock: lock.acquire("me"), True),
    "a release": (True, lambda lock: lock.release("me"), True),
    "an extension": (True, lambda lock: lock.extend("me"), False),
    "a holder that asks again": (True, lambda lock: lock.acquire("me", 90_000), False),
    "a lease that is not longer": (True, lambda lock: lock.acquire("me", 1), False),
    "an extension that is not longer": (True, lambda lock: lock.extend("me", 1), False),
    "a refused stranger": (True, lambda lock: lock.acquire("you"), False),
    "a release by a stranger": (True, lambda lock: lock.release("you"), False),
    "an extension by a stranger": (True, lambda lock: lock.extend("you"), False),
    "a look": (True, lambda lock: lock.info(), False),
}


@pytest.mark.parametrize("is_held, change, is_aborted", CHANGES.values(), ids=CHANGES.keys())
def test_only_a_change_of_hands_aborts_the_transactions_that_watch(
        server, lock, is_held, change, is_aborted):
    if is_held:
        lock.acquire("me", 10_000)
    with server.client().pipeline() as pipe:
        pipe.watch("lock")
        change(lock)
        pipe.multi()
        pipe.ping()
        if is_aborted:
            with pytest.raises(redis.WatchError):
                pipe.execute()
        else:
            assert pipe.execute() == [True]
