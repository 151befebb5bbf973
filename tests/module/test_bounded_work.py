"""Work that comes in crowds is done in portions, other clients are served in between, and no
command costs more because many wait.

Nothing here is compared with a time of this machine: the tests count what is seen in between, or
compare what the server's processor spends on a few with what it spends on many."""

import select
import threading
import time

import pytest

from support.cluster import Cluster
from support.commands import Lock, stats
from support.crowd import Cpu, hold_many, parked
from support.server import running, wait_until
from support.turn import Bare, in_one_turn

pytestmark = pytest.mark.alone

MANY = 3000  # waiters, each with a lock of its own
A_DAY = 86_400_000


@pytest.fixture
def bare(server):
    """A connection for the locks that are to be held."""
    bare = Bare(server)
    yield bare
    bare.close()


def watch(client, field, until):
    """Every value of this field of INFO dlock that is seen by looking again and again."""
    seen = set()

    def is_there():
        seen.add(stats(client)[field])
        return until in seen
    wait_until(is_there, f"{field} to be {until}", timeout=60)
    return seen - {until}


def sleep_until(server, moment):
    """The server sleeps, so that all that is due by then is due together."""
    bare = Bare(server)
    bare.send(f"DEBUG SLEEP {max(moment - time.monotonic(), 0.01):.2f}")
    assert bare.read() == [b"+OK"]
    bare.close()


# -- in portions ----------------------------------------------------------------------------------


def test_a_flush_with_many_queues_is_worked_off_in_portions(server, client, bare):
    hold_many(bare, MANY, A_DAY)
    with parked(server, MANY) as waiting:
        client.flushdb()
        in_between = watch(client, "waiters", until=0) - {MANY}
        assert in_between, "nobody was served until all were done"
        assert all(socket.recv(100).startswith(b":") for socket in waiting)


def test_many_sessions_that_end_together_are_worked_off_in_portions(server, client, bare):
    count = 100_000
    hold_many(bare, count, A_DAY, "SESSION")
    bare.close()
    in_between = watch(client, "held", until=0) - {count}
    assert in_between, "nobody was served until all were done"
    assert client.dbsize() == 0


def test_many_waits_that_end_together_are_worked_off_in_portions(server, bare):
    hold_many(bare, 1, A_DAY)
    end = time.monotonic() + 6
    with parked(server, MANY, key="lock:0", wait_ms=6000) as waiting:
        assert time.monotonic() < end - 0.2, "this machine is too slow for this test"
        asleep = Bare(server)
        asleep.send(f"DEBUG SLEEP {end - time.monotonic() + 0.2:.2f}")
        assert pings_until_all_are_answered(server, waiting) > 2
        assert all(socket.recv(100) == b"$-1\r\n" for socket in waiting)


def pings_until_all_are_answered(server, waiting):
    """How many fit in between the first and the last answer."""
    with select.epoll() as poll:
        for socket in waiting:
            poll.register(socket, select.EPOLLIN)
        answered, pings, bare = 0, 0, Bare(server)
        while answered < len(waiting):
            for fd, _ in poll.poll(0, len(waiting)):
                poll.unregister(fd)
                answered += 1
            assert bare.call("PING") == b"+PONG"
            pings += 0 < answered < len(waiting)
    return pings


def test_many_awaited_leases_that_end_together_are_handed_on_in_portions(server, client, bare):
    hold_many(bare, MANY, 6000)
    end = time.monotonic() + 6
    with parked(server, MANY) as waiting:
        assert time.monotonic() < end - 0.2, "this machine is too slow for this test"
        sleep_until(server, end + 0.2)
        in_between = watch(client, "waiters", until=0) - {MANY}
        assert in_between, "nobody was served until all were done"
        assert all(socket.recv(100).startswith(b":") for socket in waiting)


HOLD_MANY = """
    local count, lease = tonumber(ARGV[1]), tonumber(ARGV[2])
    for i = 0, count - 1 do
        local spread = math.floor(i * 1000 / count)
        redis.call('DLOCK.ACQUIRE', 'lock:' .. i, 'me', 'PX', lease + spread)
    end"""


