"""A session of a process, on a connection of its own."""

import secrets
import socket

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from support.commands import acquire_words
from support.server import is_readable, wait_until
from support.waiting import A_DAY, let_turn

RESET = b"\1\0\0\0\0\0\0\0"  # struct linger: RST instead of FIN


class Session:
    """Opened when it is made. What hangs on it is asked for over another connection."""

    def __init__(self, server, timeout_ms=60_000, name=None, db=0, **options):
        self.server, self.timeout_ms = server, timeout_ms
        self.name = name or secrets.token_hex(8)
        self.options = {"db": db, **options}
        self.commands = server.client(db=db) if db else server.observer
        self.seen = 0  # number of the last event that was read
        self.connect()
        server.keep(self)
        self.born, first = self.call()
        assert first == []

    # -- its connection

    def connect(self):
        """Another one, over which the session is not heard of yet."""
        self.connection = redis.Connection("127.0.0.1", self.server.port, socket_timeout=50,
                                           retry=Retry(NoBackoff(), 0), **self.options)
        self.connection.send_command("CLIENT", "ID")
        self.id = self.connection.read_response()

    def send(self, ack=None, timeout_ms=None):
        """A heartbeat, which acknowledges all that was read; or these events only."""
        ack = self.seen if ack is None else ack
        words = ["DLOCK.SESSION", self.name, "PX", timeout_ms or self.timeout_ms]
        self.connection.send_command(*words, *(["ACK", ack] if ack else []))

    def read(self):
        """Born, and the events without their numbers."""
        born, events = self.connection.read_response()
        numbers = [event[0] for event in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
        self.seen = max([self.seen, *numbers])
        return born, [[decoded(word) for word in event[1:]] for event in events]

    def call(self, ack=None, timeout_ms=None):
        self.send(ack, timeout_ms)
        return self.read()

    def events(self, ack=None):
        """Those that have come, or the first ones to come."""
        return self.call(ack)[1]

    def event(self, ack=None):
        [only] = self.events(ack)
        return only

    def park(self):
        """A heartbeat that waits for events."""
        self.send()
        wait_until(lambda: self.flags() == "b", "the heartbeat to be parked")
        return self

    def flags(self):
        shown = self.server.observer.client_list(client_id=[str(self.id)])
        return shown and shown[0]["flags"]

    def is_answered(self):
        """The heartbeat, by what the server does by itself in its next turns."""
        let_turn(self.server)
        return is_readable(self.connection._sock)

    def has_no_events(self):
        """All that the server has to do is done, and there is nothing to tell. Leaves a parked
        heartbeat behind."""
        let_turn(self.server)
        self.send()
        return not self.is_answered()

    def go_away(self, is_reset=False):
        """Its connection closes."""
        away = self.server.observer.info("dlock")["dlock_sessions_away"]
        if is_reset:
            self.connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.connection.disconnect()
        wait_until(lambda: self.server.observer.info("dlock")["dlock_sessions_away"] == away + 1,
                   "the session to be away")
        let_turn(self.server)

    def come_back(self):
        """Over a new connection, whose first heartbeat is answered at once: the events that are
        told by it, or by a second one. With none, the second one is parked."""
        self.connect()
        events = self.events()
        self.send()
        return events + (self.read()[1] if self.is_answered() else [])

    def end(self):
        return self.commands.execute_command("DLOCK.SESSION", self.name, "END")

    # -- what hangs on it

    def acquire(self, token, *options, key="lock"):
        """key: one, or a list of several."""
        words = [*acquire_words(key, token), *options, "VIA", self.name]
        return decoded(self.commands.execute_command(*words))

    def wait(self, token, *options, key="lock", wait_ms=A_DAY, lease_ms=600_000):
        """In the queue, for a lease."""
        assert self.acquire(token, "PX", lease_ms, "WAIT", wait_ms, *options, key=key) == "QUEUED"

    def hold(self, token, *options, key="lock"):
        """As long as the session lives: the fence."""
        fence = self.acquire(token, "SESSION", *options, key=key)
        assert fence > 0
        return fence

    def watch(self, key="lock"):
        assert self.commands.execute_command("DLOCK.WATCH", key, self.name) == b"OK"

    def unwatch(self, key="lock"):
        assert self.commands.execute_command("DLOCK.UNWATCH", key, self.name) == b"OK"


def decoded(word):
    return word.decode() if isinstance(word, bytes) else word
