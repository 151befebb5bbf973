"""Every command of the server inside DLOCK.GUARD, with random arguments: the server must answer
each call, stay alive, give back its memory, and write to replica and file what it has done itself.

The server has I/O threads, an append-only file and a replica. Beside the holder, clients write, and
one that has not logged in sends DLOCK.GUARD too.

The calls follow from a seed, which a failure shows. Environment:
    DLOCK_GUARD_SECONDS   how long, for each of the tests (default 3)
    DLOCK_SEED            the seed to use (default: a new one each run)
"""

import os
import random
import threading
import time

import pytest
import redis

from support import other_module
from support.cluster import Cluster
from support.commands import plain
from support.server import running, wait_until

SECONDS = float(os.environ.get("DLOCK_GUARD_SECONDS", 3))
SEED = int(os.environ.get("DLOCK_SEED", random.SystemRandom().randrange(2**32)))
BATCH = 100
MANY_KEYS = 1000
LEAK_BYTES = 50_000  # a leak of 8 bytes for each key is much more
PASSWORD = "secret"
OPTIONS = ["--io-threads", "4", "--appendonly", "yes", "--appendfsync", "no",
           "--slowlog-log-slower-than", "-1", "--latency-tracking", "no", "--acllog-max-len", "0"]

WORDS = """0 1 -1 2 3 10 1000 0.5 1-1 0-0 $ > * + - ( [a {g} a b c field member value channel g1
    GET SET NX XX GT LT EX PX KEEPTTL PERSIST COUNT MATCH TYPE LIMIT BY ASC DESC ALPHA STORE REPLACE
    WITHSCORES WEIGHTS AGGREGATE SUM LEFT RIGHT BEFORE AFTER MIN MAX REV BYSCORE BYLEX INCR CH
    BLOCK STREAMS GROUP NOACK MKSTREAM MAXLEN MINID ID IDLE FORCE JUSTID FIELDS FVS DB ASYNC SYNC
    AND OR NOT XOR u8 i16 OVERFLOW WRAP FROMMEMBER BYRADIUS BYBOX km m WITHCOORD IFEQ CREATE
    DESTROY HELP STREAM FULL USAGE SAMPLES KEYS SLOTSRANGE SCHEDULE NO ONE PX WAIT SESSION SHARED
    """.split()


class Calls:
    """Random words for DLOCK.GUARD."""

    def __init__(self, seed, client, tag):
        self.random = random.Random(seed)
        self.keys = [f"{tag}k{i}" for i in range(8)]
        self.commands = list(self._commands(plain(client, "COMMAND")))

    def _commands(self, listed):
        """The words of each command and subcommand, and its arity."""
        for name, arity, *_, subcommands in listed:
            yield name.split(b"|"), arity
            yield from self._commands(subcommands)

    def any(self):
        if self.random.random() < 0.01:
            name = self.random.choice(["EXISTS", "DEL", "TOUCH", "MGET", "SUNION"])
            return [name, *(self.random.choice(self.keys) for _ in range(MANY_KEYS))]
        return self.call(*self.random.choice(self.commands))

    def call(self, name, arity):
        if name == [b"migrate"]:  # to nobody; a random host would be looked up
            return [*name, "127.0.0.1", "1", self.random.choice(self.keys), "0", "10"]
        count = abs(arity) - len(name)
        if arity < 0:
            count += self.random.choice([0, 0, 1, 2, 3, 6])
        return [*name, *(self._argument(i) for i in range(count))]

    def _argument(self, position):
        is_key = self.random.random() < (0.8 if position == 0 else 0.3)
        return self.random.choice(self.keys if is_key else WORDS)


class Talker(threading.Thread):
    """A client that sends batches of calls until it is told to end. Whatever a reply says is fine,
    but it has to come."""

    def __init__(self, server, batch, password=PASSWORD):
        super().__init__(daemon=True)
        self.connection = redis.Connection("127.0.0.1", server.port, password=password,
                                           socket_timeout=60)
        self.batch = batch
        self.is_over = False
        self.count = 0
        self.failure = None

    def run(self):
        try:
            while not self.is_over:
                self.send(self.batch())
        except (AssertionError, OSError, redis.RedisError) as failure:
            self.failure = failure
        finally:
            self.close()

    def close(self):
        self.connection.disconnect()

    def send(self, calls):
        self.connection.send_packed_command(self.connection.pack_commands(calls))
        for _ in calls:
            try:
                self.connection.read_response()
            except redis.ResponseError:
                pass
            self.count += 1

    def end(self):
        self.is_over = True
        self.join(120)
        assert not self.is_alive(), "the server does not answer"
        assert self.failure is None, f"{self.failure!r}; DLOCK_SEED={SEED}"


