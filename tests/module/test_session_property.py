"""Random lives of sessions against a model: after every step, each lock has the holder and the
queue that the model has, and each heartbeat tells the events that the model expects.

The steps follow from a seed, which a failure shows. Environment:
    DLOCK_SEED            the seed to use (default: a new one each run)
    DLOCK_SESSION_STEPS   how many steps (default 1500)

Time is that of the fake clock, in seconds: every step of it is a multiple of 1000, and every
duration is 500 more than that. So the seconds that the test itself takes do not matter.
"""

import collections
import dataclasses
import itertools
import os
import random
import socket

import redis

from support.commands import LISTED_SESSION, acquire_words, details_of
from support.turn import in_one_turn

STEPS = int(os.environ.get("DLOCK_SESSION_STEPS", 1500))
SEED = int(os.environ.get("DLOCK_SEED", random.SystemRandom().randrange(2**32)))
SHOWN_STEPS = 25
TURNS = 6  # enough for all that one step sets off

KEYS = ["one", "two", "three"]
TOKENS = ["a", "b", "c", "d", "e"]
TIMEOUTS = [2500, 4500, 9500]  # of each session
LEASES = [1500, 3500, 6500]
WAITS = [500, 2500, 7500]
GRACES = [0, 500, 1500]
FOREVER = float("inf")


@dataclasses.dataclass
class Wait:
    place: int
    keys: list
    token: str
    session: "Session"
    lease: float  # None: none of its own
    is_kept: bool
    grace: float  # None: none
    ends: float


@dataclasses.dataclass
class Grant:
    """What the holds of one request have in common."""
    fence: int = 0  # 0: not seen yet


@dataclasses.dataclass
class Hold:
    """ends: the lease, or the limit of a hold that is kept by a session. number: another one when
    its holder asks again."""
    number: int
    token: str
    ends: float
    keeper: "Session" = None
    grace: float = None
    grant: Grant = None


@dataclasses.dataclass
class Event:
    words: list
    is_written: bool = False
    wait: Wait = None  # of a grant
    holds: dict = None  # key -> hold, and its number then


class Session:
    def __init__(self, name, timeout):
        self.name, self.timeout = name, timeout
        self.is_alive = self.is_present = False
        self.ends = self.away_since = None
        self.events = []
        self.watched = {}  # key -> what was told last


