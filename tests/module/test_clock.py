"""Somebody sets the wall clock of a server, by a minute or by a year: no lease is shorter than
promised, nobody waits longer for it, and no fence goes back.

Leases and waits are on another clock, which these tests advance by themselves."""

import time

import pytest

from support.commands import Lock, fence_at
from support.server import wait_until
from support.shared import SharedServer
from support.waiting import Waiting, queue_up

HOUR = 3600
STEPS = {"a minute ahead": 60, "an hour ahead": HOUR, "400 days ahead": 400 * 24 * HOUR,
         "an hour back": -HOUR}
EVERY_STEP = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
BACK = pytest.mark.parametrize("step", [-20, -HOUR], ids=["20 seconds back", "an hour back"])
LEASE_S = 600
LEASE_MS = LEASE_S * 1000


@pytest.fixture(scope="module")
def shared_ahead():
    shared = SharedServer(may_be_ahead=True)
    yield shared
    shared.destroy()


@pytest.fixture
def ahead(shared_ahead):
    """A server whose fences may be ahead of its clock, from a test before."""
    yield shared_ahead.take()
    shared_ahead.give_back()


def assert_ends_with_its_lease(lock, server, lease_s=LEASE_S):
    """Not a minute before, and at once."""
    server.clock.advance(lease_s - 60)
    assert lock.ttl() > 0
    server.clock.advance(61)
    assert lock.client.exists(lock.key) == 0


def assert_served_when_the_lease_ends(waiter, server, lease_s=LEASE_S):
    server.clock.advance(lease_s - 60)
    assert not waiter.is_answered(), "too early"
    server.clock.advance(61)
    assert waiter.answer() > 0


@EVERY_STEP
def test_the_clock_of_a_server_can_be_set(ahead, step):
    ahead.clock.step(step)
    before = int(time.time())
    assert before <= ahead.observer.time()[0] - step <= time.time() + 1


# -- a master -------------------------------------------------------------------------------------


@EVERY_STEP
def test_a_lease_is_as_long_as_promised(ahead, step):
    lock = Lock(ahead.observer)
    lock.acquire("me", LEASE_MS)
    ahead.clock.step(step)
    assert lock.ttl() <= LEASE_MS
    assert_ends_with_its_lease(lock, ahead)


@EVERY_STEP
def test_many_leases_end_after_a_step_as_they_would_without(ahead, step):
    for minutes in range(1, 6):
        Lock(ahead.observer, f"lock:{minutes}").acquire("me", minutes * 60_000)
    ahead.clock.step(step)
    ahead.clock.advance(30)
    for left in (5, 4, 3, 2, 1):
        assert ahead.observer.dbsize() == left
        ahead.clock.advance(60)


@EVERY_STEP
@pytest.mark.parametrize("comes", ["before the step", "after it"])
def test_a_waiter_gets_the_lock_when_the_lease_ends(ahead, step, comes):
    Lock(ahead.observer).acquire("me", LEASE_MS)
    if comes == "after it":
        ahead.clock.step(step)
    [waiter] = queue_up(ahead, ["waiter"])
    if comes == "before the step":
        ahead.clock.step(step)
    assert_served_when_the_lease_ends(waiter, ahead)


@EVERY_STEP
def test_a_wait_ends_on_time(ahead, step):
    Lock(ahead.observer).acquire("me", 2 * LEASE_MS)
    [waiter] = queue_up(ahead, ["waiter"], wait_ms=LEASE_MS)
    ahead.clock.step(step)
    ahead.clock.advance(LEASE_S - 60)
    assert not waiter.is_answered(), "too early"
    ahead.clock.advance(61)
    assert waiter.answer() is None


@EVERY_STEP
def test_an_extension_before_the_step_counts_after_it(ahead, step):
    lock = Lock(ahead.observer)
    lock.acquire("me", LEASE_MS)
    [waiter] = queue_up(ahead, ["waiter"])
    lock.extend("me", 2 * LEASE_MS)
    ahead.clock.step(step)
    assert_served_when_the_lease_ends(waiter, ahead, 2 * LEASE_S)


ENDS = {
    "release": lambda holder: holder.call("DLOCK.RELEASE", "lock", "holder"),
    "del": lambda holder: holder.call("DEL", "lock"),
    "flushall": lambda holder: holder.call("FLUSHALL"),
    "pexpire": lambda holder: holder.call("PEXPIRE", "lock", 0),
    "end of the session": lambda holder: holder.close(),
}


@EVERY_STEP
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_lock_that_ends_otherwise_after_the_step_serves_the_waiter(ahead, step, end):
    holder = Waiting(ahead, "holder", options=["SESSION"])
    assert holder.answer() > 0
    [waiter] = queue_up(ahead, ["waiter"])
    ahead.clock.step(step)
    end(holder)
    assert waiter.answer() > 0


