"""The fence: every grant has a higher one than all before, whatever clients, restarts and failovers
do."""

import re
import time

import pytest
import redis

from support.commands import Lock, stats
from support.files import FILES
from support.server import free_port, wait_until
from support.session import Session
from support.shared import SharedServer
from support.waiting import Waiting, assert_nobody_waits, let_turn, queue_up


@pytest.fixture(scope="module")
def shared_server():
    """Of this file alone: no other test has advanced its clock, which its fences follow."""
    shared = SharedServer()
    yield shared
    shared.destroy()


MINUTE = 60
NEAR_THE_BOUND = 4 * MINUTE  # seconds; what is more than five minutes ahead is refused
LUA_EXACT = 2**53


def ahead_us(seconds):
    """A fence that the clock reaches in so many seconds."""
    return time.time_ns() // 1000 + seconds * 1_000_000


def test_a_fence_is_above_every_earlier_one_and_the_time(client):
    fences = []
    for i in range(200):
        lock = Lock(client, f"lock:{i % 3}")
        before_us = time.time_ns() // 1000
        fences.append(lock.acquire(f"token:{i}"))
        assert fences[-1] >= before_us
        if i % 2:
            lock.release(f"token:{i}")
        else:
            client.delete(lock.key)
    assert fences == sorted(set(fences))


def test_a_burst_within_one_microsecond_still_gets_distinct_fences(client):
    script = """
        local fences = {}
        for i = 1, 2000 do
            fences[i] = redis.call('DLOCK.ACQUIRE', KEYS[1], 'me', 'PX', 1000)
            redis.call('DLOCK.RELEASE', KEYS[1], 'me')
        end
        return fences"""
    fences = client.eval(script, 1, "lock")
    assert all(a < b for a, b in zip(fences, fences[1:]))


# -- FENCE n --------------------------------------------------------------------------------------


def test_a_fence_may_be_asked_to_be_larger(lock):
    n = ahead_us(60)
    assert lock.acquire("me", 10_000, "FENCE", n) == n
    assert lock.info()["fence"] == n


def test_a_larger_fence_counts_for_every_later_grant(client):
    n = ahead_us(60)
    Lock(client, "a").acquire("me", 10_000, "FENCE", n)
    above = Lock(client, "b").acquire("me")
    assert n < above < Lock(client, "c").acquire("me", 10_000, "FENCE", n) < n + 10_000_000


def test_a_smaller_fence_than_the_next_one_changes_nothing(lock):
    before_us = time.time_ns() // 1000
    assert lock.acquire("me", 10_000, "FENCE", 1) >= before_us


def test_the_holders_fence_is_lifted_when_it_asks_for_more(lock):
    first = lock.acquire("me")
    n = ahead_us(60)
    assert lock.acquire("me", 10_000, "FENCE", n) == n
    assert lock.info()["fence"] == n > first
    assert lock.acquire("me") == n
    assert lock.acquire("me", 10_000, "FENCE", n) == n
    assert lock.release("me") == 1


def test_a_lifted_fence_is_nobody_elses(client):
    """Grants are known by their fence: a number that another lock may have is not given again."""
    lock = Lock(client, "a")
    lock.acquire("me")
    n = Lock(client, "b").acquire("me", 10_000, "FENCE", ahead_us(60))
    assert lock.acquire("me", 10_000, "FENCE", n) > n


@pytest.mark.parametrize("lease_ms", [1000, 600_000], ids=["shorter", "longer"])
def test_lifting_the_fence_never_shortens_the_lease(lock, lease_ms):
    lock.acquire("me", 60_000)
    lock.acquire("me", lease_ms, "FENCE", ahead_us(60))
    longer_ms = max(lease_ms, 60_000)
    assert longer_ms - 10_000 < lock.ttl() <= longer_ms


