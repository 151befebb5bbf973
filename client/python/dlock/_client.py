# SPDX-License-Identifier: BSD-3-Clause
"""What the clients for threads and asyncio share: servers, redirects, and the steps in between.

    steps     a Lock or a session yields what it wants (Send, Wait, ...: see _wire.py)
    _expand   finds the server for it, follows redirects, and yields functions without arguments
    run       calls them (threads.py) or awaits what they return (aio.py)
    _refresh  asks a node of a cluster who has which slot: at the start, after a request without a
              reply, and when kept locks have to move. A redirect corrects the one slot

Connections are made from what a client of redis-py knows: its class and its arguments. Its own are
not used, nor is its map of a cluster, which it reads without a timeout by default. Ours have
timeouts, whatever those of the client are, and no request is repeated behind our back."""

from __future__ import annotations

import collections
import contextlib
import math
import secrets
import threading
from typing import Any, Callable, Generic, NamedTuple, TypeVar

from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (AuthenticationError, BusyLoadingError, DataError, RedisError,
                              ResponseError)

from ._claim import Claim
from ._session import Session
from ._wire import (SLICE, Call, Elsewhere, Find, NoReply, Pause, Relocate, Send, Steps, Wait,
                    Words, error_of, is_read_only, now, redirection, text_of)
from .errors import Error, Refused

REDIRECTIONS = 5
IDLE = 64  # connections that are kept for later, to a server
LONGEST = 3600.0  # of a wait, which is then begun again: an infinite one is no argument
Address = tuple[str, int]
LockT = TypeVar("LockT", bound=Claim)


class Route(NamedTuple):
    """To one server. address: None for the only one."""
    address: Address | None
    connection_class: Any
    options: dict[str, Any]

    def connect(self, timeout: float, **more: Any) -> Any:
        """A connection of redis-py that is not yet open."""
        options = {**self.options, "socket_timeout": timeout, "health_check_interval": 0,
                   "retry_on_timeout": False, "retry_on_error": [], **more}
        if "path" not in options:  # else it is a unix socket, which has no such timeout
            options["socket_connect_timeout"] = timeout
        connection = self.connection_class(**options)
        if "path" in options:  # redis-py 4.3 names the host in an error, also of a unix socket
            connection.host, connection.port = connection.path, 0
        return connection

    def to(self, address: Address) -> Route:
        """To another server of the cluster."""
        host, port = address
        return Route(address, self.connection_class, {**self.options, "host": host, "port": port})


def route_of(pool: Any) -> Route:
    """pool: of a client, or a node of an asynchronous cluster, which has the same attributes."""
    return Route(None, pool.connection_class, pool.connection_kwargs)


def check_url(url: str) -> str:
    """redis-py reads fewer kinds of URLs than the C library, and does not say what to do."""
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("server: a URL that begins with redis://, rediss:// or unix://; for a "
                         "Sentinel its master_for(), for a cluster a RedisCluster of redis-py")
    return url


