# SPDX-License-Identifier: BSD-3-Clause
"""Client and Lock for asyncio: as those of dlock, with await.

    async with dlock.aio.Client("redis://localhost:7379") as client:
        async with client.lock("order:1000", wait=5) as lock:
            await lock.guarded("SET", "order:1000:state", "paid")

A Client belongs to one event loop, and its sessions are tasks of this loop: a task that computes
for long without awaiting delays the heartbeats. Any call may be canceled. A canceled acquire()
leaves the queue, and gives back a lock that it was granted."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from typing import Any, cast

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.exceptions import RedisError, ResponseError

from ._claim import Claim
from ._client import BaseClient, BaseServer, Route, check_url, outcome
from ._wire import SLICE, NoReply, Steps, Word, Words, now

CONNECTIONS = 64  # for commands, to a server at the same time


class Lock(Claim):
    """As dlock.Lock. For one task at a time."""

    lost: asyncio.Event

    async def acquire(self, wait: float | None = None) -> int:
        return cast(int, await self._client._run(self._acquire(wait)))

    async def release(self) -> None:
        await self._client._run(self._release())

    async def extend(self, lease: float | None = None) -> None:
        await self._client._run(self._extend(lease))

    async def guarded(self, *words: Word) -> Any:
        return await self._client._run(self._guarded(words))

    async def __aenter__(self) -> Lock:
        await self.acquire()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._client._run(self._leave(kind))

    def _lose(self, why: str) -> None:
        try:
            super()._lose(why)
        except asyncio.CancelledError:  # of a task at which on_lost looks: not the session's
            logging.getLogger("dlock").exception("on_lost of %r", self.names[0])


class _Server(BaseServer):
    retry_class, connection_options = Retry, {"socket_timeout": None}

    def __init__(self, client: Client, route: Route):
        super().__init__(client, route)
        self.dropping: set[asyncio.Task[None]] = set()
        self.using, self.turns = 0, collections.deque[asyncio.Future[None]]()

    def send(self, commands: list[Words], until: float) -> Steps:
        """Tasks come by the thousand, and there are no descriptors for as many connections."""
        yield lambda: self.enter(until)
        try:
            return (yield from super().send(commands, until))
        finally:
            self.leave()

    async def enter(self, until: float) -> None:
        if self.using < CONNECTIONS:
            self.using += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self.turns.append(turn)
        try:
            while not turn.done():
                if now() >= until:
                    raise NoReply("other requests have used up the time", was_sent=False)
                await asyncio.wait({turn}, timeout=max(0.0, min(until - now(), SLICE)))
        except BaseException:
            if turn.done():
                self.leave()
            else:
                self.turns.remove(turn)
            raise

    def leave(self) -> None:
        if self.turns:
            self.turns.popleft().set_result(None)
        else:
            self.using -= 1

    def idle(self) -> Any:
        """The loop has not read the end of an open connection, nor that it was reset."""
        while self.free:
            connection = self.free.pop()
            if (connection.is_connected and not connection._reader.at_eof()
                    and connection._reader.exception() is None and not self.is_stale(connection)):
                return connection
            self.drop(connection)
        return None

    async def call(self, connection: Any, commands: list[Words], until: float) -> list[Any]:
        """In a task of its own: some releases of redis-py swallow a cancellation now and then, or
        leave the reply to a canceled command to the next one."""
        was_sent = False

        async def talk() -> list[Any]:
            nonlocal was_sent
            await connection.connect()
            packed = connection.pack_commands(commands)
            was_sent = True
            await connection.send_packed_command(packed)
            return [await read(connection) for _ in commands]

        task = asyncio.ensure_future(talk())
        try:
            while not task.done() and not self.is_given_up(connection, until):
                await asyncio.wait({task}, timeout=max(0.0, min(until - now(), SLICE)))
            if not task.done():
                raise redis.TimeoutError("the server did not reply in time")
            return task.result()
        except BaseException as failure:
            self.drop(connection, task)
            raise outcome(failure, was_sent) from None

    def drop(self, connection: Any, task: asyncio.Task[Any] | None = None) -> None:
        async def drop() -> None:
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
                task.cancelled() or task.exception()
            with contextlib.suppress(RedisError, OSError):
                await connection.disconnect()

        if connection is self.own:
            self.own = None
        dropping = asyncio.ensure_future(drop())
        self.dropping.add(dropping)
        dropping.add_done_callback(self.dropping.discard)

    def keep(self) -> None:
        if self.worker is None or self.worker.done():  # canceled by the program
            steps = self.client._expand(self.session.keep(), self)
            self.worker = asyncio.ensure_future(run(steps))

    async def finish(self) -> None:
        await asyncio.wait({self.worker}, timeout=self.timeout)
        self.worker.cancel()

    async def disconnect(self) -> None:
        for connection in [*self.free, *([self.own] if self.own else [])]:
            self.drop(connection)
        if self.dropping:
            await asyncio.wait(set(self.dropping), timeout=self.timeout)


class Client(BaseClient[Lock]):
    """As dlock.Client, from a URL or a client of redis.asyncio."""
    _lock_class, _server_class, _event_class = Lock, _Server, asyncio.Event

    def __init__(self, server: str | redis.asyncio.Redis | redis.asyncio.RedisCluster
                 = "redis://localhost:6379", *, session_timeout: float = 10.0,
                 io_timeout: float = 2.0):
        if isinstance(server, str):
            server = redis.asyncio.Redis.from_url(check_url(server))
        is_cluster = isinstance(server, redis.asyncio.RedisCluster)
        if not is_cluster and not isinstance(server, redis.asyncio.Redis):
            raise TypeError(f"server: a URL or a client of redis.asyncio, not {server!r}")
        super().__init__(server, is_cluster, session_timeout, io_timeout)

    async def close(self) -> None:
        await run(self._close())

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, steps: Steps) -> Any:
        return await run(self._expand(steps))

    def _pool_of(self, node: Any) -> Any:
        return node

    async def _sleep(self, event: asyncio.Event, seconds: float) -> None:
        """Unlike asyncio.wait_for(), never swallows a cancellation."""
        if event.is_set():
            return
        task = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            task.cancel()


async def read(connection: Any) -> Any:
    """A reply; an error is one, too."""
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


async def run(steps: Steps) -> Any:
    """Awaits what the functions return that the steps yield: their result."""
    try:
        function = next(steps)
        while True:
            try:
                reply = await function()
            except BaseException as failure:
                function = steps.throw(failure)
            else:
                function = steps.send(reply)
    except StopIteration as stop:
        return stop.value
