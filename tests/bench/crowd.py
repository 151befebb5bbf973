"""A crowd that waits by publish and subscribe: each release publishes, and all of them try again.

That is how clients wait that know only strings and scripts. Each of the crowd is one connection
that speaks RESP3, so that it may subscribe and try: cheaper than two, as most clients have. The try
is a SET NX PX; the release is the usual script with a PUBLISH, so one command as well. Nobody polls
beside it.
"""

import select

import driver
import ways
from instructions import total

KEY, CHANNEL = "crowd", "crowd:free"
LINE = "PUBLISH to all, who try again"
AT_ONCE = 100  # connections to open before looking whether they are served
TRIES = 2000  # of all together in one round, or one of each
TURNS_MAX, ROUNDS = 200, 5
RELEASE = """\
if redis.call("get",KEYS[1]) == ARGV[1]
then
    redis.call("del",KEYS[1])
    return redis.call("publish",KEYS[2],"free")
else
    return -1
end"""
WAY = ways.SET_DEL  # what the server needs
HELLO, SUBSCRIBE, UNSUBSCRIBE = [
    ways.encode(command)
    for command in (["HELLO", 3], ["SUBSCRIBE", CHANNEL], ["UNSUBSCRIBE", CHANNEL])]
SUBSCRIBED, UNSUBSCRIBED = b"crowd:free\r\n:1\r\n", b"crowd:free\r\n:0\r\n"
WOKEN = b"$4\r\nfree\r\n"
TAKEN, REFUSED = b"+OK\r\n", b"_\r\n"


class Member:
    def __init__(self, server, token):
        self.socket = server.socket()
        self.token = token
        self.request = ways.encode(ways.SET_DEL.acquire(KEY, token))
        self.socket.sendall(HELLO + SUBSCRIBE)

    def call(self, request, *ends):
        self.socket.sendall(request)
        return self.read_until(*ends)

    def read_until(self, *ends):
        received = b""
        while not received.endswith(ends):
            more = self.socket.recv(4096)
            received += more
            if not more or received.startswith(b"-"):
                raise AssertionError(f"a subscriber got {received!r}")
        return received


class Crowd:
    """All of them wait but for the one who holds the lock."""

    def __init__(self, server, most):
        self.server = server
        self.client = server.observer
        self.release_sha = self.client.script_load(RELEASE)
        self.tokens = (token for _, token in ways.names(most + 1, "crowd"))
        self.poll = select.epoll()
        self.members = {}  # by the number of its file
        self.holder = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.poll.close()
        for member in self.members.values():
            member.socket.close()

    def grow(self, waiters):
        while len(self.members) <= waiters:
            new = [Member(self.server, next(self.tokens))
                   for _ in range(min(AT_ONCE, waiters + 1 - len(self.members)))]
            for member in new:
                member.read_until(SUBSCRIBED)
                self.members[member.socket.fileno()] = member
                self.poll.register(member.socket, select.EPOLLIN)
        if self.holder is None:
            self.holder = new[0]
            self.holder.call(self.holder.request, TAKEN)
            self.holder.call(UNSUBSCRIBE, UNSUBSCRIBED)

    def hand_over(self):
        """The holder releases and waits again; it is over when all others have their answer."""
        woken = self.client.evalsha(self.release_sha, 2, KEY, CHANNEL, self.holder.token)
        assert woken == len(self.members) - 1
        self.holder.call(SUBSCRIBE, SUBSCRIBED)
        due = 2 * woken  # a message and an answer each
        while due > 0:
            for file, _ in self.poll.poll():
                self.answer(self.members[file])
                due -= 1
        self.holder.call(UNSUBSCRIBE, UNSUBSCRIBED)

    def answer(self, member):
        """Read the one thing that has come for this member: a message, so it tries; or the answer
        to its try."""
        received = member.read_until(WOKEN, TAKEN, REFUSED)
        if received.endswith(WOKEN):
            member.socket.sendall(member.request)
        elif received == TAKEN:
            self.holder = member


def count_instructions(curves, counted, numbers, progress):
    with Crowd(counted.server, numbers[-1]) as crowd:
        for waiters in numbers:
            progress(f"instructions, {waiters:,} subscribed")
            crowd.grow(waiters)
            crowd.hand_over()  # a first use is dearer
            mark, samples = counted.mark_cost(3), []
            for _ in range(3 if waiters <= TRIES else 1):
                counted.mark()
                crowd.hand_over()
                samples.append(total(counted.mark()) - mark)
            curves.add(LINE, waiters, {"instructions": samples})


def measure_time(curves, server, numbers, progress):
    with Crowd(server, numbers[-1]) as crowd:
        for waiters in numbers:
            progress(f"time, {waiters:,} subscribed")
            crowd.grow(waiters)
            turns, samples = max(1, min(TURNS_MAX, TRIES // waiters)), []
            for _ in range(ROUNDS):
                before = driver.cpu_seconds(server)
                for _ in range(turns):
                    crowd.hand_over()
                samples.append((driver.cpu_seconds(server) - before) / turns * 1e6)
            curves.add(LINE, waiters, {"us": samples})
