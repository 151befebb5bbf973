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
import secrets
from types import TracebackType
from typing import Any, Awaitable, Callable, cast

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (AuthenticationError, BusyLoadingError, DataError, RedisError,
                              ResponseError)

from ._claim import Claim
from ._routes import Route, route_of
from ._session import Session
from ._wire import (SLICE, Call, Find, NoReply, Pause, Relocate, Send, Steps, Wait, Word, Words,
                    now, redirection)
from .errors import Error, InDoubt, Refused, Unreachable
from .threads import LONGEST, REDIRECTIONS


class Lock(Claim):
    """As dlock.Lock. For one task at a time."""

    lost: asyncio.Event

    def __init__(self, client: Client, names: tuple[str | bytes, ...], **options: Any):
        self.lost = asyncio.Event()
        super().__init__(client.io_timeout, now, asyncio.Event(), self.lost, names, **options)
        self._client = client

    async def acquire(self, wait: float | None = None) -> int:
        return cast(int, await run(self._acquire(wait), self._client._perform))

    async def release(self) -> None:
        await run(self._release(), self._client._perform)

    async def extend(self, lease: float | None = None) -> None:
        await run(self._extend(lease), self._client._perform)

    async def guarded(self, *words: Word) -> Any:
        return await run(self._guarded(words), self._client._perform)

    async def __aenter__(self) -> Lock:
        await self.acquire()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        try:
            if self.fence:
                await self.release()
        except Error as failure:
            if kind is None and not isinstance(failure, (InDoubt, Unreachable)):
                raise


