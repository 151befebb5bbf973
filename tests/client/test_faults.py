"""A holder whose server is stopped, killed or cut off at random: it knows in time that it lost.

DLOCK_FAULT_ROUNDS=25 makes 200 runs of it.
"""

import os
import queue
import random
import signal
import subprocess
import threading
import time
from concurrent import futures

import pytest
import redis

from support.commands import Lock
from support.figures import tell
from support.proxy import Proxy
from support.server import ROOT

BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")
LOCKS = 8
ROUNDS = int(os.environ.get("DLOCK_FAULT_ROUNDS", 4))
LEASE_S = 2
IO_TIMEOUT_MS = 200
TARDY_S = 1  # of a machine that stands still; a client that does not care is later by a lease
OPTIONS = ("--appendonly", "yes", "--appendfsync", "always")


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Holder:
    """holder.c, and what it says."""

    def __init__(self, url):
        self.process = subprocess.Popen(
            [BUILD / "tests/client/holder", url, str(LOCKS), str(LEASE_S * 1000),
             str(IO_TIMEOUT_MS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.held = queue.Queue()
        self.lost = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            word, *numbers = line.split()
            if word == "held":
                self.held.put(True)
            else:
                which, when, end = map(int, numbers)
                self.lost[which] = (when / 1e6, end / 1e6)

    def take_all(self):
        self.lost.clear()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.held.get(timeout=120)

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(params=["with the module", "plain"])
def world(request, start_server):
    server = start_server(*OPTIONS, **({"module": None} if request.param == "plain" else {}))
    server.is_plain = request.param == "plain"
    proxy = Proxy(server.port)
    holder = Holder(proxy.url + ("?module=none" if server.is_plain else ""))
    yield server, proxy, holder
    holder.end()
    proxy.close()


def stop(server, _, pause):
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(pause)
    os.kill(server.pid, signal.SIGCONT)


def kill(server, _, pause):
    server.kill()
    time.sleep(pause)
    server.start(server.port)


def hold_back(_, proxy, pause):
    proxy.hold_back()
    time.sleep(pause)
    proxy.let_go()


def cut(_, proxy, pause):
    until = now() + pause
    while now() < until:
        proxy.cut()
        time.sleep(0.01)


class PlainLock:
    """As any client does it without the module."""

    def __init__(self, client, key):
        self.client, self.key = client, key

    def acquire(self, token, lease_ms, *_):
        taken = self.client.set(self.key, token, nx=True, px=lease_ms)
        if not taken:
            time.sleep(0.005)
        return taken

    def info(self):
        return {"token": self.client.get(self.key)}

    def release(self, _):
        self.client.delete(self.key)


def rival(server, number, until, taken):
    """Waits for it, and keeps it for as long as the holder could still think it has it."""
    fence, lock = None, None
    while fence is None and now() < until:
        try:
            if lock is None:
                lock = (PlainLock if server.is_plain else Lock)(server.connect(), f"lock{number}")
            wait_ms = max(1, int((until - now()) * 1000))
            fence = lock.acquire("rival", 60000, "WAIT", wait_ms)
        except redis.RedisError:  # it is being restarted
            lock = None
            time.sleep(0.01)
    if fence is None:
        return
    taken[number] = now()
    time.sleep(LEASE_S / 2)
    assert lock.info()["token"] == b"rival", "a renewal has brought it back"
    lock.release("rival")


@pytest.fixture
def threads():
    with futures.ThreadPoolExecutor(LOCKS) as pool:
        yield pool


def test_the_holder_knows_before_anybody_else_can_have_it(world, threads):
    server, proxy, holder = world
    random.seed(7)
    late, ahead, losses = [], [], 0
    for _ in range(ROUNDS):
        holder.take_all()
        fault = random.choice([stop, kill, hold_back, cut])
        begin, pause = random.uniform(0, LEASE_S / 2), random.uniform(0, LEASE_S * 1.5)
        taken, until = {}, now() + begin + pause + LEASE_S * 0.7
        rivals = [threads.submit(rival, server, number, until, taken) for number in range(LOCKS)]
        time.sleep(begin)
        fault(server, proxy, pause)
        for each in rivals:
            each.result()
        for number, when in taken.items():
            assert number in holder.lost, f"{fault.__name__}: lock{number} is another's, unsaid"
            ahead.append(when - holder.lost[number][0])
        late += [when - end for when, end in holder.lost.values()]
        losses += len(holder.lost)
    assert max(late, default=0) < TARDY_S
    assert min(ahead, default=0) > -TARDY_S
    tell(f"{ROUNDS * LOCKS} runs with faults: {losses} losses, told at the latest "
         f"{1000 * max(late, default=0):+.1f} ms from the end of validity, and "
         f"{1000 * min(ahead, default=0):.1f} ms before another had it")
