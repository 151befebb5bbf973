# SPDX-License-Identifier: BSD-3-Clause
"""Client and Lock for threads. Use them as dlock.Client and client.lock(...).

The session of each server has a thread, which starts with the first wait or kept lock. Threads that
wait sleep until it wakes them, so they need no connections."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import weakref
from typing import Any, cast

import redis
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from ._claim import Claim, new_token
from ._client import BaseClient, BaseServer, Route, check_url, outcome
from ._wire import SLICE, Steps, Word, Words, now
from .errors import Error

_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock(Claim):
    """A claim on a lock: see Client.lock(). For one thread at a time, but for held, remaining(),
    check() and lost, which any thread may use."""

    lost: threading.Event
    """Set as soon as a kept lock is lost. why_lost says why. A lock with a lease just ends: look at
    remaining()."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        _locks.add(self)

    def acquire(self, wait: float | None = None) -> int:
        """The fence. wait: seconds, instead of those of the lock. Returns or raises by then, plus
        an io_timeout, and another one if a connection has to be made, or a lease of this Lock was
        over without its release."""
        token = new_token()
        try:
            return cast(int, self._client._run(self._acquire(wait, token)))
        except BaseException:
            if self._token == token:
                self._let_go()
            raise

    def release(self) -> None:
        """Lost: the lock had ended before. InDoubt: it is released in the background."""
        try:
            self._client._run(self._release())
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        """For an interrupt right behind the steps of acquire(), or before those of release()."""
        if self.fence:
            with contextlib.suppress(Error, ValueError):
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
        try:
            self._client._run(self._leave(kind))
        except BaseException:
            self._let_go()
            raise

    def _lose(self, why: str) -> None:
        try:
            super()._lose(why)
        except BaseException:  # SystemExit: would end no program, but the thread of a session
            workers = [server.worker for server in list(self._client._servers.values())]
            if threading.current_thread() not in workers:
                raise
            logging.getLogger("dlock").exception("on_lost of %r", self.names[0])

    def _forget(self) -> None:
        """In the child of a fork: a thread of the parent may have been using these."""
        was_lost, self.lost, self._wakeup = self.lost.is_set(), threading.Event(), threading.Event()
        self._calls = set()
        if was_lost:
            self.lost.set()


class _Opening(threading.Thread):
    """Opens a connection. A name, each of its addresses, a Sentinel and a login have timeouts of
    their own, or none, one after the other."""

    def __init__(self, connection: Any):
        super().__init__(name="dlock-connect", daemon=True)
        self.connection, self.failure = connection, cast("BaseException | None", None)
        connection.dlock_opening = self
        try:
            self.start()
        except RuntimeError:  # no more threads, or the end of the program
            self.run()

    def run(self) -> None:
        try:
            self.connection.connect()
        except BaseException as failure:
            self.failure = failure


class _Server(BaseServer):
    retry_class = Retry

    def __init__(self, client: Client, route: Route):
        super().__init__(client, route)
        self.mutex = threading.Lock()

    def idle(self) -> Any:
        """One that the server has closed is readable. One that an earlier call could not wait for
        is waited for again, so that not every call begins another attempt."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self.free.pop()
                if connection.dlock_opening.is_alive() and not self.is_stale(connection):
                    return connection
                with contextlib.suppress(RedisError, OSError):
                    if (connection.dlock_opening.failure is None and not self.is_stale(connection)
                            and not connection.can_read(0)):
                        return connection
                connection.disconnect()

    def drop(self, connection: Any) -> None:
        if connection is self.own:
            self.own = None
        connection.disconnect()

    def call(self, connection: Any, commands: list[Words], until: float) -> list[Any]:
        was_sent = False
        try:
            self.open(connection, until)
            packed = connection.pack_commands(commands)
            was_sent = True
            self.limit(connection, until)
            connection.send_packed_command(packed)
            return [self.read(connection, until) for _ in commands]
        except BaseException as failure:
            opening = connection.dlock_opening
            if opening is None or not opening.is_alive():
                self.drop(connection)
            elif connection is not self.own:
                self.free.appendleft(connection)  # those that are open are used first
            raise outcome(failure, was_sent) from None

    def open(self, connection: Any, until: float) -> None:
        """Until then, as a loss has to be told in time, and no call waits without an end. The next
        call waits for the same attempt."""
        is_ours = connection.dlock_opening is None
        if is_ours:
            if "path" not in self.route.options:
                connection.socket_connect_timeout = max(0.001, min(self.timeout, until - now()))
            _Opening(connection)
        while connection.dlock_opening.is_alive():
            if self.is_given_up(connection, until):
                raise redis.TimeoutError("no connection to the server in time")
            connection.dlock_opening.join(max(0.0, min(until - now(), SLICE)))
        failure = connection.dlock_opening.failure
        if failure is not None and not is_ours and not self.is_given_up(connection, until):
            connection.dlock_opening = None  # an old attempt, which says little about now
            return self.open(connection, until)
        if failure is not None:
            raise failure
        if self.is_given_up(connection, until):  # the attempt has used up the time
            raise redis.TimeoutError("no connection to the server in time")

    def read(self, connection: Any, until: float) -> Any:
        while not connection.can_read(max(0.0, min(until - now(), SLICE))):
            if self.is_given_up(connection, until):
                raise redis.TimeoutError("the server did not reply in time")
        self.limit(connection, until)
        try:
            return connection.read_response()
        except ResponseError as error:
            return error

    def limit(self, connection: Any, until: float) -> None:
        """So that a request which is not taken, or the rest of a reply, is not waited for any
        longer. redis-py sets its own timeout again after each look."""
        connection._sock.settimeout(max(0.001, min(self.timeout, until - now())))

    def keep(self) -> None:
        """An interrupt may leave it open whether the thread has been started. So the thread itself
        says that it runs, and one that comes too late does nothing."""
        if self.worker is not None:
            return
        with self.mutex:
            if self.worker is None:
                threading.Thread(target=self.work, name="dlock-session", daemon=True).start()

    def work(self) -> None:
        with self.mutex:
            if self.worker is not None:
                return
            self.worker = threading.current_thread()
        run(self.client._expand(self.session.keep(), self))
        if self.own is not None:
            self.own.disconnect()

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
        if isinstance(server, str):
            server = redis.Redis.from_url(check_url(server))
        is_cluster = isinstance(server, redis.RedisCluster)
        if not is_cluster and not isinstance(server, redis.Redis):
            raise TypeError(f"server: a URL or a client of redis-py for threads, not {server!r}")
        super().__init__(server, is_cluster, session_timeout, io_timeout)
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
    finally:
        steps.close()  # for an interrupt right here


def _close_all() -> None:
    for client in list(_clients):
        with contextlib.suppress(Exception):  # the others have sessions, too
            client.close()


def _forget_all() -> None:
    for lock in list(_locks):
        lock._forget()
    for client in list(_clients):
        client._forget()


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_close_all)
