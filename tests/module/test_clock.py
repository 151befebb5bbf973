"""Somebody sets the wall clock of a server, by a minute or by a year: no lease is shorter than
promised, nobody waits longer for it, and no fence goes back."""

import itertools
import time

import pytest

from support.commands import Lock, fence_at
from support.server import wait_until
from support.turn import BriefHolder
from support.waiting import Waiting, queue_up, wait_for_waiters
from support.wall_clock import WallClock, build

HOUR = 3600
STEPS = {"a minute ahead": 60, "an hour ahead": HOUR, "400 days ahead": 400 * 24 * HOUR,
         "an hour back": -HOUR}
EVERY_STEP = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
BACK = pytest.mark.parametrize("step", [-20, -HOUR], ids=["20 seconds back", "an hour back"])
LATE_S = 0.1  # how late the server may be
BUSY_S = 2.0  # what a busy machine adds to that
LEASE_MS = 600
LEASE_S = LEASE_MS / 1000


@pytest.fixture(scope="session")
def clock_library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wall-clock"))


@pytest.fixture
def start_clocked(start_server, clock_library, tmp_path):
    """start_clocked(*options): a server whose wall_clock can be set."""
    numbers = itertools.count()

    def start(*options):
        clock = WallClock(clock_library, tmp_path / f"offset-{next(numbers)}")
        return start_server(*options, wall_clock=clock)

    return start


@pytest.fixture
def server(start_clocked):
    return start_clocked()


def set_clock(server, seconds):
    """The server has noticed it when this returns."""
    server.wall_clock.step(seconds)
    ahead = server.wall_clock.ahead_s
    wait_until(lambda: abs(server.observer.time()[0] - time.time() - ahead) < 5, "the new time")


def assert_on_time(begin, due_s):
    took_s = time.monotonic() - begin
    assert took_s >= due_s, f"{due_s - took_s:.3f} s too early"
    assert took_s < due_s + LATE_S + BUSY_S, f"{took_s - due_s:.3f} s too late"


def test_the_clock_of_a_server_can_be_set(server):
    set_clock(server, HOUR)
    assert abs(server.observer.time()[0] - time.time() - HOUR) < 5
    set_clock(server, -2 * HOUR)
    assert abs(server.observer.time()[0] - time.time() + HOUR) < 5


# -- a master -------------------------------------------------------------------------------------


@EVERY_STEP
def test_a_lease_is_as_long_as_promised(server, lock, step):
    begin = time.monotonic()
    lock.acquire("me", LEASE_MS)
    set_clock(server, step)
    assert 0 < lock.ttl() <= LEASE_MS
    wait_until(lambda: lock.client.exists("lock") == 0, "the lease to end")
    assert_on_time(begin, LEASE_S)


@EVERY_STEP
def test_a_waiter_gets_the_lock_when_the_lease_ends(server, lock, step):
    brief = BriefHolder(server, LEASE_MS)
    [waiter] = queue_up(server, ["waiter"])
    begin = time.monotonic()
    brief.hold(lock.client)
    set_clock(server, step)
    assert waiter.answer() > 0
    assert_on_time(begin, LEASE_S)


@EVERY_STEP
def test_a_waiter_that_comes_after_the_step_gets_the_lock_when_the_lease_ends(server, lock, step):
    begin = time.monotonic()
    lock.acquire("me", LEASE_MS)
    set_clock(server, step)
    assert Waiting(server, "waiter").answer() > 0
    assert_on_time(begin, LEASE_S)


@EVERY_STEP
def test_a_wait_ends_on_time(server, lock, step):
    lock.acquire("me", 600_000)
    waiter = Waiting(server, "waiter", wait_ms=LEASE_MS)
    wait_for_waiters(lock.client, 1)
    set_clock(server, step)
    assert waiter.answer() is None
    assert_on_time(waiter.sent_at, LEASE_S)


@EVERY_STEP
def test_an_extension_before_the_step_counts_after_it(server, lock, step):
    lock.acquire("me", LEASE_MS)
    [waiter] = queue_up(server, ["waiter"])
    begin = time.monotonic()
    lock.extend("me", 2 * LEASE_MS)
    set_clock(server, step)
    waiter.answer()
    assert_on_time(begin, 2 * LEASE_S)


