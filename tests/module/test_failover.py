"""Sentinel: kill -9 of the master under load. What a replica acknowledged survives."""

import contextlib
import os
import threading
import time

import pytest
import redis

from support.commands import Lock
from support.sentinel import SentinelSet

ROUNDS = int(os.environ.get("DLOCK_FAILOVER_ROUNDS", 3))
LEASE_MS = 600_000


@pytest.fixture(scope="module")
def sentinels():
    sentinels = SentinelSet()
    try:
        yield sentinels.start()
    finally:
        sentinels.destroy()


class Load(threading.Thread):
    """Takes one new lock after the other until the master dies; remembers what it was told."""

    def __init__(self, master, prefix, replicas):
        super().__init__()
        self.client = master.connect(socket_timeout=2)
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

    def lost(self, client):
        """Those that are not there as they were given."""
        def is_there(name, token, fence):
            info = Lock(client, name).info()
            return info and (info["token"], info["fence"]) == (token.encode(), fence)
        return [taken for taken in self.taken if not is_there(*taken)]


@contextlib.contextmanager
def killed_master(sentinels, prefix, replicas):
    """One round: what was taken, what of it is lost, and a client of the new master."""
    old = sentinels.master
    load = Load(old, prefix, replicas)
    load.start()
    time.sleep(0.2)  # not for luck: so long the load lasts
    old.kill()
    load.join()
    client = sentinels.wait_for_new_master(old).client()
    yield load.taken, load.lost(client), client
    sentinels.revive(old)


def test_no_acknowledged_lock_is_lost_and_no_fence_goes_back(sentinels):
    highest, total = 0, 0
    for i in range(ROUNDS):
        with killed_master(sentinels, f"acknowledged:{i}", replicas=1) as (taken, lost, client):
            assert taken and lost == []
            fences = [fence for _, _, fence in taken]
            assert fences == sorted(set(fences)) and fences[0] > highest
            name, _, fence = taken[-1]
            assert Lock(client, name).acquire("stranger") is None
            client.delete(name)
            highest = Lock(client, name).acquire("next", LEASE_MS)
            assert highest > fences[-1]
            total += len(taken)
    print(f"\n{ROUNDS} failovers, {total} acknowledged locks, none lost")


def test_without_acknowledgement_the_losses_are_counted(sentinels):
    total, missing = 0, 0
    for i in range(ROUNDS):
        with killed_master(sentinels, f"plain:{i}", replicas=0) as (taken, lost, client):
            assert lost == taken[len(taken) - len(lost):], "only the newest can be lost"
            assert Lock(client, "next").acquire(f"next:{i}", 1) > taken[-1][2]
            total, missing = total + len(taken), missing + len(lost)
    print(f"\n{ROUNDS} failovers, {total} locks without acknowledgement, {missing} lost")
