"""Locks in a cluster: at the node that has the slot, and while slots move."""

import threading
import time

import pytest

from support import figures
from support.cluster import assert_fences_grow_over_moves, slot_of, url_of
from support.acl import LOCKS, rules_for, set_user
from support.commands import Lock as Commands
from support.every_deployment import Deployment, EveryDeployment
from support.libdlock import SPIN, Background, Event, State, Status, Told
from support.server import free_port, wait_until
from support.waiting import wait_for_waiter

IO_MS = 5000  # where an answer comes, it may be late
ROUNDS = 6


@pytest.fixture
def dlock(in_cluster):
    return in_cluster


def seen(cluster, key):
    """By its owner."""
    return Commands(cluster.owner(key).observer, key).info()


@pytest.mark.parametrize("number", range(3))
def test_one_seed_is_enough_for_locks_at_all_nodes(cluster, connect, number):
    dlock = connect(url_of(cluster.nodes[number]), io_timeout_ms=IO_MS)
    for name in map(cluster.key_on, range(3)):
        lock = dlock.hold(name)
        assert seen(cluster, name)["token"] == lock.token


def test_a_dead_seed_does_not_matter(cluster, connect):
    dlock = connect(url_of(free_port(), cluster.nodes[2]), io_timeout_ms=IO_MS)
    dlock.hold()


def test_names_with_a_hash_tag_are_together(cluster, dlock):
    dlock.hold("{%s}:tagged" % cluster.key_on(1))
    assert cluster.nodes[1].observer.dbsize() == 1


def test_a_slot_that_has_moved_is_found_at_once(cluster, dlock):
    key = cluster.key_on(0)
    lock = dlock.hold(key)
    cluster.move(slot_of(key), 1)
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK
    fence = lock.fence
    assert lock.acquire() == Status.OK
    assert lock.fence > fence
    assert lock.timings.attempts == 1
    assert seen(cluster, key)["token"] == lock.token


def test_a_key_of_a_slot_that_moves_is_where_it_is_by_now(cluster, dlock):
    """The source says ASK for what it has not, the target grants it after ASKING."""
    key = cluster.key_on(0)
    lock, other = dlock.hold(key), dlock.lock("{%s}:new" % key)
    cluster.begin_move(slot_of(key), 1)
    assert lock.extend() == Status.OK, "it is still here"
    cluster.move_keys(slot_of(key), 1)
    for each in (lock.extend, other.acquire, other.extend, other.release, lock.release):
        assert each() == Status.OK, (each, lock.error, other.error)
    assert cluster.nodes[0].observer.dbsize() == cluster.nodes[1].observer.dbsize() == 0


def test_a_waiter_is_sent_after_the_slot(cluster, dlock):
    key = cluster.key_on(0)
    holder, waiter = dlock.hold(key, lease_ms=60_000), dlock.lock(key)
    fence = holder.fence
    waiting = Background(waiter.acquire, 30_000)
    wait_for_waiter(cluster.nodes[0], key)
    cluster.move(slot_of(key), 1)
    wait_for_waiter(cluster.nodes[1], key)
    assert holder.release() == Status.OK
    assert waiting.result() == Status.OK
    assert waiter.fence > fence


def test_a_slot_that_nobody_has_is_waited_for(cluster, dlock):
    key = cluster.key_on(2)
    node, slot = cluster.nodes[2], slot_of(key)
    lock = dlock.hold(key)
    assert lock.release() == Status.OK
    node.observer.execute_command("CLUSTER", "DELSLOTS", slot)
    try:
        assert lock.acquire() == Status.REFUSED
        assert "CLUSTERDOWN" in lock.error and "127.0.0.1:" in lock.error
        waiting = Background(lock.acquire, 30_000)
        before = dlock.stats().commands
        wait_until(lambda: dlock.stats().commands >= before + 2, "attempts in vain")
        assert waiting.is_running()
    finally:
        node.observer.execute_command("CLUSTER", "ADDSLOTS", slot)
        cluster.wait_until_ready()
    assert waiting.result() == Status.OK


class Worker(threading.Thread):
    """Takes the one lock again and again, and looks whether it is alone."""

    def __init__(self, dlock, key, work):
        super().__init__(daemon=True)
        self.lock = dlock.lock(key, lease_ms=60_000)
        self.work = work
        self.failure = None
        self.start()

    def run(self):
        try:
            while not self.work.is_over:
                assert self.lock.acquire(30_000) == Status.OK, self.lock.error
                assert self.work.inside.acquire(blocking=False), "two holders"
                self.work.fences.append(self.lock.fence)
                time.sleep(0.0005)
                self.work.inside.release()
                assert self.lock.release() == Status.OK, self.lock.error
        except AssertionError as failure:
            self.failure = failure


