"""What the tool tells people: who holds a lock, why it gave up; and what it does for operators."""

import json
import pathlib
import signal

import pytest

from support.commands import Lock
from support.fake_server import FakeServer, resp
from support.server import wait_until
from support.tool import TOOL, is_alive, keeper_of, kill, wait_for_end
from support.waiting import wait_for_waiters

BUSY, USAGE, PROTOCOL, REFUSED, LOST = 1, 64, 76, 77, 79
TAKING = [["run", "lock", "--", "true"], ["acquire", "lock"], ["wait", "lock"]]


def with_options(words, *options):
    return [words[0], *options, *words[1:]]


# -- -v and -q -------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", TAKING, ids=lambda words: words[0])
def test_a_wait_that_ends_is_told_in_one_line(tool, lock, words):
    lock.acquire("alice", 60_000)
    code, out, complaints = tool.run(*with_options(words, "--wait", "100ms"))
    assert (code, out) == (BUSY, "")
    assert complaints.startswith("dlock: lock: gave up after 100ms: held by alice for ")
    assert complaints.count("\n") == 1
    assert tool.run(*with_options(words, "-q", "--wait", "100ms")) == (BUSY, "", "")
    assert tool.run(*with_options(words, "-n")) == (BUSY, "", "")
    assert "held by alice" in tool.run(*with_options(words, "-n", "-v"))[2]


@pytest.mark.parametrize("words", TAKING, ids=lambda words: words[0])
def test_verbose_tells_what_is_waited_for(tool, lock, words):
    lock.acquire("alice", 60_000)
    process = tool.start(*with_options(words, "-v", "--wait", "30s"))
    line = process.stderr.readline()
    assert line.startswith("dlock: lock: waiting") and "held by alice for " in line
    lock.release("alice")
    assert process.wait(20) == 0


# -- --at-least ------------------------------------------------------------------------------------


def test_a_fast_command_keeps_the_lock(tool, lock):
    code, out, complaints = tool.run("run", "--at-least", "10m", "lock", "--", "printenv",
                                     "DLOCK_TOKEN")
    assert (code, complaints) == (0, "")
    info = lock.info()
    assert info["token"].decode() == out.strip() and 590_000 < info["ttl"] <= 600_000
    assert tool.run("run", "-n", "--at-least", "10m", "lock", "--", "true")[0] == BUSY


def test_a_slow_command_gives_it_back(tool, lock):
    assert tool.run("run", "--at-least", "100ms", "lock", "--", "sleep", "0.3") == (0, "", "")
    assert lock.info() is None


def test_a_lock_of_which_the_command_never_ran_is_not_kept(tool, lock, client):
    lock.acquire("alice", 60_000)
    process = tool.start("run", "--at-least", "10m", "lock", "--", "true")
    wait_for_waiters(client, 1)
    process.terminate()
    assert process.wait(20) == 128 + signal.SIGTERM
    lock.release("alice")
    assert lock.info() is None


def test_a_session_cannot_outlive_its_process(tool):
    code, _, complaints = tool.run("run", "--session", "--at-least", "1m", "lock", "--", "true")
    assert code == USAGE and "--at-least does not go with --session" in complaints


@pytest.mark.parametrize("at_least, max_lease", [("2m", 60_000), ("2d", 86_400_000)])
def test_a_server_that_does_not_allow_it_starts_nothing(tool, lock, client, at_least, max_lease):
    client.config_set("dlock.max-lease", max_lease)
    code, out, complaints = tool.run("run", "--at-least", at_least, "lock", "--", "echo", "never")
    assert (code, out) == (USAGE, "") and lock.info() is None
    assert "--at-least: " in complaints and f"1 to {max_lease} (dlock.max-lease)" in complaints


def test_the_lock_is_kept_if_both_processes_are_killed(tool, lock):
    process, pids = tool.start_group("--at-least", "10m")
    both = keeper_of(process.pid), process.pid
    kill(*both, number=signal.SIGSTOP)  # so that none can act on the end of the other
    kill(*both)
    wait_for_end(pids[:1])
    kill(pids[1])
    assert lock.info()["ttl"] > 500_000


def test_it_is_renewed_as_often_as_without(tool, server, client):
    """So a loss that the server cannot tell of is noticed within the lease."""
    client.execute_command("ACL", "SETUSER", "untold", "on", "nopass", "~*", "+@all", "-client")
    tool.env["DLOCK_URL"] = f"redis://untold:any@127.0.0.1:{server.port}"
    process, pids = tool.start_group("--lease", "600ms", "--at-least", "10m")
    client.delete("lock")
    assert process.wait(20) == LOST and not any(map(is_alive, pids))


