"""Scenario: one lock that everybody wants: waiting inside the server against the alternatives.

Threads take it and give it back, with nothing in between, each way with 1 to 32 of them. The ways
take turns, so that a slow moment of the machine hits them all; servers share one core, the driver
(hot.c) has another. One thread alone shows what a lock costs that nobody else wants.

A share is a contender's part of all acquisitions, one eighth when eight are served alike. Fairness
is Jain's index: 1 when all have the same, 1/8 when one of eight has all. Only waits that ended
within the run are in p50 and p99. One that goes on at its end counts for max, as long as it is by
then: else a contender that starves would improve the figures. Commands are what clients send: what
a script calls is no command, and messages to subscribers are none either.

On a virtual machine the host takes both cores away now and then, for many times as long as a wait
takes. So only the third of the turns counts during which it took the least, three at least;
the data has them all.
"""

import contextlib
import statistics
import subprocess
import time

import driver
import machine
import ways
from report import Bar, Curves, percentile

NAME = "hot"
THREADS = [1, 2, 4, 8, 16, 32]
BAR_THREADS = 8
KEY, TOKEN_MARK = "hot", "@"
WAIT_MS = 600_000
RUN_MS = 300
COLUMNS = {"per second": ",.0f", "p50 ms": ",.2f", "p99 ms": ",.2f", "max ms": ",.1f",
           "commands each": ".2f", "server us each": ",.1f", "least share": ".1%",
           "fairness": ".3f"}


def _commands(way, *options, pause_us=(0, 0)):
    texts = [[*way.acquire(KEY, TOKEN_MARK), *options], way.release(KEY, TOKEN_MARK)]
    return ["commands", *pause_us, *[" ".join(map(str, words)) for words in texts]]


WAIT, POLL = "dlock WAIT", "polling 1-3 ms"
WAYS = {  # the name -> whether the server has the module, and the driver's arguments
    WAIT: (True, _commands(ways.DLOCK, "WAIT", WAIT_MS)),
    "dlock WAIT, hand-on 16": (True, ["libdlock", "server", 0, 0, 16]),
    POLL: (False, _commands(ways.SET_EVALSHA, pause_us=(1000, 3000))),
    "polling 10-20 ms": (False, _commands(ways.SET_EVALSHA, pause_us=(10_000, 20_000))),
    "dlock polling, hotspot": (True, ["libdlock", "spin", 1, 2, 0]),
    "publish (Redisson)": (False, ["redisson"]),
    "BLPOP (python-redis-lock)": (False, ["blpop"]),
}
BAR_WAYS = [WAIT, POLL]


def build():
    return driver.build("hot", "hot_commands", "hot_libdlock", "hot_redisson", "hot_blpop", "wire",
                        uses_libdlock=True)


