# SPDX-License-Identifier: BSD-3-Clause
"""Client and Lock for threads. Use them as dlock.Client and client.lock(...).

The session of each server has a thread, which starts with the first wait or kept lock. Threads that
wait sleep until it wakes them, so they need no connections."""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import secrets
import threading
import weakref
from types import TracebackType
from typing import Any, Callable, cast

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (AuthenticationError, BusyLoadingError, DataError, RedisError,
                              ResponseError)
from redis.retry import Retry

from ._claim import Claim
from ._routes import Route, route_of
from ._session import Session
from ._wire import (SLICE, Call, Find, NoReply, Pause, Relocate, Send, Steps, Wait, Word, Words,
                    now, redirection)
from .errors import Error, InDoubt, Refused, Unreachable

REDIRECTIONS = 5
LONGEST = 3600.0  # of a wait, which is then begun again: an infinite one is no argument
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Lock(Claim):
    """A claim on a lock: see Client.lock(). For one thread at a time, but for held, remaining(),
    check() and lost, which any thread may use."""

    lost: threading.Event
    """Set as soon as a kept lock is lost. why_lost says why. A lock with a lease just ends: look at
    remaining()."""

    def __init__(self, client: Client, names: tuple[str | bytes, ...], **options: Any):
        self.lost = threading.Event()
        super().__init__(client.io_timeout, now, threading.Event(), self.lost, names, **options)
        self._client = client

    def acquire(self, wait: float | None = None) -> int:
        """The fence. wait: seconds, instead of those of the lock. Returns or raises by then, plus
        an io_timeout, and another one if a connection has to be made."""
        return cast(int, self._client._run(self._acquire(wait)))

    def release(self) -> None:
        """Lost: the lock had ended before. InDoubt: it is released in the background."""
        self._client._run(self._release())

    def extend(self, lease: float | None = None) -> None:
        """The lease ends so many seconds from now, or later if it did before."""
        self._client._run(self._extend(lease))

    def guarded(self, *words: Word) -> Any:
        """The reply to a Redis command that the server runs only if the lock is ours: check and
        command are one step there. Of several names, the first is checked. An error of the command
        is raised as redis.ResponseError. InDoubt: the command may have been run, so use commands
        that can be repeated (SET, not INCR) and repeat them."""
        return self._client._run(self._guarded(words))

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Raises Lost if the lock was lost, unless the body has raised something itself. Without a
        reply, the lock is released in the background."""
        try:
            if self.fence:
                self.release()
        except Error as failure:
            if kind is None and not isinstance(failure, (InDoubt, Unreachable)):
                raise


class Client:
    """Locks at a Redis server, behind a Sentinel, or in a cluster.

    server: a URL, or a client of redis-py, of which only the settings are used.
    session_timeout: kept locks end so many seconds after this process was last heard of.
    io_timeout: so long a reply may take.

    One Client for each process and server is enough: it may be used by all threads, and has one
    session. After a fork the child has a session of its own, and no lock of its parent."""

    def __init__(self, server: str | redis.Redis | redis.RedisCluster = "redis://localhost:6379",
                 *, session_timeout: float = 10.0, io_timeout: float = 2.0):
        self._redis: Any = redis.Redis.from_url(server) if isinstance(server, str) else server
        self._is_cluster = isinstance(self._redis, redis.RedisCluster)
        self.session_timeout, self.io_timeout = session_timeout, io_timeout
        self._start()
        _clients.add(self)

    def _start(self) -> None:
        self._id, self._mutex, self._is_closed = secrets.token_hex(16), threading.Lock(), False
        self._servers: dict[Any, _Server] = {}

    def lock(self, *names: str | bytes, wait: float = 0.0, lease: float | None = None,
             shared: bool = False, slots: int | None = None,
             on_lost: Callable[[Lock], object] | None = None) -> Lock:
        """A Lock that is not yet acquired; "with" acquires and releases it.

        names: one, or up to 64 that are taken all or none; in a cluster, with one hash tag.
        wait: seconds in the queue of a busy lock; 0: one attempt. math.inf: for ever.
        lease: seconds after which the lock ends by itself. None: the lock is kept until it is
            released, or this process is not heard of for the session_timeout.
        shared: together with other shared holders. slots: while fewer than that hold it.
        on_lost: called with the Lock when a kept lock is lost, in the thread of the session."""
        return Lock(self, names, wait=wait, lease=lease, shared=shared, slots=slots,
                    on_lost=on_lost)

    def close(self) -> None:
        """Ends the session, and so all kept locks."""
        with self._mutex:
            self._is_closed = True
            servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            server.end()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- servers

    def _find(self, name: bytes) -> _Server:
        if not self._is_cluster:
            return self._server(route_of(self._redis.connection_pool))
        try:
            node = self._redis.get_node_from_key(name)
            pool = self._redis.get_redis_connection(node).connection_pool
        except RedisError as failure:
            raise NoReply(failure, was_sent=False) from None
        return self._server(route_of(pool).to(node.host, node.port))

    def _server(self, route: Route) -> _Server:
        with self._mutex:
            if self._is_closed:
                raise ValueError("the dlock.Client is closed")
            if route.address not in self._servers:
                self._servers[route.address] = _Server(self, route)
            return self._servers[route.address]

    def _refresh(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            self._redis.nodes_manager.initialize()

    def _send(self, name: bytes, commands: list[Words], until: float) -> list[Any]:
        server = self._find(name)
        prefix: list[Words] = []
        for _ in range(REDIRECTIONS):
            replies = server.send([*prefix, *commands], until)[len(prefix):]
            target = redirection(replies[0]) if self._is_cluster else None
            if target is None:
                break
            kind, host, port = target
            prefix = [("ASKING",)] if kind == "ASK" else []
            if kind == "MOVED":
                self._refresh()
            server = self._server(server.route.to(host, port))
        return replies

    # -- steps

    def _run(self, steps: Steps) -> Any:
        return run(steps, self._perform)

    def _perform(self, request: Any) -> Any:
        claim = request.claim
        if isinstance(request, Send):
            return self._send(claim.names[0], request.commands, request.until)
        if isinstance(request, Find):
            server = self._find(claim.names[0])
            server.keep()
            return server.session
        assert isinstance(request, Wait)
        claim._wakeup.wait(max(0.0, min(request.until - now(), LONGEST)))
        claim._wakeup.clear()
        return None

    def _relocate(self, claims: list[Claim], session: Session) -> None:
        self._refresh()
        for claim in claims:
            with contextlib.suppress(NoReply, Refused, ValueError):  # or closed
                server = self._find(claim.names[0])
                if server.session is session:
                    continue
                life = server.session.life
                server.session.adopt(claim)
                server.keep()
                if server.session.is_usable():  # else its first heartbeat does the same
                    words = claim._acquire_words(server.session.id)
                    [reply] = server.send([words], now() + self.io_timeout)
                    server.session.confirm(claim, reply, life)

    def _forget(self) -> None:
        """In the child of a fork: nothing of the parent's is used."""
        for server in self._servers.values():
            server.forget()
        self._start()