class Model:
    def __init__(self):
        self.now = 0
        self.numbers = itertools.count(1)
        self.sessions = [Session(f"{i}-session-number", timeout)
                         for i, timeout in enumerate(TIMEOUTS)]
        self.holds = dict.fromkeys(KEYS)
        self.waits = {key: [] for key in KEYS}

    # -- rules

    def end_of(self, hold):
        ends = hold.ends
        if hold.keeper is not None:
            ends = min(ends, hold.keeper.ends)
            if not hold.keeper.is_present and hold.grace is not None:
                ends = min(ends, hold.keeper.away_since + hold.grace)
        return ends

    def line(self, key):
        """Those whose turn it is, in their order."""
        return sorted((wait for wait in self.waits[key] if wait.session.is_present),
                      key=lambda wait: wait.place)

    def grant(self, keys, session, token, lease, is_kept, grace):
        """With one fence, also for locks that the token has already."""
        grant = Grant()
        for key in keys:
            if self.has(key, token):
                self.acquire_again(self.holds[key], session, lease, is_kept, grace)
                # Another fence counts as another holder for those who watch.
                self.holds[key] = dataclasses.replace(self.holds[key], grant=grant)
            else:
                ends = FOREVER if lease is None else self.now + lease
                self.holds[key] = Hold(next(self.numbers), token, ends,
                                       session if is_kept else None, grace, grant)
        return grant

    def has(self, key, token):
        return self.holds[key] is not None and self.holds[key].token == token

    def drop(self, wait):
        for key in wait.keys:
            self.waits[key].remove(wait)

    def end_wait(self, wait, why):
        self.drop(wait)
        wait.session.events.append(Event(["ended", wait.keys[0], wait.token, why]))

    def lose(self, key, why):
        hold, self.holds[key] = self.holds[key], None
        if hold.keeper is not None:
            hold.keeper.events.append(Event(["lost", key, hold.token, why]))

    def settle(self):
        """All that the server does by itself."""
        for wait in self.all_waits():
            if wait.ends <= self.now:
                self.end_wait(wait, "timeout")
        for session in self.sessions:
            if session.is_alive and session.ends <= self.now:
                self.end(session)
        for key in KEYS:
            if self.holds[key] is not None and self.end_of(self.holds[key]) <= self.now:
                self.lose(key, "expired")
        for wait in self.all_waits():
            if self.is_served(wait):
                self.drop(wait)
                self.grant(wait.keys, wait.session, wait.token, wait.lease, wait.is_kept,
                           wait.grace)
                holds = {key: (self.holds[key], self.holds[key].number) for key in wait.keys}
                wait.session.events.append(
                    Event(["granted", wait.keys[0], wait.token], wait=wait, holds=holds))
        self.tell_watches()

    def all_waits(self):
        """Each once, in the order of arrival: one that is served can be followed by later ones."""
        waits = {wait.place: wait for wait in itertools.chain(*self.waits.values())}
        return [waits[place] for place in sorted(waits)]

    def is_served(self, wait):
        """First in all lines, and all locks are free."""
        return all(self.holds[key] is None and self.line(key)[:1] == [wait] for key in wait.keys)

    def tell_watches(self):
        for session, key in itertools.product(self.sessions, KEYS):
            hold = self.holds[key]
            if key in session.watched and session.watched[key] is not hold:
                session.watched[key] = hold
                session.events = [event for event in session.events
                                  if event.words[:2] != ["changed", key]]
                session.events.append(Event(["changed", key, hold and hold.token]))

    # -- steps: each returns the reply that it expects, and settles nothing

    def acquire(self, session, keys, token, lease, wait, is_kept, grace):
        if not session.is_alive or (grace is not None and not session.is_present):
            return "NOSESSION"
        held = [key for key in keys if self.has(key, token)]
        own = {id(each): each for key in keys for each in self.waits[key] if each.token == token}
        if all(key in held or self.holds[key] is None and not self.line(key) for key in keys):
            grants = [self.holds[key].grant for key in held]
            if held == keys and all(each is grants[0] for each in grants):
                for key in keys:
                    self.acquire_again(self.holds[key], session, lease, is_kept, grace)
                return grants[0]
            for each in own.values():
                self.drop(each)
            return self.grant(keys, session, token, lease, is_kept, grace)
        if wait is None:
            return None
        if held:
            return "ERR"
        place = next(self.numbers)
        for each in own.values():
            if set(each.keys) == set(keys):
                place = each.place
            self.drop(each)
        queued = Wait(place, keys, token, session, lease, is_kept, grace, self.now + wait)
        for key in keys:
            self.waits[key].append(queued)
        return "QUEUED"

    def acquire_again(self, hold, session, lease, is_kept, grace):
        """Never shorter. The hold counts as another one for a grant that was never told."""
        hold_end = self.end_of(hold)
        hold.number = next(self.numbers)
        ends = FOREVER if lease is None else self.now + lease
        if not is_kept:
            hold.ends = max(hold.ends, ends)
        elif hold.keeper is session:
            hold.ends, hold.grace = max(hold.ends, ends), grace
        else:
            hold.ends, hold.keeper, hold.grace = max(hold_end, ends), session, grace

    def release(self, keys, token):
        held = [key for key in keys if self.has(key, token)]
        for key in held:
            self.holds[key] = None
        for wait in self.all_waits():
            if wait.token == token and set(wait.keys) & set(keys) - set(held):
                self.end_wait(wait, "released")
        return len(held)

    def extend(self, key, token, lease):
        hold = self.holds[key]
        if hold is None or hold.token != token:
            return 0
        if hold.ends == FOREVER:
            return "ERR"
        hold.ends = max(hold.ends, self.now + lease)
        return 1

    def delete(self, key):
        if self.holds[key] is None:
            return 0
        self.lose(key, "deleted")
        return 1

    def watch(self, session, key):
        if not session.is_alive:
            return "NOSESSION"
        session.watched[key] = "not told yet"
        return "OK"

    def unwatch(self, session, key):
        if not session.is_alive:
            return "NOSESSION"
        session.watched.pop(key, None)
        session.events = [event for event in session.events if event.words[:2] != ["changed", key]]
        return "OK"

    def hear(self, session, is_acknowledged):
        """The events that the reply must have."""
        if not session.is_alive:
            session.is_alive, session.events, session.watched = True, [], {}
        if is_acknowledged:
            session.events = [event for event in session.events if not event.is_written]
        session.is_present, session.ends = True, self.now + session.timeout
        for event in session.events:
            event.is_written = True
        return [event.words for event in session.events]

    def cut(self, session):
        if not session.is_alive or not session.is_present:
            return
        session.is_present, session.away_since = False, self.now
        self.take_back(session)

    def take_back(self, session):
        """The grants that were never told, the last one first. A token that has asked again keeps
        what it has, and so does one that has lost some of several locks."""
        for event in reversed(list(session.events)):
            wait = event.wait
            if wait is None or event.is_written:
                continue
            if any(each.token == wait.token for key in wait.keys for each in self.waits[key]):
                continue
            untold = [key for key, (hold, number) in event.holds.items()
                      if self.holds[key] is hold and hold.number == number]
            if untold != wait.keys:
                continue
            session.events.remove(event)
            for key in untold:
                self.holds[key] = None
            for key in wait.keys:
                self.waits[key].append(wait)

    def end(self, session):
        if not session.is_alive:
            return 0
        session.is_alive = session.is_present = False
        self.take_back(session)
        session.events, session.watched = [], {}
        for key in KEYS:
            self.waits[key] = [wait for wait in self.waits[key] if wait.session is not session]
            if self.holds[key] is not None and self.holds[key].keeper is session:
                self.holds[key] = None
        return 1

    def advance(self):
        self.now += 1000


