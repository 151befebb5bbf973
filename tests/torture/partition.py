"""Servers that are cut off from each other, while clients reach either side, or both.

A run of these scenarios has a network namespace of its own, so nothing that it does is seen outside
of it. Each server has a loopback address of its own, also for the connections that it makes itself.
A rule of policy routing sends what one address has for another one to a device that nobody reads:
one direction between two servers. So packets are lost without a word, as on a real network: open
connections go on after the cut if nobody has given them up, and new ones are not refused. (A server
whose connect() fails at once tries again from another address, around the cut.) Workers have three
addresses, see source.h; the tools of the run come from 127.0.0.1, which is never cut off.
"""

import contextlib
import itertools
import os
import pathlib
import socket
import subprocess
import sys
import time

import redis

from deployments import Cluster, Sentinel, surely
from faults import add_client_faults, now_ns, span
from scenarios import DURABLE
from support import cluster as clusters
from support import sentinel as sentinels
from support.commands import plain
from support.server import DIE_WITH_PARENT, wait_until

HOSTS = [f"127.0.0.{number}" for number in range(2, 8)]
CLIENTS = [f"127.0.0.{number}" for number in range(8, 11)]
INSIDE = "DLOCK_TORTURE_NAMESPACE"  # in the environment of a run that has its namespace
LOCAL, CUT = 100, 50  # the places of rules: what is cut is looked up before local addresses
SINK = 50  # the table with the route to nowhere
CUT_S = ((35, 0.05, 0.8), (65, 2.0, 6.0))  # sentinels fail over after 1 s, and take another one
GAP_S = ((50, 0.0, 0.3), (50, 0.3, 1.5))
WELL_S = 90
NODE_TIMEOUT_MS = 1000

# -- the network namespace ------------------------------------------------------------------------


def unshare(*words):
    """A command in a namespace of its own. Whoever is not root is root in there."""
    return ["unshare", *(["--map-root-user"] if os.geteuid() else []), "--net", *words]


PREPARE = f"""set -e
ip link set lo up
ip rule add pref {LOCAL} lookup local
ip rule del pref 0
ip tuntap add dev sink mode tun 2>/dev/null || ip link add sink type bridge
ip link set sink arp off
ip link set sink up
echo 1 > /proc/sys/net/ipv4/conf/sink/route_localnet
ip route add default dev sink table {SINK}
ip rule add pref {CUT} from 127.0.0.2 to 127.0.0.3 lookup {SINK}
ip rule del pref {CUT}
"""


def why_not():
    """Why this machine cannot cut servers off; "" if it can."""
    try:
        done = subprocess.run(unshare("sh", "-c", PREPARE), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    except OSError as failure:
        return str(failure)
    return done.stdout.strip() if done.returncode else ""


def run_inside(*words):
    """Whether torture.py succeeds with these words, in a namespace of its own."""
    torture = pathlib.Path(__file__).with_name("torture.py")
    done = subprocess.run(
        [*DIE_WITH_PARENT,
         *unshare("sh", "-c", f'{PREPARE}exec "$@"', "sh", sys.executable, str(torture), *words)],
        env={**os.environ, INSIDE: "yes"})
    return done.returncode == 0


class Wires:
    """What each server sends to each other one arrives, unless the pair is cut."""

    def __init__(self):
        self.cut_pairs = set()

    def cut(self, pairs):
        """Exactly these: (from, to)."""
        changes = [("del", pair) for pair in self.cut_pairs - pairs]
        changes += [("add", pair) for pair in pairs - self.cut_pairs]
        lines = "".join(f"rule {change} pref {CUT} from {sender} to {receiver} "
                        f"lookup {SINK}\n"
                        for change, (sender, receiver) in changes)
        subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True)
        self.cut_pairs = set(pairs)


def is_open(sender, server, within=0.2):
    """Whether a connection from this address to a server comes about."""
    with contextlib.closing(socket.socket()) as connection:
        connection.bind((sender, 0))
        connection.settimeout(within)
        try:
            connection.connect((server.host, server.port))
        except TimeoutError:
            return False
    return True


def between(some, others, ways):
    """Pairs in the directions that ways says."""
    pairs = set(itertools.product(some, others))
    back = {(receiver, sender) for sender, receiver in pairs}
    return {"both ways": pairs | back, "out": pairs, "in": back}[ways]


