"""module/examples/dlock_lock.py and dlock_lock_async.py do what their first lines say.

Each test runs four times: with threads and with asyncio, at one server and in a cluster."""

import asyncio
import importlib.util
import threading
import time

import pytest
import redis
import redis.asyncio

from support.cluster import slot_of
from support.commands import fence_at, stats
from support.server import ROOT, stopped, wait_until
from support.waiting import assert_nobody_waits, wait_for_waiters

NAME, ITEMS = "{shop}stock", "{shop}items"
ONE_SERVER = pytest.mark.parametrize("home", ["one server"], indirect=True)
A_CLUSTER = pytest.mark.parametrize("home", ["a cluster"], indirect=True)


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"module/examples/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


threads, tasks = load("dlock_lock"), load("dlock_lock_async")
Busy, Lost = (threads.Busy, tasks.Busy), (threads.Lost, tasks.Lost)


class Loop:
    """An event loop in a thread of its own, for tests that are no coroutines."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def begin(self, coroutine):
        """The task that runs it."""
        async def start():
            return asyncio.ensure_future(coroutine)
        return self.run(start())

    def cancel(self, task):
        async def end():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        self.run(end())

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Waited:
    """A lock of asyncio, used by a test as one of threads."""

    def __init__(self, loop, lock):
        self.loop, self.lock, self.lost = loop, lock, self

    def __getattr__(self, name):
        if name in ("acquire", "release", "renew", "guarded"):
            return lambda *words: self.loop.run(getattr(self.lock, name)(*words))
        return getattr(self.lock, name)

    def wait(self, seconds):
        return self.loop.run(asyncio.wait_for(self.lock.lost.wait(), seconds))

    def is_set(self):
        return self.lock.lost.is_set()

    def __enter__(self):
        self.loop.run(self.lock.__aenter__())
        return self

    def __exit__(self, *error):
        self.loop.run(self.lock.__aexit__(*error))


@pytest.fixture(autouse=True)
def redirections(monkeypatch):
    """The other tests want the words of the server; a client of a cluster wants its classes."""
    classes = redis.connection.DefaultParser.EXCEPTION_CLASSES
    for code, name in (("ASK", "AskError"), ("MOVED", "MovedError"), ("TRYAGAIN", "TryAgainError"),
                       ("CLUSTERDOWN", "ClusterDownError")):
        monkeypatch.setitem(classes, code, getattr(redis.exceptions, name))


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.close()


@pytest.fixture(params=["one server", "a cluster"])
def home(request):
    """Where NAME and ITEMS are: one server, or some of a cluster."""
    if request.param == "one server":
        return [request.getfixturevalue("server")]
    return request.getfixturevalue("cluster").nodes


@pytest.fixture
def owner(home, request):
    """The server that has the lock."""
    return home[0] if len(home) == 1 else request.getfixturevalue("cluster").owner(NAME)


def new_client(home, package, socket_timeout):
    if len(home) == 1:
        return package.Redis(port=home[0].port, socket_timeout=socket_timeout)
    return package.RedisCluster(host="127.0.0.1", port=home[0].port, socket_timeout=socket_timeout)


@pytest.fixture(params=["threads", "asyncio"])
def make_lock(request, home):
    """make_lock(**options): each has a client of its own, which loses its patience soon."""
    if request.param == "threads":
        yield lambda socket_timeout=1.0, **options: threads.Lock(
            new_client(home, redis, socket_timeout), NAME, **options)
        return
    loop, clients = request.getfixturevalue("loop"), []

    async def make(socket_timeout=1.0, **options):
        clients.append(new_client(home, redis.asyncio, socket_timeout))
        if len(home) > 1:
            await clients[-1].initialize()
        return Waited(loop, tasks.Lock(clients[-1], NAME, **options))

    async def close_all():
        for client in clients:
            await client.close()

    yield lambda **options: loop.run(make(**options))
    loop.run(close_all())


def test_one_has_it_and_the_other_is_told_so(make_lock):
    ours, theirs = make_lock(), make_lock()
    assert ours.acquire() and ours.fence > 0
    assert not theirs.acquire() and theirs.fence == 0
    assert not theirs.release()
    assert 8 < ours.remaining() <= 10
    assert ours.release() and not ours.release()
    assert theirs.acquire() and theirs.fence > ours.fence


def test_a_wait_may_be_longer_than_the_timeout_of_the_sockets(make_lock, owner):
    ours, theirs = make_lock(lease=60), make_lock(socket_timeout=0.5, wait=30, lease=5)
    assert ours.acquire()
    wanted = threading.Thread(target=theirs.acquire)
    wanted.start()
    wait_for_waiters(owner.observer, 1)
    time.sleep(0.6)  # not for luck: longer than the timeout
    assert ours.release()
    wanted.join()
    assert theirs.fence > ours.fence
    assert theirs.remaining() > 4, "the wait is not taken from the lease"


def test_a_wait_ends_with_a_no(make_lock):
    assert make_lock().acquire()
    assert not make_lock(wait=0.05).acquire()


def test_with_gives_it_back_on_every_way_out(make_lock, owner):
    with pytest.raises(ZeroDivisionError), make_lock() as held:
        assert fence_at(owner.observer, NAME) == held.fence
        1 / 0
    assert owner.observer.dbsize() == 0


def test_with_says_busy(make_lock):
    with make_lock(), pytest.raises(Busy), make_lock():
        pass


@ONE_SERVER
def test_with_renews_it(make_lock, owner):
    with make_lock(lease=3) as held:
        wait_until(lambda: stats(owner.observer)["extended"] > 0, "a renewal")
        assert held.remaining() > 0 and not held.lost.is_set()
        assert not make_lock().acquire()


def test_with_tells_that_it_is_lost(make_lock, owner):
    with make_lock(lease=0.3) as held:
        owner.observer.delete(NAME)
        assert held.lost.wait(20)


@ONE_SERVER
def test_with_tells_that_it_is_lost_when_nobody_answers(make_lock, owner):
    with make_lock(lease=0.3, socket_timeout=0.1) as held, stopped(owner):
        assert held.lost.wait(20)
        assert held.remaining() == 0


@ONE_SERVER
def test_a_server_that_is_away_is_not_busy(make_lock, owner):
    ours = make_lock(socket_timeout=0.1)
    with stopped(owner), pytest.raises(redis.TimeoutError):
        ours.acquire()
    other = make_lock()
    owner.stop()
    with pytest.raises(redis.ConnectionError):
        other.acquire()


def test_readers_share_it_and_keep_a_writer_out(make_lock):
    one, other, writer = make_lock(shared=True), make_lock(shared=True), make_lock()
    assert one.acquire() and other.acquire()
    assert not writer.acquire()
    assert one.release() and other.release()
    assert writer.acquire() and not one.acquire()


def test_slots_are_for_so_many_at_a_time(make_lock):
    locks = [make_lock(slots=2) for _ in range(3)]
    assert [each.acquire() for each in locks] == [True, True, False]
    with pytest.raises(Busy), make_lock(slots=2):
        pass
    assert locks[0].release()
    with locks[2] as held:
        assert held.renew()


def test_a_guarded_write_is_made_by_the_holder(make_lock, owner):
    with make_lock() as held:
        assert held.guarded("SET", ITEMS, 41) == b"OK"
        assert held.guarded("INCR", ITEMS) == 42
    assert owner.observer.get(ITEMS) == b"42"


def test_a_guarded_write_without_the_lock_is_refused(make_lock, owner):
    ours = make_lock()
    assert ours.acquire()
    owner.observer.delete(NAME)
    with pytest.raises(Lost):
        ours.guarded("SET", ITEMS, 41)
    assert ours.lost.is_set() and not owner.observer.exists(ITEMS)


def test_an_error_of_a_guarded_command_is_no_loss(make_lock, owner):
    ours = make_lock()
    assert ours.acquire()
    owner.observer.rpush(ITEMS, "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        ours.guarded("INCR", ITEMS)
    assert not ours.lost.is_set() and ours.release()


@A_CLUSTER
def test_a_wait_follows_its_slot(make_lock, cluster, owner):
    ours, theirs = make_lock(lease=60), make_lock(wait=60)
    assert ours.acquire()
    wanted = threading.Thread(target=theirs.acquire)
    wanted.start()
    wait_for_waiters(owner.observer, 1)
    slot = slot_of(NAME)
    target = (cluster.owners[slot] + 1) % 3
    cluster.move(slot, target)
    wait_for_waiters(cluster.nodes[target].observer, 1)
    assert ours.release()
    wanted.join()
    assert theirs.fence > ours.fence
    assert theirs.release()


@pytest.mark.parametrize("make_lock", ["asyncio"], indirect=True)
def test_a_canceled_wait_leaves_the_queue(make_lock, loop, owner):
    ours, theirs = make_lock(lease=60), make_lock(wait=60)
    assert ours.acquire()
    wanted = loop.begin(theirs.lock.acquire())
    wait_for_waiters(owner.observer, 1)
    loop.cancel(wanted)
    assert_nobody_waits(owner.observer)
    assert ours.release() and make_lock().acquire()


@ONE_SERVER
@pytest.mark.parametrize("make_lock", ["asyncio"], indirect=True)
def test_an_acquire_that_is_canceled_while_it_is_granted_is_given_back(make_lock, loop, owner):
    ours = make_lock(socket_timeout=20.0)
    assert ours.acquire() and ours.release()  # it has a connection
    with stopped(owner):
        wanted = loop.begin(ours.lock.acquire())
        loop.run(asyncio.sleep(0.05))  # the request is on its way
        wanted.get_loop().call_soon_threadsafe(wanted.cancel)
    wait_until(wanted.done, "the release")
    assert wanted.cancelled()
    assert owner.observer.dbsize() == 0
    assert ours.acquire(), "the client has read all replies"
