"""Scenario: the local hotspot layer and hand-on, in the published experiment and on a hot lock.

The experiment: three processes with four threads each want one lock, 400 times per process, with a
wait of 3 s, to do GET, +1, SET on a counter of another server. Published for another library, with
a pause of 10 to 20 ms: 21,245 acquire commands and 91.6 % success plain; 6,105 and 95.6 % with a
local lock per process. That is about 20 ms with the lock each time; on loopback it would be a
fraction of one, and nobody would have to wait. So GET and SET take 5 ms each here, as on a network.
What is counted are the server's own command statistics.

The hot lock: sixteen threads of one process that do nothing with it.
"""

import statistics
import subprocess

import driver
import ways
from report import Bar, Sheet, Table
from support.server import Server

NAME = "hotspot"
PROCESSES, THREADS, TRIES = 3, 4, 100  # per thread: 400 per process
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


def _experiment(program, locks, counters, way):
    """Acquire commands, tries that succeeded, and what the counter shows."""
    client, store = locks.client(), counters.client()
    client.config_resetstat()
    store.delete("counter")
    workers = [subprocess.Popen(_command(program, locks, THREADS, TRIES, 0, way, counters.port),
                                stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    successes = sum(int(worker.communicate(timeout=300)[0].split()[0]) for worker in workers)
    assert all(worker.returncode == 0 for worker in workers)
    stats = {name.lower(): value for name, value in client.info("commandstats").items()}
    assert int(store.get("counter")) == successes, "an update was lost"
    return stats["cmdstat_dlock.acquire"]["calls"], successes


def _run_experiment(quick, progress, program):
    rounds = 1 if quick else 2
    locks = ways.DLOCK.server(wrapper=driver.pinned_to(0)).start()
    counters = Server(module=None, wrapper=driver.pinned_to(0)).start()
    runs = {name: [] for name in WAYS}
    try:
        for i in range(rounds):
            progress(f"experiment, round {i + 1} of {rounds}")
            for name, way in WAYS.items():
                runs[name].append(_experiment(program, locks, counters, way))
    finally:
        locks.destroy()
        counters.destroy()
    return runs


def _report_experiment(runs):
    total = PROCESSES * THREADS * TRIES
    sheet = Sheet(
        f"The published experiment: {PROCESSES} processes, {THREADS} threads, {total:,} tries",
        f"{len(runs['spin'])} interleaved rounds, medians; no update of the counter was lost",
        {"acquire commands": ",.0f", "success": ".1%"})
    commands = {name: statistics.median(run[0] for run in taken) for name, taken in runs.items()}
    for name, taken in runs.items():
        sheet.add(name, [commands[name], min(run[1] for run in taken) / total], runs=taken)
    sheet.promise("spin: commands with the layer / without",
                  commands["spin, hotspot"] / commands["spin"], Bar("<=", 0.35))
    for name, limit in [("server wait", 1300), ("server wait, hotspot", 1300),
                        ("server wait, hotspot, hand-on 16", 400)]:
        sheet.promise(f"{name}: acquire commands, the most of all rounds",
                      max(run[0] for run in runs[name]), Bar("<=", limit))
        sheet.promise(f"{name}: success, the least of all rounds",
                      min(run[1] for run in runs[name]) / total, Bar("==", 1))
    return sheet


def _run_hot(quick, progress, program):
    rounds, run_ms = (6, 300) if quick else (12, 500)
    server = ways.DLOCK.server(wrapper=driver.pinned_to(0)).start()
    rates = {name: [] for name in HOT_WAYS}
    try:
        for i in range(rounds):
            progress(f"hot lock, round {i + 1} of {rounds}")
            for name, way in HOT_WAYS.items():
                output = subprocess.run(
                    _command(program, server, HOT_THREADS, 0, run_ms, way, 0), check=True,
                    stdout=subprocess.PIPE, text=True, timeout=60).stdout
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
    return [_report_experiment(_run_experiment(quick, progress, program)), hot]
