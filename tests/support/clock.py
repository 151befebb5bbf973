"""The clocks of one server, which a test can set, and the turns of its event loop. See clock.c."""

import mmap
import os
import pathlib
import signal
import struct
import subprocess
import time

SOURCE = pathlib.Path(__file__).with_suffix(".c")
LIBRARY = SOURCE.parents[2] / "build/tests/clock.so"
WALL, LEASE, TURNS, ASLEEP, STALL = 0, 8, 16, 24, 32  # where the numbers are in the file
SIZE = 40
PATIENCE_S = 30


def library():
    """What to preload, compiled when it is older than its source."""
    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < SOURCE.stat().st_mtime:
        LIBRARY.parent.mkdir(parents=True, exist_ok=True)
        new = LIBRARY.with_suffix(f".{os.getpid()}.new")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", new, SOURCE], check=True)
        new.rename(LIBRARY)
    return LIBRARY


class Clock:
    """Of a server that is not yet started. It outlives a restart."""

    def __init__(self, server):
        self.server = server
        self.path = server.dir / "clock"
        self.path.write_bytes(bytes(SIZE))
        with open(self.path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), SIZE)
        self.ahead_s = 0  # of the wall clock

    def prepare(self, env):
        """The environment of a server that has this clock."""
        env["LD_PRELOAD"] = f"{env.get('LD_PRELOAD', '')} {library()}".strip()
        env["DLOCK_TEST_CLOCK"] = str(self.path)

    def step(self, seconds):
        """The wall clock jumps by so many, to the past if they are negative, and the server has
        noticed it."""
        self.set_ahead(self.ahead_s + seconds)
        if self.server.process is not None:
            self.turn()

    def set_ahead(self, seconds):
        """The wall clock is so far ahead of the machine's, from the next turn of the server on."""
        self.ahead_s = seconds
        struct.pack_into("=q", self.shared, WALL, int(seconds * 1e9))

    def advance(self, seconds, turns=10):
        """So many seconds of all leases and waits go by. What is due then has been done, if so many
        turns are enough for it."""
        [before] = struct.unpack_from("=q", self.shared, LEASE)
        struct.pack_into("=q", self.shared, LEASE, before + int(seconds * 1e9))
        if self.server.process is not None:
            self.turn(turns)

    def stall(self, seconds):
        """The server is stopped for so long each time that it has read the clock of leases."""
        struct.pack_into("=q", self.shared, STALL, int(seconds * 1e9))

    def turn(self, count=10):
        """So many turns of the event loop go by: what the server does by itself has been done, and
        its replies have been written."""
        end = self.turns + count
        deadline = time.monotonic() + PATIENCE_S
        while self.turns < end:
            assert time.monotonic() < deadline, "the server does not turn"
            os.kill(self.server.pid, signal.SIGUSR2)
            time.sleep(0.0001)

    def turns_a_second(self, seconds):
        """Of a server that is left alone for about so long. It has 100 at rest, and many thousands
        if it spins, also on a busy machine."""
        begin, before = time.monotonic(), self.turns
        time.sleep(seconds)
        return (self.turns - before) / (time.monotonic() - begin)

    def wait_until_asleep(self):
        """By DEBUG SLEEP, from which the next turn() wakes it."""
        deadline = time.monotonic() + PATIENCE_S
        while not struct.unpack_from("=q", self.shared, ASLEEP)[0]:
            assert time.monotonic() < deadline, "the server does not sleep"
            time.sleep(0.001)

    @property
    def turns(self):
        """How many there have been."""
        return struct.unpack_from("=q", self.shared, TURNS)[0]
