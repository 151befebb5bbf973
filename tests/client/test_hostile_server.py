"""A server that is mad or malicious: its replies take neither memory nor time, are never a lock by
mistake, and one reply too many is never read as the reply to another request."""

import json
import time

import pytest

from support.fake_server import FakeServer
from support.libdlock import State, Status
from support.program import run_python
from support.server import wait_until

IO_MS = 200     # where no reply is to be expected
LONG_MS = 100_000  # who waits for that does not end in time
MEMORY_KB = 48 * 1024  # a flood takes gigabytes in no time
FLOOD = 1 << 20
PATIENT_S = 40

CLIENT = """
import json, sys
from support.libdlock import Client
def peak_kb():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1])
client = Client(sys.argv[1], io_timeout_ms=int(sys.argv[3]))
lock = client.lock()
before = peak_kb()
status = lock.acquire(int(sys.argv[2]))
error, state = lock.error, lock.state
client.free()
print(json.dumps({"status": status, "error": error, "state": state,
                  "memory_kb": peak_kb() - before}))
"""


class Hostile(FakeServer):
    """Sends the same to everybody who has said something: first this, then that for ever."""

    def __init__(self, first, flood=b"", pause=0):
        self.first, self.flood, self.pause = first, flood, pause
        super().__init__(None)

    def _serve(self, connection):
        try:
            connection.recv(65536)
            for part in self.first if self.pause else [self.first]:
                connection.sendall(bytes([part]) if self.pause else part)
                time.sleep(self.pause)
            while self.flood:
                connection.sendall(self.flood)
        except OSError:
            pass


@pytest.fixture
def hostile(obstacles):
    def make(*arguments):
        obstacles.append(Hostile(*arguments))
        return obstacles[-1]
    return make


def acquire_from(server, wait_ms, io_ms):
    """What a client of its own process makes of it."""
    return json.loads(run_python(CLIENT, server.url, wait_ms, io_ms, timeout=PATIENT_S))


MODES = {
    "a text without an end": (b"$9223372036854775806\r\n", b"x" * FLOOD),
    "a text that is too long": (b"$1000000\r\n", b"x" * FLOOD),
    "a line without an end": (b"+", b"y" * FLOOD),
    "an error without an end": (b"-", b"y" * FLOOD),
    "a number without an end": (b":", b"1" * FLOOD),
    "an array without an end": (b"*2147483647\r\n", b":1\r\n" * (FLOOD // 4)),
    "an array of a billion that does not come": (b"*4294967295\r\n",),
    "arrays inside arrays": (b"", b"*1\r\n" * (FLOOD // 4)),
    "a text of a negative length": (b"$-5\r\n",),
    "an array of a negative length": (b"*-7\r\n",),
    "a number that is too large": (b":99999999999999999999999999\r\n",),
    "a push of another protocol": (b">2\r\n+a\r\n+b\r\n:7\r\n",),
    "nulls": (b"\0\0\0\0",),
    "a null line": (b"\r\n\r\n",),
    "a reply that comes byte by byte": (b":1234567\r\n", b"", 0.15),
}
SILENT = {"a reply that comes byte by byte", "an array of a billion that does not come"}


@pytest.mark.parametrize("has_time", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_what_makes_no_sense_ends_in_time_and_takes_no_memory(hostile, mode, has_time):
    """At once, unless the server is silent. The end of the client, too."""
    wait_ms, io_ms = (3 * IO_MS, IO_MS) if mode in SILENT else (LONG_MS, LONG_MS)
    got = acquire_from(hostile(*MODES[mode]), wait_ms if has_time else 0, io_ms)
    is_silent = mode in SILENT and got["status"] == Status.IN_DOUBT
    assert got["status"] == Status.PROTOCOL or is_silent
    assert got["error"] and got["state"] == State.FREE
    assert got["memory_kb"] < MEMORY_KB


def test_a_flood_of_replies_that_make_sense_takes_no_memory(hostile):
    """The first may be a grant; the others are too many."""
    got = acquire_from(hostile(b"", b":1\r\n" * (FLOOD // 4)), 0, LONG_MS)
    assert got["status"] in (Status.OK, Status.PROTOCOL)
    assert got["memory_kb"] < MEMORY_KB


# -- one reply too many ---------------------------------------------------------------------------


class Repeating:
    """Answers as the module does, and once repeats a reply or says one of its own. Others hold
    every lock but "x"."""

    def __init__(self, when):
        self.when = when

    def __call__(self, words):
        reply = b":1\r\n"
        if words[0] == b"DLOCK.ACQUIRE":
            reply = b":5\r\n" if words[1] == b"x" else b"$-1\r\n"
        if words[0].decode() == f"DLOCK.{self.when}":
            self.when = None
            return reply + b":1\r\n"
        return reply


@pytest.mark.parametrize("when", ["ACQUIRE", "EXTEND", "RELEASE"])
def test_one_reply_too_many_is_not_read_as_anothers(connect, fake_server, when):
    client = connect(fake_server(Repeating(when)))
    mine, others = client.lock("x"), client.lock("y")
    assert mine.acquire(20_000) == Status.OK and mine.fence == 5
    assert mine.extend() == Status.OK
    assert mine.release() == Status.OK
    assert others.acquire() == Status.BUSY
    assert others.acquire(100) == Status.TIMEOUT
    assert others.state == State.FREE and others.fence == 0


def test_a_reply_that_nobody_asked_for_is_not_read_as_anothers(connect, fake_server):
    """It comes while the connection is idle. Right after another reply, before which nobody looks
    for it, it could as well come a moment later: then nothing tells it from the reply to the next
    request."""
    server = fake_server(Repeating(None))
    client = connect(server)
    mine, others = client.hold("x"), client.lock("y")
    time.sleep(0.05)  # longer than a connection counts as used just now
    server.connections[0].sendall(b":1\r\n")
    assert others.acquire() == Status.BUSY
    assert mine.release() == Status.OK


def test_one_reply_too_many_does_not_confirm_a_renewal(connect, fake_server):
    """The server has the lock no more; a reply that was left over says it has."""
    answers = {b"DLOCK.ACQUIRE": b":5\r\n:1\r\n:1\r\n:1\r\n", b"DLOCK.EXTEND": b":0\r\n",
               b"DLOCK.RELEASE": b":0\r\n"}
    server = fake_server(lambda words: answers.get(words[0], b"-ERR unknown command\r\n"))
    lock = connect(server).hold(lease_ms=60_000, renew_every_ms=50)
    wait_until(lambda: lock.state == State.LOST, "the loss")
    assert lock.release() == Status.LOST
