"""python_worker.py WORD=VALUE...: a worker with client/python, beside those of worker.c.

The words are those of worker.c (settings.h), the history is that of history.h. Of the kinds of
locks (visit.h) it takes those that the package has: x with a lease, r, w and p kept by the session,
and g for guarded writes. Both kinds of workers take the same locks.
"""

import contextlib
import pathlib
import random
import sys
import threading
import time

from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException
from redis.sentinel import Sentinel

import records
from records import MS
from redis_py_worker import DONE, IN_DOUBT, OK, REFUSED, begin, now_ns, run_all

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client/python"))

import dlock  # noqa: E402

WAITS_MS = (0, 0, 20, 200, 1000, 1000, 3000, 3000)
KINDS, KEEPERS, SLOW_NAMES, CROWDED_NAMES, PERMITS = "xrwpg", 4, 2, 4, 3
STEP_S, LINGER_S, LONG_HOLD_S = 0.008, 0.25, 1.5
STATUSES = {dlock.Timeout: 2, dlock.Busy: 1, dlock.InDoubt: 100, dlock.Unreachable: 101}
ANYBODY = 0xffff  # the thread of an event


class Visitor(threading.Thread):
    """Takes a lock, holds it and gives it back, over and over. See visit.c."""

    def __init__(self, settings, history, client, number):
        super().__init__()
        self.settings, self.history, self.client, self.number = settings, history, client, number
        self.process, self.names = int(settings["process"]), int(settings["names"])
        self.lease = int(settings["lease_ms"]) / 1000
        self.kinds = [kind for kind in settings["kinds"] if kind in KINDS]
        self.dice = random.Random(f"{settings['seed']}.{self.process}.{number}")
        self.last_id = (self.process << 8 | number) << 32

    def run(self):
        while not self.settings["is_over"]:
            self.visit()
        self.history.look()

    def add(self, kind, status=0, number=0, other=0):
        self.history.add(kind, self.number, self.lock_id, status, number, other)

    def choose_number(self, kind):
        """Odd where a failover may cost a lock: even ones ask for replicas, see deployments.py."""
        if int(self.settings.get("replicas", 0)):
            return 2 * self.dice.randrange(self.names // 2) + 1
        names = min(self.names, CROWDED_NAMES) if kind == "p" else self.names
        if kind == "g" or names <= SLOW_NAMES:
            return self.dice.randrange(names)
        if self.number % KEEPERS == 0 or not self.dice.randrange(100):
            return self.dice.randrange(SLOW_NAMES)
        return self.dice.randrange(SLOW_NAMES, names)

    def visit(self):
        self.kind = self.dice.choice(self.kinds)
        text = f"{self.kind}{self.choose_number(self.kind)}"
        name = self.lock_id = records.name_of(text)
        is_shared = self.kind == "p" or self.kind == "w" and self.dice.randrange(4) > 0
        slots = PERMITS if self.kind == "p" else None
        self.lock = self.client.lock(
            f"{{{text}}}", lease=self.lease if self.kind in "xg" else None, shared=is_shared,
            slots=slots, on_lost=lambda lock: self.history.add(
                records.EVENT, ANYBODY, name, number=records.EVENT_LOST))
        if not self.acquire(slots or -int(is_shared)):
            time.sleep(self.dice.uniform(0, 0.005))
            return
        self.hold()
        self.release()

    def certain_until(self):
        now, remaining = now_ns(), self.lock.remaining()
        until = now + int(remaining * 1000) * MS if remaining > 0.001 else 0
        self.until = until or self.until
        return until

    def acquire(self, mode):
        wait_ms, status, fence, until = self.dice.choice(WAITS_MS), OK, 0, 0
        self.until = 0
        self.add(records.ACQUIRE, number=wait_ms, other=mode)
        try:
            fence = self.lock.acquire(wait=wait_ms / 1000)
            until = self.certain_until()
        except dlock.Error as error:
            status = STATUSES.get(type(error), 102)
        self.add(records.ACQUIRED, status, fence, until)
        return status == OK

    def sample(self, is_silent):
        """A lease that is over is not told, so it is no loss."""
        until = self.certain_until()
        if until or self.lock.lease is None:
            self.add(records.SAMPLE, int(is_silent), 0, until)

    def hold(self):
        if self.kind == "g":
            self.update()
        elif self.number % KEEPERS == 0:
            self.hold_long(self.dice.uniform(0, LONG_HOLD_S if self.dice.random() < 0.25 else 0.05))
        elif self.kind == "p" or not self.dice.randrange(10):
            time.sleep(self.dice.uniform(0, 0.002))
        if self.kind == "x" and not self.dice.randrange(20):
            self.extend()

    def hold_long(self, seconds):
        end = now_ns() + seconds * 1e9
        while now_ns() < end:
            if self.lock.lost.wait(STEP_S):
                self.add(records.LOST)
                time.sleep(LINGER_S)  # the callback must come as well
                return
            self.sample(is_silent=True)

    def extend(self):
        self.add(records.EXTEND, number=int(self.lease * 1000))
        try:
            self.lock.extend()
        except dlock.Error:
            pass
        self.add(records.EXTENDED, other=self.certain_until() or self.until)

    def release(self):
        self.sample(is_silent=False)
        self.add(records.RELEASE)
        try:
            self.lock.release()
        except dlock.Error:
            pass
        self.add(records.RELEASED)

    def update(self):
        """Read, modify, write by guarded commands. See update.c."""
        key = f"{self.lock.names[0].decode()}:data"
        try:
            before = int(self.lock.guarded("GET", key) or 0)
        except dlock.Error:
            return
        time.sleep(self.dice.uniform(0, int(self.settings["work_us"])) / 1e6)
        pause_every = int(self.settings["pause_every"])
        if pause_every and not self.dice.randrange(pause_every):
            time.sleep(self.dice.uniform(1, 2) * self.lease)
        self.last_id += 1
        self.add(records.WRITE, number=self.last_id, other=before)
        result = self.write(key)
        if result == IN_DOUBT and self.write(key) == DONE:
            result = DONE
        self.add(records.WRITTEN, result, self.last_id)

    def write(self, key):
        try:
            self.lock.guarded("SET", key, self.last_id)
            return DONE
        except dlock.InDoubt:
            return IN_DOUBT
        except dlock.Error:
            return REFUSED


def server_of(url):
    """For a URL of libdlock, what the package takes."""
    scheme, _, rest = url.partition("://")
    hosts, _, name = rest.partition("/")
    addresses = [address.split(":") for address in hosts.split(",")]
    if scheme == "redis+cluster":
        while True:
            with contextlib.suppress(RedisClusterException):  # redis-py asks the nodes at once
                return RedisCluster(startup_nodes=[ClusterNode(*each) for each in addresses])
            time.sleep(0.1)
    if scheme == "redis+sentinel":
        return Sentinel(addresses, socket_timeout=1).master_for(name)
    return url


def main():
    settings, history = begin()
    # A call may make a connection, and then send: half of the checker's bound for each.
    client = dlock.Client(server_of(settings["url"]),
                          session_timeout=int(settings["lease_ms"]) / 1000,
                          io_timeout=int(settings["io_timeout_ms"]) / 2000)
    run_all([Visitor(settings, history, client, i) for i in range(int(settings["threads"]))])
    history.add(records.END)
    client.close()
    history.look()
    history.add(records.FREED)


if __name__ == "__main__":
    main()