@EVERY_STEP
def test_a_release_after_the_step_serves_the_waiter(server, lock, step):
    lock.acquire("me", 600_000)
    [waiter] = queue_up(server, ["waiter"])
    set_clock(server, step)
    begin = time.monotonic()
    lock.release("me")
    waiter.answer()
    assert_on_time(begin, 0)


@EVERY_STEP
@pytest.mark.parametrize("end", [
    lambda c: c.delete("lock"), lambda c: c.flushall(), lambda c: c.pexpire("lock", 0),
], ids=["del", "flushall", "pexpire"])
def test_a_lock_that_is_forced_open_after_the_step_serves_the_waiter(server, lock, step, end):
    lock.acquire("me", 600_000)
    [waiter] = queue_up(server, ["waiter"])
    set_clock(server, step)
    begin = time.monotonic()
    end(lock.client)
    waiter.answer()
    assert_on_time(begin, 0)


@EVERY_STEP
def test_a_session_that_ends_after_the_step_serves_the_waiter(server, lock, step):
    holder = Waiting(server, "holder", options=["SESSION"])
    holder.answer()
    [waiter] = queue_up(server, ["waiter"])
    set_clock(server, step)
    begin = time.monotonic()
    holder.close()
    waiter.answer()
    assert_on_time(begin, 0)


@EVERY_STEP
def test_a_waiter_for_a_string_is_served_after_the_step(server, lock, step):
    lock.client.set("lock", "other")
    [waiter] = queue_up(server, ["waiter"])
    set_clock(server, step)
    begin = time.monotonic()
    lock.client.delete("lock")
    waiter.answer()
    assert_on_time(begin, 0)


@BACK
def test_what_waited_for_the_end_of_a_pause_is_done_after_a_step_in_it(server, lock, step):
    """A session ends in the pause, and its release is tried again until the pause is over."""
    lock.acquire("me", 600_000)
    [waiter] = queue_up(server, ["waiter"])
    holder = Waiting(server, "holder", key="session", options=["SESSION"])
    holder.answer()
    lock.client.execute_command("CLIENT", "PAUSE", 20_000, "WRITE")
    holder.close()
    wait_until(lambda: not lock.client.client_list(client_id=[str(holder.id)]), "its end")
    set_clock(server, step)
    lock.client.execute_command("CLIENT", "UNPAUSE")
    begin = time.monotonic()
    lock.client.delete("lock")
    waiter.answer()
    assert_on_time(begin, 0)
    wait_until(lambda: Lock(lock.client, "session").info() is None, "the session to end")
    assert_on_time(begin, 0)


@BACK
def test_what_waited_for_replicas_is_done_after_a_step(server, lock, step):
    brief = BriefHolder(server, 300)
    [waiter] = queue_up(server, ["waiter"])
    brief.hold(lock.client)
    lock.client.config_set("min-replicas-to-write", 1)
    assert not waiter.is_answered(0.5)
    set_clock(server, step)
    begin = time.monotonic()
    lock.client.config_set("min-replicas-to-write", 0)
    waiter.answer()
    assert_on_time(begin, 0)


@EVERY_STEP
def test_many_leases_end_after_a_step_as_they_would_without(server, client, step):
    leases = [200, 300, 400, 500, 600]
    begins = {}
    for lease_ms in leases:
        begins[lease_ms] = time.monotonic()
        Lock(client, f"lock:{lease_ms}").acquire("me", lease_ms)
    set_clock(server, step)
    for lease_ms in leases:
        wait_until(lambda: client.exists(f"lock:{lease_ms}") == 0, "the lease to end")
        assert_on_time(begins[lease_ms], lease_ms / 1000)


@EVERY_STEP
def test_no_fence_goes_back(server, lock, step):
    before = lock.acquire("me")
    set_clock(server, step)
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
        set_clock(server, seconds)
    assert fences == sorted(set(fences))


def test_a_fence_may_still_be_asked_for_after_the_clock_was_set_back(server, lock):
    """Another server of the same Redlock gave a fence of the time that everybody else has."""
    set_clock(server, -30)
    n = time.time_ns() // 1000
    assert lock.acquire("me", 60_000, "FENCE", n) >= n


# -- a replica, before its promotion --------------------------------------------------------------


@pytest.fixture
def replica(server, start_clocked):
    """Of a server and with a clock of its own; in sync."""
    replica = start_clocked("--replicaof", "127.0.0.1", server.port)
    wait_until(lambda: replica.observer.info("replication")["master_link_status"] == "up", "a sync")
    server.observer.set("begin", 1)
    server.observer.delete("begin")
    assert server.observer.wait(1, 20_000) == 1
    return replica


