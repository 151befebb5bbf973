"""Waiters while the server itself is disturbed: reloads, restarts, sleeps, transactions, and
connections that end or change in the middle of it. See also test_pause and test_role_change."""

import signal

import pytest
import redis

from support.commands import Lock, fence_at
from support.server import is_readable, stopped, wait_until
from support.turn import Bare, in_one_turn, in_one_turn_of_many, sleep_then
from support.waiting import Waiting, assert_nobody_waits, queue_up, wait_for_waiters


# -- reload, shutdown, restart --------------------------------------------------------------------


@pytest.mark.parametrize("appendonly, how", [("no", "RELOAD"), ("yes", "LOADAOF")])
def test_waiters_survive_a_reload(start_server, appendonly, how):
    server = start_server("--appendonly", appendonly)
    lock = Lock(server.client())
    fence = lock.acquire("me", 60_000)
    first, second = queue_up(server, ["first", "second"])
    lock.client.execute_command("DEBUG", how)
    assert not first.is_answered()
    info = lock.info()
    assert (info["token"], info["fence"], info["waiters"]) == (b"me", fence, 2)
    assert lock.release("me") == 1
    assert first.answer() > fence
    assert lock.release("first") == 1
    assert second.answer() > fence


def test_a_lease_that_ends_while_the_data_are_reloaded_is_handed_on(server, lock):
    """The reload starts it anew."""
    lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    assert sleep_then(server, 61, "DEBUG RELOAD") == [b"+OK"]
    server.clock.advance(61)
    assert waiter.answer() > 0


@pytest.mark.parametrize("yesterday", ["release", "hand-over"])
def test_the_past_serves_nobody_while_the_append_only_file_is_reloaded(start_server, yesterday):
    """The file tells how the lock was released or handed over; today somebody else holds it."""
    server = start_server("--appendonly", "yes")
    lock = Lock(server.client())
    lock.acquire("yesterday", 60_000)
    if yesterday == "release":
        lock.release("yesterday")
    else:
        [then] = queue_up(server, ["then"])
        server.clock.advance(61)
        then.answer()
        lock.client.delete("lock")
    fence = lock.acquire("today", 600_000)
    [waiter] = queue_up(server, ["waiter"])
    lock.client.execute_command("DEBUG", "LOADAOF")
    assert not waiter.is_answered(), "two holders"
    assert (lock.info()["token"], lock.info()["fence"]) == (b"today", fence)
    lock.release("today")
    assert waiter.answer() > fence


def test_waiters_do_not_keep_a_server_from_shutting_down(server, lock):
    lock.acquire("me", 60_000)
    waiting = queue_up(server, ["first"]) + queue_up(server, ["second"], options=["SESSION"])
    server.stop()  # and no sign of a crash
    for waiter in waiting:
        with pytest.raises(redis.ConnectionError):
            waiter.answer()


def test_a_lease_that_ends_while_a_shutdown_is_delayed_is_not_handed_on(server, start_replica):
    replica = start_replica(server)
    lock = Lock(server.client())
    fence = lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    lock.client.config_set("shutdown-timeout", 60)
    with stopped(replica):
        lock.client.set("x", 1)  # so that the replica is behind
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "for replicas before shut" in server.log(), "the shutdown to begin")
        server.clock.advance(61)
    server.process.wait(20)  # the replica has all
    server.check_log()
    with pytest.raises(redis.ConnectionError):
        waiter.answer()
    there = replica.client()
    there.execute_command("REPLICAOF", "NO", "ONE")
    there.delete("lock")
    assert Lock(there).acquire("next") > fence


def test_after_a_restart_the_lock_is_held_and_can_be_waited_for(start_server):
    server = start_server("--appendonly", "yes")
    fence = Lock(server.client()).acquire("me", 60_000)
    waiting = queue_up(server, ["waiter"])
    server.restart()
    with pytest.raises(redis.ConnectionError):
        waiting[0].answer()
    lock = Lock(server.client())
    assert (lock.info()["token"], lock.info()["fence"], lock.info()["waiters"]) == (b"me", fence, 0)
    [waiter] = queue_up(server, ["waiter"])
    lock.release("me")
    assert waiter.answer() > fence


# -- a lock ends while the server sleeps ----------------------------------------------------------


def test_a_plain_acquire_does_not_overtake_when_the_lease_has_just_ended(server, lock):
    lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    assert sleep_then(server, 61, "DLOCK.ACQUIRE lock thief PX 1000") == [b"$-1"]
    assert waiter.answer() == lock.info()["fence"]


def test_a_release_after_the_lease_has_ended_is_refused_and_the_first_waiter_gets_it(server, lock):
    lock.acquire("me", 60_000)
    first, second = queue_up(server, ["first", "second"])
    replies = sleep_then(server, 61, "DLOCK.RELEASE lock me", "DLOCK.EXTEND lock me PX 1000")
    assert replies == [b":0", b":0"]
    assert first.answer() == lock.info()["fence"]
    assert not second.is_answered()


