"""kill -9 and restart under load, with each kind of persistence; resynchronisation; files of
older versions."""

import os
import pathlib
import shutil
import time

import pytest

from support import figures
from support.commands import Lock, details_of, plain
from support.load import LEASE_MS, Load
from support.server import wait_until
from support.stream import digest

DATA = pathlib.Path(__file__).parent / "data"
ROUNDS = int(os.environ.get("DLOCK_CRASH_ROUNDS", 2))
CLIENTS = 20
LOCKS = int(os.environ.get("DLOCK_CRASH_LOCKS", 5000))


def kill_under_load(server, load):
    load.start()
    load.wait_for(LOCKS)
    load.end_by_kill(server)


def kill_after_a_snapshot(server, load):
    load.start()
    load.wait_for(LOCKS // 2)
    server.client().save()
    load.wait_for(LOCKS)
    load.end_by_kill(server)


def stop_under_load(server, load):
    load.start()
    load.wait_for(LOCKS)
    server.stop(is_by_signal=True)
    load.join()


def restarts_under_load(server, end):
    """Several, each as the load of the locks that were answered and those of them lost since."""
    highest = 0
    for i in range(ROUNDS):
        load = Load(server, f"round:{i}", connections=CLIENTS, pipeline=4)
        end(server, load)
        server.start()
        assert not load.refusals
        assert len(set(load.fences)) == len(load.fences) and load.fences[0] > highest
        yield load, load.lost_tail(server.client())
        highest = Lock(server.client(), "next").acquire(f"next:{i}", 1)
        assert highest > load.fences[-1]


def tell(setting, how, rounds):
    taken = sum(len(load.taken) for load, _ in rounds)
    lost = sum(len(lost) for _, lost in rounds)
    figures.tell(f"{setting}: {len(rounds)} times {how}, {taken} locks, {lost} lost, "
                 "0 fences went back")


AOF = ("--appendonly", "yes", "--appendfsync")
RDB = ("--save", "3600 1")


def test_with_appendfsync_always_nothing_acknowledged_is_lost(start_server):
    server = start_server(*AOF, "always")
    rounds = list(restarts_under_load(server, kill_under_load))
    assert not any(lost for _, lost in rounds)
    tell("appendfsync always", "kill -9", rounds)


@pytest.mark.parametrize("fsync", ["everysec", "no"])
def test_otherwise_only_the_newest_can_be_lost_and_no_fence_goes_back(start_server, fsync):
    rounds = list(restarts_under_load(start_server(*AOF, fsync), kill_under_load))
    tell(f"appendfsync {fsync}", "kill -9", rounds)


def test_with_snapshots_only_what_is_younger_is_lost_and_no_fence_goes_back(start_server):
    rounds = list(restarts_under_load(start_server(*RDB), kill_after_a_snapshot))
    assert all(len(lost) < len(load.taken) for load, lost in rounds), "not even the snapshot"
    tell("RDB", "kill -9", rounds)


@pytest.mark.parametrize("setting, options", [
    ("appendfsync always", (*AOF, "always")),
    ("appendfsync everysec", (*AOF, "everysec")),
    ("RDB", RDB),
], ids=["always", "everysec", "rdb"])
def test_a_shutdown_under_load_loses_nothing(start_server, setting, options):
    rounds = list(restarts_under_load(start_server(*options), stop_under_load))
    assert not any(lost for _, lost in rounds)
    tell(setting, "SIGTERM", rounds)


def test_the_last_fence_survives_a_restart_without_a_lock(server, lock):
    """A fence that is minutes ahead stands for a clock that was ahead before the restart."""
    ahead = time.time_ns() // 1000 + 4 * 60 * 1_000_000
    assert lock.acquire("me", 60_000, "FENCE", ahead) == ahead
    lock.client.delete("lock")
    lock.client.save()
    server.restart()
    client = server.client()
    next_fence = Lock(client).acquire("you")
    assert next_fence > ahead


def test_a_server_that_never_used_the_module_leaves_files_that_load_without_it(start_server):
    with_module = start_server()
    with_module.client().set("key", "value")
    with_module.client().save()
    with_module.stop()
    without = start_server(module=None)
    without.stop()
    shutil.copy(with_module.dir / "dump.rdb", without.dir / "dump.rdb")
    without.start()
    assert without.client().get("key") == b"value"


# -- resynchronisation ----------------------------------------------------------------------------


def agree(master, replica):
    wait_until(lambda: digest(master) == digest(replica), "replica to agree")
    for key in master.keys("lock:*"):
        assert Lock(master, key).info()["fence"] == Lock(replica, key).info()["fence"]


def take_many(client, count=200):
    for i in range(count):
        Lock(client, f"lock:{i}").acquire(f"token:{i}", LEASE_MS)


def test_a_partial_resync_carries_what_was_missed(server, start_replica):
    master = server.client()
    replica = start_replica(server).client()
    take_many(master)
    agree(master, replica)
    replica.config_set("replica-priority", 50)
    full_before = master.info("stats")["sync_full"]
    for i in range(5):
        master.execute_command("CLIENT", "KILL", "TYPE", "replica")
        Lock(master, f"lock:{i}").release(f"token:{i}")
        Lock(master, f"lock:{i}").acquire("other", LEASE_MS)
        agree(master, replica)
    assert master.info("stats")["sync_full"] == full_before
    assert master.info("stats")["sync_partial_ok"] >= 1


@pytest.mark.parametrize("load", ["disabled", "swapdb", "on-empty-db"])
def test_a_full_resync_carries_every_lock(server, start_replica, load):
    master = server.client()
    replica = start_replica(server, "--repl-diskless-load", load).client()
    take_many(master)
    agree(master, replica)
    for _ in range(2):
        full_before = master.info("stats")["sync_full"]
        master.execute_command("DEBUG", "CHANGE-REPL-ID")
        master.execute_command("CLIENT", "KILL", "TYPE", "replica")
        Lock(master, "lock:0").extend("token:0", LEASE_MS + 1000)
        wait_until(lambda: master.info("stats")["sync_full"] > full_before, "a full resync")
        agree(master, replica)
    replica.replicaof("NO", "ONE")
    assert Lock(replica, "lock:1").release("token:1") == 1
    assert Lock(replica, "lock:1").acquire("me") > Lock(replica, "lock:199").info()["fence"]


# -- older versions -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3])
def test_a_file_of_each_encoding_version_loads(start_server, version):
    """Each holds an exclusive and a shared lock, as saved by Redis 7.0. There are no files of
    versions 1 and 2: they were never released."""
    server = start_server()
    server.stop()
    shutil.copy(DATA / f"encoding-{version}.rdb", server.dir / "dump.rdb")
    server.start()
    lock = Lock(server.client(), "held")
    info = lock.info()
    assert (info["token"], info["lease"]) == (b"token:held", 600_000)
    assert info["fence"] == 1794896097799367
    assert 500_000 < info["ttl"] <= 600_000
    assert lock.release("token:held") == 1
    details = details_of(plain(server.client(), "DLOCK.INFO", "shared"))
    assert {(holder["token"], holder["fence"]) for holder in details["holders"]} == {
        (b"token:a", 1794896097799584), (b"token:b", 1794896097799701)}
