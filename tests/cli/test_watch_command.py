"""dlock watch: a line for each change of a lock."""

import json
import re
import signal

import pytest

from support.commands import stats
from support.fake_server import SILENCE
from support.server import wait_until

USAGE, INTERRUPTED = 64, 130
WHEN = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def test_each_change_is_a_line(tool, lock):
    process = tool.start("watch", "--rounds", 3, "lock")
    assert re.fullmatch(f"{WHEN} free\n", process.stdout.readline())
    fence = lock.acquire("alice", 60_000)
    assert re.fullmatch(f"{WHEN} held alice fence {fence}\n", process.stdout.readline())
    lock.client.delete("lock")
    assert re.fullmatch(f"{WHEN} free\n", process.stdout.readline())
    assert process.communicate(timeout=300) == ("", "")
    assert process.returncode == 0


def test_shared_holders_are_counted(tool, client):
    for token in "ab":
        client.execute_command("DLOCK.ACQUIRE", "lock", token, "PX", 60_000, "SHARED")
    _, out, _ = tool.run("watch", "-r", 1, "lock")
    assert re.fullmatch(f"{WHEN} held a fence \\d+ shared by 2\n", out)


def test_each_change_is_an_object_of_json(tool, lock):
    fence = lock.acquire("alice", 60_000)
    code, out, _ = tool.run("watch", "--json", "-r", 1, "lock")
    seen = json.loads(out)
    assert code == 0
    assert (seen["token"], seen["fence"], seen["free"]) == ("alice", fence, False)
    lock.release("alice")
    _, out, _ = tool.run("watch", "--json", "-r", 1, "lock")
    assert json.loads(out)["free"]


def test_a_hostile_token_cannot_forge_a_line(tool, lock):
    lock.acquire("a\nb", 60_000)
    _, out, _ = tool.run("watch", "-r", 1, "lock")
    assert out.count("\n") == 1 and "\\x0a" in out


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_reader_that_ends_ends_the_watch(tool, lock, is_changed):
    """By SIGPIPE and without a complaint, as "dlock watch lock | head -1" expects."""
    process = tool.start("watch", "lock")
    assert process.stdout.readline().endswith(" free\n")
    process.stdout.close()
    if is_changed:
        lock.acquire("alice", 60_000)
    assert (process.wait(50), process.stderr.read()) == (-signal.SIGPIPE, "")
    process.stdout = None


def test_a_reader_of_the_last_line_may_leave_at_once(tool, lock):
    """As "dlock watch --rounds 1 lock | head -1" does."""
    for _ in range(10):
        process = tool.start("watch", "--rounds", 1, "lock")
        assert process.stdout.readline().endswith(" free\n")
        process.stdout.close()
        assert process.wait(50) == 0
        process.stdout = None


def test_a_watch_that_waits_for_a_silent_server_can_be_interrupted(make_tool, fake_server):
    silent = fake_server(lambda words: SILENCE)
    process = make_tool(silent).start("watch", "--io-timeout", "100s", "lock")
    wait_until(lambda: silent.requests, "a request")
    process.send_signal(signal.SIGINT)
    assert process.wait(50) == -signal.SIGINT


def test_a_watch_that_is_interrupted_leaves_no_session(tool, lock, client):
    process = tool.start("watch", "lock")
    assert process.stdout.readline().endswith(" free\n")
    assert stats(client)["sessions"] == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(50) == INTERRUPTED
    wait_until(lambda: stats(client)["sessions"] == 0, "the end of the session")


def test_several_servers_are_refused(several):
    code, out, complaints = several[0].run("watch", "lock")
    assert (code, out) == (USAGE, "")
    assert "several servers" in complaints