@pytest.mark.parametrize("look", ["DLOCK.INFO lock", "GET lock", "EXISTS lock", "TYPE lock"])
def test_a_look_at_a_lock_whose_lease_has_ended_does_not_lose_the_waiter(server, lock, look):
    lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    sleep_then(server, 61, look)
    assert waiter.answer() == lock.info()["fence"]


def test_leases_of_many_locks_that_end_together_are_all_handed_on(server, client):
    for i in range(50):
        Lock(client, f"lock:{i}").acquire("me", 60_000)
    waiting = [Waiting(server, "waiter", key=f"lock:{i}") for i in range(50)]
    wait_for_waiters(client, 50)
    server.clock.advance(61)
    assert all(waiter.answer() > 0 for waiter in waiting)
    assert_nobody_waits(client)


# -- scripts and transactions ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["script", "function"])
def test_a_release_in_a_script_hands_over(server, lock, start_replica, how):
    replica = start_replica(server).client()
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    code = "return redis.call('DLOCK.RELEASE', KEYS[1], ARGV[1])"
    if how == "script":
        assert lock.client.eval(code, 1, "lock", "me") == 1
    else:
        code = code.replace("KEYS", "keys").replace("ARGV", "args")
        lock.client.execute_command("FUNCTION", "LOAD", "#!lua name=t\nredis.register_function("
                                    f"'release', function(keys, args) {code} end)")
        assert lock.client.execute_command("FCALL", "release", 1, "lock", "me") == 1
    fence = waiter.answer()
    assert lock.info()["fence"] == fence
    wait_until(lambda: fence_at(replica) == fence, "the replica to follow")


