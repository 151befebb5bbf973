"""Scenario: user instructions that the server spends on one acquire and release.

The server runs under callgrind, which counts instructions and so gives the same answer on a busy
machine as on a quiet one. Each way gets its own server, and three of them run side by side.

DELIFEQ, which is in Valkey from 9.0 on, is compared with dlock on the same Valkey.

A mark is the command TIME: callgrind writes down what it counted, and starts again at zero, when
the function behind that command begins. So a count covers exactly the requests between two marks.
The server's timer runs as seldom as Redis lets it, because callgrind slows the server down fifty
times and the timer would count fifty times too much.
"""

import concurrent.futures
import pathlib
import statistics
import tempfile

import ways
from report import Bar, Table
from talk import Talk

NAME = "instructions"
MARK = ways.encode(["TIME"])
MARK_REPLY_LINES = 5
SIDE_BY_SIDE = 3


class CountedServer:
    """A server under callgrind, ready for requests made this way."""

    def __init__(self, way, *options):
        self.way = way
        self.counts = tempfile.TemporaryDirectory(prefix="dlock-bench-")
        self.mark_count = 0
        self.server = way.server("--hz", 1, *options, wrapper=[
            "valgrind", "--tool=callgrind", "--trace-children=yes", "--quiet",
            "--dump-before=timeCommand", f"--callgrind-out-file={self.counts.name}/%p"])

    def __enter__(self):
        try:
            self.server.start()
            self.prepare()
            self.talk = Talk(self.server)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.server.destroy()
        self.counts.cleanup()

    def prepare(self):
        """When it has started, before it is used."""
        ways.prepare(self.way, self.server.client())

    def count(self, portions, portion_length):
        """Send all portions; the result is the file with what was counted meanwhile."""
        self.mark()
        for portion in portions:
            self.talk.send(portion, portion_length)
        return self.mark()

    def mark(self):
        """The result is the file with what was counted since the mark before."""
        self.talk.send(MARK, MARK_REPLY_LINES)
        self.mark_count += 1
        return pathlib.Path(self.counts.name) / f"{self.server.pid}.{self.mark_count}"

    def mark_cost(self, count, judge=statistics.median):
        """What is counted when nothing is sent: the median of so many, unless told otherwise."""
        return judge(total(self.count([], 0)) for _ in range(count))


def total(path):
    if not path.exists():
        raise AssertionError("callgrind does not see the server's function timeCommand")
    for line in path.read_text().splitlines():
        if line.startswith("totals:"):
            return int(line.split()[1])
    raise AssertionError(f"callgrind did not finish {path.name}")


def _measure(way, pair_count, repetitions):
    portions = ways.pipelines(ways.pairs(way, pair_count))
    with CountedServer(way) as counted:
        counted.count(portions[:len(portions) // 4], ways.PIPELINE)  # a first use is dearer
        return [total(counted.count(portions, ways.PIPELINE)) / pair_count
                for _ in range(repetitions)]


def _table(title, measured, pair_count, repetitions, progress, bars):
    table = Table(
        title, f"callgrind, {pair_count} pairs, {ways.PIPELINE} commands in a pipeline, "
        f"{repetitions} times", unit="instructions", bars=bars)

    def measure(way):
        progress(way.name)
        return _measure(way, pair_count, repetitions)

    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for way, samples in zip(measured, pool.map(measure, measured)):
            table.add(way.name, samples)
    return table


def _two_names(pair_count, repetitions, progress):
    return _table("Two names in one step, user instructions of the server per acquire + release",
                  [ways.TWO_NAMES, ways.DLOCK], pair_count, repetitions, progress,
                  {ways.DLOCK.name: Bar("<=", 1.6)})


def run(quick, progress):
    title = "User instructions of the server per acquire + release"
    bars = {ways.SET_EVALSHA.name: Bar("<=", 0.48), ways.SET_DEL.name: Bar("<=", 1.13)}
    if quick:
        return [_table(title, ways.WAYS[:3], 400, 1, progress, bars), _two_names(400, 1, progress)]
    table = _table(title, ways.WAYS, 1600, 3, progress, bars)
    two_names = _two_names(1600, 3, progress)
    if not ways.VALKEY.exists():
        table.notes.append(ways.WITHOUT_VALKEY)
        return [table, two_names]
    progress("the same on Valkey 9.1")
    on_valkey = _table(f"{title}, on Valkey 9.1", ways.VALKEY_WAYS, 1600, 3, progress, {})
    return [table, on_valkey, two_names]