class _Server:
    """The connections to a server, and the thread of its session."""

    def __init__(self, client: Client, route: Route):
        self.client, self.route, self.timeout = client, route, client.io_timeout
        self.session = Session(client._id, client.session_timeout, client.io_timeout, now,
                               client._is_cluster)
        self.free: collections.deque[Any] = collections.deque()
        self.mutex, self.is_ended = threading.Lock(), threading.Event()
        self.thread: threading.Thread | None = None
        self.own: Any = None  # the connection of the session

    def connect(self, **more: Any) -> Any:
        return self.route.connect(self.timeout, retry=Retry(NoBackoff(), 0), **more)

    def send(self, commands: list[Words], until: float) -> list[Any]:
        connection = self.idle() or self.connect()
        replies = self.call(connection, commands, until)
        self.free.append(connection)
        return replies

    def idle(self) -> Any:
        """A connection that is open. One that the server has closed is readable."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self.free.pop()
                with contextlib.suppress(RedisError, OSError):
                    if not connection.can_read(0):
                        return connection
                connection.disconnect()

    def call(self, connection: Any, commands: list[Words], until: float) -> list[Any]:
        was_sent = False
        try:
            connection.connect()
            packed = connection.pack_commands(commands)
            was_sent = True
            connection.send_packed_command(packed)
            return [self.read(connection, until) for _ in commands]
        except DataError:  # words that are none: nothing was sent
            connection.disconnect()
            raise
        except (AuthenticationError, ResponseError) as failure:  # of the login
            connection.disconnect()
            raise Refused(str(failure)) from None
        except (RedisError, OSError) as failure:
            connection.disconnect()
            is_refused = isinstance(failure, BusyLoadingError)
            raise NoReply(failure, was_sent and not is_refused) from None
        except BaseException:
            connection.disconnect()
            raise

    def read(self, connection: Any, until: float) -> Any:
        while not connection.can_read(max(0.0, min(until - now(), SLICE))):
            if now() >= until or self.session.is_ended and connection is self.own:
                raise redis.TimeoutError("the server did not reply in time")
        try:
            return connection.read_response()
        except ResponseError as error:
            return error

    # -- the session

    def keep(self) -> None:
        if self.thread is not None:
            return
        with self.mutex:
            if self.thread is None:
                self.own = self.connect(decode_responses=False)
                self.thread = threading.Thread(target=run, name="dlock-session", daemon=True,
                                               args=(self.session.keep(), self.perform))
                self.thread.start()

    def perform(self, request: Any) -> Any:
        if isinstance(request, Call):
            return self.call(self.own, request.commands, request.until)
        if isinstance(request, Relocate):
            return self.client._relocate(request.claims, self.session)
        assert isinstance(request, Pause)
        return self.is_ended.wait(max(0.0, min(request.until - now(), SLICE)))

    def end(self) -> None:
        self.session.end()
        self.is_ended.set()
        if self.thread is not None:
            with contextlib.suppress(NoReply, Error):
                self.send([("DLOCK.SESSION", self.session.id, "END")], now() + self.timeout)
            if self.thread is not threading.current_thread():  # else it is a callback of ours
                self.thread.join(self.timeout)
        while self.free:
            self.free.pop().disconnect()

    def forget(self) -> None:
        """redis-py does not shut down the sockets of another process, and only closes them."""
        for connection in (*self.free, *([self.own] if self.own else [])):
            connection.disconnect()


def run(steps: Steps, perform: Callable[[Any], Any]) -> Any:
    """Carries out what the steps request: their result."""
    try:
        request = next(steps)
        while True:
            try:
                reply = perform(request)
            except BaseException as failure:
                request = steps.throw(failure)
            else:
                request = steps.send(reply)
    except StopIteration as stop:
        return stop.value


def _close_all() -> None:
    for client in list(_clients):
        client.close()


def _forget_all() -> None:
    for client in list(_clients):
        client._forget()


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_close_all)
