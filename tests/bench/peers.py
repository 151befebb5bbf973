"""Scenario: locks of other libraries themselves, from Python, beside dlock from Python.

The other scenarios compare commands: there a program in C stands in for each library, so that the
language does not count. Here the libraries run as they are, where they are installed: Lock of
redis-py (Debian's python3-redis) and python-redis-lock. The lock of client/python, with the same
redis-py below it, is the subject. Processes take one lock and give it back, with
nothing in between; the ways take turns. All have the defaults of their library, and no renewal.

The rate alone favours a lock without a queue: the process that released it takes it again at once,
while the others sleep. The waits and the smallest share show the price.
"""

import importlib.util
import subprocess
import sys

import driver
import ways
from report import Bar, Table, percentile
from support.server import ROOT, running

NAME = "peers"
PROCESSES = 8
KEY = "peers"
REAL = "the real one"
OURS = "client/python"
REDIS_PY = f"Lock of redis-py ({REAL})"

# Each: how to make a lock with acquire() and release(). client and KEY are there.
LOCKS = {
    OURS: "dlock.Client(client).lock(KEY, lease=30, wait=600)",
    REDIS_PY: "client.lock(KEY, timeout=30)",
    f"python-redis-lock ({REAL})": "redis_lock.Lock(client, KEY, expire=30)",
}
RATE, SHARE = "acquisitions per second", "the share of the contender with the smallest share"
FIGURES = [  # title, unit, decimals, and how to judge the waits of all contenders
    (RATE, "per second", 0, lambda waits, seconds: sum(map(len, waits)) / seconds),
    ("p99 of the waits", "ms", 1, lambda waits, _: percentile(sum(waits, []), 0.99)),
    ("the longest wait", "ms", 1, lambda waits, _: max(sum(waits, []))),
    (SHARE, "%", 1, lambda waits, _: 100 * min(map(len, waits)) / sum(map(len, waits))),
]
BARS = {SHARE: {REDIS_PY: Bar(">=", 1.2)}}
CONTENDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
import redis
try: import redis_lock
except ImportError: pass
import dlock
KEY, client = sys.argv[2], redis.Redis(port=int(sys.argv[3]))
lock = eval(sys.argv[4])
print(flush=True)
end = time.monotonic() + float(sys.stdin.readline())
waits = []
while time.monotonic() < end:
    begin = time.monotonic()
    lock.acquire()
    waits.append(time.monotonic() - begin)
    lock.release()
print(*waits)
"""


def _installed():
    has_redis_lock = importlib.util.find_spec("redis_lock") is not None
    return {name: text for name, text in LOCKS.items()
            if has_redis_lock or "redis_lock." not in text}


def contend(server, lock, seconds, processes=PROCESSES):
    """The waits of each contender in ms. They begin together, when all are ready."""
    words = [sys.executable, "-c", CONTENDER, str(ROOT / "client/python"), KEY, str(server.port),
             lock]
    contenders = [subprocess.Popen([*driver.pinned_to(-1), *words], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    try:
        for contender in contenders:
            contender.stdout.readline()
        for contender in contenders:
            contender.stdin.write(f"{seconds}\n")
            contender.stdin.flush()
        outputs = [contender.communicate(timeout=60)[0] for contender in contenders]
    finally:
        for contender in contenders:
            contender.kill()
            contender.wait()
    assert all(contender.returncode == 0 for contender in contenders)
    return [[float(wait) * 1000 for wait in output.split()] for output in outputs]


def run(quick, progress):
    rounds, seconds = (2, 1) if quick else (5, 2)
    method = f"{PROCESSES} processes, rounds of {seconds} s, in turn"
    tables = {title: Table(f"Real libraries in Python, one hot lock: {title}", method, unit,
                           subject=OURS, decimals=decimals, bars=BARS.get(title))
              for title, unit, decimals, _ in FIGURES}
    found = {name: [] for name in _installed()}
    with running(ways.DLOCK.server(wrapper=driver.pinned_to(0))) as server:
        for i in range(rounds):
            progress(f"round {i + 1} of {rounds}")
            for name in found:
                found[name].append(contend(server, LOCKS[name], seconds))
    for title, _, _, judge in FIGURES:
        for name, samples in found.items():
            tables[title].add(name, [judge(waits, seconds) for waits in samples])
    for name in LOCKS.keys() - found.keys():
        tables[RATE].notes.append(f"Not measured: {name}, as it is not installed.")
    return list(tables.values())