class BaseClient(Generic[LockT]):
    _lock_class: type[LockT]
    _server_class: type[BaseServer]
    _event_class: Any
    _pool_of: Callable[[Any], Any]  # of a node of a cluster
    _sleep: Callable[[Any, float], Any]  # until the event is set, or for so many seconds

    def __init__(self, server: Any, is_cluster: bool, session_timeout: float, io_timeout: float):
        for seconds in session_timeout, io_timeout:
            if not 0 < seconds < math.inf:
                raise ValueError("session_timeout, io_timeout: seconds")
        self._redis, self._is_cluster, self._is_closed = server, is_cluster, False
        self.session_timeout, self.io_timeout = session_timeout, io_timeout
        self._nodes: list[Address] = []  # of a cluster, in the order in which they are asked
        self._owners: dict[int, Address] = {}  # of slots
        self._is_stale = is_cluster  # some of these may have changed
        if is_cluster:
            nodes = list(server.nodes_manager.startup_nodes.values())
            self._nodes = [(node.host, int(node.port)) for node in nodes]
            self._route = route_of(self._pool_of(nodes[0]))
        self._start()
        self._server_class(self, self._route if is_cluster else route_of(server.connection_pool)
                           ).connect()  # so that a wrong option is told here

    def _start(self) -> None:
        self._id, self._mutex = secrets.token_hex(16), threading.Lock()
        self._servers: dict[Any, BaseServer] = {}

    def lock(self, *names: str | bytes, wait: float = 0.0, lease: float | None = None,
             shared: bool = False, slots: int | None = None,
             on_lost: Callable[[LockT], object] | None = None) -> LockT:
        """A Lock that is not yet acquired; "with" acquires and releases it.

        names: one, or up to 64 that are taken all or none; in a cluster, with one hash tag, for
            example {shop}:stock and {shop}:till.
        wait: seconds in the queue of a busy lock; 0: one attempt. math.inf: for ever.
        lease: seconds after which the lock ends by itself. None: the lock is kept until it is
            released, or this process is not heard of for the session_timeout.
        shared: together with other shared holders. slots: while fewer than that hold it.
        on_lost: called with the Lock when a kept lock is lost, in the thread of the session or in
            the event loop; it is no coroutine."""
        lock = self._lock_class(self.io_timeout, now, self._event_class(), self._event_class(),
                                names, wait, lease, shared, slots, on_lost)
        lock._client = self
        return lock

    def _close(self) -> Steps:
        with self._mutex:
            self._is_closed = True
            servers, self._servers = list(self._servers.values()), {}
        for server in servers:  # first of all: it may be canceled while it waits for one of them
            server.stop()
        for server in servers:
            yield from server.end()

    # -- from steps to functions

    def _expand(self, steps: Steps, server: BaseServer | None = None) -> Steps:
        """server: that of a session whose steps these are."""
        try:
            request = next(steps)
            while True:
                try:
                    reply = yield from self._carry_out(request, server)
                except BaseException as failure:
                    request = steps.throw(failure)
                else:
                    request = steps.send(reply)
        except StopIteration as stop:
            return stop.value
        finally:
            steps.close()  # for an interrupt right here: they give up without a request

    def _carry_out(self, request: Any, server: Any) -> Steps:
        if isinstance(request, Send):
            return (yield from self._send(request.claim.names[0], request.commands, request.until,
                                          request.session, request.route))
        if isinstance(request, Find):
            server = yield from self._find(request.claim.names[0], route=request.route)
            server.keep()
            return server.session
        if isinstance(request, Wait):
            event = request.claim._wakeup
            yield lambda: self._sleep(event, max(0.0, min(request.until - now(), LONGEST)))
            return event.clear()
        if isinstance(request, Call):
            connection = server.own = server.own or server.connect(decode_responses=False)
            replies = yield lambda: server.call(connection, request.commands, request.until)
            if any(map(is_read_only, replies)):
                server.drop(connection)
            return replies
        if isinstance(request, Relocate):
            return (yield from self._relocate(request, server.session))
        assert isinstance(request, Pause)
        return (yield lambda: self._sleep(server.is_ended,
                                          max(0.0, min(request.until - now(), SLICE))))

    def _find(self, name: bytes, until: float = math.inf, route: Route | None = None) -> Steps:
        """The server that has the name. until: for how long nodes of a cluster may be asked. route:
        to the server, if it is known."""
        if route is not None:
            return self._server(route)
        if not self._is_cluster:
            return self._server(route_of(self._redis.connection_pool))
        if self._is_stale:
            yield from self._refresh(min(until, now() + self.io_timeout))
        address = self._owners.get(key_slot(name))
        if address is None:
            self._is_stale = True  # the cluster may not be complete yet
            raise NoReply("no node of the cluster serves the lock", was_sent=False)
        return self._server(self._route.to(address))

    def _refresh(self, until: float) -> Steps:
        """The map of the cluster, from the first node that tells it. One that does not is the last
        to be asked the next time. If none does, the old map stays."""
        failure: Exception = NoReply("no node of the cluster has replied in time", was_sent=False)
        for address in list(self._nodes):
            if now() >= until:
                break
            server = self._server(self._route.to(address))
            self._nodes = [*(node for node in self._nodes if node != address), address]
            try:
                [reply] = yield from server.send([("CLUSTER", "SLOTS")],
                                                 min(until, now() + self.io_timeout / 2))
            except (NoReply, Refused) as trouble:
                failure = trouble
                continue
            if isinstance(reply, ResponseError):
                failure = error_of(reply)
                continue
            owners: dict[int, Address] = {}
            for first, last, (host, port, *_), *_ in reply:
                owner = self._address(host, port, server.route)
                owners.update(dict.fromkeys(range(first, last + 1), owner))
            self._nodes = list(dict.fromkeys([address, *owners.values(), *self._nodes]))
            self._owners, self._is_stale = owners, False
            yield from self._retire()
            return
        if not self._owners:
            raise failure

    def _retire(self) -> Steps:
        """Addresses that no node has any more, as pods get others: each session has a worker."""
        known = set(self._owners.values())
        with self._mutex:
            gone = [(address, server) for address, server in self._servers.items()
                    if address not in known and server.worker is not None
                    and server.session.is_unused()]
            for address, server in gone:
                del self._servers[address]
        for _, server in gone:  # first of all: it may be canceled while it waits for one of them
            server.stop()
        for _, server in gone:
            yield server.disconnect

    def _address(self, host: Any, port: int, origin: Route) -> Address:
        """As the node at the origin has told it; without a host, it is its own."""
        address = text_of(host) if host else origin.options["host"], port
        remap = getattr(self._redis.nodes_manager, "address_remap", None)
        return remap(address) if remap else address

    def _server(self, route: Route) -> BaseServer:
        with self._mutex:
            if self._is_closed:
                raise ValueError("the dlock.Client is closed")
            if route.address not in self._servers:
                self._servers[route.address] = self._server_class(self, route)
            return self._servers[route.address]

    def _send(self, name: bytes, commands: list[Words], until: float,
              session: Session | None, route: Route | None) -> Steps:
        """session: the events of its locks come from its own server, so no redirect is followed."""
        was_stale = self._is_stale
        server, is_asking = (yield from self._find(name, route=route)), route is not None
        if session is not None and server.session is not session:
            raise Elsewhere
        if was_stale:  # and other nodes may have used up the time
            until = max(until, now() + self.io_timeout)
        for _ in range(REDIRECTIONS):
            # ASKING is for one command.
            sent = [each for command in commands for each in (("ASKING",), command)]
            try:
                replies = yield from server.send(sent if is_asking else commands, until)
            except NoReply:
                self._is_stale = True  # another node may have the lock now
                raise
            replies = replies[1::2] if is_asking else replies
            target = redirection(replies[0]) if self._is_cluster else None
            if target is None:
                break
            kind, host, port = target
            address = self._address(host, port, server.route)
            if kind == "MOVED":
                self._owners[key_slot(name)] = address
            route, is_asking = self._route.to(address), kind == "ASK"
            if session is not None:
                raise Elsewhere(route if is_asking else None)
            server = self._server(route)
        return replies

    def _relocate(self, request: Relocate, session: Session) -> Steps:
        with contextlib.suppress(NoReply, Error, ValueError):  # or closed
            yield from self._refresh(request.until)
        for claim in request.claims:
            with contextlib.suppress(NoReply, Error, ValueError):
                server = yield from self._find(claim.names[0], request.until)
                kind, host, port = redirection(claim._answer) or ("", "", 0)
                if kind == "ASK":  # the lock is at the other side of a move
                    server = self._server(self._route.to(self._address(host, port, server.route)))
                claim._answer = None
                if server.session is session:
                    continue
                server.keep()
                life = server.session.life
                server.session.adopt(claim)
                if server.session.is_usable():  # else its first heartbeat does the same
                    replies = None
                    asked = server.session.begin_asking([claim])
                    sent = [each.words for each in asked]
                    try:
                        if asked:
                            if kind == "ASK":
                                sent = [("ASKING",), *sent]
                            replies = (yield from server.send(sent, now() + self.io_timeout))[-1:]
                    finally:
                        server.session.end_asking(asked, replies, life)