def choose_cut(dice, master):
    """What it is called, and the pairs. Half of the cuts are around one server, mostly a master.
    Each client reaches one side of a cut, or both."""
    ways = dice.choice(("both ways", "both ways", "out", "in"))
    how = dice.choice(("one", "one", "groups", "pairs"))
    if how == "pairs":
        everything = [pair for pair in itertools.permutations(HOSTS + CLIENTS, 2)
                      if not set(pair) <= set(CLIENTS)]
        return "some pairs", set(dice.sample(everything, dice.randint(1, len(everything) // 2)))
    if how == "one":
        some = {master if dice.random() < 0.75 else dice.choice(HOSTS)}
    else:
        some = set(dice.sample(HOSTS, dice.randint(2, len(HOSTS) - 2)))
    others = set(HOSTS) - some
    for client in CLIENTS:
        side = dice.choice((some, others, set()))
        side.add(client)
    name = "one alone" if how == "one" else "two groups"
    return f"{name}, {ways}", between(some, others, ways)


def wait_for_replicas(masters):
    """Until they have what was written before. TCP tries seldom what was lost often: a connection
    may stand still for seconds after the end of a cut."""
    for master in masters:
        written = master.observer.info("replication")["master_repl_offset"]

        def has_all():
            replication = master.observer.info("replication")
            return all(replication[f"slave{i}"]["offset"] >= written
                       for i in range(replication["connected_slaves"]))
        wait_until(has_all, "the replicas to have it all", timeout=WELL_S)


# -- the scenarios --------------------------------------------------------------------------------


class Partition(Sentinel):
    """A master, two replicas and three sentinels."""
    has_own_network = True
    # Few names, each of which is held most of the time: else the two sides of a cut seldom hold the
    # same one.
    names, work_us = 4, 20_000
    # A master that is cut off goes on below the fences of its successor (module/README.md).
    promises = {"unsafe_odd": True, "unsafe_odd_fences": True}

    def start(self, folder):
        self.set = sentinels.SentinelSet(*DURABLE, hosts=HOSTS)
        self.set.start()
        self.servers = self.set.servers
        return self

    def settings_of(self, number):
        return [f"source={CLIENTS[number % len(CLIENTS)]}"]

    def prepare(self, folder, seed):
        """A cut that cuts nothing, or after which nobody is replaced, would torture nobody."""
        self.wires = Wires()
        first, second, third, *_ = self.servers
        for pair in (first, second), (second, first):
            self.wires.cut({(pair[0].host, pair[1].host)})
            assert not is_open(pair[0].host, pair[1]), "a cut lets packets through"
            assert is_open(third.host, first, within=20), "a cut drops packets of others"
        self.wires.cut(set())
        assert is_open(first.host, second, within=20), "a cut has no end"
        masters = [server for server in self.servers if sentinels.has_role(server, "master")]
        self.wires.cut(between({masters[0].host}, set(HOSTS) - {masters[0].host}, "both ways"))
        with self.replacing():
            wait_until(lambda: any(sentinels.has_role(server, "master") for server in self.servers
                                   if server not in masters), "a successor", timeout=WELL_S)
            self.wires.cut(set())
            surely(self.wait_until_well)

    def add_faults(self, injector):
        self.injector = injector
        add_client_faults(injector, self.servers)
        injector.add(self.cut_off, 0.3, may_fail=False)

    def cut_off(self, dice):
        """One to four cuts in a row, some of them healed in between; then all becomes well again.
        Until then waits may take longer."""
        last = None
        with self.replacing():
            try:
                for _ in range(dice.randint(1, 4)):
                    if last is not None and dice.random() < 0.5:
                        self.wires.cut(set())
                        time.sleep(span(dice, GAP_S))
                    begin = now_ns()
                    if last is not None:
                        self._note(*last, begin)
                    last = *choose_cut(dice, surely(self.any_master, dice).host), begin
                    self.wires.cut(last[1])
                    time.sleep(span(dice, CUT_S))
            finally:
                self.wires.cut(set())
            surely(self.wait_until_well)
        self._note(*last, now_ns())

    def _note(self, how, pairs, begin, end):
        text = " ".join(sorted(f"{sender[8:]}>{receiver[8:]}" for sender, receiver in pairs))
        self.injector.note(f"partition: {how}", text, begin, end, outage=True)

    def replacing(self):
        """Only meanwhile is a server replaced that the others do not reach, not on a busy machine
        in the midst of peace."""
        return self.set.replacing()

    def any_master(self, dice):
        return self.set.master

    def wait_until_well(self):
        def is_well():
            if len({self.set.master_of(sentinel) for sentinel in self.set.sentinels}) > 1:
                return False
            replication = self.set.master.observer.info("replication")
            online = [replication.get(f"slave{i}", {}).get("state") for i in range(2)]
            return (replication["role"] == "master" and online == ["online", "online"]
                    and all(s.master()["flags"] == "master" for s in self.set.sentinels))
        wait_until(is_well, "a master with two replicas", timeout=WELL_S)
        wait_for_replicas([self.set.master])

    def settle(self):
        surely(self.wait_until_well)


class PartitionCluster(Cluster):
    """Three masters with a replica each. No slots move: what is tried here is who serves them."""
    has_own_network, names, work_us = True, Partition.names, Partition.work_us
    promises = {**Cluster.promises, **Partition.promises}
    settings_of, prepare, settle = Partition.settings_of, Partition.prepare, Partition.settle
    cut_off, _note = Partition.cut_off, Partition._note

    def make_cluster(self):
        return clusters.Cluster(masters=3, replicas=3, hosts=HOSTS)

    @contextlib.contextmanager
    def replacing(self):
        self._set_node_timeout(NODE_TIMEOUT_MS)
        try:
            yield
        finally:
            self._set_node_timeout(clusters.NODE_TIMEOUT_MS)

    def _set_node_timeout(self, period_ms):
        for server in self.servers:
            server.observer.config_set("cluster-node-timeout", period_ms)

    def urls(self):
        return [clusters.url_of(*self.servers)]

    def add_faults(self, injector):
        Partition.add_faults(self, injector)

    def masters(self):
        return [server for server in self.servers if sentinels.has_role(server, "master")]

    def any_master(self, dice):
        return dice.choice(self.masters() or self.servers)

    def wait_until_well(self):
        wait_until(self._is_well, "three masters with a replica each", timeout=WELL_S)
        wait_for_replicas(self.masters())

    def _is_well(self):
        masters = self.masters()
        views = set()
        for server in self.servers:
            if b"cluster_state:ok" not in plain(server.observer, "CLUSTER", "INFO").split():
                return False
            with contextlib.suppress(redis.ResponseError):
                views.add(str(sorted((first, last, master[1]) for first, last, master, *_
                                     in plain(server.observer, "CLUSTER", "SLOTS"))))
        return len(masters) == 3 and len(views) == 1 and all(
            master.observer.info("replication").get("slave0", {}).get("state") == "online"
            for master in masters)


PARTITIONS = {"partition": Partition, "partition-cluster": PartitionCluster}
