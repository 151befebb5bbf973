"""kill -9 of a master under load, with Sentinel and in a cluster. What a replica has survives."""

import contextlib
import os
import signal

import pytest

from support import figures
from support.cluster import Cluster, Traveller
from support.commands import Lock
from support.load import LEASE_MS, Load
from support.sentinel import SentinelSet
from support.server import running
from support.waiting import queue_up

ROUNDS = int(os.environ.get("DLOCK_FAILOVER_ROUNDS", 2))
CLIENTS, LOCKS, LOCKS_ACKNOWLEDGED = 50, 25_000, 5000


def kill_under_load(server, load):
    load.start()
    load.wait_for(LOCKS_ACKNOWLEDGED if load.replicas else LOCKS)
    load.end_by_kill(server)
    assert not load.refusals


# -- Sentinel -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentinels():
    with running(SentinelSet()) as sentinels:
        yield sentinels


@contextlib.contextmanager
def killed_master(sentinels, prefix, stall=False, **how):
    """One round: the load until the master died, and a client of the new master. Replicas that
    stall read nothing meanwhile, so that they have only what the system keeps for them."""
    old = sentinels.wait_for_master()
    load = Load(old, prefix, **how)
    stalled = [server for server in sentinels.servers if stall and server is not old]
    for replica in stalled:
        replica.process.send_signal(signal.SIGSTOP)
    kill_under_load(old, load)
    for replica in stalled:
        replica.process.send_signal(signal.SIGCONT)
    new = sentinels.wait_for_new_master(old)
    yield load, new.client()
    new.client().flushall()
    sentinels.revive(old)


def next_fence(client, load):
    """Of a lock whose holder is known to the new master, after its end."""
    lock = Lock(client, load.taken[0][0])
    assert lock.acquire("stranger") is None
    client.delete(lock.key)
    return lock.acquire("next", LEASE_MS)


def test_no_lock_that_a_replica_acknowledged_is_lost_and_no_fence_goes_back(sentinels):
    highest, total = 0, 0
    for i in range(ROUNDS):
        how = {"replicas": 1, "connections": CLIENTS}
        with killed_master(sentinels, "acknowledged", **how) as (load, client):
            assert load.lost(client) == []
            assert len(set(load.fences)) == len(load.fences) and load.fences[0] > highest
            highest = next_fence(client, load)
            assert highest > load.fences[-1]
            total += len(load.taken)
    figures.tell(f"Sentinel: {ROUNDS} failovers, {total} locks acknowledged by a replica, 0 lost, "
                 "0 fences went back")


@pytest.mark.parametrize("stall", [False, True], ids=["replicas keep up", "replicas stall"])
def test_without_acknowledgement_the_losses_are_counted_and_no_fence_goes_back(sentinels, stall):
    highest, total, losses = 0, 0, []
    for i in range(3 if stall else ROUNDS):
        how = {"connections": CLIENTS, "pipeline": 16, "stall": stall}
        with killed_master(sentinels, "plain", **how) as (load, client):
            losses.append(len(load.lost_tail(client)))
            assert len(set(load.fences)) == len(load.fences) and load.fences[0] > highest
            highest = next_fence(client, load)
            assert highest > load.fences[-1]
            total += len(load.taken)
    figures.tell(f"Sentinel: {len(losses)} failovers, {total} locks not acknowledged"
                 f"{', replicas stalled' * stall}, {sum(losses)} lost "
                 f"in {sum(map(bool, losses))} of the failovers, 0 fences went back")


# -- Cluster --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    with running(Cluster(masters=3, replicas=3)) as cluster:
        yield cluster


@pytest.mark.parametrize("number", range(3))
def test_a_held_lock_survives_the_death_of_its_master_in_a_cluster(cluster, number):
    master = cluster.nodes[number]
    key = cluster.key_on(number)
    here = Lock(master.client(), key)
    held = here.acquire("holder", LEASE_MS)
    queue_up(master, ["first", "second"], key=key)
    load = Load(master, "{%s}" % key, replicas=1, connections=CLIENTS)
    assert here.client.wait(1, 10_000) == 1
    kill_under_load(master, load)

    promoted = cluster.wait_for_promotion(number)
    there = Lock(promoted.client(), key)
    assert load.lost(there.client) == []
    assert (there.info()["token"], there.info()["fence"]) == (b"holder", held)
    assert there.acquire("thief") is None
    assert there.acquire("holder") == held  # who lost its connection asks again
    [waiter] = queue_up(promoted, ["next"], key=key)
    elsewhere = next(m for m in cluster.members if m.process and m is not promoted)
    assert Traveller(elsewhere).call("DLOCK.RELEASE", key, "holder") == 1
    assert waiter.answer() > load.fences[-1] > held
    figures.tell(f"Cluster: a master died, {len(load.taken)} locks acknowledged by its replica, "
                 "0 lost")