def contend(program, port, threads, run_ms, arguments, hold_us=0):
    """Run the driver: how many commands it has sent, and for each contender its acquisitions, the
    wait that the end of the run cut off, and the waits that ended before; in ms."""
    output = subprocess.run(
        [*driver.pinned_to(-1), program,
         *map(str, [port, threads, run_ms, hold_us, *arguments])],
        check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
    sent, *lines = output.splitlines()
    contenders = []
    for line in lines:
        count, *waits_ns = map(int, line.split())
        unfinished, *waits = [wait / 1e6 for wait in waits_ns]
        contenders.append((count, unfinished, waits))
    return int(sent), contenders


def _measure(program, servers, threads, way):
    has_module, arguments = WAYS[way]
    server = servers[has_module]
    client = server.observer
    client.config_resetstat()
    before = driver.cpu_seconds(server)
    sent, contenders = contend(program, server.port, threads, RUN_MS, arguments)
    cpu_us = (driver.cpu_seconds(server) - before) * 1e6
    if has_module:  # the server has counted, and libdlock has not
        sent = sum(stats["calls"] for name, stats in client.info("commandstats").items()
                   if name.lower().startswith("cmdstat_dlock."))
    return _figures(contenders, sent, cpu_us, RUN_MS / 1000)


def _figures(contenders, command_count, cpu_us, seconds):
    acquisitions = sum(count for count, _, _ in contenders)
    waits = [wait for _, _, waits in contenders for wait in waits]
    shares = [len(waits) for _, _, waits in contenders]
    return {
        "per second": len(waits) / seconds,
        "p50 ms": percentile(waits, 0.50),
        "p99 ms": percentile(waits, 0.99),
        "max ms": max(waits + [unfinished for _, unfinished, _ in contenders]),
        "commands each": command_count / acquisitions,
        "server us each": cpu_us / acquisitions,
        "least share": min(shares) / sum(shares),
        "fairness": sum(shares) ** 2 / (len(shares) * sum(share ** 2 for share in shares)),
    }


class Turn:
    """The ways one after the other with so many threads, and how much of the time the host took."""

    def __init__(self, program, servers, threads, names):
        before, begin = machine.stolen_seconds(), time.monotonic()
        self.figures = {name: _measure(program, servers, threads, name) for name in names}
        elapsed = (time.monotonic() - begin) * len(driver.CORES)
        self.stolen = (machine.stolen_seconds() - before) / elapsed


def _quietest(turns, name):
    turns = sorted((turn for turn in turns if name in turn.figures), key=lambda turn: turn.stolen)
    return turns[:max(3, len(turns) // 3)]


def _curves(turns):
    """turns: the number of threads -> the turns with it."""
    curves = Curves(
        "One hot lock, nothing done with it: acquisitions and waits",
        f"interleaved runs of {RUN_MS} ms, medians of the quietest of them", "threads", COLUMNS)
    for name in WAYS:
        for threads, taken in turns.items():
            quiet = [turn.figures[name] for turn in _quietest(taken, name)]
            if quiet:
                curves.add(name, threads, {column: [figures[column] for figures in quiet]
                                           for column in COLUMNS})
    return curves


def _promise(curves, turns):
    for column, bar in (("per second", Bar(">=", 1.5)), ("p99 ms", Bar("<=", 0.2))):
        curves.promise(f"{column}, {BAR_THREADS} threads, {WAIT} / {POLL}",
                       curves.ratio(column, WAIT, POLL, BAR_THREADS), bar)
    commands = [turn.figures[WAIT]["commands each"] for turn in turns]
    curves.promise(f"commands each, {WAIT}, the worst of all runs",
                   max(commands, key=lambda each: abs(each - 2)), Bar("==", 2))


def _note(curves, turns):
    rates = [samples["per second"] for points in curves.lines.values()
             for samples in points.values()]
    spreads = [(max(taken) - min(taken)) / statistics.median(taken) for taken in rates]
    curves.notes.append("Spread of the rates at one point, (largest - smallest) / median: "
                        f"median {statistics.median(spreads):.0%}, worst {max(spreads):.0%}.")
    stolen = [turn.stolen for turn in turns]
    curves.notes.append(f"Time stolen by the host, per turn: {min(stolen):.1%} to "
                        f"{max(stolen):.1%}, median {statistics.median(stolen):.1%}.")


def _report(turns):
    curves = _curves(turns)
    curves.details["turns"] = [
        {"threads": threads, "stolen": turn.stolen, "figures": turn.figures}
        for threads, taken in turns.items() for turn in taken]
    all_turns = sum(turns.values(), [])
    _promise(curves, all_turns)
    _note(curves, all_turns)
    return curves


def _plan(quick):
    """The turns to take: a list of (threads, ways) for each round. Those that bars are about take
    more of them. Each round begins with another way: the first one may have it harder."""
    rounds = []
    for i in range(8 if quick else 6):
        for_bars = BAR_WAYS[i % 2:] + BAR_WAYS[:i % 2]
        names = list(WAYS)[i:] + list(WAYS)[:i]
        rounds.append([(BAR_THREADS, for_bars)] if quick else
                      [(threads, names) for threads in THREADS] + [(BAR_THREADS, for_bars)] * 3)
    return rounds


@contextlib.contextmanager
def _servers():
    """Whether it has the module -> a server, for the body of a with statement."""
    servers = {}
    try:
        for way in (ways.DLOCK, ways.SET_EVALSHA):
            servers[way.needs_module] = server = way.server(wrapper=driver.pinned_to(0))
            ways.prepare(way, server.start().client())
        yield servers
    finally:
        for server in servers.values():
            server.destroy()


def run(quick, progress):
    turns = {}
    plan = _plan(quick)
    program = build()
    with _servers() as servers:
        for i, part in enumerate(plan):
            progress(f"round {i + 1} of {len(plan)}")
            for threads, names in part:
                turn = Turn(program, servers, threads, names)
                turns.setdefault(threads, []).append(turn)
    return [_report(turns)]
