"""Locks of client/python in a cluster: each at the session of its own node."""

import asyncio
import socket
import threading

import pytest
import redis
import redis.asyncio

import dlock
from support.cluster import Cluster, slot_of
from support.commands import fence_at, stats
from support.server import free_port, running, stopped, wait_until
from support.waiting import wait_for_waiters

NAME, ITEMS = "{shop}stock", "{shop}items"


@pytest.fixture
def connect_to(connect, form, loop):
    """connect_to(node, **options): a Client of the cluster of this node."""
    package, made = redis if form == "threads" else redis.asyncio, []

    def make(node, **options):
        made.append(package.RedisCluster(host="127.0.0.1", port=node.port))
        return connect(made[-1], **options)

    yield make
    for known in made:
        if loop:
            loop.run(known.close())


@pytest.fixture
def client(connect_to, cluster):
    return connect_to(cluster.nodes[0])


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


def test_a_wait_follows_its_slot(client, hold, cluster, begin):
    ours = hold(NAME, lease=600)
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


@pytest.mark.parametrize("wait", [0, 60])
def test_a_lock_of_a_slot_that_has_moved_is_kept_by_its_new_node(client, hold, cluster, begin,
                                                                 wait):
    """Both nodes know a session of the client, and the client does not know of the move."""
    slot = slot_of(NAME)
    target = (cluster.owners[slot] + 1) % 3
    other = hold(cluster.key_on(target))
    with client.lock(NAME):
        pass
    node = move(cluster)
    node.observer.execute_command("DLOCK.ACQUIRE", NAME, "me", "PX", 600_000)
    if not wait:
        node.observer.execute_command("DLOCK.RELEASE", NAME, "me")
    lock = client.lock(NAME, wait=wait)
    wanted = begin(lock.acquire)
    if wait:
        wait_for_waiters(node.observer, 1)
        node.observer.execute_command("DLOCK.RELEASE", NAME, "me")
    assert wanted.result() == fence_at(node.observer, NAME)
    node.observer.delete(NAME)
    wait_until(lock.lost.is_set, "the loss", timeout=10)
    other.release()


@pytest.mark.parametrize("wait", [0, 60])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_lock_is_kept_at_the_other_side_of_a_move(connect_to, cluster, begin, wait, is_known):
    """The slot is still that of the first node, which says of each lock where it is."""
    slot, client = slot_of(NAME), connect_to(cluster.nodes[0], io_timeout=4.0)
    target = (cluster.owners[slot] + 1) % 3
    node = cluster.nodes[target]
    with client.lock(NAME):
        pass
    if is_known:
        client.lock(cluster.key_on(target)).acquire()
    cluster.begin_move(slot, target)
    try:
        lock = client.lock(NAME, wait=wait)
        if wait:
            node.observer.execute_command("ASKING")
            node.observer.execute_command("DLOCK.ACQUIRE", NAME, "me", "PX", 600_000)
        wanted = begin(lock.acquire)
        if wait:
            wait_for_waiters(node.observer, 1)
            node.observer.execute_command("ASKING")
            node.observer.execute_command("DLOCK.RELEASE", NAME, "me")
        assert wanted.result() == lock.fence
        assert stats(node.observer)["session_holds"] == 1 + is_known
    finally:
        cluster.end_move(slot, target)
    node.observer.delete(NAME)
    wait_until(lock.lost.is_set, "the loss", timeout=10)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_kept_lock_stays_ours_however_long_its_slot_moves(connect_to, cluster, is_known):
    slot = slot_of(NAME)
    target = (cluster.owners[slot] + 1) % 3
    node = cluster.nodes[target]
    client = connect_to(cluster.nodes[0], session_timeout=10.0, io_timeout=2.5)
    if is_known:
        client.lock(cluster.key_on(target)).acquire()
    with client.lock(NAME) as held:
        cluster.begin_move(slot, target)
        try:
            cluster.move_keys(slot, target)
            wait_until(lambda: stats(node.observer)["session_holds"] == 1 + is_known or
                       held.lost.is_set(), "the hold to move")
            assert held.held and not held.lost.is_set()
        finally:
            cluster.end_move(slot, target)
    assert fence_at(node.observer, NAME) is None


