"""Locks of client/python in a cluster: each at the session of its own node."""

import pytest
import redis
import redis.asyncio

import dlock
from support.cluster import Cluster, slot_of
from support.commands import fence_at, stats
from support.server import running, wait_until
from support.waiting import wait_for_waiters

NAME, ITEMS = "{shop}stock", "{shop}items"


@pytest.fixture
def client(connect, cluster, form, loop):
    """Of all nodes."""
    package = redis if form == "threads" else redis.asyncio
    known = package.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port)
    yield connect(known)
    if loop:
        loop.run(known.close())


def move(cluster, name=NAME):
    """To another node, which is returned."""
    slot = slot_of(name)
    target = (cluster.owners[slot] + 1) % 3
    cluster.move(slot, target)
    return cluster.nodes[target]


def test_names_are_at_their_nodes(client, cluster):
    names = ["a", "b", "c", "d", "e", "f"]
    locks = [client.lock(name) for name in names]
    for lock in locks:
        lock.acquire()
    for name, lock in zip(names, locks):
        assert fence_at(cluster.owner(name).observer, name) == lock.fence
    assert all(stats(node.observer)["sessions"] <= 1 for node in cluster.nodes)
    for lock in locks:
        lock.release()


def test_names_that_are_taken_together_need_one_hash_tag(client, cluster):
    assert slot_of("stock") != slot_of("till")
    with pytest.raises(dlock.Refused, match="hash tag"):
        client.lock("stock", "till").acquire()
    with client.lock("{shop}:stock", "{shop}:till") as held:
        for name in "{shop}:stock", "{shop}:till":
            assert fence_at(cluster.owner(name).observer, name) == held.fence
    for node in cluster.nodes:
        assert stats(node.observer)["held"] == 0


def test_a_guarded_write_goes_to_the_node_of_its_lock(client, cluster):
    with client.lock(NAME) as held:
        assert held.guarded("SET", ITEMS, 41) == b"OK"
        with pytest.raises(redis.ResponseError):
            held.guarded("SET", "elsewhere", 1)
    assert cluster.owner(ITEMS).observer.get(ITEMS) == b"41"


def test_a_wait_follows_its_slot(client, cluster, begin):
    ours = client.lock(NAME, lease=600)
    ours.acquire()
    wanted = begin(client.lock(NAME).acquire, wait=60)
    wait_for_waiters(cluster.owner(NAME).observer, 1)
    target = move(cluster)
    wait_for_waiters(target.observer, 1)
    ours.release()
    assert wanted.result() == fence_at(target.observer, NAME)


def test_a_kept_lock_follows_its_slot(client, cluster):
    with client.lock(NAME) as held:
        target = move(cluster)
        wait_until(lambda: stats(target.observer)["session_holds"] == 1, "the hold to move")
        assert held.held and not held.lost.is_set()
        assert fence_at(target.observer, NAME) == held.fence
    assert fence_at(target.observer, NAME) is None


def test_a_lock_that_has_moved_is_released_where_it_is(client, cluster):
    lock = client.lock(NAME, lease=600)
    lock.acquire()
    target = move(cluster)
    lock.extend()
    lock.release()
    assert fence_at(target.observer, NAME) is None
    with client.lock(NAME, wait=20):
        with pytest.raises(dlock.Busy):
            lock.acquire()


@pytest.mark.limit(180, "waits for the failover of a cluster")
@pytest.mark.long("a failover takes the timeout of a node")
def test_locks_follow_a_failover(connect, form, loop, begin):
    package = redis if form == "threads" else redis.asyncio
    with running(Cluster(replicas=3)) as cluster:
        known = package.RedisCluster(host="127.0.0.1", port=cluster.nodes[1].port)
        client = connect(known, io_timeout=2.0, session_timeout=60.0)
        key = cluster.key_on(0)
        with client.lock(key, wait=20) as held:
            master = cluster.nodes[0].observer
            master.set("{%s}:after" % key, "that")
            assert master.execute_command("WAIT", 1, 20_000) == 1
            wanted = begin(client.lock(key).acquire, wait=120)
            wait_for_waiters(master, 1)
            cluster.nodes[0].kill()
            cluster.wait_for_promotion(0)
            new = cluster.replicas[0].observer
            wait_until(lambda: stats(new)["session_holds"] == 1, "the hold at the new master")
            wait_for_waiters(new, 1)
            assert fence_at(new, key) == held.fence and not held.lost.is_set()
        assert wanted.result() > held.fence
        client.close()
        if loop:
            loop.run(known.close())
