"""Scenario: one lock that everybody wants: waiting inside the server against polling.

Eight contenders take it and give it back, with nothing in between. The ways take turns, so that a
slow moment of the machine hits them all; servers share one core, the driver (hot.c) has another.

A share is a contender's part of all acquisitions, one eighth when all are served alike. Fairness is
Jain's index: 1 when all have the same, 1/8 when one has all. Only waits that ended within the run
are in p50 and p99. One that goes on at its end counts for max, as long as it is by then: else a
contender that starves would improve the figures.

On a virtual machine the host takes both cores away now and then, for many times as long as a wait
takes. So the half of the runs counts during which it took the least; the data has them all.
"""

import statistics
import subprocess
import time

import driver
import machine
import ways
from report import Bar, Sheet, median_ratio, percentile

NAME = "hot"
CONTENDERS = 8
KEY = "hot"
TOKEN_MARK = "@" * 36
WAIT_MS = 600_000


class Contest:
    """One way to get the lock: the command to ask with, and how long to pause after a refusal."""

    def __init__(self, name, server, acquire, release, pause_us=(0, 0)):
        self.name = name
        self.server = server
        self.commands = [acquire, release]
        self.pause_us = pause_us
        self.runs = []
        self.quiet_runs = []

    def run(self, program, run_ms):
        client = self.server.client()
        client.config_resetstat()
        output = subprocess.run(
            [*driver.pinned_to(-1), program, str(self.server.port), str(CONTENDERS), str(run_ms),
             *map(str, self.pause_us), *map(ways.encode, self.commands)],
            check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
        stats = {name.lower(): value for name, value in client.info("commandstats").items()}
        command_count = sum(stats[f"cmdstat_{command[0].lower()}"]["calls"]
                            for command in self.commands)
        self.runs.append(_figures(output, command_count, run_ms / 1000))

    def samples(self, name):
        return [run[name] for run in self.quiet_runs]

    def median(self, name):
        return statistics.median(self.samples(name))


def _figures(output, command_count, seconds):
    acquisitions, waits_ms, unfinished_ms, shares = 0, [], [], []
    for line in output.splitlines():
        count, unfinished, *waits = map(int, line.split())
        acquisitions += count
        unfinished_ms.append(unfinished / 1e6)
        waits_ms += [wait / 1e6 for wait in waits]
        shares.append(len(waits))
    return {
        "rate": len(waits_ms) / seconds,
        "p50": percentile(waits_ms, 0.50),
        "p99": percentile(waits_ms, 0.99),
        "max": max(waits_ms + unfinished_ms),
        "commands": command_count / acquisitions,
        "least_share": min(shares) / sum(shares),
        "fairness": sum(shares) ** 2 / (len(shares) * sum(share ** 2 for share in shares)),
    }


def _contests(servers):
    wait = [*ways.DLOCK.acquire(KEY, TOKEN_MARK), "WAIT", WAIT_MS]
    poll = [way(KEY, TOKEN_MARK) for way in (ways.SET_EVALSHA.acquire, ways.SET_EVALSHA.release)]
    return [
        Contest("DLOCK.ACQUIRE WAIT", servers[0], wait, ways.DLOCK.release(KEY, TOKEN_MARK)),
        Contest("SET NX every 1-3 ms", servers[1], *poll, pause_us=(1000, 3000)),
        Contest("SET NX every 10-20 ms", servers[1], *poll, pause_us=(10_000, 20_000)),
    ]


def _run_all(contests, program, rounds, run_ms, progress):
    """Fill the contests; the result is the time stolen during each round, in parts of its time."""
    stolen = []
    for i in range(rounds):
        progress(f"round {i + 1} of {rounds}")
        before, begin = machine.stolen_seconds(), time.monotonic()
        for contest in contests:
            contest.run(program, run_ms)
        elapsed = (time.monotonic() - begin) * len(driver.CORES)
        stolen.append((machine.stolen_seconds() - before) / elapsed)
    quiet = sorted(range(rounds), key=lambda i: stolen[i])[:(rounds + 1) // 2]
    for contest in contests:
        contest.quiet_runs = [contest.runs[i] for i in quiet]
    return stolen


def _report(contests, run_ms, stolen):
    sheet = Sheet(
        f"One hot lock, {CONTENDERS} connections, nothing done with it: acquisitions and waits",
        f"{len(stolen)} interleaved runs of {run_ms} ms, medians of the quieter half; max and "
        "least share: its worst run",
        {"per second": ",.0f", "p50 ms": ",.2f", "p99 ms": ",.2f", "max ms": ",.1f",
         "commands each": ".2f", "least share": ".1%", "fairness": ".3f"})
    for contest in contests:
        sheet.add(contest.name, [
            contest.median("rate"), contest.median("p50"), contest.median("p99"),
            max(contest.samples("max")), contest.median("commands"),
            min(contest.samples("least_share")), contest.median("fairness"),
        ], runs=contest.runs, stolen=stolen)
    wait, poll = contests[:2]
    sheet.promise(f"acquisitions/s, WAIT / {poll.name}",
                  median_ratio(wait.samples("rate"), poll.samples("rate")), Bar(">=", 1.5))
    sheet.promise(f"p99 wait, WAIT / {poll.name}",
                  median_ratio(wait.samples("p99"), poll.samples("p99")), Bar("<=", 0.2))
    commands = [run["commands"] for run in wait.runs]
    sheet.promise("commands per acquisition, WAIT, the worst of all runs",
                  max(commands, key=lambda each: abs(each - 2)), Bar("==", 2))
    sheet.notes.append(f"Time stolen by the host, per run: {min(stolen):.1%} to {max(stolen):.1%}, "
                       f"median {statistics.median(stolen):.1%}.")
    return sheet


def run(quick, progress):
    rounds, run_ms = (8, 300) if quick else (20, 400)
    program = driver.build("hot")
    used = (ways.DLOCK, ways.SET_EVALSHA)
    servers = [way.server(wrapper=driver.pinned_to(0)) for way in used]
    try:
        for server, way in zip(servers, used):
            ways.prepare(way, server.start().client())
        contests = _contests(servers)
        stolen = _run_all(contests, program, rounds, run_ms, progress)
        return [_report(contests, run_ms, stolen)]
    finally:
        for server in servers:
            server.destroy()
