"""The command line tool, as a script or a person uses it.

Environment:
    DLOCK_BUILD   the folder with the tool (default build)
"""

import os
import pathlib
import signal
import subprocess
import time

from support.server import ROOT, wait_until

BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")
TOOL = BUILD / "dlock"


def heed_the_keyboard():
    """Who was started in the background of a script ignores these, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# A server that is alive replies, however slow the machine is. Where none does, a test says how long
# the tool waits: options go over this file.
PATIENT = "io_timeout = 20s\nconnect_timeout = 20s\n"
PATIENTLY = ["--wait", "60s"]  # of a run with a short lease, which limits its I/O timeout, too


class Tool:
    """With a server in DLOCK_URL and a home of its own. What it has started ends with it."""

    def __init__(self, home, url=None):
        self.home = pathlib.Path(home)
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith(("DLOCK_", "XDG_", "LD_PRELOAD"))}
        self.env["HOME"] = str(home)
        machine = self.home / "config of the machine"
        machine.write_text(PATIENT)
        self.env["DLOCK_SYSTEM_CONFIG"] = str(machine)
        if url is not None:
            self.env["DLOCK_URL"] = url
        self.started, self.groups = [], []

    def start(self, *words, **more):
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                "text": True, "env": self.env, "start_new_session": True,
                "preexec_fn": heed_the_keyboard, **more}
        process = subprocess.Popen([TOOL, *map(str, words)], **more)
        self.started.append(process)
        return process

    def run(self, *words, timeout=60, **more):
        """Exit code, output, complaints."""
        if "input" in more:
            more["stdin"] = subprocess.PIPE
        text = more.pop("input", None)
        process = self.start(*words, **more)
        out, complaints = process.communicate(text, timeout=timeout)
        return process.returncode, out, complaints

    def start_group(self, *options, name="lock", ignores_term=False):
        """A run of a shell with a child of its own; their pids are the result, with the runner."""
        notes = self.home / f"pids of {name} {time.monotonic_ns()}"
        trap = "trap '' TERM; " if ignores_term else ""
        # It ends by itself if a test does not end it.
        script = f'{trap}sleep 100 & echo $$ $! >"$1.new"; mv "$1.new" "$1"; wait; exit 0'
        process = self.start("run", *PATIENTLY, *options, name, "--", "sh", "-c", script, "sh",
                             notes)
        wait_until(lambda: notes.exists() or process.poll() is not None, "the start of the command")
        assert notes.exists(), process.communicate()
        pids = [int(pid) for pid in notes.read_text().split()]
        self.groups.append(pids[0])
        return process, pids

    def close(self):
        """Also of a test that has failed: then there are commands that live on."""
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in process.stdin, process.stdout, process.stderr:
                if stream is not None:
                    stream.close()


def keeper_of(runner):
    """The process that holds the lock: the child that has a session of its own."""
    def find():
        for line in _processes():
            if line["ppid"] == runner and line["session"] == line["pid"]:
                return line["pid"]
    return wait_until(find, "the keeper")


def _processes():
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield {"pid": int(path.parent.name), "state": fields[0], "ppid": int(fields[1]),
               "group": int(fields[2]), "session": int(fields[3])}


def is_alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_for_end(pids, timeout=50):
    wait_until(lambda: not any(map(is_alive, pids)), f"the end of {pids}", timeout)


def kill(*pids, number=signal.SIGKILL):
    for pid in pids:
        os.kill(pid, number)
