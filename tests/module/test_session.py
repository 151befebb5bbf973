"""SESSION: the lock ends with the connection that took it, at once."""

import subprocess
import sys

import pytest
import redis

from support.commands import Lock, stats
from support.server import free_port, wait_until
from support.turn import in_one_turn
from support.waiting import Waiting, queue_up

HOLDER = """
import redis, sys
client = redis.Redis('127.0.0.1', int(sys.argv[1]))
client.execute_command('DLOCK.ACQUIRE', 'lock', 'holder', 'PX', 600000, 'SESSION')
print('held', flush=True)
sys.stdin.read()
"""


def take(server, token="holder", **options):
    """A connection that holds the lock in a session."""
    holder = Waiting(server, token, options=["SESSION"], **options)
    assert holder.answer() > 0
    return holder


def wait_until_gone(client, connection):
    wait_until(lambda: not client.client_list(client_id=[str(connection.id)]), "the end of it")


def wait_until_free(lock):
    wait_until(lambda: lock.info() is None, "the session to end")


@pytest.mark.parametrize("end", [
    Waiting.close, Waiting.abort, lambda it: it.server.observer.client_kill_filter(_id=it.id),
], ids=["close", "abort", "kill"])
def test_the_lock_ends_with_its_connection(server, lock, end):
    holder = take(server)
    assert (lock.info()["session"], lock.info()["via"]) == (holder.id, b"")
    assert stats(lock.client)["session_holds"] == 1
    end(holder)
    wait_until_free(lock)
    assert (stats(lock.client)["session_holds"], stats(lock.client)["session_releases"]) == (0, 1)


def test_the_lock_ends_with_an_idle_connection_that_the_server_closes(server, lock):
    holder = take(server)
    lock.client.config_set("timeout", 600)
    server.clock.step(601)
    with pytest.raises(redis.ConnectionError):
        holder.answer()
    wait_until_free(Lock(server.client()))


def test_the_lock_ends_with_a_killed_process(server, lock):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(server.port)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        [waiter] = queue_up(server, ["waiter"])
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    assert waiter.answer() > 0


def test_the_lock_is_handed_on_at_once(server, lock):
    """In one of the next turns."""
    holder = take(server)
    first, second = queue_up(server, ["first", "second"])
    lock.client.client_kill_filter(_id=holder.id)
    assert first.is_answered()
    assert lock.info()["fence"] == first.answer()
    assert not second.is_answered()


def test_without_session_the_lock_outlives_its_connection(server, lock):
    holder = Waiting(server, "holder")
    holder.answer()
    holder.close()
    wait_until_gone(lock.client, holder)
    assert lock.info()["token"] == b"holder"
    assert lock.info()["session"] == 0


def test_the_same_token_takes_the_session_to_another_connection(server, lock):
    first = take(server)
    fence = lock.info()["fence"]
    second = take(server)
    assert (lock.info()["session"], lock.info()["fence"]) == (second.id, fence)
    first.close()
    wait_until_gone(lock.client, first)
    assert lock.info()["fence"] == fence
    second.close()
    wait_until_free(lock)


def test_a_session_taken_over_in_the_turn_in_which_it_ends_stays(server, lock):
    first = take(server)
    fence = lock.info()["fence"]
    _, same, client_id = in_one_turn(
        lock.client, ("CLIENT", "KILL", "ID", first.id),
        ("DLOCK.ACQUIRE", "lock", "holder", "PX", 60_000, "SESSION"), ("CLIENT", "ID"))
    lock.client.ping()
    assert same == fence
    assert lock.info()["session"] == client_id


def test_a_token_that_asks_again_in_the_turn_in_which_its_session_ends_is_not_tied(server, lock):
    first = take(server)
    fence = lock.info()["fence"]
    again = ("DLOCK.ACQUIRE", "lock", "holder", "PX", 60_000)
    _, same, also = in_one_turn(lock.client, ("CLIENT", "KILL", "ID", first.id), again, again)
    assert fence == same == also
    wait_until_gone(lock.client, first)
    assert lock.extend("holder", 90_000) == 1
    assert (lock.info()["fence"], lock.info()["session"]) == (fence, 0)
    assert stats(lock.client)["session_holds"] == 0


