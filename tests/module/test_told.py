"""A waiter was told that it holds the lock, or it does not hold it.

What comes between a grant and its answer: CLIENT UNBLOCK, CLIENT KILL, a user who is deleted, a
connection that closes, a wait or a lease that ends. In the same turn of the event loop, or in the
next one, where servers differ most."""

import socket
import subprocess
import sys
import time

import pytest

from support.commands import Lock, stats
from support.server import is_readable, stopped, wait_until
from support.turn import Bare, in_one_turn, in_two_turns, sleep_then
from support.waiting import A_DAY, let_turn, queue_up, wait_for_waiters

RELEASE = ("DLOCK.RELEASE", "lock", "me")
CLOSED, NULL, PONG = b"", b"$-1", b"+PONG"
ANYTHING = ["fence", "null", "error", "closed"]


class BareWaiter(Bare):
    """A waiter whose connection is read line by line."""

    def __init__(self, server, token, lease_ms=600_000, wait_ms=A_DAY, key="lock", user=None):
        super().__init__(server)
        self.server = server
        server.keep(self)
        if user is not None:
            assert self.call(f"AUTH {user} x") == b"+OK"
        self.id = int(self.call("CLIENT ID")[1:])
        before = (Lock(server.observer, key).info() or {}).get("waiters", 0)
        self.send(f"DLOCK.ACQUIRE {key} {token} PX {lease_ms} WAIT {wait_ms}")
        wait_until(lambda: Lock(server.observer, key).info()["waiters"] == before + 1, "the waiter")

    def answer(self):
        """The only line of it; b"" when the connection was closed without one."""
        try:
            return self.read()[0]
        except ConnectionError:
            return CLOSED

    def is_answered(self):
        let_turn(self.server)
        return is_readable(self.socket, 0)


@pytest.fixture
def held(lock):
    lock.acquire("me", 600_000)
    lock.client.execute_command("ACL", "SETUSER", "bob", "on", "nopass", "~*", "+@all")
    return lock


def assert_holds(lock, second):
    """The second waiter has it; else its answer never comes."""
    assert int(second.answer()[1:]) == lock.info()["fence"]
    assert lock.info()["token"] == b"second"


def assert_one_truth(lock, first, second, answers):
    """Whichever of these the first waiter is told: it is true, there is no second answer, and who
    is not told a fence does not hold the lock, so that the next one does."""
    answer = first.answer()
    kind = {b":": "fence", b"$": "null", b"-": "error", b"": "closed"}[answer[:1]]
    assert kind in answers, answer
    if kind != "closed":
        assert first.call("PING") in (PONG, CLOSED), "two answers"
    if kind == "fence":
        assert not second.is_answered(), "two holders"
        assert (lock.info()["token"], lock.info()["fence"]) == (b"first", int(answer[1:]))
    else:
        assert_holds(lock, second)
    return kind


# -- in the turn of the grant ---------------------------------------------------------------------


# What comes between the grant and its answer, what the waiter is told if that is in the same turn,
# and what it may be told if it is in the next one, which depends on the server. The core closes
# the connection of a user who is deleted a little later, but does not answer it any more.
BETWEEN = {
    "CLIENT UNBLOCK": (
        lambda waiter: ("CLIENT", "UNBLOCK", waiter.id, "TIMEOUT"), "null", ANYTHING),
    "CLIENT UNBLOCK ERROR": (
        lambda waiter: ("CLIENT", "UNBLOCK", waiter.id, "ERROR"), "error", ANYTHING),
    "CLIENT KILL": (
        lambda waiter: ("CLIENT", "KILL", "ID", waiter.id), "closed", ["fence", "closed"]),
    "the end of its user": (
        lambda waiter: ("ACL", "DELUSER", "bob"), "closed", ["fence", "closed"]),
}
EVERY_EVENT = pytest.mark.parametrize("event, told, told_later", BETWEEN.values(),
                                      ids=BETWEEN.keys())


@pytest.mark.parametrize("order", [1, -1], ids=["release first", "release last"])
@EVERY_EVENT
def test_a_waiter_keeps_nothing_if_this_comes_in_the_turn_of_its_grant(
        server, held, event, told, told_later, order):
    first, second = BareWaiter(server, "first", user="bob"), BareWaiter(server, "second")
    in_one_turn(held.client, *[RELEASE, event(first)][::order])
    assert_one_truth(held, first, second, [told])


def test_the_last_waiter_that_is_unblocked_in_the_turn_of_its_grant_leaves_it_free(server, held):
    waiter = BareWaiter(server, "waiter")
    in_one_turn(held.client, RELEASE, ("CLIENT", "UNBLOCK", waiter.id, "TIMEOUT"))
    assert waiter.answer() == NULL
    wait_until(lambda: held.info() is None, "the lock to be taken back")


# -- in the turn after the grant ------------------------------------------------------------------


@EVERY_EVENT
def test_a_waiter_hears_the_truth_if_this_comes_in_the_turn_after_its_grant(
        server, held, event, told, told_later):
    first, second = BareWaiter(server, "first", user="bob"), BareWaiter(server, "second")
    in_two_turns(server, RELEASE, event(first))
    assert_one_truth(held, first, second, told_later)


# -- who was told keeps the lock ------------------------------------------------------------------

CLOSERS = """
import select, socket, sys
port, count = map(int, sys.argv[1:])
poll, waiting = select.epoll(), {}
for i in range(count):
    bare = socket.create_connection(("127.0.0.1", port))
    bare.sendall(b"DLOCK.ACQUIRE lock:%d waiter PX 600000 WAIT 60000\\r\\n" % i)
    poll.register(bare, select.EPOLLIN)
    waiting[bare.fileno()] = bare
told = 0
while waiting:
    for fd, _ in poll.poll():
        with waiting.pop(fd) as bare:
            poll.unregister(fd)
            told += bare.recv(100).startswith(b":")
print(told)
"""


def test_clients_that_close_their_connection_once_they_are_told_keep_the_lock(server, client):
    """One connection for each command, as redis-cli does it."""
    count = 300
    connections = len(client.client_list())
    locks = [Lock(client, f"lock:{i}") for i in range(count)]
    for lock in locks:
        lock.acquire("me", 600_000)
    with subprocess.Popen([sys.executable, "-c", CLOSERS, str(server.port), str(count)],
                          stdout=subprocess.PIPE) as closers:
        try:
            wait_for_waiters(client, count)
            pipe = client.pipeline(transaction=False)
            for lock in locks:
                pipe.execute_command("DLOCK.RELEASE", lock.key, "me")
            pipe.execute()
            told = int(closers.stdout.read())
        finally:
            closers.kill()
    assert told == count
    wait_until(lambda: len(client.client_list()) == connections, "the connections to end")
    assert sum(lock.info() is not None for lock in locks) == count


# -- who cannot be told does not get the lock -----------------------------------------------------


def io_threads(client):
    """Options for a server that lets threads read and write, as far as it has them."""
    options = {"--io-threads": "4", "--io-threads-do-reads": "yes", "--events-per-io-thread": "0",
               "--io-threads-always-active": "yes"}
    known = {f"--{name}" for name in client.config_get("*")}
    return [word for name, value in options.items() if name in known for word in (name, value)]


@pytest.mark.parametrize("has_threads", [False, True], ids=["one thread", "io-threads"])
def test_a_waiter_that_closes_before_the_server_can_answer_keeps_nothing(
        server, start_server, has_threads):
    """A slow command follows the release in the same turn, and the waiter dies meanwhile."""
    busy = start_server(*io_threads(server.client())) if has_threads else server
    others = [Bare(busy) for _ in range(20)]
    for i in range(2):
        lock = Lock(busy.observer, f"lock:{i}")
        lock.acquire("me", 600_000)
        first = BareWaiter(busy, "first", key=lock.key)
        second = BareWaiter(busy, "second", key=lock.key)
        slow = Bare(busy)
        slow.send(f"DLOCK.RELEASE {lock.key} me", "DEBUG SLEEP 600")
        busy.clock.wait_until_asleep()
        first.close()
        for other in others:
            other.send("PING")
        time.sleep(0.1)  # not for luck: the turn is a long one, which may hide a closed connection
        busy.clock.turn()
        assert slow.read(2) == [b":1", b"+OK"]
        assert_holds(lock, second)
        for other in others:
            assert other.read() == [PONG]


@pytest.mark.parametrize("has_threads", [False, True], ids=["one thread", "io-threads"])
def test_a_waiter_whose_wait_is_over_is_not_granted_the_lock(server, start_server, has_threads):
    """The server was busy when the wait ended, and the client gave up. Then comes the release."""
    busy = start_server(*io_threads(server.client())) if has_threads else server
    lock = Lock(busy.observer)
    lock.acquire("me", 600_000)
    first, second = BareWaiter(busy, "first", wait_ms=60_000), BareWaiter(busy, "second")
    assert sleep_then(busy, 61, "DLOCK.RELEASE lock me", other=first) == [b":1"]
    assert_holds(lock, second)


def test_a_waiter_whose_wait_is_over_is_told_null_also_when_a_release_comes_first(server, held):
    waiter = BareWaiter(server, "waiter", wait_ms=60_000)
    assert sleep_then(server, 61, "DLOCK.RELEASE lock me") == [b":1"]
    assert waiter.answer() == NULL
    assert waiter.call("PING") == PONG, "two answers"
    assert stats(server.observer)["wait_timeouts"] == 1
    assert held.info() is None


def test_a_grant_whose_lease_ended_before_it_could_be_told_is_answered_with_null(server, held):
    first, second = BareWaiter(server, "first", lease_ms=1), BareWaiter(server, "second")
    slow = Bare(server)
    slow.send("DLOCK.RELEASE lock me", "DEBUG SLEEP 0.01")
    assert slow.read(2) == [b":1", b"+OK"]
    assert first.answer() == NULL
    assert_holds(held, second)


def test_a_connection_that_was_reset_while_the_server_was_stopped_keeps_nothing(server, held):
    first, second = BareWaiter(server, "first"), BareWaiter(server, "second")
    releaser = Bare(server)
    with stopped(server):
        first.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        first.close()
        releaser.send("DLOCK.RELEASE lock me")
    assert releaser.read() == [b":1"]
    assert_holds(held, second)


# -- WAIT of Redis, behind a grant ----------------------------------------------------------------


def by_release(holder, lock, waiter):
    lock.release("holder")


def by_del(holder, lock, waiter):
    lock.client.delete("lock")


def by_session_end(holder, lock, waiter):
    holder.close()


def by_unblock_in_the_turn_of_the_grant(holder, lock, waiter):
    in_one_turn(lock.client, ("DLOCK.RELEASE", "lock", "holder"), ("CLIENT", "UNBLOCK", waiter.id))


@pytest.mark.parametrize("end", [by_release, by_del, by_session_end,
                                 by_unblock_in_the_turn_of_the_grant])
def test_a_grant_is_acknowledged_by_no_replica_that_has_not_seen_it(
        server, lock, start_replica, end):
    """WAIT counts replicas up to the last write of its connection: that is the grant."""
    replica = start_replica(server)
    holder = Bare(server)
    holder.call("DLOCK.ACQUIRE lock holder PX 600000 SESSION")
    waiter = BareWaiter(server, "waiter")
    assert lock.client.wait(1, 10_000) == 1
    with stopped(replica):
        end(holder, lock, waiter)
        answer = waiter.answer()
        if answer.startswith(b":"):
            assert waiter.call("WAIT 1 50") == b":0"
        else:
            assert (answer, end) == (NULL, by_unblock_in_the_turn_of_the_grant)


def test_a_lease_that_ends_is_acknowledged_by_no_replica_that_has_not_seen_its_grant(
        server, lock, start_replica):
    replica = start_replica(server)
    lock.acquire("holder", 60_000)
    waiter = BareWaiter(server, "waiter")
    lock.client.wait(1, 10_000)
    with stopped(replica):
        server.clock.advance(61)
        assert waiter.answer().startswith(b":")
        assert waiter.call("WAIT 1 50") == b":0"


def test_a_wait_for_replicas_may_follow_a_wait_for_the_lock_at_once(server, held, start_replica):
    """Both are sent together."""
    replica = start_replica(server)
    waiter = BareWaiter(server, "waiter")
    waiter.send("WAIT 1 50")
    assert held.client.wait(1, 10_000) == 1
    with stopped(replica):
        held.release("me")
        assert waiter.answer().startswith(b":")
        assert waiter.read() == [b":0"]


def test_waiters_that_are_told_are_counted_once(server, held):
    queue_up(server, ["first", "second"])
    held.release("me")
    held.release("first")
    assert stats(held.client)["handed_over"] == 2


@pytest.mark.parametrize("options", [(), ("--rename-command", "CLIENT", "")],
                         ids=["", "where CLIENT is renamed"])
def test_a_waiter_that_quits_behind_its_acquire_was_told(start_server, options):
    """Redis sends both replies and then closes the connection, in the turn of the grant."""
    server = start_server(*options)
    held = Lock(server.client())
    held.acquire("me", 600_000)
    waiter = Bare(server)
    server.keep(waiter)
    waiter.send("DLOCK.ACQUIRE lock first PX 600000 WAIT 600000", "QUIT")
    wait_for_waiters(server.observer, 1)
    held.release("me")
    answer, goodbye = waiter.read(2)
    assert goodbye == b"+OK"
    assert (held.info()["token"], held.info()["fence"]) == (b"first", int(answer[1:]))
    assert stats(server.observer)["session_releases"] == 0
