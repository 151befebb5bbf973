"""A lease is kept by the module, on a clock that nobody can set: the key has no TTL. Whoever takes
a lock over starts its lease anew."""

import time

import pytest

from support.commands import Lock, stats
from support.server import free_port, wait_until
from support.turn import Bare
from support.waiting import Waiting, queue_up

BUSY_S = 5.0  # what a busy machine may add to "milliseconds later"
AOF = ("--appendonly", "yes", "--appendfsync", "always")


def ended_within(begin, lease_ms):
    """Not before the lease is over, and not much later."""
    took_s = time.monotonic() - begin
    assert lease_ms / 1000 <= took_s < lease_ms / 1000 + BUSY_S, f"after {took_s:.3f} s"
    return True


# -- where the lease is seen ----------------------------------------------------------------------


def test_the_key_of_a_lock_has_no_ttl(lock):
    lock.acquire("me", 50_000)
    assert lock.client.ttl("lock") == lock.client.pttl("lock") == -1
    assert lock.client.execute_command("PEXPIRETIME", "lock") == -1


def test_info_tells_how_much_of_the_lease_is_left(lock):
    begin = time.monotonic()
    lock.acquire("me", 50_000)
    time.sleep(0.05)
    ttl = lock.ttl()
    took_ms = (time.monotonic() - begin) * 1000
    assert 50_000 - took_ms - 1 <= ttl <= 50_000 - 49


def test_an_extension_gives_the_key_no_ttl(lock):
    lock.acquire("me", 10_000)
    lock.extend("me", 50_000)
    lock.acquire("me", 60_000)
    assert lock.client.pttl("lock") == -1


