"""What happens in one turn of the event loop of a server, where no timer runs in between, and what
happens in the next one."""

import fcntl
import pathlib
import struct
import termios

from support.commands import Lock
from support.server import stopped, wait_until
from support.waiting import queue_up

ONE_READ = 24_000  # bytes: more than a server reads from a client in a turn, less than twice that


def in_one_turn(client, *commands):
    """All within one turn."""
    pipe = client.pipeline(transaction=True)
    for words in commands:
        pipe.execute_command(*words)
    return pipe.execute()


class BriefHolder:
    """A holder whose short lease begins with the command "begin", in the turn in which it matters.

    No command shortens a lease. So until then "before" holds the lock, and the token "me" is the
    first in the queue, with that lease."""

    def __init__(self, server, lease_ms, key="lock"):
        Lock(server.observer, key).acquire("before", 600_000)
        [self.waiting] = queue_up(server, ["me"], lease_ms=lease_ms, key=key)
        self.begin = ("DLOCK.RELEASE", key, "before")

    def hold(self, client):
        """From now on, and "me" was told so."""
        assert client.execute_command(*self.begin) == 1
        return self.waiting.answer()


class Bare:
    """A connection on which we read every line ourselves."""

    def __init__(self, server):
        self.socket = server.socket()
        self.reader = self.socket.makefile("rb")

    def send(self, *lines):
        self.socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def read(self, lines=1):
        return [self.reader.readline().strip() for _ in range(lines)]

    def call(self, line):
        """The first line of the reply; b"" when the connection is closed."""
        try:
            self.send(line)
            return self.read()[0]
        except ConnectionError:
            return b""

    def close(self):
        self.reader.close()
        self.socket.close()


def is_stopped(process):
    stat = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def has_arrived(bare):
    """All that was sent: the kernel on the other side has acknowledged it."""
    unheard = fcntl.ioctl(bare.socket, termios.TIOCOUTQ, struct.pack("i", 0))
    return struct.unpack("i", unheard) == (0,)


def _while_stopped(server, sends):
    """Pairs of a connection and bytes: all arrive while the server is stopped, in this order."""
    with stopped(server):
        wait_until(lambda: is_stopped(server.process), "the server to stop")
        for bare, data in sends:
            bare.socket.sendall(data)
            wait_until(lambda: has_arrived(bare), "the lines to arrive")


def in_one_turn_of_many(server, *sends):
    """Pairs of a connection and a line: all arrive while the server is stopped, in this order, in
    which the kernel reports them then. It reports the connection that was read last before all
    others: the one over which stopped() asks."""
    for bare, _ in sends:
        assert bare.call("PING") == b"+PONG"
    _while_stopped(server, [(bare, f"{line}\r\n".encode()) for bare, line in sends])


def sleep_then_run(server, bare, seconds, *lines, other=None):
    """The server sleeps so long, by the clock of leases and waits, and then runs these commands
    before all that is due by then. other: a connection that is closed meanwhile."""
    assert bare.call("PING") == b"+PONG"
    with stopped(server):
        wait_until(lambda: is_stopped(server.process), "the server to stop")
        bare.send(*lines)
        wait_until(lambda: has_arrived(bare), "the lines to arrive")
        if other is not None:
            other.close()
        server.clock.advance(seconds, turns=0)


def sleep_then(server, seconds, *lines, other=None):
    """The same over a connection of its own, which closes then: the first line of each reply."""
    bare = Bare(server)
    sleep_then_run(server, bare, seconds, *lines, other=other)
    replies = bare.read(len(lines))
    bare.close()
    return replies


def send_in_two_turns(server, bare, first, second):
    """The first command in one turn, the second in the next: between them on the same connection
    is as much as the server reads in a turn. The replies have four lines, if each has one."""
    head, tail = (f"{' '.join(map(str, words))}\r\n".encode() for words in (first, second))
    filler = b"ECHO " + b"x" * (ONE_READ - len(head) - len(b"ECHO \r\n")) + b"\r\n"
    _while_stopped(server, [(bare, head + filler + tail)])


def in_two_turns(server, first, second):
    bare = Bare(server)
    send_in_two_turns(server, bare, first, second)
    reply, _, _, last = bare.read(4)
    bare.close()
    return reply, last
