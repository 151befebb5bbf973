"""Scenario: memory of a held lock, against the plain string that does the same.

Same keys, same tokens, same lease. Counted is the growth of the server's used_memory, so the tables
of the database are part of it, as they are part of the price.
"""

import ways
from report import Bar, Table
from talk import Talk

NAME = "memory"
PORTION = 10_000
LEASE_MS = 3_600_000  # none may end before the last is taken


def _used_memory(server):
    with server.connect() as client:
        return client.info("memory")["used_memory"]


def _measure(way, count):
    server = way.server()
    try:
        server.start()
        before = _used_memory(server)
        commands = [ways.encode(way.acquire(*name, LEASE_MS)) for name in ways.names(count)]
        with Talk(server) as talk:
            for portion in ways.pipelines(commands, PORTION):
                talk.send(portion, PORTION)
        return (_used_memory(server) - before) / count
    finally:
        server.destroy()


def run(quick, progress):
    count = 100_000 if quick else 1_000_000
    table = Table(
        "Memory per held lock", f"growth of used_memory, {count:,} locks, tokens of 36 bytes",
        unit="bytes", bars={ways.SET_DEL.name: Bar("<=", 1.3)})
    for way in (ways.DLOCK, ways.SET_DEL):
        progress(way.name)
        table.add(way.name, [_measure(way, count)])
    return [table]