def test_a_hand_over_gives_the_key_no_ttl(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"], lease_ms=50_000)
    lock.release("me")
    waiter.answer()
    assert lock.client.pttl("lock") == -1
    assert 40_000 < lock.ttl() <= 50_000


# -- the end of a lease ---------------------------------------------------------------------------


def test_a_lease_that_ended_is_never_seen_as_held(server):
    """The server was busy when it ended, and has had no time to remove the key."""
    bare = Bare(server)
    for command, answer in (("DLOCK.INFO {key}", b"$-1"), ("DLOCK.RELEASE {key} me", b":0"),
                            ("DLOCK.EXTEND {key} me PX 1000", b":0")):
        key = command.split()[0]
        bare.send(f"DLOCK.ACQUIRE {key} me PX 50", "DEBUG SLEEP 0.1", command.format(key=key))
        fence, _, reply = bare.read(3)
        assert fence.startswith(b":")
        assert reply in (answer, b"*-1"), command


@pytest.mark.parametrize("token", ["me", "you"])
def test_a_lease_that_ended_is_followed_by_a_new_grant(server, token):
    bare = Bare(server)
    bare.send("DLOCK.ACQUIRE lock me PX 50", "DEBUG SLEEP 0.1",
              f"DLOCK.ACQUIRE lock {token} PX 60000")
    first, _, second = bare.read(3)
    assert int(second[1:]) > int(first[1:])


def test_the_key_is_removed_when_the_lease_ends(lock):
    begin = time.monotonic()
    lock.acquire("me", 200)
    assert lock.client.exists("lock") == 1
    wait_until(lambda: lock.client.exists("lock") == 0, "the key to be removed")
    assert ended_within(begin, 200)


def test_set_nx_of_another_client_succeeds_when_the_lease_ends(lock):
    begin = time.monotonic()
    lock.acquire("me", 200)
    wait_until(lambda: lock.client.set("lock", "other", nx=True, px=1000), "SET NX")
    assert ended_within(begin, 200)


def test_a_waiter_gets_the_lock_when_the_lease_ends(server, lock):
    begin = time.monotonic()
    fence = lock.acquire("me", 500)
    first, second = queue_up(server, ["first", "second"])
    assert first.answer() > fence
    assert ended_within(begin, 500)
    assert not second.is_answered(0.05)


def test_an_extended_lease_ends_when_the_extension_does(server, lock):
    lock.acquire("me", 200)
    begin = time.monotonic()
    lock.extend("me", 700)
    [waiter] = queue_up(server, ["waiter"])
    waiter.answer()
    assert ended_within(begin, 700)


def test_a_lease_that_was_extended_while_awaited_ends_later(server, lock):
    lock.acquire("me", 1000)
    [waiter] = queue_up(server, ["waiter"])
    begin = time.monotonic()
    lock.extend("me", 1500)
    waiter.answer()
    assert ended_within(begin, 1500)


def test_leases_end_in_their_order_whichever_was_granted_first(client):
    leases = [500, 100, 400, 200, 300]
    together = client.pipeline()
    for lease_ms in leases:
        together.execute_command("DLOCK.ACQUIRE", f"lock:{lease_ms}", "me", "PX", lease_ms)
    together.execute()
    seen = []

    def look():
        left = {int(key[5:]) for key in client.keys("lock:*")}
        seen.append(left)
        return not left
    wait_until(look, "all leases to end")
    assert all(min(left) > max(set(leases) - left, default=0) for left in seen if left)


def test_a_released_lock_is_not_ended_again_by_its_old_lease(lock):
    lock.acquire("me", 150)
    lock.release("me")
    fence = lock.acquire("me", 60_000)
    time.sleep(0.3)  # not for luck: the first lease would have ended
    assert lock.info()["fence"] == fence


@pytest.mark.parametrize("end", [
    lambda c: c.delete("lock"), lambda c: c.flushall(), lambda c: c.set("lock", "other"),
    lambda c: c.execute_command("FLUSHALL", "ASYNC"), lambda c: c.rename("lock", "elsewhere"),
    lambda c: c.swapdb(0, 5),
], ids=["del", "flushall", "set", "flushall async", "rename", "swapdb"])
def test_a_lock_that_ended_otherwise_is_not_ended_again_by_its_old_lease(lock, end):
    lock.acquire("me", 150)
    end(lock.client)
    lock.client.delete("lock")
    fence = lock.acquire("me", 60_000)
    time.sleep(0.3)  # not for luck: the first lease would have ended
    assert lock.info()["fence"] == fence


def test_the_end_of_a_lease_is_counted_and_told(server, lock):
    lock.client.config_set("notify-keyspace-events", "Kd")
    events = server.client().pubsub()
    events.psubscribe("__keyspace@0__:lock")
    assert events.get_message(timeout=10)["type"] == "psubscribe"
    lock.acquire("me", 50)
    wait_until(lambda: stats(lock.client)["expired"] == 1, "the lease to end")
    got = [events.get_message(timeout=10)["data"] for _ in range(2)]
    assert got == [b"dlock.acquire", b"dlock.expire"]
    assert stats(lock.client)["forced"] == 0


def test_the_end_of_an_awaited_lease_is_counted_and_told(server, lock):
    lock.client.config_set("notify-keyspace-events", "Kd")
    events = server.client().pubsub()
    events.psubscribe("__keyspace@0__:lock")
    assert events.get_message(timeout=10)["type"] == "psubscribe"
    lock.acquire("me", 500)
    [waiter] = queue_up(server, ["waiter"])
    waiter.answer()
    got = [events.get_message(timeout=10)["data"] for _ in range(3)]
    assert got == [b"dlock.acquire", b"dlock.expire", b"dlock.handover"]
    assert stats(lock.client)["expired"] == 1


def test_a_lock_of_another_database_ends_there(server, lock):
    there = Lock(server.client(db=7))
    there.acquire("me", 100)
    lock.acquire("me", 60_000)
    wait_until(lambda: there.client.dbsize() == 0, "the lease to end")
    assert lock.info()["token"] == b"me"


def test_a_watched_lock_whose_lease_ends_aborts_the_transaction(server, lock):
    lock.acquire("me", 100)
    with server.client().pipeline() as pipe:
        pipe.watch("lock")
        wait_until(lambda: lock.client.exists("lock") == 0, "the lease to end")
        pipe.multi()
        pipe.ping()
        with pytest.raises(Exception, match="(?i)watched"):
            pipe.execute()


# -- replicas and files carry the length ----------------------------------------------------------


def elapsed_ms(begin):
    return (time.monotonic() - begin) * 1000


def assert_lease_is_anew(lock, begin, lease_ms):
    """It began not before begin."""
    ttl = lock.ttl()
    assert lease_ms - elapsed_ms(begin) - 2 <= ttl <= lease_ms


def test_the_replication_stream_carries_the_length_of_the_lease(stream, lock):
    fence = lock.acquire("me", 50_000)
    assert stream.take() == [[b"dlock.apply", b"lock", b"me", b"%d" % fence, b"50000"]]


def test_the_end_of_a_lease_is_replicated_as_a_release(stream, lock):
    lock.acquire("me", 50)
    wait_until(lambda: lock.client.exists("lock") == 0, "the lease to end")
    assert [word.lower() for word in stream.take()[1]] == [b"dlock.release", b"lock", b"me"]


def test_a_replica_shows_the_lease(server, lock, start_follower):
    replica = Lock(start_follower(server).client())
    lock.acquire("me", 50_000)
    wait_until(replica.info, "the replica to follow")
    assert 40_000 < replica.ttl() <= 50_000
    assert replica.info()["lease"] == 50_000
    assert replica.client.pttl("lock") == -1


def test_a_replica_removes_a_lock_when_its_master_says_so(server, lock, start_follower):
    replica = start_follower(server).client()
    lock.acquire("me", 500)
    wait_until(lambda: replica.dbsize() == 1, "the replica to follow")
    wait_until(lambda: replica.dbsize() == 0, "the end of the lease")
    assert lock.client.exists("lock") == 0


def test_a_replica_that_has_lost_its_master_ends_no_lease(server, lock, start_follower):
    replica = start_follower(server).client()
    lock.acquire("me", 200)
    wait_until(lambda: replica.dbsize() == 1, "the replica to follow")
    replica.execute_command("REPLICAOF", "127.0.0.1", free_port())
    time.sleep(0.5)  # not for luck: the lease is over
    assert replica.dbsize() == 1


def test_a_promoted_replica_starts_the_lease_anew(server, lock, start_follower):
    replica = Lock(start_follower(server).client())
    fence = lock.acquire("me", 3_000)
    wait_until(replica.info, "the replica to follow")
    time.sleep(1)  # not for luck: so much of the lease is over
    server.kill()
    begin = time.monotonic()
    replica.client.execute_command("REPLICAOF", "NO", "ONE")
    assert replica.info()["fence"] == fence
    assert_lease_is_anew(replica, begin, 3_000)


def test_a_promoted_replica_ends_the_lease(server, lock, start_follower):
    replica = start_follower(server)
    lock.acquire("me", 700)
    wait_until(Lock(replica.observer).info, "the replica to follow")
    server.kill()
    begin = time.monotonic()
    replica.client().execute_command("REPLICAOF", "NO", "ONE")
    assert Waiting(replica, "waiter").answer() > 0
    assert ended_within(begin, 700)


def test_a_replica_that_is_promoted_after_the_lease_is_over_holds_it_for_one_more(
        server, lock, start_follower):
    """Its master was silent: nobody knows whether the holder has renewed meanwhile."""
    replica = Lock(start_follower(server).client())
    lock.acquire("me", 500)
    wait_until(replica.info, "the replica to follow")
    server.kill()
    time.sleep(0.7)  # not for luck: the lease would be over
    begin = time.monotonic()
    replica.client.execute_command("REPLICAOF", "NO", "ONE")
    assert replica.acquire("you") is None
    wait_until(lambda: replica.acquire("you"), "the lease to end")
    assert ended_within(begin, 500)


def by_rdb(server):
    server.client().save()


def by_aof(server):
    pass


def by_rewritten_aof(server):
    client = server.client()
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"]
               and not client.info("persistence")["aof_rewrite_scheduled"], "AOF rewrite")


