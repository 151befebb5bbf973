"""The local layer: threads of one process compete among themselves first."""

import ctypes
import statistics
import threading

import pytest

from support.commands import Lock as Commands
from support.commands import served
from support.fake_server import SILENCE, granting
from support.libdlock import SPIN, Background, State, Status
from support.program import start_python
from support.server import stopped, wait_until
from support.waiting import wait_for_waiters


@pytest.fixture
def seen(client):
    return lambda name="lock": Commands(client, name).info()


@pytest.fixture
def calls(client):
    """calls(command): how often the server was asked."""
    return lambda command="acquire": served(client, command)


@pytest.fixture
def hot(connect, server):
    """hot(hand_on): a client that hands the lock on so often."""
    def make(hand_on, **options):
        dlock = connect(server, hotspot_hand_on=hand_on, **options)
        dlock.hotspot_add()
        return dlock
    return make


def take_turns(dlock, threads, rounds, wait_ms=60_000, **options):
    """Each thread takes the lock so many times. The statuses, and the fences in order."""
    statuses, fences, inside = [], [], []

    def work():
        lock = dlock.lock(**options)
        for _ in range(rounds):
            status = lock.acquire(wait_ms)
            statuses.append(status)
            if status == Status.OK:
                inside.append(threading.get_ident())
                assert len(inside) == 1, "two at a time"
                fences.append(lock.fence)
                inside.pop()
                assert lock.release() == Status.OK

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return statuses, fences


def test_one_thread_goes_out_and_the_others_wait_here(dlock, seen, calls):
    dlock.hotspot_add()
    holder = dlock.hold()
    waiting = [dlock.wait_in_line(dlock.lock(), length=number) for number in range(1, 6)]
    other = dlock.lock()
    assert other.acquire(20) == Status.TIMEOUT
    assert other.timings.attempts == 0
    assert other.timings.local_ms >= 20
    assert seen()["waiters"] == 0
    assert calls() == 1
    holder.release()
    for lock in dlock.locks[1:6]:
        wait_until(lambda: lock.state == State.HELD, "its turn")
        lock.release()
    assert [call.result() for call in waiting] == [Status.OK] * 5


def test_a_local_lock_is_first_come_first_served(dlock):
    dlock.hotspot_add()
    holder = dlock.hold()
    locks, waiting, order = [dlock.lock() for _ in range(6)], [], []

    def wait(number):
        assert locks[number].acquire(20_000) == Status.OK
        order.append(number)
        locks[number].release()

    for number in range(6):
        waiting.append(Background(wait, number))
        wait_for_line(dlock, number + 1)
    holder.release()
    for call in waiting:
        call.result()
    assert order == list(range(6))


def pass_on(dlock, first, second):
    """The one that holds the lock gives it back while the other one waits for it in line."""
    waiting = dlock.wait_in_line(second)
    first.release()
    assert waiting.result() == Status.OK


def wait_for_line(dlock, length):
    wait_until(lambda: dlock.stats().waiting == length, "threads in line")


def test_who_only_tries_is_told_at_once(dlock, calls):
    dlock.hotspot_add()
    dlock.hold()
    assert dlock.lock().acquire() == Status.BUSY
    assert calls() == 1


def test_too_many_are_refused_at_once(connect, server):
    dlock = connect(server, hotspot_queue_max=2)
    dlock.hotspot_add()
    dlock.hold()
    waiters = [dlock.lock() for _ in range(2)]
    waiting = [Background(waiter.acquire, -1) for waiter in waiters]
    wait_for_line(dlock, 2)
    refused = dlock.lock()
    status, took_ms = refused.timed_acquire(20_000)
    assert status == Status.QUEUE_FULL
    assert took_ms < 20_000
    assert dlock.stats().queue_full == 1
    for waiter in waiters:
        waiter.cancel()
    assert [call.result() for call in waiting] == [Status.CANCELED] * 2


def test_a_local_wait_can_be_canceled(dlock):
    dlock.hotspot_add()
    dlock.hold()
    lock = dlock.lock()
    waiting = dlock.wait_in_line(lock, -1)
    lock.cancel()
    assert waiting.result() == Status.CANCELED


def test_a_refusal_outside_gives_the_local_lock_back_at_once(dlock, client):
    dlock.hotspot_add()
    Commands(client, "lock").acquire("another process", 60_000)
    assert dlock.lock().acquire(20) == Status.TIMEOUT
    client.delete("lock")
    dlock.hold(wait_ms=5000)


