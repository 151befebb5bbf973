"""The scenarios with more than one server, or with a network between.

In a failover a grant survives for certain only if the replicas have acknowledged it. So the locks
with even numbers ask for that, and theirs is the promise; the odd ones show what happens without.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import redis

from faults import ServerFaults, add_client_faults
from proxy import HALF_OPEN_S
from scenarios import DURABLE, Crowd, Scenario, Single
from support import cluster as clusters
from support import sentinel as sentinels
from support.commands import plain
from support.server import DIE_WITH_PARENT, Server, free_port, wait_until

FAILOVER_S = 6  # a manual failover that has not happened after five seconds never will
FAILOVER_TRIES = 8
SKEW_S = 3600
PROXY = os.path.join(os.path.dirname(__file__), "proxy.py")


def surely(action, *arguments):
    """Do it again while connections end: a server that changes its role ends those of everybody."""
    result = []

    def is_done():
        try:
            result[:] = [action(*arguments)]
        except redis.ConnectionError:
            return False
        return True
    wait_until(is_done, action.__name__, timeout=90)
    return result[0]


class Network(Single):
    """A proxy between the workers and the server: see proxy.py."""
    faults = {"stop_server": 1.0}
    processes = 3

    def start(self, folder):
        super().start(folder)
        self.port, self.proxy = free_port(), None
        return self

    def urls(self):
        return [f"redis://127.0.0.1:{self.port}"]

    def data_port(self):
        return self.port

    def prepare(self, folder, seed):
        self.faults_file = folder / "faults-proxy.jsonl"
        self.proxy = subprocess.Popen(
            [*DIE_WITH_PARENT, sys.executable, PROXY, str(self.servers[0].port), str(self.port),
             str(seed), str(self.faults_file)], stdin=subprocess.DEVNULL)

        def is_listening():
            try:
                redis.Redis("127.0.0.1", self.port).ping()
                return True
            except redis.ConnectionError:
                return False
        wait_until(is_listening, "the proxy")

    def destroy(self):
        if self.proxy is not None:
            self.proxy.kill()
            self.proxy.wait()
        super().destroy()


class CrowdNetwork(Network):
    """The crowd behind the proxy: the connections of three sessions are cut, delayed, half open."""
    program, kinds, names, threads = Crowd.program, Crowd.kinds, Crowd.names, Crowd.threads
    worker_faults, slack_ms = Crowd.worker_faults, Crowd.slack_ms

    def settle(self):
        """At the end a worker frees a thousand locks one after the other, and looks at nothing
        else meanwhile."""
        self.proxy.send_signal(signal.SIGUSR1)
        time.sleep(HALF_OPEN_S)


class Sentinel(Scenario):
    """A master with two replicas: killed, stopped for long, or replaced in good order."""
    kinds, replicas = "xrshwp", 2
    promises = {"unsafe_odd": True}

    def start(self, folder):
        self.set = sentinels.SentinelSet(*DURABLE).start()
        self.servers = self.set.servers
        return self

    def urls(self):
        return [sentinels.url_of(*self.set.sentinels)]

    def add_faults(self, injector):
        self.injector = injector
        add_client_faults(injector, self.servers)
        injector.add(self.fail_over, 1.0, may_fail=False)

    def fail_over(self, dice):
        how = dice.choice((self._kill, self._stop, self._switch))
        with self.injector.noted(f"failover: {how.__name__[1:]}", "the master", outage=True):
            how(surely(self.set.wait_for_master))
            surely(self.set.wait_for_master)
            surely(self.set.wait_until_all_know_all)

    def _kill(self, master):
        master.kill()
        surely(self.set.wait_for_new_master, master)
        self.set.revive(master)

    def _stop(self, master):
        """The others replace it; it wakes up as a master that does not know."""
        os.kill(master.pid, signal.SIGSTOP)
        try:
            surely(self.set.wait_for_new_master, master)
        finally:
            os.kill(master.pid, signal.SIGCONT)
        wait_until(lambda: sentinels.has_role(master, "slave"), "its demotion", timeout=60)

    def _switch(self, master):
        surely(self.set.switch_master)

    def settle(self):
        surely(self.set.wait_for_master)

    def masters(self):
        return [self.set.master]

    def destroy(self):
        self.set.destroy()

    def logs(self):
        everybody = [*self.servers, *self.set.sentinels]
        return {f"server-{i}.log": server.log() for i, server in enumerate(everybody)}


class CrowdSentinel(Sentinel):
    """The crowd, while the master is killed, stopped for long, or replaced in good order."""
    program, kinds, names, threads = Crowd.program, Crowd.kinds, Crowd.names, Crowd.threads
    worker_faults, slack_ms = Crowd.worker_faults, Crowd.slack_ms


class Skew(Sentinel):
    """The wall clocks of the servers are off by up to an hour, each by its own, and jump. Redis
    itself measures timeouts on them, so a jump also breaks the connections between servers."""

    def start(self, folder):
        self.set = sentinels.SentinelSet(*DURABLE, has_clock=True).start()
        self.servers = self.set.servers
        for number, server in enumerate(self.servers):
            server.clock.set_ahead((-SKEW_S, 0, SKEW_S)[number])
        return self

    def add_faults(self, injector):
        """While a failover goes on, clocks stand still: else it may not end for minutes."""
        self.still = threading.Lock()
        super().add_faults(injector)
        injector.add(self.step_clock, 0.7, may_fail=False)

    def step_clock(self, dice):
        with self.still:
            ServerFaults(self.injector, dice.choice(self.servers)).skew_clock(dice)

    def fail_over(self, dice):
        with self.still:
            super().fail_over(dice)


class Cluster(Scenario):
    """Three masters with a replica each: slots move, masters die or are replaced in good order."""
    kinds, replicas = "xrshwp", 1
    # A slot that moves faster than the message about the clock of fences can see a fence go back by
    # milliseconds: module/README.md, The fence.
    promises = {"unsafe_odd": True, "fence_slack": clusters.SLEW_US}

    def make_cluster(self):
        return clusters.Cluster(masters=3, replicas=3)

    def start(self, folder):
        self.cluster = self.make_cluster().start()
        self.servers = self.cluster.members
        self.mutex = threading.Lock()
        return self

    def urls(self):
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.cluster.nodes)
        return [f"redis+cluster://{hosts}"]

    def add_faults(self, injector):
        self.injector = injector
        for server in self.servers:
            faults = ServerFaults(injector, server, mutex=self.mutex)
            injector.add(faults.kill_client, 0.1)
            injector.add(faults.unblock_client, 0.1)
        for fault, every in ((self.move_slot, 0.05), (self.replace_master, 3.0),
                             (self.kill_master, 10.0)):
            injector.add(fault, every, may_fail=False)

    def move_slot(self, dice):
        """The slot of one of the names, with its locks, to another node."""
        name = f"{{{dice.choice(self.kinds)}{dice.randrange(self.names)}}}"
        with self.mutex:
            slot = clusters.slot_of(name)
            target = dice.choice([n for n in range(3) if n != self.cluster.owners[slot]])
            surely(self.cluster.wait_until_settled)
            with self.injector.noted("slot migration", name):
                for step in "begin_move", "move_keys", "end_move":
                    surely(getattr(self.cluster, step), slot, target)

    def _swap(self, number):
        """Master and replica have changed places."""
        cluster = self.cluster
        cluster.ids[number] = plain(cluster.replicas[number].observer, "CLUSTER", "MYID").decode()
        cluster.nodes[number], cluster.replicas[number] = (cluster.replicas[number],
                                                           cluster.nodes[number])

    def _wait_until_well(self):
        self.cluster.wait_until_ready()

        def are_well():
            return all(node.observer.info("replication").get("slave0", {}).get("state") == "online"
                       for node in self.cluster.nodes)
        wait_until(are_well, "every master to have its replica", timeout=60)

    def replace_master(self, dice):
        number = dice.randrange(3)
        with self.mutex, self.injector.noted("CLUSTER FAILOVER", number, outage=True):
            surely(self._promote, number)
            self._settle(number)

    def _promote(self, number):
        """A server may give a failover up without a word, or win it by old votes and be a replica
        again a moment later: it is asked again."""
        replica = self.cluster.replicas[number]
        for _ in range(FAILOVER_TRIES):
            if not sentinels.has_role(replica, "master"):
                replica.observer.execute_command("CLUSTER", "FAILOVER")
            with contextlib.suppress(AssertionError):
                return self.cluster.wait_for_promotion(number, FAILOVER_S)
        return self.cluster.wait_for_promotion(number)

    def kill_master(self, dice):
        number = dice.randrange(3)
        with self.mutex, self.injector.noted("kill -9 of a server", number, outage=True):
            master = self.cluster.nodes[number]
            master.kill()
            surely(self.cluster.wait_for_promotion, number)
            time.sleep(dice.uniform(0, 0.3))
            master.start(master.port)
            self._settle(number)

    def _settle(self, number):
        surely(self.cluster.wait_for_promotion, number)
        surely(self._swap, number)
        surely(self._wait_until_well)

    def masters(self):
        return self.cluster.nodes

    def destroy(self):
        self.cluster.destroy()


class SkewCluster(Cluster):
    """The same with wall clocks that are off by up to an hour, each by its own. They do not jump:
    nodes whose clocks jump do not talk to each other for a while."""

    def make_cluster(self):
        made = clusters.Cluster(masters=3, replicas=3, has_clock=True)
        for number, member in enumerate(made.members):
            member.clock.set_ahead((number * 2 % 6 / 2.5 - 1) * SKEW_S)
        return made


class Redlock(Scenario):
    """Five servers, of which up to two hang or die at a time."""
    kinds = "xrhw"
    processes, threads = 3, 8

    def start(self, folder):
        for _ in range(5):
            self.servers.append(Server(*DURABLE).start())
        return self

    def add_faults(self, injector):
        slots = threading.Semaphore(2)
        for server in self.servers:
            faults = ServerFaults(injector, server, slots=slots)
            injector.add(faults.kill_client, 0.15)
            injector.add(faults.stop_server, 1.5)
            injector.add(faults.restart_server, 8.0)


DEPLOYMENTS = {"network": Network, "sentinel": Sentinel, "cluster": Cluster, "redlock": Redlock,
               "skew": Skew, "skew-cluster": SkewCluster, "crowd-sentinel": CrowdSentinel,
               "crowd-network": CrowdNetwork}
