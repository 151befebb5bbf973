"""WAIT: first come, first served, woken by whoever frees the lock."""

import threading

import pytest
import redis

from support.commands import Lock, stats
from support.crowd import parked
from support.server import wait_until
from support.turn import in_one_turn
from support.waiting import Waiting, assert_nobody_waits, queue_up, wait_for_waiters


# -- the queue ------------------------------------------------------------------------------------


def test_a_free_lock_is_granted_without_waiting(server, lock):
    waiter = Waiting(server, "me")
    assert waiter.answer() > 0
    assert_nobody_waits(lock.client)


def test_the_hand_over_happens_within_the_release(server, client):
    """Nobody sees the lock free in between, not even in the same transaction."""
    Lock(client).acquire("me")
    [first] = queue_up(server, ["first"])
    assert in_one_turn(client, ("DLOCK.RELEASE", "lock", "me"),
                       ("DLOCK.ACQUIRE", "lock", "thief", "PX", 1000),
                       ("EXISTS", "lock")) == [1, None, 1]
    assert first.answer() > 0


def test_waiters_are_served_in_the_order_they_came(server, lock):
    """A release makes the first waiter the holder."""
    fences = [lock.acquire("holder")]
    waiting = queue_up(server, [f"waiter:{i}" for i in range(20)])
    holder = "holder"
    for i, waiter in enumerate(waiting):
        assert lock.info()["waiters"] == 20 - i
        assert not waiter.is_answered()
        assert lock.release(holder) == 1
        fences.append(waiter.answer())
        holder = waiter.token
        assert lock.info()["token"] == holder.encode()
    assert fences == sorted(set(fences))
    assert_nobody_waits(lock.client)


