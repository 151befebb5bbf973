"""Names in several slots of a cluster: one lock, a part for each slot."""

import itertools
import threading

import pytest

from support.commands import Lock as Commands
from support.commands import stats, tokens_at
from support.libdlock import Background, Event, State, Status
from support.server import wait_until
from support.waiting import outlive_the_lease, wait_for_waiter

WAIT_MS = 50_000
LEASE_MS = 600_000
SHORT_MS = 6000  # is extended while a test waits for something


@pytest.fixture
def dlock(in_cluster):
    return in_cluster


@pytest.fixture
def names(cluster):
    """One at each node, in the order of their slots."""
    return [cluster.key_on(number) for number in range(3)]


@pytest.fixture
def holders(cluster, names):
    """holders(): the token that holds each of the names, or None."""
    def read():
        tokens = [tokens_at(cluster.owner(name).observer, name) for name in names]
        return [held[0].encode() if held else None for held in tokens]
    return read


@pytest.fixture
def wait_until_free(holders):
    return lambda: wait_until(lambda: holders() == [None] * 3, "all names to be free")


# -- all or none ----------------------------------------------------------------------------------


def test_all_parts_have_one_token_and_the_fence_is_that_of_the_first_name(dlock, names, holders):
    for order in itertools.permutations(names):
        lock = dlock.hold(list(order), lease_ms=LEASE_MS)
        assert holders() == [lock.token] * 3
        assert dlock.inspect(order[0])[0][2] == lock.fence
        assert lock.release() == Status.OK
        assert holders() == [None] * 3


def test_names_of_a_slot_are_taken_in_one_step(dlock, names, holders, cluster):
    lock = dlock.lock([names[1], "{%s}b" % names[0], names[2], names[0]], lease_ms=LEASE_MS)
    granted = stats(cluster.nodes[0].observer)["granted"]
    assert lock.acquire() == Status.OK, lock.error
    assert holders() == [lock.token] * 3
    assert stats(cluster.nodes[0].observer)["granted"] == granted + 2
    fences = {dlock.inspect(name)[0][2] for name in (names[0], "{%s}b" % names[0])}
    assert len(fences) == 1
    assert tokens_at(cluster.nodes[0].observer, "{%s}b" % names[0]) == [lock.token.decode()]
    assert lock.release() == Status.OK
    assert not any(node.observer.dbsize() for node in cluster.nodes)


@pytest.mark.parametrize("taken", range(3))
def test_none_is_kept_while_one_of_them_is_held(dlock, names, holders, taken):
    other, lock = dlock.hold(names[taken], lease_ms=LEASE_MS), dlock.lock(names)
    assert lock.acquire() == Status.BUSY
    wait_until(lambda: holders().count(None) == 2, "the parts to be given back")
    assert holders()[taken] == other.token
    assert lock.acquire(50) == Status.TIMEOUT
    wait_until(lambda: holders().count(None) == 2, "the parts to be given back")
    assert other.release() == Status.OK
    assert lock.acquire() == Status.OK


def test_a_session_is_refused(dlock, names):
    with pytest.raises(ValueError) as refused:
        dlock.lock(names, session=1)
    assert refused.value.args[0] == Status.INVALID
    assert "the same hash tag" in refused.value.args[1]


def test_a_part_that_no_replica_acknowledges_gives_all_back(dlock, names, wait_until_free):
    lock = dlock.lock(names, min_replicas=1, replica_timeout_ms=50, lease_ms=LEASE_MS)
    assert lock.acquire() == Status.NO_REPLICAS
    wait_until_free()


# -- waiting --------------------------------------------------------------------------------------


def test_whoever_waits_holds_the_lower_slots_only(dlock, cluster, names, holders):
    other = dlock.lock(names[1], lease_ms=LEASE_MS)
    lock = dlock.lock(names[::-1], lease_ms=LEASE_MS)
    assert other.acquire() == Status.OK
    waits = Background(lock.acquire, WAIT_MS)
    wait_for_waiter(cluster.nodes[1], names[1])
    assert holders() == [lock.token, other.token, None]
    assert other.release() == Status.OK
    assert waits.result() == Status.OK, lock.error
    assert holders() == [lock.token] * 3


def test_a_canceled_wait_leaves_nothing_behind(dlock, cluster, names, holders, wait_until_free):
    other, lock = dlock.hold(names[2], lease_ms=LEASE_MS), dlock.lock(names, lease_ms=LEASE_MS)
    waits = Background(lock.acquire, WAIT_MS)
    wait_for_waiter(cluster.nodes[2], names[2])
    lock.cancel()
    assert waits.result() == Status.CANCELED
    wait_until(lambda: stats(cluster.nodes[2].observer)["waiters"] == 0, "nobody to wait")
    assert other.release() == Status.OK
    wait_until_free()


def test_parts_are_extended_while_the_next_one_is_awaited(dlock, cluster, names, holders):
    other, lock = dlock.hold(names[1], lease_ms=LEASE_MS), dlock.lock(names, lease_ms=SHORT_MS)
    waits = Background(lock.acquire, WAIT_MS)
    wait_for_waiter(cluster.nodes[1], names[1])
    token, fence = holders()[0], dlock.inspect(names[0])[0][2]
    outlive_the_lease(cluster.nodes[0], SHORT_MS / 1000)
    assert other.release() == Status.OK
    assert waits.result() == Status.OK, lock.error
    assert holders() == [token] * 3 and lock.fence == fence
    assert lock.state == State.HELD


