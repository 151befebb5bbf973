"""What the tool tells people: who holds a lock, why it gave up; and what it does for operators."""

import json
import pathlib
import re
import signal

import pytest

from support.commands import Lock
from support.fake_server import granting, naming, resp
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
    assert process.wait(50) == 0


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
    assert process.wait(50) == 128 + signal.SIGTERM
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
    assert "lock: --at-least is longer than the server allows (" in complaints


@pytest.mark.parametrize("options, what", [
    (["--lease", "2m"], "--lease"),
    (["--session"], "three times --lease, the timeout of the session,")])
def test_a_lease_that_the_server_does_not_allow_is_named(tool, client, options, what):
    client.config_set("dlock.max-lease", 60_000)
    code, out, complaints = tool.run("run", *options, "lock", "--", "echo", "never")
    assert (code, out) == (USAGE, "")
    assert f"lock: {what} is longer than the server allows (" in complaints


@pytest.mark.parametrize("lease", ["10s", "30s"])
def test_the_lock_is_kept_if_both_processes_are_killed(tool, lock, lease):
    process, pids = tool.start_group("--lease", lease, "--at-least", "10m")
    both = keeper_of(process.pid), process.pid
    kill(*both, number=signal.SIGSTOP)  # so that none can act on the end of the other
    kill(*both)
    wait_for_end(pids[:1])
    kill(pids[1])
    assert lock.info()["ttl"] > 500_000


def test_it_is_renewed_as_often_as_without(tool, server, client):
    """So a loss that the server cannot tell of is noticed within the lease."""
    client.execute_command("ACL", "SETUSER", "untold", "on", "nopass", "~*", "+@all",
                           "-dlock.session", "-dlock.info")
    tool.env["DLOCK_URL"] = f"redis://untold:any@127.0.0.1:{server.port}"
    process, pids = tool.start_group("--lease", "4s", "--at-least", "10m")
    client.delete("lock")
    assert process.wait(50) == LOST and not any(map(is_alive, pids))


