"""Clients that take lock after lock until their server dies or refuses, and remember the
answers."""

import collections
import itertools
import selectors
import socket
import subprocess
import threading

from support.commands import info_of
from support.server import wait_until

LEASE_MS = 600_000


class Connection:
    """One of the clients. It has so many requests under way at a time."""

    def __init__(self, port, names, replicas, pipeline):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.names, self.replicas, self.pipeline = names, replicas, pipeline
        self.under_way = collections.deque()  # names
        self.answers = []  # to the oldest of them
        self.refusal = None  # the error that ended it
        self.unread = b""
        self.taken = []

    def ask(self):
        """For so many more locks as may be under way."""
        words = []
        while len(self.under_way) < self.pipeline:
            name = next(self.names)
            self.under_way.append(name)
            words.append(command("DLOCK.ACQUIRE", name, f"token:{name}", "PX", LEASE_MS))
            if self.replicas:
                words.append(command("WAIT", self.replicas, 1000))
        self.socket.sendall(b"".join(words))

    def read(self):
        """False when the server is gone or refuses. All it has granted by then counts."""
        try:
            more = self.socket.recv(65536)
        except ConnectionError:
            return False
        *lines, self.unread = (self.unread + more).split(b"\r\n")
        for line in lines:
            if line[:1] != b":":
                self.refusal = line[1:].decode()
                return False
            self.answers.append(int(line[1:]))
            if len(self.answers) == 1 + bool(self.replicas):
                self._finish(*self.answers)
                self.answers = []
        return bool(more)

    def _finish(self, fence, replicas=0):
        name = self.under_way.popleft()
        if replicas >= self.replicas:
            self.taken.append((name, f"token:{name}", fence))


def command(*words):
    words = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Load(threading.Thread):
    """Counts a lock as taken when it was answered and, if asked for, so many replicas have it."""

    def __init__(self, server, prefix, replicas=0, connections=1, pipeline=1):
        super().__init__()
        self.replicas = replicas
        names = (f"{prefix}:{i}" for i in itertools.count())
        self.connections = [Connection(server.port, names, replicas, pipeline)
                            for _ in range(connections)]
        self.taken = []  # name, token, fence, in the order of their fences
        self.failure = None

    def run(self):
        try:
            self._run()
        except Exception as failure:
            self.failure = failure

    def _run(self):
        with selectors.DefaultSelector() as selector:
            for connection in self.connections:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
                connection.ask()
            while selector.get_map():
                for key, _ in selector.select():
                    if not self._serve(key.data):
                        selector.unregister(key.fileobj)

    @staticmethod
    def _serve(connection):
        try:
            if not connection.read():
                return False
            connection.ask()
        except ConnectionError:
            pass  # it cannot be asked any more, but there may be answers left to read
        return True

    def join(self, timeout=60):
        """Until the server is gone and all of its answers are read."""
        super().join(timeout)
        assert not self.is_alive(), "the server lives"
        for connection in self.connections:
            connection.socket.close()
            self.taken += connection.taken
        self.taken.sort(key=lambda taken: taken[2])
        if self.failure:
            raise self.failure

    def wait_for(self, count):
        """Until that many locks are taken."""
        def is_enough():
            assert self.is_alive(), "the load ended by itself"
            return sum(len(connection.taken) for connection in self.connections) >= count
        wait_until(is_enough, f"{count} locks", timeout=60)

    def end_by_kill(self, server):
        """From outside, so that it dies wherever it is, and not just when this program idles."""
        subprocess.run(["sh", "-c", f"kill -9 {server.pid}"], check=True)
        self.join()
        server.kill()

    @property
    def refusals(self):
        """The errors that ended connections, each once."""
        return {connection.refusal for connection in self.connections if connection.refusal}

    @property
    def fences(self):
        return [fence for _, _, fence in self.taken]

    def lost(self, client):
        """Those that are not there as they were given."""
        pipe = client.pipeline(transaction=False)
        for name, _, _ in self.taken:
            pipe.execute_command("DLOCK.INFO", name)

        def is_there(token, fence, reply):
            info = info_of(reply)
            return info and (info["token"], info["fence"]) == (token.encode(), fence)
        return [(name, token, fence)
                for (name, token, fence), reply in zip(self.taken, pipe.execute())
                if not is_there(token, fence, reply)]

    def lost_tail(self, client):
        """The same, where only the newest may be lost."""
        lost = self.lost(client)
        assert lost == self.taken[len(self.taken) - len(lost):], "lost, but not the newest"
        return lost
