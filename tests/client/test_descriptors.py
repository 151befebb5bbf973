"""What a client costs the process: at most two descriptors per server, however many waits and kept
locks there are, and a third one if replicas have to acknowledge; a few for itself; one thread; and
memory that does not grow."""

import os
import resource
import subprocess
import threading

import pytest

from support.libdlock import Background, Status
from support.server import ROOT, stopped, wait_until
from support.waiting import wait_for_waiters

BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")
OF_THE_LOOP = 4  # to poll, to be woken at a time, and to be woken by others, twice
MANY = 30
GROWTH_KB = 1024
LEASE_MS = 600_000
WAIT_MS = 60_000


def run_cycles(servers, cycles, renew_every_ms=0, descriptors=1024, io_timeout_ms=20_000):
    """The two lines of the program, each of memory in KB, descriptors, threads, failures; and its
    complaints."""
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    urls = [f"redis://127.0.0.1:{server.port}?io_timeout_ms={io_timeout_ms}" for server in servers]
    done = subprocess.run(
        [BUILD / "tests/client/cycles", str(cycles), str(renew_every_ms), *urls],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, preexec_fn=limit,
        env={**os.environ, "LD_PRELOAD": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    return *(tuple(map(int, line.split())) for line in done.stdout.splitlines()), done.stderr


def check_cycles(servers, cycles, growth_kb=GROWTH_KB, failures_max=0, **options):
    (warm_kb, *_), (end_kb, descriptors, threads, failures), complaints = run_cycles(
        servers, cycles, **options)
    assert failures <= failures_max, complaints
    assert descriptors <= 2 * len(servers) + OF_THE_LOOP
    if "sanitize" in str(BUILD):  # has memory and threads of its own
        return
    assert threads <= 2  # the program's, and the client's
    assert end_kb - warm_kb < growth_kb


@pytest.mark.parametrize("renew_every_ms", [0, 1000])
def test_one_server(server, renew_every_ms):
    check_cycles([server], 5000, renew_every_ms=renew_every_ms)


def test_five_servers_with_few_descriptors_to_be_had(servers):
    check_cycles(servers, 1500, descriptors=64)


def test_five_servers_two_of_which_are_silent(servers):
    """Some commands for them wait in memory until they answer, or are given up."""
    with stopped(servers[3]), stopped(servers[4]):
        check_cycles(servers, 1500, descriptors=64, growth_kb=4 * GROWTH_KB, io_timeout_ms=1000,
                     failures_max=3)  # replies may be late
    wait_until(lambda: all(server.observer.dbsize() == 0 for server in servers),
               "that nothing is left of it")


def test_five_servers_two_of_which_are_dead(servers):
    for server in servers[3:]:
        server.kill()
    check_cycles(servers, 1500, descriptors=64)


# -- waits and sessions ---------------------------------------------------------------------------


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


def library_threads():
    """Those that Python does not know."""
    return len(os.listdir("/proc/self/task")) - threading.active_count()


@pytest.fixture
def counted(connect, server):
    """counted(): a client that has done something; the descriptors without it; and the threads."""
    server.observer.ping()
    before, threads = open_descriptors(), library_threads()
    client = connect(server)
    client.hold("first")
    assert open_descriptors() <= before + 1 + OF_THE_LOOP
    return client, before, threads


def test_one_for_all_waits_together(counted, server):
    """The connection of the session."""
    client, before, threads = counted
    server.observer.execute_command("DLOCK.ACQUIRE", "lock", "somebody", "PX", LEASE_MS)
    locks = [client.lock() for _ in range(MANY)]
    waiting = [Background(lock.acquire, WAIT_MS) for lock in locks]
    wait_for_waiters(server.observer, MANY)
    assert open_descriptors() <= before + 2 + OF_THE_LOOP
    for lock in locks:
        lock.cancel()
    assert {call.result() for call in waiting} == {Status.CANCELED}
    assert open_descriptors() <= before + 2 + OF_THE_LOOP
    wait_until(lambda: library_threads() <= threads + 1, "the threads of this test to be gone")


@pytest.mark.parametrize("kept", [{"session": True}, {"renew_every_ms": 20}])
def test_one_for_all_kept_locks_together(counted, kept):
    client, before, threads = counted
    locks = [client.lock(f"lock {i}", lease_ms=LEASE_MS, **kept) for i in range(MANY)]
    for lock in locks:
        assert lock.acquire() == Status.OK
    wait_until(lambda: client.stats().renewed >= MANY, "renewals")
    assert open_descriptors() <= before + 2 + OF_THE_LOOP
    assert library_threads() <= threads + 1


def test_one_for_all_acknowledgements_together(counted, server, start_replica):
    client, before, _ = counted
    replica = start_replica(server)
    during = open_descriptors() - before  # of the replica and its observer, and of the client
    locks = [client.lock(f"lock {i}", lease_ms=LEASE_MS, min_replicas=1,
                         replica_timeout_ms=WAIT_MS) for i in range(MANY)]
    with stopped(replica):
        taking = [Background(lock.acquire, WAIT_MS) for lock in locks]
        wait_until(lambda: server.observer.dbsize() == MANY + 1, "the grants")
        wait_until(lambda: server.observer.info("clients")["blocked_clients"] == 1, "a WAIT")
        assert open_descriptors() <= before + during + 2
    assert {call.result() for call in taking} == {Status.OK}
    assert open_descriptors() <= before + during + 2
    assert server.observer.info("commandstats")["cmdstat_wait"]["calls"] < MANY / 2


def test_waits_again_and_again_take_no_more(counted, server):
    client, before, _ = counted
    server.observer.execute_command("DLOCK.ACQUIRE", "lock", "somebody", "PX", LEASE_MS)
    lock = client.lock()
    for i in range(100):
        if i % 2 == 0:
            assert lock.acquire(10) == Status.TIMEOUT
        else:
            waiting = Background(lock.acquire, WAIT_MS)
            wait_for_waiters(server.observer, 1)
            lock.cancel()
            assert waiting.result() == Status.CANCELED
            lock.uncancel()
    assert open_descriptors() <= before + 2 + OF_THE_LOOP


def test_the_end_of_a_client_leaves_nothing(connect, server):
    server.observer.ping()
    before, threads = open_descriptors(), library_threads()
    for _ in range(20):
        client = connect(server)
        client.hold(session=True, lease_ms=LEASE_MS, renew_every_ms=1000, wait_ms=WAIT_MS)
        client.free()
        client.free = lambda: None
    assert open_descriptors() == before and library_threads() == threads


# -- those who wait, and others -------------------------------------------------------------------


def test_a_hundred_who_wait_for_one_lock_do_not_hold_up_another_name(connect, server):
    client = connect(server)
    server.observer.execute_command("DLOCK.ACQUIRE", "hot", "somebody", "PX", LEASE_MS)
    locks = [client.lock("hot", lease_ms=LEASE_MS) for _ in range(100)]
    waiting = [Background(lock.acquire, WAIT_MS) for lock in locks]
    wait_for_waiters(server.observer, 100)
    other = client.lock("other")
    statuses = []
    for _ in range(300):
        statuses.append(other.acquire(WAIT_MS))
        statuses.append(other.release())
    assert statuses == [Status.OK] * 600
    for lock in locks:
        lock.cancel()
    assert {call.result() for call in waiting} == {Status.CANCELED}
    wait_for_waiters(server.observer, 0)
    assert server.observer.execute_command("DLOCK.RELEASE", "hot", "somebody") == 1
    wait_until(lambda: not server.observer.exists("hot"), "that nobody has it")
