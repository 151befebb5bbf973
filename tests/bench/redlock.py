"""Scenario: what several independent servers cost over one, and what silent ones cost.

One thread takes a lock and gives it back. Between it and the servers is a network: a program that
delivers what is sent half a millisecond later, as machines in one data centre do. Without it, on
one machine, the processors are the bottleneck: five servers that share two of them with the client
cannot answer at once; that is shown as well, but says little.

Silent: two of five are stopped with SIGSTOP, so that they take what is sent and never answer. The
first acquires wait for them for an I/O timeout; then they are left alone for a moment at a time.
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
    process = subprocess.Popen([driver.build("delay"), str(DELAY_US), *pairs],
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
    output = subprocess.run([program, str(count), str(IO_TIMEOUT_MS), *urls], check=True,
                            stdout=subprocess.PIPE, text=True, timeout=300).stdout
    return [[int(us) / 1000 for us in line.split()] for line in output.splitlines()]


def _median_acquire(program, ports, count):
    return percentile([acquire for acquire, _ in _tries(program, ports, count)[1:]], 0.5)


def _compare(title, program, ports, rounds, count, progress, bars):
    ways_to_ask = {"5 servers": ports[:5], "3 servers": ports[:3], "1 server": ports[5:]}
    samples = {name: [] for name in ways_to_ask}
    for i in range(rounds):
        progress(f"{title}, round {i + 1} of {rounds}")
        for name, asked in ways_to_ask.items():
            samples[name].append(_median_acquire(program, asked, count))
    table = Table(f"Acquire at several independent servers, {title}",
                  f"{rounds} interleaved rounds, medians of {count} each", "ms", bars=bars,
                  subject="5 servers", decimals=3)
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
    rounds, count = (5, 100) if quick else (10, 300)
    program = driver.build("redlock", uses_libdlock=True)
    servers = [ways.DLOCK.server().start() for _ in range(6)]
    try:
        with _network(servers) as ports:
            far = _compare(f"through a network of {2 * DELAY_US / 1000:.0f} ms there and back",
                           program, ports, rounds, count, progress, {"1 server": Bar("<=", 2.0)})
            silence = _measure_silence(program, ports, servers, count, progress)
        near = _compare("all on this machine", program, [server.port for server in servers],
                        rounds, count, progress, {})
    finally:
        for server in servers:
            server.destroy()
    return [far, near, silence]
