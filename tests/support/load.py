"""A client that takes lock after lock until its server dies, and remembers the answers."""

import threading

import redis

from support.commands import Lock

LEASE_MS = 600_000


class Load(threading.Thread):
    """Counts a lock as taken when it was answered and, if asked for, so many replicas have it."""

    def __init__(self, server, prefix, replicas=0):
        super().__init__()
        self.client = server.connect(socket_timeout=2)
        self.prefix, self.replicas = prefix, replicas
        self.taken = []  # name, token, fence

    def run(self):
        try:
            for i in range(1_000_000):
                name, token = f"{self.prefix}:{i}", f"token:{self.prefix}:{i}"
                fence = Lock(self.client, name).acquire(token, LEASE_MS)
                if self.replicas == 0 or self.client.wait(self.replicas, 1000) >= self.replicas:
                    self.taken.append((name, token, fence))
        except redis.RedisError:
            pass  # it died

    @property
    def fences(self):
        return [fence for _, _, fence in self.taken]

    def lost(self, client):
        """Those that are not there as they were given."""
        def is_there(name, token, fence):
            info = Lock(client, name).info()
            return info and (info["token"], info["fence"]) == (token.encode(), fence)
        return [taken for taken in self.taken if not is_there(*taken)]

    def lost_tail(self, client):
        """The same, where only the newest may be lost."""
        lost = self.lost(client)
        assert lost == self.taken[len(self.taken) - len(lost):], "lost, but not the newest"
        return lost
