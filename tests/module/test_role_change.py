"""Waiters while the server becomes a replica or a master, by order or by a planned failover."""

import pytest
import redis

from support.commands import Lock, fence_at, stats
from support.load import Load
from support.server import free_port, stopped, wait_until
from support.stream import digest
from support.turn import in_one_turn
from support.waiting import Waiting, assert_nobody_waits, queue_up


# -- demotion and promotion -----------------------------------------------------------------------


def demote(client, *before):
    """A replica of nobody: it keeps its data and never gets a word from a master."""
    in_one_turn(client, *before, ("REPLICAOF", "127.0.0.1", free_port()))


def assert_sent_away(waiter):
    """An error one can act on, and the end of the connection."""
    with pytest.raises(redis.ResponseError, match="^UNBLOCKED .*master -> replica"):
        waiter.answer()
    with pytest.raises(redis.ConnectionError):
        waiter.answer()


def test_waiters_of_a_server_that_becomes_a_replica_are_sent_away(server, lock):
    lock.acquire("me", 60_000)
    waiting = queue_up(server, ["a", "b", "c"]) + queue_up(server, ["d"], options=["SESSION"])
    demote(lock.client)
    for waiter in waiting:
        assert_sent_away(waiter)
    assert_nobody_waits(lock.client)
    assert lock.info()["token"] == b"me"
    with pytest.raises(redis.ReadOnlyError):
        Waiting(server, "late").answer()


def test_timers_that_fire_on_a_replica_do_nothing(server, lock):
    lock.acquire("me", 60_000)
    lock.client.set("string", "other", px=60_000)
    waiting = queue_up(server, ["short"], wait_ms=90_000) + queue_up(server, ["long"])
    waiting += queue_up(server, ["string"], key="string")
    before = stats(lock.client)
    demote(lock.client)
    for waiter in waiting:
        assert_sent_away(waiter)
    server.clock.step(120)
    server.clock.advance(120)  # leases and waits end
    after = stats(lock.client)
    for counter in ("granted", "handed_over", "expired", "wait_timeouts", "session_releases"):
        assert after[counter] == before[counter]
    assert lock.client.dbsize() == 2  # a replica deletes nothing by itself


def test_a_session_that_ends_on_a_replica_changes_nothing(server, lock):
    holder = Waiting(server, "holder", options=["SESSION"], lease_ms=60_000)
    fence = holder.answer()
    demote(lock.client)
    holder.close()
    wait_until(lambda: stats(lock.client)["session_holds"] == 0, "the session to end")
    server.clock.turn()
    assert lock.info()["fence"] == fence
    lock.client.execute_command("REPLICAOF", "NO", "ONE")
    assert lock.info()["fence"] == fence
    assert lock.acquire("other") is None
    assert lock.release("holder") == 1


@pytest.mark.parametrize("end", [("DEL", "lock"), ("FLUSHALL",)], ids=["del", "flushall"])
def test_a_lock_deleted_right_before_the_demotion_is_granted_to_nobody(server, lock, end):
    lock.acquire("me")
    waiting = queue_up(server, ["first", "second"])
    demote(lock.client, end)
    for waiter in waiting:
        assert_sent_away(waiter)
    server.clock.turn()
    assert lock.client.dbsize() == 0
    assert_nobody_waits(lock.client)


def test_a_promoted_server_hands_over_again(server, lock):
    fences = [lock.acquire("me", 60_000)]
    waiting = queue_up(server, ["gone"])
    demote(lock.client)
    assert_sent_away(waiting[0])
    server.clock.advance(120)
    assert lock.client.exists("lock") == 1
    lock.client.execute_command("REPLICAOF", "NO", "ONE")
    first, second, third = queue_up(server, ["first", "second", "third"], lease_ms=60_000)
    server.clock.advance(61)
    fences.append(first.answer())
    assert lock.release("first") == 1
    fences.append(second.answer())
    server.clock.advance(61)
    fences.append(third.answer())
    assert fences == sorted(set(fences))
    assert_nobody_waits(lock.client)


def test_a_server_may_change_roles_while_clients_keep_waiting(server, lock):
    """Each round: waiters, demotion in the turn of a release, promotion."""
    for _ in range(10):
        assert lock.acquire("holder", 60_000) > 0
        first, second = queue_up(server, ["first", "second"])
        demote(lock.client, ("DLOCK.RELEASE", "lock", "holder"))
        assert_sent_away(second)
        with pytest.raises((redis.ResponseError, redis.ConnectionError)):
            if first.answer() == lock.info()["fence"]:
                first.answer()  # it was told in time, and then sent away
        assert lock.info()["token"] == b"first"
        assert_nobody_waits(lock.client)
        lock.client.execute_command("REPLICAOF", "NO", "ONE")
        assert lock.release("first") == 1


def test_a_full_synchronisation_leaves_no_waiters_and_no_sessions(server, lock, start_server):
    master = start_server()
    Lock(master.client()).acquire("there", 60_000)
    holder = Waiting(server, "here", options=["SESSION"])
    holder.answer()
    waiting = queue_up(server, ["waiter"])
    lock.client.execute_command("REPLICAOF", "127.0.0.1", master.port)
    assert_sent_away(waiting[0])
    wait_until(lambda: fence_at(lock.client) == fence_at(master.observer), "the master's data")
    assert stats(lock.client)["session_holds"] == 0
    assert_nobody_waits(lock.client)
    holder.close()
    assert lock.info()["session"] == 0


