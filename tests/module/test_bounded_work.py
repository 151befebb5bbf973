"""Work that comes in crowds is done in portions, other clients are served in between, and no
command costs more because many wait.

Nothing here is compared with a time of this machine: the tests count what is seen in between, or
compare what the server's processor spends on a few with what it spends on many."""

import collections
import contextlib

import pytest

from support.commands import Lock, details_of, stats
from support.crowd import Cpu, hold_many, parked, send_all
from support.server import Server, free_port, running, wait_until
from support.session import Session
from support.turn import Bare, in_one_turn
from support.waiting import A_DAY, queue_up

MANY = 3000  # waiters, each with a lock of its own
HOUR, HOUR_MS = 3600, 3_600_000


@pytest.fixture
def bare(server):
    """A connection for the locks that are to be held."""
    bare = Bare(server)
    yield bare
    bare.close()


@pytest.fixture
def in_portions(client, clock):
    """with in_portions(field): ...: what the body sets off takes many turns of the event loop,
    until this field of INFO dlock has the value. In each of them others are served."""
    @contextlib.contextmanager
    def check(field, value=0):
        before = clock.turns
        yield
        wait_until(lambda: stats(client)[field] == value, f"{field} to be {value}", timeout=50)
        assert clock.turns - before > 8, "nobody was served until all were done"
    return check


# -- searches -------------------------------------------------------------------------------------


def rename_many(client):
    """Locks that only a search through nearly all keys finds again, and that end then."""
    in_one_turn(client, *(words for i in range(50) for words in (
        ("DLOCK.ACQUIRE", "lock", "me", "PX", 1), ("RENAME", "lock", f"renamed:{i}"))))


def test_after_a_search_for_renamed_locks_the_server_rests(client, clock):
    """So locks that are renamed all the time keep no search running."""
    def steps_until_found(most=100_000):
        for step in range(most):
            if stats(client)["held"] == 0:
                return step
            clock.advance(0.005, turns=2)  # in which a search goes on by a portion
        return most

    client.execute_command("DEBUG", "POPULATE", 200_000)
    rename_many(client)
    steps = steps_until_found()
    rename_many(client)
    assert steps_until_found(2 * steps) == 2 * steps, "the search went on"
    clock.advance(600)
    assert steps_until_found() <= 2 * steps


# -- many holders ---------------------------------------------------------------------------------


def hold_together(bare, count, first=0):
    replies = send_all(bare, [f"DLOCK.ACQUIRE lock holder:{i} PX {A_DAY} SHARED"
                              for i in range(first, first + count)])
    assert all(reply.startswith(b":") for reply in replies)


def cpu_of_ended_leases(client, clock):
    """One more holder comes and its lease ends, again and again."""
    with Cpu(client) as cpu:
        for i in range(100):
            assert Lock(client).acquire(f"short:{i}", 1000, "SHARED") > 0
            clock.advance(1, turns=1)
            assert Lock(client).acquire("stranger") is None
    return cpu.seconds


def test_an_ended_lease_costs_the_same_however_many_hold_the_lock(client, bare, clock):
    client.config_set("dlock.max-holders", 100_000)
    hold_together(bare, 10)
    few = cpu_of_ended_leases(client, clock)
    hold_together(bare, 50_000, first=10)
    assert cpu_of_ended_leases(client, clock) < 2 * few + 0.03


@pytest.mark.parametrize("look", ["by a search", "by DLOCK.INFO"])
def test_a_long_name_is_stored_once_for_all_holders(client, bare, clock, look):
    hold_together(bare, 1000)
    before = client.info("memory")["used_memory"]
    name = "n" * 1_000_000
    client.rename("lock", name)
    if look == "by a search":
        clock.advance(3, turns=20)
    else:
        assert len(details_of(client.execute_command("DLOCK.INFO", name))["holders"]) == 1000
    assert client.info("memory")["used_memory"] < before + 20_000_000
    assert client.delete(name) == 1
    wait_until(lambda: client.info("memory")["used_memory"] < before + 5_000_000, "the memory")


@pytest.mark.parametrize("use", ["wait", "watch"])
def test_a_long_name_is_forgotten_with_its_use(server, client, clock, use):
    name = "n" * 5_000_000
    before = client.info("memory")["used_memory"]
    if use == "wait":
        assert Lock(client, name).acquire("holder") > 0
        [waiting] = queue_up(server, ["me"], key=name)
        client.delete(name)
        assert waiting.answer() > 0
    else:
        session = Session(server)
        session.watch(name)
        session.unwatch(name)
    client.flushall()

    def memory():
        clock.advance(3, turns=20)  # the buffers of clients shrink
        return client.info("memory")["used_memory"]

    wait_until(lambda: memory() < before + 1_000_000, "the memory")


# -- in portions ----------------------------------------------------------------------------------


def test_a_flush_with_many_queues_is_worked_off_in_portions(server, client, bare, in_portions):
    hold_many(bare, MANY, A_DAY)
    with parked(server, MANY) as waiting:
        with in_portions("waiters"):
            client.flushdb()
        assert all(socket.recv(100).startswith(b":") for socket in waiting)


def test_many_sessions_that_end_together_are_worked_off_in_portions(client, bare, in_portions):
    hold_many(bare, 100_000, A_DAY, "SESSION")
    with in_portions("held"):
        bare.close()
    assert client.dbsize() == 0


def test_many_sessions_of_a_connection_go_away_in_portions(bare, in_portions):
    count = 40_000
    bare.send(*(f"DLOCK.SESSION session-{i:08} PX {HOUR_MS}" for i in range(count)))
    assert bare.read(3 * count)[2::3] == [b"*0"] * count
    with in_portions("sessions_away", count):
        bare.close()


def test_sessions_end_in_portions_when_the_server_becomes_a_replica(client, bare, in_portions):
    """None of them is found meanwhile, also if the server is a master again at once. Their locks
    are still held."""
    count, holds = 40_000, 100
    bare.send(*(f"DLOCK.SESSION session-{i:08} PX {HOUR_MS}" for i in range(count)))
    assert bare.read(3 * count)[2::3] == [b"*0"] * count
    hold_many(bare, holds, A_DAY, "SESSION VIA session-00000000")
    with in_portions("sessions"):
        pipe = client.pipeline()
        pipe.execute_command("REPLICAOF", "127.0.0.1", free_port())
        pipe.execute_command("REPLICAOF", "NO", "ONE")
        pipe.execute_command("DLOCK.WATCH", "lock", f"session-{count - 1:08}")
        assert str(pipe.execute(raise_on_error=False)[-1]).startswith("NOSESSION")
    wait_until(lambda: stats(client)["session_holds"] == 0, "all to be forgotten")
    assert stats(client)["held"] == holds


@contextlib.contextmanager
def parked_sessions(server, client, count):
    """So many sessions, each with a connection that waits for events, and all watch "lock"."""
    sessions = [f"DLOCK.SESSION session-{i:08} PX {HOUR_MS}" for i in range(count)]
    sockets = [Bare(server) for _ in sessions]
    try:
        for bare, line in zip(sockets, sessions):
            bare.send(line)
            assert bare.read(3)[0] == b"*2"
        in_one_turn(client, *(("DLOCK.WATCH", "lock", line.split()[1]) for line in sessions))
        wait_until(lambda: stats(client)["events_unacknowledged"] == count, "all to be told")
        for bare, line in zip(sockets, sessions):
            bare.send(line)
            number = bare.read(9)[4][1:].decode()
            bare.send(f"{line} ACK {number}")
        wait_until(lambda: client.info("clients")["blocked_clients"] == count, "all to wait")
        yield sockets
    finally:
        for bare in sockets:
            bare.close()


@pytest.mark.parametrize("what", ["an event", "the end of their time"])
def test_many_heartbeats_are_answered_in_portions(server, client, clock, what):
    """The server needs longer to unblock a client than the module to ask for it."""
    with parked_sessions(server, client, MANY) as sockets:
        before = clock.turns
        if what == "an event":
            Lock(client).acquire("me", A_DAY)
        else:
            clock.advance(HOUR // 3 + 1, turns=0)
        wait_until(lambda: client.info("clients")["blocked_clients"] == 0, "all to be answered")
        assert clock.turns - before > MANY // 200
        assert all(bare.read()[0] == b"*2" for bare in sockets)


def test_many_waits_that_end_together_are_worked_off_in_portions(server, clock, bare, in_portions):
    hold_many(bare, 1, A_DAY)
    with parked(server, MANY, key="lock:0", wait_ms=HOUR_MS) as waiting:
        with in_portions("waiters"):
            clock.advance(HOUR + 1, turns=0)
        assert all(socket.recv(100) == b"$-1\r\n" for socket in waiting)


def test_many_awaited_leases_that_end_together_are_handed_on_in_portions(
        server, clock, bare, in_portions):
    hold_many(bare, MANY, HOUR_MS)
    with parked(server, MANY) as waiting:
        with in_portions("waiters"):
            clock.advance(HOUR + 1, turns=0)
        assert all(socket.recv(100).startswith(b":") for socket in waiting)


@pytest.mark.parametrize("locks, options", [(100_000, ""), (50, "SHARED")])
def test_many_leases_that_end_together_are_removed_in_portions(
        client, clock, bare, in_portions, locks, options):
    lines = [f"DLOCK.ACQUIRE lock:{i % locks} {i} PX {HOUR_MS} {options}" for i in range(100_000)]
    client.config_set("dlock.max-holders", 10_000)
    assert all(reply.startswith(b":") for reply in send_all(bare, lines))
    with in_portions("holders"):
        clock.advance(HOUR + 1, turns=0)
    assert stats(client)["expired"] == 100_000


# -- what many cost -------------------------------------------------------------------------------

NOISE_S = 0.005  # of the processor: less than that is not told apart


def assert_grows_at_most(times, few_s, many_s):
    assert many_s < times * few_s + NOISE_S, f"{few_s:.4f} s for few, {many_s:.4f} s for many"


@pytest.mark.parametrize("command", [("SWAPDB", 0, 1), ("FLUSHDB",)], ids=["swapdb", "flushdb"])
def test_repeating_a_flush_or_a_swap_in_one_turn_queues_each_name_once(
        server, client, clock, bare, command):
    spent = {}
    for times in (2, 200):
        hold_many(bare, 1000, A_DAY, key=f"{times}:{{}}")
        with parked(server, 1000, key=f"{times}:{{}}"), Cpu(client) as cpu:
            in_one_turn(client, *[command] * times)
            clock.turn(100)  # what was deferred is done by then
        spent[times] = cpu.seconds
        wait_until(lambda: stats(client)["waiters"] == 0, "all to leave")
    assert_grows_at_most(20, spent[2], spent[200])


ASKED = 20_000  # times in one turn


def cpu_of_refusals(node, queues, turns=100):
    """Their locks are free, but the server may not give them to anybody."""
    client, bare = node.observer, Bare(node)
    client.flushall()
    bare.send(f"DLOCK.SESSION session-{queues:08} PX {A_DAY}")
    assert bare.read(3)[2] == b"*0"
    hold_many(bare, queues, HOUR_MS, key="{{one}}:{}")
    assert set(send_all(bare, [f"DLOCK.ACQUIRE {{one}}:{i} waiter PX {HOUR_MS} WAIT {A_DAY} "
                               f"VIA session-{queues:08}" for i in range(queues)])) == {b"+QUEUED"}
    client.config_set("min-replicas-to-write", 1)
    node.clock.advance(HOUR + 1)
    wait_until(lambda: stats(client)["held"] == 0, "all leases to end")
    first = node.clock.turns
    with Cpu(client) as cpu:
        wait_until(lambda: node.clock.turns - first > turns, "some turns of the event loop")
    spent = cpu.seconds / (node.clock.turns - first)
    client.config_set("min-replicas-to-write", 0)
    wait_until(lambda: stats(client)["waiters"] == 0, "all to have the locks")
    bare.send(f"DLOCK.SESSION session-{queues:08} END")
    assert bare.read() == [b":1"]
    bare.close()
    return spent


def test_a_cluster_that_refuses_writes_does_not_work_on_each_queue_in_each_turn(lonely):
    [node] = lonely.nodes
    assert cpu_of_refusals(node, 10_000) < 3 * cpu_of_refusals(node, 100) + 0.0002


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


OPERATIONS = 50


class Queue:
    """One lock with so many waiters."""

    def __init__(self, server, sockets):
        self.clock, self.lock = server.clock, Lock(server.observer)
        self.waiting = collections.deque((f"waiter:{i}", each) for i, each in enumerate(sockets))

    def assert_first_is_told(self):
        _, socket = self.waiting.popleft()
        assert socket.recv(100).startswith(b":")


def delete_and_wait(queue):
    for _ in range(OPERATIONS):
        queue.lock.client.delete("lock")
        queue.assert_first_is_told()


def let_leases_end(queue):
    for _ in range(OPERATIONS):
        queue.clock.advance(601, turns=3)
        queue.assert_first_is_told()


def release_one_by_one(queue):
    for _ in range(OPERATIONS):
        queue.lock.release(queue.lock.info()["token"])
        queue.assert_first_is_told()


def leave_one_by_one(queue):
    for _ in range(OPERATIONS):
        queue.waiting.pop()[1].close()
    left = len(queue.waiting)
    wait_until(lambda: queue.lock.info()["waiters"] == left, "them to leave")


def release_while_waiting(queue):
    """Tokens from the end of the queue, and tokens that are not in it."""
    for _ in range(OPERATIONS):
        assert queue.lock.release(queue.waiting.pop()[0]) == 0
        assert queue.lock.release("stranger") == 0


def ask_without_wait(queue):
    for i in range(OPERATIONS):
        assert queue.lock.acquire(queue.waiting[-1 - i][0]) is None


def create_other_keys(queue):
    """Blocked clients hang on a key. Nobody knows its name: neither one that the module has had in
    the past nor one that is like it."""
    for i in range(OPERATIONS):
        for key in ("\0dlock: nobody creates this key\0\0", "dlock:{lock}", "{lock}"):
            queue.lock.client.lpush(key, "x")
            queue.lock.client.delete(key)


WORK = [delete_and_wait, let_leases_end, release_one_by_one, leave_one_by_one,
        release_while_waiting, ask_without_wait, create_other_keys]
FEW = (len(WORK) + 1) * OPERATIONS


def costs(server):
    """What the processor spends on each work: the most of two queues of a few, and the least of two
    of many, since a virtual machine counts the time of others now and then."""
    spent = {work: [] for work in WORK}
    for count in (FEW, FEW, 10 * FEW, 10 * FEW):
        Lock(server.observer).acquire("me", 600_000)
        with parked(server, count, key="lock") as sockets:
            queue = Queue(server, sockets)
            for work in WORK:
                with Cpu(server.observer) as cpu:
                    work(queue)
                spent[work].append(cpu.seconds)
        wait_until(lambda: stats(server.observer)["waiters"] == 0, "all to leave", timeout=60)
        server.observer.delete("lock")
    return {work: (max(seconds[:2]), min(seconds[2:])) for work, seconds in spent.items()}


@pytest.fixture(scope="module", params=["one server", "a cluster"])
def measured(request):
    """The costs on a server, and on the only node of a cluster."""
    if request.param == "a cluster":
        return costs(request.getfixturevalue("lonely").nodes[0])
    with running(Server(has_clock=True)) as server:
        return costs(server)


@pytest.mark.parametrize("work", WORK)
def test_the_cost_does_not_depend_on_how_many_wait(measured, work):
    assert_grows_at_most(4, *measured[work])


# -- several names --------------------------------------------------------------------------------

HAND_OVERS = 200


def cpu_of_hand_overs(client, bare, names, count):
    """names(i): those that waiter i wants. All wait by one session, and one after the other is
    served."""
    wanted = [" ".join(names(i)) for i in range(count + 1)]
    size = len(names(0))
    client.execute_command("DLOCK.SESSION", "s" * 16, "PX", A_DAY)
    assert bare.call(f"DLOCK.ACQUIREALL {size} {wanted[0]} waiter:0 PX {A_DAY}").startswith(b":")
    replies = send_all(bare, [f"DLOCK.ACQUIREALL {size} {wanted[i]} waiter:{i} PX {A_DAY} WAIT "
                              f"{A_DAY} VIA {'s' * 16}" for i in range(1, count + 1)])
    assert set(replies) == {b"+QUEUED"}
    with Cpu(client) as cpu:
        replies = send_all(bare, [f"DLOCK.RELEASEALL {size} {wanted[i]} waiter:{i}"
                                  for i in range(HAND_OVERS)])
    assert set(replies) == {b":%d" % size}  # each was served before the next one was asked for
    assert client.flushall()
    client.execute_command("DLOCK.SESSION", "s" * 16, "END")
    wait_until(lambda: stats(client)["waiters"] == stats(client)["held"] == 0, "all to leave")
    return cpu.seconds


@pytest.mark.parametrize("names", [
    lambda i: ("one", "two"), lambda i: ("one", f"own:{i}"), lambda i: (f"own:{i // 2}", "one")],
    ids=["the same", "one of its own", "in pairs"])
def test_serving_several_names_costs_the_same_however_many_wait(client, bare, names):
    few = max(cpu_of_hand_overs(client, bare, names, HAND_OVERS + 50) for _ in range(2))
    many = min(cpu_of_hand_overs(client, bare, names, 9_900) for _ in range(2))
    assert_grows_at_most(4, few, many)