def test_the_lease_of_a_waiter_starts_with_its_grant(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"], lease_ms=50_000)
    lock.release("me")
    waiter.answer()
    assert 40_000 < lock.ttl() <= 50_000
    assert lock.info()["lease"] == 50_000


def test_a_plain_acquire_never_overtakes(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    assert in_one_turn(lock.client, ("DEL", "lock"),
                       ("DLOCK.ACQUIRE", "lock", "thief", "PX", 1000)) == [1, None]
    assert waiter.answer() > 0


def test_waiters_of_other_names_and_databases_are_left_alone(server, lock):
    for db, key in ((0, "other"), (1, "lock"), (0, "lock")):
        Lock(server.client(db=db), key).acquire("me")
    [other_name] = queue_up(server, ["a"], key="other")
    [other_db] = queue_up(server, ["b"], db=1)
    [waiter] = queue_up(server, ["c"])
    lock.release("me")
    assert waiter.answer() > 0
    assert not other_name.is_answered() and not other_db.is_answered()


def test_the_holder_need_not_wait_for_itself(server, lock):
    fence = lock.acquire("me")
    assert Waiting(server, "me").answer() == fence


@pytest.mark.parametrize("most", [0, 2])
def test_the_queue_is_bounded(server, lock, most):
    lock.client.config_set("dlock.max-waiters", most)
    lock.acquire("me")
    waiting = queue_up(server, ["first", "second"][:most])
    with pytest.raises(redis.ResponseError, match="^QUEUEFULL.*dlock.max-waiters"):
        Waiting(server, "third").answer()
    assert lock.acquire("no-wait") is None
    assert (lock.info()["waiters"], stats(lock.client)["queue_full"]) == (most, 1)
    lock.release("me")
    if most:
        waiting[0].answer()
        queue_up(server, ["fourth"])


def test_waiters_leave_a_part_of_the_connections_to_others(start_server):
    """Otherwise nobody could connect any more, not even the holder that wants to release."""
    server = start_server("--maxclients", 40)
    client = server.client()
    Lock(client).acquire("me")
    Lock(client, "other").acquire("me")
    with parked(server, 29, key="lock"):
        queue_up(server, ["last"], key="other")
        for key in "lock", "other":
            with pytest.raises(redis.ResponseError, match="^QUEUEFULL.*maxclients"):
                Waiting(server, "one more", key=key).answer()
        assert stats(client)["queue_full"] == 2
        assert Lock(server.client(), "free").acquire("newcomer") > 0
        client.config_set("maxclients", 80)
        assert stats(client)["max_blocked"] == 60
        queue_up(server, ["one more"])


@pytest.mark.parametrize("words, message", [
    (("WAIT",), "WAIT needs a value"),
    (("WAIT", "0"), "WAIT must be an integer from 1 to 86400000 (one day)"),
    (("WAIT", "-1"), "WAIT must be an integer"),
    (("WAIT", "86400001"), "WAIT must be an integer"),
    (("WAIT", "1s"), "WAIT must be an integer"),
    (("WAIT", "1", "WAIT", "1"), "WAIT is given twice"),
    (("SESSION", "SESSION"), "SESSION is given twice"),
    (("SESSION", "yes"), "unknown option 'yes'"),
])
def test_a_wrong_option_is_named_and_nobody_waits(lock, words, message):
    lock.acquire("me")
    with pytest.raises(redis.ResponseError) as caught:
        lock.acquire("you", 1000, *words)
    assert message in str(caught.value)
    assert_nobody_waits(lock.client)


@pytest.mark.parametrize("words", [("WAIT", 1000, "SESSION"), ("session", "wait", 1000)])
def test_options_come_in_any_order(lock, words):
    assert lock.client.execute_command("DLOCK.ACQUIRE", "lock", "me", *words, "PX", 1000) > 0


# -- every way to become free ---------------------------------------------------------------------

ENDS = {
    "release": lambda c: c.execute_command("DLOCK.RELEASE", "lock", "me"),
    "del": lambda c: c.delete("lock"),
    "unlink": lambda c: c.unlink("lock"),
    "pexpire 0": lambda c: c.pexpire("lock", 0),
    "pexpire soon": lambda c: c.pexpire("lock", 20),
    "rename": lambda c: c.rename("lock", "elsewhere"),
    "move": lambda c: c.move("lock", 5),
    "flushdb": lambda c: c.execute_command("FLUSHDB", "SYNC"),
    "flushdb async": lambda c: c.execute_command("FLUSHDB", "ASYNC"),
    "flushall": lambda c: c.execute_command("FLUSHALL", "SYNC"),
    "flushall async": lambda c: c.execute_command("FLUSHALL", "ASYNC"),
    "swapdb": lambda c: c.swapdb(0, 5),
    "lua": lambda c: c.eval("return redis.call('del', 'lock')", 1, "lock"),
    "overwritten by a string that ends": lambda c: c.set("lock", "other", px=20),
    "overwritten by a string that is deleted": lambda c: (c.set("lock", "other"), c.delete("lock")),
    "getdel of a string over it": lambda c: (c.set("lock", "other"), c.getdel("lock")),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_however_the_lock_becomes_free_the_first_waiter_gets_it(server, lock, end):
    fence = lock.acquire("me", 600_000)
    first, second = queue_up(server, ["first", "second"])
    end(lock.client)
    assert first.answer() > fence
    assert lock.info()["token"] == b"first"
    assert not second.is_answered()
    lock.client.delete("lock")
    assert second.answer() > 0
    assert_nobody_waits(lock.client)


@pytest.mark.parametrize("ttl_ms", [None, 600_000])
@pytest.mark.parametrize("end", [
    ("DEL", "lock"), ("DLOCK.RELEASE", "lock", "other"), ("PEXPIRE", "lock", "15"),
    ("RENAME", "lock", "elsewhere"), ("MOVE", "lock", "5"), ("FLUSHALL",), ("SWAPDB", "0", "5"),
], ids=" ".join)
def test_however_a_string_lock_becomes_free_the_first_waiter_gets_it(server, lock, end, ttl_ms):
    lock.client.set("lock", "other", nx=True, px=ttl_ms)
    first, second = queue_up(server, ["first", "second"])
    assert lock.info()["waiters"] == 2
    assert not first.is_answered()
    lock.client.execute_command(*end)
    fence = first.answer()
    assert lock.info()["fence"] == fence
    assert not second.is_answered()


def test_an_eviction_wakes_the_first_waiter(server, lock):
    lock.acquire("me", 600_000)
    [waiter] = queue_up(server, ["waiter"])
    lock.client.config_set("maxmemory-policy", "allkeys-random")
    lock.client.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="OOM|maxmemory"):
        lock.client.set("filler", "x")
    lock.client.config_set("maxmemory", 0)
    assert waiter.answer() > 0


def test_a_lock_renamed_onto_the_awaited_name_is_waited_for(server, lock):
    lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    Lock(lock.client, "other").acquire("you", 60_000)
    lock.client.rename("other", "lock")
    assert not waiter.is_answered()
    assert lock.release("you") == 1
    assert waiter.answer() > 0


def test_a_key_of_another_type_sends_the_waiters_away(server, lock):
    lock.acquire("me")
    waiting = queue_up(server, ["first", "second"])
    in_one_turn(lock.client, ("DEL", "lock"), ("RPUSH", "lock", "x"))
    for waiter in waiting:
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            waiter.answer()
    assert_nobody_waits(lock.client)


# -- where nobody may block -----------------------------------------------------------------------


CALL = "return redis.call('DLOCK.ACQUIRE', 'lock', 'you', 'PX', 1000, 'WAIT', 60000)"
LIBRARY = f"#!lua name=t\nredis.register_function('take', function() {CALL} end)"


@pytest.mark.parametrize("commands", [
    [("DLOCK.ACQUIRE", "lock", "you", "PX", 1000, "WAIT", 60_000)],
    [("EVAL", CALL, 0)],
    [("FUNCTION", "LOAD", LIBRARY), ("FCALL", "take", 0)],
], ids=["transaction", "script", "function"])
def test_where_nobody_may_block_the_answer_is_immediate(client, commands):
    Lock(client).acquire("me")
    assert in_one_turn(client, *commands)[-1] is None
    assert_nobody_waits(client)


# -- what crosses the wire ------------------------------------------------------------------------


@pytest.mark.parametrize("end, before", [
    (lambda lock, clock: lock.release("me"), []), (lambda lock, clock: clock.advance(61), []),
    (lambda lock, clock: lock.client.delete("lock"), [[b"DEL", b"lock"]]),
], ids=["release", "lease", "del"])
def test_a_hand_over_is_replicated_as_one_state(server, stream, lock, clock, end, before):
    """Behind the DEL, if there was one."""
    lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    stream.take()
    end(lock, clock)
    fence = waiter.answer()
    assert stream.take() == [
        *before, [b"dlock.apply", b"lock", b"waiter", b"%d" % fence, b"600000"]]


def test_a_replica_follows_every_hand_over(server, start_replica):
    master = server.client()
    replica = start_replica(server).client()
    lock = Lock(master)
    for end in ENDS.values():
        lock.acquire("me", 600_000)
        [waiter] = queue_up(server, ["waiter"])
        end(master)
        assert waiter.answer() > 0
        waiter.close()
        assert master.wait(1, 10_000) == 1
        digests = [client.execute_command("DEBUG", "DIGEST") for client in (master, replica)]
        assert digests[0] == digests[1]
        assert Lock(replica).info()["token"] == b"waiter"
        master.flushall()


def test_events_tell_of_the_hand_over(server, lock, events):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    lock.release("me")
    waiter.answer()
    assert events.take() == ["acquire", "release", "handover"]


def test_waits_and_holds_are_counted_in_histograms(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    server.clock.advance(20)
    lock.release("me")
    waiter.answer()
    lock.release("waiter")
    counted = stats(lock.client)
    assert counted["handed_over"] == 1
    assert sum(counted["wait_us"].values()) == 1
    assert sum(counted["hold_us"].values()) == 2
    assert all(bound > 20_000_000 for bound in counted["wait_us"])


# -- many -----------------------------------------------------------------------------------------


def test_ten_thousand_waiters_are_all_answered_in_order(start_server):
    count = 10_000
    server = start_server("--maxclients", count * 4 // 3 + 100)
    lock = Lock(server.client())
    lock.acquire("holder")
    sockets = []
    for i in range(count):
        sockets.append(server.socket())
        sockets[-1].sendall(b"DLOCK.ACQUIRE lock t%d PX 60000 WAIT 600000\r\n" % i)
        if i % 500 == 0:
            wait_for_waiters(lock.client, i + 1)
    wait_for_waiters(lock.client, count)
    assert lock.release("holder") == 1
    last = 0
    for i, bare in enumerate(sockets):
        reply = bare.recv(100)
        assert reply.startswith(b":"), (i, reply)
        assert int(reply[1:]) > last
        last = int(reply[1:])
        bare.sendall(b"DLOCK.RELEASE lock t%d\r\n" % i)
    assert lock.client.ping()
    wait_until(lambda: lock.info() is None, "the last release")
    assert stats(lock.client)["handed_over"] == count
    assert_nobody_waits(lock.client)
    for bare in sockets:
        bare.close()


def test_many_threads_share_one_lock_without_overlap(server):
    inside, most, done = [0], [0], []

    def work(name):
        lock = Lock(server.connect())
        for i in range(50):
            token = f"{name}:{i}"
            fence = lock.acquire(token, 30_000, "WAIT", 60_000)
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            done.append(fence)
            inside[0] -= 1
            assert lock.release(token) == 1
        lock.client.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 1
    assert len(done) == 400 and done == sorted(set(done))
