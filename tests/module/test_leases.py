"""A lease is kept by the module, on a clock that nobody can set: the key has no TTL. Whoever takes
a lock over starts its lease anew.

The tests advance that clock: clock.advance(seconds)."""

import pytest

from support.commands import Lock, fence_at, stats
from support.files import AOF, FILES
from support.server import free_port, wait_until
from support.turn import Bare
from support.waiting import Waiting, queue_up

MINUTE = 60
MINUTE_MS = 60_000
LEASE_MS = 10 * MINUTE_MS


def assert_anew(lock, lease_ms=LEASE_MS):
    """All of the lease is left, or nearly."""
    assert lease_ms - MINUTE_MS < lock.ttl() <= lease_ms
    assert lock.info()["lease"] == lease_ms


def assert_served_after(waiter, clock, minutes):
    clock.advance((minutes - 1) * MINUTE)
    assert not waiter.is_answered(), "too early"
    clock.advance(MINUTE + 1)
    assert waiter.answer() > 0


# -- where the lease is seen ----------------------------------------------------------------------


def test_the_key_of_a_lock_has_no_ttl(server, lock):
    def assert_no_ttl():
        assert lock.client.ttl("lock") == lock.client.pttl("lock") == -1
        assert lock.client.execute_command("PEXPIRETIME", "lock") == -1

    lock.acquire("me", MINUTE_MS)
    assert_no_ttl()
    lock.extend("me", 2 * MINUTE_MS)
    lock.acquire("me", 3 * MINUTE_MS)
    assert_no_ttl()
    [waiter] = queue_up(server, ["waiter"], lease_ms=LEASE_MS)
    lock.release("me")
    waiter.answer()
    assert_no_ttl()
    assert_anew(lock)


# -- the end of a lease ---------------------------------------------------------------------------


def test_a_lease_ends_on_the_clock_of_the_machine(server, lock):
    """All other tests set the clock."""
    fence = lock.acquire("me", 20)
    assert Waiting(server, "waiter").answer() > fence
    assert stats(lock.client)["expired"] == 1


@pytest.mark.parametrize("command, answer", [
    ("DLOCK.INFO lock", b"*-1"), ("DLOCK.RELEASE lock me", b":0"),
    ("DLOCK.EXTEND lock me PX 1000", b":0"), ("DLOCK.ACQUIRE lock me PX 60000", b":"),
    ("DLOCK.ACQUIRE lock you PX 60000", b":")])
def test_a_lease_that_ended_is_never_seen_as_held(server, command, answer):
    """The server was busy when it ended, and has had no time to remove the key."""
    bare = Bare(server)
    bare.send("DLOCK.ACQUIRE lock me PX 1", "DEBUG SLEEP 0.01", command)
    fence, _, reply = bare.read(3)
    assert reply.startswith(answer) or (reply, answer) == (b"$-1", b"*-1")
    if answer == b":":
        assert int(reply[1:]) > int(fence[1:])


def test_the_key_is_removed_when_the_lease_ends(lock, clock):
    lock.acquire("me", LEASE_MS)
    clock.advance(9 * MINUTE)
    assert 0 < lock.ttl() <= MINUTE_MS
    assert lock.client.exists("lock") == 1
    assert lock.client.set("lock", "other", nx=True) is None
    clock.advance(MINUTE + 1)
    assert lock.client.exists("lock") == 0
    assert lock.client.set("lock", "other", nx=True)


def test_a_waiter_gets_the_lock_when_the_lease_ends_as_it_was_extended_last(server, lock, clock):
    lock.acquire("me", LEASE_MS)
    clock.advance(5 * MINUTE)
    lock.extend("me", LEASE_MS)
    first, second = queue_up(server, ["first", "second"])
    clock.advance(9 * MINUTE)
    assert not first.is_answered()
    lock.extend("me", LEASE_MS)
    assert_served_after(first, clock, 10)
    assert not second.is_answered()


