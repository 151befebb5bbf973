"""Scenario: a crowd of waiters and of kept locks: memory, connections and time of the server.

A process waits for many locks, or keeps many, and nothing happens meanwhile. What does the server
pay? dlock needs one session for all of them. The alternatives need a connection or a command for
each: a client that is blocked in BLPOP, a subscriber, an attempt every 100 ms; an EXTEND or PEXPIRE
for each lock every 10 s.

bytes         growth of the server's used_memory for each
connections   that the server has
ms a second   processor time of the server in each second, at rest or with the commands that are
              due. A command costs what 20,000 of them cost in a pipeline, which is the least that
              they can cost. The server itself, with nothing to do, is part of it
"""

import contextlib
import resource
import time

import driver
import ways
from report import Bar, Curves
from support.server import Server

NAME = "crowd"
NUMBERS = [1000, 10_000, 100_000, 1_000_000]
CLIENTS_MOST = 10_000  # connections that one process can well have
PORTION, SAMPLE, PER_NAME = 1000, 20_000, 100
REST_S, POLL_S, EXTEND_S = 3, 0.1, 10
SESSION, TIMEOUT_MS, A_DAY = "crowd" * 6, 60_000, 86_400_000
VIA = "dlock, by a session"
BLPOP, SUBSCRIBED, POLLING = "BLPOP", "publish/subscribe", "polling every 100 ms"
EXTEND, PEXPIRE = "DLOCK.EXTEND every 10 s", "PEXPIRE every 10 s"


class Crowd:
    """A server, one connection for commands and one for the session."""

    def __init__(self):
        self.server = Server("--maxclients", 3 * CLIENTS_MOST, "--save", "",
                             wrapper=driver.pinned_to(0)).start()
        self.client = self.server.observer
        self.commands, self.sockets = self.server.socket(), []
        self.session = None
        self.count = 0
        self.empty = self.memory()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in self.sockets:
            each.close()
        self.server.destroy()

    def memory(self):
        return self.client.info("memory")["used_memory"]

    def open_session(self):
        self.session = self.server.socket()
        self.sockets.append(self.session)
        self.beat()
        self.session.recv(4096)

    def beat(self):
        if self.session is not None:
            self.session.sendall(ways.encode(["DLOCK.SESSION", SESSION, "PX", TIMEOUT_MS]))

    def run(self, commands):
        """In a pipeline; each has a reply of one line, which is no error."""
        self.commands.sendall(b"".join(map(ways.encode, commands)))
        lines = 0
        while lines < len(commands):
            received = self.commands.recv(1 << 20)
            assert received and not received.startswith(b"-") and b"\n-" not in received, received
            lines += received.count(b"\n")

    def grow(self, number, make):
        """make(i): the command for one more."""
        while self.count < number:
            self.run([make(i) for i in range(self.count, self.count + PORTION)])
            self.count += PORTION
            if self.count % (20 * PORTION) == 0:
                self.beat()

    def connect(self, number, make):
        while self.count < number:
            one = self.server.socket()
            one.sendall(ways.encode(make(self.count)))
            self.sockets.append(one)
            self.count += 1
        while self.client.info("clients")["connected_clients"] < number:
            time.sleep(0.1)

    def cost_ms(self, make):
        """Of one command."""
        before = driver.cpu_seconds(self.server)
        for start in range(0, SAMPLE, PORTION):
            self.run([make(i % self.count) for i in range(start, start + PORTION)])
        return (driver.cpu_seconds(self.server) - before) / SAMPLE * 1000

    def rest_ms(self):
        """Processor time in each second in which nothing happens but heartbeats."""
        before, begin = driver.cpu_seconds(self.server), time.monotonic()
        for _ in range(REST_S):
            self.beat()
            time.sleep(1)
        return (driver.cpu_seconds(self.server) - before) / (time.monotonic() - begin) * 1000

    def figures(self, ms_a_second):
        return {"bytes": [(self.memory() - self.empty) / self.count],
                "connections": [self.client.info("clients")["connected_clients"]],
                "ms a second": [ms_a_second]}


def _queue(i):
    return ["DLOCK.ACQUIRE", f"name:{i // PER_NAME}", f"token:{i}", "PX", A_DAY, "WAIT", A_DAY,
            "VIA", SESSION]


