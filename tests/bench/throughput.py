"""Scenario: pairs per second of one server, with and without pipelining.

Each way has its own server. All servers share one core, and the driver (load.c) has another: else
the scheduler is what gets measured. The driver loads one server at a time, and they take turns of a
few milliseconds, so that a slow moment of the machine hits them all.

A server that was busy less than 90 % of its time was not the limit: somebody else had one of the
cores. The ratio by the server's own processor time is then the better one to read.

DELIFEQ, which is in Valkey from 9.0 on, is compared with dlock on the same Valkey.
"""

import contextlib
import pathlib
import statistics
import subprocess
import tempfile

import driver
import ways
from report import Bar, Table

NAME = "throughput"
CONNECTIONS = 50
PAIRS = CONNECTIONS * 64
SLICE_MS = 50


class Contender:
    """One way and its own server."""

    def __init__(self, way):
        self.way = way
        self.server = way.server(wrapper=driver.pinned_to(0))

    def prepare(self):
        """Empty the server but for the background."""
        client = self.server.client()
        client.flushall()
        ways.prepare(self.way, client)

    def write_requests(self, pipeline, path):
        """What load.c shall send, into a file."""
        portions = ways.pipelines(ways.pairs(self.way, PAIRS), pipeline)
        path.write_bytes(b"".join(b"%d\n%s" % (len(p), p) for p in portions))


def build():
    return driver.build("load", "wire")


def run_load(program, contenders, files, pipeline, slices):
    """For each contender: its pairs per second, and the part of the time its server was busy."""
    targets = [word for contender, path in zip(contenders, files)
               for word in (str(contender.server.port), path)]
    before = [driver.cpu_seconds(contender.server) for contender in contenders]
    output = subprocess.run(
        [*driver.pinned_to(-1), program, str(pipeline), str(CONNECTIONS), str(SLICE_MS),
         str(slices), *targets],
        check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
    used = [driver.cpu_seconds(contender.server) - b for contender, b in zip(contenders, before)]
    results = []
    for line, cpu_seconds in zip(output.splitlines(), used):
        replies, refused, took = map(float, line.split())
        if refused:
            raise AssertionError(f"{refused:.0f} of {replies:.0f} requests were refused")
        results.append((replies / 2 / took, cpu_seconds / took))
    return results


def _run(program, contenders, pipeline, slices):
    with tempfile.TemporaryDirectory(prefix="dlock-bench-") as directory:
        files = [pathlib.Path(directory) / str(i) for i, _ in enumerate(contenders)]
        for contender, path in zip(contenders, files):
            contender.prepare()
            contender.write_requests(pipeline, path)
        return run_load(program, contenders, files, pipeline, slices)


def _note_busy(table, runs):
    busy = [statistics.median(busy for _, busy in results) for results in zip(*runs)]
    table.notes.append(f"The servers were busy {min(busy):.0%} to {max(busy):.0%} of their time.")
    ratios = [statistics.median((run[0][0] / run[0][1]) / (run[i][0] / run[i][1]) for run in runs)
              for i in range(1, len(table.rows))]
    table.notes.append("dlock / this by the server's processor time: "
                       + ", ".join(f"{ratio:.2f}" for ratio in ratios))


def _measure(title, program, contenders, pipeline, rounds, slices, progress, bars):
    table = Table(
        title,
        f"{CONNECTIONS} connections, {rounds} runs of {slices} interleaved slices of {SLICE_MS} ms",
        unit="pairs/s", bars=bars)
    runs = []
    for i in range(rounds):
        progress(f"{title}, run {i + 1} of {rounds}")
        runs.append(_run(program, contenders, pipeline, slices))
    for contender, results in zip(contenders, zip(*runs)):
        table.add(contender.way.name, [pairs for pairs, _ in results],
                  server_busy=[busy for _, busy in results])
    _note_busy(table, runs)
    return table


@contextlib.contextmanager
def _contenders(used):
    with contextlib.ExitStack() as stack:
        contenders = [Contender(way) for way in used]
        for contender in contenders:
            stack.callback(contender.server.destroy)
            contender.server.start()
        yield contenders


def run(quick, progress):
    rounds, slices = (5, 4) if quick else (7, 8)
    program = build()
    piped = f"Pairs per second, {ways.PIPELINE} commands in a pipeline"
    with _contenders(ways.WAYS[:2] if quick else ways.WAYS) as contenders:
        tables = [_measure(piped, program, contenders, ways.PIPELINE, rounds, slices, progress,
                           {ways.SET_EVALSHA.name: Bar(">=", 1.5)})]
        if quick:
            return tables
        tables.append(_measure("Pairs per second, one command at a time", program, contenders, 1,
                               rounds, slices, progress, {}))
    if not ways.VALKEY.exists():
        tables[0].notes.append(ways.WITHOUT_VALKEY)
        return tables
    with _contenders(ways.VALKEY_WAYS) as contenders:
        tables.append(_measure(f"{piped}, on Valkey 9.1", program, contenders, ways.PIPELINE,
                               rounds, slices, progress, {}))
    return tables