def test_many_leases_that_end_together_are_removed_in_portions(server, client):
    count = 100_000
    begin = time.monotonic()
    client.eval(HOLD_MANY, 0, count, 3000)
    sleep_until(server, max(time.monotonic(), begin + 3) + 1.5)
    in_between = watch(client, "held", until=0) - {count}
    assert in_between, "nobody was served until all were done"
    assert stats(client)["expired"] == count


def test_200_000_leases_that_end_within_a_second_hold_nobody_up(server, client):
    """A ping takes no 50 ms. A machine that is busy may be late once; what is late every time is
    wrong."""
    count, worst = 200_000, []
    while not worst or worst[-1] > 0.050:
        assert len(worst) < 3, f"never within 50 ms: {worst}"
        client.eval(HOLD_MANY, 0, count, 4000)
        worst.append(longest_ping(server, lambda: stats(client)["held"] == 0))


def longest_ping(server, is_over):
    """In seconds, of pings one after the other until it is over."""
    longest, over = 0, threading.Event()

    def ping():
        nonlocal longest
        bare = Bare(server)
        while not over.is_set():
            begin = time.monotonic()
            assert bare.call("PING") == b"+PONG"
            longest = max(longest, time.monotonic() - begin)
            time.sleep(0.001)
        bare.close()

    thread = threading.Thread(target=ping)
    thread.start()
    try:
        while not is_over():
            time.sleep(0.1)
    finally:
        over.set()
        thread.join()
    return longest


# -- what many cost -------------------------------------------------------------------------------

NOISE_S = 0.005  # of the processor: less than that is not told apart


def assert_grows_at_most(times, few_s, many_s):
    assert many_s < times * few_s + NOISE_S, f"{few_s:.4f} s for few, {many_s:.4f} s for many"


@pytest.mark.parametrize("command", [("SWAPDB", 0, 1), ("FLUSHDB",)], ids=["swapdb", "flushdb"])
def test_repeating_a_flush_or_a_swap_in_one_turn_queues_each_name_once(
        server, client, bare, command):
    spent = {}
    for times in (2, 200):
        hold_many(bare, 1000, A_DAY, key=f"{times}:{{}}")
        with parked(server, 1000, key=f"{times}:{{}}"), Cpu(client) as cpu:
            in_one_turn(client, *[command] * times)
            time.sleep(0.5)  # not for luck: what was deferred is done by then
        spent[times] = cpu.seconds
        wait_until(lambda: stats(client)["waiters"] == 0, "all to leave")
    assert_grows_at_most(20, spent[2], spent[200])


ASKED = 20_000  # times in one turn


def ask_again_after(client, *commands, times=ASKED):
    """The processor's seconds for asking again so often, in one turn with these commands."""
    Lock(client, "mine").acquire("me", A_DAY)
    with Cpu(client) as cpu:
        in_one_turn(client, *commands, *[("DLOCK.ACQUIRE", "mine", "me", "PX", 1000)] * times)
    return cpu.seconds


def test_asking_again_costs_the_same_while_a_large_session_ends(server, client):
    """In the same turn: each lock of the session is on its way out."""
    spent = {}
    for count in (100, 40_000):
        holder = Bare(server)
        holder_id = int(holder.call("CLIENT ID")[1:])
        hold_many(holder, count, A_DAY, "SESSION")
        spent[count] = ask_again_after(client, ("CLIENT", "KILL", "ID", holder_id))
        wait_until(lambda: stats(client)["held"] == 1, "the session to end", timeout=60)
        holder.close()
    assert_grows_at_most(10, spent[100], spent[40_000])


def test_asking_again_costs_the_same_in_a_turn_with_many_hand_overs(server, client, bare):
    spent = {}
    for count, asked in ((MANY, 0), (100, ASKED), (MANY, ASKED)):
        key = f"{count}:{asked}:{{}}"
        hold_many(bare, count, A_DAY, key=key)
        with parked(server, count, key=key):
            releases = [("DLOCK.RELEASE", key.format(i), "me") for i in range(count)]
            spent[count, asked] = ask_again_after(client, *releases, times=asked)
        wait_until(lambda: stats(client)["waiters"] == 0, "all to leave")
    hand_overs_s = spent[MANY, 0]
    assert_grows_at_most(6, spent[100, ASKED], spent[MANY, ASKED] - hand_overs_s)


class Queue:
    """One lock with so many waiters."""

    def __init__(self, server, count, **options):
        self.server, self.count, self.options = server, count, options
        self.lock = Lock(server.observer, "lock")

    def spends(self, work, *arguments):
        """The processor's seconds for work(lock, sockets, ...)."""
        client = self.server.observer
        client.delete("lock")
        self.lock.acquire("me", A_DAY)
        with parked(self.server, self.count, key="lock", **self.options) as waiting:
            with Cpu(client) as cpu:
                work(self.lock, waiting, *arguments)
        wait_until(lambda: stats(client)["waiters"] == 0, "all to leave", timeout=60)
        return cpu.seconds


OPERATIONS = 50


def delete_and_wait(lock, waiting):
    for socket in waiting[:OPERATIONS]:
        lock.client.delete("lock")
        assert socket.recv(100).startswith(b":")


def let_leases_end(lock, waiting):
    """Each holder lets its lease of 20 ms run out."""
    lock.client.delete("lock")
    for socket in waiting[:OPERATIONS]:
        assert socket.recv(100).startswith(b":")


def release_one_by_one(lock, waiting):
    token = "me"
    for i, socket in enumerate(waiting[:OPERATIONS]):
        lock.release(token)
        assert socket.recv(100).startswith(b":")
        token = f"waiter:{i}"


def leave_one_by_one(lock, waiting):
    for i, socket in enumerate(waiting[-OPERATIONS:]):
        socket.close()
    left = len(waiting) - OPERATIONS
    wait_until(lambda: lock.info()["waiters"] == left, "them to leave")


def release_while_waiting(lock, waiting):
    """Tokens from the end of the queue, and tokens that are not in it."""
    for i in range(OPERATIONS):
        assert lock.release(f"waiter:{len(waiting) - 1 - i}") == 0
        assert lock.release("stranger") == 0


def ask_without_wait(lock, waiting):
    for i in range(OPERATIONS):
        assert lock.acquire(f"waiter:{len(waiting) - 1 - i}") is None


def create_other_keys(lock, waiting):
    """Blocked clients hang on a key. Nobody knows its name: neither one that the module has had in
    the past nor one that is like it."""
    for i in range(OPERATIONS):
        for key in ("\0dlock: nobody creates this key\0\0", "dlock:{lock}", "{lock}"):
            lock.client.lpush(key, "x")
            lock.client.delete(key)


WORK = [delete_and_wait, let_leases_end, release_one_by_one, leave_one_by_one,
        release_while_waiting, ask_without_wait, create_other_keys]


def assert_flat(server, work):
    """As much for a crowd as for a few."""
    options = {"lease_ms": 20} if work is let_leases_end else {}
    few, many = (Queue(server, count, **options) for count in (OPERATIONS + 10, 4000))
    few_s = max(few.spends(work), few.spends(work))
    assert_grows_at_most(4, few_s, many.spends(work))


@pytest.mark.parametrize("work", WORK)
def test_the_cost_does_not_depend_on_how_many_wait(server, work):
    assert_flat(server, work)


@pytest.fixture(scope="module")
def node():
    """The only node of a cluster."""
    with running(Cluster(masters=1)) as cluster:
        yield cluster.nodes[0]


@pytest.mark.parametrize("work", WORK)
def test_in_a_cluster_the_cost_does_not_depend_on_how_many_wait(node, work):
    assert_flat(node, work)
