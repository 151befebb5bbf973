"""Many locks and many waiters, made quickly, and what the server's processor spends on them."""

import contextlib
import socket

from support.waiting import A_DAY, wait_for_waiters

BATCH = 5000  # commands under way at a time


def send_all(bare, commands):
    """Inline commands with replies of one line each, in batches; the replies."""
    replies = []
    for first in range(0, len(commands), BATCH):
        batch = commands[first:first + BATCH]
        bare.send(*batch)
        replies += bare.read(len(batch))
    return replies


def hold_many(bare, count, lease_ms, options="", key="lock:{}"):
    """The locks lock:0, lock:1, ... are held by "me", over this connection."""
    replies = send_all(bare, [f"DLOCK.ACQUIRE {key.format(i)} me PX {lease_ms} {options}"
                              for i in range(count)])
    assert all(reply.startswith(b":") for reply in replies)


@contextlib.contextmanager
def parked(server, count, key="lock:{}", token="waiter:{}", wait_ms=A_DAY, lease_ms=600_000):
    """So many clients wait, in their order if it is one lock, for the body of a with statement.
    They are bare sockets."""
    sockets = []
    try:
        for i in range(count):
            sockets.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            line = f"DLOCK.ACQUIRE {key.format(i)} {token.format(i)} PX {lease_ms} WAIT {wait_ms}"
            sockets[-1].sendall(f"{line}\r\n".encode())
            if i % 500 == 0:
                wait_for_waiters(server.observer, i + 1)
        wait_for_waiters(server.observer, count)
        yield sockets
    finally:
        for bare in sockets:
            bare.close()


def cpu_seconds(client):
    """What the server has used of a processor: other programs do not count."""
    used = client.info("cpu")
    return used["used_cpu_user"] + used["used_cpu_sys"]


class Cpu:
    """with Cpu(client) as cpu: ...; then cpu.seconds."""

    def __init__(self, client):
        self.client = client

    def __enter__(self):
        self.before = cpu_seconds(self.client)
        return self

    def __exit__(self, *_):
        self.seconds = cpu_seconds(self.client) - self.before
