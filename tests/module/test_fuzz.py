"""Calls that no sane client makes. The server must answer each with exactly one reply, stay alive,
and give back its memory. Worth most with a module built with SANITIZE=address,undefined.

The calls follow from a seed, which a failure shows. Environment:
    DLOCK_SEED         the seed to use (default: a new one each run)
    DLOCK_FUZZ_CALLS   how many calls (default 100000)
"""

import collections
import itertools
import os
import random

import pytest
from support.commands import details_of, stats
from support.server import wait_until
from support.crowd import parked
from support.waiting import end_sessions, wait_for_waiters

CALLS = int(os.environ.get("DLOCK_FUZZ_CALLS", 100_000))
SEED = int(os.environ.get("DLOCK_SEED", random.SystemRandom().randrange(2**32)))
MUTATIONS = 20_000
BATCH_CALLS = 1000
BATCH_BYTES = 4_000_000
BIGGEST = 1 << 20
# Redis 7.0 keeps less than 1 KB after 4 million calls. Valkey 9.1 keeps 20 KB for each million,
# with or without the module.
LEAK_BYTES = 20_000 + CALLS // 20

FENCE_LIMIT = 1 << 53
TIME_LIMIT = 1 << 52
LEASE_LIMIT = 1 << 32

INTEGER, STATUS, ERROR, BULK, ARRAY, MAP, NULL = b":+-$*%_"


# -- reading replies -----------------------------------------------------------------------------


class BadReply(Exception):
    pass


def read_reply(data, at):
    """The kind of the reply at data[at], and where it ends. A null of either protocol is NULL."""
    end = data.index(b"\r\n", at)
    kind = data[at]
    if kind == INTEGER:
        int(data[at + 1:end])
    elif kind == ERROR:
        check_error(data[at + 1:end])
    elif kind == STATUS:
        check_line(data[at + 1:end])
    elif kind == BULK:
        size = int(data[at + 1:end])
        if size < 0:
            return NULL, end + 2
        end += 2 + size
        if data[end:end + 2] != b"\r\n":
            raise BadReply(f"a bulk string of {size} bytes does not end where it should")
    elif kind == ARRAY or kind == MAP:
        size = int(data[at + 1:end])
        if size < 0:
            return NULL, end + 2
        end += 2
        for _ in range(size if kind == ARRAY else 2 * size):
            _, end = read_reply(data, end)
        return kind, end
    elif kind != NULL or end != at + 1:
        raise BadReply(f"what kind of reply is {data[at:end]!r}?")
    return kind, end + 2


def check_line(line):
    if b"\r" in line or b"\n" in line:
        raise BadReply(f"a line break within {line!r}")


def check_error(line):
    if not line.isascii() or not line.decode().isprintable():
        raise BadReply(f"an error with more than text in it: {line!r}")
    if not line.startswith((b"ERR ", b"WRONGTYPE ", b"EXECABORT ", b"NOSESSION ", b"QUEUEFULL ")):
        raise BadReply(f"an unexpected error: {line!r}")
    if line.startswith(b"ERR unknown command"):
        raise BadReply(f"the call itself is wrong: {line!r}")


class Single:
    """One reply of one of these kinds."""

    def __init__(self, kinds):
        self.kinds = kinds

    def read(self, data, at, counts):
        kind, end = read_reply(data, at)
        if kind not in self.kinds:
            raise BadReply(f"{shown(data[at:end])} is of none of the kinds {bytes(self.kinds)!r}")
        counts[self, kind] += 1
        return end


class Transaction:
    """The replies to MULTI, to each queued call, and to EXEC."""

    def __init__(self, expected):
        self.expected = expected

    def read(self, data, at, counts):
        kind, at = read_reply(data, at)
        is_aborted = kind != STATUS
        for _ in self.expected:
            kind, at = read_reply(data, at)
            is_aborted |= kind != STATUS
        if is_aborted:
            return EXEC_ABORTED.read(data, at, counts)
        header = b"*%d\r\n" % len(self.expected)
        if not data.startswith(header, at):
            raise BadReply(f"EXEC of {len(self.expected)} calls: {shown(data[at:at + 80])}")
        at += len(header)
        for expected in self.expected:
            at = expected.read(data, at, counts)
        return at


