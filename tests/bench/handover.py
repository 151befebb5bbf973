"""Scenario: server time of handing a lock over, by the number of those who wait for it.

One lock goes round among connections: one holds it, all others wait in its queue. Whoever gives it
back queues up again, so the queue is always as long as the figures say. For comparison, waiting by
publish and subscribe: the release wakes all, and all but one have come in vain (crowd.py).
In a cluster, servers look at clients that are blocked on a key in ways of their own. Valkey 9.1 is
measured as one, since there the DEL of an awaited lock was dearest. Its timer looks after clients
the more often the more there are, and under callgrind that falls into most hand-overs; so the least
of them counts, and the processor time shows that nothing is put off.

Instructions are counted under callgrind (see instructions.py) for the release or the DEL and the
hand-over alone: the median of many, each between two marks, less what two marks cost with nothing
in between. A DEL stands for all that frees a lock otherwise, such as the end of a lease.
Processor time is what the server says it used, for the release, the hand-over and the new wait; it
includes the kernel's work for the sockets. There each number of waiters has its own server, and
the servers take turns; not those of the crowd, whose figures differ by far more than a slow moment.
"""

import collections
import contextlib
import resource
import statistics

import crowd
import driver
import ways
from instructions import CountedServer, total
from report import Bar, Curves, median_ratio
from support.cluster import SLOTS
from support.commands import plain
from support.server import free_port, wait_until
from support.waiting import wait_for_waiters
from talk import Talk

