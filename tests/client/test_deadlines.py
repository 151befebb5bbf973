"""How long a call may take at the very worst: a release or an extension one I/O timeout, whatever
else is under way; an acquire its wait and one I/O timeout more; the end of a client one I/O timeout
in all. Neither a stop of the process nor a sleep of the machine makes a deadline later."""

import contextlib
import pathlib
import signal
import socket
import threading
import time

import pytest

from support.fake_server import SILENCE, resp
from support.libdlock import LIST_FN, Background, Client, Status, assert_in_time, lib
from support.program import start_python
from support.server import wait_until

IO_MS = 500
SLACK_MS = 450  # less than a second IO_MS would be
STOP_S = 1
WAIT_MS = 20_000
RENEWED = {"lease_ms": 60_000, "renew_every_ms": 50}
CLOCK_BOOTTIME, TFD_TIMER_ABSTIME = 7, 1


@pytest.fixture
def impatient(connect):
    return lambda to, **options: connect(to, io_timeout_ms=IO_MS, **options)


class Pulse(threading.Thread):
    """How long this process stood still, since the machine was busy with others. The bounds are on
    what the library does, so that does not count."""

    BEAT_S, LATE_S = 0.005, 0.03

    def __init__(self):
        super().__init__(daemon=True)
        self.is_over, self.still_s = threading.Event(), 0

    def run(self):
        last = time.monotonic()
        while not self.is_over.is_set():
            time.sleep(self.BEAT_S)
            now = time.monotonic()
            if now - last > self.LATE_S:
                self.still_s += now - last - self.BEAT_S
            last = now

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *failure):
        self.is_over.set()
        self.join()


def timed(call, *arguments):
    """The result, and how long it took in milliseconds."""
    with Pulse() as pulse:
        begin = time.monotonic()
        result = call(*arguments)
        took_s = time.monotonic() - begin
    return result, (took_s - pulse.still_s) * 1000


# -- a server that falls silent -------------------------------------------------------------------


@pytest.fixture
def granting(fake_server):
    """A server that grants every lock, and says nothing more on that connection."""
    return fake_server(lambda words: b":5\r\n" if words[0] == b"DLOCK.ACQUIRE" else SILENCE)


@pytest.mark.parametrize("name", ["release", "extend"])
def test_a_call_while_a_renewal_is_under_way_at_a_silent_server(impatient, granting, name):
    lock = impatient(granting).lock(**RENEWED)

    def call():
        assert lock.acquire(WAIT_MS) == Status.OK
        renewals = len(granting.asked("DLOCK.EXTEND"))
        wait_until(lambda: len(granting.asked("DLOCK.EXTEND")) > renewals, "a renewal")
        status, took_ms = timed(getattr(lock, name))
        assert status == Status.IN_DOUBT
        if name == "extend":
            lock.release()
        return took_ms

    assert_in_time(call, IO_MS + SLACK_MS)


@pytest.mark.parametrize("wait_ms", [0, 100])
def test_an_acquire_that_too_few_replicas_acknowledge(impatient, fake_server, wait_ms):
    """Grant and count of replicas take as long as they may, and the release that undoes the grant
    is not answered: that goes on without the caller."""
    def answer(words):
        if words[0] in (b"DLOCK.ACQUIRE", b"WAIT"):
            time.sleep((IO_MS - 20) / 1000)
        return {b"DLOCK.ACQUIRE": b":5\r\n", b"WAIT": b":0\r\n"}.get(words[0], SILENCE)

    server = fake_server(answer)
    lock = impatient(server).lock(min_replicas=1, replica_timeout_ms=IO_MS)

    def acquire():
        status, took_ms = timed(lock.acquire, wait_ms)
        assert status == Status.NO_REPLICAS or status == Status.IN_DOUBT
        return took_ms

    assert_in_time(acquire, wait_ms + 2 * IO_MS + SLACK_MS)
    wait_until(lambda: server.asked("DLOCK.RELEASE"), "the release")


# -- a server that always has more to say ---------------------------------------------------------


