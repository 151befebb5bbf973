"""The scenarios: which servers, which faults, which promises. README.md has the same as a table.

A scenario is a class: start() brings up its servers, urls and data_port are for the workers, rules
says what is promised, add_faults() what is done to it, settle() ends all trouble, and leftovers()
looks for what should be gone. Every server keeps an AOF with appendfsync always.
"""

import redis

from checker import Rules
from faults import ServerFaults
from records import MS, Bounds
from support.server import Server, destroy_all, wait_until

LEASE_MS, IO_MS = 600, 200
SESSION_LEASES = 2  # the timeout of a session, in leases: as in visit.h
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "4mb")
LEFTOVER_PATIENCE_S = SESSION_LEASES * LEASE_MS / 1000 + 20  # on a busy machine


class Scenario:
    program = None  # of the workers; None: the usual one
    lease_ms = LEASE_MS
    kinds = "xrshwpg"
    names, processes, threads = 8, 3, 12
    work_us, pause_every = 0, 0
    replicas = 0
    promises = {}
    worker_faults = {"stop_worker": 0.03, "kill_worker": 1.5}
    slack_ms = 0  # what each call may take longer
    has_own_network = False  # see partition.py

    def __init__(self):
        self.servers = []

    def rules(self):
        bounds = Bounds(io=IO_MS * MS, replicas=IO_MS * MS if self.replicas else 0)
        bounds.slack += self.slack_ms * MS
        return Rules(lease=SESSION_LEASES * self.lease_ms * MS, bounds=bounds, **self.promises)

    def settings(self):
        """Words for the workers."""
        words = [f"url={url}" for url in self.urls()]
        words += [f"kinds={self.kinds}", f"names={self.names}", f"threads={self.threads}",
                  f"lease_ms={self.lease_ms}", f"io_timeout_ms={IO_MS}",
                  f"replicas={self.replicas}", f"work_us={self.work_us}",
                  f"pause_every={self.pause_every}"]
        return words + ([f"data_port={self.data_port()}"] if set("ga") & set(self.kinds) else [])

    def settings_of(self, number):
        """Words for one worker."""
        return []

    def start(self, folder):
        self.servers.append(Server(*DURABLE).start())
        return self

    def prepare(self, folder, seed):
        """Before the workers start, and after the servers did."""

    def urls(self):
        return [f"redis://127.0.0.1:{server.port}" for server in self.servers]

    def data_port(self):
        return self.servers[0].port

    def version(self):
        info = self.servers[0].client().info("server")
        return info.get("valkey_version") or info.get("redict_version") or info["redis_version"]

    def settle(self):
        """Nothing is in trouble any more. Faults that were begun have ended by themselves."""

    def values(self):
        """The last update of each name, as the store has it."""
        if "g" not in self.kinds:
            return None
        client, values = self.servers[0].client(), {}
        for number in range(self.names):
            key = f"{{g{number}}}:data"
            is_hash = client.type(key) == b"hash"
            value = client.hget(key, "value") if is_hash else client.get(key)
            values[f"g{number}"] = int(value or 0)
        return values

    def leftovers(self):
        """Sentences about locks, waiters and connections that should be gone."""
        for server in self.masters():
            left = wait_for_nothing(server)
            if left:
                yield f"left over at port {server.port}: {left}"

    def masters(self):
        return self.servers

    def destroy(self):
        destroy_all(self.servers)

    def logs(self):
        return {f"server-{i}.log": server.log() for i, server in enumerate(self.servers)}


def wait_for_nothing(server):
    """What is left at a server after a lease; "" if there is nothing."""
    left = []

    def is_empty():
        info = server.observer.info("dlock")
        locks = {key: server.observer.execute_command("DLOCK.INFO", key)
                 for key in server.observer.scan_iter(count=1000) if not key.endswith(b":data")}
        left[:] = [f"{name} {info[name]}" for name in ("dlock_held", "dlock_waiters")
                   if info.get(name)]
        left.extend(f"{key.decode()} {lock}" for key, lock in locks.items())
        return not left
    try:
        wait_until(is_empty, "nothing to be left", timeout=LEFTOVER_PATIENCE_S)
    except (AssertionError, redis.RedisError) as failure:
        return ", ".join(left) or str(failure)
    return ""


