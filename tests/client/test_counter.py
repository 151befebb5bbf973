"""The counter proof: updates that would get lost without the lock do not get lost with it."""

import subprocess

import pytest

from support.server import ROOT, wait_until

PROCESSES, THREADS, TRIES = 3, 4, 400
PROGRAM = ROOT / "build/tests/client/counter"


@pytest.fixture
def start_workers():
    """start_workers(lock_server, counter_server): the processes."""
    workers = []

    def start(locks, counters):
        for i in range(PROCESSES):
            workers.append(subprocess.Popen(
                [PROGRAM, f"redis://127.0.0.1:{locks.port}", str(counters.port), str(THREADS),
                 str(TRIES), f"done:{i}"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return workers

    yield start
    for worker in workers:
        worker.kill()
        worker.communicate()


def done(counters):
    return sum(int(counters.get(f"done:{i}") or 0) for i in range(PROCESSES))


def test_no_update_is_lost(start_server, start_workers):
    locks, counters = start_server(), start_server(module=None)
    workers = start_workers(locks, counters)
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES, outputs
    client = counters.client()
    assert int(client.get("counter")) == done(client) == PROCESSES * THREADS * TRIES


def test_no_update_is_lost_when_a_process_is_killed_and_the_server_restarts(
        start_server, start_workers):
    locks = start_server("--appendonly", "yes", "--appendfsync", "always")
    counters = start_server(module=None)
    workers = start_workers(locks, counters)
    client = counters.client()
    total = PROCESSES * THREADS * TRIES
    wait_until(lambda: done(client) > total // 5, "a fifth of the work", timeout=120)
    workers[0].kill()
    wait_until(lambda: done(client) > total * 2 // 5, "two fifths of the work", timeout=120)
    locks.kill()
    locks.start(locks.port)
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers[1:]] == [0, 0], outputs
    assert int(client.get("counter")) == done(client)
    assert done(client) > total * 3 // 5
    print(f"{done(client)} updates, none lost; the two that lived: {outputs[1:]}")
