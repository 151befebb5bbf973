"""redis_py_worker.py WORD=VALUE...: a worker for comparison, with the Lock of redis-py.

The words are those of worker.c (settings.h), the history is that of history.h. The worker is as
careful as such a program can be: it counts the lease from before its request, and does not begin a
write after that.
"""

import contextlib
import itertools
import mmap
import os
import pathlib
import random
import signal
import sys
import threading
import time

import redis
from redis.exceptions import LockError

import records
from records import MS, RECORD

CAPACITY = 1 << 20
PULSE_S, STALL_NS = 0.005, 30 * MS  # the interpreter itself stands still for longer than a C thread
DELAY_EVERY, DELAY_NS = 10, 4 * MS
TASKS = pathlib.Path("/proc/self/task")
WAIT_MS, PAUSE_S = 1000, 0.01
DONE, REFUSED, IN_DOUBT = range(3)
OK, TIMEOUT = 0, 2


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class History:
    def __init__(self, path):
        file = open(path, "x+b")
        file.truncate(CAPACITY * RECORD.size)
        self.map = mmap.mmap(file.fileno(), 0)
        self.places = itertools.count()
        self.looking, self.looked_at, self.delays = threading.Lock(), now_ns(), {}

    def add(self, kind, thread=0, name=0, status=0, number=0, other=0, at=None):
        RECORD.pack_into(self.map, next(self.places) * RECORD.size, at or now_ns(), number, other,
                         name, thread, status, kind)

    def watch_stalls(self):
        for count in itertools.count():
            time.sleep(PULSE_S)
            self.look(count % DELAY_EVERY == 0)

    def look(self, is_thorough=True):
        """Records that the process stood still, or that a thread was ready and did not get a
        processor; also at the end of a thread and of the process. See history.h."""
        with self.looking:
            delay, now = self.largest_new_delay() if is_thorough else 0, now_ns()
            if now - self.looked_at > STALL_NS:
                self.add(records.STALL, number=self.looked_at, at=now)
            if delay > DELAY_NS:
                self.add(records.STALL, number=now - delay, at=now)
            self.looked_at = now

    def largest_new_delay(self):
        """By how much the delay of any one thread has grown since it was read last, in ns."""
        largest = 0
        for thread in os.listdir(TASKS):
            with contextlib.suppress(OSError):  # it has just ended
                delay = int((TASKS / thread / "schedstat").read_text().split()[1])
                largest = max(largest, delay - self.delays.get(thread, delay))
                self.delays[thread] = delay
        return largest


class User(threading.Thread):
    def __init__(self, settings, history, number):
        super().__init__()
        self.settings, self.history, self.number = settings, history, number
        self.process = int(settings["process"])
        self.dice = random.Random(f"{settings['seed']}.{self.process}.{number}")
        self.lease = int(settings["lease_ms"])
        timeout = int(settings["io_timeout_ms"]) / 1000
        self.client = redis.Redis("127.0.0.1", int(settings["data_port"]), socket_timeout=timeout,
                                  socket_connect_timeout=timeout)
        self.last_id = (self.process << 8 | number) << 32

    def run(self):
        while not self.settings["is_over"]:
            self.visit()
        self.history.look()

    def visit(self):
        number = self.dice.randrange(int(self.settings["names"]))
        name, key = records.name_of(f"g{number}"), f"{{g{number}}}"
        lock = self.client.lock(key, timeout=self.lease / 1000, sleep=PAUSE_S,
                                blocking_timeout=WAIT_MS / 1000)
        self.history.add(records.ACQUIRE, self.number, name, number=WAIT_MS)
        until = self.acquire(lock)
        self.history.add(records.ACQUIRED, self.number, name, OK if until else TIMEOUT, 0, until)
        if not until:
            return
        try:
            self.update(f"{key}:data", name, until)
        except redis.RedisError:
            pass
        self.history.add(records.RELEASE, self.number, name)
        try:
            lock.release()
        except (LockError, redis.RedisError):
            pass
        self.history.add(records.RELEASED, self.number, name)

    def acquire(self, lock):
        """Until when, if it is ours: the time before the try that succeeded, and the lease. The
        library does not tell when that was, so each try is a call of its own."""
        deadline = now_ns() + WAIT_MS * MS
        while True:
            sent = now_ns()
            try:
                if lock.acquire(blocking=False):
                    until = sent + self.lease * MS
                    return until if now_ns() < until else 0
            except redis.RedisError:
                pass
            if now_ns() > deadline or self.settings["is_over"]:
                return 0
            time.sleep(PAUSE_S * self.dice.uniform(1, 2))

    def update(self, key, name, until):
        before = int(self.client.get(key) or 0)
        if now_ns() >= until:
            return
        if self.dice.randrange(int(self.settings["pause_every"])):
            time.sleep(self.dice.uniform(0, int(self.settings["work_us"])) / 1e6)
        else:
            time.sleep(self.dice.uniform(1, 2) * self.lease / 1000)
        self.last_id += 1
        self.history.add(records.WRITE, self.number, name, number=self.last_id, other=before)
        try:
            self.client.set(key, self.last_id)
            result = DONE
        except redis.ResponseError:
            result = REFUSED
        except redis.RedisError:
            result = IN_DOUBT
        self.history.add(records.WRITTEN, self.number, name, result, self.last_id)


def begin():
    """Settings and history of this process, whose threads end when settings["is_over"]."""
    settings = dict(word.split("=", 1) for word in sys.argv[1:])
    settings["is_over"] = False
    signal.signal(signal.SIGTERM, lambda *_: settings.update(is_over=True))
    history = History(settings["history"])
    history.add(records.START)
    threading.Thread(target=history.watch_stalls, daemon=True).start()
    return settings, history


def run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    settings, history = begin()
    run_all([User(settings, history, i) for i in range(int(settings["threads"]))])
    history.add(records.END)
    history.look()
    history.add(records.FREED)


if __name__ == "__main__":
    main()
