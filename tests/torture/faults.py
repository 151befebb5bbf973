"""What is done to servers, workers and connections, by dice, and the list of it.

Each kind of fault has a thread and dice of its own, so that a seed gives the same faults again;
they do not fall into the same moments of the workers again. A fault that keeps a server from
working for a while is an outage: the checker allows waits to take longer in it.
"""

import contextlib
import json
import os
import random
import signal
import threading
import time

import redis

WORKER_STOPS = ((70, 0.001, 0.03), (25, 0.03, 0.3), (5, 0.7, 1.5))  # percent, from, to; lease 0.6
SERVER_STOPS = ((85, 0.001, 0.08), (15, 0.2, 0.9))
PAUSES = ((100, 0.005, 0.1),)
DOWN = ((60, 0.0, 0.1), (40, 0.1, 0.9))
ADMIN_TIMEOUT = 0.3
CLIENTS_AGE = 0.2
CLOCK_STEPS = (-86400, -3600, -61, -5, -0.7, -0.05, 0.05, 0.7, 5, 61, 3600, 86400)


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def span(dice, table):
    """A time by a table of chances."""
    throw = dice.uniform(0, 100)
    for percent, least, most in table:
        throw -= percent
        if throw <= 0:
            break
    return dice.uniform(least, most)


class Injector:
    """Runs faults until it is stopped, and writes the list of them."""

    def __init__(self, path, seed):
        self.seed = seed
        self.file = open(path, "w")
        self.mutex = threading.Lock()
        self.is_over = threading.Event()
        self.threads, self.failures = [], []
        self.counts = {}

    def add(self, fault, every, may_fail=True):
        """fault(dice) is called about every so many seconds, in a thread of its own. may_fail: a
        server that another fault has hit at the same time is no reason to complain."""
        is_idle = threading.Event()
        thread = threading.Thread(target=self._run, args=(fault, every, may_fail, is_idle),
                                  daemon=True)
        self.threads.append((thread, is_idle))

    def _run(self, fault, every, may_fail, is_idle):
        """The thread lives on when it is idle: a process that a thread has started is killed with
        that thread (see support/server.py)."""
        self._run_until_over(fault, every, redis.RedisError if may_fail else ())
        is_idle.set()
        threading.Event().wait()

    def _run_until_over(self, fault, every, harmless):
        dice = random.Random(f"{self.seed}.{fault.__name__}")
        while not self.is_over.wait(dice.expovariate(1 / every)):
            try:
                fault(dice)
            except harmless:
                pass
            except Exception as failure:
                self.failures.append(f"the injector failed: {fault.__name__}: {failure!r}")
                return

    def start(self):
        for thread, _ in self.threads:
            thread.start()

    def stop(self):
        self.is_over.set()
        for _, is_idle in self.threads:
            is_idle.wait()
        self.file.close()

    def note(self, kind, target, begin, end, outage=False):
        with self.mutex:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.file.write(json.dumps({"at": begin, "to": end, "kind": kind, "target": target,
                                        "outage": outage}) + "\n")

    @contextlib.contextmanager
    def noted(self, kind, target, outage=False):
        begin = now_ns()
        try:
            yield
        finally:
            self.note(kind, target, begin, now_ns(), outage)


class WorkerFaults:
    """Of the worker processes."""

    def __init__(self, injector, workers):
        self.injector, self.workers = injector, workers

    def stop_worker(self, dice):
        pause = span(dice, WORKER_STOPS)
        with self.workers.borrowed(dice) as worker, \
                self.injector.noted("SIGSTOP of a worker", worker.number):
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(pause)
            worker.process.send_signal(signal.SIGCONT)

    def stop_worker_for_long(self, dice):
        """Beyond the lease."""
        with self.workers.borrowed(dice) as worker, \
                self.injector.noted("SIGSTOP of a worker", worker.number):
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(0.7, 1.2))
            worker.process.send_signal(signal.SIGCONT)

    def kill_worker(self, dice):
        with self.workers.borrowed(dice) as worker:
            with self.injector.noted("kill -9 of a worker", worker.number):
                worker.process.kill()
                worker.process.wait()
            self.workers.replace(worker)


