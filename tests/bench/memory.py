"""Scenario: many locks held: memory of each, and what another pair costs while they are.

Same keys, same tokens, same lease for the lock and for the plain string that does the same.

bytes   growth of the server's used_memory per lock, so the tables of the database are part of it,
        as they are part of the price: they double in size now and then
us      processor time of the server per acquire and release of other names, pipelined (load.c);
        the two servers take turns. What grows here is the time to reach into more memory
"""

import contextlib
import pathlib
import tempfile

import throughput
import ways
from report import Bar, Curves
from support.server import wait_until
from talk import Talk

NAME = "memory"
HELD = [1000, 10_000, 100_000, 1_000_000]
PORTION = 1000
LEASE_MS = 3_600_000  # none may end before the last is taken
LINES = {"dlock": ways.DLOCK, "SET NX PX": ways.SET_DEL}


class Holder(throughput.Contender):
    """A server that holds ever more locks."""

    def start(self, most):
        self.server.start()
        self.names = ways.names(most, "held")
        self.held = 0
        self.empty_memory = self.used_memory()

    def used_memory(self):
        """Without what other connections use, whose end the server may not have seen yet."""
        client = self.server.observer
        wait_until(lambda: client.info("clients")["connected_clients"] == 1, "the others' end")
        return client.info("memory")["used_memory"]

    def fill(self, count):
        """Until so many are held; the result is the memory of each."""
        with Talk(self.server) as talk:
            while self.held < count:
                commands = [ways.encode(self.way.acquire(*next(self.names), LEASE_MS))
                            for _ in range(PORTION)]
                talk.send(b"".join(commands), PORTION)
                self.held += PORTION
        return (self.used_memory() - self.empty_memory) / count


def _run_pairs(program, holders, files):
    """Of each holder, processor time per pair."""
    runs = throughput.run_load(program, holders, files, ways.PIPELINE, slices=4)
    return [busy / pairs * 1e6 for pairs, busy in runs]


def _measure(curves, holders, numbers, rounds, progress):
    program = throughput.build()
    with tempfile.TemporaryDirectory(prefix="dlock-bench-") as directory:
        files = [pathlib.Path(directory) / str(i) for i, _ in enumerate(holders)]
        for holder, path in zip(holders, files):
            holder.write_requests(ways.PIPELINE, path)
        for number in numbers:
            progress(f"{number:,} held")
            sizes = [holder.fill(number) for holder in holders]
            runs = [_run_pairs(program, holders, files) for _ in range(rounds)]
            for line, size, us in zip(LINES, sizes, zip(*runs)):
                curves.add(line, number, {"bytes": [size], "us": list(us)})


def run(quick, progress):
    numbers, rounds = ([100_000], 1) if quick else (HELD, 5)
    curves = Curves(
        "Locks held: memory of each, and processor time of the server per further pair",
        f"tokens of 36 bytes; time: {rounds} interleaved runs, {ways.PIPELINE} commands in a "
        "pipeline", "locks held", {"bytes": ",.0f", "us": ".2f"})
    with contextlib.ExitStack() as stack:
        holders = [Holder(way) for way in LINES.values()]
        for holder in holders:
            stack.callback(holder.server.destroy)
            holder.start(max(numbers))
        _measure(curves, holders, numbers, rounds, progress)
    curves.promise(f"bytes per held lock, dlock / SET NX PX, {numbers[-1]:,} held",
                   curves.ratio("bytes", *LINES, numbers[-1]), Bar("<=", 1.5))
    return [curves]
