"""The programs that load servers: built from the C files beside this one, each on its own core."""

import contextlib
import os
import pathlib
import subprocess

from support.server import ROOT

CORES = sorted(os.sched_getaffinity(0))  # of the first, servers; of the last, who loads them
PRECEDENCE = -10  # as in nice(1)


def build(name, *more, uses_libdlock=False):
    """Compile name.c and more such files; the result is the path of the program."""
    library = ["-I", ROOT / "client/include", ROOT / "build/libdlock.a", "-lhiredis",
               "-lssl", "-lcrypto"]
    program = ROOT / "build/bench" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O2",
                    "-pthread", "-o", program,
                    *[pathlib.Path(__file__).with_name(f"{file}.c") for file in (name, *more)],
                    *(library if uses_libdlock else [])], check=True)
    return program


def pinned_to(which):
    """A prefix that keeps a command on the first or on the last (-1) core we may use, for root with
    precedence over what else runs there. Linux weighs whole sessions first, processes only within
    one; hence a session of its own, with its own weight."""
    pinned = ["taskset", "--cpu-list", str(CORES[which])]
    if os.geteuid() != 0:
        return pinned
    weigh = f'echo {PRECEDENCE} 2>&- >/proc/self/autogroup; exec "$@"'
    return ["setsid", "nice", "-n", str(PRECEDENCE), "sh", "-c", weigh, "sh", *pinned]


def cpu_seconds(server):
    """The processor time that it has used so far."""
    cpu = server.observer.info("cpu")
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"]


class PinnedSelf:
    """This process is the driver for the body of a with statement: on the last core, and for root
    with precedence there."""

    def __enter__(self):
        os.sched_setaffinity(0, [CORES[-1]])
        self._weigh_session(PRECEDENCE)

    def __exit__(self, *_):
        os.sched_setaffinity(0, CORES)
        self._weigh_session(0)

    @staticmethod
    def _weigh_session(nice):
        with contextlib.suppress(OSError):  # not root, or a kernel that does not weigh sessions
            pathlib.Path("/proc/self/autogroup").write_text(str(nice))
