"""Several names in one step: dlock_lock_new_all()."""

import itertools
import threading

import pytest

from support.cluster import slot_of
from support.commands import tokens_at
from support.libdlock import NO_MODULE, SHARED, Background, Event, State, Status
from support.server import wait_until
from support.waiting import assert_nobody_waits, wait_for_waiters

WAIT_MS = 50_000
SHORT_MS = 6000  # is renewed while a test waits for something


def holders(client, *names):
    """The token that holds each of the names, or None."""
    tokens = [tokens_at(client, name) for name in names]
    return [held[0].encode() if held else None for held in tokens]


def is_free(client, *names):
    return holders(client, *names) == [None] * len(names)


# -- all or none ----------------------------------------------------------------------------------


def test_all_names_are_held_with_one_token_and_one_fence(connect, server, client):
    dlock = connect(server)
    lock = dlock.hold(["a", "b", "c"])
    assert holders(client, "a", "b", "c") == [lock.token] * 3
    assert {dlock.inspect(name)[0][2] for name in "abc"} == {lock.fence}
    assert lock.release() == Status.OK
    assert is_free(client, "a", "b", "c")


def test_none_is_taken_while_one_of_them_is_held(connect, server, client):
    dlock = connect(server)
    other, lock = dlock.hold("b"), dlock.lock(["a", "b", "c"])
    assert lock.acquire() == Status.BUSY
    assert holders(client, "a", "b", "c") == [None, other.token, None]
    assert other.release() == Status.OK
    assert lock.acquire() == Status.OK


def test_a_handle_with_one_name_is_as_usual(connect, server, client):
    lock = connect(server, prefix="p:").hold(["only"])
    assert holders(client, "p:only") == [lock.token]
    assert lock.release() == Status.OK


def test_64_long_names(connect, server, client):
    names = [f"{i}-{'x' * 1000}" for i in range(64)]
    lock = connect(server, prefix="p:").hold(names, lease_ms=60_000)
    assert set(holders(client, *[f"p:{name}" for name in names])) == {lock.token}
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK
    assert client.dbsize() == 0


def test_names_can_be_shared(connect, server, client):
    dlock = connect(server)
    one, two = dlock.lock(["a", "b"], mode=SHARED), dlock.lock(["b", "c"], mode=SHARED)
    writer = dlock.lock(["c", "b"])
    assert one.acquire() == two.acquire() == Status.OK
    assert writer.acquire() == Status.BUSY
    assert one.release() == two.release() == Status.OK
    assert writer.acquire() == Status.OK


@pytest.mark.parametrize("names, why", [
    ([], "names: there is none"), (["a", ""], "the name is empty"),
    (["a", "b", "a"], "names: the same name is given twice"),
    ([str(i) for i in range(65)], "names: more than 64"),
    (["a", "x" * 1_000_001], "names: all together are longer than 1 MB")])
def test_wrong_names_are_refused(connect, server, names, why):
    with pytest.raises(ValueError) as refused:
        connect(server).lock(names)
    assert refused.value.args == (Status.INVALID, why)


def test_plain_redis_refuses_several_names(connect, server):
    with pytest.raises(ValueError) as refused:
        connect(server, module=NO_MODULE).lock(["a", "b"])
    assert "only the dlock module" in refused.value.args[1]


# -- waiting --------------------------------------------------------------------------------------


def test_it_waits_for_all_and_nobody_overtakes_it(connect, server, client):
    dlock = connect(server)
    first, several, single = dlock.hold("a"), dlock.lock(["b", "a"]), dlock.lock("b")
    waits = Background(several.acquire, WAIT_MS)
    wait_for_waiters(client, 2)  # a place in each queue
    assert single.acquire() == Status.BUSY  # b is free, and kept for the one that waits
    behind = Background(single.acquire, WAIT_MS)
    wait_for_waiters(client, 3)
    assert first.release() == Status.OK
    assert waits.result() == Status.OK
    assert holders(client, "a", "b") == [several.token] * 2 and behind.is_running()
    assert several.release() == Status.OK
    assert behind.result() == Status.OK


def test_a_wait_that_times_out_leaves_nothing_behind(connect, server, client):
    dlock = connect(server)
    other, lock = dlock.hold("b"), dlock.lock(["a", "b"])
    assert lock.acquire(50) == Status.TIMEOUT
    assert holders(client, "a", "b") == [None, other.token]
    assert_nobody_waits(client)


def test_a_canceled_wait_leaves_nothing_behind(connect, server, client):
    dlock = connect(server)
    other, lock = dlock.hold("b"), dlock.lock(["a", "b"])
    waits = Background(lock.acquire, WAIT_MS)
    wait_for_waiters(client, 2)
    lock.cancel()
    assert waits.result() == Status.CANCELED
    wait_for_waiters(client, 0)
    assert other.release() == Status.OK
    assert is_free(client, "a", "b")