def test_a_name_that_is_removed_harms_nobody(dlock, calls):
    dlock.hotspot_add()
    holder, waiter = dlock.hold(), dlock.lock()
    waiting = dlock.wait_in_line(waiter)
    assert dlock.hotspot_remove() == Status.OK
    assert dlock.lock().acquire() == Status.BUSY  # by the server now
    assert calls() == 2
    assert holder.release() == Status.OK
    assert waiting.result() == Status.OK
    assert waiter.release() == Status.OK
    assert dlock.hotspot_remove() == Status.OK


def test_the_prefix_belongs_to_the_name(connect, server, calls):
    dlock = connect(server, prefix="p:")
    dlock.hotspot_add("n")
    dlock.hold("n")
    assert dlock.lock("n").acquire() == Status.BUSY
    assert calls() == 1


@pytest.mark.parametrize("options", [{}, {"wait_mode": SPIN}, {"hotspot_hand_on": 4},
                                     {"hotspot_auto": 10}, {"hotspot_auto": 10,
                                                            "hotspot_hand_on": 4}])
def test_many_threads_get_it_one_at_a_time(connect, server, options):
    dlock = connect(server, **options)
    if "hotspot_auto" not in options:
        dlock.hotspot_add()
    statuses, fences = take_turns(dlock, 8, 50)
    assert statuses == [Status.OK] * 400
    assert fences == sorted(fences)
    assert server.client().dbsize() == 0


# -- hand-on --------------------------------------------------------------------------------------


def test_hand_on_saves_round_trips_and_each_thread_has_a_fence_of_its_own(hot, calls):
    dlock = hot(16)
    statuses, fences = take_turns(dlock, 8, 100)
    assert statuses == [Status.OK] * 800
    assert dlock.stats().hand_ons > 0
    assert calls() == 800 - dlock.stats().hand_ons
    assert calls("release") == calls()
    assert fences == sorted(set(fences)), "each is larger than the one before"


def test_another_process_has_a_larger_fence_than_all_threads_before(hot, connect, server):
    dlock = hot(16)
    first, second = dlock.hold(), dlock.lock()
    pass_on(dlock, first, second)
    fence = second.fence
    second.release()
    other = connect(server).hold()
    assert other.fence > fence


def test_without_runs_of_fences_the_lock_is_granted_and_goes_out(hot, fake_server, connect):
    """A server refuses runs while too many fences are reserved."""
    def reply(words):
        fences.append(len(fences) + 1)
        if b"FENCES" in words:
            return b"-ERR FENCES: too many were reserved lately\r\n"
        return b":%d\r\n" % (len(fences) if words[0] == b"DLOCK.ACQUIRE" else 1)
    fences = []
    dlock = connect(fake_server(reply), hotspot_hand_on=4)
    dlock.hotspot_add()
    first, second = dlock.hold(), dlock.lock()
    pass_on(dlock, first, second)
    assert second.fence > first.fence and dlock.stats().hand_ons == 0


def test_a_guarded_command_in_doubt_cannot_run_for_the_next_thread(connect, fake_server):
    def reply(words):
        return {b"DLOCK.ACQUIRE": b":7\r\n", b"DLOCK.RELEASE": b":1\r\n"}.get(words[0])
    server = fake_server(reply)
    dlock = connect(server, hotspot_hand_on=4, io_timeout_ms=100)
    dlock.hotspot_add()
    first, second = dlock.hold(wait_ms=20_000), dlock.lock()  # so long it may take to answer
    waiting = dlock.wait_in_line(second)
    assert first.guarded("SET", "x", 1)[0] == Status.IN_DOUBT
    first.release()
    assert waiting.result() == Status.OK
    assert server.asked("DLOCK.RELEASE") and dlock.stats().hand_ons == 0


def test_a_guarded_command_of_a_freed_handle_cannot_run_for_the_next_thread(connect, fake_server):
    server = fake_server(granting(GUARD=SILENCE))
    dlock = connect(server, hotspot_hand_on=4, io_timeout_ms=100)
    dlock.hotspot_add()
    first, second = dlock.hold(wait_ms=20_000), dlock.lock()
    waiting = dlock.wait_in_line(second)
    words = (ctypes.c_char_p * 1)(b"PING")
    started = first.start("guarded", 1, words, None, None)
    wait_until(lambda: server.asked("DLOCK.GUARD"), "the command to be under way")
    dlock.locks.remove(first)
    first.free()
    assert started.result == Status.CANCELED
    assert waiting.result() == Status.OK
    assert dlock.stats().hand_ons == 0


