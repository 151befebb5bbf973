"""A master, two replicas and three sentinels on loopback, ready in a second or so."""

import contextlib
import time

import redis

from support.commands import as_map, plain
from support.server import HOST, MODULE, ROOT, Server, destroy_all, free_port, wait_until

# A master that hangs for seconds on a busy machine is not replaced: only one that a test waits for
# to be replaced.
DOWN_AFTER_MS, DOWN_AFTER_QUICK_MS = 60_000, 1000
FAILOVER_TIMEOUT_MS = 2000
TILT_TRIGGER_MS = 60_000  # a sentinel that hangs for longer does nothing for half a minute
NAME = "main"


def url_of(*sentinels, name=NAME, login="", options="", scheme="redis+sentinel"):
    """Of servers, or of ports."""
    hosts = ",".join(f"{getattr(s, 'host', HOST)}:"
                     f"{getattr(s, 'known_port', getattr(s, 'port', s))}" for s in sentinels)
    return f"{scheme}://{login}{hosts}/{name}{options}"


def has_role(server, role):
    try:
        return server.observer.info("replication")["role"] == role
    except redis.ConnectionError:  # sentinels end all connections of whom they demote
        return False


class Sentinel(Server):
    """One sentinel process."""

    def __init__(self, master, tls=None, host=HOST):
        super().__init__(module=None, host=host)
        self.first_master = f"{master.host} {master.known_port}"
        self.settings = ""
        if tls:
            self.tls_port = free_port()
            words = [str(word) for word in [*tls(self.tls_port), "--tls-replication", "yes"]]
            pairs = zip(words[::2], words[1::2])
            self.settings = "".join(f"{name[2:]} {value}\n" for name, value in pairs)

    def command(self):
        (self.dir / "sentinel.conf").write_text(
            f"port {self.port}\n"
            f"bind {self.host}\n"
            f"bind-source-addr {self.host}\n"
            f"dir {self.dir}\n"
            f"logfile {self.dir / 'log'}\n"
            f"{self.settings}"
            f"sentinel monitor {NAME} {self.first_master} 2\n"
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {NAME} {FAILOVER_TIMEOUT_MS}\n"
            f"sentinel parallel-syncs {NAME} 2\n")
        return [str(ROOT / "scripts/redis-server"), str(self.dir / "sentinel.conf"), "--sentinel"]

    def master(self):
        """What it knows of the master, as a dict."""
        reply = as_map(plain(self.observer, "SENTINEL", "MASTER", NAME))
        return {field: value.decode() for field, value in reply.items()}