FENCE_OR_NULL = Single([INTEGER, NULL, ERROR])
FENCE_OR_QUEUED = Single([INTEGER, NULL, STATUS, ERROR])
EVENTS = Single([ARRAY, ERROR])
SESSION_ENDED = Single([INTEGER, ERROR])
WATCHED = Single([STATUS, ERROR])
RELEASED = Single([INTEGER, ERROR])
EXTENDED = Single([INTEGER, ERROR])
DETAILS_OR_NULL = Single([ARRAY, MAP, NULL, ERROR])
APPLIED = Single([ERROR])
ANYTHING = Single([INTEGER, STATUS, ERROR, BULK, NULL])
EXEC_ABORTED = Single([ERROR])


# -- making calls --------------------------------------------------------------------------------


def word(value):
    """One argument as it goes over the wire."""
    value = value if isinstance(value, bytes) else str(value).encode()
    return b"$%d\r\n%s\r\n" % (len(value), value)


def words(*values):
    return [word(v) for v in values]


def call(*encoded):
    return b"*%d\r\n" % len(encoded) + b"".join(encoded)


def cases(name):
    return [word(spelled) for spelled in (name, name.lower(), name.title(), name.swapcase())]


NUMBERS = words(
    0, -1, 1, 2, 10, 86_400_000, 86_400_001, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**52, 2**63 - 1,
    2**63, -2**63, 2**64, "99999999999999999999", "1e3", "1.0", "0x10", "010", "+1", " 1", "1 ", "",
    "-", "-0", "nan", "inf", b"1\x00", b"1\r\n", "1" * 400, b"\xef\xbc\x91")
