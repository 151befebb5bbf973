"""Scenario: server time of handing a lock over, by the number of those who wait for it.

One lock goes round among connections: one holds it, all others wait in its queue. Whoever gives it
back queues up again, so the queue is always as long as the row says.

Instructions are counted under callgrind (see instructions.py) for the release or the DEL and the
hand-over alone: the median of many, each between two marks, less what two marks cost with nothing
in between. A DEL stands for all that frees a lock otherwise, such as the end of a lease.
Processor time is what the server says it used, for the release, the hand-over and the new wait; it
includes the kernel's work for the sockets. There each number of waiters has its own server, and
the servers take turns.
"""

import collections
import contextlib
import resource
import statistics

import driver
import ways
from instructions import CountedServer, total
from report import Bar, Table
from support.waiting import wait_for_waiters
from talk import Talk

NAME = "handover"
QUEUES = [1, 10, 100, 1000, 10_000]
KEY = "handover"
LEASE_MS = WAIT_MS = 1_800_000  # Redis 7.0 may not sleep while a timer is over 35 minutes away
CONNECT_AT_ONCE = 100  # fewer than a server lets wait to be accepted
SPARE_FILES = 200  # of a process, besides its connections
OPTIONS = ["--maxclients", max(QUEUES) + SPARE_FILES]
LIMIT = Bar("<=", 1.5)
TURNS = 500  # in a row on one server


class Member:
    def __init__(self, server, token):
        self.talk = Talk(server)
        self.acquire = ways.encode([*ways.DLOCK.acquire(KEY, token, LEASE_MS), "WAIT", WAIT_MS])
        self.release = ways.encode(ways.DLOCK.release(KEY, token))


class Ring:
    """Connections that get the lock in turn: the first of them holds it, all others wait."""

    def __init__(self, server):
        self.server = server
        self.client = server.client()
        self.tokens = (token for _, token in ways.names(max(QUEUES) + 1, NAME))
        self.members = collections.deque()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.talk.socket.close()

    def grow(self, waiters):
        """Until so many wait."""
        while len(self.members) <= waiters:
            self.queue_up(Member(self.server, next(self.tokens)))
            if len(self.members) == 1:
                self.members[0].talk.receive(1)
            elif len(self.members) % CONNECT_AT_ONCE == 0:
                self.await_all()
        self.await_all()

    def await_all(self):
        """Until the server has seen all who wait."""
        wait_for_waiters(self.client, len(self.members) - 1)

    def queue_up(self, member):
        member.talk.socket.sendall(member.acquire)
        self.members.append(member)

    def hand_over(self, request=None):
        """The holder gives the lock back, or sends this request, and the next one has it; the
        result is who held it."""
        old = self.members.popleft()
        old.talk.send(request or old.release, 1)
        self.members[0].talk.receive(1)
        return old

    def turn(self):
        """A release and hand-over, and the old holder queues up again, in the same breath."""
        old = self.members.popleft()
        self.members.append(old)
        old.talk.send(old.release + old.acquire, 1)
        self.members[0].talk.receive(1)


def _allow_files(count):
    """For this process and the servers it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise AssertionError(f"{count} open files are needed, and the limit is {hard} (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _row(waiters):
    return f"{waiters:,} waiter{'s' if waiters > 1 else ''}"


def _table(title, method, unit, samples, bar=None, decimals=0):
    """samples: those of each queue, in order; bar: for the longest against the shortest."""
    table = Table(title, method, unit, bars={_row(QUEUES[0]): bar} if bar else {},
                  subject=f"{QUEUES[-1]:,}", decimals=decimals)
    for waiters, values in zip(reversed(QUEUES), reversed(samples)):
        table.add(_row(waiters), values)
    return table


# -- instructions


def counted_server():
    """Its timer must not run more often because it has many clients, and no command is slow because
    callgrind is."""
    return CountedServer(
        ways.DLOCK, "--dynamic-hz", "no", "--slowlog-log-slower-than", -1, *OPTIONS)


def count_hand_overs(counted, ring, count, request=None):
    """What callgrind counted for each: a list of files."""
    files = []
    for _ in range(count):
        counted.mark()
        old = ring.hand_over(request)
        files.append(counted.mark())
        ring.queue_up(old)
        ring.await_all()
    return files


def _count_instructions(count, rounds, progress):
    requests = {"release": None, "DEL": ways.encode(["DEL", KEY])}
    samples = {name: [] for name in requests}
    with counted_server() as counted, Ring(counted.server) as ring:
        for waiters in QUEUES:
            progress(f"instructions, {_row(waiters)}")
            ring.grow(waiters)
            count_hand_overs(counted, ring, 3)  # a first use is dearer
            mark = statistics.median(total(counted.count([], 0)) for _ in range(count))
            for name, request in requests.items():
                samples[name].append([
                    statistics.median(map(total, count_hand_overs(counted, ring, count, request)))
                    - mark for _ in range(rounds)])
    return [_table(
        f"User instructions of the server per {name} + hand-over",
        f"callgrind, median of {count} hand-overs, {rounds} times", "instructions", samples[name],
        bar=LIMIT if name == "release" else None) for name in requests]


# -- processor time


def _cpu_us(ring):
    cpu = ring.client.info("cpu")
    return (cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6


def _measure_time(rings, rounds, progress):
    samples = [[] for _ in QUEUES]
    for waiters, ring in zip(QUEUES, rings):
        progress(f"time, {_row(waiters)}")
        ring.grow(waiters)
    for i in range(rounds):
        progress(f"time, round {i + 1} of {rounds}")
        for ring, values in zip(rings, samples):
            before = _cpu_us(ring)
            for _ in range(TURNS):
                ring.turn()
            values.append((_cpu_us(ring) - before) / TURNS)
    return _table(
        "Processor time of the server per release + hand-over + new wait",
        f"{rounds} interleaved rounds of {TURNS:,}", "us", samples, bar=LIMIT, decimals=1)


def run(quick, progress):
    count, rounds = (11, 2) if quick else (21, 3)
    _allow_files(sum(QUEUES) + len(QUEUES) * SPARE_FILES)
    tables = _count_instructions(count, rounds, progress)
    with contextlib.ExitStack() as stack:
        rings = []
        for _ in QUEUES:
            server = ways.DLOCK.server(*OPTIONS, wrapper=driver.pinned_to(0))
            stack.callback(server.destroy)
            rings.append(stack.enter_context(Ring(server.start())))
        stack.enter_context(driver.PinnedSelf())
        tables.append(_measure_time(rings, 9 if quick else 15, progress))
    return tables
