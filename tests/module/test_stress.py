"""200 connections, 20 locks, alone and several at once, every kind of luck; then the recorded
history is judged.

One thread drives all connections: a loop over a selector, bare sockets, and one generator for each
client. A generator yields a number of seconds to sleep, or a ticket and the seconds to wait for its
reply. What a client does comes from its own dice, so a seed gives the same clients again, though
not the same race.

Environment:
    DLOCK_STRESS_SECONDS   how long (default 5)
    DLOCK_SEED             the dice (default: new ones; printed)
"""

import collections
import heapq
import itertools
import os
import random
import selectors
import socket
import statistics
import time

import pytest
from support.commands import stats
from support.history import (
    PENDING, SEVERAL, Claim, History, check, hand_over_delays, part_of, read_monitor, read_stream)
from support.server import wait_until
from support.stream import ReplicationStream

SECONDS = float(os.environ.get("DLOCK_STRESS_SECONDS", 5))
SEED = os.environ.get("DLOCK_SEED", str(random.SystemRandom().randrange(10**6)))
CLIENTS, KEYS, STRING_KEYS = 200, 20, 4
SEVERAL_KEYS = range(KEYS - 6, KEYS)  # asked for together, and alone as well
PATIENCE = 60  # for answers that must come
LONGEST_LEASE_MS, LONGEST_WAIT_MS = 1000, 800
MEMORY_SLACK = 64 * 1024
SILENCE = 0.1  # seconds in which a machine that lets us work would have done something
RESET = b"\1\0\0\0\0\0\0\0"  # struct linger: RST instead of FIN


# -- the loop -------------------------------------------------------------------------------------


class Ticket:
    """A reply to come: PENDING until then, and for ever if the connection is lost before."""

    def __init__(self):
        self.reply = PENDING
        self.at = None
        self.is_over = False
        self.wake = None

    def settle(self, reply):
        self.reply, self.at, self.is_over = reply, time.time(), True
        if self.wake:
            self.wake()


class Wire:
    """A bare connection. ask() returns a ticket; replies come in order."""

    def __init__(self, loop, port):
        self.loop = loop
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.tickets = collections.deque()
        self.unread = b""
        self.is_lost = False
        loop.selector.register(self.socket, selectors.EVENT_READ, self.read)

    def ask(self, *words):
        ticket = Ticket()
        data = b"*%d\r\n" % len(words)
        for word in words:
            word = str(word).encode()
            data += b"$%d\r\n%s\r\n" % (len(word), word)
        self.tickets.append(ticket)
        try:
            if not self.is_lost:
                assert self.socket.send(data) == len(data)
        except OSError:
            self.lose()
        if self.is_lost:
            ticket.settle(PENDING)
        return ticket

    def read(self):
        try:
            data = self.socket.recv(65536)
        except OSError:
            data = b""
        self.unread += data
        while not self.is_lost and (reply := self.next_reply()) is not PENDING:
            assert self.tickets, f"a reply to nothing: {reply}"
            self.tickets.popleft().settle(reply)
        if not data:
            self.lose()

    def next_reply(self):
        reply, rest = read_reply(self.unread)
        if reply is not PENDING:
            self.unread = rest
        return reply

    def lose(self, is_reset=False):
        """The connection ends, whoever ended it."""
        if self.is_lost:
            return
        self.is_lost = True
        self.loop.selector.unregister(self.socket)
        if is_reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()
        while self.tickets:
            self.tickets.popleft().settle(PENDING)


def read_reply(data):
    """The first reply, and what follows it; PENDING if it is not complete."""
    line, end, rest = data.partition(b"\r\n")
    if not end:
        return PENDING, data
    kind, text = line[:1], line[1:]
    if kind == b"*":
        replies = []
        for _ in range(int(text)):
            reply, rest = read_reply(rest)
            if reply is PENDING:
                return PENDING, data
            replies.append(reply)
        return replies, rest
    if kind == b"$" and text != b"-1":
        length = int(text)
        if len(rest) < length + 2:
            return PENDING, data
        return rest[:length].decode(), rest[length + 2:]
    if kind == b"$":
        return None, rest
    return int(text) if kind == b":" else text.decode(), rest


class Tap:
    """Reads all that comes from a socket."""

    def __init__(self, loop, bare, recv):
        self.loop, self.socket, self.recv = loop, bare, recv
        self.chunks = []  # with the times at which they were read
        bare.setblocking(False)
        loop.selector.register(bare, selectors.EVENT_READ, self.read)
        self.read()

    def read(self):
        try:
            data = self.recv(1 << 20) or b""
            self.chunks.append((time.time(), data))
        except BlockingIOError:
            pass

    def read_until(self, mark):
        deadline = time.monotonic() + PATIENCE
        while mark not in b"".join(data for _, data in self.chunks[-2:]):
            assert time.monotonic() < deadline, f"no {mark} in {self.chunks[-2:]}"
            self.loop.turn(0.1)
        self.loop.selector.unregister(self.socket)
        return self.chunks


