"""Scenario: what the client library costs over bare hiredis, and how exactly its waits end.

Pairs: a thread takes a lock and gives it back. The bare loop sends the same two commands through
hiredis and does nothing else. With ten handlers that do nothing in the chain, it shows what the
chain costs. Then four, eight and sixteen threads with a name each: libdlock has one connection for
all of them, the bare loop one for each.

Forms: one thread with sixteen pairs under way by asynchronous calls, with a background thread of
the library and without, against the same thread with blocking calls.

Beside waiters: a thread takes and gives back a free lock, while 100 threads of the same client wait
for another one; and the same without them.

Waits: acquires that cannot succeed, with random waits, and how much later than the wait they come
back. Dead: nobody listens. Silent: somebody listens and never answers, so one I/O timeout is added.
Busy: another holds the lock. A sleep: how late this machine wakes up a thread that merely sleeps,
which is nothing of ours.
"""

import socket
import statistics
import subprocess
import threading

import driver
import ways
from report import Bar, Sheet, Table, percentile
from support.commands import Lock
from support.server import free_port

NAME = "client"
THREADS = {4: 0.75, 8: 0.85, 16: 1.0}  # and what they reach at least, of bare hiredis
PIPELINE = 16
WAITERS = 100
WAIT_MAX_MS = 20
IO_TIMEOUT_MS = 20
LATE_MS = 5  # what an acquire may take longer than its wait