class Work:
    def __init__(self, clients, key):
        self.is_over = False
        self.inside = threading.Lock()
        self.fences = []
        self.workers = [Worker(dlock, key, self) for dlock in clients]

    def wait_for_more(self, count):
        enough = len(self.fences) + count

        def is_there():
            for worker in self.workers:
                if worker.failure:
                    raise worker.failure
            return len(self.fences) >= enough
        wait_until(is_there, f"{count} more grants", timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.is_over = True
        for worker in self.workers:
            worker.join(60)
            assert not worker.is_alive(), "it hangs"
            assert worker.failure is None


NAMES = {"one name": lambda cluster, key: key,
         "two of one slot": lambda cluster, key: ["{%s}a" % key, "{%s}b" % key],
         "two of two slots": lambda cluster, key: [key, cluster.key_on(2)],
         "two of two slots, the lower one last": lambda cluster, key: [cluster.key_on(2), key]}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("wait_mode", [0, SPIN], ids=["parked", "spinning"])
def test_moves_under_load_reach_no_caller(cluster, connect, wait_mode, names):
    key = cluster.key_on(0)
    wanted = NAMES[names](cluster, key)
    meanwhile = 0 if names == "two of one slot" else 2  # a server says TRYAGAIN until the end
    clients = [connect(url_of(*cluster.nodes), io_timeout_ms=IO_MS, wait_mode=wait_mode,
                       spin_min_ms=1, spin_random_ms=2) for _ in range(2)]
    with Work(clients * 3, wanted) as work:
        for i in range(ROUNDS):
            target = (i + 1) % 2
            cluster.begin_move(slot_of(key), target)
            work.wait_for_more(meanwhile)
            cluster.move_keys(slot_of(key), target)
            work.wait_for_more(meanwhile)
            cluster.end_move(slot_of(key), target)
            work.wait_for_more(5)
    assert_fences_grow_over_moves(work.fences)
    figures.tell(f"Cluster: libdlock {'spinning' if wait_mode else 'parked'}, {ROUNDS} moves of a "
                 f"slot under load, {names}, {len(work.fences)} grants, 0 double, 0 errors")


def test_locks_that_are_renewed_move_with_their_slot(cluster, connect):
    """Those of other slots, and sessions, which do not move, too."""
    told, key = Told(), cluster.key_on(0)
    dlock = connect(url_of(cluster.nodes[0]), on_event=told, io_timeout_ms=IO_MS)
    names = ["{%s}:%d" % (key, i) for i in range(20)] + [cluster.key_on(1), cluster.key_on(2)]
    locks = {name: dlock.lock(name, lease_ms=60_000, renew_every_ms=50, session=i % 5 == 0)
             for i, name in enumerate(names)}
    for lock in locks.values():
        assert lock.acquire() == Status.OK, lock.error
    fences = {name: lock.fence for name, lock in locks.items()}

    for target in (1, 0, 2, 0):
        cluster.begin_move(slot_of(key), target)
        dlock.wait_for_renewals(2 * len(locks))
        cluster.move_keys(slot_of(key), target)
        dlock.wait_for_renewals(2 * len(locks))
        cluster.end_move(slot_of(key), target)
        dlock.wait_for_renewals(2 * len(locks))
        assert {name: seen(cluster, name)["fence"] for name in names} == fences
    assert {event for event, *_ in told.all} <= {Event.ACQUIRED, Event.SUSPECT}
    assert {lock.state for lock in locks.values()} == {State.HELD}
    assert {lock.release() for lock in locks.values()} == {Status.OK}


def test_a_server_that_is_no_cluster_is_refused(connect, server):
    """It would grant everything: two of them, everything twice."""
    lock = connect(url_of(server), io_timeout_ms=IO_MS).lock()
    assert lock.acquire(10_000) == Status.PROTOCOL
    assert "cluster support disabled" in lock.error
    assert f"127.0.0.1:{server.port}" in lock.error


def test_lock_and_data_with_the_same_hash_tag_go_together(cluster, dlock):
    for number in range(3):
        tag = "{%s}" % cluster.key_on(number)
        lock = dlock.hold(tag + "lock", wait_ms=20_000)
        assert lock.guarded("SET", tag + "stock", 41) == (Status.OK, b"OK")
        assert cluster.nodes[number].observer.get(tag + "stock") == b"41"


def test_a_guarded_command_on_data_elsewhere_is_refused(cluster, dlock):
    lock = dlock.hold(cluster.key_on(0), wait_ms=20_000)
    status, _ = lock.guarded("SET", cluster.key_on(1), 41)
    assert status == Status.REFUSED and "CROSSSLOT" in lock.error
    assert lock.state == State.HELD


def test_a_guarded_command_follows_a_slot_that_has_moved(cluster, dlock):
    tag = "{%s}" % cluster.key_on(0)
    lock = dlock.hold(tag + "lock", lease_ms=60_000, wait_ms=20_000)
    assert lock.guarded("INCR", tag + "n") == (Status.OK, 1)
    cluster.move(slot_of(cluster.key_on(0)), 1)
    assert lock.guarded("INCR", tag + "n") == (Status.OK, 2)
    assert cluster.nodes[1].observer.get(tag + "n") == b"2"


def test_a_name_is_watched_after_its_slot_has_moved(cluster, dlock):
    key = cluster.key_on(0)
    watcher = dlock.watch(key)
    wait_until(lambda: watcher.told == [None], "the state at the begin")
    cluster.move(slot_of(key), 1)
    Commands(cluster.nodes[1].observer, key).acquire("a")
    wait_until(lambda: watcher.now() == b"a", "the holder at the new node")


def test_the_acl_rules_of_the_page_are_enough_for_a_slot_that_moves(cluster, connect):
    """The lock is taken at its new node, after ASK."""
    name, url = cluster.key_on(0), url_of(*cluster.nodes, login="app:x@")
    for rules, is_moving, expected in (LOCKS, False, Status.REFUSED), \
            (LOCKS + rules_for("Cluster"), True, Status.OK):
        for node in cluster.nodes:
            set_user(node, rules, keys="~lock*")
        if is_moving:
            cluster.begin_move(slot_of(name), 1)
        assert connect(url).lock(name).acquire(20_000) == expected


class TestAsEveryDeployment(EveryDeployment):
    @pytest.fixture
    def deployment(self, cluster):
        return Deployment(url_of(cluster.nodes[0]), list(map(cluster.key_on, range(3))),
                          lambda name: [cluster.owner(name)])
