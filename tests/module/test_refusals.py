"""RELEASE and EXTEND fail only where Redis itself forbids writes, with Redis's own error."""

import os
import subprocess
import threading

import pytest
import redis

from support.commands import Lock, fence_at, stats
from support.server import wait_until
from support.waiting import Waiting, queue_up

EVICTING = ["allkeys-lru", "allkeys-lfu", "allkeys-random"]
HARMLESS = ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"]


def assert_release_and_extend_work(lock, token):
    assert lock.extend(token, 700_000) == 1
    assert lock.release(token) == 1
    assert lock.release(token) == 0


def assert_refused(lock, token, error):
    for call in (lock.acquire, lock.extend, lock.release):
        with pytest.raises(redis.exceptions.RedisError, match=error):
            call(token)


def evict_some(client):
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 2_000_000)
    for i in range(100_000):
        client.set(f"filler:{i}", "x" * 1000, px=600_000)
        if i % 100 == 0 and client.info("stats")["evicted_keys"] > 100:
            break
    client.config_set("maxmemory", 0)
    assert client.info("stats")["evicted_keys"] > 0


def locks_under_eviction(client, policy):
    client.config_set("maxmemory-policy", policy)
    locks = [Lock(client, f"lock:{i}") for i in range(300)]
    fences = [lock.acquire("me", 600_000) for lock in locks]
    evict_some(client)
    return locks, fences


@pytest.mark.parametrize("policy", EVICTING)
def test_under_eviction_a_lock_is_there_or_truly_gone(server, client, policy):
    """Whichever locks are evicted: each answers as what it is, and nothing breaks."""
    locks, fences = locks_under_eviction(client, policy)
    for lock, fence in zip(locks, fences):
        info = lock.info()
        if info is None:
            assert (lock.extend("me"), lock.release("me")) == (0, 0)
            assert lock.acquire("you") > fences[-1]
        else:
            assert info["fence"] == fence
            assert (lock.extend("me"), lock.release("me")) == (1, 1)


@pytest.mark.parametrize("policy", HARMLESS)
def test_a_policy_for_keys_with_a_ttl_evicts_no_lock(server, client, policy):
    locks, fences = locks_under_eviction(client, policy)
    assert [fence_at(client, lock.key) for lock in locks] == fences


def test_too_few_replicas_is_redis_s_own_error(server, lock, start_replica):
    lock.acquire("me")
    lock.client.config_set("min-replicas-max-lag", 60)
    lock.client.config_set("min-replicas-to-write", 1)
    assert_refused(lock, "me", "NOREPLICAS|Not enough good replicas")
    assert lock.info()["token"] == b"me"
    start_replica(server)
    wait_until(lambda: lock.client.info("replication")["min_slaves_good_slaves"] == 1, "a replica")
    assert_release_and_extend_work(lock, "me")


@pytest.mark.parametrize("options", [[], ["SESSION"]], ids=["lease", "session"])
def test_with_too_few_replicas_nobody_is_handed_a_lock_that_ends(server, client, options):
    """The server may be cut off, and the lock another's on the other side."""
    holder = Waiting(server, "holder", lease_ms=600_000 if options else 60_000, options=options)
    fence = holder.answer()
    [brief] = queue_up(server, ["brief"], wait_ms=120_000)
    [patient] = queue_up(server, ["patient"])
    client.config_set("min-replicas-to-write", 1)
    holder.close()
    for _ in range(3):
        server.clock.advance(41)
    assert brief.answer() is None
    assert not patient.is_answered()
    assert stats(client)["granted"] == 1
    client.config_set("min-replicas-to-write", 0)
    assert patient.answer() > fence


def test_a_busy_script_is_redis_s_own_error(server, lock):
    lock.acquire("me")
    lock.client.config_set("busy-reply-threshold", 1)

    def loop():
        try:
            server.connect().eval("while true do end", 0)
        except redis.exceptions.RedisError:
            pass  # killed

    looping = threading.Thread(target=loop)
    looping.start()
    try:
        impatient = Lock(server.client(socket_timeout=10))
        wait_until(lambda: is_busy(impatient), "the script to be called busy")
        assert_refused(impatient, "me", "BUSY|busy running a script")
    finally:
        server.client().execute_command("SCRIPT", "KILL")
        looping.join()
    assert_release_and_extend_work(lock, "me")


def is_busy(lock):
    try:
        lock.info()
        return False
    except redis.exceptions.RedisError as error:
        return "usy" in str(error) or "BUSY" in str(error)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB, if we may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def assert_refused_until(server, lock, field, mend):
    """The disk is full, by this field of INFO, and Redis is set to stop writes then: MISCONF."""
    def wait_for(status):
        wait_until(lambda: lock.client.info("persistence")[field] == status, status)
    before = lock.info()["fence"]
    wait_for("err")
    assert_refused(lock, "me", "MISCONF")
    assert (lock.info()["token"], lock.info()["fence"]) == (b"me", before)
    mend()
    wait_for("ok")
    assert_release_and_extend_work(lock, "me")


def test_a_full_disk_is_redis_s_own_error(start_server, small_disk):
    """A snapshot failed."""
    server = start_server("--stop-writes-on-bgsave-error", "yes")
    client = server.client()
    lock = Lock(client)
    lock.acquire("me", 600_000)
    client.config_set("save", "3600 1")
    client.config_set("dir", str(small_disk))
    client.set("filler", os.urandom(3_000_000))
    client.bgsave()

    def mend():
        client.config_set("dir", str(server.dir))
        client.bgsave()
    assert_refused_until(server, lock, "rdb_last_bgsave_status", mend)
    client.config_set("save", "")


def test_a_full_disk_under_the_append_only_file_is_redis_s_own_error(start_server, small_disk):
    server = start_server("--dir", small_disk, "--appendonly", "yes", "--appendfsync", "everysec")
    lock = Lock(server.client())
    fence = lock.acquire("me", 600_000)
    holder = Waiting(server, "holder", key="awaited", options=["SESSION"])
    [waiter] = queue_up(server, ["waiter"], key="awaited")
    assert holder.answer() > fence
    lock.client.set("filler", os.urandom(3_000_000))

    def mend():
        holder.close()
        assert not waiter.is_answered()
        subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    assert_refused_until(server, lock, "aof_last_write_status", mend)
    assert waiter.answer() > fence
    assert lock.acquire("you", 600_000) > fence
    server.kill()
    server.start()
    assert Lock(server.client()).info()["token"] == b"you"