def test_leases_end_in_their_order_whichever_was_granted_first(client, clock):
    for minutes in (5, 1, 4, 2, 3):
        Lock(client, f"{minutes}").acquire("me", minutes * MINUTE_MS)
    clock.advance(MINUTE / 2)
    for first in range(1, 6):
        assert sorted(client.keys()) == [b"%d" % minutes for minutes in range(first, 6)]
        clock.advance(MINUTE)
    assert client.dbsize() == 0


@pytest.mark.parametrize("end", [
    ("DLOCK.RELEASE", "lock", "me"), ("DEL", "lock"), ("FLUSHALL",), ("SET", "lock", "other"),
    ("FLUSHALL", "ASYNC"), ("RENAME", "lock", "elsewhere"), ("SWAPDB", "0", "5"),
], ids=" ".join)
def test_a_lock_that_ended_otherwise_is_not_ended_again_by_its_old_lease(lock, clock, end):
    lock.acquire("me", MINUTE_MS)
    lock.client.execute_command(*end)
    lock.client.delete("lock")
    fence = lock.acquire("me", LEASE_MS)
    clock.advance(2 * MINUTE)
    assert lock.info()["fence"] == fence


@pytest.mark.parametrize("is_awaited", [False, True], ids=["plain", "awaited"])
def test_the_end_of_a_lease_is_counted_and_told(server, lock, clock, events, is_awaited):
    lock.acquire("me", LEASE_MS)
    if is_awaited:
        queue_up(server, ["waiter"])
    clock.advance(10 * MINUTE + 1)
    assert events.take() == ["acquire", "expire", *["handover"] * is_awaited]
    assert (stats(lock.client)["expired"], stats(lock.client)["forced"]) == (1, 0)


def test_a_lock_of_another_database_ends_there(server, lock, clock):
    there = Lock(server.client(db=7))
    there.acquire("me", LEASE_MS)
    lock.acquire("me", 2 * LEASE_MS)
    clock.advance(10 * MINUTE + 1)
    assert there.client.dbsize() == 0
    assert lock.info()["token"] == b"me"


def test_a_watched_lock_whose_lease_ends_aborts_the_transaction(server, lock, clock):
    lock.acquire("me", LEASE_MS)
    with server.client().pipeline() as pipe:
        pipe.watch("lock")
        clock.advance(10 * MINUTE + 1)
        pipe.multi()
        pipe.ping()
        with pytest.raises(Exception, match="(?i)watched"):
            pipe.execute()


# -- replicas and files carry the length ----------------------------------------------------------


def test_the_replication_stream_carries_the_length_of_the_lease_and_its_end(stream, lock, clock):
    fence = lock.acquire("me", LEASE_MS)
    clock.advance(10 * MINUTE + 1)
    granted, ended = stream.take()
    assert granted == [b"dlock.apply", b"lock", b"me", b"%d" % fence, b"%d" % LEASE_MS]
    assert [word.lower() for word in ended] == [b"dlock.release", b"lock", b"me"]


@pytest.fixture
def replica(server, lock, start_follower):
    """It has the lock, of which a minute is left."""
    replica = start_follower(server)
    fence = lock.acquire("me", LEASE_MS)
    wait_until(lambda: fence_at(replica.observer) == fence, "the replica to follow")
    replica.clock.advance(9 * MINUTE)
    return replica


def test_a_replica_shows_the_lease(replica):
    there = Lock(replica.observer)
    assert 0 < there.ttl() <= MINUTE_MS
    assert there.info()["lease"] == LEASE_MS
    assert there.client.pttl("lock") == -1


def test_a_replica_removes_a_lock_when_its_master_says_so(lock, clock, replica):
    replica.clock.advance(2 * MINUTE)
    assert replica.observer.dbsize() == 1
    clock.advance(10 * MINUTE + 1)
    wait_until(lambda: replica.observer.dbsize() == 0, "the end of the lease")
    assert lock.client.exists("lock") == 0


