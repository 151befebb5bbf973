"""Dining philosophers: 16 processes take one to three of eight locks at a time, in any order, while
some of them are killed or stopped. Each of them moves coins between the accounts of its locks.

What the server did is read from MONITOR and from its replication stream. Environment:
    DLOCK_SEED                   the dice (default: new ones; printed)
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from support.commands import stats
from support.philosopher import NAMES, __file__ as PHILOSOPHER
from support.server import wait_until
from support.stream import ReplicationStream
from support.waiting import assert_nobody_waits

PROCESSES = 16
COINS = 1000
WORD = re.compile('"([^"]*)"')
SEED = os.environ.get("DLOCK_SEED", str(random.SystemRandom().randrange(10**6)))


class Table:
    """The processes, and what the server says."""

    def __init__(self, server):
        self.server, self.dice = server, random.Random(SEED)
        self.born = 0
        self.seats = []
        self.monitor = server.socket()
        self.monitor.sendall(b"MONITOR\r\n")
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        with self.monitor.makefile("rb") as lines:
            for line in lines:
                self.lines.append(line.decode())
                if b'"the-end"' in line:
                    return

    def seat(self):
        self.born += 1
        kind = "session" if self.born % 3 == 0 else "wait"
        words = [sys.executable, PHILOSOPHER, str(self.server.port), f"{SEED}.{self.born}", kind]
        return subprocess.Popen(words)

    def dine(self, is_over):
        self.seats = [self.seat() for _ in range(PROCESSES)]
        while not is_over():
            time.sleep(self.dice.uniform(0.02, 0.2))
            number = self.dice.randrange(PROCESSES)
            guest = self.seats[number]
            assert guest.poll() is None, f"a philosopher has left with {guest.returncode}"
            if self.dice.random() < 0.4:
                guest.kill()
                guest.wait()
                self.seats[number] = self.seat()
            else:
                guest.send_signal(signal.SIGSTOP)
                time.sleep(self.dice.choice([0.01, 0.1, 0.3]))
                guest.send_signal(signal.SIGCONT)

    def leave(self, client):
        """All that are alive get what they wait for."""
        client.set("stop", 1)
        for guest in self.seats:
            assert guest.wait(60) == 0
        client.set("the-end", 1)
        self.reader.join(60)
        assert not self.reader.is_alive()
        self.monitor.close()

    def close(self):
        for guest in self.seats:
            guest.kill()
            guest.wait()


@pytest.fixture
def table(server):
    table = Table(server)
    yield table
    table.close()


def names_in(words):
    """Of a command, and its token."""
    if words[0].lower().endswith("all"):
        count = int(words[1])
        return words[2:2 + count], words[2 + count]
    return words[1:2], words[2]


def token_asked_in(line):
    """None: another command."""
    words = WORD.findall(line)
    is_request = words and words[0] in ("DLOCK.ACQUIRE", "DLOCK.ACQUIREALL")
    return names_in(words)[1] if is_request else None


def check_holders(commands):
    """A lock has one holder at a time, and a request gets all of its locks. Returns the tokens in
    the order in which they were served, with their names. The grant of one lock may replace its
    holder, which has left it in the same step."""
    holders, served = {}, []
    for command in commands:
        words = [word.decode() for word in command]
        kind = words[0].lower()
        if kind in ("multi", "exec", "set", "rpush"):
            continue
        names, token = names_in(words)
        for name in names:
            if kind == "dlock.applyall":
                assert name not in holders, f"{token} gets {name}, which {holders[name]} has"
            if kind.startswith("dlock.apply"):
                holders[name] = token
            elif holders.get(name) == token:
                assert kind.startswith("dlock.release"), command
                del holders[name]
        if kind.startswith("dlock.apply"):
            served.append((token, frozenset(names)))
    return served


def check_order(asked, served):
    """Nobody that was served was overtaken at any of its names by one that came later."""
    came = {token: number for number, token in enumerate(asked)}
    last = dict.fromkeys(NAMES, -1)
    for token, names in served:
        for name in names:
            assert came[token] > last[name], f"{token} was overtaken at {name}"
            last[name] = came[token]


def judge(server, table, is_over):
    print(f"DLOCK_SEED={SEED}")
    client = server.client()
    for name in NAMES:
        client.set(f"account:{name}", COINS)
    stream = ReplicationStream(server)
    table.dine(is_over)
    table.leave(client)
    wait_until(lambda: stats(client)["held"] == 0, "the last leases to end")
    wait_until(lambda: stats(client)["queues"] == 0, "the last waiters to leave")
    assert_nobody_waits(client)
    commands = [words for words in stream.take() if words[-2:-1] not in ([b"stop"], [b"the-end"])]
    stream.close()

    served = check_holders(commands)
    asked = [token for token in map(token_asked_in, table.lines) if token]
    check_order(asked, served)
    assert sum(int(client.get(f"account:{name}")) for name in NAMES) == COINS * len(NAMES)
    for name in NAMES:
        fences = [int(fence) for fence in client.lrange(f"fences:{name}", 0, -1)]
        assert fences == sorted(set(fences)), f"a fence of {name} went back"
    print(f"{len(asked)} requests, {len(served)} of them served, {table.born} processes")


def test_philosophers_neither_starve_nor_collide(server, client, table):
    judge(server, table, lambda: stats(client)["granted"] >= 500)


@pytest.mark.limit(180, "lasts a minute")
@pytest.mark.long("one minute of philosophers")
def test_philosophers_neither_starve_nor_collide_for_a_minute(server, table):
    until = time.monotonic() + 60
    judge(server, table, lambda: time.monotonic() >= until)
