"""dlock run at a terminal, under a shell with job control."""

import os
import signal

import pytest

from support.server import wait_until
from support.tool import TOOL
from support.waiting import outlive_the_lease


@pytest.fixture
def shell(open_terminal):
    terminal = open_terminal("bash", "--norc", "--noprofile", "-i")
    terminal.wait_for("$ ")
    return terminal


def say(shell, line):
    """Where what is shown after that begins."""
    shell.type(line + "\n")
    return shell.wait_for("\n", after=len(shell.shown))


def test_the_command_reads_from_the_terminal(shell):
    after = say(shell, f"{TOOL} run lock -- sh -c 'read a; echo got $a'")
    shell.type("words\n")
    after = shell.wait_for("got words", after=after)
    say(shell, "echo $((40 + 2))")
    shell.wait_for("42", after=after)


def test_the_command_has_the_foreground_and_the_shell_gets_it_back(shell, lock):
    after = say(shell, f"{TOOL} run lock -- sh -c 'echo pid:$$:; exec sleep 100'")
    after, end = shell.wait_for("pid:", after=after), shell.wait_for(":\r", after=after)
    assert shell.foreground() == int(shell.shown[after:end - 2])
    shell.type("\x03")
    after = shell.wait_for("$ ", after=len(shell.shown))
    assert shell.foreground() == shell.pid
    say(shell, "echo code $?")
    shell.wait_for("code 130", after=after - 10)
    assert lock.info() is None


def test_a_script_reads_from_the_terminal_after_it(open_terminal):
    """Where no shell with job control puts things right."""
    terminal = open_terminal("sh", "-c", f"{TOOL} run lock -- true; read a; echo got $a")
    terminal.type("words\n")
    terminal.wait_for("got words")


def test_stop_and_go_on(shell, server, lock):
    """^Z stops both, the lock is kept meanwhile, fg continues both."""
    script = "echo beg''un; read a; echo got $a"
    run = f'{TOOL} run --wait 60s --lease 8s lock -- sh -c "{script}"'
    after = say(shell, run.replace("$a", "\\$a"))
    fence = wait_until(lock.info, "the lock")["fence"]
    after = shell.wait_for("begun", after=after)
    shell.type("\x1a")
    after = shell.wait_for("Stopped", after=after)
    after = shell.wait_for("$ ", after=after)
    outlive_the_lease(server, 8)
    assert lock.info()["fence"] == fence
    after = say(shell, "fg")
    shell.type("words\n")
    shell.wait_for("got words", after=after)
    wait_until(lambda: lock.info() is None, "the release")


def test_in_the_background_it_stops_when_it_wants_to_read(shell, lock):
    after = say(shell, f"{TOOL} run lock -- sh -c 'read a; echo got $a' &")
    wait_until(lock.info, "the lock")

    def is_told():
        """The shell tells of it before its next prompt."""
        shell.wait_for("$ ", after=say(shell, "true"))
        return "Stopped" in shell.shown[after:]
    wait_until(is_told, "that it has stopped")
    after = say(shell, "fg")
    shell.type("words\n")
    shell.wait_for("got words", after=after)


def test_in_a_pipe_the_others_keep_the_terminal_until_it_is_needed(shell, lock):
    after = say(shell, f"{TOOL} run lock -- sh -c 'read a; echo got $a' | cat")
    wait_until(lock.info, "the lock")
    shell.type("words\n")
    after = shell.wait_for("got words", after=after)
    shell.wait_for("$ ", after=after)
    after = say(shell, f"{TOOL} run lock -- sh -c 'echo $((40 + 2)); exec sleep 100' | cat")
    shell.wait_for("42", after=after)
    shell.type("\x03")
    wait_until(lambda: lock.info() is None, "the end")


def test_interrupted_while_it_waits(shell, lock, client):
    lock.acquire("another", 60_000)
    after = say(shell, f"{TOOL} run lock -- true")
    wait_until(lambda: lock.info()["waiters"] == 1, "the wait")
    shell.type("\x03")
    after = shell.wait_for("$ ", after=after)
    say(shell, "echo code $?")
    shell.wait_for("code 130", after=after)


def test_the_terminal_is_closed(open_terminal, lock):
    terminal = open_terminal(TOOL, "run", "lock", "--", "sleep", "100")
    wait_until(lock.info, "the lock")
    os.kill(terminal.pid, signal.SIGHUP)
    assert terminal.wait() == 128 + signal.SIGHUP
    assert lock.info() is None
