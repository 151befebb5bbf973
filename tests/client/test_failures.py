"""Servers that are dead, silent, mad or unwilling: each has its own answer, and none hangs."""

import contextlib
import itertools
import socket
import time

import pytest

from support.fake_server import CUT, SILENCE, Cut
from support.libdlock import SERVER_WAIT, SPIN, Background, State, Status
from support.server import free_port, stopped, wait_until
from support.waiting import wait_for_waiters

IO_MS = 100
LONG_IO_MS = 400  # where one answer is lost in silence, and the next must not be late
TCP_REPAIR = 19  # of tcp(7)
WAIT_MS = 20_000
LEASE_MS = 600_000  # longer than any test


@pytest.fixture
def impatient(connect):
    """For servers that do not answer. One that does may be late now and then, so an acquire that
    has to be granted is given WAIT_MS: then the answer has as long."""
    return lambda to, **options: connect(to, **{"io_timeout_ms": IO_MS, **options})


def assert_waits(lock, wait_ms, status):
    """An acquire ends with this status after wait_ms. By how much later: see test_deadlines.py. On
    a busy machine the time may be over before anything was sent: then there is no doubt yet."""
    def has_ended():
        got, took_ms = lock.timed_acquire(wait_ms)
        assert took_ms >= wait_ms, lock.error
        is_unsent = status == Status.IN_DOUBT and got == Status.UNREACHABLE
        assert got == status or is_unsent, lock.error
        return not is_unsent
    wait_until(has_ended, "an acquire that ends as it should")


# -- unreachable ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [0, 150])
def test_a_refused_connection(connect, wait_ms):
    port = free_port()
    lock = connect(f"redis://127.0.0.1:{port}").lock()
    assert_waits(lock, wait_ms, Status.UNREACHABLE)
    assert f"127.0.0.1:{port}" in lock.error and "refused" in lock.error
    assert lock.state == State.FREE


def test_a_host_name_that_does_not_exist(impatient):
    lock = impatient("redis://no-such-host.invalid").lock()
    assert_waits(lock, 50, Status.UNREACHABLE)
    assert "no-such-host.invalid" in lock.error


def test_an_address_that_answers_nothing_at_all(impatient):
    """A listener whose queue is full drops what arrives, as a dead host does."""
    with socket.socket() as full, contextlib.ExitStack() as others:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        lock = impatient(f"redis://127.0.0.1:{full.getsockname()[1]}").lock()
        for wait_ms in 0, 120:
            assert_waits(lock, wait_ms, Status.UNREACHABLE)


def test_a_unix_socket_that_is_not_there(connect, tmp_path):
    lock = connect(f"unix://{tmp_path}/none.sock").lock()
    assert lock.acquire() == Status.UNREACHABLE
    assert "none.sock" in lock.error


def test_a_server_that_comes_back_within_the_wait_is_used(dlock, server):
    lock = dlock.hold()
    lock.release()
    server.kill()
    waiting = Background(lock.acquire, 60_000)
    assert waiting.is_running()
    server.start(server.port)
    assert waiting.result() == Status.OK


def test_a_connection_that_died_while_it_was_idle_is_not_used(dlock, server):
    lock = dlock.lock()
    for _ in range(3):
        assert lock.acquire() == Status.OK
        assert lock.release() == Status.OK
        server.stop()
        server.start(server.port)


# -- silent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [SPIN, SERVER_WAIT])
@pytest.mark.parametrize("wait_ms", [0, 30, 250])
def test_a_server_that_never_answers(impatient, fake_server, mode, wait_ms):
    lock = impatient(fake_server(lambda words: SILENCE), wait_mode=mode).lock()
    assert_waits(lock, wait_ms, Status.IN_DOUBT)
    assert "in time" in lock.error  # the request, or the login of the next connection


def test_a_request_that_no_buffer_holds(connect, fake_server):
    """A thread that is alone reads the reply without polling, but not before all is sent."""
    server = fake_server(lambda words: b":1\r\n")
    lock = connect(server, io_timeout_ms=WAIT_MS).hold("x" * 20_000_000)
    assert lock.release() == Status.OK, lock.error


def test_a_server_that_is_stopped(impatient, server):
    lock = impatient(server).lock()
    wait_until(lambda: lock.acquire(WAIT_MS) == lock.release() == Status.OK, "replies in time")
    with stopped(server):
        assert_waits(lock, 0, Status.IN_DOUBT)
        assert_waits(lock, 150, Status.UNREACHABLE)  # nothing but a PING was sent
    assert lock.acquire(WAIT_MS) == Status.OK


def test_a_server_that_hangs_is_not_sent_the_requests_of_all_callers(impatient, server):
    dlock = impatient(server)
    first = dlock.hold("first", lease_ms=LEASE_MS, wait_ms=WAIT_MS)
    with stopped(server):
        assert first.extend() == Status.IN_DOUBT
        wait_until(lambda: dlock.lock("probe").acquire() == Status.UNREACHABLE, "it to be known")
        before = dlock.stats().commands
        for i in range(50):
            assert dlock.lock(f"lock {i}").acquire() == Status.UNREACHABLE
        assert dlock.stats().commands - before <= 50, "a PING now and then, and no RELEASE"
    dlock.hold("last", lease_ms=LEASE_MS, wait_ms=WAIT_MS)
    wait_until(lambda: set(server.observer.keys()) == {b"first", b"last"}, "nothing arrived late")


def test_a_server_that_was_stopped_for_a_while_is_used_after_that(impatient, server):
    dlock = impatient(server)
    holder, lock = dlock.hold(wait_ms=WAIT_MS), dlock.lock()
    waiting = Background(lock.acquire, WAIT_MS)
    client = server.client()
    wait_for_waiters(client, 1)
    with stopped(server):
        assert holder.release() == Status.IN_DOUBT
    assert waiting.result() == Status.OK


def test_a_half_open_connection(connect):
    """The other end has forgotten the connection without a word, as after a power cut."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        lock = connect(f"redis://127.0.0.1:{listener.getsockname()[1]}").lock(lease_ms=LEASE_MS)
        acquiring = Background(lock.acquire)
        first, _ = listener.accept()
        first.recv(1000)
        first.sendall(b":1\r\n")
        assert acquiring.result() == Status.OK
        try:
            first.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        except PermissionError:
            pytest.skip("only root may make a half-open connection")
        first.close()
        releasing = Background(lock.release)
        second, _ = listener.accept()
        second.recv(1000)
        second.sendall(b":1\r\n")
        assert releasing.result() == Status.OK
        second.close()


def test_a_release_at_a_silent_server_has_a_budget_of_its_own(impatient, server):
    lock = impatient(server).lock(lease_ms=600_000)
    client = server.client()
    assert lock.acquire(WAIT_MS) == Status.OK
    with stopped(server):
        assert lock.release() == Status.IN_DOUBT
        assert lock.state == State.FREE
    wait_until(lambda: not client.exists("lock"), "the release in the background")


def test_extend_at_a_silent_server_leaves_the_lock_as_it_was(impatient, server):
    lock = impatient(server).hold(wait_ms=WAIT_MS)
    with stopped(server):
        assert lock.extend(60_000) == Status.IN_DOUBT
        assert lock.state == State.HELD
        assert lock.remaining_ms < 10_000


# -- lost replies ---------------------------------------------------------------------------------


class Holder:
    """Answers as the module does for one lock, except that the n-th reply is lost somehow, or the
    first one to a command."""

    def __init__(self, spoil):
        self.spoil = dict(spoil)  # {number or command: what to do instead of answering}
        self.count = 0
        self.token = None
        self.grants = []

    def __call__(self, words):
        self.count += 1
        reply = self._apply(words)
        action = self.spoil.pop(words[0], self.spoil.get(self.count, reply))
        return action(reply) if callable(action) else action

    def _apply(self, words):
        if words[0] == b"DLOCK.ACQUIRE":
            if self.token not in (None, words[2]):
                return b"$-1\r\n"
            if self.token is None:
                self.grants.append(words[2])
            self.token = words[2]
            return b":%d\r\n" % len(self.grants)
        is_holder = self.token == words[2]
        if words[0] == b"DLOCK.RELEASE" and is_holder:
            self.token = None
        return b":%d\r\n" % is_holder


HOW_TO_LOSE = {
    "before the answer": CUT,
    "in the middle of the answer": lambda reply: Cut(reply[:2]),
    "one byte before its end": lambda reply: Cut(reply[:-1]),
    "silence": SILENCE,
}


@pytest.fixture
def told(connect):
    """told(how, to): a client of a server that loses some answers, and gives others."""
    return lambda how, to, **options: connect(
        to, **({"io_timeout_ms": LONG_IO_MS} if how == "silence" else {}), **options)


@pytest.mark.parametrize("how", HOW_TO_LOSE)
def test_a_lost_grant_is_asked_for_again_with_the_same_token(told, fake_server, how):
    holder = Holder({1: HOW_TO_LOSE[how]})
    lock = told(how, fake_server(holder), wait_mode=SPIN).hold(wait_ms=WAIT_MS)
    assert holder.grants == [lock.token]
    assert lock.fence == 1
    assert lock.timings.attempts == 2 or how == "silence"  # then another reply may be late as well


@pytest.mark.parametrize("how", HOW_TO_LOSE)
def test_a_lost_grant_of_a_single_try_is_in_doubt_and_withdrawn(told, fake_server, how):
    holder = Holder({1: HOW_TO_LOSE[how]})
    lock = told(how, fake_server(holder)).lock()
    assert_waits(lock, 0, Status.IN_DOUBT)
    assert lock.state == State.FREE
    wait_until(lambda: holder.count >= 2, "the withdrawal")
    wait_until(lambda: holder.token is None, "the lock to be free")


def test_a_grant_that_is_cut_after_the_answer_is_a_grant(connect, fake_server):
    holder = Holder({1: lambda reply: Cut(reply)})
    lock = connect(fake_server(holder)).hold()
    assert lock.release() == Status.OK
    assert holder.token is None


@pytest.mark.parametrize("how", HOW_TO_LOSE)
def test_a_withdrawal_is_tried_until_it_is_answered(told, fake_server, how):
    holder = Holder({number: HOW_TO_LOSE[how] for number in range(1, 5)})
    server = fake_server(holder)
    assert_waits(told(how, server).lock(lease_ms=600_000), 0, Status.IN_DOUBT)
    wait_until(lambda: holder.token is None and holder.count >= 5, "the withdrawal")
    releases = len(server.asked("DLOCK.RELEASE"))
    assert 4 <= releases <= (16 if how == "silence" else 4)  # silent connections are told as well


def test_a_withdrawal_ends_with_the_lease(impatient, fake_server):
    """The withdrawal of another lock goes on: so often this one would have been tried, too."""
    server = fake_server(lambda words: SILENCE)
    dlock = impatient(server)
    assert_waits(dlock.lock("brief", lease_ms=2500), 0, Status.IN_DOUBT)
    begin = time.monotonic()
    wait_until(lambda: time.monotonic() > begin + 3, "a moment past the lease")

    def releases(name):
        return [words for words in server.asked("DLOCK.RELEASE") if words[1] == name]
    count = len(releases(b"brief"))
    assert_waits(dlock.lock("lasting", lease_ms=600_000), 0, Status.IN_DOUBT)
    wait_until(lambda: len(releases(b"lasting")) >= 4, "the other withdrawal")
    assert len(releases(b"brief")) == count >= 1


@pytest.mark.parametrize("how", ["before the answer", "in the middle of the answer"])
def test_a_release_whose_answer_is_lost_is_repeated(connect, fake_server, how):
    holder = Holder({b"DLOCK.RELEASE": HOW_TO_LOSE[how]})
    server = fake_server(holder)
    lock = connect(server).hold()
    assert lock.release() == Status.OK
    assert len(server.asked("DLOCK.RELEASE")) == 2


@pytest.mark.parametrize("how", ["before the answer", "in the middle of the answer"])
def test_an_extension_whose_answer_is_lost_is_repeated(connect, fake_server, how):
    holder = Holder({b"DLOCK.EXTEND": HOW_TO_LOSE[how]})
    server = fake_server(holder)
    lock = connect(server).hold(lease_ms=10_000)
    assert lock.extend(LEASE_MS) == Status.OK, lock.error
    assert lock.remaining_ms > 10_000
    assert len(server.asked("DLOCK.EXTEND")) == 2


def test_a_release_that_is_not_answered_goes_on_in_the_background(impatient, fake_server):
    holder = Holder({b"DLOCK.RELEASE": SILENCE})
    server = fake_server(holder)
    lock = impatient(server).hold(wait_ms=WAIT_MS)
    assert lock.release() == Status.IN_DOUBT
    wait_until(lambda: len(server.asked("DLOCK.RELEASE")) >= 2, "the second release")


def test_freeing_the_client_gives_withdrawals_a_last_chance(fake_server):
    from support.libdlock import Client
    holder = Holder({1: SILENCE})
    server = fake_server(holder)
    client = Client(server.url, io_timeout_ms=LONG_IO_MS)
    assert_waits(client.lock(), 0, Status.IN_DOUBT)
    client.free()
    assert holder.token is None


def test_a_lost_answer_and_then_a_no_is_a_no_and_is_withdrawn(connect, fake_server):
    """Somebody else got it, but our first request may still be on its way."""
    answers = itertools.chain([CUT], itertools.repeat(b"$-1\r\n"))
    server = fake_server(
        lambda words: next(answers) if words[0] == b"DLOCK.ACQUIRE" else b":0\r\n")
    lock = connect(server, wait_mode=SPIN).lock()
    assert lock.acquire(3000) == Status.TIMEOUT
    wait_until(lambda: server.asked("DLOCK.RELEASE"), "the withdrawal")


# -- answers that are no answers ------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x01\x02\x03\r\n", b"$zz\r\n", b"*-7\r\n",
    b"+OK\r\n", b":0\r\n", b":-5\r\n", b"$3\r\nabc\r\n", b"*1\r\n:1\r\n"])
def test_garbage_is_not_a_lock(connect, fake_server, garbage):
    lock = connect(fake_server(lambda words: garbage)).lock()
    assert lock.acquire(WAIT_MS) == Status.PROTOCOL
    assert lock.error
    assert lock.state == State.FREE


def test_a_server_without_the_module(connect, start_server):
    dlock = connect(start_server(module=None))
    lock = dlock.lock()
    status, took_ms = lock.timed_acquire(WAIT_MS)
    assert status == Status.NO_MODULE
    assert "unknown command" in lock.error
    assert took_ms < WAIT_MS
    assert dlock.ping() == Status.NO_MODULE


@pytest.mark.parametrize("error, status", [
    ("NOAUTH Authentication required.", Status.REFUSED),
    ("NOPERM this user has no permissions", Status.REFUSED),
    ("OOM command not allowed when used memory > 'maxmemory'.", Status.REFUSED),
    ("MISCONF Redis is configured to save RDB snapshots", Status.REFUSED),
    ("WRONGTYPE Operation against a key", Status.INVALID),
    ("QUEUEFULL too many clients wait", Status.QUEUE_FULL),
    ("ERR unknown command 'DLOCK.ACQUIRE'", Status.NO_MODULE),
    ("EH what is this", Status.PROTOCOL)])
def test_an_error_that_stays_ends_the_wait_at_once(connect, fake_server, error, status):
    lock = connect(fake_server(lambda words: f"-{error}\r\n".encode())).lock()
    got, took_ms = lock.timed_acquire(WAIT_MS)
    assert got == status
    assert error in lock.error
    assert lock.timings.attempts == 1 and took_ms < WAIT_MS


@pytest.mark.parametrize("error", [
    "LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.",
    "READONLY You can't write against a read only replica.", "MASTERDOWN Link with MASTER is down",
    "UNBLOCKED force unblock from blocking operation", "TRYAGAIN the slot of this lock is moving",
    "CLUSTERDOWN The cluster is down", "ERR max number of clients reached",
    "NOREPLICAS Not enough good replicas to write."])
def test_an_error_that_passes_is_waited_for(connect, fake_server, error):
    answers = iter([f"-{error}\r\n".encode()] * 3)
    lock = connect(fake_server(lambda words: next(answers, b":1\r\n"))).lock()
    assert lock.acquire() == Status.REFUSED
    assert error in lock.error
    assert lock.acquire(WAIT_MS) == Status.OK
    assert lock.timings.attempts == 3


def test_a_wait_goes_on_until_the_server_has_enough_replicas(connect, start_server, start_replica):
    """A new master has none until a replica has synchronised."""
    server = start_server("--min-replicas-to-write", "1")
    lock = connect(server).lock()
    assert lock.acquire() == Status.REFUSED
    assert "NOREPLICAS" in lock.error
    waiting = Background(lock.acquire, 60_000)
    start_replica(server)
    assert waiting.result() == Status.OK


def test_a_script_that_keeps_the_server_busy(connect, start_server):
    server = start_server("--busy-reply-threshold", "10")
    dlock = connect(server)
    runner = server.connect(socket_timeout=None)
    running = Background(_ignore_errors, runner.eval, "while true do end", 0)
    probe = server.client()

    def is_busy():
        try:
            probe.ping()
            return False
        except Exception as error:
            return "BUSY" in str(error) or "busy" in str(error)

    wait_until(is_busy, "a busy server")
    lock = dlock.lock()
    assert_waits(lock, 100, Status.REFUSED)
    assert "BUSY" in lock.error
    waiting = Background(lock.acquire, 20_000)
    probe.script_kill()
    assert waiting.result() == Status.OK
    running.result()


def _ignore_errors(function, *arguments):
    with contextlib.suppress(Exception):
        function(*arguments)


def test_a_read_only_replica_refuses(connect, server, start_replica):
    replica = start_replica(server)
    lock = connect(replica).lock()
    assert lock.acquire() == Status.REFUSED
    assert "READONLY" in lock.error


def test_a_user_who_may_not(connect, server):
    server.client().execute_command("ACL", "SETUSER", "eve", "on", ">pw", "~lock:*",
                                    "+dlock.acquire")
    lock = connect(f"redis://eve:pw@127.0.0.1:{server.port}").lock("other")
    assert lock.acquire(5000) == Status.REFUSED
    assert "NOPERM" in lock.error


def test_a_wrong_password(connect, server):
    server.client().config_set("requirepass", "se/cret")
    for url, status in [("redis://127.0.0.1", Status.REFUSED),
                        ("redis://:wrong@127.0.0.1", Status.REFUSED),
                        ("redis://nobody:wrong@127.0.0.1", Status.REFUSED),
                        ("redis://:se%2Fcret@127.0.0.1", Status.OK),
                        ("redis://default:se%2Fcret@127.0.0.1", Status.OK)]:
        lock = connect(f"{url}:{server.port}").lock()
        assert lock.acquire(2000) == status, lock.error
        assert "wrong" not in lock.error and "cret" not in lock.error
        if status == Status.OK:
            lock.release()


# -- connections ----------------------------------------------------------------------------------


def test_who_waits_for_a_lock_does_not_keep_the_holder_from_releasing_it(connect, server):
    dlock = connect(server)
    holder = dlock.hold()
    waiting = [Background(_take_and_give_once, dlock.lock()) for _ in range(6)]
    client = server.client()
    wait_for_waiters(client, 6)
    assert holder.extend() == Status.OK
    assert holder.release() == Status.OK
    assert all(call.result() for call in waiting)


def _take_and_give_once(lock):
    return lock.acquire(20_000) == Status.OK and lock.release() == Status.OK


def test_threads_share_one_connection_for_short_commands(connect, server):
    dlock = connect(server)
    locks = [dlock.lock(f"name {i}") for i in range(20)]
    calls = [Background(_take_and_give, lock) for lock in locks]
    assert all(call.result() for call in calls)
    ours = [c for c in server.client().client_list() if c["cmd"].startswith("dlock")]
    assert len(ours) == 1


def _take_and_give(lock):
    return all(lock.acquire() == Status.OK and lock.release() == Status.OK for _ in range(20))


# -- ways to connect ------------------------------------------------------------------------------


def test_a_unix_socket_with_a_database(connect, start_server, tmp_path):
    path = tmp_path / "s p.sock"
    server = start_server("--unixsocket", path)
    connect(f"unix://{str(path).replace(' ', '%20')}?db=3").hold("u")
    assert server.client(db=3).exists("u")


def test_a_database(connect, server):
    assert connect(f"redis://127.0.0.1:{server.port}/5").lock("d").acquire() == Status.OK
    assert server.client(db=5).exists("d")


def test_a_database_that_is_not_there_is_a_callers_mistake(connect, server):
    lock = connect(f"redis://127.0.0.1:{server.port}/5000").lock("d")
    assert lock.acquire(1000) == Status.INVALID
    assert "DB index" in lock.error
    assert not server.client().exists("d")


def test_ipv6(connect, start_server):
    server = start_server("--bind", "127.0.0.1", "::1")
    assert connect(f"redis://[::1]:{server.port}").lock().acquire() == Status.OK


def test_a_name_with_several_addresses(connect, server):
    """localhost is ::1 and 127.0.0.1 on most machines, and the server listens on one."""
    try:
        socket.getaddrinfo("localhost", None)
    except OSError:
        pytest.skip("localhost has no address here")
    connect(f"redis://localhost:{server.port}").hold()