@pytest.mark.parametrize("words, error", [
    (("FENCE",), "FENCE needs a value"),
    (("FENCE", 5, "FENCE", 6), "FENCE is given twice"),
    *((("FENCE", wrong), "FENCE must be an integer")
      for wrong in ("0", "-1", "x", "", "1.5", 2**63, "9" * 30)),
    (("FENCES",), "FENCES needs a value"),
    (("FENCES", 5, "FENCES", 6), "FENCES is given twice"),
    *((("FENCES", wrong), "FENCES must be an integer from 1 to 10000")
      for wrong in ("0", "-1", "x", "", "1.5", 10_001, 2**63))])
def test_a_wrong_fence_or_run_is_refused(lock, words, error):
    with pytest.raises(redis.ResponseError, match=re.escape(error)):
        lock.acquire("me", 10_000, *words)
    assert lock.info() is None


def test_a_stranger_lifts_nothing(lock):
    fence = lock.acquire("me")
    assert lock.acquire("you", 10_000, "FENCE", ahead_us(60)) is None
    assert lock.info()["fence"] == fence
    assert stats(lock.client)["last_fence"] == fence


# -- FENCES n -------------------------------------------------------------------------------------

RUN = 1000


def test_a_run_of_fences_is_given_to_nobody_else(client):
    first = Lock(client, "hot").acquire("me", 60_000, "FENCES", RUN)
    others = [Lock(client, f"other:{i}").acquire("me", 60_000) for i in range(10)]
    second = Lock(client, "also hot").acquire("me", 60_000, "FENCES", RUN)
    assert first + RUN <= others[0]
    assert others == sorted(set(others))
    assert others[-1] < second
    assert Lock(client, "last").acquire("me") >= second + RUN


@pytest.mark.parametrize("run", [1, RUN])
def test_the_lock_has_the_last_fence_of_its_run(lock, run):
    """So whoever takes the lock over knows that all of them are used up. The holder gets a new run
    with each request for one."""
    first = lock.acquire("me", 60_000, "FENCES", run)
    assert lock.info()["fence"] == lock.acquire("me", 60_000) == first + run - 1
    again = lock.acquire("me", 60_000, "FENCES", run)
    assert again >= first + run
    assert lock.info()["fence"] == again + run - 1


def test_a_run_begins_at_least_at_the_fence_that_was_asked_for(lock):
    n = ahead_us(60)
    assert lock.acquire("me", 60_000, "FENCES", RUN, "FENCE", n) == n
    assert lock.info()["fence"] == n + RUN - 1


@pytest.mark.parametrize("is_session", [False, True], ids=["a client", "a session"])
def test_a_waiter_is_told_the_first_fence_of_its_run(server, session, lock, is_session):
    lock.acquire("me")
    if is_session:
        session.wait("waiter", "FENCES", RUN)
    else:
        [waiter] = queue_up(server, ["waiter"], options=["FENCES", RUN])
    lock.release("me")
    fence = session.event()[3] if is_session else waiter.answer()
    assert fence == lock.info()["fence"] - RUN + 1


def test_runs_cannot_push_the_fences_of_others_far_ahead(start_server):
    """Each run is short, and there may be many of them; but not for ever."""
    server = start_server()
    client = server.observer
    script = """
        for i = 1, 100000 do
            local r = redis.pcall('DLOCK.ACQUIRE', KEYS[1], 'me', 'PX', 60000, 'FENCES', 10000)
            if type(r) == 'table' then return r.err end
        end"""
    assert b"too many fences" in client.eval(script, 1, "hot")
    assert stats(client)["last_fence"] < ahead_us(6 * MINUTE)
    assert Lock(client).acquire("me") > stats(client)["last_fence"] - 10
    server.clock.advance(MINUTE)
    assert Lock(client).acquire("me", 60_000, "FENCES", 10_000) > 0


