"""Scenario: many leases that end within a second: how long other clients wait meanwhile.

One connection sends PING after PING, before the first lease ends and until the last lock is gone.
The worst PING of each round counts, since the end of leases must not hold anybody up. What the
machine itself is guilty of is in the worst PING without. For comparison, as many plain strings
whose TTL ends within a second.

gone after   from the end of the last lease until the key space has none of the locks any more
"""

import gc
import random
import statistics
import time

import driver
import ways
from report import Bar, Sheet, percentile
from talk import Talk

NAME = "endings"
COUNT = 200_000
PORTION = 1000
FILL_S = 10  # in which all are taken, for certain
WINDOW_S = 1.0  # in which all of them end
BAR_MS = 20
PING, WITHOUT = ways.encode(["PING"]), "without"
LINES = {"DLOCK.ACQUIRE": ways.DLOCK, "SET NX PX": ways.SET_DEL}


class Stage:
    """A server, and what has to be sent to it until it holds so many locks."""

    def __init__(self, way, server):
        self.way = way
        self.server = server.start()
        self.talk = Talk(server)
        self.chance = random.Random(NAME)

    def fill(self):
        """Take all locks. The result is when the first one ends at the earliest."""
        begin = time.monotonic()
        end = begin + FILL_S
        names = ways.names(COUNT, NAME)
        for _ in range(COUNT // PORTION):
            left_s = end - time.monotonic()
            commands = [ways.encode(self.way.acquire(*next(names), self.lease_ms(left_s)))
                        for _ in range(PORTION)]
            self.talk.send(b"".join(commands), PORTION)
        if time.monotonic() > end - WINDOW_S:
            raise AssertionError(f"{COUNT:,} locks were not taken within {FILL_S} s")
        return end

    def lease_ms(self, left_s):
        return int((left_s + self.chance.random() * WINDOW_S) * 1000)

    def ping_until(self, is_over):
        """How long each took, in ms."""
        took_ms = []
        while not is_over():
            begin = time.monotonic()
            self.talk.send(PING, 1)
            took_ms.append((time.monotonic() - begin) * 1000)
        return took_ms

    def is_empty(self):
        return self.server.observer.dbsize() == 0


def _sleep_until(moment):
    time.sleep(max(0, moment - time.monotonic()))


class Round:
    """PINGs without, then while leases end, then while the last locks are removed."""

    def __init__(self, stage):
        end = stage.fill()
        _sleep_until(end - 2 * WINDOW_S)
        self.without_ms = stage.ping_until(lambda: time.monotonic() >= end - 0.1)
        _sleep_until(end)
        self.with_ms = stage.ping_until(lambda: time.monotonic() >= end + WINDOW_S)
        last = time.monotonic()
        while not stage.is_empty():  # each look is followed by many PINGs
            look_again = time.monotonic() + 0.01
            self.with_ms += stage.ping_until(lambda: time.monotonic() >= look_again)
        self.gone_after_ms = (time.monotonic() - last) * 1000


def _add(sheet, name, samples, gone_after_ms):
    """samples: the PINGs of each round."""
    worst = [max(took_ms) for took_ms in samples]
    took_ms = sum(samples, [])
    sheet.add(name, [statistics.median(took_ms), percentile(took_ms, 0.999), max(worst),
                     max(gone_after_ms)], worst=worst, gone_after=gone_after_ms)
    return max(worst)


def _measure(lines, count, progress):
    sheet = Sheet(
        f"PING while {COUNT:,} leases end within {WINDOW_S:.0f} s", f"{count} rounds",
        {"median ms": ".2f", "p99.9 ms": ".2f", "worst ms": ".1f", "gone after ms": ",.0f"})
    for name, way in lines.items():
        server = way.server(wrapper=driver.pinned_to(0))
        try:
            stage = Stage(way, server)
            rounds = []
            for i in range(count):
                progress(f"{name}, round {i + 1} of {count}")
                rounds.append(Round(stage))
        finally:
            server.destroy()
        without = _add(sheet, f"{name}, {WITHOUT}", [r.without_ms for r in rounds], [0])
        worst = _add(sheet, name, [r.with_ms for r in rounds], [r.gone_after_ms for r in rounds])
        if way.needs_module:
            sheet.promise("worst PING while leases end, ms more than without", worst - without,
                          Bar("<=", BAR_MS))
    return sheet


def run(quick, progress):
    lines = {name: way for name, way in LINES.items() if way.needs_module or not quick}
    gc.disable()  # a pause of ours is none of the server
    try:
        with driver.PinnedSelf():
            return [_measure(lines, 1 if quick else 5, progress)]
    finally:
        gc.enable()
