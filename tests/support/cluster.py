"""A small Redis Cluster on loopback, with or without replicas, and a client that follows its
redirections."""

import binascii
import collections
import time

import redis

from support.commands import plain
from support.server import MODULE, Server, destroy_all, free_port, wait_until

SLOTS = 16384
NODE_TIMEOUT_MS = 5000  # much less, and a busy machine fails over without need


def slot_of(key):
    """With hash tags, as CLUSTER KEYSLOT says."""
    key = key.encode()
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    if start >= 0 and end > start + 1:
        key = key[start + 1:end]
    return binascii.crc_hqx(key, 0) % SLOTS


class Cluster:
    """Masters 0, 1, ..., each with its share of the slots; who has which is in owners. With
    replicas, replica 0 follows master 0, and so on."""

    def __init__(self, masters=3, replicas=0, tls=None, module=MODULE):
        """tls(port): options of a server that speaks TLS there. module None: without it."""
        self.owners = [slot * masters // SLOTS for slot in range(SLOTS)]
        members = [self._member(tls, module) for _ in range(masters + replicas)]
        self.nodes, self.replicas = members[:masters], members[masters:]
        self.moving = set()

    @staticmethod
    def _member(tls, module):
        bus_port, tls_port = free_port(), free_port() if tls else None
        member = Server("--cluster-enabled", "yes", "--cluster-port", bus_port,
                        "--cluster-node-timeout", NODE_TIMEOUT_MS,
                        "--cluster-replica-validity-factor", 0,
                        *([*tls(tls_port), "--tls-cluster", "yes"] if tls else []), module=module)
        member.bus_port, member.tls_port = bus_port, tls_port
        return member

    @property
    def members(self):
        return self.nodes + self.replicas

    def start(self):
        for member in self.members:
            member.start()
        self.ids = [plain(node.observer, "CLUSTER", "MYID").decode() for node in self.nodes]
        for i, member in enumerate(self.members):
            client = member.observer
            if member in self.nodes:
                first = self.owners.index(i)
                last = SLOTS - 1 - self.owners[::-1].index(i)
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            for other in self.members[:i]:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.known_port,
                                       other.bus_port)
        self.wait_until_ready()
        self._assign_replicas()
        return self

    def _assign_replicas(self):
        for replica, master_id in zip(self.replicas, self.ids):
            replica.observer.execute_command("CLUSTER", "REPLICATE", master_id)
        clients = [member.observer for member in self.members]

        def all_know_all():
            flags = [plain(client, "CLUSTER", "NODES").count(b"slave ") for client in clients]
            return set(flags) == {len(self.replicas)}

        def are_in_sync():
            links = [r.observer.info("replication").get("master_link_status")
                     for r in self.replicas]
            return set(links) <= {"up"}
        wait_until(lambda: all_know_all() and are_in_sync(), "the replicas")

    def wait_until_ready(self):
        clients = [member.observer for member in self.members]
        wait_until(lambda: all(self._is_ready(client) for client in clients), "the cluster")

    def _is_ready(self, client):
        lines = plain(client, "CLUSTER", "INFO").split()
        known = b"cluster_known_nodes:%d" % len(self.members)
        return b"cluster_state:ok" in lines and known in lines

    def wait_for_promotion(self, number, timeout=60):
        """Of the replica with this number, whose master died; all that are alive know of it."""
        replica = self.replicas[number]
        alive = [member.observer for member in self.members if member.process]
        slot = self.owners.index(number)

        def is_promoted():
            return (all(self._serves(client, slot) == replica.port for client in alive)
                    and replica.observer.info("replication")["role"] == "master")
        wait_until(is_promoted, "a promotion", timeout)
        return replica

    @staticmethod
    def _serves(client, slot):
        """The port of the node that has the slot, as this one sees it."""
        if b"cluster_state:ok" not in plain(client, "CLUSTER", "INFO").split():
            return None
        for first, last, master, *_ in plain(client, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return master[1]
        return None

    def destroy(self):
        destroy_all(self.members)

    # -- who has what --------------------------------------------------------------------------

    def key_on(self, number, name="lock"):
        """A key of the node with this number."""
        keys = (f"{name}:{i}" for i in range(SLOTS))
        return next(key for key in keys if self.owners[slot_of(key)] == number)

    def owner(self, key):
        return self.nodes[self.owners[slot_of(key)]]

    # -- moving a slot, step by step -----------------------------------------------------------

    def begin_move(self, slot, target):
        """From now on both sides know: keys that are not there are on the other side."""
        source = self.owners[slot]
        self.moving.add(slot)
        for number, state, other in ((target, "IMPORTING", source), (source, "MIGRATING", target)):
            self._set_slot(number, slot, state, self.ids[other])

    def move_keys(self, slot, target):
        self._send_keys(slot, self.owners[slot], target)

    def end_move(self, slot, target):
        """The target has it, and everybody knows."""
        others = [number for number in range(len(self.nodes)) if number != target]
        for number in (target, *others):
            self._set_slot(number, slot, "NODE", self.ids[target])
        self.owners[slot] = target
        self.moving.discard(slot)

    def move(self, slot, target):
        self.begin_move(slot, target)
        self.move_keys(slot, target)
        self.end_move(slot, target)

    def migrate_atomically(self, slot, target):
        """Move a whole slot by one command. The command of Valkey 9 goes to the owner, and every
        module must have said that it can; the command of Redis 8.4 goes to the target."""
        try:
            plain(self.nodes[self.owners[slot]].observer, "CLUSTER", "MIGRATESLOTS",
                  "SLOTSRANGE", slot, slot, "NODE", self.ids[target])
        except redis.ResponseError as refusal:
            if "unknown subcommand" not in str(refusal).lower():
                raise
            plain(self.nodes[target].observer, "CLUSTER", "MIGRATION", "IMPORT", slot, slot)
        self.owners[slot] = target
        self.wait_until_all_know_owner(slot)

    def wait_until_all_know_owner(self, slot):
        port = self.nodes[self.owners[slot]].port
        clients = [member.observer for member in self.members]
        wait_until(lambda: all(self._serves(client, slot) == port for client in clients),
                   f"slot {slot} to be moved")

    def wait_until_settled(self):
        """Everybody knows everybody's newest epoch. Who takes a slot back before that takes it with
        an older one, and then nobody has it for good."""
        def is_settled():
            views = [plain(member.observer, "CLUSTER", "NODES").split(b"\n")
                     for member in self.members]
            return len({frozenset((node.split()[0], node.split()[6]) for node in view if node)
                        for view in views}) == 1
        wait_until(is_settled, "the epochs")

    def take_back(self, slot, target):
        """A move that was begun and is not to be."""
        source = self.owners[slot]
        self._set_slot(source, slot, "STABLE")
        self._send_keys(slot, target, source)
        self._set_slot(target, slot, "STABLE")
        self.moving.discard(slot)

    def end_moves(self):
        """Whatever is under way stays where it was; its keys are lost."""
        for node in self.nodes:
            node.client().flushall()
        for slot in list(self.moving):
            self.end_move(slot, self.owners[slot])

    def _send_keys(self, slot, source, target):
        client, port = self.nodes[source].observer, self.nodes[target].known_port
        while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            client.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)

    def _set_slot(self, number, slot, *words):
        self.nodes[number].observer.execute_command("CLUSTER", "SETSLOT", slot, *words)


