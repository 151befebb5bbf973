"""Fixtures of the tests of client/python. Most of them run twice: with threads and asyncio."""

import asyncio
import sys
import threading

import pytest
import redis
import redis.asyncio

from support.server import ROOT

sys.path.insert(0, str(ROOT / "client/python"))

import dlock  # noqa: E402

PATIENCE_S = 20  # a server that is alive answers, however slow the machine is
CALLS = ("acquire", "release", "extend", "guarded", "close")


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

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Waited:
    """A Client or Lock of asyncio, used by a test as one of threads."""

    def __init__(self, loop, it):
        self.loop, self.it = loop, it

    def __getattr__(self, name):
        if name in CALLS:
            return lambda *words, **more: self.loop.run(getattr(self.it, name)(*words, **more))
        return getattr(self.it, name)

    def lock(self, *names, **options):
        async def make():
            return self.it.lock(*names, **options)
        return Waited(self.loop, self.loop.run(make()))

    def __enter__(self):
        self.loop.run(self.it.__aenter__())
        return self

    def __exit__(self, *error):
        return self.loop.run(self.it.__aexit__(*error))


@pytest.fixture(autouse=True)
def redirections(monkeypatch):
    """The other tests want the words of the server; a client of a cluster wants its classes."""
    classes = redis.connection.DefaultParser.EXCEPTION_CLASSES
    for code, name in (("ASK", "AskError"), ("MOVED", "MovedError"), ("TRYAGAIN", "TryAgainError"),
                       ("CLUSTERDOWN", "ClusterDownError")):
        monkeypatch.setitem(classes, code, getattr(redis.exceptions, name))


@pytest.fixture
def server(lend):
    return lend(1)[0]


@pytest.fixture(params=["threads", "asyncio"])
def form(request):
    return request.param


@pytest.fixture
def loop(form):
    made = Loop() if form == "asyncio" else None
    yield made
    if made:
        made.close()


@pytest.fixture
def connect(relieve, form, loop):
    """connect(server or URL, **options) is a Client. Unless told otherwise it waits so long for a
    reply that only a server that never replies is late. It ends before the servers do."""
    clients = []

    def make(to, **options):
        to = to if isinstance(to, (str, redis.Redis, redis.RedisCluster, redis.asyncio.Redis,
                                   redis.asyncio.RedisCluster)) else f"redis://127.0.0.1:{to.port}"
        options = {"session_timeout": 60.0, "io_timeout": PATIENCE_S, **options}
        if form == "threads":
            clients.append(dlock.Client(to, **options))
        else:
            async def start():
                return dlock.aio.Client(to, **options)
            clients.append(Waited(loop, loop.run(start())))
        return clients[-1]

    yield make
    relieve()
    for client in clients:
        client.close()


@pytest.fixture
def client(connect, server):
    return connect(server)


@pytest.fixture
def hold(client):
    """hold(name): a lock of the client that is held."""
    def take(*names, **options):
        lock = client.lock(*names, **options)
        lock.acquire()
        return lock
    return take


class Asking(threading.Thread):
    """A call in a thread of its own. result() is what it returned or raised."""

    def __init__(self, call, *words, **more):
        super().__init__(daemon=True)
        self.call, self.words, self.more = call, words, more
        self.got = self.error = None
        self.start()

    def run(self):
        try:
            self.got = self.call(*self.words, **self.more)
        except Exception as error:
            self.error = error

    def result(self):
        self.join(50)
        assert not self.is_alive(), "still waiting"
        if self.error is not None:
            raise self.error
        return self.got


@pytest.fixture
def begin():
    return Asking
