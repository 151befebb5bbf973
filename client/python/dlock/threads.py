# SPDX-License-Identifier: BSD-3-Clause
"""Client and Lock for threads. Use them as dlock.Client and client.lock(...).

The session of each server has a thread, which starts with the first wait or kept lock. Threads that
wait sleep until it wakes them, so they need no connections."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from typing import Any, cast

import redis
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from ._claim import Claim
from ._client import BaseClient, BaseServer, Route, outcome
from ._wire import SLICE, Steps, Word, Words, now

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Lock(Claim):
    """A claim on a lock: see Client.lock(). For one thread at a time, but for held, remaining(),
    check() and lost, which any thread may use."""

    lost: threading.Event
    """Set as soon as a kept lock is lost. why_lost says why. A lock with a lease just ends: look at
    remaining()."""

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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises Lost if the lock was lost, unless the body has raised something itself. Without a
        reply, the lock is released in the background."""
        self._client._run(self._leave(kind))


class _Server(BaseServer):
    retry_class = Retry

    def __init__(self, client: Client, route: Route):
        super().__init__(client, route)
        self.mutex = threading.Lock()

    def idle(self) -> Any:
        """One that the server has closed is readable."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self.free.pop()
                with contextlib.suppress(RedisError, OSError):
                    if not connection.can_read(0):
                        return connection
                connection.disconnect()

    def drop(self, connection: Any) -> None:
        connection.disconnect()

    def call(self, connection: Any, commands: list[Words], until: float) -> list[Any]:
        was_sent = False
        try:
            connection.connect()
            packed = connection.pack_commands(commands)
            was_sent = True
            connection.send_packed_command(packed)
            return [self.read(connection, until) for _ in commands]
        except BaseException as failure:
            connection.disconnect()
            raise outcome(failure, was_sent) from None

    def read(self, connection: Any, until: float) -> Any:
        while not connection.can_read(max(0.0, min(until - now(), SLICE))):
            if self.is_given_up(connection, until):
                raise redis.TimeoutError("the server did not reply in time")
        try:
            return connection.read_response()
        except ResponseError as error:
            return error

    def keep(self) -> None:
        if self.worker is not None:
            return
        with self.mutex:
            if self.worker is None:
                steps = self.client._expand(self.session.keep(), self)
                worker = threading.Thread(target=run, name="dlock-session", daemon=True,
                                          args=(steps,))
                worker.start()
                self.worker = worker

    def finish(self) -> None:
        if self.worker is not threading.current_thread():  # else it is a callback of ours
            self.worker.join(self.timeout)

    def disconnect(self) -> None:
        while self.free:
            self.free.pop().disconnect()

    def forget(self) -> None:
        """redis-py does not shut down the sockets of another process, and only closes them."""
        for connection in (*self.free, *([self.own] if self.own else [])):
            connection.disconnect()


class Client(BaseClient[Lock]):
    """Locks at a Redis server, behind a Sentinel, or in a cluster.

    server: a URL, or a client of redis-py, of which only the settings are used.
    session_timeout: kept locks end so many seconds after this process was last heard of.
    io_timeout: so long a reply may take.

    One Client for each process and server is enough: it may be used by all threads, and has one
    session. After a fork the child has a session of its own, and no lock of its parent."""
    _lock_class, _server_class, _event_class = Lock, _Server, threading.Event

    def __init__(self, server: str | redis.Redis | redis.RedisCluster = "redis://localhost:6379",
                 *, session_timeout: float = 10.0, io_timeout: float = 2.0):
        made = redis.Redis.from_url(server) if isinstance(server, str) else server
        super().__init__(made, isinstance(made, redis.RedisCluster), session_timeout, io_timeout)
        _clients.add(self)

    def close(self) -> None:
        """Ends the session, and so all kept locks."""
        run(self._close())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Steps) -> Any:
        return run(self._expand(steps))

    def _pool_of(self, node: Any) -> Any:
        return self._redis.get_redis_connection(node).connection_pool

    def _sleep(self, event: threading.Event, seconds: float) -> None:
        event.wait(seconds)

    def _forget(self) -> None:
        """In the child of a fork: nothing of the parent's is used."""
        for server in self._servers.values():
            cast(_Server, server).forget()
        self._start()


def run(steps: Steps) -> Any:
    """Calls the functions that the steps yield: their result."""
    try:
        function = next(steps)
        while True:
            try:
                reply = function()
            except BaseException as failure:
                function = steps.throw(failure)
            else:
                function = steps.send(reply)
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
