"""Scenario: the local hotspot layer and hand-on, in the published experiment and on a hot lock.

The experiment: three processes with four threads each want one lock, 400 times per process, with a
wait of 3 s, to do GET, +1, SET on a counter of another server. Published for another library, with
a pause of 10 to 20 ms: 21,245 acquire commands and 91.6 % success plain; 6,105 and 95.6 % with a
local lock per process. That is about 20 ms with the lock each time; on loopback it would be a
fraction of one, and nobody would have to wait. So GET and SET take 5 ms each here, as on a network.
What is counted are the server's own command statistics. The ways run side by side, each with its
own servers: there is little to do for any of them.

The hot lock: sixteen threads of one process that do nothing with it.
"""

import contextlib
import statistics
import subprocess

import driver
import ways
from report import Bar, Sheet, Table
from support.server import Server

NAME = "hotspot"
PROCESSES, THREADS, TRIES = 3, 4, 100  # per thread: 400 per process
QUICK_TRIES = 40
ROUND_TRIP_MS = 5
HOT_THREADS = 16
SPIN, SERVER = ("spin", 10, 10), ("server", 0, 0)
WAYS = {  # how it waits, local lock, hand-on
    "spin": (SPIN, 0, 0),
    "spin, hotspot": (SPIN, 1, 0),
    "server wait": (SERVER, 0, 0),
    "server wait, hotspot": (SERVER, 1, 0),
    "server wait, hotspot, hand-on 16": (SERVER, 1, 16),
}
LIMITS = {  # acquire commands per try
    "server wait": 1.08,
    "server wait, hotspot": 1.08,
    "server wait, hotspot, hand-on 16": 0.33,
}
QUICK_WAYS = ["spin", "spin, hotspot", "server wait, hotspot, hand-on 16"]
HOT_WAYS = {
    "hand-on 16": (SERVER, 1, 16),
    "polling every 1-3 ms": (("spin", 1, 2), 0, 0),
    "server wait": (SERVER, 0, 0),
    "server wait, hotspot": (SERVER, 1, 0),
}


def _command(program, server, threads, tries, run_ms, way, counter_port):
    (mode, pause_ms, random_ms), is_local, hand_on = way
    return [*driver.pinned_to(-1), program, f"redis://127.0.0.1:{server.port}", *map(str, [
        threads, tries, run_ms, mode, pause_ms, random_ms, is_local, hand_on, counter_port,
        ROUND_TRIP_MS])]


class Experiment:
    """One way, with a server for the lock and one for the counter."""

    def __init__(self, way, stack):
        self.way = way
        self.locks = ways.DLOCK.server(wrapper=driver.pinned_to(0))
        self.counters = Server(module=None, wrapper=driver.pinned_to(0))
        for server in (self.locks, self.counters):
            stack.callback(server.destroy)
            server.start()
        self.runs = []

    def start(self, program, tries):
        self.locks.observer.config_resetstat()
        self.counters.observer.delete("counter")
        command = _command(program, self.locks, THREADS, tries, 0, self.way, self.counters.port)
        self.workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                        for _ in range(PROCESSES)]

    def finish(self):
        """Note the acquire commands and the tries that succeeded."""
        outputs = [worker.communicate(timeout=300)[0] for worker in self.workers]
        assert all(worker.returncode == 0 for worker in self.workers)
        successes = sum(int(output.split()[0]) for output in outputs)
        assert int(self.counters.observer.get("counter")) == successes, "an update was lost"
        stats = self.locks.observer.info("commandstats")
        calls = {name.lower(): value["calls"] for name, value in stats.items()}
        self.runs.append((calls["cmdstat_dlock.acquire"], successes))


def _run_experiment(program, used, tries, rounds, progress):
    """The name of a way -> its runs."""
    with contextlib.ExitStack() as stack:
        experiments = {name: Experiment(WAYS[name], stack) for name in used}
        for i in range(rounds):
            progress(f"experiment, round {i + 1} of {rounds}")
            for experiment in experiments.values():
                experiment.start(program, tries)
            for experiment in experiments.values():
                experiment.finish()
        return {name: experiment.runs for name, experiment in experiments.items()}


def _report_experiment(runs, tries):
    total = PROCESSES * THREADS * tries
    sheet = Sheet(
        f"The published experiment: {PROCESSES} processes, {THREADS} threads, {total:,} tries",
        f"{len(runs['spin'])} rounds, all ways side by side, medians; no update of the counter was "
        "lost", {"acquire commands": ",.0f", "success": ".1%"})
    commands = {name: statistics.median(run[0] for run in taken) for name, taken in runs.items()}
    for name, taken in runs.items():
        sheet.add(name, [commands[name], min(run[1] for run in taken) / total], runs=taken)
    sheet.promise("spin: commands with the layer / without",
                  commands["spin, hotspot"] / commands["spin"], Bar("<=", 0.35))
    for name in [name for name in LIMITS if name in runs]:
        sheet.promise(f"{name}: acquire commands per try, the most of all rounds",
                      max(run[0] for run in runs[name]) / total, Bar("<=", LIMITS[name]))
        sheet.promise(f"{name}: success, the least of all rounds",
                      min(run[1] for run in runs[name]) / total, Bar("==", 1))
    return sheet


def _run_hot(quick, progress, program):
    rounds, run_ms = (5, 250) if quick else (10, 400)
    used = list(HOT_WAYS)[:2] if quick else HOT_WAYS
    server = ways.DLOCK.server(wrapper=driver.pinned_to(0)).start()
    rates = {name: [] for name in used}
    try:
        for i in range(rounds):
            progress(f"hot lock, round {i + 1} of {rounds}")
            for name in used:
                command = _command(program, server, HOT_THREADS, 0, run_ms, HOT_WAYS[name], 0)
                output = subprocess.run(
                    command, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
                rates[name].append(int(output.split()[0]) * 1000 / run_ms)
    finally:
        server.destroy()
    table = Table(
        f"One hot lock, {HOT_THREADS} threads of one process: acquisitions per second",
        f"{rounds} interleaved runs of {run_ms} ms, medians", "per second",
        bars={"polling every 1-3 ms": Bar(">=", 8)}, subject="hand-on 16")
    for name, taken in rates.items():
        table.add(name, taken)
    return table


def run(quick, progress):
    program = driver.build("contest", uses_libdlock=True)
    hot = _run_hot(quick, progress, program)
    tries, rounds, used = (QUICK_TRIES, 1, QUICK_WAYS) if quick else (TRIES, 3, WAYS)
    runs = _run_experiment(program, used, tries, rounds, progress)
    return [_report_experiment(runs, tries), hot]