def test_a_replica_that_has_lost_its_master_ends_no_lease(replica):
    replica.observer.execute_command("REPLICAOF", "127.0.0.1", free_port())
    replica.clock.advance(2 * MINUTE)
    assert replica.observer.dbsize() == 1


@pytest.mark.parametrize("more", [0, 2 * MINUTE], ids=["in time", "after its end"])
def test_a_promoted_replica_starts_the_lease_anew_and_ends_it(server, lock, replica, more):
    """If its master was silent, nobody knows whether the holder has renewed meanwhile."""
    fence = lock.info()["fence"]
    replica.clock.advance(more)
    server.kill()
    replica.observer.execute_command("REPLICAOF", "NO", "ONE")
    there = Lock(replica.observer)
    assert there.info()["fence"] == fence
    assert_anew(there)
    [waiter] = queue_up(replica, ["waiter"])
    assert_served_after(waiter, replica.clock, 10)


@FILES
@pytest.mark.parametrize("passed", [9 * MINUTE, 11 * MINUTE], ids=["in time", "after its end"])
def test_a_restarted_server_starts_the_lease_anew_and_ends_it(start_server, options, prepare,
                                                              passed):
    server = start_server(*options)
    fence = Lock(server.client()).acquire("me", LEASE_MS)
    prepare(server.observer)
    server.kill()
    server.clock.advance(passed)
    server.start()
    lock = Lock(server.client())
    assert lock.info()["fence"] == fence
    assert_anew(lock)
    [waiter] = queue_up(server, ["waiter"])
    assert_served_after(waiter, server.clock, 10)


def test_an_extension_is_what_a_restart_starts_anew(start_server):
    server = start_server(*AOF)
    lock = Lock(server.client())
    lock.acquire("me", MINUTE_MS)
    lock.extend("me", LEASE_MS)
    server.kill()
    server.start()
    assert_anew(Lock(server.client()))


def reload(client):
    client.execute_command("DEBUG", "RELOAD")


def restore(client):
    payload = client.dump("lock")
    client.delete("lock")
    client.restore("lock", 0, payload)


@pytest.mark.parametrize("load", [reload, restore])
def test_a_loaded_lock_has_its_lease_anew_and_ends(server, lock, clock, load):
    lock.acquire("me", LEASE_MS)
    clock.advance(9 * MINUTE)
    load(lock.client)
    assert_anew(lock)
    [waiter] = queue_up(server, ["waiter"])
    assert_served_after(waiter, clock, 10)


# -- what operators do to the key -----------------------------------------------------------------


@pytest.mark.parametrize("command", [("DEL", "lock"), ("UNLINK", "lock"), ("PEXPIRE", "lock", 0)],
                         ids=lambda words: words[0])
@pytest.mark.parametrize("is_awaited", [False, True], ids=["plain", "awaited"])
def test_del_is_the_force_unlock(server, lock, command, is_awaited):
    fence = lock.acquire("me")
    waiting = queue_up(server, ["waiter"] * is_awaited)
    assert lock.client.execute_command(*command) == 1
    assert lock.release("me") == 0
    assert (waiting[0].answer() if is_awaited else lock.acquire("you")) > fence
    assert stats(lock.client)["forced"] == 1


def test_expire_is_a_force_unlock_later(lock, clock):
    """A TTL is on the wall clock, as every TTL of Redis."""
    fence = lock.acquire("me", LEASE_MS)
    assert lock.client.pexpire("lock", MINUTE_MS)
    assert lock.info()["token"] == b"me"
    clock.step(MINUTE + 1)
    assert lock.info() is None
    clock.step(-MINUTE - 1)
    assert lock.acquire("you") > fence


