"""dlock run never runs its command without the lock, and no signal is lost.

Environment:
    DLOCK_SIGNAL_RUNS   how many runs get a signal at a random moment (default 60)
    DLOCK_STOP_RUNS     how many runs are stopped and continued (default 2)
"""

import collections
import fcntl
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

from support.server import cli, wait_until
from support.tool import is_alive, keeper_of, kill, wait_for_end
from support.waiting import wait_for_waiters

SIGNAL_RUNS = int(os.environ.get("DLOCK_SIGNAL_RUNS", 60))
STOP_RUNS = int(os.environ.get("DLOCK_STOP_RUNS", 2))
LOST, FIRST_S = 79, 0.020
SHIM = pathlib.Path(__file__).parents[1] / "support/signal_on_null.c"


@pytest.fixture
def check(server, tmp_path):
    """A command that notes in a file whether its token holds the lock."""
    script = (f'{cli()} -p {server.port} DLOCK.INFO lock | grep -q -F "$DLOCK_TOKEN" '
              f'&& echo held >>{tmp_path}/notes || echo "not held" >>{tmp_path}/notes')
    notes = tmp_path / "notes"
    return ["sh", "-c", script], lambda: notes.read_text().splitlines() if notes.exists() else []


# -- signals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_held", [True, False])
def test_a_signal_at_any_moment_of_the_start(tool, lock, check, is_held):
    """The run ends soon, and its command does not run without the lock."""
    command, notes = check
    codes = collections.Counter()
    if is_held:
        lock.acquire("another", 600_000)
    for _ in range(SIGNAL_RUNS // 2):
        process = tool.start("run", "lock", "--", *command)
        time.sleep(random.uniform(0, FIRST_S))
        process.terminate()
        codes[process.wait(50)] += 1
        if not is_held:
            wait_until(lambda: lock.info() is None, "the release")
    assert set(codes) <= {-signal.SIGTERM, 128 + signal.SIGTERM, 0}, codes
    assert "not held" not in notes()
    if is_held:
        assert notes() == [] and lock.info()["token"] == b"another"


@pytest.mark.parametrize("words", [["acquire", "lock"], ["run", "lock", "--", "true"]])
def test_a_signal_that_comes_with_the_reply_to_the_first_attempt(tool, lock, tmp_path, words):
    shim = tmp_path / "signal_on_null.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, SHIM, "-ldl"], check=True)
    lock.acquire("another", 600_000)
    tool.env.update(LD_PRELOAD=str(shim), ASAN_OPTIONS="verify_asan_link_order=0")
    # Of a run, the keeper gets it: a signal that nobody has sent to the runner.
    expected = 128 + signal.SIGTERM if words[0] == "acquire" else 70
    assert tool.start(*words).wait(50) == expected
    assert lock.info()["waiters"] == 0


# -- a runner that is stopped and continued --------------------------------------------------------


def count_sockets(pid):
    return sum(path.is_socket() for path in pathlib.Path(f"/proc/{pid}/fd").iterdir())


def test_a_runner_that_was_stopped_for_longer_than_the_lease_waits_again(tool, lock, client, check):
    command, notes = check
    for done in range(STOP_RUNS):  # the keeper may give the lock back after the end of the runner
        wait_until(lambda: lock.acquire("first", 600_000), "the lock of the run before")
        process = tool.start("run", "--lease", "4s", "--wait", "1h", "lock", "--", *command)
        wait_for_waiters(client, 1)
        kill(process.pid, number=signal.SIGSTOP)
        lock.release("first")
        wait_until(lambda: lock.info() is None, "that the keeper gives the lock back")
        assert lock.acquire("second", 600_000)
        kill(process.pid, number=signal.SIGCONT)
        wait_for_waiters(client, 1)
        assert notes() == ["held"] * done and process.poll() is None
        wait_until(lambda: count_sockets(process.pid) == 1, "that only the new keeper's is left")
        lock.release("second")
        assert process.wait(50) == 0, process.stderr.read()
        assert notes() == ["held"] * (done + 1)


def test_it_does_not_wait_longer_than_it_was_told_to(tool, lock, client, check):
    command, notes = check
    lock.acquire("first", 600_000)
    begin = time.monotonic()
    process = tool.start("run", "--lease", "2s", "--wait", "4s", "lock", "--", *command)
    wait_for_waiters(client, 1)
    kill(process.pid, number=signal.SIGSTOP)
    lock.release("first")
    wait_until(lambda: lock.info() is None, "that the keeper gives the lock back")
    lock.acquire("second", 600_000)
    time.sleep(max(0, begin + 4.5 - time.monotonic()))  # until the end of its wait
    kill(process.pid, number=signal.SIGCONT)
    assert process.wait(50) in (1, 75) and notes() == []  # 75: the reply was late


def test_both_processes_are_stopped_for_longer_than_the_lease(tool, lock, client, check):
    command, notes = check
    lock.acquire("first", 600_000)
    process = tool.start("run", "--lease", "4s", "--wait", "1h", "lock", "--", *command)
    wait_for_waiters(client, 1)
    both = process.pid, keeper_of(process.pid)
    kill(*both, number=signal.SIGSTOP)
    lock.release("first")
    wait_until(lambda: lock.info() is None, "the end of the lease")
    lock.acquire("second", 600_000)
    kill(*both, number=signal.SIGCONT)
    wait_for_waiters(client, 1)
    assert notes() == []
    lock.release("second")
    assert process.wait(50) == 0 and notes() == ["held"]


# -- complaints that cannot be written -------------------------------------------------------------


@pytest.fixture
def full_pipe():
    """The end to write to; the other end is open, and nobody reads it."""
    reader, writer = os.pipe()
    flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    for size in 4096, 1:
        try:
            while True:
                os.write(writer, b"x" * size)
        except BlockingIOError:
            pass
    fcntl.fcntl(writer, fcntl.F_SETFL, flags)
    yield writer
    os.close(reader)
    os.close(writer)


def start_with(tool, pipe, *options):
    """A run of a command that does not want to end, with its stderr; the runner and all pids."""
    notes = tool.home / f"pid {time.monotonic_ns()}"
    process = tool.start("run", *options, "lock", "--", "sh", "-c",
                         f"trap '' TERM; echo $$ >'{notes}.new'; mv '{notes}.new' '{notes}'; "
                         "while :; do sleep 0.1; done", stderr=pipe)
    wait_until(notes.exists, "the start of the command")
    pid = int(notes.read_text())
    tool.groups.append(pid)
    return process, pid


def test_a_killed_keeper_and_a_full_pipe(tool, full_pipe):
    process, pid = start_with(tool, full_pipe, "--lease", "60s")
    kill(keeper_of(process.pid))
    wait_for_end([pid])
    assert process.wait(50) == LOST


def test_a_lost_lock_and_a_full_pipe(tool, client, full_pipe):
    process, pid = start_with(tool, full_pipe, "--lease", "60s")
    client.delete("lock")
    wait_for_end([pid])
    assert process.wait(50) == LOST


def test_a_signal_and_a_full_pipe(tool, lock, client, full_pipe):
    lock.acquire("another", 600_000)
    process = tool.start("run", "-v", "lock", "--", "true", stderr=full_pipe)
    wait_for_waiters(client, 1)
    process.terminate()
    assert process.wait(50) == 128 + signal.SIGTERM
    assert not is_alive(process.pid)