def test_a_handed_on_lock_keeps_its_token(hot, seen):
    dlock = hot(2)
    first, second, third, fourth = (dlock.lock() for _ in range(4))
    first.acquire()
    token, fence = first.token, first.fence
    waiting = [dlock.wait_in_line(lock, length=number)
               for number, lock in enumerate((second, third, fourth), 1)]
    first.release()
    assert waiting[0].result() == Status.OK
    assert (second.token, second.fence) == (token, fence + 1)
    assert seen()["token"] == token
    second.release()
    assert waiting[1].result() == Status.OK
    assert (third.token, third.fence) == (token, fence + 2)
    third.release()  # the third in a row goes out
    assert waiting[2].result() == Status.OK
    assert fourth.token != token and fourth.fence > fence + 2
    assert fourth.release() == Status.OK
    assert seen() is None


def test_a_lock_with_an_owner_is_handed_on_to_a_handle_without(hot, seen):
    dlock = hot(2)
    first, second = dlock.hold(owner="x" * 64), dlock.lock()
    token = first.token
    pass_on(dlock, first, second)
    assert second.token == token
    assert second.release() == Status.OK
    assert seen() is None


def test_what_is_left_of_the_lease_is_told_to_the_next(hot):
    dlock = hot(16)
    first, second = dlock.hold(lease_ms=60_000), dlock.lock(lease_ms=1000)
    pass_on(dlock, first, second)
    assert 50_000 < second.remaining_ms < 60_000


def test_a_lease_that_does_not_suffice_is_renewed_first(hot, client, calls):
    dlock = hot(16)
    first, second = dlock.hold(lease_ms=20_000), dlock.lock(lease_ms=60_000)
    token, fence = first.token, first.fence
    pass_on(dlock, first, second)
    assert second.token == token and second.fence > fence  # it was renewed, not given up
    assert Commands(client).ttl() > 50_000
    assert second.remaining_ms > 50_000
    assert calls() == 2 and calls("release") == 0


YES = 1


def test_a_kept_lock_of_a_hot_name_can_be_extended(hot):
    lock = hot(4).hold(renew=YES)
    assert lock.extend() == Status.OK, "the server proves the same fence"
    assert lock.release() == Status.OK


def test_a_lock_that_is_handed_on_to_be_kept_can_be_extended(hot):
    dlock = hot(4)
    first, second = dlock.hold(), dlock.lock(renew=YES)
    token, fence = first.token, first.fence
    pass_on(dlock, first, second)
    assert second.token == token and second.fence > fence
    assert second.extend() == Status.OK
    assert second.release() == Status.OK


def test_a_lock_that_was_lost_outside_is_not_handed_on_for_long(hot, client):
    """Nobody tells the process; but who finds it too short asks, and gets a new one."""
    dlock = hot(16)
    first, second = dlock.hold(lease_ms=20_000), dlock.lock(lease_ms=60_000)
    fence = first.fence
    waiting = dlock.wait_in_line(second)
    client.delete("lock")
    first.release()
    assert waiting.result() == Status.OK
    assert second.fence > fence


def test_a_lease_that_is_over_is_not_handed_on(hot):
    dlock = hot(16)
    first, second = dlock.hold(lease_ms=500, wait_ms=20_000), dlock.lock(lease_ms=50)
    waiting = Background(second.acquire, 60_000)  # in line, unless its thread begins too late
    wait_until(lambda: first.state == State.LOST, "the end of the lease")
    first.release()
    assert waiting.result() == Status.OK
    assert dlock.stats().hand_ons == 0


def test_an_extended_lease_is_handed_on_as_it_is(hot):
    dlock = hot(16)
    first, second = dlock.hold(), dlock.lock()
    assert first.extend(60_000) == Status.OK
    pass_on(dlock, first, second)
    assert second.remaining_ms > 50_000


def test_an_extension_in_doubt_keeps_nothing_from_being_handed_on(hot, server):
    """An extension never shortens a lease, so the lock is held as long as before."""
    dlock = hot(16, io_timeout_ms=100)
    first, second = dlock.hold(wait_ms=20_000), dlock.lock()  # so long it may take to answer
    waiting = dlock.wait_in_line(second)
    with stopped(server):
        assert first.extend(1000) == Status.IN_DOUBT
        assert first.remaining_ms > 5000
    assert first.release() == Status.OK
    assert waiting.result() == Status.OK
    assert dlock.stats().hand_ons == 1