@pytest.mark.parametrize("call", [
    lambda lock: lock.acquire("holder"), lambda lock: lock.extend("holder"),
    lambda lock: lock.acquire("holder", 600_000, "FENCE", lock.info()["fence"] + 60_000_000),
], ids=["ask again", "extend", "lift the fence"])
def test_a_holder_that_calls_without_session_keeps_the_session(server, lock, call):
    holder = take(server)
    assert call(lock) > 0
    assert lock.info()["session"] == holder.id
    assert stats(lock.client)["session_holds"] == 1
    holder.close()
    wait_until_free(lock)
    assert stats(lock.client)["session_holds"] == 0


@pytest.mark.parametrize("end", [
    lambda c: c.delete("lock"), lambda c: c.pexpire("lock", 0), lambda c: c.set("lock", "other"),
    lambda c: c.flushall(), lambda c: c.execute_command("FLUSHDB", "ASYNC"),
    lambda c: c.rename("lock", "moved"), lambda c: c.move("lock", 1),
    lambda c: Lock(c).release("holder"),
], ids=["del", "expire", "set", "flushall", "flushdb", "rename", "move", "release"])
@pytest.mark.parametrize("token", ["holder", "other"])
def test_a_lock_that_ended_before_the_session_is_no_longer_tied(server, lock, end, token):
    """Whoever takes it then without a session: the same token, too."""
    holder = take(server)
    end(lock.client)
    wait_until(lambda: stats(lock.client)["session_holds"] == 0, "the tie to be undone")
    lock.client.delete("lock")
    fence = lock.acquire(token)
    holder.close()
    wait_until_gone(lock.client, holder)
    assert lock.info()["fence"] == fence
    assert stats(lock.client)["session_releases"] == 0


@pytest.mark.parametrize("is_one_turn", [False, True], ids=["before", "in the turn of"])
def test_a_session_follows_its_lock_through_swapdb(server, lock, is_one_turn):
    holder = take(server)
    there = Lock(server.client(db=3))
    if is_one_turn:
        in_one_turn(lock.client, ("CLIENT", "KILL", "ID", holder.id), ("SWAPDB", 0, 3))
    else:
        lock.client.swapdb(0, 3)
        assert there.info()["session"] == holder.id
        holder.close()
    wait_until_free(there)
    assert lock.info() is None


def test_a_session_that_ends_in_a_pause_before_a_swapdb_ends_its_lock(server, lock):
    """The release waits for the end of the pause, and the swap is faster."""
    holder = take(server)
    swapper = server.client(single_connection_client=True)
    lock.client.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
    holder.close()
    wait_until_gone(lock.client, holder)
    swapper.connection.send_command("SWAPDB", 0, 3)
    lock.client.execute_command("CLIENT", "UNPAUSE")
    assert swapper.connection.read_response() == b"OK"
    wait_until_free(Lock(server.client(db=3)))
    assert lock.info() is None


