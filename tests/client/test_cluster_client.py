"""Locks in a cluster: at the node that has the slot, while slots move, and nodes that are wrong."""

import threading
import time

import pytest

from support import figures
from support.cluster import Cluster, slot_of
from support.commands import Lock as Commands
from support.every_deployment import Deployment, EveryDeployment
from support.fake_server import CUT, SILENCE, resp
from support.libdlock import SPIN, Background, Event, State, Status, Told
from support.server import free_port, running, wait_until
from support.waiting import wait_for_waiter

IO_MS = 5000  # where an answer comes, it may be late
ROUNDS = 6
REDIRECTIONS_MAX = 5  # of cluster.c


def url_of(*nodes):
    return "redis+cluster://" + ",".join(f"127.0.0.1:{getattr(n, 'port', n)}" for n in nodes)


# -- real ones ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_cluster():
    with running(Cluster()) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """Empty, and with all its slots in place, after the test."""
    yield shared_cluster
    shared_cluster.end_moves()


@pytest.fixture
def dlock(cluster, connect):
    return connect(url_of(*cluster.nodes), io_timeout_ms=IO_MS)


def seen(cluster, key):
    """By its owner."""
    return Commands(cluster.owner(key).observer, key).info()


@pytest.mark.parametrize("number", range(3))
def test_one_seed_is_enough_for_locks_at_all_nodes(cluster, connect, number):
    dlock = connect(url_of(cluster.nodes[number]), io_timeout_ms=IO_MS)
    for name in map(cluster.key_on, range(3)):
        lock = dlock.lock(name)
        assert lock.acquire() == Status.OK
        assert seen(cluster, name)["token"] == lock.token


def test_a_dead_seed_does_not_matter(cluster, connect):
    dlock = connect(url_of(free_port(), cluster.nodes[2]), io_timeout_ms=IO_MS)
    assert dlock.lock().acquire() == Status.OK


def test_names_with_a_hash_tag_are_together(cluster, dlock):
    lock = dlock.lock("{%s}:tagged" % cluster.key_on(1))
    assert lock.acquire() == Status.OK
    assert cluster.nodes[1].observer.dbsize() == 1


def test_a_slot_that_has_moved_is_found_at_once(cluster, dlock):
    key = cluster.key_on(0)
    lock = dlock.lock(key)
    assert lock.acquire() == Status.OK
    cluster.move(slot_of(key), 1)
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK
    fence = lock.fence
    assert lock.acquire() == Status.OK
    assert lock.fence > fence
    assert lock.timings.attempts == 1
    assert seen(cluster, key)["token"] == lock.token
    cluster.wait_until_settled()
    cluster.move(slot_of(key), 0)
    cluster.wait_until_settled()


def test_a_key_of_a_slot_that_moves_is_where_it_is_by_now(cluster, dlock):
    """The source says ASK for what it has not, the target grants it after ASKING."""
    key = cluster.key_on(0)
    lock, other = dlock.lock(key), dlock.lock("{%s}:new" % key)
    assert lock.acquire() == Status.OK
    cluster.begin_move(slot_of(key), 1)
    assert lock.extend() == Status.OK, "it is still here"
    cluster.move_keys(slot_of(key), 1)
    for each in (lock.extend, other.acquire, other.extend, other.release, lock.release):
        assert each() == Status.OK, (each, lock.error, other.error)
    assert cluster.nodes[0].observer.dbsize() == cluster.nodes[1].observer.dbsize() == 0


def test_a_waiter_is_sent_after_the_slot(cluster, dlock):
    key = cluster.key_on(0)
    holder, waiter = dlock.lock(key, lease_ms=60_000), dlock.lock(key)
    holder.acquire()
    fence = holder.fence
    waiting = Background(waiter.acquire, 30_000)
    wait_for_waiter(cluster.nodes[0], key)
    cluster.move(slot_of(key), 1)
    wait_for_waiter(cluster.nodes[1], key)
    assert holder.release() == Status.OK
    assert waiting.result() == Status.OK
    assert waiter.fence > fence
    cluster.wait_until_settled()
    cluster.move(slot_of(key), 0)
    cluster.wait_until_settled()


