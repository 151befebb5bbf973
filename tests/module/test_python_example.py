"""module/examples/dlock_lock.py does what its first lines say."""

import importlib.util
import threading
import time

import pytest
import redis

from support.commands import fence_at
from support.server import ROOT, stopped, wait_until

SPEC = importlib.util.spec_from_file_location("dlock_lock", ROOT / "module/examples/dlock_lock.py")
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)


@pytest.fixture
def make_lock(server):
    """make_lock(**options): each has a client of its own, which loses its patience soon."""

    def make(socket_timeout=1.0, **options):
        return example.Lock(server.client(socket_timeout=socket_timeout), "stock", **options)

    return make


def test_one_has_it_and_the_other_is_told_so(make_lock, lock):
    ours, theirs = make_lock(), make_lock()
    assert ours.acquire() and ours.fence > 0
    assert not theirs.acquire() and theirs.fence == 0
    assert not theirs.release()
    assert 8 < ours.remaining() <= 10
    assert ours.release() and not ours.release()
    assert theirs.acquire() and theirs.fence > ours.fence


def test_a_wait_may_be_longer_than_the_timeout_of_the_sockets(make_lock, server):
    ours, theirs = make_lock(lease=60), make_lock(socket_timeout=0.5, wait=30, lease=5)
    assert ours.acquire()
    wanted = threading.Thread(target=theirs.acquire)
    wanted.start()
    wait_until(lambda: server.observer.info("dlock")["dlock_waiters"] == 1, "a waiter")
    time.sleep(1)
    assert ours.release()
    wanted.join()
    assert theirs.fence > ours.fence
    assert theirs.remaining() > 4, "the wait is not taken from the lease"


def test_a_wait_ends_with_a_no(make_lock):
    assert make_lock().acquire()
    assert not make_lock(wait=0.05).acquire()


def test_with_gives_it_back_on_every_way_out(make_lock, server):
    with pytest.raises(ZeroDivisionError), make_lock() as held:
        assert fence_at(server.observer, "stock") == held.fence
        1 / 0
    assert server.observer.dbsize() == 0


def test_with_says_busy(make_lock):
    with make_lock(), pytest.raises(example.Busy), make_lock():
        pass


def test_with_renews_it(make_lock, server):
    with make_lock(lease=1.5) as held:
        time.sleep(3)
        assert held.remaining() > 0 and not held.lost.is_set()
        assert not make_lock().acquire()


def test_with_tells_that_it_is_lost(make_lock, server):
    with make_lock(lease=0.3) as held:
        server.observer.delete("stock")
        assert held.lost.wait(20)


def test_with_tells_that_it_is_lost_when_nobody_answers(make_lock, server):
    with make_lock(lease=0.3, socket_timeout=0.1) as held, stopped(server):
        assert held.lost.wait(20)
        assert held.remaining() == 0


def test_a_server_that_is_away_is_not_busy(make_lock, server):
    ours = make_lock(socket_timeout=0.1)
    with stopped(server), pytest.raises(redis.TimeoutError):
        ours.acquire()
    other = make_lock()
    server.stop()
    with pytest.raises(redis.ConnectionError):
        other.acquire()


def test_readers_share_it_and_keep_a_writer_out(make_lock):
    one, other, writer = make_lock(shared=True), make_lock(shared=True), make_lock()
    assert one.acquire() and other.acquire()
    assert not writer.acquire()
    assert one.release() and other.release()
    assert writer.acquire() and not one.acquire()


def test_slots_are_for_so_many_at_a_time(make_lock):
    locks = [make_lock(slots=2) for _ in range(3)]
    assert [each.acquire() for each in locks] == [True, True, False]
    with pytest.raises(example.Busy), make_lock(slots=2):
        pass
    assert locks[0].release()
    with locks[2] as held:
        assert held.renew()


def test_a_guarded_write_is_made_by_the_holder(make_lock, server):
    with make_lock() as held:
        assert held.guarded("SET", "items", 41) == b"OK"
        assert held.guarded("INCR", "items") == 42
    assert server.observer.get("items") == b"42"


def test_a_guarded_write_without_the_lock_is_refused(make_lock, server):
    ours = make_lock()
    assert ours.acquire()
    server.observer.delete("stock")
    with pytest.raises(example.Lost):
        ours.guarded("SET", "items", 41)
    assert ours.lost.is_set() and not server.observer.exists("items")


def test_an_error_of_a_guarded_command_is_no_loss(make_lock, server):
    ours = make_lock()
    assert ours.acquire()
    server.observer.rpush("items", "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        ours.guarded("INCR", "items")
    assert not ours.lost.is_set() and ours.release()