def _keep(i):
    return ["DLOCK.ACQUIRE", f"name:{i}", f"token:{i}", "VIA", SESSION, "SESSION"]


def _hold(i):
    return ["DLOCK.ACQUIRE", f"name:{i}", f"token:{i}", "PX", A_DAY]


def _set(i):
    return ["SET", f"name:{i}", f"token:{i}", "NX", "PX", A_DAY]


def _wait_by_session(curves, numbers, progress):
    with Crowd() as crowd:
        crowd.run([["CONFIG", "SET", "dlock.max-waiters-in-all", 2 * NUMBERS[-1]]])
        crowd.open_session()
        for name in range(numbers[-1] // PER_NAME):
            crowd.run([["DLOCK.ACQUIRE", f"name:{name}", "holder", "PX", A_DAY]])
        crowd.empty = crowd.memory()
        for number in numbers:
            progress(f"{number:,} wait by a session")
            crowd.grow(number, _queue)
            curves.add(VIA, number, crowd.figures(crowd.rest_ms()))


def _wait_by_connections(curves, line, make, numbers, progress):
    with Crowd() as crowd:
        for number in numbers:
            progress(f"{number:,} wait, {line}")
            crowd.connect(number, make)
            curves.add(line, number, crowd.figures(crowd.rest_ms()))


def _keep_by_commands(curves, line, take, renew, every_s, numbers, progress):
    """Each lock costs a command every so many seconds; or each waiter that polls for one."""
    with Crowd() as crowd:
        rest_ms = crowd.rest_ms()
        for number in numbers:
            progress(f"{number:,}, {line}")
            crowd.grow(number, take)
            cost_ms = crowd.cost_ms(renew)
            curves.add(line, number, crowd.figures(rest_ms + cost_ms * number / every_s))


def _keep_by_session(curves, numbers, progress):
    with Crowd() as crowd:
        crowd.open_session()
        for number in numbers:
            progress(f"{number:,} kept by a session")
            crowd.grow(number, _keep)
            curves.add(VIA, number, crowd.figures(crowd.rest_ms()))


def run(quick, progress):
    numbers = NUMBERS[:2] if quick else NUMBERS
    few = [number for number in numbers if number <= CLIENTS_MOST]
    columns = {"bytes": ",.0f", "connections": ",.0f", "ms a second": ",.1f"}
    method = "tokens and names of about 12 bytes, one run, the server on a core of its own"
    waits = Curves("A crowd waits: what the server pays", f"{method}, {PER_NAME} for each name",
                   "waiters", columns)
    kept = Curves("A crowd of locks is kept: what the server pays", method, "locks", columns)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        _wait_by_session(waits, numbers, progress)
        _wait_by_connections(waits, BLPOP, lambda i: ["BLPOP", f"name:{i // PER_NAME}", 0], few,
                             progress)
        _wait_by_connections(waits, SUBSCRIBED, lambda i: ["SUBSCRIBE", f"name:{i // PER_NAME}"],
                             few, progress)
        _keep_by_session(kept, numbers, progress)
        _keep_by_commands(kept, EXTEND, _hold, lambda i: [
            "DLOCK.EXTEND", f"name:{i}", f"token:{i}", "PX", A_DAY], EXTEND_S, numbers, progress)
        _keep_by_commands(kept, PEXPIRE, _set, lambda i: ["PEXPIRE", f"name:{i}", A_DAY], EXTEND_S,
                          numbers, progress)
        polls = Curves("", "", "", columns)
        _keep_by_commands(polls, POLLING, _set, _set, POLL_S, numbers, progress)
    for number, samples in polls.lines[POLLING].items():  # a waiter that polls takes no memory
        waits.add(POLLING, number, {"ms a second": samples["ms a second"]})
    number = few[-1]
    waits.promise(f"bytes per waiter, dlock / BLPOP, {number:,} wait",
                  waits.ratio("bytes", VIA, BLPOP, number), Bar("<=", 0.2))
    if quick:
        return [waits, kept]
    kept.promise(f"processor time, dlock / DLOCK.EXTEND, {numbers[-1]:,} kept",
                 kept.ratio("ms a second", VIA, EXTEND, numbers[-1]), Bar("<=", 0.2))
    return [waits, kept]