@pytest.mark.alone
def test_a_wait_that_is_redirected_ends_when_it_should(cluster, dlock):
    key = cluster.key_on(0)
    dlock.lock(key, lease_ms=60_000).acquire()
    begin = time.monotonic()
    waiting = Background(dlock.lock(key).acquire, 600)
    wait_for_waiter(cluster.nodes[0], key)
    cluster.move(slot_of(key), 1)
    wait_for_waiter(cluster.nodes[1], key)
    assert waiting.result() == Status.TIMEOUT
    assert 0.6 <= time.monotonic() - begin < 2
    cluster.wait_until_settled()
    cluster.move(slot_of(key), 0)
    cluster.wait_until_settled()


def test_a_slot_that_nobody_has_is_waited_for(cluster, dlock):
    key = cluster.key_on(2)
    node, slot = cluster.nodes[2], slot_of(key)
    lock = dlock.lock(key)
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.OK
    node.observer.execute_command("CLUSTER", "DELSLOTS", slot)
    try:
        assert lock.acquire() == Status.REFUSED
        assert "CLUSTERDOWN" in lock.error and "127.0.0.1:" in lock.error
        waiting = Background(lock.acquire, 30_000)
        time.sleep(0.1)
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


@pytest.mark.parametrize("wait_mode", [0, SPIN], ids=["parked", "spinning"])
def test_moves_under_load_reach_no_caller(cluster, connect, wait_mode):
    key = cluster.key_on(0)
    clients = [connect(url_of(*cluster.nodes), io_timeout_ms=IO_MS, wait_mode=wait_mode,
                       spin_min_ms=1, spin_random_ms=2) for _ in range(2)]
    with Work(clients * 3, key) as work:
        for i in range(ROUNDS):
            target = (i + 1) % 2
            cluster.begin_move(slot_of(key), target)
            work.wait_for_more(2)
            cluster.move_keys(slot_of(key), target)
            work.wait_for_more(2)
            cluster.end_move(slot_of(key), target)
            work.wait_for_more(5)
            cluster.wait_until_settled()
    assert work.fences == sorted(set(work.fences)), "a fence that does not grow"
    figures.tell(f"Cluster: libdlock {'spinning' if wait_mode else 'parked'}, {ROUNDS} moves of a "
                 f"slot under load, {len(work.fences)} grants, 0 double, 0 errors")


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

    def wait_for_renewals():
        enough = dlock.stats().renewed + 2 * len(locks)
        wait_until(lambda: dlock.stats().renewed >= enough, "renewals")

    for target in (1, 0, 2, 0):
        cluster.begin_move(slot_of(key), target)
        wait_for_renewals()
        cluster.move_keys(slot_of(key), target)
        wait_for_renewals()
        cluster.end_move(slot_of(key), target)
        wait_for_renewals()
        cluster.wait_until_settled()
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


class TestAsEveryDeployment(EveryDeployment):
    @pytest.fixture
    def deployment(self, cluster):
        return Deployment(url_of(cluster.nodes[0]), list(map(cluster.key_on, range(3))),
                          lambda name: [cluster.owner(name)])


# -- false ones -----------------------------------------------------------------------------------


def slots(*ranges):
    """A reply to CLUSTER SLOTS: of (first, last, host, port)."""
    return resp([[first, last, [host, port, "id"]] for first, last, host, port in ranges])


@pytest.fixture
def fake_node(fake_server):
    """fake_node(): has all slots, as "127.0.0.1", and grants everything; map, an answer, and reply,
    a function of the command, may be changed."""

    def make(host="127.0.0.1"):
        def answer(words):
            if words[0] == b"CLUSTER":
                return node.map
            if words[0] == b"ASKING":
                return b"+OK\r\n"
            return resp(node.reply(words))
        node = fake_server(answer)
        node.map = slots((0, 16383, host, node.port))
        node.reply = lambda words: 1
        return node
    return make


@pytest.fixture
def client_at(fake_server, connect):
    """Freed before the servers that it talks to."""
    return lambda *nodes, **options: connect(url_of(*nodes), io_timeout_ms=1000, **options)


@pytest.mark.parametrize("host", ["127.0.0.1", "", "?", None])
def test_a_host_that_a_node_does_not_know_is_the_one_that_was_asked(client_at, fake_node, host):
    node = fake_node(host)
    assert client_at(node).lock().acquire() == Status.OK
    assert len(node.asked("DLOCK.ACQUIRE")) == 1