# -- the run --------------------------------------------------------------------------------------


class Run:
    def __init__(self, server):
        self.server, self.client = server, server.observer
        self.model, self.choose = Model(), random.Random(SEED)
        self.connections = {}
        self.seen = collections.Counter()  # session -> number of the last event
        self.fences = dict.fromkeys(KEYS, 0)
        self.story = collections.deque(maxlen=SHOWN_STEPS)

    def call(self, *words, client=None):
        try:
            reply = (client or self.client).execute_command(*words)
        except redis.ResponseError as error:
            reply = str(error).split()[0] if str(error).startswith("NOSESSION") else "ERR"
        return reply.decode() if isinstance(reply, bytes) else reply

    # -- each step: what is sent, and what the model says to it

    def acquire(self):
        choose = self.choose
        session, token = choose.choice(self.model.sessions), choose.choice(TOKENS)
        keys = choose.sample(KEYS, choose.choice([1, 1, 2, 2, 2, 3]))
        is_kept = choose.random() < 0.5
        grace = choose.choice(GRACES) if is_kept and choose.random() < 0.4 else None
        lease = choose.choice(LEASES) if not is_kept or choose.random() < 0.4 else None
        wait = choose.choice(WAITS) if choose.random() < 0.7 else None
        is_all = len(keys) > 1 or choose.random() < 0.2
        words = [*acquire_words(keys if is_all else keys[0], token), "VIA", session.name]
        words += ["SESSION"] if is_kept else []
        words += ["GRACE", grace * 1000] if grace is not None else []
        words += ["PX", lease * 1000] if lease is not None else []
        words += ["WAIT", wait * 1000] if wait is not None else []
        self.asked = keys
        expected = self.model.acquire(session, keys, token, lease, wait, is_kept, grace)
        return words, expected

    def release(self):
        key, token = self.choose.choice(KEYS), self.choose.choice(TOKENS)
        return ["DLOCK.RELEASE", key, token], self.model.release([key], token)

    def release_all(self):
        """Of a holder, if there is one."""
        keys = self.choose.sample(KEYS, self.choose.choice([1, 2, 3]))
        hold = self.model.holds[keys[0]]
        token = self.choose.choice(TOKENS) if hold is None else hold.token
        words = ["DLOCK.RELEASEALL", len(keys), *keys, token]
        return words, self.model.release(keys, token)

    def release_holder(self):
        key = self.choose.choice(KEYS)
        hold = self.model.holds[key]
        token = "nobody" if hold is None else hold.token
        return ["DLOCK.RELEASE", key, token], self.model.release([key], token)

    def extend(self):
        key, token = self.choose.choice(KEYS), self.choose.choice(TOKENS)
        lease = self.choose.choice(LEASES)
        return (["DLOCK.EXTEND", key, token, "PX", lease * 1000],
                self.model.extend(key, token, lease))

    def delete(self):
        key = self.choose.choice(KEYS)
        return ["DEL", key], self.model.delete(key)

    def watch(self):
        session, key = self.choose.choice(self.model.sessions), self.choose.choice(KEYS)
        return ["DLOCK.WATCH", key, session.name], self.model.watch(session, key)

    def unwatch(self):
        session, key = self.choose.choice(self.model.sessions), self.choose.choice(KEYS)
        return ["DLOCK.UNWATCH", key, session.name], self.model.unwatch(session, key)

    def end(self):
        session = self.choose.choice(self.model.sessions)
        return ["DLOCK.SESSION", session.name, "END"], self.model.end(session)

    # -- steps that are no commands of the common connection

    def hear(self):
        """In a transaction, where a heartbeat returns at once."""
        session = self.choose.choice(self.model.sessions)
        is_acknowledged = self.choose.random() < 0.7
        if session.name not in self.connections:
            self.connections[session.name] = self.server.client()
        client = self.connections[session.name]
        acknowledged = self.seen[session.name] if is_acknowledged else 0
        [(_, events)] = in_one_turn(client, (
            "DLOCK.SESSION", session.name, "PX", session.timeout * 1000, "ACK", acknowledged))
        self.seen[session.name] = max([self.seen[session.name], *(event[0] for event in events)])
        told = [[word.decode() if isinstance(word, bytes) else word for word in event[1:]]
                for event in events]
        told = [words[:3] if words[0] == "granted" else words for words in told]
        expected = self.model.hear(session, is_acknowledged)
        self.story.append(f"heartbeat of {session.name}, ACK {is_acknowledged} -> {told}")
        assert sorted(map(repr, told)) == sorted(map(repr, expected)), f"{told}, not {expected}"

    def cut(self):
        session = self.choose.choice(self.model.sessions)
        self.story.append(f"cut {session.name}")
        client = self.connections.pop(session.name, None)
        if client is not None:
            hang_up(client)
        self.model.cut(session)

    def advance(self):
        self.model.advance()
        self.story.append("1000 s go by")
        self.server.clock.advance(1000, TURNS)

    # -- and what is seen after it

    def command(self, step):
        words, expected = step()
        reply = self.call(*words)
        self.story.append(f"{' '.join(map(str, words))} -> {reply}")
        if isinstance(expected, Grant):
            assert isinstance(reply, int), f"{reply}, not a fence"
            if expected.fence == 0:
                assert all(reply > self.fences[key] for key in self.asked), "a fence went back"
            else:
                assert reply == expected.fence
            expected.fence = reply
        else:
            assert reply == expected, f"{reply!r}, not {expected!r}"

    def look(self):
        for key in KEYS:
            details = details_of(self.client.execute_command("DLOCK.INFO", key, "WAITERS", 100))
            hold, waits = self.model.holds[key], self.model.waits[key]
            is_idle = hold is None and not waits
            assert (details is None) == is_idle, f"{key}: {details}, not {hold} and {waits}"
            if details is None:
                continue
            queue = [waiter["token"].decode() for waiter in details["queue"]]
            assert queue == [wait.token for wait in self.model.line(key)], f"{key}: {queue}"
            assert details["waiters"] == len(waits)
            assert bool(details["holders"]) == (hold is not None), f"{key}: {details}, not {hold}"
            if hold is None:
                continue
            [holder] = details["holders"]
            assert holder["token"].decode() == hold.token, f"{key}: {holder}, not {hold}"
            keeper = "" if hold.keeper is None else hold.keeper.name[:8]
            assert holder["via"].decode() == keeper, f"{key}: {holder}, not {hold}"
            if hold.grant.fence == 0:
                assert holder["fence"] > self.fences[key], "a fence went back"
                hold.grant.fence = holder["fence"]
            assert holder["fence"] == hold.grant.fence, f"{key}: {holder}, not {hold}"
            self.fences[key] = hold.grant.fence
            left = self.model.end_of(hold) - self.model.now
            assert abs(holder["ttl"] / 1000 - left) < 400, f"{key}: {holder}, not {left} s"
        counted = self.client.info("dlock")
        events = sum(len(session.events) for session in self.model.sessions)
        assert counted["dlock_events_unacknowledged"] == events
        assert counted["dlock_sessions"] == sum(s.is_alive for s in self.model.sessions)
        for session in self.model.sessions:
            if session.is_alive:
                assert listed_counts(counted, session.name) == self.counts_of(session)

    def counts_of(self, session):
        """The locks and the waits; a wait for several names is one."""
        holds = [hold for hold in self.model.holds.values() if hold and hold.keeper is session]
        return len(holds), sum(wait.session is session for wait in self.model.all_waits())

    def step(self):
        kind = self.choose.choices(
            [self.acquire, self.release, self.release_holder, self.release_all, self.extend,
             self.delete, self.watch, self.unwatch, self.end, self.hear, self.cut, self.advance],
            [40, 10, 15, 15, 8, 5, 6, 3, 1, 40, 12, 15])[0]
        if kind in (self.hear, self.cut, self.advance):
            kind()
        else:
            self.command(kind)
        for _ in range(2):  # a wait that was taken back may be over already
            self.model.settle()
        self.server.clock.turn(TURNS)
        self.look()


def listed_counts(info, name):
    [listed] = [fields for field, fields in info.items() if LISTED_SESSION.fullmatch(field)
                and str(fields["id"]) == name[:8]]
    return listed["locks"], listed["waiters"]


def hang_up(client):
    """And wait until the server has closed its side: a busy machine may deliver the end late."""
    connection = client.connection_pool.get_connection("hang up")
    connection._sock.shutdown(socket.SHUT_WR)
    assert connection._sock.recv(1) == b""
    connection.disconnect()


def test_sessions_do_what_the_model_does(server):
    run = Run(server)
    for number in range(STEPS):
        try:
            run.step()
        except AssertionError as failure:
            steps = "\n    ".join(run.story)
            raise AssertionError(f"step {number}: {failure}\nagain: DLOCK_SEED={SEED}\n"
                                 f"the last steps:\n    {steps}") from None