CONTENDER = """
import sys, threading
from support.libdlock import Client, Status
client = Client(sys.argv[1], hotspot_hand_on=4, io_timeout_ms=10_000)
client.hotspot_add()
count, is_over = [0] * 4, threading.Event()

def work(number):
    lock = client.lock()
    while not is_over.is_set():
        if lock.acquire(20_000) == Status.OK:
            count[number] += 1
            lock.release()

threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for thread in threads:
    thread.start()
print("ready", flush=True)
while sys.stdin.readline():
    print(sum(count), flush=True)
is_over.set()
for thread in threads:
    thread.join()
print(client.stats().hand_ons)
client.free()
"""


def ask(processes):
    """How many turns each has had."""
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return [int(process.stdout.readline()) for process in processes]


def test_neither_of_two_processes_starves(server):
    """One that the machine lets wait for a moment has less in that moment."""
    processes = [start_python(CONTENDER, f"redis://127.0.0.1:{server.port}") for _ in range(2)]
    client = server.client()
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    shares, before = [], ask(processes)
    for _ in range(5):
        enough = client.info("dlock")["dlock_granted"] + 400
        wait_until(lambda: client.info("dlock")["dlock_granted"] > enough, "many turns")
        after = ask(processes)
        turns = [b - a for a, b in zip(before, after)]
        shares.append(min(turns) / sum(turns))
        before = after
    assert statistics.median(shares) > 0.1, shares
    assert min(int(process.communicate(timeout=300)[0]) for process in processes) > 0


def test_a_renewal_that_fails_is_withdrawn(hot, server, client):
    dlock = hot(16, io_timeout_ms=100)
    first, second = dlock.lock(lease_ms=25_000), dlock.lock(lease_ms=60_000)
    assert first.acquire(20_000) == Status.OK  # so long it may take to answer
    waiting = dlock.wait_in_line(second, 4000)
    with stopped(server):
        first.release()
        assert waiting.result() == Status.IN_DOUBT
    wait_until(lambda: not client.exists("lock"), "the withdrawal", timeout=15)


# -- found by contention --------------------------------------------------------------------------


def test_a_contended_name_gets_a_local_lock(connect, server, client, calls):
    """A grant that takes long is a sign of contention too, so another has it all the time."""
    dlock = connect(server, hotspot_auto=10)
    Commands(client, "lock").acquire("another process", 600_000)
    assert dlock.lock().acquire() == Status.BUSY
    assert calls() == 2
    other = dlock.lock("lock")
    assert other.acquire(20) == Status.TIMEOUT  # takes the local lock, asks outside
    assert calls() == 3
    waiter = dlock.lock()
    waiting = Background(waiter.acquire, -1)
    wait_for_waiters(client, 1)
    before = calls()
    assert dlock.lock().acquire() == Status.BUSY
    assert calls() == before  # by the local lock
    waiter.cancel()
    assert waiting.result() == Status.CANCELED


# -- the list --------------------------------------------------------------------------------------


def test_hot_names_and_their_queues_can_be_listed(connect, server):
    dlock = connect(server, prefix="p:", hotspot_auto=5)
    assert dlock.hotspot_list() == {}
    for name in "cold", "hot":
        dlock.hotspot_add(name)
    holder = dlock.hold("hot")
    waiting = [Background(dlock.lock("hot").acquire, 60_000) for _ in range(3)]
    wait_until(lambda: dlock.hotspot_list()["hot"] == (3, True, False), "three threads in line")
    assert dlock.hotspot_list()["cold"] == (0, False, False)
    assert len(dlock.hotspot_list(enough=1)) == 1
    dlock.hotspot_remove("cold")
    assert set(dlock.hotspot_list()) == {"hot"}
    assert holder.release() == Status.OK
    wait_until(lambda: dlock.hotspot_list()["hot"][0] == 2, "that one of them goes on")
    for lock in dlock.locks:
        lock.cancel()
    for each in waiting:
        each.result()


def test_names_that_contention_has_found_are_listed_as_such(connect, server):
    dlock, other = connect(server, hotspot_auto=5), connect(server)
    other.hold("busy")
    assert dlock.lock("busy").acquire() == Status.BUSY
    assert dlock.hotspot_list() == {"busy": (0, False, True)}
