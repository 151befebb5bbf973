"""A process of test_philosophers.py: takes two or three locks in one step, moves a coin between
their accounts, and gives them back, again and again, until the key "stop" is there. Now and then it
takes one lock only, as others do.

    philosopher.py PORT NAME wait|session

It talks over bare sockets, so that it begins quickly, and may be killed or stopped at any moment.
"""

import random
import socket
import sys
import time

NAMES = [f"fork:{i}" for i in range(8)]
LEASE_MS, WAIT_MS, TIMEOUT_MS = 200, 600_000, 5_000
MOVE = """
for i = 1, #KEYS do redis.call('DLOCK.GUARD', KEYS[i], ARGV[1], 'PING') end
for i = 1, #KEYS do redis.call('SET', 'account:' .. KEYS[i], ARGV[i + 2]) end
for i = 1, #KEYS do redis.call('RPUSH', 'fences:' .. KEYS[i], ARGV[2]) end
return 1
"""


class Wire:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.reader = self.socket.makefile("rb")

    def call(self, *words):
        words = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self.read()

    def read(self):
        line = self.reader.readline()
        kind, text = line[:1], line[1:-2].decode()
        if kind == b":":
            return int(text)
        if kind == b"*":
            return [self.read() for _ in range(int(text))]
        if kind == b"$":
            return None if text == "-1" else self.reader.read(int(text) + 2)[:-2].decode()
        if not line:
            sys.exit("the server is gone")
        return text  # a status, or an error


class Philosopher:
    def __init__(self, port, name, is_session):
        self.wire, self.name = Wire(port), name
        self.dice = random.Random(name)
        self.session = f"session of {name}".ljust(16, ".") if is_session else None
        self.mail = Wire(port) if is_session else None
        self.seen = 0

    def live(self):
        count = 0
        while not self.wire.call("EXISTS", "stop"):
            count += 1
            names = self.dice.sample(NAMES, self.dice.choice([1, 2, 2, 3, 3]))
            token = f"{self.name}.{count}"
            fence = self.take(names, token)
            if isinstance(fence, int):
                self.eat(names, token, fence)

    def take(self, names, token):
        words = ["DLOCK.ACQUIREALL", len(names), *names]
        if len(names) == 1:
            words = ["DLOCK.ACQUIRE", *names]
        words += [token, "PX", LEASE_MS, "WAIT", WAIT_MS]
        if self.session is None:
            return self.wire.call(*words)
        reply = "NOSESSION"
        while isinstance(reply, str) and reply.startswith("NOSESSION"):  # it slept too long
            self.seen = 0
            self.hear()
            reply = self.wire.call(*words, "VIA", self.session)
        while reply == "QUEUED":
            born = self.born
            for _, kind, _, event_token, *more in self.hear():
                if event_token == token:
                    reply = more[0] if kind == "granted" else None
            if self.born != born:
                return None  # with the session went the place in the queue
        return reply

    def hear(self):
        """The next events."""
        words = ["DLOCK.SESSION", self.session, "PX", TIMEOUT_MS, "ACK", self.seen]
        reply = self.mail.call(*words)
        self.born, events = reply if isinstance(reply, list) else (None, [])
        self.seen = max([self.seen, *(event[0] for event in events)])
        return events

    def eat(self, names, token, fence):
        """Lost updates would change the sum."""
        accounts = [f"account:{name}" for name in names]
        coins = [int(coin) for coin in self.wire.call("MGET", *accounts)]
        time.sleep(self.dice.choice([0, 0, 0.001, 0.003]))
        coins[0] -= 1
        coins[-1] += 1
        self.wire.call("EVAL", MOVE, len(names), *names, token, fence, *coins)
        chance = self.dice.random()
        if chance < 0.8:
            self.wire.call("DLOCK.RELEASEALL", len(names), *names, token)
        elif chance < 0.98:
            for name in names:
                self.wire.call("DLOCK.RELEASE", name, token)
        # else the lease ends


if __name__ == "__main__":
    Philosopher(int(sys.argv[1]), sys.argv[2], sys.argv[3] == "session").live()