FILES = pytest.mark.parametrize("options, prepare", [
    ((), by_rdb), (AOF, by_aof), ((*AOF, "--aof-use-rdb-preamble", "no"), by_rewritten_aof),
], ids=["rdb", "aof", "rewritten aof"])


@FILES
def test_a_restarted_server_starts_the_lease_anew(start_server, options, prepare):
    server = start_server(*options)
    fence = Lock(server.client()).acquire("me", 20_000)
    prepare(server)
    server.kill()
    time.sleep(0.5)  # not for luck: so long the server is down
    begin = time.monotonic()
    server.start()
    lock = Lock(server.client())
    assert (lock.info()["fence"], lock.info()["lease"]) == (fence, 20_000)
    assert_lease_is_anew(lock, begin, 20_000)


@FILES
def test_a_restarted_server_ends_the_lease(start_server, options, prepare):
    server = start_server(*options)
    Lock(server.client()).acquire("me", 1_000)
    prepare(server)
    server.kill()
    time.sleep(1.2)  # not for luck: the lease would be over, but for the restart
    begin = time.monotonic()
    server.start()
    assert Lock(server.client()).acquire("you") is None
    assert Waiting(server, "waiter").answer() > 0
    assert time.monotonic() - begin >= 1


def test_an_extension_is_what_a_restart_starts_anew(start_server):
    server = start_server(*AOF)
    lock = Lock(server.client())
    lock.acquire("me", 5_000)
    lock.extend("me", 50_000)
    server.kill()
    server.start()
    assert 30_000 < Lock(server.client()).ttl() <= 50_000