@pytest.mark.parametrize("command, code", [("/no/such/command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_executed_gives_the_lock_back(tool, lock, command, code):
    assert tool.run("run", "--at-least", "10m", "lock", "--", command)[0] == code
    assert lock.info() is None


def test_a_command_that_says_so_itself_keeps_the_lock(tool, lock):
    assert tool.run("run", "--at-least", "10m", "lock", "--", "sh", "-c", "exit 127")[0] == 127
    assert lock.info() is not None


def test_a_lock_that_is_lost_before_the_command_begins_is_awaited_again(make_tool):
    def answer(words):
        if words[0] == b"DLOCK.ACQUIRE":
            return resp(7)
        if words[0] in (b"DLOCK.EXTEND", b"DLOCK.RELEASE"):
            return resp(0 if len(server.asked("DLOCK.ACQUIRE")) == 1 else 1)
        return resp("OK")

    server = FakeServer(answer)
    tool = make_tool(server.url)
    code, out, _ = tool.run("run", "--at-least", "10m", "lock", "--", "echo", "once")
    assert (code, out) == (0, "once\n") and len(server.asked("DLOCK.ACQUIRE")) == 2
    server.close()


# -- release --force -------------------------------------------------------------------------------


def test_force_needs_yes_where_nobody_can_be_asked(tool, lock):
    lock.acquire("alice", 60_000)
    code, _, complaints = tool.run("release", "--force", "lock")
    assert code == USAGE and "--yes" in complaints and lock.info() is not None
    assert tool.run("release", "--force", "--yes", "lock") == (0, "", "")
    assert lock.info() is None
    for words in ["release", "lock"], ["release", "--force", "lock", "alice"]:
        assert tool.run(*words)[0] == USAGE


def test_force_of_a_free_lock(tool):
    words = "release", "--force", "--yes", "lock"
    assert tool.run(*words) == (BUSY, "", "dlock: lock: the lock is free\n")
    code, out, complaints = tool.run(*words, "--json")
    assert (code, complaints) == (BUSY, "") and json.loads(out) == {"name": "lock",
                                                                    "released": False}


def test_force_without_permission(make_tool, server, client, lock):
    client.execute_command("ACL", "SETUSER", "eyes", "on", "nopass", "~*", "+dlock.info")
    lock.acquire("alice", 60_000)
    tool = make_tool(f"redis://eyes:any@127.0.0.1:{server.port}")
    code, out, complaints = tool.run("release", "--force", "--yes", "--json", "lock")
    assert code == REFUSED and "NOPERM" in complaints and lock.info()["token"] == b"alice"
    assert json.loads(out) == {"name": "lock", "released": False}


@pytest.mark.parametrize("answer, is_released", [("y\n", True), ("n\n", False), ("\n", False)])
def test_force_asks_at_a_terminal(open_terminal, lock, answer, is_released):
    lock.acquire("alice", 60_000)
    terminal = open_terminal(TOOL, "release", "--force", "lock")
    terminal.wait_for("lock: held by alice for ")
    terminal.wait_for("may not notice before its next renewal. Release it? [y/N] ")
    terminal.type(answer)
    assert terminal.wait() == (0 if is_released else BUSY)
    assert (lock.info() is None) == is_released


def test_a_holder_that_nobody_has_seen_keeps_the_lock(open_terminal, lock):
    lock.acquire("alice", 60_000)
    terminal = open_terminal(TOOL, "release", "--force", "lock")
    terminal.wait_for("[y/N] ")
    lock.release("alice")
    lock.acquire("bob", 60_000)
    terminal.type("y\n")
    assert terminal.wait() == BUSY and "alice does not hold it any more" in terminal.shown
    assert lock.info()["token"] == b"bob"


def test_force_ends_a_run(tool, lock):
    process, pids = tool.start_group("--lease", "1500ms", ignores_term=True)
    assert tool.run("release", "--force", "--yes", "lock")[0] == 0
    assert process.wait(20) == LOST and not any(map(is_alive, pids))


def test_force_of_somebodys_string(tool, client):
    client.set("lock", "their-token", px=60_000)
    assert tool.run("release", "--force", "--yes", "lock")[0] == 0
    assert not client.exists("lock")


# -- permissions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words, rules", [
    (["list"], "+scan +dlock.info %R~*"), (["top", "-i", "50ms"], "+scan +dlock.info +info %R~*"),
    (["metrics"], "+scan +dlock.info +info %R~*"), (["info", "lock"], "+dlock.info %R~*")],
    ids=lambda each: each[0] if isinstance(each, list) else "")
def test_the_rules_that_are_named_are_enough(make_tool, server, client, words, rules):
    client.acl_setuser("eyes", enabled=True, nopass=True)
    Lock(client).acquire("alice", 60_000)
    tool = make_tool(f"redis://eyes:x@127.0.0.1:{server.port}")
    code, _, complaints = tool.run(*words)
    assert code == REFUSED and f"the user needs the ACL rules {rules} (" in complaints
    client.execute_command("ACL", "SETUSER", "eyes", *rules.split())
    code, out, complaints = tool.run(*words)
    assert (code, complaints) == (0, "") and "alice" in out or words == ["metrics"]
    if words[0] != "info":
        assert rules in tool.run(words[0], "--help")[1]


# -- text from outside -----------------------------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x1b[2J\r\n\u009b31m\u202e"


def is_safe(text):
    return all(each in "\n" or each.isprintable() for each in text)


def test_names_and_tokens_cannot_reach_the_terminal(tool, client):
    name = f"lock{EVIL}"
    Lock(client, name).acquire(EVIL, 60_000)
    for words in ["info", name], ["info", "-j", name], ["list"], ["list", "-j"], \
            ["list", "--names"], ["top", "-i", "50ms"], ["run", "-nv", name, "--", "true"], \
            ["acquire", "-w", "50ms", name], ["metrics"], ["release", name, EVIL + "x"]:
        code, out, complaints = tool.run(*words)
        assert is_safe(out + complaints) and "owned" in out + complaints, words


def test_errors_of_a_server_cannot_reach_the_terminal(make_tool):
    server = FakeServer(lambda words: b"-ERR \x1b[2J\xc2\x9b31m owned\r\n")
    tool = make_tool(server.url)
    for words in ["info", "lock"], ["list"], ["run", "lock", "--", "true"], ["acquire", "lock"], \
            ["release", "lock", "t"], ["wait", "lock"], ["metrics"]:
        code, out, complaints = tool.run(*words)
        assert code != 0 and is_safe(out + complaints) and "owned" in complaints, words
    server.close()


def test_errors_of_a_server_cannot_reach_the_page_of_top(open_terminal):
    server = FakeServer(lambda words: b"-ERR \x1b]0;pwned\x07\x1b[2J\xc2\x9b31m owned\r\n")
    terminal = open_terminal(TOOL, "top", "--url", server.url, "--interval", "200ms")
    terminal.wait_for("q quit")
    terminal.type("q")
    terminal.wait()
    assert r"\x1b]0;pwned\x07\x1b[2J\xc2\x9b31m owned" in terminal.shown
    for raw in "\x1b]", "\x07", "\x1b[2J", "\u009b":
        assert raw not in terminal.shown
    server.close()


def test_what_sentinels_say_cannot_reach_the_terminal(make_tool):
    def answer(words):
        if words[1] == b"MASTER":
            return resp(["name", "locks", "config-epoch", "1"])
        return resp(["\x1b[2Jowned", "1"])

    sentinel = FakeServer(answer)
    tool = make_tool(f"redis+sentinel://127.0.0.1:{sentinel.port}/locks")
    code, out, complaints = tool.run("acquire", "-n", "lock")
    assert code != 0 and is_safe(out + complaints) and complaints
    sentinel.close()


# -- the processes ---------------------------------------------------------------------------------


def test_the_command_does_not_get_the_password(tool, server, client):
    client.config_set("requirepass", "secret-1234")
    tool.env["DLOCK_URL"] = f"redis://:secret-1234@127.0.0.1:{server.port}"
    assert tool.run("run", "lock", "--", "sh", "-c", "echo ${DLOCK_URL-none}")[1] == "none\n"
    out = tool.run("run", "--pass-url", "lock", "--", "printenv", "DLOCK_URL")[1]
    assert out.strip() == tool.env["DLOCK_URL"]
    client.config_set("requirepass", "")
    tool.env["DLOCK_URL"] = f"redis://127.0.0.1:{server.port}"
    out = tool.run("run", "lock", "--", "printenv", "DLOCK_URL")[1]
    assert out.strip() == tool.env["DLOCK_URL"], "there is no secret in it"


def test_the_password_of_sentinels_is_not_shown(tool, lock, server, client):
    def answer(words):
        if words[1] == b"MASTER":
            return resp(["name", "locks", "config-epoch", "1"])
        return resp(["127.0.0.1", str(server.port)]) if words[0] == b"SENTINEL" else resp("OK")

    sentinel = FakeServer(answer)
    lock.acquire("alice", 60_000)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/locks?sentinel_password=secret-1234"
    process = tool.start("run", "--url", url, "lock", "--", "true")
    wait_for_waiters(client, 1)
    shown = pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert b"secret" not in shown and b"true" in shown
    lock.release("alice")
    assert wait_until(lambda: process.poll() is not None, "the end") and process.returncode == 0
    sentinel.close()