def test_a_waiter_that_dies_untold_in_the_turn_of_a_swapdb_keeps_nothing(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"])
    in_one_turn(lock.client, ("DLOCK.RELEASE", "lock", "me"),
                ("CLIENT", "KILL", "ID", waiter.id), ("SWAPDB", 0, 3))
    wait_until_free(Lock(server.client(db=3)))
    assert lock.info() is None


@pytest.mark.parametrize("end", [
    lambda c: c.delete("backup"), lambda c: c.execute_command("DLOCK.RELEASE", "backup", "holder"),
    lambda c: c.pexpire("backup", 0), lambda c: c.set("backup", "x"),
], ids=["del", "release", "expire", "set"])
def test_the_end_of_a_copy_does_not_untie_the_lock(server, lock, end):
    """DUMP and RESTORE make a second key with the same token and fence."""
    holder = take(server)
    lock.client.restore("backup", 0, lock.client.dump("lock"))
    end(lock.client)
    assert lock.info()["session"] == holder.id
    holder.close()
    wait_until_free(lock)


def test_a_copy_is_tied_to_nobody(server, lock):
    holder = take(server)
    lock.client.restore("backup", 0, lock.client.dump("lock"))
    copy = Lock(lock.client, "backup")
    assert copy.info()["session"] == 0
    holder.close()
    wait_until_free(lock)
    assert copy.info()["token"] == b"holder"


def test_many_locks_of_one_connection_end_together(server, client):
    holder = Waiting(server, "token", options=["SESSION"], key="lock:0")
    holder.answer()
    for i in range(1, 1000):
        holder.call("DLOCK.ACQUIRE", f"lock:{i}", "token", "PX", 60_000, "SESSION")
    other = take(server, token="other", key="other")
    assert stats(client)["session_holds"] == 1001
    client.execute_command("DLOCK.RELEASE", "lock:500", "token")
    holder.close()
    wait_until(lambda: client.dbsize() == 1, "the locks to end")
    assert Lock(client, "other").info()["session"] == other.id
    assert stats(client)["session_holds"] == 1


def test_a_waiter_with_session_is_tied_when_it_gets_the_lock(server, lock):
    lock.acquire("me")
    [waiter] = queue_up(server, ["waiter"], options=["SESSION"])
    assert stats(lock.client)["session_holds"] == 0
    lock.release("me")
    waiter.answer()
    assert lock.info()["session"] == waiter.id
    waiter.close()
    wait_until_free(lock)


def test_in_a_transaction_the_session_is_the_connection_s(server, lock):
    holder = server.connect()
    [fence] = in_one_turn(holder, ("DLOCK.ACQUIRE", "lock", "me", "PX", 60_000, "SESSION"))
    assert lock.info()["fence"] == fence and lock.info()["session"] > 0
    holder.connection_pool.disconnect()
    wait_until_free(lock)


def test_in_a_script_there_is_no_session(client):
    with pytest.raises(redis.ResponseError, match="SESSION needs a connection"):
        client.eval("return redis.call('DLOCK.ACQUIRE', KEYS[1], 'me', 'PX', 1, 'SESSION')", 1, "k")
    assert client.dbsize() == 0


def test_the_end_of_a_session_is_replicated_as_a_release(server, lock, stream):
    holder = take(server)
    stream.take()
    holder.close()
    wait_until_free(lock)
    assert stream.take() == [[b"dlock.release", b"lock", b"holder"]]


def test_a_replica_follows_the_end_of_a_session(server, lock, start_replica):
    replica = start_replica(server).client()
    holder = take(server)
    wait_until(lambda: Lock(replica).info(), "the lock to arrive")
    assert Lock(replica).info()["session"] == 0
    holder.close()
    wait_until(lambda: Lock(replica).info() is None, "the release to arrive")
    assert replica.dbsize() == 0


def test_a_master_that_is_demoted_and_ends_its_connections_releases_nothing(server, lock):
    """As a sentinel does it, in one transaction: the new master has the lock, and so must this
    server if a sentinel that lags makes it the master again."""
    holder = take(server)
    fence = lock.info()["fence"]
    in_one_turn(lock.client, ("REPLICAOF", "127.0.0.1", free_port()),
                ("CLIENT", "KILL", "TYPE", "normal"))
    wait_until(lambda: stats(lock.client)["session_holds"] == 0, "that the session is forgotten")
    lock.client.execute_command("REPLICAOF", "NO", "ONE")
    assert (lock.info()["token"], lock.info()["fence"]) == (b"holder", fence)
    assert stats(lock.client)["session_releases"] == 0
    with pytest.raises(redis.ConnectionError):
        holder.answer()


def test_a_connection_that_outlives_a_demotion_ends_no_lock(server, lock):
    """Meanwhile the holder may have moved to the other master, and come back."""
    holder = take(server)
    fence = lock.info()["fence"]
    lock.client.execute_command("REPLICAOF", "127.0.0.1", free_port())
    wait_until(lambda: stats(lock.client)["session_holds"] == 0, "that the session is forgotten")
    lock.client.execute_command("REPLICAOF", "NO", "ONE")
    assert lock.info()["session"] == 0
    clients = lock.client.info("clients")["connected_clients"]
    holder.close()
    wait_until(lambda: lock.client.info("clients")["connected_clients"] < clients, "the end")
    take(server, key="later").close()
    wait_until_free(Lock(lock.client, "later"))
    assert (lock.info()["token"], lock.info()["fence"]) == (b"holder", fence)


def test_after_a_restart_the_lease_is_what_ends_the_lock(start_server):
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    holder = take(server)
    server.kill()
    holder.close()
    server.start()
    assert Lock(server.client()).info()["session"] == 0
    assert Lock(server.client()).info()["token"] == b"holder"