class BaseServer:
    """The connections to a server, and the worker (a thread or task) that keeps its session."""
    keep: Callable[[], None]                 # starts the worker, if it does not run
    call: Callable[[Any, list[Words], float], Any]  # the replies, or NoReply, Refused, DataError
    drop: Callable[[Any], None]              # closes a connection
    idle: Callable[[], Any]                  # an open connection that nobody uses, or None
    finish: Callable[[], Any]                # joins the worker
    disconnect: Callable[[], Any]            # everything
    retry_class: Any
    connection_options: dict[str, Any] = {}

    def __init__(self, client: BaseClient[Any], route: Route):
        self.client, self.route, self.timeout = client, route, client.io_timeout
        self.session = Session(client._id, client.session_timeout, client.io_timeout, now,
                               client._is_cluster)
        self.free: collections.deque[Any] = collections.deque()
        self.is_ended = client._event_class()
        self.worker: Any = None
        self.own: Any = None  # the connection of the session

    def connect(self, **more: Any) -> Any:
        made = self.route.connect(self.timeout, retry=self.retry_class(NoBackoff(), 0),
                                  **self.connection_options, **more)
        made.dlock_life, made.dlock_opening = self.session.life, None
        return made

    def is_stale(self, connection: Any) -> bool:
        """It may lead to another server than that of the session, as the address may by now."""
        return connection.dlock_life is not self.session.life

    def send(self, commands: list[Words], until: float) -> Steps:
        connection = self.idle() or self.connect()
        replies = yield lambda: self.call(connection, commands, until)
        if any(map(is_read_only, replies)) or len(self.free) >= IDLE:
            self.drop(connection)
        else:
            self.free.append(connection)
        return replies

    def is_given_up(self, connection: Any, until: float) -> bool:
        """Does nobody wait for the replies any more?"""
        return now() >= until or self.session.is_ended and connection is self.own

    def stop(self) -> None:
        self.session.end()
        self.is_ended.set()

    def end(self) -> Steps:
        if self.worker is not None:
            end, is_there = ("DLOCK.SESSION", self.session.id, "END"), False
            with contextlib.suppress(NoReply, Error):
                yield from self.send([end], now() + self.timeout)
                is_there = True
            yield self.finish
            if is_there:  # a heartbeat may have come behind it
                with contextlib.suppress(NoReply, Error):
                    yield from self.send([end], now() + self.timeout)
        yield self.disconnect


def outcome(failure: BaseException, was_sent: bool) -> BaseException:
    """What a call raises instead of what redis-py has raised."""
    if isinstance(failure, DataError):  # words that are none: nothing was sent
        return failure
    if isinstance(failure, (AuthenticationError, ResponseError)):  # of the login
        return Refused(str(failure))
    if isinstance(failure, (RedisError, OSError)):
        is_answer = (isinstance(failure, BusyLoadingError)
                     or str(failure).startswith("max number of clients"))
        return NoReply(failure, was_sent and not is_answer)
    return failure