class Single(Scenario):
    """One server that hangs, pauses, and loses connections; workers that stop and die."""
    faults = {"kill_client": 0.02, "unblock_client": 0.02, "pause_clients": 0.4,
              "stop_server": 0.3}

    def add_faults(self, injector):
        faults = ServerFaults(injector, self.servers[0])
        for name, every in self.faults.items():
            injector.add(getattr(faults, name), every)


class Restart(Single):
    """The server is killed and started again, over and over."""
    faults = {"kill_client": 0.03, "unblock_client": 0.03, "stop_server": 0.5,
              "restart_server": 2.0}


class Clock(Single):
    """The wall clock of the server jumps, by as much as a day, also across restarts."""
    faults = {"step_clock": 0.05, "kill_client": 0.05, "unblock_client": 0.05,
              "restart_server": 4.0}

    def start(self, folder):
        self.servers.append(Server(*DURABLE, has_clock=True).start())
        return self


class Crowd(Restart):
    """Three processes with 3000 waits and kept locks, all of which hang on three sessions."""
    program = "crowd"
    kinds, names, threads = "k", 300, 1000
    faults = {"kill_client": 0.1, "stop_server": 0.8, "restart_server": 4.0}
    worker_faults = {"stop_worker": 0.1, "stop_worker_for_long": 2.0, "kill_worker": 2.0}
    slack_ms = 1000  # a process has one thread for a thousand members


class Guarded(Single):
    """Read, modify, write by workers that sleep through their leases, beside kills and restarts."""
    kinds, names, threads = "g", 128, 16
    work_us, pause_every = 1000, 300
    faults = {"restart_server": 3.0, "kill_client": 0.1}
    worker_faults = {"stop_worker": 0.1, "stop_worker_for_long": 0.3, "kill_worker": 1.0}


class Names(Guarded):
    """Transfers between accounts, under a lock with the names of both, by guarded writes."""
    kinds, names, threads = "a", 64, 12
    faults = {"restart_server": 3.0, "kill_client": 0.05, "unblock_client": 0.05,
              "pause_clients": 0.6, "stop_server": 0.5}

    def _accounts(self):
        """(id of the last update, balance) of each."""
        values = (self.servers[0].client().get(f"{{a}}{number}:data")
                  for number in range(self.names))
        return [tuple(map(int, (value or b"0:0").split(b":"))) for value in values]

    def values(self):
        return {f"a{number}": each[0] for number, each in enumerate(self._accounts())}

    def leftovers(self):
        yield from super().leftovers()
        total = sum(balance for _, balance in self._accounts())
        if total:
            yield f"the sum of all accounts is {total}, not 0"


class Plain(Single):
    """Plain Redis without the module: SET NX PX and scripts, by the same library."""
    kinds = "xrh"
    faults = {"kill_client": 0.03, "stop_server": 0.5, "pause_clients": 0.5, "restart_server": 3.0}
    promises = {"has_fences": False}

    def start(self, folder):
        self.servers.append(Server(*DURABLE, module=None).start())
        return self

    def urls(self):
        return [f"{url}?module=none" for url in super().urls()]

    def leftovers(self):
        client = self.servers[0].observer
        try:
            wait_until(lambda: not client.dbsize(), "nothing to be left", LEFTOVER_PATIENCE_S)
        except AssertionError:
            yield f"left over: {client.keys()}"


class Contest(Guarded):
    """For the comparison of different locks: fewer names, so that they are contended."""
    names, threads, work_us = 8, 6, 2000


class ContestClock(Clock):
    """The same while the wall clock of the server jumps."""
    kinds, names, threads, work_us, pause_every = "g", 8, 6, 2000, 300
    faults = {"step_clock": 0.3, "restart_server": 4.0}
    worker_faults = Guarded.worker_faults


CONTESTS = {"contest": Contest, "contest-clock": ContestClock}
SCENARIOS = {"single": Single, "restart": Restart, "clock": Clock, "guarded": Guarded,
             "plain": Plain, "crowd": Crowd, "names": Names}
