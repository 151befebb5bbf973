"""The counter proof: updates that would get lost without the lock do not get lost with it."""

import subprocess

import pytest

from support import figures, sentinel
from support.server import ROOT, wait_until

PROCESSES, THREADS, TRIES = 3, 4, 400
PROGRAM = ROOT / "build/tests/client/counter"


@pytest.fixture
def start_workers():
    """start_workers(lock_url, counter_server): the processes."""
    workers = []

    def start(url, counters, min_replicas=0):
        for i in range(PROCESSES):
            workers.append(subprocess.Popen(
                [PROGRAM, url, str(counters.port), str(THREADS), str(TRIES), f"done:{i}",
                 str(min_replicas)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return workers

    yield start
    for worker in workers:
        worker.kill()
        worker.communicate()


def url_of(server):
    return f"redis://127.0.0.1:{server.port}"


def done(counters):
    return sum(int(counters.get(f"done:{i}") or 0) for i in range(PROCESSES))


def test_no_update_is_lost(start_server, start_workers):
    locks, counters = start_server(), start_server(module=None)
    workers = start_workers(url_of(locks), counters)
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES, outputs
    client = counters.client()
    assert int(client.get("counter")) == done(client) == PROCESSES * THREADS * TRIES


def test_no_update_is_lost_when_a_process_is_killed_and_the_server_restarts(
        start_server, start_workers):
    locks = start_server("--appendonly", "yes", "--appendfsync", "always")
    counters = start_server(module=None)
    workers = start_workers(url_of(locks), counters)
    client = counters.client()
    total = PROCESSES * THREADS * TRIES
    wait_until(lambda: done(client) > total // 5, "a fifth of the work", timeout=120)
    workers[0].kill()
    wait_until(lambda: done(client) > total * 2 // 5, "two fifths of the work", timeout=120)
    locks.crash()
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers[1:]] == [0, 0], outputs
    assert int(client.get("counter")) == done(client)
    assert done(client) > total * 3 // 5
    print(f"{done(client)} updates, none lost; the two that lived: {outputs[1:]}")


def test_no_update_is_lost_when_the_master_of_the_locks_dies(sentinels, start_server,
                                                             start_workers):
    """The replicas have every grant, so its successor knows who held the lock."""
    counters = start_server(module=None)
    workers = start_workers(sentinel.url_of(*sentinels.sentinels), counters, min_replicas=1)
    client = counters.client()
    total = PROCESSES * THREADS * TRIES
    wait_until(lambda: done(client) > total // 4, "a quarter of the work", timeout=120)
    old = sentinels.master
    old.kill()
    sentinels.wait_for_new_master(old)
    at_failover = done(client)
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES, outputs
    assert int(client.get("counter")) == done(client)
    assert done(client) > at_failover
    figures.tell(f"Sentinel: the master dies after {at_failover} updates of a counter, "
                 f"{done(client)} in the end, of {total} tries; 0 lost")
