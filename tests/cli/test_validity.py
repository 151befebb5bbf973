"""No command, and nothing it has started, is alive when its lock could be another's.

    DLOCK_RUN_ROUNDS   how many runs, ten at a time (default 10)

The server tells by MONITOR when it heard of each lock last; the lease counts from there. When a
process ended is told by its pidfd.
"""

import multiprocessing
import os
import random
import re
import selectors
import signal
import time

import pytest

from support.figures import tell
from support.server import wait_until

RUNS = 10
ROUNDS = int(os.environ.get("DLOCK_RUN_ROUNDS", RUNS)) // RUNS
LEASE_S = 3


class Heard:
    """When the server was told of each lock last, by its own clock."""

    def __init__(self, server):
        self.socket = server.socket()
        self.socket.sendall(b"MONITOR\r\n")
        self.text = b""
        while not self.text.startswith(b"+OK\r\n"):
            self.text += self.socket.recv(100)

    def times(self):
        """All that was said until now: the server is stopped."""
        self.socket.setblocking(False)
        try:
            while data := self.socket.recv(65536):
                self.text += data
        except OSError:
            pass
        pattern = rb'^\+([\d.]+) \[[^\]]*\] "DLOCK\.(?:ACQUIRE|EXTEND)" "([^"]*)"'
        said = re.findall(pattern, self.text, re.M | re.I)
        return {name.decode(): float(at) for at, name in said}


def ends_of(pids, timeout):
    """When each of them ended, by the wall clock."""
    ends = {}
    with selectors.DefaultSelector() as selector:
        for pid in pids:
            try:
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
            except ProcessLookupError:
                ends[pid] = time.time()
        deadline = time.monotonic() + timeout
        while len(ends) < len(pids):
            assert time.monotonic() < deadline, "some live on"
            for key, _ in selector.select(0.1):
                ends[key.data] = time.time()
                selector.unregister(key.fd)
                os.close(key.fd)
    return ends


class Witness:
    """Another process that notes the ends: of two that look, at least one is not held up."""

    def __init__(self, pids, timeout):
        fork = multiprocessing.get_context("fork")
        self.seen = fork.SimpleQueue()
        self.process = fork.Process(target=lambda: self.seen.put(ends_of(pids, timeout)))
        self.process.start()

    def ends(self):
        try:
            wait_until(lambda: not self.seen.empty(), "the ends")
            return self.seen.get()
        finally:
            self.process.kill()
            self.process.join()


def play(tool, server, silence):
    """The margins of one round, in seconds."""
    heard = Heard(server)
    runs = {}
    for i in range(RUNS):
        # Every other one ignores SIGTERM, and so does what it has started.
        runs[f"job{i}"] = tool.start_group("--lease", f"{LEASE_S}s", name=f"job{i}",
                                           ignores_term=i % 2 == 0)
    everybody = [pid for _, pids in runs.values() for pid in pids]
    witness = Witness(everybody, 15 * LEASE_S)
    time.sleep(random.uniform(0, LEASE_S / 3))
    silence()
    ends = ends_of(everybody, 15 * LEASE_S)
    ends = {pid: min(ends[pid], at) for pid, at in witness.ends().items()}
    times = heard.times()
    assert set(times) == set(runs)
    assert [process.wait(50) for process, _ in runs.values()] == [79] * RUNS
    return [times[name] + LEASE_S - max(ends[pid] for pid in pids)
            for name, (_, pids) in runs.items()]


@pytest.mark.alone("it measures how long before the end of a lease processes end")
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_nothing_is_alive_when_the_lease_ends(make_tool, start_server, how):
    margins = []
    for _ in range(max(ROUNDS // 2, 1)):
        server = start_server()
        tool = make_tool(server)
        if how == "killed":
            margins += play(tool, server, server.process.kill)
            server.kill()
        else:
            margins += play(tool, server, lambda: os.kill(server.pid, signal.SIGSTOP))
            os.kill(server.pid, signal.SIGCONT)
            wait_until(server.client().ping, "the server")
    tell(f"server {how} in mid-run: all ended at least {min(margins) * 1000:.0f} ms before the end "
         f"of a lease of {LEASE_S} s, in {len(margins)} runs")
    assert min(margins) > 0, sorted(margins)
