"""A client that waits for a lock, on a connection of its own."""

import select
import socket
import time

import redis

from support.commands import Lock, stats
from support.server import wait_until


class Waiting:
    """Sends DLOCK.ACQUIRE ... WAIT and does not read the answer until it is asked for. It waits on
    even if the test forgets it."""

    def __init__(self, server, token, wait_ms=600_000, lease_ms=600_000, key="lock", db=0,
                 options=()):
        self.token = token
        self.client = redis.Redis("127.0.0.1", server.port, db=db, socket_timeout=20)
        self.connection = self.client.connection_pool.get_connection("ACQUIRE")
        server.keep(self)
        self.id = self.call("CLIENT", "ID")
        self.sent_at = time.monotonic()
        self.send("DLOCK.ACQUIRE", key, token, "PX", lease_ms, "WAIT", wait_ms, *options)

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
        readable, _, _ = select.select([self.connection._sock], [], [], within)
        return bool(readable)

    def close(self):
        """An orderly end of the connection."""
        self.connection.disconnect()

    def abort(self):
        """An end as of a machine that lost its memory: RST."""
        self.connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection._sock.close()
        self.connection._sock = None


def wait_for_waiters(client, count):
    """Until the server has that many waiters in all."""
    wait_until(lambda: stats(client)["waiters"] == count, f"{count} waiters")


def wait_for_waiter(server, key="lock"):
    """Until one waits for this lock."""
    lock = Lock(server.observer, key)
    wait_until(lambda: (lock.info() or {}).get("waiters") == 1, "the waiter")


def assert_nobody_waits(client):
    assert (stats(client)["waiters"], stats(client)["queues"]) == (0, 0)


def queue_up(server, tokens, **options):
    """Waiters in this order, all parked."""
    client = server.client()
    already = stats(client)["waiters"]
    waiting = []
    for token in tokens:
        waiting.append(Waiting(server, token, **options))
        wait_for_waiters(client, already + len(waiting))
    return waiting