def test_a_reload_starts_the_lease_anew(lock):
    lock.acquire("me", 20_000)
    time.sleep(0.3)  # not for luck: so much of the lease is over
    begin = time.monotonic()
    lock.client.execute_command("DEBUG", "RELOAD")
    assert_lease_is_anew(lock, begin, 20_000)


def test_a_restored_lock_has_its_lease_anew(lock):
    lock.acquire("me", 20_000)
    payload = lock.client.dump("lock")
    lock.client.delete("lock")
    begin = time.monotonic()
    lock.client.restore("lock", 0, payload)
    assert_lease_is_anew(lock, begin, 20_000)


def test_a_restored_lock_ends(server, lock):
    lock.acquire("me", 500)
    payload = lock.client.dump("lock")
    lock.client.delete("lock")
    begin = time.monotonic()
    lock.client.restore("lock", 0, payload)
    [waiter] = queue_up(server, ["waiter"])
    waiter.answer()
    assert ended_within(begin, 500)


# -- what operators do to the key -----------------------------------------------------------------


@pytest.mark.parametrize("command", ["DEL", "UNLINK"])
def test_del_is_the_force_unlock(server, lock, command):
    fence = lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    assert lock.client.execute_command(command, "lock") == 1
    assert waiter.answer() > fence
    assert lock.release("me") == 0
    assert stats(lock.client)["forced"] == 1


def test_expire_is_a_force_unlock_later(lock):
    fence = lock.acquire("me", 600_000)
    begin = time.monotonic()
    assert lock.client.pexpire("lock", 200)
    assert lock.info()["token"] == b"me"
    wait_until(lambda: lock.info() is None, "the force-unlock")
    assert ended_within(begin, 200)
    assert lock.acquire("you") > fence


@pytest.mark.parametrize("others", [0, 100_000], ids=["no other keys", "many other keys"])
def test_expire_on_an_awaited_lock_serves_the_waiter(server, lock, others):
    """Also where the server's own expiry is long in finding the key among others."""
    lock.client.eval("for i = 1, tonumber(ARGV[1]) do "
                     "redis.call('SET', 'key:' .. i, 'x', 'PX', 86400000) end", 0, others)
    lock.acquire("me", 600_000)
    [waiter] = queue_up(server, ["waiter"])
    begin = time.monotonic()
    lock.client.pexpire("lock", 200)
    assert waiter.answer() > 0
    assert 0.2 <= time.monotonic() - begin < 0.2 + 0.5 + BUSY_S