class SentinelSet:
    """servers[0] is the first master. Each fail_over() kills the master of the moment."""

    def __init__(self, *options, tls=None, module=MODULE, has_clock=False, hosts=None):
        """tls(port): options of a server that speaks TLS there. module None: without it. has_clock:
        a test can set the clocks of the servers. hosts: the addresses of the six, if not one."""
        self.options, self.tls, self.module = options, tls, module
        self.hosts = list(hosts or [HOST] * 6)
        self.has_clock = has_clock
        self.servers, self.sentinels = [], []

    def start(self):
        master = self._add_server()
        for _ in range(2):
            self._add_server("--replicaof", master.host, master.known_port)
        self._wait_for_replicas(2)
        for _ in range(3):
            sentinel = Sentinel(master, self.tls, self.hosts[3 + len(self.sentinels)])
            self.sentinels.append(sentinel)
            sentinel.start()
            plain(sentinel.client(), "SENTINEL", "DEBUG", "INFO-PERIOD", 200, "PUBLISH-PERIOD", 100,
                  "TILT-TRIGGER", TILT_TRIGGER_MS)
        self.wait_until_all_know_all()
        return self

    def _add_server(self, *options):
        tls_port = free_port() if self.tls else None
        tls = [*self.tls(tls_port), "--tls-replication", "yes"] if self.tls else []
        server = Server(*self.options, *tls, *options, module=self.module,
                        has_clock=self.has_clock, host=self.hosts[len(self.servers)])
        server.tls_port = tls_port
        self.servers.append(server)
        return server.start()

    def _roles(self):
        roles = {}
        for server in self.servers:
            try:
                roles[server] = server.observer.info("replication")
            except redis.RedisError:
                roles[server] = {"role": "down"}
        return roles

    def _wait_for_replicas(self, count):
        def in_sync():
            return [r for r in self._roles().values() if r.get("master_link_status") == "up"]
        wait_until(lambda: len(in_sync()) == count, f"{count} replicas in sync", timeout=60)

    def wait_until_all_know_all(self):
        def knows_all(sentinel):
            master = sentinel.master()
            return (int(master["num-slaves"]) == 2 and int(master["num-other-sentinels"]) == 2
                    and master["flags"] == "master")
        wait_until(lambda: all(knows_all(s) for s in self.sentinels), "the sentinels", timeout=60)

    def master_of(self, sentinel):
        """The one that this sentinel names."""
        _, port = plain(sentinel.observer, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return next(s for s in self.servers if s.known_port == int(port))

    @property
    def master(self):
        return self.master_of(self.sentinels[0])

    @property
    def epoch(self):
        """Grows with every failover."""
        return max(int(sentinel.master()["config-epoch"]) for sentinel in self.sentinels)

    def wait_for_master(self):
        """The sentinels' master, once it is one and has its replicas."""
        def is_well():
            replication = self.master.observer.info("replication")
            online = [replication.get(f"slave{i}", {}).get("state") for i in range(2)]
            return replication["role"] == "master" and online == ["online", "online"]
        wait_until(is_well, "a master with two replicas", timeout=60)
        return self.master

    def wait_for_new_master(self, old):
        """The old one is dead, or hangs, or is being replaced."""
        def is_promoted():
            """A sentinel that does not know it yet would take it back, once it is patient again."""
            master = self.master
            return (master is not old and has_role(master, "master")
                    and all(self.master_of(sentinel) is master for sentinel in self.sentinels))
        with self.replacing():
            wait_until(is_promoted, "a new master", timeout=60)
        return self.master

    @contextlib.contextmanager
    def replacing(self):
        """A master that hangs meanwhile, or cannot be reached, is replaced."""
        self._set_down_after(DOWN_AFTER_QUICK_MS)
        try:
            yield
        finally:
            self._set_down_after(DOWN_AFTER_MS)

    def _set_down_after(self, period_ms):
        for sentinel in self.sentinels:
            plain(sentinel.observer, "SENTINEL", "SET", NAME, "down-after-milliseconds", period_ms)

    def switch_master(self):
        """As an operator does it. The new master is the result."""
        old = self.master

        def is_done():
            if self.master is not old:
                return all(self.master_of(s) is self.master for s in self.sentinels)
            with contextlib.suppress(redis.ResponseError):  # it is under way
                plain(self.sentinels[0].observer, "SENTINEL", "FAILOVER", NAME)
            time.sleep(0.1)
            return False

        # A sentinel that has not heard of the change yet takes it back after four periods: it turns
        # the new master into a replica of the old one. So the periods are long until all know.
        for period_ms, condition in ((2000, is_done), (100, lambda: has_role(old, "slave"))):
            for sentinel in self.sentinels:
                plain(sentinel.observer, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", period_ms)
            wait_until(condition, "the other master", timeout=60)
        return self.wait_for_new_master(old)

    def revive(self, server):
        """Start it again, on its old port, as a replica of the master; wait until all is well."""
        port = server.port
        server.options = [*map(str, self.options)]
        server.options += ["--replicaof", self.master.host, str(self.master.port)]
        server.start(port)
        self._wait_for_replicas(2)
        self.wait_until_all_know_all()

    def restore(self):
        """As at the start: all are alive and well, and empty."""
        for server in self.servers:
            if server.process is None:
                self.revive(server)
        self.wait_for_master().observer.flushall()
        self.wait_until_all_know_all()

    def destroy(self):
        destroy_all(self.sentinels + self.servers)