LEASES = words(1, 2, 5, 50, 1000, 60_000, 86_400_000)
KEYS = words("a", "b", "c", "d", "e", "", b"\x00", b"a\r\nb", "k" * 300)
TOKENS = words("me", "me", "you", "12345", b"\x00", b"\r\n", b"t\x00t", "t" * 255, "t" * 256)
BAD_TOKENS = words("", "t" * 257, "t" * 5000, b"\x00" * 257)
FENCES = words(1, 2, 1 << 40, 1 << 50, 1 << 62, FENCE_LIMIT // 2, FENCE_LIMIT - 1, FENCE_LIMIT)
SESSIONS = words("s" * 16, "s" * 16, "S" * 64, b"\x00\r\n" * 6)
BAD_SESSIONS = words("", "s" * 15, "s" * 65, "nobody's session")
TIMEOUTS = words(60_000)
OPTIONS = words("VIA", "via", "GRACE", "ACK", "END", "PX", "px", "Px", "pX", "PXX", "P", b"PX\x00",
                " PX", "EX", "NX", "XX", "SESSION", "session", "FENCE", "fence", "FENCES", "SHARED",
                "shared",
                "MAX", "WAITERS", "KEEPTTL", "",
                b"\r\n", "%s%n%x", "-ERR")
SCRIPT = b"return redis.pcall(unpack(ARGV))"
PX, MULTI, EXEC = words("PX", "MULTI", "EXEC")


class Generator:
    """Random calls: what to send, and what must come back."""

    def __init__(self, seed, script_sha):
        self.random = random.Random(seed)
        self.evalsha = words("EVALSHA", script_sha, 0)
        self.anything_pool = [*NUMBERS, *LEASES, *KEYS, *TOKENS, *BAD_TOKENS, *OPTIONS, *FENCES,
                              *SESSIONS, *BAD_SESSIONS]
        self.anything_pool += [word(self.noise(1000)) for _ in range(500)]
        self.anything = self.endless(self.anything_pool)
        self.key = self.endless(self.mostly(KEYS))
        self.token = self.endless(self.mostly(TOKENS * 20 + BAD_TOKENS))
        self.lease = self.endless(self.mostly(LEASES * 20 + NUMBERS))
        self.option = self.endless(self.mostly(OPTIONS))
        self.fence = self.endless(self.mostly(FENCES * 20 + NUMBERS))
        self.count = self.endless(self.mostly(words(1, 10, 10_000) * 20 + NUMBERS))
        self.chance = map(lambda _: self.random.random(), itertools.repeat(None))
        self.acquire = self.endless(cases("DLOCK.ACQUIRE"))
        self.extend = self.endless(cases("DLOCK.EXTEND"))
        self.release = self.endless(cases("DLOCK.RELEASE"))
        self.info = self.endless(cases("DLOCK.INFO"))
        self.apply = self.endless(cases("DLOCK.APPLY") + cases("DLOCK.APPLYALL"))
        self.acquire_all = self.endless(cases("DLOCK.ACQUIREALL"))
        self.release_all = self.endless(cases("DLOCK.RELEASEALL"))
        self.heartbeat = self.endless(cases("DLOCK.SESSION"))
        self.watch = self.endless(cases("DLOCK.WATCH") + cases("DLOCK.UNWATCH"))
        self.session = self.endless(self.mostly(SESSIONS * 20 + BAD_SESSIONS))
        self.timeout = self.endless(self.mostly(TIMEOUTS * 1000 + NUMBERS))
        self.number = self.endless(self.mostly(NUMBERS))
        self.maker = self.endless(
            [self.make_lease_call] * 30 + [self.make_session_call] * 15 + [self.make_release] * 20 +
            [self.make_all_call] * 15 + [self.make_release_all] * 10 +
            [self.make_watch] * 4 + [self.make_end] * 1 + [self.make_info] * 8 +
            [self.make_apply] * 7 + [self.make_soup] * 12 + [self.make_other] * 8)

    def endless(self, pool):
        while True:
            yield from self.random.choices(pool, k=4096)

    def mostly(self, pool):
        """This pool, with a few words that do not belong there."""
        return pool * (20 * len(self.anything_pool) // len(pool) + 1) + self.anything_pool

    def noise(self, biggest):
        """Random bytes: any order of magnitude is as likely as any other."""
        return self.random.randbytes(min(biggest, int((2 * biggest) ** self.random.random())))

    def make_lease_call(self):
        """ACQUIRE or EXTEND in good form, or nearly."""
        is_acquire = next(self.chance) < 0.7
        made = [next(self.acquire if is_acquire else self.extend), next(self.key), next(self.token)]
        options = [PX, next(self.lease)]
        if is_acquire and next(self.chance) < 0.1:
            options += [*words("FENCE"), next(self.fence)]
        if is_acquire and next(self.chance) < 0.1:
            options += [*words("FENCES"), next(self.count)]
        if is_acquire and next(self.chance) < 0.4:
            options += words("SHARED")
            if next(self.chance) < 0.3:
                options += [*words("MAX"), next(self.count)]
        if next(self.chance) < 0.1:
            options = self.more_options(options)
        return made + options, FENCE_OR_NULL if is_acquire else EXTENDED

    def make_session_call(self):
        """ACQUIRE by a session, in good form or nearly. It never blocks, so it may wait."""
        options = [*words("VIA"), next(self.session)]
        is_kept = next(self.chance) < 0.5
        if is_kept:
            options += words("SESSION")
            if next(self.chance) < 0.5:
                options += [*words("GRACE"), next(self.lease)]
        if not is_kept or next(self.chance) < 0.5:
            options += [PX, next(self.lease)]
        if next(self.chance) < 0.6:
            options += [*words("WAIT"), next(self.lease)]
        if next(self.chance) < 0.4:
            options += words("SHARED")
        return [next(self.acquire), next(self.key), next(self.token), *options], FENCE_OR_QUEUED

    def names(self):
        """Their number and some names: mostly all different, mostly as many as the number says."""
        count = self.random.choice([1, 2, 2, 2, 3, 5, 9])
        names = self.random.sample(KEYS, count)
        if next(self.chance) < 0.05:
            names[self.random.randrange(count)] = next(self.key)
        number = next(self.number) if next(self.chance) < 0.03 else word(count)
        return [number, *names[:count - (next(self.chance) < 0.03)]]

    def make_all_call(self):
        """ACQUIREALL in good form, or nearly. With a session it may wait."""
        options = [PX, next(self.lease)]
        if next(self.chance) < 0.5:
            options += [*words("VIA"), next(self.session)]
            options += [*words("WAIT"), next(self.lease)] if next(self.chance) < 0.8 else []
            options += words("SESSION") if next(self.chance) < 0.4 else []
        if next(self.chance) < 0.3:
            options += words("SHARED")
        if next(self.chance) < 0.1:
            options += [*words("FENCES"), next(self.count)]
        is_waiting = word("WAIT") in options
        if next(self.chance) < 0.1 and not is_waiting:
            options = self.more_options(options)
        return [next(self.acquire_all), *self.names(), next(self.token), *options], FENCE_OR_QUEUED

    def make_release_all(self):
        return [next(self.release_all), *self.names(), next(self.token)], RELEASED

    def make_heartbeat(self):
        """Only in transactions: elsewhere it would hold up the pipeline."""
        made = [next(self.heartbeat), next(self.session), PX, next(self.timeout)]
        if next(self.chance) < 0.5:
            made += [*words("ACK"), next(self.number)]
        return made, EVENTS

    def make_end(self):
        return [next(self.heartbeat), next(self.session), *words("END")], SESSION_ENDED

    def make_watch(self):
        return [next(self.watch), next(self.key), next(self.session)], WATCHED

    def more_options(self, options):
        """With some words before or behind. A WAIT always gets a time that has to be refused: a
        call that blocks would hold up the pipeline."""
        more = [next(self.option) for _ in range(self.random.randrange(4))]
        if next(self.chance) < 0.2:
            more += words("WAIT", self.random.choice([0, -1, "x", 2**63]))
        return options + more if next(self.chance) < 0.5 else more + options

    def make_release(self):
        return [next(self.release), next(self.key), next(self.token)], RELEASED

    def make_info(self):
        made = [next(self.info), next(self.key)]
        if next(self.chance) < 0.5:
            made += [*words("WAITERS"), next(self.count)]
        return made, DETAILS_OR_NULL

    def make_apply(self):
        shared = words("SHARED") if next(self.chance) < 0.3 else []
        return [next(self.apply), next(self.key), next(self.token), next(self.fence),
                next(self.lease), *shared], APPLIED

    def make_soup(self):
        """Any number of any words."""
        name, expected = self.random.choice([
            (self.acquire, FENCE_OR_NULL), (self.extend, EXTENDED), (self.release, RELEASED),
            (self.info, DETAILS_OR_NULL), (self.apply, APPLIED), (self.watch, WATCHED),
            (self.acquire_all, FENCE_OR_NULL), (self.release_all, RELEASED)])
        made = [next(name)]
        made += [next(self.anything) for _ in range(self.random.randrange(9))]
        return made, expected

    def make_other(self):
        """What else happens to keys."""
        key, choose = next(self.key), self.random.choice
        return choose([
            [*words("DEL"), key],
            [*words("UNLINK"), key],
            [*words("SET"), key, next(self.token)],
            [*words("SET"), key, next(self.token), *words("NX", "PX", 5)],
            [*words("RPUSH"), key, *words("x")],
            [*words("PEXPIRE"), key, *words(choose([0, 1, 100, -1]))],
            [*words("PERSIST"), key],
            [*words("RENAME"), key, next(self.key)],
            [*words("DUMP"), key],
            words("FLUSHALL", choose(["SYNC", "ASYNC"])) if next(self.chance) < 0.05 else
            [*words("TYPE"), key],
        ]), ANYTHING

    def make(self):
        """A call and what to expect; once in a while with a really big argument."""
        made, expected = next(self.maker)()
        if next(self.chance) < 0.001 and len(made) > 1:
            made[self.random.randrange(1, len(made))] = word(self.noise(BIGGEST))
        return made, expected

    def next_calls(self):
        """One call by itself, one through a script, or some in a transaction: what to send, what to
        expect, and how many calls it is."""
        chance = next(self.chance)
        if chance < 0.02:
            queued = [self.make_heartbeat() if next(self.chance) < 0.3 else self.make()
                      for _ in range(self.random.randint(1, 10))]
            sent = b"".join([call(MULTI), *(call(*made) for made, _ in queued), call(EXEC)])
            return sent, Transaction([expected for _, expected in queued]), len(queued)
        made, expected = self.make()
        if chance < 0.12:
            return call(*self.evalsha, *made), expected, 1
        return call(*made), expected, 1


# -- the conversation ----------------------------------------------------------------------------


class Connection:
    """Sends batches. After each a PING with a text of its own: the replies end there or nowhere."""

    numbers = itertools.count()

    def __init__(self, server):
        self.socket = server.socket()
        self.waiting = []
        self.pong = None
        self.has_resp3 = False

    def use_resp3(self):
        self.has_resp3 = True
        self.send([(call(*words("HELLO", 3)), Single([MAP]))])
        self.receive(collections.Counter())

    def send(self, batch):
        ping = b"dlock-fuzz-ping-%d" % next(self.numbers)
        self.socket.sendall(b"".join([sent for sent, _ in batch]) + call(*words("PING", ping)))
        self.waiting, self.pong = batch, word(ping)

    def receive(self, counts):
        """Read and check the replies to what was sent last, if anything was."""
        if not self.waiting:
            return
        data = self.read_until_pong()
        at = 0
        for i, (_, expected) in enumerate(self.waiting):
            try:
                at = expected.read(data, at, counts)
            except (BadReply, ValueError, IndexError) as failure:
                raise AssertionError(self.story(i, failure)) from None
        assert at == len(data), self.story(i, f"one reply too many: {shown(data[at:])}")
        self.waiting = []

    def read_until_pong(self):
        chunks = []
        tail = b""
        while self.pong not in tail:
            chunk = self.socket.recv(1 << 20)
            assert chunk, f"the server has closed the connection; DLOCK_SEED={SEED}"
            chunks.append(chunk)
            tail = tail[-len(self.pong):] + chunk
        data = b"".join(chunks)
        assert data.endswith(self.pong), f"more after the last reply: {shown(data[-300:])}"
        return data[:-len(self.pong)]

    def story(self, i, failure):
        calls = [f"    {shown(sent)}" for sent, _ in self.waiting[max(0, i - 5):i + 1]]
        return "\n".join([f"{failure}", f"again: DLOCK_SEED={SEED}", "the last calls:", *calls])


def shown(data):
    return repr(data) if len(data) <= 300 else f"{data[:300]!r}... ({len(data)} bytes)"


def make_batch(generator, limit):
    batch, calls, size = [], 0, 0
    while calls < limit and size < BATCH_BYTES:
        sent, expected, count = generator.next_calls()
        batch.append((sent, expected))
        calls += count
        size += len(sent)
    return batch, calls


class Parked:
    """Connections on which heartbeats are parked, and which break at any time."""

    def __init__(self, server, choose):
        self.server, self.choose = server, choose
        self.sockets = []

    def change(self):
        if len(self.sockets) < 4 and self.choose.random() < 0.5:
            self.sockets.append(self.server.socket())
            for _ in range(2):
                heartbeat = [*words("DLOCK.SESSION"), self.choose.choice(SESSIONS), PX, *TIMEOUTS]
                self.sockets[-1].sendall(call(*heartbeat))
        elif self.sockets:
            self.sockets.pop(self.choose.randrange(len(self.sockets))).close()

    def close(self):
        for bare in self.sockets:
            bare.close()


def talk(server, generator, calls):
    """That many calls, over two connections in turn, one with RESP3, which break now and then: how
    often which reply came."""
    counts = collections.Counter()
    choose = generator.random
    connections = [Connection(server), Connection(server)]
    parked = Parked(server, choose)
    for i in itertools.cycle([0, 1]):
        connections[i].receive(counts)
        if calls <= 0:
            break
        if choose.random() < 0.3:
            connections[i].socket.close()
            connections[i] = Connection(server)
        if i == 1 and not connections[1].has_resp3:
            connections[1].use_resp3()
        parked.change()
        batch, count = make_batch(generator, min(calls, BATCH_CALLS))
        connections[i].send(batch)
        calls -= count
    for connection in connections:
        connection.receive(counts)
        connection.socket.close()
    parked.close()
    return counts


HANGING = ("sessions", "session_holds", "session_waiters", "watches", "events_unacknowledged")


def fill_spare_clients(server, client):
    """The server keeps up to 8 clients that no module uses any more, for the next one that blocks:
    17 KB each. All of them are there after a crowd has waited, and no others after a second, when
    the server has looked for what it may free."""
    client.execute_command("DLOCK.ACQUIRE", "crowd", "me", "PX", 60_000)
    with parked(server, 20, key="crowd"):
        pass
    wait_for_waiters(client, 0)
    client.delete("crowd")
    second = client.info("server")["lru_clock"]
    wait_until(lambda: client.info("server")["lru_clock"] != second, "the server to clean up")


def used_memory(server, client):
    """Without sessions, keys and clients, and without garbage of Lua, which Redis 8 counts too."""
    end_sessions(server)
    client.flushall()
    wait_until(lambda: not any(stats(client)[name] for name in HANGING), "all sessions to end")
    fill_spare_clients(server, client)
    client.eval("collectgarbage() return 1", 0)
    wait_until(lambda: client.info("clients")["connected_clients"] == 1, "the others are gone")
    wait_until(lambda: client.info("memory")["lazyfree_pending_objects"] == 0, "all is freed")
    seen = []

    def is_settled():
        server.clock.turn(20)
        used = client.info("memory")
        seen.append(used["used_memory"] - used["mem_clients_normal"])
        return len(seen) > 5 and len(set(seen[-5:])) == 1
    wait_until(is_settled, "the memory to be the same again and again")
    return seen[-1]


@pytest.mark.limit(300, "makes as many calls as it is told to, a million in the long run")
def test_any_call_gets_one_reply_and_leaves_nothing_behind(start_server):
    print(f"DLOCK_SEED={SEED}")
    server = start_server("--slowlog-log-slower-than", "-1", "--latency-tracking", "no")
    client = server.observer
    generator = Generator(SEED, client.script_load(SCRIPT))
    talk(server, generator, 20_000)
    before = used_memory(server, client)

    counts = talk(server, generator, CALLS)
    for expected in (FENCE_OR_NULL, FENCE_OR_QUEUED, EVENTS, SESSION_ENDED, WATCHED, RELEASED,
                     EXTENDED, DETAILS_OR_NULL, APPLIED):
        for kind in expected.kinds:
            assert counts[expected, kind] > CALLS // 10_000, "the calls are too much alike"
    assert client.info("everything")["dlock_granted"] > 0
    assert client.execute_command("DEBUG", "RELOAD")
    left = []

    def is_free_again():
        """The server itself keeps half a megabyte for some seconds, now and then."""
        left.append(used_memory(server, client) - before)
        return left[-1] < LEAK_BYTES or len(left) == 10
    wait_until(is_free_again, "ten looks at the memory", timeout=200)
    print(f"{left} bytes more than before")
    assert left[-1] < LEAK_BYTES, f"{left} bytes are left behind; DLOCK_SEED={SEED}"


# -- RESTORE -------------------------------------------------------------------------------------


FOOTER = 10  # of a DUMP: the RDB version, and a checksum that we have switched off


def mutate(choose, payload):
    """A few small injuries, now and then in the footer as well. The first byte stays, it says that
    this is a module's value: how Redis reads its own types is not our concern."""
    end = len(payload) if choose.random() < 0.02 else len(payload) - FOOTER
    body, rest = bytearray(payload[1:end]), payload[end:]
    for _ in range(choose.choice([1, 1, 1, 2, 3, 8])):
        at = choose.randrange(len(body) + 1)
        size = choose.choice([1, 1, 1, 2, 4, 8, 300])
        how = choose.randrange(5)
        if how == 0 and at < len(body):
            body[at] ^= 1 << choose.randrange(8)
        elif how == 1 and at < len(body):
            body[at] = choose.choice([0, 1, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xfe, 0xff])
        elif how == 2:
            body[at:at] = choose.randbytes(size)
        elif how == 3:
            del body[at:at + size]
        else:
            body[at:at + size] = choose.randbytes(size)
    return payload[:1] + bytes(body) + rest


def check_lock(info):
    details = details_of(info)
    holders = details["holders"]
    assert details["kind"] == b"lock"
    assert len(holders) >= 1 and (details["mode"] == b"shared" or len(holders) == 1)
    assert len({fields["token"] for fields in holders}) == len(holders)
    for fields in holders:
        assert 1 <= len(fields["token"]) <= 256
        assert 1 <= fields["fence"] < FENCE_LIMIT
        assert 0 <= fields["since"] < TIME_LIMIT
        assert 1 <= fields["lease"] < LEASE_LIMIT
        assert 0 <= fields["ttl"] <= fields["lease"]


@pytest.fixture
def huge_allocations_fail(monkeypatch, tmp_path):
    """As they do without AddressSanitizer: a forged length is no reason to end the server. It warns
    of each, so it writes into a file of its own, and here we look whether there is more."""
    options = os.environ.get("ASAN_OPTIONS", "")
    options += f":allocator_may_return_null=1:log_path={tmp_path}/asan"
    monkeypatch.setenv("ASAN_OPTIONS", options)
    yield
    reports = [path.read_text() for path in tmp_path.glob("asan*")]
    errors = [report for report in reports if "ERROR" in report]
    print(*errors)  # of all that fails while a test ends pytest shows the first: the server's exit
    assert not errors


def test_a_damaged_dump_is_refused_or_restores_a_sane_lock(huge_allocations_fail, start_server):
    print(f"DLOCK_SEED={SEED}")
    client = start_server("--sanitize-dump-payload", "yes").client()
    client.response_callbacks.clear()
    choose = random.Random(SEED)
    payloads = []
    for token in b"t", b"me", b"\x00" * 60, b"t" * 70, b"t" * 256:
        client.execute_command("DLOCK.ACQUIRE", "lock", token, "PX", 86_400_000)
        payloads.append(client.execute_command("DUMP", "lock"))
        client.execute_command("DLOCK.RELEASE", "lock", token)
    for token in b"one", b"two", b"t" * 70:
        client.execute_command("DLOCK.ACQUIRE", "lock", token, "PX", 86_400_000, "SHARED")
        payloads.append(client.execute_command("DUMP", "lock"))
    client.execute_command("DEL", "lock")
    client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)

    counts = collections.Counter()
    for _ in range(MUTATIONS // 100):
        pipeline = client.pipeline(transaction=False)
        for _ in range(100):
            pipeline.execute_command("RESTORE", "lock", 0, mutate(choose, choose.choice(payloads)))
            pipeline.execute_command("TYPE", "lock")
            pipeline.execute_command("DLOCK.INFO", "lock")
            pipeline.execute_command("DLOCK.ACQUIRE", "lock", "t", "PX", 1000)
            pipeline.execute_command("DEL", "lock")
        replies = iter(pipeline.execute(raise_on_error=False))
        for restored, type_name, info, _acquired, _deleted in zip(*[replies] * 5):
            is_restored = restored == b"OK"
            counts[is_restored] += 1
            assert type_name == b"none" or is_restored and type_name == b"dlock-key"
            if info is not None:  # a lease of a few milliseconds may be over
                check_lock(info)
    assert min(counts[True], counts[False]) > MUTATIONS // 20, "the injuries are too much alike"