def test_a_transaction_that_takes_and_frees_the_lock_serves_the_waiter(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    replies = in_one_turn(
        lock.client, ("DEL", "lock"), ("DLOCK.ACQUIRE", "lock", "thief", "PX", 1000),
        ("DLOCK.RELEASE", "lock", "thief"), ("DLOCK.RELEASE", "lock", "waiter"))
    assert replies[:3] == [1, None, 0]
    answer = waiter.answer()
    assert waiter.call("PING") == b"PONG"
    if replies[3] == 0:  # it still waited, so that the release ended its wait
        assert answer is None
    assert lock.info() is None


def test_a_hand_over_is_a_change_to_who_watches_the_lock(server, lock):
    lock.acquire("me", 60_000)
    [waiter] = queue_up(server, ["waiter"])
    with lock.client.pipeline() as watcher:
        watcher.watch("lock")
        server.clock.advance(61)
        waiter.answer()
        watcher.multi()
        watcher.ping()
        with pytest.raises(redis.WatchError):
            watcher.execute()


def test_a_waiter_may_watch_and_use_a_transaction_afterwards(server, lock):
    lock.acquire("me")
    waiter = Waiting(server, "free", key="other")
    waiter.answer()
    assert waiter.call("WATCH", "data") == b"OK"
    waiter.send("DLOCK.ACQUIRE", "lock", "waiter", "PX", 10_000, "WAIT", 10_000)
    wait_for_waiters(lock.client, 1)
    lock.release("me")
    assert waiter.answer() > 0
    assert waiter.call("MULTI") == b"OK"
    assert waiter.call("DLOCK.RELEASE", "lock", "waiter") == b"QUEUED"
    assert waiter.call("EXEC") == [1]
    assert lock.info() is None


# -- the connection -------------------------------------------------------------------------------


def resp3(server):
    bare = Bare(server)
    bare.send("HELLO 3", "ECHO ready")
    while bare.read() != [b"ready"]:
        pass
    return bare


@pytest.mark.parametrize("end", ["time", "unblock", "release"])
def test_a_waiter_with_resp3_gets_its_fence_as_a_number_or_a_real_null(server, lock, end):
    lock.acquire("me", 600_000)
    bare = resp3(server)
    bare.send("CLIENT ID")
    client_id = int(bare.read()[0][1:])
    bare.send("DLOCK.ACQUIRE lock waiter PX 10000 WAIT 60000")
    wait_for_waiters(lock.client, 1)
    if end == "time":
        server.clock.advance(61)
    elif end == "unblock":
        lock.client.client_unblock(client_id)
    else:
        lock.release("me")
    assert bare.read() == [b"_" if end != "release" else b":%d" % lock.info()["fence"]]


def test_a_waiter_with_resp3_gets_invalidations_and_its_fence(server, lock):
    """A push in the midst of a wait does not disturb it."""
    lock.acquire("me")
    bare = resp3(server)
    bare.send("CLIENT TRACKING ON BCAST PREFIX other",
              "DLOCK.ACQUIRE lock waiter PX 9999 WAIT 9999")
    assert bare.read() == [b"+OK"]
    wait_for_waiters(lock.client, 1)
    lock.client.set("other", 1)
    assert bare.read(6) == [b">2", b"$10", b"invalidate", b"*1", b"$5", b"other"]
    lock.release("me")
    assert bare.read()[0].startswith(b":")


@pytest.mark.parametrize("command", [
    "DLOCK.ACQUIRE lock waiter PX 60000 WAIT 60000",
    "DLOCK.ACQUIREALL 2 lock other waiter PX 60000 WAIT 60000"])
def test_a_subscriber_waits_where_the_server_lets_it(server, lock, command):
    """Valkey 8.1 and newer do not: then the reply comes at once."""
    lock.acquire("me")
    bare = resp3(server)
    bare.send("SUBSCRIBE news")
    bare.read(6)
    bare.send(command)
    wait_until(lambda: is_readable(bare.socket) or lock.info()["waiters"], "the wait, or a reply")
    is_told = is_readable(bare.socket)
    lock.release("me")
    assert bare.read() == [b"_" if is_told else b":%d" % lock.info()["fence"]]


def test_a_subscriber_has_a_session(server):
    """As above; elsewhere the reply comes after a third of the timeout."""
    bare = resp3(server)
    bare.send("SUBSCRIBE news", *2 * ["DLOCK.SESSION 0123456789abcdef PX 60000"])
    bare.read(6)
    first = bare.read(3)
    server.clock.advance(21)
    assert bare.read(3) == first == [b"*2", first[1], b"*0"]


PIPELINE = ("DLOCK.ACQUIRE lock waiter PX 60000 WAIT {wait}", "ECHO one",
            "DLOCK.RELEASE lock waiter", "DLOCK.ACQUIRE lock again PX 60000 WAIT 600000",
            "ECHO two", "DLOCK.RELEASE lock again")


def test_commands_behind_a_wait_are_answered_after_it_and_in_order(server, lock):
    lock.acquire("me")
    bare = Bare(server)
    bare.send(*(line.format(wait=60_000) for line in PIPELINE), "PING")
    wait_for_waiters(lock.client, 1)
    lock.release("me")
    fence, *rest = bare.read(9)
    assert fence.startswith(b":")
    assert rest[:3] == [b"$3", b"one", b":1"]
    assert int(rest[3][1:]) > int(fence[1:])
    assert rest[4:] == [b"$3", b"two", b":1", b"+PONG"]
    assert lock.info() is None


@pytest.mark.parametrize("how", ["time", "TIMEOUT", "ERROR"])
def test_commands_behind_a_wait_in_vain_are_answered_in_order(server, lock, how):
    lock.acquire("me", 600_000)
    bare = Bare(server)
    client_id = int(bare.call("CLIENT ID")[1:])
    bare.send(*(line.format(wait=60_000) for line in PIPELINE))
    wait_for_waiters(lock.client, 1)
    if how == "time":
        server.clock.advance(61)
    else:
        lock.client.execute_command("CLIENT", "UNBLOCK", client_id, how)
    null, *rest = bare.read(4)
    assert null == b"$-1" if how != "ERROR" else null.startswith(b"-UNBLOCKED")
    assert rest == [b"$3", b"one", b":0"]
    wait_for_waiters(lock.client, 1)
    lock.release("me")
    assert bare.read(4)[1:] == [b"$3", b"two", b":1"]


def test_a_waiter_that_dies_takes_the_commands_behind_it_along(server, lock):
    lock.acquire("me")
    bare = Bare(server)
    bare.send("DLOCK.ACQUIRE lock waiter PX 60000 WAIT 60000", "DLOCK.RELEASE lock me",
              "SET trace 1")
    wait_for_waiters(lock.client, 1)
    bare.close()
    wait_for_waiters(lock.client, 0)
    assert lock.info()["token"] == b"me"
    assert lock.client.exists("trace") == 0


def come_and_be_served(server, lock, then, more=""):
    """The connection of a waiter that comes, is served, and has this command applied to its id, all
    in one turn. Nobody waited before."""
    lock.acquire("me", 60_000)
    waiter, releaser, other = (Bare(server) for _ in range(3))
    waiter.send("CLIENT ID")
    client_id = int(waiter.read()[0][1:])
    in_one_turn_of_many(
        server, (waiter, f"DLOCK.ACQUIRE lock waiter PX 60000 WAIT 60000{more}"),
        (releaser, "DLOCK.RELEASE lock me"), (other, then.format(client_id)))
    assert releaser.read() + other.read() == [b":1", b":1"]
    return waiter


@pytest.mark.parametrize("how", ["ERROR", "TIMEOUT"])
def test_who_comes_and_is_served_and_unblocked_in_one_turn_gets_one_answer(server, lock, how):
    waiter = come_and_be_served(server, lock, f"CLIENT UNBLOCK {{}} {how}")
    waiter.send("PING")
    answer, pong = waiter.read(2)
    assert pong == b"+PONG", "two answers"
    if answer.startswith(b":"):
        assert lock.info()["fence"] == int(answer[1:])
    else:
        wait_until(lambda: lock.info() is None, "the lock to be taken back")


@pytest.mark.parametrize("is_session", [False, True], ids=["plain", "session"])
def test_who_comes_and_is_served_and_killed_in_one_turn_keeps_nothing(server, lock, is_session):
    come_and_be_served(server, lock, "CLIENT KILL ID {}", " SESSION" * is_session)
    wait_until(lambda: lock.info() is None, "the lock to be taken back")
