"""A small Redis Cluster on loopback, with or without replicas, and a client that follows its
redirections."""

import binascii
import collections
import time

import redis

from support.commands import as_map, plain
from support.server import HOST, MODULE, Server, destroy_all, free_port, wait_until

SLOTS = 16384
SLEW_US = 1_000_000  # of a free lock whose slot moves: see "The fence" in module/README.md
NODE_TIMEOUT_MS = 5000  # much less, and a busy machine fails over without need


def slot_of(key):
    """With hash tags, as CLUSTER KEYSLOT says."""
    key = key.encode()
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    if start >= 0 and end > start + 1:
        key = key[start + 1:end]
    return binascii.crc_hqx(key, 0) % SLOTS


def url_of(*nodes, login=""):
    """Of servers, or of ports."""
    hosts = ",".join(f"{getattr(node, 'host', HOST)}:{getattr(node, 'port', node)}"
                     for node in nodes)
    return f"redis+cluster://{login}{hosts}"


class Cluster:
    """Masters 0, 1, ..., each with its share of the slots; who has which is in owners. With
    replicas, replica 0 follows master 0, and so on."""

    def __init__(self, masters=3, replicas=0, tls=None, module=MODULE, has_clock=None,
                 hosts=None, options=()):
        """tls(port): options of a server that speaks TLS there. module None: without it.
        has_clock: a test can set the clocks of the members; by default, if none is a replica.
        hosts: the addresses of the members, if not one. options: more of each member."""
        has_clock = replicas == 0 if has_clock is None else has_clock
        self.homes = [slot * masters // SLOTS for slot in range(SLOTS)]
        self.owners = list(self.homes)
        hosts = hosts or [HOST] * (masters + replicas)
        members = [self._member(tls, module, has_clock, host, options) for host in hosts]
        self.nodes, self.replicas = members[:masters], members[masters:]
        self.moving = set()

    @staticmethod
    def _member(tls, module, has_clock, host, options):
        bus_port, tls_port = free_port(), free_port() if tls else None
        member = Server("--cluster-enabled", "yes", "--cluster-port", bus_port,
                        "--cluster-node-timeout", NODE_TIMEOUT_MS,
                        "--cluster-replica-validity-factor", 0,
                        *([*tls(tls_port), "--tls-cluster", "yes"] if tls else []), *options,
                        module=module, has_clock=has_clock, host=host)
        member.bus_port, member.tls_port = bus_port, tls_port
        return member

    @property
    def members(self):
        return self.nodes + self.replicas

    @property
    def url(self):
        return url_of(*self.nodes)

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
                client.execute_command("CLUSTER", "MEET", other.host, other.known_port,
                                       other.bus_port)
        self._let_first_seconds_pass()
        self._assign_replicas()
        return self

    def _let_first_seconds_pass(self):
        """A node refuses writes for two seconds after its start, by its wall clock. That stays
        ahead: nodes whose clocks are set back do not talk to each other for a while."""
        for member in self.members:
            if member.clock is not None:
                member.clock.step(3)
        self.wait_until_ready()

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
        self.wait_until_settled()
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
        module must have said that it can; the command of Redis 8.4 goes to the target.

        Valkey 9.1 fails a migration at random if a module replicates a command without keys
        meanwhile, as DLOCK.CLOCK is: VM_Replicate() reads flags that nobody has set. Nothing has
        moved then, and an operator gives the command again."""
        goes_on = self.begin_migration(slot, target)
        self.owners[slot] = target
        wait_until(lambda: goes_on() and self.all_know_owner(slot), f"slot {slot} to be moved")

    def begin_migration(self, slot, target):
        """The same without waiting for its end. Returns what has to be called again and again
        until then."""
        self.wait_until_settled()
        source = self.nodes[self.owners[slot]].observer
        is_ours = self._begin_migration(source, slot, target)

        def goes_on():
            if is_ours and self._has_failed_by_chance(source):
                self._begin_migration(source, slot, target)
            return True
        return goes_on

    def _begin_migration(self, source, slot, target):
        """Whether it is the source that knows how it goes."""
        try:
            plain(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE",
                  self.ids[target])
            return True
        except redis.ResponseError as refusal:
            if "unknown subcommand" not in str(refusal).lower():
                raise
            plain(self.nodes[target].observer, "CLUSTER", "MIGRATION", "IMPORT", slot, slot)
            return False

    @staticmethod
    def _has_failed_by_chance(source):
        newest = as_map(plain(source, "CLUSTER", "GETSLOTMIGRATIONS")[0])
        is_failed = newest["state"] == b"failed"
        assert not is_failed or b"replicated a cross-slot command" in newest["message"], newest
        return is_failed

    def cancel_migrations(self, source, target):
        """The command of Valkey 9 goes to the owner, that of Redis 8.4 to the target."""
        try:
            plain(self.nodes[source].observer, "CLUSTER", "CANCELSLOTMIGRATIONS")
        except redis.ResponseError as refusal:
            if "unknown subcommand" not in str(refusal).lower():
                raise
            plain(self.nodes[target].observer, "CLUSTER", "MIGRATION", "CANCEL", "ALL")

    def wait_until_all_know_owner(self, slot):
        wait_until(lambda: self.all_know_owner(slot), f"slot {slot} to be moved")

    def all_know_owner(self, slot):
        port = self.nodes[self.owners[slot]].port
        return all(self._serves(member.observer, slot) == port for member in self.members)

    def wait_until_settled(self):
        """Everybody knows everybody's newest epoch. Who takes a slot before that may take it with
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
            node.observer.flushall()
        for slot in list(self.moving):
            self.end_move(slot, self.owners[slot])

    def restore(self):
        """As at the start: empty, and every slot at home."""
        self.end_moves()
        for slot in [slot for slot in range(SLOTS) if self.owners[slot] != self.homes[slot]]:
            self.move(slot, self.homes[slot])

    def _send_keys(self, slot, source, target):
        client, owner = self.nodes[source].observer, self.nodes[target]
        while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            client.execute_command("MIGRATE", owner.host, owner.known_port, "", 0, 5000, "KEYS",
                                   *keys)

    def _set_slot(self, number, slot, *words):
        """Redis 8.4 refuses it until all is removed that an atomic migration has left behind."""
        def is_set():
            try:
                self.nodes[number].observer.execute_command("CLUSTER", "SETSLOT", slot, *words)
                return True
            except redis.ResponseError as refusal:
                if "pending trim job" not in str(refusal):
                    raise
                return False
        wait_until(is_set, "the slot to be set")


def assert_fences_grow_over_moves(fences):
    """Of a lock that was free while its slot moved. Nodes that have not told each other for some
    seconds may differ by milliseconds: see "Not promised" in module/README.md."""
    assert len(set(fences)) == len(fences), "a fence that was given twice"
    steps = [after - before for before, after in zip(fences, fences[1:])]
    assert min(steps) > -SLEW_US, "a fence that does not grow"


class Traveller:
    """A client that goes where it is sent. came_across counts the kinds of redirection. A waiter
    whose slot moves in the turn of its grant may find its connection closed instead, and asks again
    with its token."""

    RETRY = 0.002

    def __init__(self, node, patience=50):
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
            except redis.ConnectionError:
                self.connections.pop(port).disconnect()
                kind, where = "closed", []
            self.came_across[kind] += 1
            if kind in ("ASK", "MOVED"):
                port, is_asking = int(where[1].rpartition(":")[2]), kind == "ASK"
                self.port = self.port if is_asking else port
            elif kind in ("TRYAGAIN", "closed"):
                port, is_asking = self.port, False
                time.sleep(self.RETRY)
            else:
                raise redis.ResponseError(f"{kind} {' '.join(where)}")
        raise AssertionError(f"{words}: no answer after {self.patience} s, {self.came_across}")

    def close(self):
        for connection in self.connections.values():
            connection.disconnect()
