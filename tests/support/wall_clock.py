"""A wall clock that a test can set, for one server. See wall_clock.c."""

import pathlib
import struct
import subprocess

SOURCE = pathlib.Path(__file__).with_suffix(".c")


def build(folder):
    """The library to preload."""
    library = folder / "wall_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
    return library


class WallClock:
    """Give it to a server that is not yet started."""

    def __init__(self, library, path):
        self.library, self.path = library, path
        self.ahead_s = 0
        self.step(0)

    def step(self, seconds):
        """The clock jumps by so many, to the past if they are negative."""
        self.ahead_s += seconds
        mode = "r+b" if self.path.exists() else "wb"  # a mapped file must not be cut off
        with open(self.path, mode) as file:
            file.write(struct.pack("=q", int(self.ahead_s * 1e9)))

    def prepare(self, env):
        """The environment of a server that has this clock."""
        env["LD_PRELOAD"] = f"{env.get('LD_PRELOAD', '')} {self.library}".strip()
        env["DLOCK_TEST_WALL_CLOCK"] = str(self.path)
