"""A client that waits for a lock, on a connection of its own."""

import contextlib
import socket
import time

import redis

from support.commands import Lock, acquire_words, served, stats
from support.server import is_readable, wait_until


A_DAY = 86_400_000
EMPTY = ["held", "sessions", "session_holds", "waiters", "queues"]


class Waiting:
    """Sends DLOCK.ACQUIRE ... WAIT, or DLOCK.ACQUIREALL if there are keys, and does not read the
    answer until it is asked for. It waits on even if the test forgets it."""

    def __init__(self, server, token, wait_ms=A_DAY, lease_ms=600_000, key="lock", db=0,
                 options=(), keys=None):
        self.server, self.token = server, token
        self.client = redis.Redis("127.0.0.1", server.port, db=db, socket_timeout=50)
        self.connection = self.client.connection_pool.get_connection("ACQUIRE")
        server.keep(self)
        self.id = self.call("CLIENT", "ID")
        self.sent_at = time.monotonic()
        words = acquire_words(keys or key, token)
        self.send(*words, "PX", lease_ms, "WAIT", wait_ms, *options)

    def send(self, *words):
        self.connection.send_command(*words)

    def call(self, *words):
        """On this connection: when nothing else is under way."""
        self.send(*words)
        return self.connection.read_response()

    def answer(self):
        """The fence or None; an error reply is raised."""
        return self.connection.read_response()

    def is_answered(self, within=0):
        """By what the server does by itself in its next turns; within: or so many seconds."""
        let_turn(self.server)
        return is_readable(self.connection._sock, within)

    def close(self):
        """An orderly end of the connection."""
        self.connection.disconnect()

    def abort(self):
        """An end as of a machine that lost its memory: RST."""
        self.connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection._sock.close()
        self.connection._sock = None


def let_turn(server):
    """Some turns of the server's event loop go by: what it does by itself has been done."""
    if server.clock is not None:
        return server.clock.turn()
    for _ in range(10):
        server.observer.ping()


def wait_for_waiters(client, count):
    """Until the server has that many waiters in all."""
    wait_until(lambda: stats(client)["waiters"] == count, f"{count} waiters")


def wait_for_waiter(server, key="lock"):
    """Until one waits for this lock."""
    lock = Lock(server.observer, key)
    wait_until(lambda: (lock.info() or {}).get("waiters") == 1, "the waiter")


def wait_for_extensions(client, count):
    """So many more of any lock."""
    enough = served(client, "extend") + count
    wait_until(lambda: served(client, "extend") >= enough, f"{count} extensions")


def outlive_the_lease(server, lease_s, holders=1):
    """More than a lease goes by at the server, while each holder extends its lock every quarter or
    third of it: most of that by the server's clock, so that a holder may be late."""
    for _ in range(2):
        wait_for_extensions(server.observer, holders)
        server.clock.advance(0.4 * lease_s)


def assert_nobody_waits(client):
    assert (stats(client)["waiters"], stats(client)["queues"]) == (0, 0)


def end_sessions(server):
    """Those that the server keeps, by name; others by time, which lifts the fences."""
    for kept in server.kept:
        if hasattr(kept, "timeout_ms"):
            with contextlib.suppress(redis.ResponseError):
                server.observer.execute_command("DLOCK.SESSION", kept.name, "END")
    if stats(server.observer)["sessions"] > 0:
        server.clock.advance(A_DAY / 1000)


def flush_until_quiet(client):
    """Nobody waits or holds a lock. A flush serves those who wait, so one may not be enough."""
    def is_quiet():
        client.flushall()
        now = stats(client)
        return not any(now[name] for name in EMPTY)
    wait_until(is_quiet, "nothing to be left of this test")


def queue_up(server, tokens, **options):
    """Waiters in this order, all parked."""
    client = server.client()
    already = stats(client)["waiters"]
    places = len(options.get("keys") or ["one"])
    waiting = []
    for token in tokens:
        waiting.append(Waiting(server, token, **options))
        wait_for_waiters(client, already + len(waiting) * places)
    return waiting