# -- planned failover -----------------------------------------------------------------------------


def failover(old, new):
    """FAILOVER to that replica; returns when it is the master and the old one follows it."""
    here, there = old.client(), new.client()
    wait_until(lambda: here.info("replication")["slave0"]["state"] == "online", "the replica")
    here.execute_command("FAILOVER", "TO", "127.0.0.1", new.port)
    wait_until(lambda: there.info("replication")["role"] == "master", "the promotion")
    wait_until(lambda: here.info("replication").get("master_link_status") == "up", "the new link")


def test_a_lock_survives_a_failover_and_its_fence_grows(server, start_replica):
    replica = start_replica(server)
    here, there = Lock(server.client()), Lock(replica.client())
    held = here.acquire("me", 60_000)
    waiting = queue_up(server, ["first", "second"])
    failover(server, replica)
    for waiter in waiting:
        assert_sent_away(waiter)
    assert (there.info()["token"], there.info()["fence"]) == (b"me", held)
    assert there.acquire("thief") is None
    assert there.acquire("me") == held  # who lost its connection asks again
    with pytest.raises(redis.ReadOnlyError):
        here.acquire("thief")
    first, second = queue_up(replica, ["first", "second"])
    assert there.release("me") == 1
    fences = [held, first.answer()]
    assert there.release("first") == 1
    fences.append(second.answer())
    assert fences == sorted(set(fences))
    wait_until(lambda: digest(here.client) == digest(there.client), "the same data on both")


def test_a_failover_under_load_with_two_replicas_loses_nothing(server, start_replica):
    """Nobody asks for an acknowledgement: a planned failover waits for the replica by itself."""
    chosen, other = start_replica(server), start_replica(server)
    load = Load(server, "load", connections=20, pipeline=4)
    load.start()
    load.wait_for(1000)
    failover(server, chosen)
    load.join()
    assert load.lost(chosen.client()) == []
    assert [refusal.split()[0] for refusal in load.refusals] == ["READONLY"]
    assert Lock(chosen.client(), "next").acquire("me", 60_000) > load.fences[-1]
    for replica in (server, other):
        wait_until(lambda: digest(replica.observer) == digest(chosen.observer), "the same data")


def test_after_a_failover_the_lease_is_what_ends_a_session_lock(server, start_replica):
    replica = start_replica(server)
    there = Lock(replica.client())
    holder = Waiting(server, "holder", lease_ms=60_000, options=["SESSION"])
    fence = holder.answer()
    failover(server, replica)
    holder.close()
    assert (there.info()["fence"], there.info()["session"]) == (fence, 0)
    [waiter] = queue_up(replica, ["waiter"])
    assert not waiter.is_answered()
    replica.clock.advance(61)
    assert waiter.answer() > fence


def test_failover_there_and_back_grants_nothing_twice(server, start_replica):
    master, other = server, start_replica(server)
    fences = []
    for i in range(2):
        lock = Lock(master.client())
        fences.append(lock.acquire(f"holder:{i}", 60_000))
        waiting = queue_up(master, ["waiter"])
        failover(master, other)
        assert_sent_away(waiting[0])
        master, other = other, master
        lock = Lock(master.client())
        assert lock.info()["fence"] == fences[-1]
        waiting = queue_up(master, ["waiter"])
        assert lock.release(f"holder:{i}") == 1
        fences.append(waiting[0].answer())
        assert lock.release("waiter") == 1
    assert fences == sorted(set(fences))


def begin_failover(client):
    """To a replica that is stopped and so stays behind."""
    client.set("x", 1)
    client.execute_command("FAILOVER")


def test_a_lease_that_ends_in_an_aborted_failover_is_handed_on_after_it(server, start_replica):
    replica = start_replica(server)
    lock = Lock(server.client())
    lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    with stopped(replica):
        begin_failover(lock.client)
        assert lock.client.info("replication")["master_failover_state"] == "waiting-for-sync"
        for _ in range(3):
            server.clock.advance(61)
        assert not waiter.is_answered(), "granted while the server was about to step down"
        lock.client.execute_command("FAILOVER", "ABORT")
        assert waiter.answer() > 0


def test_a_lease_that_ends_in_a_failover_is_granted_by_the_new_master(server, start_replica):
    replica = start_replica(server)
    here, there = Lock(server.client()), Lock(replica.client())
    fence = here.acquire("me", 60_000)
    waiting = queue_up(server, ["waiter"])
    with stopped(replica):
        begin_failover(here.client)
        server.clock.advance(61)
        assert not waiting[0].is_answered()
    assert_sent_away(waiting[0])
    wait_until(lambda: there.client.info("replication")["role"] == "master", "the promotion")
    [waiter] = queue_up(replica, ["waiter"])
    replica.clock.advance(61)
    assert waiter.answer() > fence