class ServerFaults:
    """Of one server process, and of its clients. Only one fault at a time stops the process."""

    def __init__(self, injector, server, slots=None, mutex=None):
        """slots: a semaphore of how many servers may be in trouble at a time. mutex: held by
        whoever stops the server or pauses its clients."""
        self.injector, self.server = injector, server
        self.mutex = mutex or threading.Lock()
        self.slots = slots or threading.Semaphore(1)
        self.is_outage = slots is None
        self._admin, self._ids, self._ids_at = None, [], 0.0

    @property
    def admin(self):
        if self._admin is None:
            self._admin = self.server.connect(socket_timeout=ADMIN_TIMEOUT, client_name="torture")
        return self._admin

    def _call(self, *words):
        return self.admin.execute_command(*words)

    def _victims(self):
        """The ids of clients that are neither replicas, masters nor tools."""
        if time.monotonic() - self._ids_at > CLIENTS_AGE:
            self._ids = [int(client["id"]) for client in self.admin.client_list()
                         if set(client["flags"]) <= set("Nbcx") and client["name"] == ""]
            self._ids_at = time.monotonic()
        return self._ids

    def kill_client(self, dice):
        victims = self._victims()
        if victims:
            victim = victims.pop(dice.randrange(len(victims)))
            begin = now_ns()
            if self._call("CLIENT", "KILL", "ID", victim):
                self.injector.note("CLIENT KILL", victim, begin, now_ns())

    def unblock_client(self, dice):
        """Not of a client that is paused, by CLIENT PAUSE or CLUSTER FAILOVER: Redis 7.0.15 panics,
        with or without a module (redis/redis#14164)."""
        victims = self._victims()
        if victims and self.mutex.acquire(blocking=False):
            try:
                victim, begin = dice.choice(victims), now_ns()
                how = dice.choice(("ERROR", "TIMEOUT"))
                if self._call("CLIENT", "UNBLOCK", victim, how):
                    self.injector.note("CLIENT UNBLOCK", victim, begin, now_ns())
            finally:
                self.mutex.release()

    def pause_clients(self, dice):
        pause, kind = span(dice, PAUSES), dice.choice(("WRITE", "ALL"))
        with self.mutex, self.injector.noted("CLIENT PAUSE", self.server.port, self.is_outage):
            patient = self.server.connect(client_name="torture")
            patient.execute_command("CLIENT", "PAUSE", int(pause * 1000), kind)
            time.sleep(pause)
            # The pause must be over before the next CLIENT UNBLOCK. ALL holds back PING, too.
            patient.execute_command(*(("PING",) if kind == "ALL" else ("CLIENT", "UNPAUSE")))
            patient.close()

    def stop_server(self, dice):
        pause = span(dice, SERVER_STOPS)
        with self.slots, self.mutex, \
                self.injector.noted("SIGSTOP of a server", self.server.port, self.is_outage):
            os.kill(self.server.pid, signal.SIGSTOP)
            time.sleep(pause)
            os.kill(self.server.pid, signal.SIGCONT)

    def restart_server(self, dice):
        down = span(dice, DOWN)
        with self.slots, self.mutex, \
                self.injector.noted("kill -9 of a server", self.server.port, self.is_outage):
            self.server.kill()
            time.sleep(down)
            self.server.start(self.server.port)

    def step_clock(self, dice):
        with self.injector.noted("step of the wall clock", self.server.port):
            ahead = self.server.clock.ahead_s
            step = dice.choice([s for s in CLOCK_STEPS if abs(ahead + s) < 200_000])
            self.server.clock.set_ahead(ahead + step)

    def skew_clock(self, dice):
        """Within an hour of the true time."""
        with self.injector.noted("step of the wall clock", self.server.port):
            self.server.clock.set_ahead(dice.uniform(-3600, 3600))


def add_client_faults(injector, servers):
    """At each of the servers, now and then: a client is killed, or unblocked."""
    for server in servers:
        faults = ServerFaults(injector, server)
        injector.add(faults.kill_client, 0.06)
        injector.add(faults.unblock_client, 0.06)
