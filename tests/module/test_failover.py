"""Sentinel: kill -9 of the master under load. What a replica acknowledged survives."""

import contextlib
import os
import time

import pytest

from support.commands import Lock
from support.load import LEASE_MS, Load
from support.sentinel import SentinelSet

ROUNDS = int(os.environ.get("DLOCK_FAILOVER_ROUNDS", 2))


@pytest.fixture(scope="module")
def sentinels():
    sentinels = SentinelSet()
    try:
        yield sentinels.start()
    finally:
        sentinels.destroy()


@contextlib.contextmanager
def killed_master(sentinels, prefix, replicas):
    """One round: the load until the master died, and a client of the new master."""
    old = sentinels.wait_for_master()
    load = Load(old, prefix, replicas)
    load.start()
    time.sleep(0.2)  # not for luck: so long the load lasts
    old.kill()
    load.join()
    yield load, sentinels.wait_for_new_master(old).client()
    sentinels.revive(old)


def test_no_acknowledged_lock_is_lost_and_no_fence_goes_back(sentinels):
    highest, total = 0, 0
    for i in range(ROUNDS):
        with killed_master(sentinels, f"acknowledged:{i}", replicas=1) as (load, client):
            assert load.taken and load.lost(client) == []
            assert load.fences == sorted(set(load.fences)) and load.fences[0] > highest
            last = Lock(client, load.taken[-1][0])
            assert last.acquire("stranger") is None
            client.delete(last.key)
            highest = last.acquire("next", LEASE_MS)
            assert highest > load.fences[-1]
            total += len(load.taken)
    print(f"\n{ROUNDS} failovers, {total} acknowledged locks, none lost")


def test_without_acknowledgement_the_losses_are_counted(sentinels):
    total, lost = 0, 0
    for i in range(ROUNDS):
        with killed_master(sentinels, f"plain:{i}", replicas=0) as (load, client):
            lost += len(load.lost_tail(client))
            total += len(load.taken)
            assert Lock(client, "next").acquire(f"next:{i}", 1) > load.fences[-1]
    print(f"\n{ROUNDS} failovers, {total} locks without acknowledgement, {lost} lost")
