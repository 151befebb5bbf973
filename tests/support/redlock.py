"""Locks at several independent servers: who has granted them, and who is told to be silent."""

import os
import signal
import time

from support import commands
from support.commands import Lock as Commands
from support.fake_server import resp
from support.libdlock import Status, Told
from support.server import wait_until

LONG_IO_MS = 5000  # where an answer is expected
SHORT_IO_MS = 300  # where none is
LEASE_MS = 600_000  # longer than any test
MINUTE_US = 60_000_000


def awake(*servers):
    """After silent(server), of conftest.py."""
    for server in servers:
        os.kill(server.pid, signal.SIGCONT)


def granted(words):
    """The answer of a fake server that grants everything: fences are from the clock, and not less
    than the one that is asked for."""
    if words[0] != b"DLOCK.ACQUIRE":
        return resp(1)
    least = int(words[words.index(b"FENCE") + 1]) if b"FENCE" in words else 0
    return resp(max(least, time.time_ns() // 1000))


def infos(servers, name="lock"):
    return [Commands(server.observer, name).info() for server in servers]


def served(server, command):
    """How many of these commands the server has served."""
    return commands.served(server.observer, command)


def tokens(servers, name="lock"):
    return [info and info["token"] for info in infos(servers, name)]


def take_everywhere(lock, servers):
    """The call itself waits for a majority only."""
    assert lock.acquire() == Status.OK, lock.error
    wait_until(lambda: tokens(servers) == [lock.token] * len(servers), "all to have granted it")


def hold_on(servers, name="lock", token="somebody", lease_ms=LEASE_MS):
    for server in servers:
        assert Commands(server.observer, name).acquire(token, lease_ms) > 0


def give_back(servers, name="lock", token="somebody"):
    for server in servers:
        assert Commands(server.observer, name).release(token) == 1


def take_turn(lock, fences):
    assert lock.acquire(60_000) == Status.OK, lock.error
    fences.append(lock.fence)
    assert lock.release() == Status.OK, lock.error


def keep(connect, servers, lease_ms=LEASE_MS, renew_every_ms=100, **options):
    """A lock that is renewed, and what its client was told."""
    told = Told()
    dlock = connect(servers, on_event=told, **{"io_timeout_ms": LONG_IO_MS, **options})
    lock = dlock.lock(lease_ms=lease_ms, renew_every_ms=renew_every_ms)
    assert lock.acquire() == Status.OK, lock.error
    return lock, told