class Client:
    """As dlock.Client, from a URL or a client of redis.asyncio."""

    def __init__(self, server: str | redis.asyncio.Redis | redis.asyncio.RedisCluster
                 = "redis://localhost:6379", *, session_timeout: float = 10.0,
                 io_timeout: float = 2.0):
        is_url = isinstance(server, str)
        self._redis: Any = redis.asyncio.Redis.from_url(server) if is_url else server
        self._is_cluster = isinstance(self._redis, redis.asyncio.RedisCluster)
        self.session_timeout, self.io_timeout = session_timeout, io_timeout
        self._id, self._is_closed = secrets.token_hex(16), False
        self._servers: dict[Any, _Server] = {}

    def lock(self, *names: str | bytes, wait: float = 0.0, lease: float | None = None,
             shared: bool = False, slots: int | None = None,
             on_lost: Callable[[Lock], object] | None = None) -> Lock:
        """As dlock.Client.lock(). on_lost is called in the event loop, and is no coroutine."""
        return Lock(self, names, wait=wait, lease=lease, shared=shared, slots=slots,
                    on_lost=on_lost)

    async def close(self) -> None:
        self._is_closed = True
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await server.end()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- servers

    async def _find(self, name: bytes) -> _Server:
        if not self._is_cluster:
            return self._server(route_of(self._redis.connection_pool))
        try:
            await self._redis.initialize()
            node = self._redis.get_node_from_key(name)
        except RedisError as failure:
            raise NoReply(failure, was_sent=False) from None
        return self._server(route_of(node).to(node.host, node.port))

    def _server(self, route: Route) -> _Server:
        if self._is_closed:
            raise ValueError("the dlock.aio.Client is closed")
        if route.address not in self._servers:
            self._servers[route.address] = _Server(self, route)
        return self._servers[route.address]

    async def _refresh(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            await self._redis.nodes_manager.initialize()

    async def _send(self, name: bytes, commands: list[Words], until: float) -> list[Any]:
        server = await self._find(name)
        prefix: list[Words] = []
        for _ in range(REDIRECTIONS):
            replies = (await server.send([*prefix, *commands], until))[len(prefix):]
            target = redirection(replies[0]) if self._is_cluster else None
            if target is None:
                break
            kind, host, port = target
            prefix = [("ASKING",)] if kind == "ASK" else []
            if kind == "MOVED":
                await self._refresh()
            server = self._server(server.route.to(host, port))
        return replies

    # -- steps

    async def _perform(self, request: Any) -> Any:
        claim = request.claim
        if isinstance(request, Send):
            return await self._send(claim.names[0], request.commands, request.until)
        if isinstance(request, Find):
            server = await self._find(claim.names[0])
            server.keep()
            return server.session
        assert isinstance(request, Wait)
        await wait_for(claim._wakeup, min(request.until - now(), LONGEST))
        claim._wakeup.clear()
        return None

    async def _relocate(self, claims: list[Claim], session: Session) -> None:
        await self._refresh()
        for claim in claims:
            with contextlib.suppress(NoReply, Refused, ValueError):  # or closed
                server = await self._find(claim.names[0])
                if server.session is session:
                    continue
                life = server.session.life
                server.session.adopt(claim)
                server.keep()
                if server.session.is_usable():  # else its first heartbeat does the same
                    words = claim._acquire_words(server.session.id)
                    [reply] = await server.send([words], now() + self.io_timeout)
                    server.session.confirm(claim, reply, life)


class _Server:
    """The connections to a server, and the task of its session."""

    def __init__(self, client: Client, route: Route):
        self.client, self.route, self.timeout = client, route, client.io_timeout
        self.session = Session(client._id, client.session_timeout, client.io_timeout, now,
                               client._is_cluster)
        self.free: collections.deque[Any] = collections.deque()
        self.is_ended = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None
        self.own: Any = None  # the connection of the session
        self.dropping: set[asyncio.Task[None]] = set()

    def connect(self, **more: Any) -> Any:
        return self.route.connect(self.timeout, retry=Retry(NoBackoff(), 0),
                                  **{"socket_timeout": None, **more})

    async def send(self, commands: list[Words], until: float) -> list[Any]:
        connection = self.idle() or self.connect()
        replies = await self.call(connection, commands, until)
        self.free.append(connection)
        return replies

    def idle(self) -> Any:
        """A connection that is open: the loop has not read its end."""
        while self.free:
            connection = self.free.pop()
            if connection.is_connected and not connection._reader.at_eof():
                return connection
            self.drop(connection)
        return None

    async def call(self, connection: Any, commands: list[Words], until: float) -> list[Any]:
        """In a task of its own: some releases of redis-py swallow a cancellation now and then, or
        leave the reply to a canceled command to the next one."""
        talk = _Talk(connection, commands)
        task = asyncio.ensure_future(talk.run())
        is_own = connection is self.own
        try:
            while not task.done() and now() < until and not (is_own and self.session.is_ended):
                await asyncio.wait({task}, timeout=max(0.0, min(until - now(), SLICE)))
            if not task.done():
                raise redis.TimeoutError("the server did not reply in time")
            return task.result()
        except DataError:  # words that are none: nothing was sent
            self.drop(connection, task)
            raise
        except (AuthenticationError, ResponseError) as failure:  # of the login
            self.drop(connection, task)
            raise Refused(str(failure)) from None
        except (RedisError, OSError) as failure:
            self.drop(connection, task)
            is_refused = isinstance(failure, BusyLoadingError)
            raise NoReply(failure, talk.was_sent and not is_refused) from None
        except BaseException:
            self.drop(connection, task)
            raise

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

    # -- the session

    def keep(self) -> None:
        if self.task is None:
            self.task = asyncio.ensure_future(run(self.session.keep(), self.perform))

    async def perform(self, request: Any) -> Any:
        if isinstance(request, Call):
            self.own = self.own or self.connect(decode_responses=False)
            return await self.call(self.own, request.commands, request.until)
        if isinstance(request, Relocate):
            return await self.client._relocate(request.claims, self.session)
        assert isinstance(request, Pause)
        return await wait_for(self.is_ended, min(request.until - now(), SLICE))

    async def end(self) -> None:
        self.session.end()
        self.is_ended.set()
        if self.task is not None:
            with contextlib.suppress(NoReply, Error):
                await self.send([("DLOCK.SESSION", self.session.id, "END")], now() + self.timeout)
            await asyncio.wait({self.task}, timeout=self.timeout)
            self.task.cancel()
        for connection in [*self.free, *([self.own] if self.own else [])]:
            self.drop(connection)
        if self.dropping:
            await asyncio.wait(set(self.dropping), timeout=self.timeout)


class _Talk:
    """Commands and their replies, in which errors are exceptions."""

    def __init__(self, connection: Any, commands: list[Words]):
        self.connection, self.commands, self.was_sent = connection, commands, False

    async def run(self) -> list[Any]:
        await self.connection.connect()
        packed = self.connection.pack_commands(self.commands)
        self.was_sent = True
        await self.connection.send_packed_command(packed)
        return [await self.read() for _ in self.commands]

    async def read(self) -> Any:
        try:
            return await self.connection.read_response()
        except ResponseError as error:
            return error


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Unlike asyncio.wait_for(), never swallows a cancellation."""
    if event.is_set():
        return
    task = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task}, timeout=max(0.0, seconds))
    finally:
        task.cancel()


async def run(steps: Steps, perform: Callable[[Any], Awaitable[Any]]) -> Any:
    """Carries out what the steps request: their result."""
    try:
        request = next(steps)
        while True:
            try:
                reply = await perform(request)
            except BaseException as failure:
                request = steps.throw(failure)
            else:
                request = steps.send(reply)
    except StopIteration as stop:
        return stop.value
