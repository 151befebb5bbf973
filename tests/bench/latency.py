"""Scenario: how soon a waiter has its answer, on a server that has nothing else to do.

    release          from before it is sent
    kill -9          of a process that holds the lock with SESSION: from before the signal is sent.
                     The process is small (hold.c): a large one is cleared away less quickly
    end of a lease   how late the waiter has the lock, counted from before the holder's request for
                     that lease is sent
    end of a wait    how late null comes, counted from before the request is sent
    a sleep          how late this process wakes up from one. Nothing of ours: a tail in the two
                     above is the machine's, as far as it is here as well

It ends when this process has read the answer. Server and driver have a core each. Leases, waits and
sleeps vary at random, so that they end anywhere between two runs of the server's own timer.
"""

import random
import statistics
import subprocess
import time

import driver
import ways
from report import Bar, Sheet, percentile
from support.commands import stats
from support.waiting import wait_for_waiters
from talk import Talk

NAME = "latency"
KEY = "latency"
LONG_MS = 600_000
SHORT_MS = (20, 80)
LEASE_BAR_MS = 5
KILL_BAR_MS = 2
(_, HOLDER), (_, WAITER) = ways.names(2, NAME)


def _acquire(token, lease_ms=LONG_MS, *options):
    return ways.encode([*ways.DLOCK.acquire(KEY, token, lease_ms), *options])


def _release(token):
    return ways.encode(ways.DLOCK.release(KEY, token))


class Stage:
    """A server, a connection that waits for the lock, and one for everything else."""

    def __init__(self, server):
        self.server = server
        self.hold = driver.build("hold")
        self.client = server.client()
        self.holder = Talk(server)
        self.waiter = Talk(server)
        self.chance = random.Random(NAME)

    def short_ms(self):
        return self.chance.randint(*SHORT_MS)

    def begin_to_wait(self):
        self.waiter.socket.sendall(_acquire(WAITER, LONG_MS, "WAIT", LONG_MS))
        wait_for_waiters(self.client, 1)

    def end_the_wait(self):
        """When the lock had come, in seconds of the wall clock."""
        self.waiter.receive(1)
        answered_at = time.time()
        self.waiter.send(_release(WAITER), 1)
        return answered_at


def _after_release(stage):
    stage.holder.send(_acquire(HOLDER), 1)
    stage.begin_to_wait()
    released_at = time.time()
    stage.holder.socket.sendall(_release(HOLDER))
    answered_at = stage.end_the_wait()
    stage.holder.receive(1)
    return answered_at - released_at


def _after_lease(stage):
    while True:
        handed_over = stats(stage.client)["handed_over"]
        lease_ms = stage.short_ms()
        asked_at = time.time()
        stage.holder.send(_acquire(HOLDER, lease_ms), 1)
        stage.waiter.socket.sendall(_acquire(WAITER, LONG_MS, "WAIT", LONG_MS))
        answered_at = stage.end_the_wait()
        if stats(stage.client)["handed_over"] > handed_over:
            return answered_at - asked_at - lease_ms / 1000
        # We were too slow, and found the lock free.


def _start_holder(stage):
    """A process that holds the lock in a session."""
    process = subprocess.Popen(
        [stage.hold, str(stage.server.port), _acquire(HOLDER, LONG_MS, "SESSION")],
        stdout=subprocess.PIPE)
    ways.check([process.stdout.readline().rstrip()])
    return process


def _after_kill(stage):
    with _start_holder(stage) as process:
        try:
            stage.begin_to_wait()
        finally:
            killed_at = time.time()
            process.kill()
        return stage.end_the_wait() - killed_at


def _after_wait(stage):
    stage.holder.send(_acquire(HOLDER), 1)
    wait_ms = stage.short_ms()
    asked_at = time.time()
    stage.waiter.socket.sendall(_acquire(WAITER, LONG_MS, "WAIT", wait_ms))
    reply = stage.waiter.socket.recv(64)
    answered_at = time.time()
    if reply != b"$-1\r\n":
        raise AssertionError(f"not null, but {reply!r}")
    stage.holder.send(_release(HOLDER), 1)
    return answered_at - asked_at - wait_ms / 1000


def _after_sleep(stage):
    sleep_ms = stage.short_ms()
    asked_at = time.time()
    time.sleep(sleep_ms / 1000)
    return time.time() - asked_at - sleep_ms / 1000


EVENTS = {
    "release": (_after_release, None),
    "kill -9 of a session": (_after_kill, KILL_BAR_MS),
    "end of a lease": (_after_lease, LEASE_BAR_MS),
    "end of a wait": (_after_wait, None),
    "a sleep, to compare": (_after_sleep, None),
}


def _measure(stage, rounds, progress):
    sheet = Sheet(
        "From an event to the waiter's answer", f"{rounds} rounds, idle server",
        {"median ms": ".2f", "p99 ms": ".2f", "max ms": ".2f"})
    samples = {name: [] for name in EVENTS}
    for i in range(rounds):
        if i % 10 == 0:
            progress(f"round {i + 1} of {rounds}")
        for name, (play, _) in EVENTS.items():
            samples[name].append(play(stage) * 1000)
    for name, (_, bar_ms) in EVENTS.items():
        took_ms = samples[name]
        median = statistics.median(took_ms)
        sheet.add(name, [median, percentile(took_ms, 0.99), max(took_ms)], samples=took_ms)
        if bar_ms is not None:
            sheet.promise(f"{name}, median", median, Bar("<=", bar_ms))
    return sheet


def run(quick, progress):
    server = ways.DLOCK.server(wrapper=driver.pinned_to(0))
    try:
        with driver.PinnedSelf():
            return [_measure(Stage(server.start()), 19 if quick else 100, progress)]
    finally:
        server.destroy()