def test_a_list_that_is_longer_than_its_time(connect, fake_server):
    """The server has a hundred thousand pages, and each comes at once."""
    pages = iter(range(100_000, -1, -1))
    server = fake_server(lambda words: resp([str(next(pages)), []]))
    tell = LIST_FN(lambda _, lock: True)
    assert lib.dlock_list(connect(server).handle, None, 100, tell, None, None,
                          0) == Status.UNREACHABLE
    assert next(pages) > 0


# -- a server that has vanished -------------------------------------------------------------------


class Vanishing:
    """Grants one lock. After vanish() connections to it neither come about nor are refused, as with
    a host without power: the queue of the listener is full."""

    def __init__(self):
        self.stack = contextlib.ExitStack()
        self.listener = self.stack.enter_context(socket.socket())
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        self.served, _ = self.listener.accept()
        self.served.recv(4096)
        self.served.sendall(b":5\r\n")

    def vanish(self):
        ours = set()
        for _ in range(4):
            other = self.stack.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(("127.0.0.1", self.port))
            ours.add(f"{other.getsockname()[1]:04X}")
        self.served.close()
        wait_until(lambda: self.connecting() - ours, "somebody to connect in vain")

    def connecting(self):
        """The ports from which connections to it are being made: SYN_SENT is state 2."""
        lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
        return {fields[1].split(":")[1] for fields in map(str.split, lines)
                if fields[2].endswith(f":{self.port:04X}") and fields[3] == "02"}

    def close(self):
        self.served.close()
        self.stack.close()


@pytest.fixture
def vanished(impatient):
    """vanished(): a lock whose renewal is connecting to a server that has vanished."""
    servers = []

    def make():
        servers.append(Vanishing())
        lock = impatient(servers[-1]).hold(**RENEWED)
        servers[-1].vanish()
        return lock

    yield make
    for server in servers:
        server.close()


@pytest.mark.parametrize("name", ["release", "extend"])
def test_a_call_while_a_renewal_connects_in_vain(vanished, name):
    def call():
        status, took_ms = timed(getattr(vanished(), name))
        assert status == Status.UNREACHABLE
        return took_ms

    assert_in_time(call, IO_MS + SLACK_MS)


# -- the end of a client --------------------------------------------------------------------------


@pytest.mark.parametrize("io_ms, locks", [(IO_MS, 1), (IO_MS, 30), (3 * IO_MS, 30)])
def test_the_end_of_a_client_with_withdrawals_under_way(fake_server, io_ms, locks):
    """However many there are, they have one I/O timeout in all. An acquire that begins late finds
    that the server hangs already, and sends nothing."""
    server = fake_server(lambda words: SILENCE)

    def free():
        client = Client(server.url, io_timeout_ms=io_ms)
        calls = [Background(client.lock(f"lock {i}").acquire) for i in range(locks)]
        assert {call.result() for call in calls} <= {Status.IN_DOUBT, Status.UNREACHABLE}
        return timed(client.free)[1]

    assert_in_time(free, io_ms + SLACK_MS)
    assert server.asked("DLOCK.ACQUIRE"), "else there is nothing to withdraw"


def test_the_end_of_a_client_whose_server_has_vanished(fake_server):
    def free():
        server = Vanishing()
        client = Client(server.url, io_timeout_ms=IO_MS)
        lock = client.hold(**RENEWED)
        server.vanish()
        assert lock.release() == Status.UNREACHABLE
        _, took_ms = timed(client.free)
        server.close()
        return took_ms

    assert_in_time(free, IO_MS + SLACK_MS)


# -- a process that is stopped, and a machine that sleeps -----------------------------------------