def _pairs(server, program, threads, mode, run_ms):
    output = subprocess.run(
        [*driver.pinned_to(-1), program, str(server.port), str(threads), str(run_ms), mode],
        check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
    return int(output) * 1000 / run_ms


def _compare_pairs(quick, progress, threads, title, bar):
    rounds, run_ms = (12, 200) if quick else (12, 400)
    program = driver.build("pairs", uses_libdlock=True)
    server = ways.DLOCK.server(wrapper=driver.pinned_to(0)).start()
    samples = {"dlock": [], "hiredis": []}
    if not quick and threads == 1:
        samples["handlers"] = []
    try:
        for i in range(rounds):
            progress(f"pairs, {threads} threads, round {i + 1} of {rounds}")
            for mode, taken in samples.items():
                taken.append(_pairs(server, program, threads, mode, run_ms))
    finally:
        server.destroy()
    table = Table(title, f"{rounds} interleaved runs of {run_ms} ms, medians", "pairs/s",
                  bars={"bare hiredis": bar}, subject="libdlock")
    table.add("libdlock", samples["dlock"])
    table.add("bare hiredis", samples["hiredis"])
    if "handlers" in samples:
        table.add("libdlock, 10 handlers", samples["handlers"])
    return table


def _compare_forms(progress):
    rounds, run_ms = 12, 400
    program = driver.build("async_pairs", uses_libdlock=True)
    server = ways.DLOCK.server(wrapper=driver.pinned_to(0)).start()
    samples = {"blocking": [], "threads": [], "loop": []}
    try:
        for i in range(rounds):
            progress(f"asynchronous pairs, round {i + 1} of {rounds}")
            for mode, taken in samples.items():
                taken.append(_pairs(server, program, PIPELINE, mode, run_ms))
    finally:
        server.destroy()
    table = Table(f"One thread, {PIPELINE} acquire + release pairs under way: pairs per second",
                  f"{rounds} interleaved runs of {run_ms} ms, medians", "pairs/s",
                  bars={"blocking calls": Bar(">=", 3.0)}, subject="asynchronous, no_threads")
    table.add("asynchronous, no_threads", samples["loop"])
    table.add("asynchronous, background thread", samples["threads"])
    table.add("blocking calls", samples["blocking"])
    return table


def _measure_beside_waiters(progress):
    rounds, pairs = 5, 2000
    program = driver.build("beside", uses_libdlock=True)
    server = ways.DLOCK.server(wrapper=driver.pinned_to(0)).start()
    taken_us = {0: [], WAITERS: []}
    try:
        Lock(server.client(), "beside: busy").acquire("another", 3_600_000)
        for i in range(rounds):
            progress(f"beside waiters, round {i + 1} of {rounds}")
            for waiters, taken in taken_us.items():
                output = subprocess.run(
                    [*driver.pinned_to(-1), program, str(server.port), str(pairs), str(waiters)],
                    check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout
                taken.append([float(line) / 1000 for line in output.split()])
    finally:
        server.destroy()
    sheet = Sheet(
        f"One thread takes and gives back a free lock, {WAITERS} others wait for another one",
        f"{rounds} interleaved runs of {pairs} pairs, medians of the runs",
        {"median ms": ".3f", "p99 ms": ".3f"})
    p99 = {}
    for waiters, runs in taken_us.items():
        middle, p99[waiters] = [statistics.median(percentile(run, part) for run in runs)
                                for part in (0.5, 0.99)]
        sheet.add(f"{waiters} waiters", [middle, p99[waiters]])
    sheet.promise(f"p99 with {WAITERS} waiters / without", p99[WAITERS] / p99[0], Bar("<=", 2))
    return sheet


class Silent:
    """Listens, takes what is sent, never answers."""

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.taken = []
        threading.Thread(target=self._accept, daemon=True).start()
        return self.listener.getsockname()[1]

    def _accept(self):
        while True:
            try:
                self.taken.append(self.listener.accept()[0])
            except OSError:
                return

    def __exit__(self, *_):
        self.listener.close()
        for connection in self.taken:
            connection.close()


def _late_ms(program, *arguments):
    output = subprocess.run([*driver.pinned_to(-1), program, *map(str, arguments)], check=True,
                            stdout=subprocess.PIPE, text=True, timeout=300).stdout
    late, discarded = output.split("discarded")
    return [int(line) / 1000 for line in late.split()], int(discarded)


def _measure_waits(progress):
    tries = 400
    program = driver.build("overshoot", uses_libdlock=True)

    def measure(port, status):
        return _late_ms(program, f"redis://127.0.0.1:{port}", tries, WAIT_MAX_MS, IO_TIMEOUT_MS,
                        status)

    progress(f"waits, {tries} at a dead server")
    dead = measure(free_port(), "DLOCK_UNREACHABLE")
    progress(f"waits, {tries} at a silent server")
    with Silent() as port:
        silent = measure(port, "DLOCK_IN_DOUBT,DLOCK_UNREACHABLE")
    progress(f"waits, {tries} for a lock that is held")
    server = ways.DLOCK.server(wrapper=driver.pinned_to(0)).start()
    try:
        Lock(server.client(), "overshoot").acquire("another", 3_600_000)
        busy = measure(server.port, "DLOCK_BUSY,DLOCK_TIMEOUT,DLOCK_IN_DOUBT")
    finally:
        server.destroy()

    sheet = Sheet(
        "How much later than its wait an acquire returns that cannot succeed",
        f"{tries} each, waits of 0 to {WAIT_MAX_MS} ms at random, I/O timeout {IO_TIMEOUT_MS} ms; "
        "not counted: those during which a plain sleep beside it was more than 1 ms late",
        {"median ms": ".2f", "p99 ms": ".2f", "worst ms": ".2f", "not counted": ".0f"})
    for name, (late, discarded) in [("dead server", dead), ("silent server", silent),
                                    ("held lock", busy)]:
        sheet.add(name, [percentile(late, 0.5), percentile(late, 0.99), max(late), discarded],
                  late_ms=late)
    sheet.promise("dead server, the worst, ms", max(dead[0]), Bar("<=", LATE_MS))
    sheet.promise("silent server, the worst less the I/O timeout, ms",
                  max(silent[0]) - IO_TIMEOUT_MS, Bar("<=", LATE_MS))
    sheet.promise("held lock, the worst, ms", max(busy[0]), Bar("<=", LATE_MS))
    return sheet


def run(quick, progress):
    tables = [
        _compare_pairs(quick, progress, 1,
                       "Acquire + release through libdlock, one thread: pairs per second",
                       Bar(">=", 0.95)),
        *[_compare_pairs(quick, progress, threads,
                         f"{threads} threads through libdlock, a name each: pairs per second",
                         Bar(">=", least)) for threads, least in THREADS.items()]]
    return tables if quick else [*tables, _compare_forms(progress),
                                 _measure_beside_waiters(progress),
                                 _measure_waits(progress)]