def promote(server, replica):
    server.kill()
    replica.observer.execute_command("REPLICAOF", "NO", "ONE")


@EVERY_STEP
def test_a_promoted_replica_keeps_the_promise(server, lock, replica, step):
    fence = lock.acquire("me", LEASE_MS)
    wait_until(lambda: fence_at(replica.observer) == fence, "the replica to follow")
    set_clock(replica, step)
    begin = time.monotonic()
    promote(server, replica)
    assert Lock(replica.observer).acquire("you") is None
    assert Waiting(replica, "waiter").answer() > fence
    assert_on_time(begin, LEASE_S)


@EVERY_STEP
def test_a_replica_whose_clock_is_set_follows_its_master(server, lock, replica, step):
    set_clock(replica, step)
    fence = lock.acquire("me", LEASE_MS)
    wait_until(lambda: fence_at(replica.observer) == fence, "the replica to follow")
    assert 0 < Lock(replica.observer).ttl() <= LEASE_MS
    wait_until(lambda: replica.observer.dbsize() == 0, "the end of the lease")
    assert lock.info() is None


@EVERY_STEP
def test_a_master_whose_clock_is_set_does_not_mislead_its_replica(server, lock, replica, step):
    set_clock(server, step)
    fence = lock.acquire("me", LEASE_MS)
    wait_until(lambda: fence_at(replica.observer) == fence, "the replica to follow")
    begin = time.monotonic()
    promote(server, replica)
    assert Waiting(replica, "waiter").answer() > fence
    assert_on_time(begin, LEASE_S)


@EVERY_STEP
def test_a_promoted_replica_gives_no_fence_again(server, lock, replica, step):
    fence = lock.acquire("me", 60_000)
    wait_until(lambda: fence_at(replica.observer) == fence, "the replica to follow")
    set_clock(replica, step)
    promote(server, replica)
    assert Lock(replica.observer, "other").acquire("me") > fence


# -- a restart ------------------------------------------------------------------------------------

AOF = ("--appendonly", "yes", "--appendfsync", "always")
FILES = pytest.mark.parametrize("options", [(), AOF], ids=["rdb", "aof"])


def restart(server, step):
    """When it began, and when the server was there again, on the monotonic clock."""
    if not server.options:
        server.client().save()
    server.stop()
    server.wall_clock.step(step)
    begin = time.monotonic()
    server.start()
    return begin, time.monotonic()


@FILES
@EVERY_STEP
def test_a_restarted_server_keeps_the_promise(start_clocked, options, step):
    server = start_clocked(*options)
    fence = Lock(server.client()).acquire("me", 1_500)
    begin, ready = restart(server, step)
    assert Lock(server.client()).acquire("you") is None
    assert Waiting(server, "waiter").answer() > fence
    assert time.monotonic() - begin >= 1.5, "too early"
    assert time.monotonic() - ready < 1.5 + LATE_S + BUSY_S, "too late"


@FILES
@EVERY_STEP
def test_a_restarted_server_gives_no_fence_again(start_clocked, options, step):
    server = start_clocked(*options)
    fences = [Lock(server.client(), f"lock:{i}").acquire("me", 600_000) for i in range(10)]
    restart(server, step)
    assert Lock(server.client(), "next").acquire("me") > max(fences)


# -- how late -------------------------------------------------------------------------------------


@pytest.mark.alone
@EVERY_STEP
def test_nobody_waits_100_ms_longer_than_without_the_step(server, lock, step):
    """In the median of some, on a machine that may be busy."""
    late_s = []
    for i in range(5):
        brief = BriefHolder(server, 300)
        [patient] = queue_up(server, ["patient"])
        granted_at = time.monotonic()
        brief.hold(lock.client)
        hasty = Waiting(server, "hasty", wait_ms=200)
        set_clock(server, step if i % 2 == 0 else -step)
        hasty.answer()
        late_s.append(time.monotonic() - hasty.sent_at - 0.2)
        patient.answer()
        late_s.append(time.monotonic() - granted_at - 0.3)
        lock.client.delete("lock")
    assert min(late_s) >= 0
    assert sorted(late_s)[len(late_s) // 2] < LATE_S
