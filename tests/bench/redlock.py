"""Scenario: what several independent servers cost over one, and what silent ones cost.

One thread takes a lock and gives it back; a majority of the servers suffices. First on this
machine, the servers on one core and the client on another, as everywhere here: what five servers do
one after the other, they do at the same time where each has a machine of its own. Then through a
network: a program that delivers what is sent half a millisecond later, as in one data centre.

Silent: two of five are stopped with SIGSTOP, so that they take what is sent and never answer.
Nobody waits for them, since the other three are a majority; after a while they are left alone for a
moment at a time.
"""

import contextlib
import os
import signal
import subprocess

import driver
import ways
from report import Bar, Sheet, Table, percentile
from support.server import free_port

NAME = "redlock"
DELAY_US = 500
IO_TIMEOUT_MS = 200


@contextlib.contextmanager
def _network(servers):
    """The ports at which these servers are found behind it."""
    ports = [free_port() for _ in servers]
    pairs = [f"{port}:{server.port}" for port, server in zip(ports, servers)]
    program = driver.build("delay")
    process = subprocess.Popen([*driver.pinned_to(-1), program, str(DELAY_US), *pairs],
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "listening\n"
        yield ports
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _tries(program, ports, count):
    """Of each try, milliseconds of the acquire and of the release."""
    urls = [f"redis://127.0.0.1:{port}" for port in ports]
    output = subprocess.run([*driver.pinned_to(-1), program, str(count), str(IO_TIMEOUT_MS), *urls],
                            check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    return [[int(us) / 1000 for us in line.split()] for line in output.splitlines()]


def _median_acquire(program, ports, count):
    return percentile([acquire for acquire, _ in _tries(program, ports, count)[1:]], 0.5)


def _compare(title, program, ports, rounds, count, progress):
    ways_to_ask = {"5 servers": ports[:5], "3 servers": ports[:3], "1 server": ports[5:]}
    samples = {name: [] for name in ways_to_ask}
    for i in range(rounds):
        progress(f"{title}, round {i + 1} of {rounds}")
        for name, asked in ways_to_ask.items():
            samples[name].append(_median_acquire(program, asked, count))
    table = Table(f"Acquire at several independent servers, {title}",
                  f"{rounds} interleaved rounds, medians of {count} each", "ms",
                  bars={"1 server": Bar("<=", 2.0)}, subject="5 servers", decimals=3)
    for name, taken in samples.items():
        table.add(name, taken)
    return table


def _measure_silence(program, ports, servers, count, progress):
    healthy = _tries(program, ports[:5], count)
    progress("two of five are silent")
    for server in servers[:2]:
        os.kill(server.pid, signal.SIGSTOP)
    try:
        silent = _tries(program, ports[:5], count)
    finally:
        for server in servers[:2]:
            os.kill(server.pid, signal.SIGCONT)
    sheet = Sheet("Two of five servers are silent, through the network",
                  f"{count} acquires and releases each, I/O timeout {IO_TIMEOUT_MS} ms",
                  {"acquire median ms": ".2f", "worst ms": ".2f", "release median ms": ".2f",
                   "release worst ms": ".2f"})
    for name, tries in [("all answer", healthy), ("two are silent", silent)]:
        acquires, releases = zip(*tries)
        sheet.add(name, [percentile(acquires, 0.5), max(acquires), percentile(releases, 0.5),
                         max(releases)], acquires_ms=acquires, releases_ms=releases)
    worst = max(acquire for acquire, _ in silent)
    sheet.promise("the worst acquire, ms", worst,
                  Bar("<=", IO_TIMEOUT_MS + max(acquire for acquire, _ in healthy)))
    return sheet


def run(quick, progress):
    rounds, count = (4, 60) if quick else (10, 300)
    program = driver.build("redlock", uses_libdlock=True)
    servers = [ways.DLOCK.server(wrapper=driver.pinned_to(0)).start() for _ in range(6)]
    try:
        near = _compare("all on this machine", program, [server.port for server in servers],
                        rounds, count, progress)
        with _network(servers) as ports:
            far = _compare(f"through a network of {2 * DELAY_US / 1000:.0f} ms there and back",
                           program, ports, rounds, count, progress)
            silence = _measure_silence(program, ports, servers, count, progress)
    finally:
        for server in servers:
            server.destroy()
    return [near, far, silence]