@EVERY_STEP
def test_a_waiter_for_a_string_is_served_after_the_step(ahead, step):
    ahead.observer.set("lock", "other")
    [waiter] = queue_up(ahead, ["waiter"])
    ahead.clock.step(step)
    ahead.observer.delete("lock")
    assert waiter.answer() > 0


@BACK
def test_what_waited_for_the_end_of_a_pause_is_done_after_a_step_in_it(ahead, step):
    """A session ends in the pause, and its release is tried again until the pause is over."""
    client = ahead.observer
    holder = Waiting(ahead, "holder", options=["SESSION"])
    holder.answer()
    [waiter] = queue_up(ahead, ["waiter"])
    client.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
    holder.close()
    wait_until(lambda: not client.client_list(client_id=[str(holder.id)]), "its end")
    ahead.clock.step(step)
    assert not waiter.is_answered()
    client.execute_command("CLIENT", "UNPAUSE")
    assert waiter.answer() > 0


@BACK
def test_what_waited_for_replicas_is_done_after_a_step(ahead, step):
    client = ahead.observer
    Lock(client).acquire("me", LEASE_MS)
    [waiter] = queue_up(ahead, ["waiter"])
    client.config_set("min-replicas-to-write", 1)
    ahead.clock.advance(LEASE_S + 1)
    assert not waiter.is_answered()
    ahead.clock.step(step)
    client.config_set("min-replicas-to-write", 0)
    assert waiter.answer() > 0


@EVERY_STEP
def test_no_fence_goes_back(server, lock, step):
    before = lock.acquire("me")
    server.clock.step(step)
    assert lock.acquire("me") == before
    lock.release("me")
    fences = [before, lock.acquire("me"), Lock(lock.client, "other").acquire("me")]
    assert fences == sorted(set(fences))


@BACK
def test_a_clock_that_is_set_back_and_forth_lets_no_fence_go_back(server, lock, step):
    fences = []
    for i, seconds in enumerate([step, -step, step, -step]):
        fences.append(lock.acquire(f"token:{i}"))
        lock.release(f"token:{i}")
        server.clock.step(seconds)
    assert fences == sorted(set(fences))


def test_a_fence_may_still_be_asked_for_after_the_clock_was_set_back(server, lock):
    """Another server of the same Redlock gave a fence of the time that everybody else has."""
    server.clock.step(-30)
    n = time.time_ns() // 1000
    assert lock.acquire("me", 60_000, "FENCE", n) >= n


# -- a replica, before its promotion --------------------------------------------------------------


@pytest.fixture
def replica(server, start_replica):
    return start_replica(server)


def promote(server, replica):
    server.kill()
    replica.observer.execute_command("REPLICAOF", "NO", "ONE")


@EVERY_STEP
@pytest.mark.parametrize("whose", ["replica", "master"])
def test_a_promoted_replica_keeps_the_promise(server, lock, replica, step, whose):
    """Whoever's clock was set: the lease lasts for its length from the promotion on."""
    if whose == "master":
        server.clock.step(step)
    fence = lock.acquire("me", LEASE_MS)
    wait_until(lambda: fence_at(replica.observer) == fence, "the replica to follow")
    if whose == "replica":
        replica.clock.step(step)
    replica.clock.advance(LEASE_S - 60)
    promote(server, replica)
    there = Lock(replica.observer)
    assert there.acquire("you") is None
    assert Lock(replica.observer, "other").acquire("me") > fence
    [waiter] = queue_up(replica, ["waiter"])
    assert_served_when_the_lease_ends(waiter, replica)


@EVERY_STEP
def test_a_replica_whose_clock_is_set_follows_its_master(server, lock, replica, step):
    replica.clock.step(step)
    fence = lock.acquire("me", LEASE_MS)
    wait_until(lambda: fence_at(replica.observer) == fence, "the replica to follow")
    assert 0 < Lock(replica.observer).ttl() <= LEASE_MS
    server.clock.advance(LEASE_S + 1)
    wait_until(lambda: replica.observer.dbsize() == 0, "the end of the lease")
    assert lock.info() is None


# -- a restart ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--appendonly", "yes", "--appendfsync", "always")],
                         ids=["rdb", "aof"])
@EVERY_STEP
def test_a_restarted_server_keeps_the_promise_and_gives_no_fence_again(
        start_server, options, step):
    server = start_server(*options)
    fences = [Lock(server.observer, f"lock:{i}").acquire("me", LEASE_MS) for i in range(10)]
    if not options:
        server.observer.save()
    server.stop()
    server.clock.step(step)
    server.clock.advance(LEASE_S - 60)
    server.start()
    lock = Lock(server.observer, "lock:9")
    assert lock.acquire("you") is None
    assert Lock(server.observer, "next").acquire("me", LEASE_MS) > max(fences)
    [waiter] = queue_up(server, ["waiter"], key="lock:9")
    assert_served_when_the_lease_ends(waiter, server)