class Stranger(Talker):
    """One that has not logged in. Some servers close its connection when it lets too many replies
    wait."""

    def __init__(self, server, batch):
        super().__init__(server, batch, password=None)
        self.server = server
        self._open()

    def _open(self):
        self.socket = self.server.socket()
        self.reader = self.socket.makefile("rb")

    def send(self, calls):
        try:
            self.socket.sendall(b"".join(self.connection.pack_commands(calls)))
            lines = [self.reader.readline() for _ in calls]
        except ConnectionError:
            lines = [b""]
        assert all(line.startswith(b"-NOAUTH ") for line in lines if line), lines
        if not all(lines):
            self.close()
            self._open()

    def close(self):
        self.reader.close()
        self.socket.close()


def guarded(calls, lock):
    """The lock may be gone after FLUSHALL, RENAME and the like, so it is taken now and then."""
    batch = []
    for i in range(BATCH):
        if i % 10 == 0:
            batch += [("DEL", lock), ("DLOCK.ACQUIRE", lock, "me", "PX", 600_000)]
        batch.append(("DLOCK.GUARD", lock, "me", *calls()))
    return batch


def play(server, calls, tag, seconds):
    lock = f"{tag}lock"
    holder = Talker(server, lambda: guarded(calls.any, lock))
    stranger = Stranger(server, lambda: [("DLOCK.GUARD", lock, "me", "GET", "x")] * BATCH)
    writers = [Talker(server, lambda i=i: [("INCR", f"{tag}x{i}")] * BATCH) for i in range(2)]
    talkers = [holder, stranger, *writers]
    for talker in talkers:
        talker.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and all(talker.is_alive() for talker in talkers):
        time.sleep(0.05)
    for talker in talkers:
        talker.end()
    return holder.count


def connected(client):
    return client.info("clients")["connected_clients"]


def used_memory(client, clients):
    """Of nothing but what is left behind: no key, not more than these clients, no buffer."""
    client.flushall()
    wait_until(lambda: connected(client) == clients, "the others are gone")
    wait_until(lambda: client.info("memory")["lazyfree_pending_objects"] == 0, "all is freed")
    memory = client.info("memory")
    return memory["used_memory"] - memory["used_memory_overhead"]


def digest(client):
    return plain(client, "DEBUG", "DIGEST")


def forget_what_expires(client):
    """Before it does so on one side earlier than on the other. Fields of a hash can expire too."""
    for key in client.scan_iter():
        if client.pttl(key) >= 0 or client.type(key) == b"hash":
            client.delete(key)


def check(master, replica, tag, tmp_path):
    print(f"DLOCK_SEED={SEED}")
    client = master.client()
    plain(client, "MODULE", "LOAD", str(other_module.build(tmp_path)))
    for one in client, replica.client():
        one.config_set("masterauth", PASSWORD)
    client.config_set("requirepass", PASSWORD)  # who is connected stays logged in
    calls, clients = Calls(SEED, client, tag), connected(client)
    warm_up = Talker(master, None)
    warm_up.send([("DLOCK.ACQUIRE", f"{tag}lock", "me", "PX", 600_000)])
    for name, arity in calls.commands:
        warm_up.send([("DLOCK.GUARD", f"{tag}lock", "me", *calls.call(name, arity))])
    warm_up.close()
    play(master, calls, tag, 0.5)
    before = used_memory(client, clients)

    count = play(master, calls, tag, SECONDS)
    print(f"{count} calls")
    forget_what_expires(client)
    observer = replica.client()
    wait_until(lambda: digest(client) == digest(observer), "the replica to have the same")
    here = digest(client)
    plain(client, "DEBUG", "LOADAOF")
    assert digest(client) == here, f"the file has something else; DLOCK_SEED={SEED}"
    left = used_memory(client, clients) - before
    print(f"{left} bytes more than before")
    if left >= LEAK_BYTES:  # what the server allocates once, such as the tables of a database,
        play(master, calls, tag, SECONDS)  # is no leak: a leak grows on
        left = used_memory(client, clients) - before - left
    assert left < LEAK_BYTES, f"{left} bytes are left behind; DLOCK_SEED={SEED}"


@pytest.mark.limit(240, "plays for as long as it is told to")
def test_any_command_inside_does_no_harm(start_server, start_replica, tmp_path):
    master = start_server(*OPTIONS)
    check(master, start_replica(master), "", tmp_path)


@pytest.mark.limit(240, "plays for as long as it is told to")
def test_any_command_inside_does_no_harm_in_a_cluster(tmp_path):
    cluster = Cluster(masters=1, replicas=1)
    for member in cluster.members:
        member.options += OPTIONS
    with running(cluster):
        check(cluster.nodes[0], cluster.replicas[0], "{g}", tmp_path)