HOLDER = """
import sys, time
from support.libdlock import Client, Event, Told
told = Told()
lock = Client(sys.argv[1], on_event=told, io_timeout_ms=5000).lock(sys.argv[2], lease_ms=3000)
print("ready", flush=True)
sys.stdin.readline()
assert lock.acquire(20_000) == 0
end = time.clock_gettime(time.CLOCK_BOOTTIME) + lock.remaining_ms / 1000
print("held", flush=True)
while not told.find(Event.LOST, sys.argv[2]):
    time.sleep(0.001)
print((told.find(Event.LOST, sys.argv[2])[3] - end) * 1000, flush=True)
"""
WAITER = """
import sys, time
from support.libdlock import Client
client = Client(sys.argv[1], io_timeout_ms=200)
lock = client.lock(sys.argv[2])
if sys.argv[3] == "local":
    client.hotspot_add(sys.argv[2])
    assert client.lock(sys.argv[2], lease_ms=60_000).acquire(20_000) == 0
print("ready", flush=True)
sys.stdin.readline()
print("begins", flush=True)
begin = time.clock_gettime(time.CLOCK_BOOTTIME)
status = lock.acquire(3000)
print(int(status), (time.clock_gettime(time.CLOCK_BOOTTIME) - begin) * 1000, flush=True)
"""


@contextlib.contextmanager
def program(text, server, *arguments):
    process = start_python(text, f"redis://127.0.0.1:{server.port}", *arguments, stderr=None)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stop_programs(text, server, *arguments):
    """Three of them, which begin together, and are stopped for a second as soon as they have; what
    they say then."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(program(text, server, *words)) for words in arguments]
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("begin\n")
            process.stdin.flush()
        for process in processes:
            assert process.stdout.readline()
        time.sleep(0.1)  # until all threads sleep
        for number in signal.SIGSTOP, signal.SIGCONT:
            for process in processes:
                process.send_signal(number)
            time.sleep(STOP_S if number == signal.SIGSTOP else 0)
        return [process.stdout.readline().split() for process in processes]


def assert_median_is_less(times_ms, limit_ms):
    """Of three; those that a stop delays are later by a second."""
    assert sorted(map(float, times_ms))[1] < limit_ms, times_ms


def test_a_stop_does_not_delay_the_news_of_a_loss(server):
    said = stop_programs(HOLDER, server, *([f"lock {number}"] for number in range(3)))
    assert_median_is_less([late for late, in said], STOP_S * 1000 / 2)


def assert_a_stop_does_not_delay_the_wait(server, kind, expected):
    said = stop_programs(WAITER, server, *([f"lock {number}", kind] for number in range(3)))
    assert {int(status) for status, _ in said} == {expected}
    assert_median_is_less([took for _, took in said], 3000 + IO_MS + STOP_S * 1000 / 2)


def test_a_stop_does_not_delay_the_end_of_a_wait_at_a_silent_server(fake_server):
    """Somebody has the lock, and whoever waits for it hears nothing any more."""
    server = fake_server(lambda words: b"+PONG\r\n" if words[0] == b"PING" else
                         SILENCE if b"WAIT" in words else b"$-1\r\n")
    assert_a_stop_does_not_delay_the_wait(server, "remote", Status.IN_DOUBT)


def test_a_stop_does_not_delay_the_end_of_a_wait_for_a_thread_of_the_process(server):
    assert_a_stop_does_not_delay_the_wait(server, "local", Status.TIMEOUT)


def test_the_kernel_wakes_us_by_a_clock_that_goes_on_while_the_machine_sleeps(connect, server):
    """At an absolute time, so that neither a stop nor a sleep counts twice."""
    before = set(timers())
    client = connect(server)
    client.hold(lease_ms=600_000)
    assert client.lock().acquire(100) == Status.TIMEOUT
    ours = {fd: timer for fd, timer in timers().items() if fd not in before}
    assert ours
    for timer in ours.values():
        assert int(timer["clockid"]) == CLOCK_BOOTTIME
        assert int(timer["settime flags"], 8) in (0, TFD_TIMER_ABSTIME)
    assert any(int(timer["settime flags"], 8) == TFD_TIMER_ABSTIME for timer in ours.values())


def timers():
    """What the kernel says of each timerfd of this process."""
    found = {}
    for path in pathlib.Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
            if "clockid" in lines:
                found[path.name] = lines
    return found