def test_runs_that_wait_cannot_push_them_either(start_server):
    server = start_server()
    client = server.observer
    session = "s" * 16
    client.execute_command("DLOCK.SESSION", session, "PX", 600_000)
    script = """
        redis.call('DLOCK.ACQUIRE', KEYS[1], 'w0', 'PX', 60000)
        for i = 1, 100000 do
            local r = redis.pcall('DLOCK.ACQUIRE', KEYS[1], 'w' .. i, 'PX', 60000,
                                  'WAIT', 60000, 'VIA', ARGV[1], 'FENCES', 10000)
            if r.err then
                for j = 0, i do redis.call('DLOCK.RELEASE', KEYS[1], 'w' .. j) end
                return {i, r.err}
            end
        end"""
    for _ in range(3):
        count, refusal = client.eval(script, 1, "hot", session)
        assert count > 1000 and b"too many fences" in refusal
        assert stats(client)["last_fence"] < ahead_us(MINUTE)
        client.execute_command("DLOCK.SESSION", session, "END")
        client.execute_command("DLOCK.SESSION", session, "PX", 600_000)


def test_grants_that_are_taken_back_cannot_push_them_either(start_server):
    """A session that goes away before it has read its grants waits again, for a new run; but not
    once too many are used up."""
    server = start_server()
    client = server.observer
    session = Session(server, 600_000)
    keys = [f"lock:{i}" for i in range(900)]
    for key in keys:
        Lock(client, key).acquire("me", 600_000)
        session.wait("waiter", "FENCES", 10_000, key=key)
    for key in keys:
        Lock(client, key).release("me")
    refused = []
    while not refused:
        session.go_away()
        session.connect()
        session.send()
        _, events = session.connection.read_response()
        refused = [event for event in events if event[1] == b"ended"]
        let_turn(server)
        assert stats(client)["last_fence"] < ahead_us(6 * MINUTE)
    assert all(b"too many fences" in event[-1] for event in refused)


# -- nobody can poison the counter ----------------------------------------------------------------

FAR = {
    "six minutes": lambda: ahead_us(6 * MINUTE), "an hour": lambda: ahead_us(60 * MINUTE),
    "two centuries": lambda: ahead_us(200 * 365 * 24 * 3600),
    **{f"2^{bits} - {less}": lambda bits=bits, less=less: 2**bits - less
       for bits, less in ((53, 0), (54, 0), (61, 1), (62, 1), (63, 1))}}


def assert_refused(call):
    with pytest.raises(redis.ResponseError, match="FENCE") as caught:
        call()
    assert "WRONGTYPE" not in str(caught.value)


@pytest.mark.parametrize("far", FAR.values(), ids=FAR.keys())
def test_a_fence_far_ahead_of_the_clock_is_refused_and_changes_nothing(server, client, far):
    """Neither for the holder nor for who does not hold the lock, and who would wait does not."""
    fence = far()
    held, free = Lock(client), Lock(client, "free")
    before = held.acquire("me", 10_000)
    for call in (lambda: held.acquire("me", 600_000, "FENCE", fence),
                 lambda: free.acquire("me", 10_000, "FENCE", fence),
                 Waiting(server, "waiter", options=["FENCE", fence]).answer):
        assert_refused(call)
    assert (held.info()["fence"], free.info()) == (before, None)
    assert held.ttl() <= 10_000
    assert_nobody_waits(client)
    assert stats(client)["last_fence"] == before
    assert before_long(free.acquire("me"))


def before_long(fence):
    """A fence of this clock, and one that Lua and JavaScript numbers hold exactly."""
    return ahead_us(-MINUTE) < fence < ahead_us(MINUTE) < LUA_EXACT


def test_a_fence_near_the_bound_is_accepted(lock):
    n = ahead_us(NEAR_THE_BOUND)
    assert lock.acquire("me", 10_000, "FENCE", n) == n


def test_a_client_cannot_creep_ahead_step_by_step(client):
    Lock(client, "a").acquire("me", 10_000, "FENCE", ahead_us(NEAR_THE_BOUND))
    for seconds in (6 * MINUTE, 8 * MINUTE):
        assert_refused(lambda: Lock(client, "b").acquire("me", 10_000, "FENCE", ahead_us(seconds)))
    assert stats(client)["last_fence"] < ahead_us(5 * MINUTE)