def test_a_part_that_is_lost_meanwhile_is_taken_anew(dlock, cluster, names, holders):
    other, thief = (dlock.lock(names[i], lease_ms=LEASE_MS) for i in (1, 0))
    lock = dlock.lock(names, lease_ms=SHORT_MS)
    assert other.acquire() == Status.OK
    waits = Background(lock.acquire, WAIT_MS)
    wait_for_waiter(cluster.nodes[1], names[1])
    cluster.nodes[0].observer.delete(names[0])
    assert thief.acquire(WAIT_MS) == Status.OK
    wait_for_waiter(cluster.nodes[0], names[0])  # from the first slot on
    wait_until(lambda: stats(cluster.nodes[1].observer)["waiters"] == 0, "the place to be left")
    assert waits.is_running()
    assert thief.release() == other.release() == Status.OK
    assert waits.result() == Status.OK, lock.error
    assert holders() == [lock.token] * 3


def test_opposite_orders_never_block_each_other(connect, cluster, names, wait_until_free):
    inside, results = [], []

    def move(dlock, chosen):
        lock = dlock.lock(chosen, lease_ms=LEASE_MS)
        for _ in range(20):
            if lock.acquire(WAIT_MS) != Status.OK:
                results.append(lock.error)
                return
            inside.append(chosen)
            others = [each for each in inside if each is not chosen and set(each) & set(chosen)]
            results.append(len(others))
            inside.remove(chosen)
            results.append(lock.release())

    clients = [connect(cluster.url) for _ in range(2)]
    orders = [*itertools.permutations(names, 2), *itertools.permutations(names, 3)]
    threads = [threading.Thread(target=move, args=(clients[i % 2], list(order)))
               for i, order in enumerate(orders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_MS / 1000)
    assert results == [0] * 2 * 20 * len(orders)
    wait_until_free()


# -- held -----------------------------------------------------------------------------------------


def test_an_extension_extends_every_part(dlock, cluster, names):
    lock = dlock.hold(names, lease_ms=60_000)
    assert lock.extend(LEASE_MS) == Status.OK
    assert lock.remaining_ms > LEASE_MS - 50_000
    for name in names:
        assert Commands(cluster.owner(name).observer, name).info()["ttl"] > LEASE_MS - 50_000


def test_a_lost_part_loses_the_lock(dlock, cluster, names, wait_until_free):
    lock = dlock.lock(names, lease_ms=LEASE_MS)
    for name in names:
        assert lock.acquire() == Status.OK
        cluster.owner(name).observer.delete(name)
        assert lock.extend() == Status.LOST
        assert lock.release() == Status.LOST
        wait_until_free()


@pytest.mark.parametrize("options", [{"renew": 1}, {}])
def test_a_part_that_is_deleted_is_told_at_once(connect, cluster, names, told, wait_until_free,
                                                options):
    lock = connect(cluster.url, on_event=told).lock(names, lease_ms=LEASE_MS, **options)
    for name in names:
        assert lock.acquire() == Status.OK
        cluster.owner(name).observer.delete(name)
        wait_until(lambda: told.find(Event.LOST, " ".join(names)), "the loss")
        assert lock.state == State.LOST
        assert lock.release() == Status.LOST
        wait_until_free()
        told.all.clear()


@pytest.mark.parametrize("options", [{"renew": 1}, {"renew_every_ms": 50}],
                         ids=["by the library's rule", "by the program's"])
def test_all_parts_are_kept_beyond_their_lease(dlock, cluster, names, holders, options):
    lock = dlock.hold(names, WAIT_MS, lease_ms=SHORT_MS, **options)
    for _ in range(3):
        dlock.wait_for_renewals()
        for node in cluster.nodes:
            node.clock.advance(0.4 * SHORT_MS / 1000)
    assert holders() == [lock.token] * 3 and lock.state == State.HELD
    assert lock.release() == Status.OK


def test_a_guarded_command_goes_to_the_slot_of_the_first_name(dlock, cluster, names):
    lock = dlock.hold(names[::-1], lease_ms=LEASE_MS)
    assert lock.guarded("SET", "{%s}x" % names[2], "1") == (Status.OK, b"OK")
    assert lock.guarded("SET", "{%s}x" % names[0], "1")[0] == Status.REFUSED
    cluster.nodes[2].observer.delete(names[2])
    assert lock.guarded("SET", "{%s}x" % names[2], "2")[0] == Status.LOST
    assert cluster.nodes[2].observer.get("{%s}x" % names[2]) == b"1"


def test_it_is_reentrant_and_a_freed_handle_releases_all_parts(dlock, names, holders):
    lock = dlock.lock(names)
    assert lock.acquire() == lock.acquire() == Status.OK
    assert lock.release() == Status.OK
    assert holders() == [lock.token] * 3
    dlock.locks.remove(lock)
    lock.free()
    assert holders() == [None] * 3