@pytest.mark.parametrize("form", ["asyncio"], indirect=True)
def test_a_slot_without_a_node_is_looked_for_again(connect_to, start_server):
    """As by a program that is started before its cluster is complete. The cluster of redis-py for
    threads cannot be made before."""
    server = start_server("--cluster-enabled", "yes", "--cluster-port", free_port())
    client = connect_to(server)
    with pytest.raises(dlock.Unreachable):
        client.lock("lock", lease=60).acquire()
    server.observer.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    with client.lock("lock", wait=20):
        pass


def test_a_lock_that_has_moved_is_released_where_it_is(client, hold, cluster):
    lock = hold(NAME, lease=600)
    target = move(cluster)
    lock.extend()
    lock.release()
    assert fence_at(target.observer, NAME) is None
    with client.lock(NAME, wait=20):
        with pytest.raises(dlock.Busy):
            lock.acquire()


def test_every_name_is_asked_for_at_the_other_side_of_a_move(hold, cluster):
    slot = slot_of(NAME)
    target = (cluster.owners[slot] + 1) % 3
    lock = hold(NAME, ITEMS, lease=600)
    cluster.begin_move(slot, target)
    cluster.move_keys(slot, target)
    lock.extend()
    cluster.end_move(slot, target)
    lock.release()
    assert stats(cluster.nodes[target].observer)["held"] == 0


@pytest.mark.parametrize("form", ["asyncio"], indirect=True)
def test_a_close_that_is_canceled_ends_the_sessions_at_all_nodes(client, hold, cluster, loop):
    locks = [hold(cluster.key_on(node)) for node in range(3)]

    async def close():
        await asyncio.wait_for(client.it.close(), 0.1)
    with stopped(cluster.nodes[0]):
        with pytest.raises(asyncio.TimeoutError):
            loop.run(close())
        assert all(lock.lost.is_set() for lock in locks)
    for node in cluster.nodes:
        node.observer.flushall()


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_nodes_may_be_reached_by_another_address(client, cluster):
    client._redis.nodes_manager.address_remap = lambda address: ("localhost", address[1])
    with client.lock(NAME) as held:
        assert fence_at(cluster.owner(NAME).observer, NAME) == held.fence
    assert all(host == "localhost" for host, _ in client._owners.values())


@pytest.mark.parametrize("form", ["threads"], indirect=True)
def test_addresses_that_no_node_has_any_more_cost_nothing(client, cluster, monkeypatch):
    """As of pods, which get new ones."""
    resolve, number = socket.getaddrinfo, 0
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **options: resolve(
        "127.0.0.1" if host.endswith(".example") else host, *more, **options))
    client._redis.nodes_manager.address_remap = lambda address: (
        f"pod{number}.example", address[1])
    for number in range(8):
        client._is_stale = True
        with client.lock(NAME):
            pass
    assert len(client._servers) <= 6
    wait_until(lambda: [each.name for each in threading.enumerate()].count("dlock-session") <= 2,
               "the end of the other threads")


def test_nodes_that_fail(connect_to):
    with running(Cluster()) as cluster:
        for node in cluster.nodes:  # they serve what they have, also when another one is dead
            node.observer.config_set("cluster-require-full-coverage", "no")
        client = connect_to(cluster.nodes[0], io_timeout=2.5, session_timeout=10.0)
        key = cluster.key_on(0)

        kept = client.lock(key)
        kept.acquire(wait=20)
        with stopped(cluster.nodes[0]):
            wait_until(kept.lost.is_set, "the loss, although the first node hangs")
        cluster.wait_until_ready()
        with client.lock(key, wait=40):
            pass

        leased = client.lock(key, lease=600)
        with leased:
            pass
        cluster.move(slot_of(key), 1)
        moved = client.lock(key)
        cluster.nodes[0].kill()
        with pytest.raises(dlock.Unreachable):
            client.lock(cluster.key_on(0), lease=600).acquire()
        leased.acquire()
        leased.release()

        moved.acquire(wait=20)
        for node in cluster.nodes[1:]:
            node.kill()
        wait_until(moved.lost.is_set, "the loss, although no node is left")
        for options in {}, {"lease": 60}:
            with pytest.raises(dlock.Unreachable):
                client.lock(key, **options).acquire()


@pytest.mark.limit(180, "waits for the failover of a cluster")
@pytest.mark.long("a failover takes the timeout of a node")
def test_locks_follow_a_failover(connect_to, begin):
    with running(Cluster(replicas=3)) as cluster:
        client = connect_to(cluster.nodes[1], io_timeout=2.0, session_timeout=60.0)
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