class Loop:
    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.timers = []
        self.count = itertools.count()
        self.running = 0
        self.lags = []  # (from, to): what had come could not be read, as we were busy or stopped

    def spawn(self, generator):
        self.running += 1
        self.resume(generator, None)

    def resume(self, generator, value):
        try:
            wish = generator.send(value)
        except StopIteration:
            self.running -= 1
            return
        ticket, seconds = wish if isinstance(wish, tuple) else (None, wish)
        if ticket is not None and ticket.is_over:
            seconds = 0
        is_resumed = []

        def wake():
            if not is_resumed:
                is_resumed.append(True)
                if ticket is not None:
                    ticket.wake = None
                self.resume(generator, ticket.reply if ticket is not None else None)

        if ticket is not None:
            ticket.wake = wake
        self.after(seconds, wake)

    def after(self, seconds, action):
        heapq.heappush(self.timers, (time.monotonic() + seconds, next(self.count), action))

    def turn(self, at_most):
        if self.timers:
            at_most = min(at_most, max(0, self.timers[0][0] - time.monotonic()))
        begin = time.time()
        for ready, _ in self.selector.select(at_most):
            ready.data()
        now = time.monotonic()
        while self.timers and self.timers[0][0] <= now:
            heapq.heappop(self.timers)[2]()
        if time.time() - begin > at_most + SILENCE:
            self.lags.append((begin, time.time()))

    def run(self, seconds=PATIENCE):
        """Until the time is over or all generators are done."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            self.turn(0.1)


# -- the clients ----------------------------------------------------------------------------------


class Stress:
    """The clients, and what they record."""

    def __init__(self, server, seed, clients=CLIENTS):
        self.server = server
        self.loop = Loop()
        self.admin = Wire(self.loop, server.port)
        self.is_over = False
        self.claims = []
        self.complaints = []
        for i in range(clients):
            kind = Client if i % 3 else SessionClient
            self.loop.spawn(kind(self, f"{seed}.{i}").life())

    def end(self):
        """No new claims; those under way come to their end."""
        self.is_over = True
        self.loop.run()
        assert self.loop.running == 0, "clients that hang"
        self.admin.lose()


class Several:
    """A claim on several names: whatever is noted about it is noted about each part."""

    def __init__(self, parts, token):
        self.__dict__.update(parts=parts, token=token, key=parts[0].key)

    def __getattr__(self, name):
        return getattr(self.parts[0], name)

    def __setattr__(self, name, value):
        for part in self.parts:
            setattr(part, name, value)

    @property
    def words(self):
        return [len(self.parts), *(part.key for part in self.parts), self.token]


class Client:
    def __init__(self, stress, name):
        self.stress = stress
        self.name = name
        self.dice = random.Random(name)
        self.wire = None
        self.id = None
        self.claims = []  # on this connection
        self.count = 0

    def life(self):
        yield self.dice.uniform(0, 0.1)
        while not self.stress.is_over:
            if self.wire is None or self.wire.is_lost:
                self.wire = Wire(self.stress.loop, self.stress.server.port)
                self.claims = []
                self.id = yield self.wire.ask("CLIENT", "ID"), PATIENCE
            yield from self.try_a_lock()
            yield self.dice.choice([0, 0, 0.002, 0.02])
        yield from self.close()

    def try_a_lock(self):
        claim = self.new_claim()
        ticket = self.ask(claim)
        trouble = self.dice.choice(self.TROUBLES) if self.dice.random() < 0.2 else None
        if trouble is not None:
            yield ticket, self.dice.uniform(0, (claim.wait_ms or 20) / 1000)
            if not ticket.is_over:
                yield from trouble(self, claim)
        yield ticket, PATIENCE
        if ticket.is_over and ticket.reply is not PENDING:
            claim.answer, claim.answered_at = ticket.reply, ticket.at
        elif self.wire.is_lost and any(each.unblocked_at for each in self.claims[-2:]):
            self.note_loss()  # the module closes connections whose reply CLIENT UNBLOCK replaced
        if claim.is_string and claim.answer == "OK":
            claim.answer = True
        if isinstance(claim.answer, int) and not self.wire.is_lost:
            yield self.dice.choice([0, 0, 0, 0.005, 0.01])
            ends = self.SEVERAL_ENDS if isinstance(claim, Several) else self.ENDS
            yield from self.dice.choice(ends)(self, claim)

    def several(self):
        """A claim on two or three names, in any order."""
        token = f"{self.name}.{self.count}{SEVERAL}"
        keys = [f"lock:{i}" for i in self.dice.sample(SEVERAL_KEYS, self.dice.choice([2, 2, 3]))]
        claim = Several([Claim(key, part_of(token, key)) for key in keys], token)
        claim.wait_ms = self.dice.randint(5, LONGEST_WAIT_MS) if self.dice.random() < 0.8 else 0
        claim.is_session = self.dice.random() < 0.4
        claim.is_shared = self.dice.random() < 0.3
        return claim

    def new_claim(self):
        self.count += 1
        dice = self.dice
        if dice.random() < 0.15:
            return self.several()
        number = dice.randrange(STRING_KEYS, KEYS)
        if dice.random() < 0.08:  # seldom, for there SET NX must find the lock free
            number = dice.randrange(STRING_KEYS)
        claim = Claim(f"lock:{number}", f"{self.name}.{self.count}")
        if number < STRING_KEYS and dice.random() < 0.5:
            claim.is_string = True
        else:
            claim.wait_ms = dice.randint(5, LONGEST_WAIT_MS) if dice.random() < 0.8 else 0
            claim.is_session = dice.random() < 0.4
            claim.is_shared = dice.random() < 0.5
            if claim.is_shared and dice.random() < 0.5:
                claim.max_holders = dice.choice([1, 2, 3, 5])
        return claim

    def ask(self, claim):
        lease_ms = self.dice.choice([5, 20, 60, 60, 100, 200, LONGEST_LEASE_MS])
        words = ["DLOCK.ACQUIRE", claim.key, claim.token, "PX", lease_ms]
        if isinstance(claim, Several):
            words = ["DLOCK.ACQUIREALL", *claim.words, "PX", lease_ms]
        if claim.is_string:
            words = ["SET", claim.key, claim.token, "NX", "PX", lease_ms]
        if claim.wait_ms:
            words += ["WAIT", claim.wait_ms]
        if claim.is_session:
            words.append("SESSION")
        if claim.is_shared:
            words.append("SHARED")
        if claim.max_holders:
            words += ["MAX", claim.max_holders]
        words += self.words_of(claim)
        claim.sent_at = time.time()
        self.stress.claims += getattr(claim, "parts", [claim])
        self.claims.append(claim)
        return self.wire.ask(*words)

    def words_of(self, claim):
        """Further options of a request."""
        return []

    def demand(self, reply, *allowed):
        if reply not in allowed:
            self.stress.complaints.append(f"{self.name}.{self.count}: {reply} is none of {allowed}")

    # -- what may happen to a client, while it waits or while it holds the lock

    def note_loss(self):
        """This ends the sessions of all claims on the connection."""
        for claim in self.claims:
            if claim.lost_at is None:
                claim.lost_at = time.time()

    def close(self, claim=None):
        self.note_loss()
        self.wire.lose()
        yield 0

    def reset(self, claim):
        self.note_loss()
        self.wire.lose(is_reset=True)
        yield 0

    def kill(self, claim):
        self.note_loss()
        yield self.stress.admin.ask("CLIENT", "KILL", "ID", self.id), PATIENCE
        while not self.wire.is_lost:
            yield 0.001

    def unblock(self, claim):
        claim.unblocked_at = time.time()
        how = self.dice.choice(["TIMEOUT", "ERROR"])
        reply = yield self.stress.admin.ask("CLIENT", "UNBLOCK", self.id, how), PATIENCE
        self.demand(reply, 0, 1)

    def delete(self, claim):
        reply = yield self.stress.admin.ask("DEL", claim.key), PATIENCE
        self.demand(reply, 0, 1)

    # -- what else a holder does

    def release(self, claim):
        claim.release = yield self.wire.ask("DLOCK.RELEASE", claim.key, claim.token), PATIENCE
        if self.wire.is_lost and claim.lost_at is None:
            self.demand("a lost connection", "an answer")

    def release_all(self, claim):
        """If some are gone, nobody tells which."""
        released = yield self.wire.ask("DLOCK.RELEASEALL", *claim.words), PATIENCE
        claim.release = {len(claim.parts): 1, 0: 0, PENDING: PENDING}.get(released, "some")

    def release_all_and_vanish(self, claim):
        self.wire.ask("DLOCK.RELEASEALL", *claim.words)
        yield from self.close()

    def release_twice(self, claim):
        yield from self.release(claim)
        self.demand((yield self.wire.ask("DLOCK.RELEASE", claim.key, claim.token), PATIENCE), 0)

    def release_and_vanish(self, claim):
        self.wire.ask("DLOCK.RELEASE", claim.key, claim.token)
        yield from self.close()

    def extend(self, claim):
        self.demand((yield self.wire.ask("DLOCK.EXTEND", claim.key, claim.token, "PX", 500),
                     PATIENCE), 0, 1)
        yield from self.release(claim)

    def steal(self, claim):
        thief = claim.token + ".thief"
        self.demand((yield self.wire.ask("DLOCK.RELEASE", claim.key, thief), PATIENCE), 0)
        self.demand((yield self.wire.ask("DLOCK.EXTEND", claim.key, thief, "PX", 500), PATIENCE), 0)
        yield from self.release(claim)

    def let_the_lease_end(self, claim):
        yield 0

    TROUBLES = [close, reset, kill, unblock, unblock, delete]
    ENDS = [release] * 24 + [release_twice, release_and_vanish, extend, steal, let_the_lease_end,
                             close, reset, kill, delete]
    SEVERAL_ENDS = [release_all] * 24 + [release_all_and_vanish, let_the_lease_end, close, reset,
                                         kill, delete]


class SessionClient(Client):
    """Waits by a session, whose connection breaks now and then. Its commands go over another one,
    which does not."""

    TIMEOUT_MS = 9_000

    def life(self):
        self.session = f"session {self.name}".ljust(16, ".")
        self.seen, self.outcomes = 0, {}
        self.heartbeat = Wire(self.stress.loop, self.stress.server.port)
        self.is_over = self.is_quiet = self.is_away = False
        opened = yield self.ask_heartbeat(), PATIENCE
        self.born = opened[0]
        self.stress.loop.spawn(self.heartbeats())
        yield from super().life()

    def close(self, claim=None):
        """A heartbeat that is under way would open the session again, so the end comes after it."""
        self.is_over = True
        while not self.is_quiet:
            yield 0.01
        self.demand((yield self.wire.ask("DLOCK.SESSION", self.session, "END"), PATIENCE), 1)
        yield from super().close(claim)

    def ask_heartbeat(self):
        words = ["DLOCK.SESSION", self.session, "PX", self.TIMEOUT_MS]
        return self.heartbeat.ask(*words, "ACK", self.seen)

    def heartbeats(self):
        while not self.is_over:
            if self.heartbeat.is_lost:
                yield self.dice.choice([0, 0.02, 0.1])
                yield from self.come_back()
                continue
            reply = yield self.ask_heartbeat(), PATIENCE
            if isinstance(reply, list):
                self.take(*reply)
        self.heartbeat.lose()
        self.is_quiet = True

    def come_back(self):
        """In a transaction a heartbeat returns at once: then the session is certainly there."""
        self.heartbeat = Wire(self.stress.loop, self.stress.server.port)
        self.heartbeat.ask("MULTI")
        self.ask_heartbeat()
        reply = yield self.heartbeat.ask("EXEC"), PATIENCE
        if isinstance(reply, list):
            self.take(*reply[0])
            self.is_away = False

    def take(self, born, events):
        self.demand(born, self.born)
        for number, kind, _key, token, *more in events:
            if number > self.seen:
                self.outcomes[token] = more[0] if kind == "granted" else None
                self.demand(kind, "granted", "ended")
                self.seen = number

    def cut(self, claim):
        claim.cuts.append(time.time())
        self.is_away = True
        self.heartbeat.lose(is_reset=self.dice.random() < 0.5)
        yield 0

    def new_claim(self):
        claim = super().new_claim()
        claim.is_session = False
        claim.cuts = [time.time()] if self.is_away else []
        return claim

    def words_of(self, claim):
        return [] if claim.is_string else ["VIA", self.session]

    def try_a_lock(self):
        claim = self.new_claim()
        reply = yield self.ask(claim), PATIENCE
        if reply == "QUEUED":
            if self.dice.random() < 0.2:
                yield self.dice.uniform(0, claim.wait_ms / 1000)
                yield from self.dice.choice([self.cut, self.cut, self.delete])(claim)
            deadline = time.monotonic() + PATIENCE
            while claim.token not in self.outcomes and time.monotonic() < deadline:
                yield 0.002
            reply = self.outcomes.pop(claim.token, PENDING)
        claim.answer, claim.answered_at = reply, time.time()
        if claim.is_string and reply == "OK":
            claim.answer = True
        if isinstance(claim.answer, int):
            yield self.dice.choice([0, 0, 0, 0.005, 0.01])
            is_several = isinstance(claim, Several)
            ends = self.SESSION_SEVERAL_ENDS if is_several else self.SESSION_ENDS
            yield from self.dice.choice(ends)(self, claim)

    SESSION_ENDS = [Client.release] * 16 + [Client.release_twice, Client.extend, Client.steal,
                                            Client.let_the_lease_end, cut, Client.delete]
    SESSION_SEVERAL_ENDS = [Client.release_all] * 16 + [Client.let_the_lease_end, cut,
                                                        Client.delete]


# -- the test -------------------------------------------------------------------------------------


def memory_in_use(client):
    """Without connections and replication, whose buffers come and go: the least of some looks."""
    looks = []
    for _ in range(20):
        looks.append(client.info("memory")["used_memory_dataset"])
        time.sleep(0.01)
    return min(looks)


def compare_with(replica, client):
    """Freeze the data for a moment; the replica has the same. Returns when the freeze was."""
    begin = time.time()
    client.execute_command("CLIENT", "PAUSE", 30_000, "WRITE")
    wait_until(lambda: replica.info("replication")["master_repl_offset"]
               == client.info("replication")["master_repl_offset"], "the replica to catch up")
    ours, theirs = (c.execute_command("DEBUG", "DIGEST") for c in (client, replica))
    client.execute_command("CLIENT", "UNPAUSE")
    assert ours == theirs, "the replica has other locks"
    return begin, time.time()


def assert_nothing_is_left(client):
    def left():
        now = stats(client)
        return {name: now[name] for name in ("held", "waiters", "queues", "sessions") if now[name]}
    wait_until(lambda: not left() and client.dbsize() == 0, "all to end", timeout=30)


def silences(commands):
    """When the machine let nobody work: no command for so long, of 200 clients."""
    times = [command.at for command in commands]
    return [(a, b) for a, b in zip(times, times[1:]) if b - a > SILENCE]


def record(server, client, replica, seed, seconds):
    """A stress, from which nothing is left, and its history."""
    connections = len(client.client_list())
    stream = ReplicationStream(server)
    monitor = server.socket()
    monitor.sendall(b"MONITOR\r\n")
    assert monitor.recv(5, socket.MSG_WAITALL) == b"+OK\r\n"  # it hears of all that comes after
    stress = Stress(server, seed)
    stream_tap = Tap(stress.loop, stream.socket, stream.reader.read1)
    monitor_tap = Tap(stress.loop, monitor, monitor.recv)
    pauses = []
    for _ in range(3):
        stress.loop.run(seconds / 3)
        pauses.append(compare_with(replica, client))
    stress.end()
    assert_nothing_is_left(client)
    ended_at = time.time()
    client.set("the-end", 1)
    history = History(
        read_monitor(b"".join(data for _, data in monitor_tap.read_until(b"the-end")).decode()),
        read_stream(stream_tap.read_until(b"the-end\r\n$1\r\n1\r\n")),
        stress.claims, ended_at, pauses)
    history.pauses += silences(history.commands) + stress.loop.lags
    client.delete("the-end")
    stream.close()
    monitor.close()
    wait_until(lambda: len(client.client_list()) == connections, "all connections but ours")
    assert stress.complaints == []
    return history


def summary(history):
    answers = collections.Counter(type(claim.answer).__name__ for claim in history.claims)
    claims, commands = len(history.claims), len(history.commands)
    return f"{claims} claims, {commands} commands, answers {dict(answers)}"


@pytest.mark.alone("judges what came first by clocks, which a busy machine reads late")
@pytest.mark.limit(300, "lasts as long as it is told to, and judges what it has seen")
def test_under_stress_every_promise_is_kept(server, client, start_replica):
    print(f"DLOCK_SEED={SEED}")
    replica = start_replica(server).client()
    record(server, client, replica, f"{SEED}.warm", 1)  # what is allocated once is there from now
    memory, counted = memory_in_use(client), stats(client)

    history = record(server, client, replica, SEED, SECONDS)
    print(summary(history))
    problems = check(history)
    assert problems == [], f"seed {SEED}: {len(problems)} problems, the first: {problems[:10]}"
    grants = {(event.fence, event.key) for event in history.events if event.kind == "grant"}
    assert stats(client)["granted"] - counted["granted"] == len(grants)
    assert len(grants) > 10 * SECONDS, "too little happened to prove anything"
    for how, delays in hand_over_delays(history).items():
        median = f"{statistics.median(delays) * 1000:.2f}" if delays else "no"
        print(f"{how}: {len(delays)} hand-overs, median {median} ms")
    more = memory_in_use(client) - memory
    print(f"{more} bytes more are in use")
    assert more < MEMORY_SLACK