@pytest.mark.parametrize("others", [0, 100_000], ids=["no other keys", "many other keys"])
def test_expire_on_an_awaited_lock_serves_the_waiter(server, lock, others):
    """Also where the server's own expiry is long in finding the key among others."""
    lock.client.eval("for i = 1, tonumber(ARGV[1]) do "
                     "redis.call('SET', 'key:' .. i, 'x', 'PX', 86400000) end", 0, others)
    lock.client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    lock.acquire("me", LEASE_MS)
    [waiter] = queue_up(server, ["waiter"])
    lock.client.pexpire("lock", 20)
    assert waiter.answer() > 0


def test_expire_after_the_end_of_the_lease_does_not_prolong_it(server, lock, clock):
    lock.acquire("me", LEASE_MS)
    lock.client.pexpire("lock", 2 * LEASE_MS)
    [waiter] = queue_up(server, ["waiter"])
    assert_served_after(waiter, clock, 10)


def test_a_waiter_does_not_inherit_an_expire_that_was_meant_for_the_holder(server, lock):
    lock.acquire("me", LEASE_MS)
    lock.client.pexpire("lock", LEASE_MS)
    [waiter] = queue_up(server, ["waiter"])
    lock.release("me")
    waiter.answer()
    assert lock.client.pttl("lock") == -1


def test_persist_takes_back_a_force_unlock_and_does_not_pin_a_lock(lock, clock):
    lock.acquire("me", LEASE_MS)
    assert not lock.client.persist("lock")
    lock.client.pexpire("lock", MINUTE_MS)
    assert lock.client.persist("lock")
    clock.step(2 * MINUTE)
    assert lock.info()["token"] == b"me"
    clock.advance(10 * MINUTE + 1)
    assert lock.client.exists("lock") == 0


@pytest.mark.parametrize("move", [
    ("RENAME", "lock", "moved"), ("MOVE", "lock", "3"), ("SWAPDB", "0", "3")], ids=" ".join)
@pytest.mark.parametrize("is_awaited", [False, True], ids=["plain", "awaited"])
def test_a_lock_that_goes_elsewhere_ends_with_its_lease(server, lock, clock, move, is_awaited):
    """At the latest one lease and a few seconds later: a search finds it after a second, and starts
    its lease anew."""
    lock.acquire("me", LEASE_MS)
    lock.client.execute_command(*move)
    db = 0 if move[0] == "RENAME" else 3
    there = Lock(server.client(db=db), "moved" if db == 0 else "lock")
    assert there.info()["token"] == b"me"
    if is_awaited:
        [waiter] = queue_up(server, ["waiter"], key=there.key, db=db)
    clock.advance(2)
    clock.advance(9 * MINUTE)
    assert there.client.exists(there.key) == 1
    clock.advance(MINUTE + 1)
    assert waiter.answer() > 0 if is_awaited else not there.client.exists(there.key)


def test_a_lock_that_goes_elsewhere_never_ends_early(lock, clock):
    lock.acquire("me", LEASE_MS)
    clock.advance(5 * MINUTE)
    lock.client.rename("lock", "moved")
    moved = Lock(lock.client, "moved")
    assert moved.extend("me", 2 * LEASE_MS) == 1
    clock.advance(19 * MINUTE)
    assert moved.info()["token"] == b"me"
    clock.advance(MINUTE + 1)
    assert moved.info() is None


def test_renamed_locks_that_nobody_looks_at_end_too(server, lock, clock):
    """Each is searched for, also soon after another search, and after an EXPIRE that a waiter had
    to wait for."""
    lock.acquire("first", LEASE_MS)
    [waiter] = queue_up(server, ["second"])
    lock.client.pexpire("lock", 0)
    waiter.answer()
    for number in range(2):
        lock.client.rename("lock", f"moved:{number}")
        clock.advance(11)  # a search begins a second later, and ten seconds after another one
        clock.advance(10 * MINUTE + 1)
        assert lock.client.dbsize() == 0
        lock.acquire("third", LEASE_MS)