@pytest.mark.parametrize("garbage", [
    b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"*0\r\n", b"*-1\r\n", b"*1\r\n:1\r\n", b"*1\r\n*0\r\n",
    resp([[0, 16384, ["127.0.0.1", 1]]]), resp([[-1, 5, ["127.0.0.1", 1]]]),
    resp([[5, 4, ["127.0.0.1", 1]]]), resp([[0, 5, ["127.0.0.1", 0]]]),
    resp([[0, 5, ["127.0.0.1", 65536]]]), resp([[0, 5, ["127.0.0.1"]]]), resp([[0, 5]]),
    resp([[0, 5, [[], 1]]]), resp([["0", "5", ["127.0.0.1", 1]]]),
    resp([[0, 16383, ["127.0.0.1", 1]], [0, 5]])], ids=repr)
def test_what_makes_no_sense_is_no_map(client_at, fake_node, garbage):
    mad, good = fake_node(), fake_node()
    mad.map = garbage
    lock = client_at(mad).lock()
    assert lock.acquire() == Status.UNREACHABLE
    assert f"127.0.0.1:{mad.port}: " in lock.error
    assert not mad.asked("DLOCK.ACQUIRE")
    assert client_at(mad, good).lock().acquire() == Status.OK
    assert len(good.asked("DLOCK.ACQUIRE")) == 1


@pytest.mark.alone
@pytest.mark.parametrize("silence", [SILENCE, CUT], ids=["silent", "cut"])
def test_a_node_without_an_answer_does_not_hold_up_the_others(client_at, fake_node, silence):
    bad, good = fake_node(), fake_node()
    bad.map = silence
    status, took_ms = client_at(bad, good).lock().timed_acquire()
    assert status == Status.OK
    assert took_ms < 500


@pytest.mark.alone
def test_no_node_is_there(client_at):
    port = free_port()
    lock = client_at(port).lock()
    status, took_ms = lock.timed_acquire(100)
    assert status == Status.UNREACHABLE
    assert f"127.0.0.1:{port}" in lock.error and "refused" in lock.error
    assert 100 <= took_ms < 1000


@pytest.mark.alone
def test_who_is_sent_in_circles_gives_up(client_at, fake_node):
    one, other = fake_node(), fake_node()
    one.reply = lambda words: Exception(f"MOVED 1 127.0.0.1:{other.port}")
    other.reply = lambda words: Exception(f"MOVED 1 127.0.0.1:{one.port}")
    lock = client_at(one).lock()
    status, took_ms = lock.timed_acquire()
    assert status == Status.REFUSED
    assert "MOVED" in lock.error and "127.0.0.1:" in lock.error
    asked = one.asked("DLOCK.ACQUIRE") + other.asked("DLOCK.ACQUIRE")
    assert len(asked) == REDIRECTIONS_MAX + 1
    status, took_ms = lock.timed_acquire(300)
    assert status == Status.REFUSED
    assert 300 <= took_ms < 1500


def test_a_host_that_a_redirection_does_not_name_is_the_one_that_was_asked(client_at, fake_node):
    one, other = fake_node(), fake_node()
    one.reply = lambda words: Exception(f"MOVED 1 :{other.port}")
    assert client_at(one).lock().acquire() == Status.OK
    assert len(other.asked("DLOCK.ACQUIRE")) == 1


def test_a_bad_redirection_is_an_answer_that_makes_no_sense(client_at, fake_node):
    node = fake_node()
    node.reply = lambda words: Exception("MOVED to the country")
    lock = client_at(node).lock()
    assert lock.acquire(10_000) == Status.PROTOCOL
    assert lock.error == f"127.0.0.1:{node.port}: MOVED to the country"


def test_ask_is_for_this_once(client_at, fake_node):
    here, there = fake_node(), fake_node()
    here.reply = lambda words: Exception(f"ASK {slot_of('lock')} 127.0.0.1:{there.port}")
    there.reply = lambda words: 1 if b"WAIT" in words else None  # held by another, for a moment
    lock = client_at(here).lock()
    assert lock.acquire(30_000) == Status.OK
    commands = [words[0] for words in there.requests]
    assert commands == [b"ASKING", b"DLOCK.ACQUIRE"] * 2
    assert there.requests[3][5] == b"WAIT" and 29_000 < int(there.requests[3][6]) <= 30_000
    here.reply = lambda words: 1
    assert lock.release() == Status.OK
    assert len(here.asked("DLOCK.RELEASE")) == 1
    assert not there.asked("DLOCK.RELEASE")