@pytest.mark.parametrize("command, code", [("/no/such/command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_executed_gives_the_lock_back(tool, lock, command, code):
    assert tool.run("run", "--at-least", "10m", "lock", "--", command)[0] == code
    assert lock.info() is None


def test_a_command_that_says_so_itself_keeps_the_lock(tool, lock):
    assert tool.run("run", "--at-least", "10m", "lock", "--", "sh", "-c", "exit 127")[0] == 127
    assert lock.info() is not None


def test_a_lock_that_is_lost_before_the_command_begins_is_awaited_again(make_tool, fake_server):
    def is_held(words):
        return resp(0 if len(server.asked("DLOCK.ACQUIRE")) == 1 else 1)

    server = fake_server(granting(EXTEND=is_held, RELEASE=is_held))
    tool = make_tool(server.url)
    code, out, _ = tool.run("run", "--at-least", "10m", "lock", "--", "echo", "once")
    assert (code, out) == (0, "once\n") and len(server.asked("DLOCK.ACQUIRE")) == 2


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
    terminal.wait_for("without a session notices only when it renews. Release it? [y/N] ")
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
    process, pids = tool.start_group("--lease", "60s", ignores_term=True)
    assert tool.run("release", "--force", "--yes", "lock")[0] == 0
    assert process.wait(50) == LOST and not any(map(is_alive, pids))


def test_force_of_somebodys_string(tool, client):
    client.set("lock", "their-token", px=60_000)
    assert tool.run("release", "--force", "--yes", "lock")[0] == 0
    assert not client.exists("lock")


# -- permissions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words, rules", [
    (["list"], "+scan +dlock.info %R~*"), (["top", "-i", "50ms"], "+scan +dlock.info +info %R~*"),
    (["metrics"], "+scan +dlock.info +info %R~*"), (["info", "lock"], "+dlock.info %R~*"),
    (["wait", "-n", "lock"], "+dlock.info %R~*")],
    ids=lambda each: each[0] if isinstance(each, list) else "")
def test_the_rules_that_are_named_are_enough(make_tool, server, client, words, rules):
    client.acl_setuser("eyes", enabled=True, nopass=True)
    Lock(client).acquire("alice", 60_000)
    tool = make_tool(f"redis://eyes:x@127.0.0.1:{server.port}")
    code, _, complaints = tool.run(*words)
    assert code == REFUSED and f"the user needs the ACL rules {rules} (" in complaints
    client.execute_command("ACL", "SETUSER", "eyes", *rules.split())
    code, out, complaints = tool.run(*words)
    if words[0] == "wait":
        assert (code, out, complaints) == (BUSY, "", "")
    else:
        assert (code, complaints) == (0, "") and "alice" in out or words == ["metrics"]
    if words[0] not in ("info", "wait"):
        assert rules in tool.run(words[0], "--help")[1]


RULES = "+dlock.session +dlock.acquire +dlock.extend +dlock.release ~*"


@pytest.fixture
def worker(tool, server, client):
    """The tool logs in as a user of this name."""
    client.execute_command("ACL", "SETUSER", "worker", "on", "nopass", *RULES.split())
    tool.env["DLOCK_URL"] = f"redis://worker:any@127.0.0.1:{server.port}"
    return lambda *rules: client.execute_command("ACL", "SETUSER", "worker", *rules)


@pytest.mark.parametrize("options, command", [
    ([], "acquire"), ([], "extend"), (["--session"], "session")])
def test_a_missing_permission_is_named_before_the_command_begins(tool, client, worker, options,
                                                                 command):
    words = ["run", *options, "lock", "--", "echo", "run"]
    assert tool.run(*words) == (0, "run\n", "")
    worker(f"-dlock.{command}")
    code, out, complaints = tool.run(*words)
    assert (code, out) == (REFUSED, "") and not client.exists("lock")
    assert complaints.startswith(f"dlock: lock: the user needs the ACL rules {RULES} (")
    assert "NOPERM" in complaints and f"dlock.{command}" in complaints


@pytest.mark.parametrize("words, more", [
    (["one", "other", "--"], "for several names: +dlock.acquireall +dlock.releaseall"),
    (["--min-replicas", "1", "lock"], "for --min-replicas: +wait")])
def test_a_permission_that_only_an_option_needs_is_named(tool, worker, words, more):
    code, out, complaints = tool.run("run", *words, "echo", "run")
    assert (code, out) == (REFUSED, "")
    assert f": the user needs the ACL rules {RULES}, {more} (" in complaints
    worker(*more.partition(": ")[2].split())
    assert tool.run("run", "-n", *words, "true")[0] != REFUSED


def test_a_permission_that_is_withdrawn_while_the_command_runs_is_named(tool, worker):
    process, pids = tool.start_group("--lease", "8s")
    worker("-dlock.extend")
    assert process.wait(50) == LOST
    complaints = process.stderr.read()
    assert "the lock is lost: the server refused (" in complaints
    assert "NOPERM" in complaints and "dlock.extend" in complaints


def test_a_user_who_may_watch_is_told_of_a_loss_at_once(tool, client, worker):
    """The next renewal would come long after the end of the test."""
    rules = re.search(r"^to be told of a loss at once: (.*)$", tool.run("run", "--help")[1], re.M)
    worker(*rules[1].split())
    process, pids = tool.start_group("--lease", "1h")
    client.delete("lock")
    assert process.wait(50) == LOST and not any(map(is_alive, pids))


def test_a_wait_needs_the_permission_for_a_session(tool, lock, worker):
    worker("-dlock.session")
    assert tool.run("run", "lock", "--", "echo", "run") == (0, "run\n", "")
    lock.acquire("another", 600_000)
    code, out, complaints = tool.run("run", "lock", "--", "echo", "run")
    assert (code, out) == (REFUSED, "") and f"needs the ACL rules {RULES} (" in complaints


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


def test_errors_of_a_server_cannot_reach_the_terminal(make_tool, fake_server):
    server = fake_server(lambda words: b"-ERR \x1b[2J\xc2\x9b31m owned\r\n")
    tool = make_tool(server.url)
    for words in ["info", "lock"], ["list"], ["run", "lock", "--", "true"], ["acquire", "lock"], \
            ["release", "lock", "t"], ["wait", "lock"], ["metrics"]:
        code, out, complaints = tool.run(*words)
        assert code != 0 and is_safe(out + complaints) and "owned" in complaints, words


def test_errors_of_a_server_cannot_reach_the_page_of_top(open_terminal, fake_server):
    server = fake_server(lambda words: b"-ERR \x1b]0;pwned\x07\x1b[2J\xc2\x9b31m owned\r\n")
    terminal = open_terminal(TOOL, "top", "--url", server.url, "--interval", "200ms")
    terminal.wait_for("q quit")
    terminal.type("q")
    terminal.wait()
    assert r"\x1b]0;pwned\x07\x1b[2J\xc2\x9b31m owned" in terminal.shown
    for raw in "\x1b]", "\x07", "\x1b[2J", "\u009b":
        assert raw not in terminal.shown


def test_what_sentinels_say_cannot_reach_the_terminal(make_tool, fake_server):
    sentinel = fake_server(naming("\x1b[2Jowned 1"))
    tool = make_tool(f"redis+sentinel://127.0.0.1:{sentinel.port}/locks")
    code, out, complaints = tool.run("acquire", "-n", "lock")
    assert code != 0 and is_safe(out + complaints) and complaints


# -- the processes ---------------------------------------------------------------------------------


def address_in(tool, *options):
    """DLOCK_URL of a command."""
    code, out, complaints = tool.run("run", *options, "lock", "--", "printenv", "DLOCK_URL")
    assert (code, complaints) == (0, "")
    return out.removesuffix("\n")


SHOW = ["--", "sh", "-c", f'{TOOL} info --json "$DLOCK_NAME" | grep -q "$DLOCK_TOKEN"']


def test_the_command_finds_its_lock(tool, server, start_server):
    """Wherever the URL comes from, and whatever DLOCK_URL was before."""
    here = tool.env.pop("DLOCK_URL")
    elsewhere = f"redis://127.0.0.1:{start_server().port}"
    for options in ["-u", here], ["-u", here, "--prefix", "a&b c:"], [
            "-u", f"{here}?prefix=x:&lease_ms=5000", "--prefix", "y:"]:
        assert tool.run("run", *options, "lock", *SHOW) == (0, "", "")
        tool.env["DLOCK_URL"] = f"{elsewhere}?prefix=z:"
        assert tool.run("run", *options, "lock", *SHOW) == (0, "", "")
        del tool.env["DLOCK_URL"]
    folder = tool.home / ".config/dlock"
    folder.mkdir(parents=True)
    (folder / "config").write_text(f"url = {here}\nprefix = jobs:\n")
    assert tool.run("run", "lock", *SHOW) == (0, "", "")
    assert address_in(tool) == f"{here}?prefix=jobs:"
    assert address_in(tool, "-u", f"{here}?prefix=x:&lease_ms=5000", "--prefix", "y&") == (
        f"{here}?lease_ms=5000&prefix=y%26")
    assert address_in(tool, "--prefix", "") == here


def test_the_command_finds_its_lock_at_several_servers(several):
    tool, servers = several
    urls = [f"redis://127.0.0.1:{each.port}" for each in servers]
    words = [word for url in urls for word in ("-u", f"{url}?prefix=x:")]
    assert tool.run("run", *words, "--prefix", "y:", "lock", *SHOW) == (0, "", "")
    assert address_in(tool, *words, "--prefix", "y:").split() == [f"{urls[0]}?prefix=y:", *urls[1:]]


def test_the_command_does_not_get_the_password(tool, server, client):
    client.execute_command("ACL", "SETUSER", "worker", "on", ">secret-1234", "~*", "&*", "+@all")
    client.config_set("requirepass", "secret-1234")
    host = f"127.0.0.1:{server.port}"
    secrets = tool.home / "password"
    secrets.write_text("secret-1234\n")
    secrets.chmod(0o600)
    for user, shown in (":", ""), ("worker:", "worker:@"):
        tool.env["DLOCK_URL"] = url = f"redis://{user}secret-1234@{host}"
        assert address_in(tool) == f"redis://{shown}{host}"
        assert address_in(tool, "--pass-url") == url
        tool.env["DLOCK_URL"] = f"redis://{shown}{host}"
        assert address_in(tool, "--password-file", secrets) == f"redis://{shown}{host}"
        assert "secret" not in tool.run("run", "-u", url, "lock", "--", "env")[1]
        assert tool.run("run", "-u", url, "--pass-url", "lock", *SHOW) == (0, "", "")


def test_the_password_of_sentinels_is_not_shown(tool, lock, server, client, fake_server):
    sentinel = fake_server(naming(server.port))
    lock.acquire("alice", 60_000)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/locks?sentinel_password=secret-1234"
    process = tool.start("run", "--url", url, "lock", "--", "env")
    wait_for_waiters(client, 1)
    shown = pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert b"secret" not in shown and b"env" in shown
    lock.release("alice")
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0 and "secret" not in out
    assert f"DLOCK_URL=redis+sentinel://127.0.0.1:{sentinel.port}/locks\n" in out


# -- session ---------------------------------------------------------------------------------------


def open_session(client, number):
    session = f"session-number-{number:04}"
    client.execute_command("DLOCK.SESSION", session, "PX", 60_000)
    return session


NUMBERS = ["sessions", "away", "locks", "waiters", "watches", "events"]


def test_sessions_are_counted_with_what_hangs_on_them(tool, server, client):
    name = f"127.0.0.1:{server.port}"
    assert json.loads(tool.run("session", "--json")[1]) == [
        {"server": name, **{each: 0 for each in NUMBERS}, "listed": [], "unlisted": 0}]
    code, out, _ = tool.run("session")
    assert code == 0 and [line.split() for line in out.splitlines()] == [
        ["SERVER", *map(str.upper, NUMBERS)], [name, *"000000"]]
    first, second = open_session(client, 1), open_session(client, 2)
    for lock in "a", "b":
        client.execute_command("DLOCK.ACQUIRE", lock, "t", "VIA", first, "SESSION")
    client.execute_command("DLOCK.ACQUIRE", "a", "u", "PX", 60_000, "WAIT", 60_000, "VIA", second)
    seen, = json.loads(tool.run("session", "--json")[1])
    assert (seen["sessions"], seen["locks"], seen["waiters"]) == (2, 2, 1)
    code, out, complaints = tool.run("session")
    assert (code, complaints) == (0, "")
    titles, line = out.splitlines()[:2]
    assert titles.split() == ["SERVER", *map(str.upper, NUMBERS)]
    assert line.split() == [name, *(str(seen[each]) for each in NUMBERS)]
    for session in first, second:
        client.execute_command("DLOCK.SESSION", session, "END")


def listed(tool):
    seen, = json.loads(tool.run("session", "--json")[1])
    return seen["listed"]


def rows(tool):
    """The second table, without its titles."""
    code, out, complaints = tool.run("session")
    assert (code, complaints) == (0, "")
    titles, *lines = out.split("\n\n")[1].splitlines()
    assert titles.split() == ["SERVER", "SESSION", "STATE", "LEFT", "LOCKS", "WAITERS", "USER",
                              "ADDRESS", "NAME"]
    return [line.split() for line in lines]


def test_who_is_present_is_listed(tool, server, client):
    present, away = server.client(), server.client()
    present.client_setname("web-3:4711:api")
    session = open_session(present, 1)
    open_session(away, 2)
    client.execute_command("DLOCK.ACQUIRE", "a", "t", "VIA", session, "SESSION")
    address = present.client_info()["addr"]
    id = present.client_id()
    away.close()
    away.connection_pool.disconnect()
    wait_until(lambda: client.info("dlock")["dlock_sessions_away"] == 1, "the second to be away")
    first, second = listed(tool)
    assert 0 < first.pop("left_ms") <= 60_000 and 0 < second.pop("left_ms") <= 60_000
    assert first == {"id": "session-", "state": "present", "locks": 1, "waiters": 0,
                     "user": "default", "client": id, "address": address,
                     "name": "web-3:4711:api"}
    assert second == {"id": "session-", "state": "away", "locks": 0, "waiters": 0,
                      "user": "default", "client": 0, "address": "", "name": ""}
    shown = rows(tool)
    for row in shown:
        assert row.pop(0) == f"127.0.0.1:{server.port}" and row.pop(2).endswith("s")
    assert shown == [["session-", "present", "1", "0", "default", address, "web-3:4711:api"],
                     ["session-", "away", "0", "0", "default", "-", "-"]]


def test_a_process_is_listed_by_its_owner(tool, server):
    tool.env["DLOCK_URL"] = f"redis://127.0.0.1:{server.port}?owner=nightly"
    process, _ = tool.start_group("--session")
    only, = listed(tool)
    assert only["state"] == "present" and only["locks"] == 1
    assert re.fullmatch(r"[^:]+:\d+:nightly", only["name"])
    process.terminate()
    process.wait(50)
    wait_until(lambda: listed(tool) == [], "the session to end")


def test_a_connection_that_has_locks_is_listed_without_an_id(tool, server):
    holder = server.client()
    Lock(holder).acquire("t", 60_000, "SESSION")
    only, = listed(tool)
    assert (only["id"], only["user"], only["left_ms"], only["locks"]) == ("", "", -1, 1)
    assert only["client"] == holder.client_id()
    assert rows(tool)[0][1:6] == ["-", "present", "-", "1", "0"]


def test_sessions_that_are_not_listed_are_counted(tool, server, client):
    for number in range(103):
        open_session(client, number)
    seen, = json.loads(tool.run("session", "--json")[1])
    assert (len(seen["listed"]), seen["unlisted"]) == (100, 3)
    assert rows(tool)[-1] == [f"127.0.0.1:{server.port}", "and", "3", "more"]


@pytest.mark.parametrize("name", ["a,name=b,id=c", "%41%", "\"\\{}", "x" * 500])
def test_a_name_is_shown_as_it_is(tool, client, name):
    client.client_setname(name)
    open_session(client, 1)
    shown = name if len(name) <= 160 else name[:160] + "..."
    assert listed(tool)[0]["name"] == shown and rows(tool)[0][-1] == shown


def test_an_id_does_no_harm_to_a_terminal(tool, client):
    client.execute_command("DLOCK.SESSION", b"\x1b[31m\r\n,1234567890", "PX", 60_000)
    _, out, _ = tool.run("session")
    assert "\x1b" not in out and "\r" not in out and "\\x1b[31m" in out
    assert listed(tool)[0]["id"] == "\x1b[31m\r\n,"


@pytest.mark.parametrize("value", [
    "", ",", "=", "id", "id=", "id=%", "id=%4", "id=%zz", "=,=,id=x", "left_ms=x,locks=-",
    "name=%00"])
def test_a_list_that_nobody_understands_does_no_harm(make_tool, fake_server, value):
    info = f"# dlock\r\ndlock_sessions:1\r\ndlock_session_0:{value}\r\n"
    tool = make_tool(fake_server(granting(INFO=resp(info))).url)
    assert len(listed(tool)) == 1 and len(rows(tool)) == 1


def test_a_server_without_a_list_is_shown_with_its_numbers(make_tool, fake_server):
    """An older one."""
    info = "# dlock\r\ndlock_sessions:2\r\n"
    tool = make_tool(fake_server(granting(INFO=resp(info))).url)
    assert listed(tool) == [] and tool.run("session")[1].count("\n") == 2


def test_sessions_of_several_servers(several):
    tool, servers = several
    open_session(servers[1].client(), 1)
    servers[2].kill()
    code, out, complaints = tool.run("session", "--json")
    assert code == 0
    assert {each["server"]: each["sessions"] for each in json.loads(out)} == {
        f"127.0.0.1:{servers[0].port}": 0, f"127.0.0.1:{servers[1].port}": 1}
    assert complaints == (f"dlock: session: no result from 127.0.0.1:{servers[2].port}: "
                          "Connection refused\n")