NAME = "handover"
QUEUES = [1, 10, 100, 1000, 10_000]
KEY = "handover"
LEASE_MS = WAIT_MS = 1_800_000  # Redis 7.0 may not sleep while a timer is over 35 minutes away
CONNECT_AT_ONCE = 100  # fewer than a server lets wait to be accepted
SPARE_FILES = 200  # of a process, besides its connections
OPTIONS = ["--maxclients", max(QUEUES) * 4 // 3 + SPARE_FILES]  # of which 3/4 may wait
TURNS = 300  # in a row on one server
TITLE = "Hand-over: what the server spends until the next one has the lock, and all others wait"
RELEASE = "DLOCK.RELEASE to a waiter"
DELETE = "DEL, to a waiter"
REQUESTS = {RELEASE: None, DELETE: ways.encode(["DEL", KEY])}
CLUSTER_TITLE = "In a cluster of Valkey 9.1: what the server spends on a hand-over"
CLUSTER_QUEUES = [1000, 10_000]
COLUMNS = {"instructions": ",.0f", "us": ",.1f"}
VALKEY = ways.DLOCK.on(ways.VALKEY)
MOST_TIMES = 1.5  # what many waiters may cost, compared with few


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

    def turn(self, request=None):
        """A release, or this request, and hand-over, and the old holder queues up again, in the
        same breath."""
        old = self.members.popleft()
        self.members.append(old)
        old.talk.send((request or old.release) + old.acquire, 1)
        self.members[0].talk.receive(1)


def _allow_files(count):
    """For this process and the servers it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise AssertionError(f"{count} open files are needed, and the limit is {hard} (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _cluster_options():
    return ["--cluster-enabled", "yes", "--cluster-port", free_port()]


def _take_all_slots(server):
    """A cluster of one node."""
    client = server.observer
    client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
    wait_until(lambda: b"cluster_state:ok" in plain(client, "CLUSTER", "INFO").split(),
               "the cluster", timeout=60)


# -- instructions


def counted_server(way=ways.DLOCK, kind=CountedServer):
    """Its timer must not run more often because it has many clients, and no command is slow because
    callgrind is."""
    return kind(way, "--dynamic-hz", "no", "--slowlog-log-slower-than", -1, *OPTIONS)


class CountedCluster(CountedServer):
    def __init__(self, way, *options):
        super().__init__(way, *_cluster_options(), *options)

    def prepare(self):
        _take_all_slots(self.server)
        super().prepare()


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


def _count_instructions(curves, server, numbers, lines, count, rounds, progress,
                        judge=statistics.median):
    with server as counted, Ring(counted.server) as ring:
        for waiters in numbers:
            progress(f"instructions, {waiters:,} waiting")
            ring.grow(waiters)
            count_hand_overs(counted, ring, 3)  # a first use is dearer
            mark = counted.mark_cost(count, judge)
            for line in lines:
                files = [count_hand_overs(counted, ring, count, REQUESTS[line])
                         for _ in range(rounds)]
                curves.add(line, waiters, {"instructions": [
                    judge(map(total, taken)) - mark for taken in files]})


# -- processor time


@contextlib.contextmanager
def _rings(numbers, way=ways.DLOCK, is_cluster=False):
    """The number of those who wait -> a ring at a server of its own, for the body of a with
    statement."""
    with contextlib.ExitStack() as stack:
        rings = {}
        for waiters in numbers:
            options = [*OPTIONS, *(_cluster_options() if is_cluster else [])]
            server = way.server(*options, wrapper=driver.pinned_to(0))
            stack.callback(server.destroy)
            server.start()
            if is_cluster:
                _take_all_slots(server)
            rings[waiters] = stack.enter_context(Ring(server))
        stack.enter_context(driver.PinnedSelf())
        yield rings


def _measure_time(curves, rings, rounds, progress, line=RELEASE):
    """rings: the number of those who wait -> their ring."""
    samples = {waiters: [] for waiters in rings}
    for waiters, ring in rings.items():
        progress(f"time, {waiters:,} waiting")
        ring.grow(waiters)
    for i in range(rounds):
        progress(f"time, round {i + 1} of {rounds}")
        for waiters, ring in rings.items():
            before = driver.cpu_seconds(ring.server)
            for _ in range(TURNS):
                ring.turn(REQUESTS[line])
            samples[waiters].append((driver.cpu_seconds(ring.server) - before) / TURNS * 1e6)
    for waiters, us in samples.items():
        curves.add(line, waiters, {"us": us})


# -- the comparison


def _measure_crowd(curves, numbers, progress):
    with counted_server(crowd.WAY) as counted:
        crowd.count_instructions(curves, counted, numbers, progress)
    server = crowd.WAY.server(*OPTIONS, wrapper=driver.pinned_to(0))
    try:
        with driver.PinnedSelf():
            crowd.measure_time(curves, server.start(), numbers, progress)
    finally:
        server.destroy()


# -- a cluster


def _count_cluster(numbers, count, rounds, columns, progress):
    curves = Curves(
        CLUSTER_TITLE, f"callgrind, the least of {count} hand-overs, {rounds} times; processor "
        f"time, interleaved rounds of {TURNS}", "waiters", columns)
    progress("a cluster of Valkey 9.1")
    _count_instructions(curves, counted_server(VALKEY, CountedCluster), numbers, REQUESTS, count,
                        rounds, progress, judge=min)
    return curves


def _measure_cluster(numbers, count, count_rounds, rounds, progress):
    curves = _count_cluster(numbers, count, count_rounds, COLUMNS, progress)
    for line in REQUESTS:
        with _rings(numbers, VALKEY, is_cluster=True) as rings:
            _measure_time(curves, rings, rounds, progress, line)
    _promise(curves, DELETE, numbers)
    return curves


def _promise(curves, line, numbers):
    few, many = numbers[0], numbers[-1]
    for column in curves.columns:
        samples = [curves.lines[line][number][column] for number in (many, few)]
        curves.promise(f"{line}, {column}, {many:,} waiting / {few:,}", median_ratio(*samples),
                       Bar("<=", MOST_TIMES))


def _run_quick(progress):
    numbers, count = [QUEUES[0], QUEUES[-1] // 4], 11
    columns = {"instructions": COLUMNS["instructions"]}
    curves = Curves(TITLE, f"callgrind, median of {count} hand-overs", "waiters", columns)
    _count_instructions(curves, counted_server(), numbers, [RELEASE], count, 1, progress)
    _promise(curves, RELEASE, numbers)
    if not ways.VALKEY.exists():
        return [_without_cluster(curves)]
    numbers = [number // 4 for number in CLUSTER_QUEUES]
    cluster = _count_cluster(numbers, count, 1, columns, progress)
    _promise(cluster, DELETE, numbers)
    return [curves, cluster]


def _without_cluster(curves):
    curves.notes.append("Not measured: a cluster, as there is no Valkey 9.1 "
                        "(scripts/get-servers valkey-9.1).")
    return curves


def run(quick, progress):
    _allow_files(sum(QUEUES) + len(QUEUES) * SPARE_FILES)
    if quick:
        return _run_quick(progress)
    count, count_rounds, rounds = 11, 2, 11
    curves = Curves(
        TITLE, f"callgrind, median of {count} hand-overs, {count_rounds} times; processor time, "
        f"{rounds} interleaved rounds of {TURNS}", "waiters",
        COLUMNS)
    _count_instructions(curves, counted_server(), QUEUES, REQUESTS, count, count_rounds, progress)
    with _rings(QUEUES) as rings:
        _measure_time(curves, rings, rounds, progress)
    _promise(curves, RELEASE, QUEUES)
    _measure_crowd(curves, QUEUES, progress)
    if not ways.VALKEY.exists():
        return [_without_cluster(curves)]
    return [curves, _measure_cluster(CLUSTER_QUEUES, count, count_rounds, rounds, progress)]