def test_moved_is_remembered(client_at, fake_node):
    here, there = fake_node(), fake_node()
    here.reply = lambda words: Exception(f"MOVED {slot_of('lock')} 127.0.0.1:{there.port}")
    here.map = there.map = slots((0, 16383, "127.0.0.1", here.port))
    lock = client_at(here).lock()
    for _ in range(5):
        assert lock.acquire() == Status.OK
        assert lock.release() == Status.OK
    assert len(here.asked("DLOCK.ACQUIRE")) <= 2  # and once more if the old map was read again


def test_the_map_is_not_asked_for_too_often(client_at, fake_node):
    node = fake_node()
    node.reply = lambda words: Exception("TRYAGAIN later")
    dlock = client_at(node, spin_min_ms=1, spin_random_ms=1)
    waiting = [Background(dlock.lock().acquire, 500) for _ in range(8)]
    assert {each.result() for each in waiting} == {Status.REFUSED}
    # Without a map each of the first asks for one.
    assert 0 < len(node.asked("CLUSTER")) <= 8 + 8
    assert len(node.asked("DLOCK.ACQUIRE")) > 100


def test_nodes_that_nobody_names_any_more_are_forgotten(client_at, fake_node):
    """More are named than there is room for, before there is another map. Nobody listens there."""
    node, other = fake_node(), fake_node()
    ports = iter(range(20_000, 30_000))  # an acquire may try two
    lock = client_at(node).lock()
    assert lock.acquire() == Status.OK
    lock.release()

    def send_on(words):
        if words[0] != b"DLOCK.ACQUIRE":
            return 1
        return Exception(f"ASK 1 127.0.0.2:{next(ports)}")
    node.reply, node.map = send_on, resp(Exception("ERR not now"))
    for _ in range(2500):
        assert lock.acquire() == Status.UNREACHABLE
    node.reply = lambda words: Exception(f"ASK 1 127.0.0.1:{other.port}")
    assert lock.acquire(1000) == Status.OK


def test_sessions_of_a_node_that_is_away_do_not_hold_up_renewals_elsewhere(connect, fake_node):
    away, there = fake_node(), fake_node()
    half = 8192
    away.map = there.map = slots((0, half - 1, "127.0.0.1", away.port),
                                 (half, 16383, "127.0.0.1", there.port))
    names = [f"lock:{i}" for i in range(200)]
    at_away = [name for name in names if slot_of(name) < half][:14]
    told, answer = Told(), away.answer
    dlock = connect(url_of(there), on_event=told, io_timeout_ms=300, connect_timeout_ms=100)
    for name in at_away:
        assert dlock.lock(name, session=True, lease_ms=60_000).acquire() == Status.OK
    elsewhere = next(name for name in names if slot_of(name) >= half)
    kept = dlock.lock(elsewhere, lease_ms=3500, renew_every_ms=300)
    assert kept.acquire() == Status.OK
    away.answer = lambda words: SILENCE
    away.break_connections()
    wait_until(lambda: all(told.find(Event.SUSPECT, name) for name in at_away),
               "that each is in question")
    wait_until(lambda: any(told.find(Event.LOST, name) for name in at_away),
               "that one is not answered", timeout=60)
    renewed = dlock.stats().renewed
    wait_until(lambda: dlock.stats().renewed >= renewed + 10, "renewals elsewhere", timeout=60)
    away.answer = answer
    assert Event.LOST not in told.events(elsewhere)
    assert kept.release() == Status.OK


def test_the_login_is_that_of_all_nodes(fake_server, connect):
    servers = []

    def answer(words):
        if words[0] == b"CLUSTER":
            return slots((0, 16383, "127.0.0.1", servers[1].port))
        return b"+OK\r\n" if words[0] == b"AUTH" else resp(1)
    servers += [fake_server(answer), fake_server(answer)]
    lock = connect(f"redis+cluster://me:secret@127.0.0.1:{servers[0].port}").lock()
    assert lock.acquire() == Status.OK
    for server in servers:
        assert server.asked("AUTH") == [[b"AUTH", b"me", b"secret"]]
