"""A small Redis Cluster of masters on loopback, and a client that follows its redirections."""

import binascii
import collections
import time

import redis

from support.commands import plain
from support.server import Server, free_port, wait_until

SLOTS = 16384


def slot_of(key):
    """With hash tags, as CLUSTER KEYSLOT says."""
    key = key.encode()
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    if start >= 0 and end > start + 1:
        key = key[start + 1:end]
    return binascii.crc_hqx(key, 0) % SLOTS


class Cluster:
    """Masters 0, 1, ..., each with its share of the slots; who has which is in owners."""

    def __init__(self, masters=3):
        self.owners = [slot * masters // SLOTS for slot in range(SLOTS)]
        self.bus_ports = [free_port() for _ in range(masters)]
        self.nodes = [
            Server("--cluster-enabled", "yes", "--cluster-port", port,
                   "--cluster-node-timeout", 5000) for port in self.bus_ports]
        self.moving = set()

    def start(self):
        for node in self.nodes:
            node.start()
        clients = [node.client() for node in self.nodes]
        self.ids = [client.execute_command("CLUSTER", "MYID").decode() for client in clients]
        for i, client in enumerate(clients):
            first = self.owners.index(i)
            last = SLOTS - 1 - self.owners[::-1].index(i)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            for node, bus_port in zip(self.nodes[:i], self.bus_ports):
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
        self.wait_until_ready()
        return self

    def wait_until_ready(self):
        clients = [node.client() for node in self.nodes]
        wait_until(lambda: all(self._is_ready(client) for client in clients), "the cluster")

    def _is_ready(self, client):
        lines = plain(client, "CLUSTER", "INFO").split()
        return b"cluster_state:ok" in lines and b"cluster_known_nodes:%d" % len(self.nodes) in lines

    def destroy(self):
        failures = []
        for node in self.nodes:
            try:
                node.destroy()
            except AssertionError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

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
        client, port = self.nodes[source].client(), self.nodes[target].port
        while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            client.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)

    def _set_slot(self, number, slot, *words):
        self.nodes[number].client().execute_command("CLUSTER", "SETSLOT", slot, *words)


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