class Traveller:
    """A client that goes where it is sent. came_across counts the kinds of redirection."""

    RETRY = 0.002

    def __init__(self, node, patience=30):
        self.port = node.port
        self.patience = patience
        self.connections = {}
        self.came_across = collections.Counter()

    def _connection(self, port):
        if port not in self.connections:
            self.connections[port] = redis.Connection(
                "127.0.0.1", port, socket_timeout=self.patience)
        return self.connections[port]

    def _try(self, port, words, is_asking):
        connection = self._connection(port)
        for command in [("ASKING",)] * is_asking + [words]:
            connection.send_command(*command)
        if is_asking:
            connection.read_response()
        return connection.read_response()

    def call(self, *words):
        deadline = time.monotonic() + self.patience
        port, is_asking = self.port, False
        while time.monotonic() < deadline:
            try:
                return self._try(port, words, is_asking)
            except redis.ResponseError as error:
                kind, *where = str(error).split()
            self.came_across[kind] += 1
            if kind in ("ASK", "MOVED"):
                port, is_asking = int(where[1].rpartition(":")[2]), kind == "ASK"
                self.port = self.port if is_asking else port
            elif kind == "TRYAGAIN":
                port, is_asking = self.port, False
                time.sleep(self.RETRY)
            else:
                raise redis.ResponseError(f"{kind} {' '.join(where)}")
        raise AssertionError(f"{words}: no answer after {self.patience} s, {self.came_across}")

    def close(self):
        for connection in self.connections.values():
            connection.disconnect()
