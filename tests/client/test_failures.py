"""Servers that are dead, silent, mad or unwilling: each has its own answer, and none hangs."""

import contextlib
import os
import signal
import socket
import time

import pytest

from support.fake_server import CUT, SILENCE, Cut
from support.libdlock import SERVER_WAIT, SPIN, Background, State, Status
from support.server import free_port, wait_until

IO_MS = 100
TCP_REPAIR = 19  # of tcp(7)
SLACK_MS = 60  # of a busy machine


def within(took_ms, wait_ms, io_timeouts=1):
    return took_ms <= wait_ms + io_timeouts * IO_MS + SLACK_MS


@pytest.fixture
def patient(connect):
    return lambda to, **options: connect(to, io_timeout_ms=IO_MS, **options)


# -- unreachable ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [0, 150])
def test_a_refused_connection(patient, wait_ms):
    port = free_port()
    lock = patient(f"redis://127.0.0.1:{port}").lock()
    status, took_ms = lock.timed_acquire(wait_ms)
    assert status == Status.UNREACHABLE
    assert f"127.0.0.1:{port}" in lock.error and "refused" in lock.error
    assert wait_ms <= took_ms and within(took_ms, wait_ms)
    assert lock.state == State.FREE


def test_a_host_name_that_does_not_exist(patient):
    lock = patient("redis://no-such-host.invalid").lock()
    status, took_ms = lock.timed_acquire(50)
    assert status == Status.UNREACHABLE
    assert "no-such-host.invalid" in lock.error
    assert within(took_ms, 50)


def test_an_address_that_answers_nothing_at_all(patient):
    """A listener whose queue is full drops what arrives, as a dead host does."""
    with socket.socket() as full, contextlib.ExitStack() as others:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        lock = patient(f"redis://127.0.0.1:{full.getsockname()[1]}").lock()
        for wait_ms in 0, 120:
            status, took_ms = lock.timed_acquire(wait_ms)
            assert status == Status.UNREACHABLE, lock.error
            assert within(took_ms, wait_ms)


def test_a_unix_socket_that_is_not_there(patient, tmp_path):
    lock = patient(f"unix://{tmp_path}/none.sock").lock()
    assert lock.acquire() == Status.UNREACHABLE
    assert "none.sock" in lock.error


def test_a_server_that_comes_back_within_the_wait_is_used(patient, server):
    dlock = patient(server)
    lock = dlock.lock()
    lock.acquire()
    lock.release()
    port = server.port
    server.kill()
    waiting = Background(lock.acquire, 20_000)
    assert waiting.is_running()
    server.start(port)
    assert waiting.result() == Status.OK


def test_a_connection_that_died_while_it_was_idle_is_not_used(patient, server):
    lock = patient(server).lock()
    for _ in range(3):
        assert lock.acquire() == Status.OK
        assert lock.release() == Status.OK
        server.stop()
        server.start(server.port)


# -- silent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [SPIN, SERVER_WAIT])
@pytest.mark.parametrize("wait_ms", [0, 30, 250])
def test_a_server_that_never_answers(patient, fake_server, mode, wait_ms):
    lock = patient(fake_server(lambda words: SILENCE), wait_mode=mode).lock()
    status, took_ms = lock.timed_acquire(wait_ms)
    assert status == Status.IN_DOUBT
    assert "no answer in time" in lock.error
    assert within(took_ms, wait_ms)


def test_a_server_that_is_stopped(patient, server):
    lock = patient(server).lock()
    lock.acquire()
    lock.release()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for wait_ms in 0, 150:
            status, took_ms = lock.timed_acquire(wait_ms)
            assert status == Status.IN_DOUBT
            assert within(took_ms, wait_ms)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert lock.acquire(5000) == Status.OK


def test_a_server_that_was_stopped_for_a_while_is_used_after_that(patient, server):
    dlock = patient(server)
    holder, lock = dlock.lock(), dlock.lock()
    holder.acquire()
    waiting = Background(lock.acquire, 20_000)
    client = server.client()
    wait_until(lambda: client.info("dlock")["dlock_waiters"] == 1, "the waiter")
    os.kill(server.pid, signal.SIGSTOP)
    releasing = Background(holder.release)
    assert releasing.result() == Status.IN_DOUBT
    os.kill(server.pid, signal.SIGCONT)
    assert waiting.result() == Status.OK