def test_opposite_orders_never_block_each_other(connect, server, client):
    dlock = connect(server)
    inside, results = [], []

    def move(names):
        lock = dlock.lock(names, lease_ms=60_000)
        for _ in range(25):
            if lock.acquire(WAIT_MS) != Status.OK:
                results.append(lock.error)
                return
            inside.append(names)
            results.append(len(inside))
            inside.remove(names)
            results.append(lock.release())

    orders = list(itertools.permutations(["a", "b", "c"], 2))
    threads = [threading.Thread(target=move, args=(["common", *order],)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_MS / 1000)
    assert sorted(results) == [Status.OK] * 150 + [1] * 150  # one at a time, and all of them
    assert is_free(client, "a", "b", "c", "common")


# -- held -----------------------------------------------------------------------------------------


def test_an_extension_extends_every_name(connect, server, client):
    dlock = connect(server)
    lock = dlock.hold(["a", "b"], lease_ms=60_000)
    fence = lock.fence
    assert lock.extend(600_000) == Status.OK
    for name in "ab":
        assert client.execute_command("DLOCK.EXTEND", name, lock.token, "PX", 1) == 1
        assert dlock.inspect(name)[0][2] == fence
    assert lock.remaining_ms > 500_000


def test_an_extension_finds_a_lost_name_and_does_not_take_it_anew(connect, server, client):
    lock = connect(server).hold(["a", "b"], lease_ms=60_000)
    client.delete("b")
    assert lock.extend() == Status.LOST
    assert lock.state == State.LOST
    assert holders(client, "a", "b") == [lock.token, None]
    assert lock.release() == Status.LOST
    assert is_free(client, "a", "b")


@pytest.mark.parametrize("lost", ["a", "b"])
@pytest.mark.parametrize("options", [
    {"renew": 1}, {"renew": 1, "session": 1}, {"renew": 1, "lease_ms": 60_000}, {}])
def test_a_name_that_is_deleted_loses_the_lock_at_once(connect, server, client, told, lost,
                                                       options):
    lock = connect(server, on_event=told).hold(["a", "b"], **options)
    client.delete(lost)
    wait_until(lambda: told.find(Event.LOST, "a b"), "the loss")
    assert lock.state == State.LOST and lock.extend() == Status.LOST
    assert lock.release() == Status.LOST
    assert is_free(client, "a", "b")
    assert lock.acquire() == Status.OK  # and the handle is as good as new
    assert holders(client, "a", "b") == [lock.token] * 2


def test_a_flush_loses_the_lock(connect, server, client, told):
    lock = connect(server, on_event=told).hold(["a", "b"], renew=1)
    client.flushall()
    wait_until(lambda: told.find(Event.LOST, "a b"), "the loss")
    assert lock.release() == Status.LOST


def test_a_lost_lock_that_is_acquired_again_leaves_no_part(connect, server, client):
    dlock = connect(server)
    lock, other = dlock.hold(["a", "b"], renew=1), dlock.lock("b")
    client.delete("b")
    assert other.acquire(WAIT_MS) == Status.OK
    wait_until(lambda: lock.state == State.LOST, "the loss")
    assert lock.acquire() == Status.LOST
    assert lock.acquire() == Status.BUSY  # the other one has b
    wait_until(lambda: is_free(client, "a"), "the release of a")
    assert holders(client, "b") == [other.token]


@pytest.mark.parametrize("options", [{"renew": 1}, {"renew_every_ms": 50}],
                         ids=["by the library's rule", "by the program's"])
def test_a_kept_lock_outlives_its_lease(connect, server, client, options):
    dlock = connect(server)
    lock = dlock.hold(["a", "b"], WAIT_MS, lease_ms=SHORT_MS, **options)
    dlock.hold("not kept", WAIT_MS, lease_ms=SHORT_MS)
    for _ in range(2):
        dlock.wait_for_renewals()
        server.clock.advance(0.4 * SHORT_MS / 1000)
    wait_until(lambda: is_free(client, "not kept"), "the end of a lease")
    assert lock.state == State.HELD
    assert holders(client, "a", "b") == [lock.token] * 2
    assert lock.release() == Status.OK


def test_a_key_of_another_type_does_not_keep_the_rest_locked(connect, server, client):
    lock = connect(server).hold(["a", "b"], lease_ms=600_000)
    client.delete("b")
    client.lpush("b", 1)
    assert lock.release() == Status.LOST
    wait_until(lambda: not client.exists("a"), "the release of a")
    assert client.lrange("b", 0, -1) == [b"1"]


def test_a_guarded_command_runs_while_the_first_name_is_held(connect, server, client):
    lock = connect(server).hold(["a", "b"])
    assert lock.guarded("SET", "x", "1") == (Status.OK, b"OK")
    client.delete("a")
    assert lock.guarded("SET", "x", "2")[0] == Status.LOST
    assert client.get("x") == b"1" and lock.state == State.LOST
    assert lock.release() == Status.LOST
    assert is_free(client, "a", "b")


def test_it_is_reentrant(connect, server, client):
    lock = connect(server).lock(["a", "b"])
    assert lock.acquire() == lock.acquire() == Status.OK
    assert lock.release() == Status.OK
    assert holders(client, "a", "b") == [lock.token] * 2
    assert lock.release() == Status.OK
    assert is_free(client, "a", "b")


def test_a_freed_handle_releases_all_names(connect, server, client):
    dlock = connect(server)
    lock = dlock.hold(["a", "b"])
    dlock.locks.remove(lock)
    lock.free()
    assert is_free(client, "a", "b")


def test_hot_names_do_not_hold_it_up(connect, server, client):
    dlock = connect(server)
    for name in ("a", "b", "a b"):
        assert dlock.hotspot_add(name) == Status.OK
    one, several = dlock.hold("a"), dlock.lock(["a", "b"])
    waits = Background(several.acquire, WAIT_MS)
    wait_for_waiters(client, 2)
    assert one.release() == Status.OK
    assert waits.result() == Status.OK
    assert several.release() == Status.OK
    assert is_free(client, "a", "b")


def test_log_and_events_name_all_of_them(connect, server, told, tmp_path):
    dlock = connect(server, on_event=told, prefix="p:", access_log_dir=str(tmp_path))
    lock = dlock.lock(["a", "b"])
    assert lock.acquire() == lock.release() == Status.OK
    assert told.find(Event.ACQUIRED, "p:a p:b") and told.find(Event.RELEASED, "p:a p:b")
    log = tmp_path / "dlock-access.log"
    wait_until(lambda: log.exists() and log.read_text().count("|p:a p:b|") == 2, "two lines")


# -- other deployments ----------------------------------------------------------------------------


def test_several_servers_take_all_names_each_in_one_step(connect, servers):
    dlock = connect(servers[:3])
    lock, other = dlock.lock(["a", "b"], lease_ms=60_000), dlock.lock(["b", "c"])
    clients = [server.client() for server in servers[:3]]
    assert lock.acquire() == Status.OK, lock.error
    assert other.acquire() == Status.BUSY
    assert lock.extend() == Status.OK
    for client in clients:
        wait_until(lambda: holders(client, "a", "b", "c") == [lock.token] * 2 + [None], "both")
    assert lock.release() == Status.OK
    for client in clients:
        wait_until(lambda: is_free(client, "a", "b", "c"), "nothing")


def test_a_majority_that_has_lost_a_name_has_lost_the_lock(connect, servers):
    lock = connect(servers[:3]).lock(["a", "b"], lease_ms=60_000)
    clients = [server.client() for server in servers[:3]]
    assert lock.acquire() == Status.OK, lock.error
    for client in clients:
        wait_until(lambda: holders(client, "a", "b") == [lock.token] * 2, "both")
    clients[0].delete("a")
    assert lock.extend() == Status.OK
    clients[1].delete("b")
    assert lock.extend() == Status.LOST
    assert lock.release() == Status.LOST
    for client in clients:
        wait_until(lambda: is_free(client, "a", "b"), "nothing")


def test_replicas_acknowledge_all_names_or_none_is_kept(connect, server, client, start_replica):
    replica = start_replica(server)
    dlock = connect(server, io_timeout_ms=10_000)
    lock = dlock.hold(["a", "b"], min_replicas=1, lease_ms=600_000, replica_timeout_ms=10_000)
    assert holders(replica.client(), "a", "b") == [lock.token] * 2
    assert lock.extend() == lock.release() == Status.OK
    hasty = dlock.lock(["a", "b"], min_replicas=2, lease_ms=600_000, replica_timeout_ms=50)
    assert hasty.acquire() == Status.NO_REPLICAS
    assert is_free(client, "a", "b")


def test_a_cluster_takes_names_of_one_slot(connect, cluster):
    lock = connect(cluster.url).hold(["{bank}a", "{bank}b"], renew=1)
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK


@pytest.mark.parametrize("moved", range(2))
def test_names_of_which_some_have_moved_are_not_lost(connect, cluster, moved):
    """While a slot moves, no node has both: the target would say that the other is lost."""
    key = cluster.key_on(0)
    names = ["{%s}a" % key, "{%s}b" % key]
    lock = connect(cluster.url).hold(names, lease_ms=600_000)
    target = cluster.nodes[1]
    cluster.begin_move(slot_of(key), 1)
    cluster.nodes[0].observer.execute_command("MIGRATE", target.host, target.known_port, "", 0,
                                              5000, "KEYS", names[moved])
    assert lock.extend() == Status.REFUSED and "moved" in lock.error
    assert lock.state == State.HELD
    cluster.move_keys(slot_of(key), 1)
    assert lock.extend() == Status.OK, "all are at the target"
    cluster.end_move(slot_of(key), 1)
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK
