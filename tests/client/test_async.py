"""Calls that are started, and end by done() in a dispatch; with threads of the library and
without."""

import ctypes
import os
import signal
import subprocess
import threading
import time

import pytest

from support.commands import Lock as Commands
from support.fake_server import SILENCE
from support.figures import tell
from support.libdlock import (
    DONE_FN, FOREVER, Event, State, Status, Told, last_error, lib)
from support.server import ROOT, stopped, wait_until

BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")
LEASE_MS = 60_000
SHORT_MS = 400
WAIT_MS = 20_000  # a grant that comes after the end of a short lease is asked for again


@pytest.fixture(params=[False, True], ids=["threads", "no_threads"])
def no_threads(request):
    return request.param


@pytest.fixture
def by_hand(connect, server, no_threads):
    """A client that the test dispatches."""
    return connect(server, form="by hand", no_threads=no_threads)


@pytest.fixture
def seen(client):
    return lambda name="lock": Commands(client, name).info()


def run(client, started):
    """Dispatches until the call is over: its result."""
    assert started.status == Status.OK
    client.dispatch_until(lambda: started.results)
    return started.result


def acquire(client, lock, wait_ms=0):
    return run(client, lock.start("acquire", wait_ms))


def hold(connect, server, name="lock", **options):
    """Another client has the lock."""
    lock = connect(server, form="blocking").hold(name, lease_ms=LEASE_MS, **options)
    return lock


def start_waiting(client, lock, seen, waiters=1):
    """An acquire that waits in the queue of the server."""
    started = lock.start("acquire", FOREVER)

    wait_until(lambda: client.dispatch() == 0 and seen()["waiters"] == waiters, "a waiter")
    return started


# -- one call


def test_an_acquire_an_extension_and_a_release(by_hand, seen):
    lock = by_hand.lock()
    assert acquire(by_hand, lock) == Status.OK
    assert seen()["token"] == lock.token and seen()["fence"] == lock.fence
    assert run(by_hand, lock.start("extend", LEASE_MS)) == Status.OK
    assert seen()["ttl"] > LEASE_MS / 2
    assert run(by_hand, lock.start("release")) == Status.OK
    assert seen() is None and lock.state == State.FREE


def test_done_is_called_by_a_dispatch_and_by_nothing_else(by_hand, seen):
    lock, threads = by_hand.lock(), []
    assert by_hand.ping() == Status.OK  # connected: the request leaves at once
    started = lock.start("acquire", 0, then=lambda _: threads.append(threading.get_ident()))
    wait_until(seen, "a grant")
    assert by_hand.is_readable(20_000)
    assert by_hand.ping() == Status.OK  # blocks, and reads replies
    assert started.results == []
    by_hand.dispatch_until(lambda: started.results)
    assert threads == [threading.get_ident()]


def test_a_call_counts_as_one_completion(by_hand):
    started, count = by_hand.lock().start("acquire", 0), 0
    while not started.results:
        assert by_hand.is_readable(20_000)
        count += by_hand.dispatch()
    assert count == 1
    assert by_hand.dispatch() == 0
    assert started.result == Status.OK


def test_the_descriptor_is_readable_until_a_completion_is_dispatched(by_hand):
    lock = by_hand.lock()
    assert lock.start("release").status == Status.OK  # answered at once: it is not held
    assert by_hand.is_readable() and by_hand.is_readable()
    assert by_hand.dispatch() == 1
    assert not by_hand.is_readable()


def test_an_answer_without_a_request_comes_by_done_too(by_hand):
    lock = by_hand.lock()
    release = lock.start("release")
    assert release.results == []
    assert run(by_hand, release) == Status.NOT_HELD
    assert run(by_hand, lock.start("extend", 0)) == Status.NOT_HELD
    assert acquire(by_hand, lock) == Status.OK
    assert acquire(by_hand, lock) == Status.OK  # once more: no request
    assert run(by_hand, lock.start("release")) == Status.OK
    assert lock.state == State.HELD
    assert run(by_hand, lock.start("release")) == Status.OK
    assert lock.state == State.FREE


def test_a_mistake_of_the_caller_starts_nothing(by_hand):
    lock = by_hand.lock()
    assert lock.start("acquire", -2).status == Status.INVALID
    assert lib.dlock_acquire_start(lock.handle, 0, DONE_FN(), None) == Status.INVALID
    assert acquire(by_hand, lock) == Status.OK
    assert lock.start("extend", 5).status == Status.INVALID
    assert by_hand.dispatch() == 0


def test_one_call_of_a_lock_at_a_time(by_hand, connect, server, seen):
    hold(connect, server)
    lock = by_hand.lock()
    started = start_waiting(by_hand, lock, seen)
    for name, *arguments in [("acquire", 0), ("extend", 0), ("release",)]:
        assert lock.start(name, *arguments).status == Status.INVALID
        assert getattr(lock, name)(*arguments) == Status.INVALID
    assert "under way" in last_error()
    lock.cancel()
    assert run(by_hand, started) == Status.CANCELED


def test_a_busy_lock_is_busy(by_hand, connect, server):
    hold(connect, server)
    assert acquire(by_hand, by_hand.lock()) == Status.BUSY


def test_a_wait_ends_by_itself(by_hand, connect, server):
    hold(connect, server)
    begin = time.monotonic()
    assert acquire(by_hand, by_hand.lock(), 300) == Status.TIMEOUT
    assert 0.29 < time.monotonic() - begin < 20


def test_a_server_that_is_gone_is_unreachable(by_hand, server):
    lock = by_hand.lock()
    server.kill()
    assert acquire(by_hand, lock) == Status.UNREACHABLE
    assert "refused" in lock.error


def test_a_server_that_does_not_answer_leaves_doubt(connect, fake_server, no_threads):
    dlock = connect(fake_server(lambda *_: SILENCE), form="by hand", no_threads=no_threads,
                    io_timeout_ms=1000)
    assert acquire(dlock, dlock.lock()) == Status.IN_DOUBT


# -- what done() may do


def test_done_may_start_the_next_call(by_hand, seen):
    lock, results = by_hand.lock(), []

    def release(status):
        results.append(status)
        results.append(lock.start("release", then=results.append))

    lock.start("acquire", 0, then=release)
    by_hand.dispatch_until(lambda: len(results) == 3)
    assert results[0] == results[2] == Status.OK
    assert seen() is None


def test_done_may_free_the_lock(by_hand, seen):
    lock = by_hand.lock()
    by_hand.locks.remove(lock)
    started = lock.start("acquire", 0, then=lambda _: lock.free())
    assert run(by_hand, started) == Status.OK
    assert seen() is None


def test_done_may_free_another_lock_that_is_to_be_told(by_hand):
    locks = [by_hand.lock(f"name {i}") for i in range(2)]
    calls = [None, None]

    def free_other(which):
        def then(status):
            other = locks[1 - which]
            if status == Status.NOT_HELD and other in by_hand.locks:
                by_hand.locks.remove(other)
                other.free()
        return then

    for i, lock in enumerate(locks):
        calls[i] = lock.start("release", then=free_other(i))  # both are ready at once
    assert by_hand.dispatch() == 1
    assert calls[0].result == Status.NOT_HELD
    assert calls[1].result == Status.CANCELED


def test_done_may_call_blocking_functions(by_hand, seen):
    lock, other, results = by_hand.lock(), by_hand.lock("other"), []
    started = lock.start("acquire", 0,
                         then=lambda _: results.extend([lock.release(), other.acquire()]))
    assert run(by_hand, started) == Status.OK
    assert results == [Status.OK, Status.OK]
    assert seen() is None and seen("other")


def test_a_dispatch_within_done_does_nothing(by_hand):
    first, second = by_hand.lock(), by_hand.lock("other")
    nested = []
    started = first.start("release", then=lambda _: nested.append(by_hand.dispatch()))
    behind = second.start("release")
    assert by_hand.dispatch() == 2
    assert nested == [0]
    assert started.result == behind.result == Status.NOT_HELD


def test_a_chain_of_calls_that_are_answered_at_once_does_not_keep_a_dispatch(by_hand):
    lock, count = by_hand.lock(), []

    def again(_):
        count.append(lock.start("release", then=again if len(count) < 99 else None))

    lock.start("release", then=again)
    for expected in range(1, 100):
        assert by_hand.is_readable() and by_hand.dispatch() == 1
        assert len(count) == expected


# -- cancel


def test_a_canceled_wait_ends_and_leaves_the_queue(by_hand, connect, server, seen):
    hold(connect, server)
    lock = by_hand.lock()
    started = start_waiting(by_hand, lock, seen)
    lock.cancel()
    assert run(by_hand, started) == Status.CANCELED
    wait_until(lambda: by_hand.dispatch() == 0 and seen()["waiters"] == 0, "an empty queue")


def test_a_cancel_of_one_wait_leaves_the_others(by_hand, connect, server, seen):
    holder = hold(connect, server)
    locks = [by_hand.lock() for _ in range(3)]
    calls = [start_waiting(by_hand, lock, seen, i + 1) for i, lock in enumerate(locks)]
    locks[1].cancel()
    assert run(by_hand, calls[1]) == Status.CANCELED
    assert not calls[0].results and not calls[2].results
    holder.release()
    assert run(by_hand, calls[0]) == Status.OK
    assert not calls[2].results


# -- the end of a handle


def free(client, lock):
    client.locks.remove(lock)
    lock.free()


def test_a_lock_is_freed_while_it_waits(by_hand, connect, server, seen):
    hold(connect, server)
    lock = by_hand.lock()
    started = start_waiting(by_hand, lock, seen)
    free(by_hand, lock)
    assert started.result == Status.CANCELED
    wait_until(lambda: by_hand.dispatch() == 0 and seen()["waiters"] == 0, "an empty queue")
    assert started.result == Status.CANCELED


def test_a_lock_is_freed_with_a_grant_that_nobody_was_told_of(by_hand, seen):
    lock = by_hand.lock(lease_ms=LEASE_MS)
    assert by_hand.ping() == Status.OK  # connected: the request leaves at once
    started = lock.start("acquire", 0)
    wait_until(seen, "a grant")
    free(by_hand, lock)
    assert started.result == Status.CANCELED
    wait_until(lambda: by_hand.dispatch() == 0 and seen() is None, "the lock given back")


def test_a_lock_is_freed_with_an_answer_that_nobody_was_told_of(by_hand):
    lock = by_hand.lock()
    started = lock.start("release")
    free(by_hand, lock)
    assert started.result == Status.CANCELED
    assert by_hand.dispatch() == 0


def test_a_release_under_way_goes_on_when_the_lock_is_freed(by_hand, server, seen):
    lock = by_hand.lock(lease_ms=LEASE_MS)
    assert acquire(by_hand, lock) == Status.OK
    with stopped(server):
        started = lock.start("release")
        begin = time.monotonic()
        free(by_hand, lock)  # does not wait
        assert time.monotonic() - begin < 10
        assert started.result == Status.CANCELED
    wait_until(lambda: by_hand.dispatch() == 0 and seen() is None, "the lock given back")


def test_a_lock_is_freed_while_an_extension_is_under_way(connect, server, no_threads, seen):
    dlock = connect(server, form="by hand", no_threads=no_threads)
    lock = dlock.lock(lease_ms=LEASE_MS)
    assert acquire(dlock, lock) == Status.OK
    started = lock.start("extend", 0)
    free(dlock, lock)
    assert started.result == Status.CANCELED
    assert seen() is None


def test_a_lock_is_freed_while_a_guarded_command_is_under_way(by_hand, server, client):
    lock = by_hand.lock(lease_ms=LEASE_MS)
    assert acquire(by_hand, lock) == Status.OK
    words = [b"INCR", b"{lock}counter"]
    argv = (ctypes.c_char_p * len(words))(*words)
    with stopped(server):
        started = lock.start("guarded", len(words), argv, None, None)
        assert started.status == Status.OK
        continue_soon = threading.Timer(0.2, os.kill, (server.pid, signal.SIGCONT))
        continue_soon.start()
        free(by_hand, lock)  # releases, so it waits for the server
    continue_soon.join()
    assert started.result == Status.CANCELED
    assert client.exists("lock") == 0


# -- together with others


def test_blocking_and_asynchronous_calls_of_one_client(by_hand, connect, server, seen):
    holder = hold(connect, server)
    waiting = by_hand.lock()
    started = start_waiting(by_hand, waiting, seen)
    for _ in range(20):
        other = by_hand.hold("other")
        assert other.release() == Status.OK
    assert started.results == []
    holder.release()
    assert run(by_hand, started) == Status.OK


def test_a_blocking_call_waits_for_what_an_asynchronous_one_holds(by_hand):
    first, second = by_hand.lock(), by_hand.lock()
    assert acquire(by_hand, first) == Status.OK
    assert second.acquire(50) == Status.TIMEOUT
    assert run(by_hand, first.start("release")) == Status.OK
    assert second.acquire(20_000) == Status.OK


def test_waits_of_one_process_for_a_hot_name_are_one_competitor(by_hand, connect, server, seen):
    holder = hold(connect, server)
    by_hand.hotspot_add()
    locks = [by_hand.lock() for _ in range(10)]
    order, calls = [], []

    def release(i):
        def then(status):
            assert status == Status.OK
            order.append(i)
            calls.append(locks[i].start("release"))
        return then

    calls += [lock.start("acquire", FOREVER, then=release(i)) for i, lock in enumerate(locks)]
    wait_until(lambda: by_hand.dispatch() == 0 and seen()["waiters"] > 0, "a waiter")
    assert seen()["waiters"] == 1
    assert by_hand.stats().waiting == 9
    holder.release()
    by_hand.dispatch_until(lambda: len(order) == 10)
    assert order == list(range(10))
    by_hand.dispatch_until(lambda: all(call.results for call in calls))


def test_a_lock_is_handed_on_between_asynchronous_calls(connect, server, no_threads):
    dlock = connect(server, form="by hand", no_threads=no_threads, hotspot_hand_on=100)
    dlock.hotspot_add()
    locks, calls, order = [dlock.lock() for _ in range(5)], [], []

    def release(lock):
        def then(status):
            order.append(status)
            calls.append(lock.start("release"))
        return then

    calls += [lock.start("acquire", FOREVER, then=release(lock)) for lock in locks]
    dlock.dispatch_until(lambda: len(calls) == 10 and all(call.results for call in calls))
    assert order == [Status.OK] * 5
    assert dlock.stats().hand_ons == 4
    assert dlock.stats().commands == 2


# -- without threads


@pytest.fixture
def threadless(connect, server):
    """threadless(**options): a client that may start no thread."""
    return lambda **options: connect(server, form="by hand", no_threads=True, **options)


def thread_count():
    return len(os.listdir("/proc/self/task"))


def test_a_client_without_threads_starts_none(threadless):
    before = thread_count()
    dlock = threadless(on_event=Told())
    locks = [dlock.lock(f"name {i}", lease_ms=LEASE_MS, renew_every_ms=100, session=i % 2 == 0)
             for i in range(10)]
    for lock in locks:
        assert acquire(dlock, lock) == Status.OK
    dlock.dispatch_until(lambda: dlock.stats().renewed >= 20)
    assert thread_count() == before


def test_dispatches_renew(threadless, server, seen):
    """For longer than the lease, by the server's clock."""
    dlock = threadless()
    lock = dlock.lock(lease_ms=LEASE_MS, renew_every_ms=100)
    assert acquire(dlock, lock) == Status.OK
    for _ in range(4):
        enough = dlock.stats().renewed + 2
        dlock.dispatch_until(lambda: dlock.stats().renewed >= enough)
        server.clock.advance(LEASE_MS / 3000)
    assert lock.state == State.HELD and seen()["token"] == lock.token


def test_a_program_that_does_not_dispatch_loses_its_lock_and_is_told_later(threadless):
    told = Told()
    dlock = threadless(on_event=told)
    lock = dlock.lock(lease_ms=SHORT_MS, renew_every_ms=SHORT_MS // 4)
    assert acquire(dlock, lock, WAIT_MS) == Status.OK
    wait_until(lambda: lock.state == State.LOST, "the end of the lease")
    assert Event.LOST not in told.events()
    assert dlock.is_readable()
    dlock.dispatch_until(lambda: told.find(Event.LOST))


def test_a_loss_is_told_by_a_dispatch_in_its_thread(threadless, client):
    threads = []
    told = Told(lambda event: threads.append(threading.get_ident()))
    dlock = threadless(on_event=told)
    lock = dlock.lock(lease_ms=LEASE_MS, renew_every_ms=50)
    assert acquire(dlock, lock) == Status.OK
    client.delete("lock")
    dlock.dispatch_until(lambda: told.find(Event.LOST))
    assert set(threads) == {threading.get_ident()}
    assert run(dlock, lock.start("release")) == Status.LOST


def test_a_lock_may_be_released_from_where_a_loss_is_told(threadless, client):
    results = []
    told = Told(lambda event: event == Event.LOST and results.append(lock.release()))
    dlock = threadless(on_event=told)
    lock = dlock.lock(lease_ms=LEASE_MS, renew_every_ms=50)
    assert acquire(dlock, lock) == Status.OK
    client.delete("lock")
    dlock.dispatch_until(lambda: results)
    assert results == [Status.LOST]


def test_a_lock_may_be_released_from_where_its_grant_is_told(connect, server, no_threads):
    def release(event):
        if event == Event.ACQUIRED and not releases:
            releases.append(lock.start("release"))

    releases, told = [], Told(release)
    dlock = connect(server, form="by hand", no_threads=no_threads, on_event=told)
    lock = dlock.lock(lease_ms=LEASE_MS)
    assert acquire(dlock, lock) == Status.OK
    assert run(dlock, releases[0]) == Status.OK
    assert run(dlock, lock.start("acquire_for", WAIT_MS, SHORT_MS)) == Status.OK
    with stopped(server):  # which cannot tell of the loss either
        wait_until(lambda: dlock.dispatch() == 0 and told.find(Event.LOST), "a loss that is told")


def test_dispatches_withdraw_what_is_in_doubt(threadless, client, server):
    dlock = threadless(io_timeout_ms=100)
    wait_until(lambda: dlock.ping() == Status.OK, "a reply in time")
    lock = dlock.lock(lease_ms=LEASE_MS)
    with stopped(server):
        assert acquire(dlock, lock) == Status.IN_DOUBT
    wait_until(lambda: dlock.dispatch() == 0 and client.exists("lock") == 0 and
               client.info("commandstats").get("cmdstat_dlock.release"), "the withdrawal")


def test_a_host_name_is_looked_up_without_a_thread(connect, server):
    before = thread_count()
    dlock = connect(f"redis://localhost:{server.port}", form="by hand", no_threads=True)
    lock = dlock.lock()
    assert acquire(dlock, lock) == Status.OK
    assert thread_count() == before


def test_a_log_file_needs_a_thread(connect):
    with pytest.raises(ValueError, match="no_threads: access_log_dir needs a thread"):
        connect("redis://localhost", form="by hand", no_threads=True, access_log_dir=".")


def test_blocking_calls_work_without_threads(threadless):
    dlock = threadless()
    lock, other = dlock.hold(), dlock.lock()
    assert other.acquire(100) == Status.TIMEOUT
    assert lock.extend() == Status.OK
    assert lock.release() == Status.OK


# -- many at once


def start_many(server, names, pending, where):
    return subprocess.Popen([BUILD / "tests/client/many", f"redis://127.0.0.1:{server.port}",
                             str(names), str(pending), where],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("names, pending, where", [(1000, 10, "here"), (10, 1000, "there")])
def test_ten_thousand_acquisitions_in_one_thread_are_served_in_order(start_server, names, pending,
                                                                     where):
    """By two processes that want the same names, with at most two connections each."""
    server = start_server("--maxclients", "10000")
    others = len(server.observer.client_list())
    processes = [start_many(server, names, pending, where) for _ in range(2)]
    for process in processes:
        each_bytes = int(process.stdout.readline().removeprefix("bytes "))
        assert process.stdout.readline() == "waiting\n"
        tell(f"an acquisition under way takes {each_bytes} bytes")
        if "sanitize" not in str(BUILD):
            assert each_bytes < 1024
    assert len(server.observer.client_list()) <= others + 2 * len(processes)
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate(timeout=300)[0] == f"served {names * pending}\n"
        assert process.returncode == 0