def test_a_half_open_connection(patient):
    """The other end has forgotten the connection without a word, as after a power cut."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        lock = patient(f"redis://127.0.0.1:{listener.getsockname()[1]}").lock()
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


def test_a_release_at_a_silent_server_has_a_budget_of_its_own(patient, server):
    lock = patient(server).lock()
    lock.acquire()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        assert lock.release() == Status.IN_DOUBT
        assert within((time.monotonic() - begin) * 1000, 0)
        assert lock.state == State.FREE
    finally:
        os.kill(server.pid, signal.SIGCONT)
    client = server.client()
    wait_until(lambda: not client.exists("lock"), "the release in the background", timeout=5)


def test_extend_at_a_silent_server_leaves_the_lock_as_it_was(patient, server):
    lock = patient(server).lock()
    lock.acquire()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert lock.extend(60_000) == Status.IN_DOUBT
        assert lock.state == State.HELD
        assert lock.remaining_ms < 10_000
    finally:
        os.kill(server.pid, signal.SIGCONT)


# -- lost replies ---------------------------------------------------------------------------------


class Holder:
    """Answers as the module does for one lock, except that the n-th reply is lost somehow."""

    def __init__(self, spoil):
        self.spoil = dict(spoil)  # {number of the request: what to do instead of answering}
        self.count = 0
        self.token = None
        self.grants = []

    def __call__(self, words):
        self.count += 1
        reply = self._apply(words)
        action = self.spoil.get(self.count, reply)
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


@pytest.mark.parametrize("how", HOW_TO_LOSE)
def test_a_lost_grant_is_asked_for_again_with_the_same_token(patient, fake_server, how):
    holder = Holder({1: HOW_TO_LOSE[how]})
    lock = patient(fake_server(holder), wait_mode=SPIN).lock()
    assert lock.acquire(5000) == Status.OK
    assert holder.grants == [lock.token]
    assert lock.fence == 1
    assert lock.timings.attempts == 2


@pytest.mark.parametrize("how", HOW_TO_LOSE)
def test_a_lost_grant_of_a_single_try_is_in_doubt_and_withdrawn(patient, fake_server, how):
    holder = Holder({1: HOW_TO_LOSE[how]})
    lock = patient(fake_server(holder)).lock()
    assert lock.acquire() == Status.IN_DOUBT
    assert lock.state == State.FREE
    wait_until(lambda: holder.count >= 2, "the withdrawal")
    wait_until(lambda: holder.token is None, "the lock to be free")


def test_a_grant_that_is_cut_after_the_answer_is_a_grant(patient, fake_server):
    holder = Holder({1: lambda reply: Cut(reply)})
    lock = patient(fake_server(holder)).lock()
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.OK
    assert holder.token is None


@pytest.mark.parametrize("how", HOW_TO_LOSE)
def test_a_withdrawal_is_tried_until_it_is_answered(patient, fake_server, how):
    holder = Holder({number: HOW_TO_LOSE[how] for number in range(1, 5)})
    server = fake_server(holder)
    assert patient(server).lock().acquire() == Status.IN_DOUBT
    wait_until(lambda: holder.token is None and holder.count >= 5, "the withdrawal")
    assert len(server.asked("DLOCK.RELEASE")) == 4


def test_a_withdrawal_ends_with_the_lease(patient, fake_server):
    server = fake_server(lambda words: SILENCE)
    assert patient(server).lock(lease_ms=300).acquire() == Status.IN_DOUBT
    time.sleep(1.0)  # well past the lease
    count = len(server.asked("DLOCK.RELEASE"))
    assert 1 <= count <= 4
    time.sleep(0.5)
    assert len(server.asked("DLOCK.RELEASE")) == count


@pytest.mark.parametrize("how", ["before the answer", "in the middle of the answer"])
def test_a_release_whose_answer_is_lost_is_repeated(patient, fake_server, how):
    holder = Holder({2: HOW_TO_LOSE[how]})
    server = fake_server(holder)
    lock = patient(server).lock()
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.OK
    assert len(server.asked("DLOCK.RELEASE")) == 2


def test_a_release_that_is_not_answered_goes_on_in_the_background(patient, fake_server):
    holder = Holder({2: SILENCE})
    server = fake_server(holder)
    lock = patient(server).lock()
    lock.acquire()
    assert lock.release() == Status.IN_DOUBT
    wait_until(lambda: len(server.asked("DLOCK.RELEASE")) == 2, "the second release")


def test_a_token_of_ones_own_choice_is_not_withdrawn_later(patient, fake_server):
    """It may be in use again by then."""
    holder = Holder({1: SILENCE, 3: SILENCE})
    server = fake_server(holder)
    lock = patient(server).lock(token="mine")
    assert lock.acquire() == Status.IN_DOUBT
    assert lock.acquire() == Status.OK
    assert lock.release() == Status.IN_DOUBT
    assert lock.acquire() == Status.OK
    time.sleep(0.5)  # more than the first withdrawals would take
    assert len(server.asked("DLOCK.RELEASE")) == 1


def test_freeing_the_client_gives_withdrawals_a_last_chance(fake_server):
    from support.libdlock import Client
    holder = Holder({1: SILENCE})
    server = fake_server(holder)
    client = Client(server.url, io_timeout_ms=IO_MS)
    assert client.lock().acquire() == Status.IN_DOUBT
    client.free()
    assert holder.token is None


def test_a_lost_answer_and_then_a_no_is_a_no_and_is_withdrawn(patient, fake_server):
    """Somebody else got it, but our first request may still be on its way."""
    answers = iter([CUT] + [b"$-1\r\n"] * 1000)
    server = fake_server(
        lambda words: next(answers) if words[0] == b"DLOCK.ACQUIRE" else b":0\r\n")
    lock = patient(server, wait_mode=SPIN).lock()
    assert lock.acquire(100) == Status.TIMEOUT
    wait_until(lambda: server.asked("DLOCK.RELEASE"), "the withdrawal")


# -- answers that are no answers ------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x01\x02\x03\r\n", b"$zz\r\n", b"*-7\r\n",
    b"+OK\r\n", b":0\r\n", b":-5\r\n", b"$3\r\nabc\r\n", b"*1\r\n:1\r\n"])
def test_garbage_is_not_a_lock(patient, fake_server, garbage):
    lock = patient(fake_server(lambda words: garbage)).lock()
    assert lock.acquire(100) == Status.PROTOCOL
    assert lock.error
    assert lock.state == State.FREE


def test_a_server_without_the_module(patient, start_server):
    dlock = patient(start_server(module=None))
    lock = dlock.lock()
    status, took_ms = lock.timed_acquire(5000)
    assert status == Status.PROTOCOL
    assert "unknown command" in lock.error
    assert took_ms < 2000
    assert dlock.ping() == Status.PROTOCOL


@pytest.mark.parametrize("error, status", [
    ("NOAUTH Authentication required.", Status.REFUSED),
    ("NOPERM this user has no permissions", Status.REFUSED),
    ("OOM command not allowed when used memory > 'maxmemory'.", Status.REFUSED),
    ("MISCONF Redis is configured to save RDB snapshots", Status.REFUSED),
    ("NOREPLICAS Not enough good replicas to write.", Status.REFUSED),
    ("WRONGTYPE Operation against a key", Status.INVALID),
    ("QUEUEFULL too many clients wait", Status.QUEUE_FULL),
    ("ERR unknown command 'DLOCK.ACQUIRE'", Status.PROTOCOL),
    ("EH what is this", Status.PROTOCOL)])
def test_an_error_that_stays_ends_the_wait_at_once(patient, fake_server, error, status):
    lock = patient(fake_server(lambda words: f"-{error}\r\n".encode())).lock()
    got, took_ms = lock.timed_acquire(5000)
    assert got == status
    assert error in lock.error
    assert took_ms < 2000


@pytest.mark.parametrize("error", [
    "LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.",
    "READONLY You can't write against a read only replica.", "MASTERDOWN Link with MASTER is down",
    "UNBLOCKED force unblock from blocking operation", "TRYAGAIN the slot of this lock is moving",
    "CLUSTERDOWN The cluster is down", "ERR max number of clients reached"])
def test_an_error_that_passes_is_waited_for(patient, fake_server, error):
    answers = iter([f"-{error}\r\n".encode()] * 3)
    lock = patient(fake_server(lambda words: next(answers, b":1\r\n"))).lock()
    assert lock.acquire() == Status.REFUSED
    assert error in lock.error
    assert lock.acquire(5000) == Status.OK
    assert lock.timings.attempts == 3


def test_a_script_that_keeps_the_server_busy(patient, start_server):
    server = start_server("--busy-reply-threshold", "10")
    dlock = patient(server)
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
    status, took_ms = lock.timed_acquire(100)
    assert status == Status.REFUSED and "BUSY" in lock.error
    assert within(took_ms, 100)
    waiting = Background(lock.acquire, 20_000)
    probe.script_kill()
    assert waiting.result() == Status.OK
    running.result()


def _ignore_errors(function, *arguments):
    with contextlib.suppress(Exception):
        function(*arguments)


def test_a_read_only_replica_refuses(patient, server, start_replica):
    replica = start_replica(server)
    lock = patient(replica).lock()
    assert lock.acquire(50) == Status.REFUSED
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


# -- the pool -------------------------------------------------------------------------------------


def test_a_full_pool_is_waited_for_in_line(patient, server):
    dlock = patient(server, pool_max=1)
    dlock.lock("a").acquire()
    waiter, other = dlock.lock("a"), dlock.lock("b")
    waiting = Background(waiter.acquire, 300)  # has the only connection for as long
    client = server.client()
    wait_until(lambda: client.info("dlock")["dlock_waiters"] == 1, "the waiter")
    assert other.acquire(50) == Status.UNREACHABLE
    assert "pool_max" in other.error
    assert other.acquire(2000) == Status.OK
    assert waiting.result() == Status.TIMEOUT


def test_who_waits_for_a_lock_does_not_keep_the_holder_from_releasing_it(patient, server):
    dlock = patient(server, pool_max=2)
    holder = dlock.lock()
    holder.acquire()
    waiting = [Background(_take_and_give_once, dlock.lock()) for _ in range(6)]
    client = server.client()
    wait_until(lambda: client.info("dlock")["dlock_waiters"] == 2, "waiters")
    assert holder.extend() == Status.OK
    assert holder.release() == Status.OK
    assert all(call.result() for call in waiting)


def _take_and_give_once(lock):
    return lock.acquire(20_000) == Status.OK and lock.release() == Status.OK


def test_a_wait_for_a_connection_can_be_canceled(patient, server):
    dlock = patient(server, pool_max=1)
    dlock.lock("a").acquire()
    waiter, other = dlock.lock("a"), dlock.lock("b")
    waiting = Background(waiter.acquire, 20_000)
    client = server.client()
    wait_until(lambda: client.info("dlock")["dlock_waiters"] == 1, "the waiter")
    stuck = Background(other.acquire, -1)
    other.cancel()
    assert stuck.result(5) == Status.CANCELED
    waiter.cancel()
    assert waiting.result(5) == Status.CANCELED


def test_no_more_connections_than_the_pool_allows(patient, server):
    dlock = patient(server, pool_max=3)
    locks = [dlock.lock(f"name {i}") for i in range(20)]
    calls = [Background(_take_and_give, lock) for lock in locks]
    assert all(call.result() for call in calls)
    assert len([c for c in server.client().client_list() if c["cmd"].startswith("dlock")]) <= 3


def _take_and_give(lock):
    return all(lock.acquire(20_000) == Status.OK and lock.release() == Status.OK
               for _ in range(20))


# -- ways to connect ------------------------------------------------------------------------------


def test_a_unix_socket_with_a_database(connect, start_server, tmp_path):
    path = tmp_path / "s p.sock"
    server = start_server("--unixsocket", path)
    lock = connect(f"unix://{str(path).replace(' ', '%20')}?db=3").lock("u")
    assert lock.acquire() == Status.OK, lock.error
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
    lock = connect(f"redis://localhost:{server.port}").lock()
    assert lock.acquire() == Status.OK, lock.error