def test_expire_after_the_end_of_the_lease_does_not_prolong_it(server, lock):
    begin = time.monotonic()
    lock.acquire("me", 500)
    lock.client.pexpire("lock", 600_000)
    [waiter] = queue_up(server, ["waiter"])
    waiter.answer()
    assert ended_within(begin, 500)


def test_a_waiter_does_not_inherit_an_expire_that_was_meant_for_the_holder(server, lock):
    lock.acquire("me", 600_000)
    lock.client.pexpire("lock", 600_000)
    [waiter] = queue_up(server, ["waiter"])
    lock.release("me")
    waiter.answer()
    assert lock.client.pttl("lock") == -1


def test_persist_does_not_pin_a_lock(lock):
    begin = time.monotonic()
    lock.acquire("me", 300)
    assert not lock.client.persist("lock")
    wait_until(lambda: lock.info() is None, "the lease to end")
    assert ended_within(begin, 300)


def test_persist_takes_back_a_force_unlock(lock):
    lock.acquire("me", 600_000)
    lock.client.pexpire("lock", 300)
    assert lock.client.persist("lock")
    time.sleep(0.5)  # not for luck: the force-unlock would have happened
    assert lock.info()["token"] == b"me"


LEASE_MS, SECONDS_LATER = 1_000, 5


@pytest.mark.parametrize("move", [
    lambda c: c.rename("lock", "moved"), lambda c: c.move("lock", 3), lambda c: c.swapdb(0, 3),
], ids=["rename", "move", "swapdb"])
@pytest.mark.parametrize("is_awaited", [False, True], ids=["plain", "awaited"])
def test_a_lock_that_goes_elsewhere_ends_with_its_lease(server, lock, move, is_awaited):
    """At the latest one lease and a few seconds later."""
    begin = time.monotonic()
    lock.acquire("me", LEASE_MS)
    move(lock.client)
    there = [Lock(lock.client, "moved"), Lock(server.client(db=3))]
    [there] = [each for each in there if each.info()]
    assert there.info()["token"] == b"me"
    if is_awaited:
        db = there.client.connection_pool.connection_kwargs["db"]
        waiter = Waiting(server, "waiter", key=there.key, db=db)
        waiter.answer()
    else:
        wait_until(lambda: there.client.exists(there.key) == 0, "the lease to end")
    took_s = time.monotonic() - begin
    assert LEASE_MS / 1000 <= took_s < 2 * LEASE_MS / 1000 + SECONDS_LATER


def test_a_lock_that_goes_elsewhere_never_ends_early(server, lock):
    lock.acquire("me", 1_500)
    time.sleep(0.5)  # not for luck: so much of the lease is over
    lock.client.rename("lock", "moved")
    moved = Lock(lock.client, "moved")
    assert moved.extend("me", 3_000) == 1
    begin = time.monotonic()
    wait_until(lambda: moved.info() is None, "the lease to end")
    assert time.monotonic() - begin >= 2.9


def test_renamed_locks_that_nobody_looks_at_end_too(server, lock):
    """Each is searched for, also soon after another search, and after an EXPIRE that a waiter had
    to wait for."""
    lock.acquire("first", 600_000)
    [waiter] = queue_up(server, ["second"], lease_ms=1_000)
    lock.client.pexpire("lock", 50)
    waiter.answer()
    lock.client.rename("lock", "moved:1")
    wait_until(lambda: lock.client.exists("moved:1") == 0, "the lease to end")
    lock.acquire("third", 1_000)
    begin = time.monotonic()
    lock.client.rename("lock", "moved:2")
    wait_until(lambda: lock.client.exists("moved:2") == 0, "the lease to end")
    assert time.monotonic() - begin < 5