def test_who_may_use_one_key_cannot_ruin_the_fences_of_others(server, client):
    client.execute_command("ACL", "SETUSER", "mallory", "on", "nopass", "~mallory:*",
                           "+dlock.acquire")
    mallory = Lock(server.client(username="mallory", password="x"), "mallory:1")
    assert_refused(lambda: mallory.acquire("me", 1000, "FENCE", 2**61 - 1))
    assert before_long(Lock(client).acquire("me"))


# -- restarts and failovers -----------------------------------------------------------------------


def run_ahead(client):
    """The counter of the server is minutes ahead of its clock; one lock stays held."""
    return Lock(client, "held").acquire("holder", 600_000, "FENCE", ahead_us(NEAR_THE_BOUND))


def grant_some(client, token, count=50):
    return [Lock(client, f"{token}:{i}").acquire(token, 600_000) for i in range(count)]


def assert_above(fences, earlier):
    assert min(fences) > max(earlier), "a fence that was given before, or went back"
    assert fences == sorted(set(fences))


IS_AHEAD = pytest.mark.parametrize("is_ahead", [False, True], ids=["by the clock", "counter ahead"])


@IS_AHEAD
@FILES
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_goes_on_above_all(start_server, options, prepare, end, is_ahead):
    """Also above what the file does not have, and when no lock is held at the end."""
    server = start_server(*options)
    earlier = [run_ahead(server.client())] if is_ahead else []
    for token in "held", "free":
        earlier += grant_some(server.client(), token)
        if token == "free":
            server.client().flushall()
        prepare(server.client())
        earlier += grant_some(server.client(), "lost")
        getattr(server, end)()
        server.start()
        earlier_highest = max(earlier)
        earlier = grant_some(server.client(), "next")
        assert_above(earlier, [earlier_highest])


def test_restarts_that_follow_each_other_go_on_above_all(start_server):
    server = start_server()
    earlier = [run_ahead(server.client())]
    for i in range(3):
        server.client().save()
        lost = grant_some(server.client(), f"lost:{i}")
        assert_above(lost, earlier)
        earlier += lost
        server.kill()
        server.start()
    assert_above(grant_some(server.client(), "next"), earlier)


def test_restarts_do_not_carry_the_counter_away_from_the_clock(start_server):
    """However often: a server that comes back stays within some minutes of its clock."""
    server = start_server()
    run_ahead(server.client())
    for _ in range(5):
        server.client().save()
        server.restart()
        Lock(server.client()).acquire("me")
        server.client().delete("lock")
    assert stats(server.client())["last_fence"] < ahead_us(60 * MINUTE)


@IS_AHEAD
def test_what_a_failover_loses_is_not_given_again(server, start_replica, is_ahead):
    """The replica has lost its link, and the master goes on for a while."""
    replica = start_replica(server).client()
    earlier = [run_ahead(server.client()) if is_ahead else
               Lock(server.client(), "held").acquire("holder", 600_000)]
    wait_until(lambda: Lock(replica, "held").info(), "the replica to follow")
    replica.execute_command("REPLICAOF", "127.0.0.1", free_port())
    earlier += grant_some(server.client(), "lost")
    server.kill()
    replica.execute_command("REPLICAOF", "NO", "ONE")
    assert_above(grant_some(replica, "next"), earlier)


def test_a_promoted_replica_hands_over_above_all(server, start_replica):
    replica = start_replica(server)
    earlier = [run_ahead(server.client()), *grant_some(server.client(), "before")]
    there = replica.client()
    wait_until(lambda: stats(there)["last_fence"] == max(earlier), "the replica to follow")
    server.kill()
    there.execute_command("REPLICAOF", "NO", "ONE")
    [waiter] = queue_up(replica, ["waiter"], key="held")
    Lock(there, "held").release("holder")
    assert waiter.answer() > max(earlier)
