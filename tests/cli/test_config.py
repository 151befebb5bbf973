"""Where the tool's settings come from, and where passwords are not to be seen."""

import json
import pathlib
import subprocess

import pytest

from support.commands import Lock
from support.server import free_port, wait_until
from support.tool import TOOL
from support.waiting import wait_for_waiters

CONFIG = 78
PASSWORD = "sec:ret/@% ß"


@pytest.fixture
def configure(tool):
    """configure(text): the tool has just this configuration file, and no DLOCK_URL."""
    def write(text, mode=0o600, folder=".config"):
        tool.env.pop("DLOCK_URL", None)
        path = tool.home / folder / "dlock/config"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path
    return write


def url(server):
    return f"redis://127.0.0.1:{server.port}"


def nobody():
    return f"redis://127.0.0.1:{free_port()}"


def test_the_file_has_the_url_and_more(tool, configure, server, client):
    configure(f"# a comment\n\nurl = {url(server)}\nlease= 45s\nprefix =jobs:\n")
    assert tool.run("acquire", "lock")[0] == 0
    assert 30_000 < Lock(client, "jobs:lock").ttl() <= 45_000


def test_an_option_goes_over_the_environment_and_that_over_the_file(tool, configure, server):
    configure(f"url = {nobody()}\nwait = 1ms\n")
    assert tool.run("list")[0] == 69
    tool.env["DLOCK_URL"] = url(server)
    assert tool.run("list")[0] == 0
    tool.env["DLOCK_URL"] = nobody()
    assert tool.run("list", "--url", url(server))[0] == 0
    assert tool.run("list", "-u", nobody())[0] == 69


@pytest.mark.parametrize("text, options", [
    ("nonblock = yes", ["-w", "60s"]), ("nonblock = yes\nwait = 60s", []),
    ("", ["-n", "-w", "60s"]), ("nonblock = yes", ["-w", "forever"])])
def test_the_later_of_wait_and_nonblock_waits(tool, configure, server, client, text, options):
    configure(f"url = {url(server)}\n{text}\n")
    Lock(client).acquire("alice", 60_000)
    process = tool.start("run", *options, "lock", "--", "true")
    wait_for_waiters(client, 1)
    Lock(client).release("alice")
    assert process.wait(50) == 0


@pytest.mark.parametrize("text, options", [
    ("wait = 60s", ["-n"]), ("wait = 60s\nnonblock = yes", []), ("", ["-w", "60s", "-n"])])
def test_the_later_of_wait_and_nonblock_tries_once(tool, configure, server, client, text, options):
    configure(f"url = {url(server)}\n{text}\n")
    Lock(client).acquire("alice", 600_000)
    assert tool.run("run", *options, "lock", "--", "true", timeout=30) == (1, "", "")


# -- parameters of the URL -------------------------------------------------------------------------


def test_parameters_of_the_url_go_over_the_file(tool, configure, server, client):
    configure("lease = 45s\nprefix = jobs:\n")
    tool.env["DLOCK_URL"] = f"{url(server)}?lease_ms=5000&prefix=shop:"
    assert tool.run("acquire", "lock")[0] == 0
    assert 0 < Lock(client, "shop:lock").ttl() <= 5_000


def test_options_go_over_parameters_of_the_url(tool, server, client):
    tool.env["DLOCK_URL"] = f"{url(server)}?lease_ms=5000&prefix=shop:"
    assert tool.run("acquire", "--lease", "60s", "--prefix", "jobs:", "lock")[0] == 0
    assert 30_000 < Lock(client, "jobs:lock").ttl() <= 60_000


def test_parameters_of_a_url_that_is_not_used_do_nothing(tool, server, client):
    tool.env["DLOCK_URL"] = f"{nobody()}?lease_ms=5000"
    assert tool.run("acquire", "--url", url(server), "lock")[0] == 0
    assert 10_000 < Lock(client, "lock").ttl() <= 30_000


def test_a_command_runs_with_the_lease_of_the_url(tool, server, client):
    tool.env["DLOCK_URL"] = f"{url(server)}?lease_ms=5000&session=yes"
    script = f"redis-cli -p {server.port} --json DLOCK.INFO lock"
    out = tool.run("run", "lock", "--", "sh", "-c", script)[1]
    [holder] = json.loads(out)["holders"]
    assert holder["lease"] == 5_000 and holder["session"] > 0


def test_a_session_in_the_url_would_end_a_lock_that_is_to_stay(tool, server, client):
    tool.env["DLOCK_URL"] = f"{url(server)}?session=yes"
    code, out, complaints = tool.run("acquire", "lock")
    assert (code, out) == (64, "") and "session=yes in the URL" in complaints


@pytest.mark.parametrize("query, words", [
    ("leese_ms=5000", "there is no parameter leese_ms"),
    ("lease_ms=50", "lease_ms in the URL, is less than 100ms"),
    ("lease_ms=long", "lease_ms: not 10 to"),
    ("io_timeout_ms=soon", "io_timeout_ms: not 1 to 86400000")])
def test_a_wrong_parameter_is_named(tool, server, query, words):
    tool.env["DLOCK_URL"] = f"{url(server)}?{query}"
    code, out, complaints = tool.run("acquire", "lock")
    assert (code, out) == (64, "") and words in complaints


def test_a_lease_that_is_not_used_is_not_refused(tool, server, client):
    tool.env["DLOCK_URL"] = f"{url(server)}?lease_ms=50"
    assert tool.run("info", "lock")[0] == 1


# -- files -----------------------------------------------------------------------------------------


def test_the_users_file_goes_over_that_of_the_machine(tool, configure, server, client, tmp_path):
    machine = tmp_path / "machine"
    machine.write_text(f"url = {nobody()}\nurl = {nobody()}\nlease = 45s\nprefix = jobs:\n")
    tool.env["DLOCK_SYSTEM_CONFIG"] = str(machine)
    tool.env.pop("DLOCK_URL")
    assert tool.run("list")[0] == 69
    configure(f"url = {url(server)}\nprefix = mine:\n")
    assert tool.run("acquire", "lock")[0] == 0
    assert 30_000 < Lock(client, "mine:lock").ttl() <= 45_000
    machine.write_text("colour = red\n")
    code, _, complaints = tool.run("list")
    assert code == CONFIG and f"{machine}, line 1: colour" in complaints
    tool.env["DLOCK_SYSTEM_CONFIG"] = str(tmp_path / "none")
    assert tool.run("list")[0] == 0


def test_the_file_of_the_machine_is_in_etc(tool):
    """As strace would show; this test must not write there."""
    assert b"/etc/dlock/config" in TOOL.read_bytes()


def test_a_file_of_the_machine_that_the_group_may_read(tool, server, tmp_path):
    machine = tmp_path / "machine"
    machine.write_text("url = redis+sentinel://127.0.0.1:1/m?sentinel_password=secret\n")
    tool.env["DLOCK_SYSTEM_CONFIG"] = str(machine)
    tool.env["DLOCK_URL"] = url(server)
    machine.chmod(0o640)
    assert tool.run("list") == (0, "", "")
    machine.chmod(0o644)
    code, _, complaints = tool.run("list")
    assert code == 0 and f"warning: others may read {machine}" in complaints


def test_xdg_config_home(tool, configure, server):
    tool.env["XDG_CONFIG_HOME"] = str(tool.home / "elsewhere")
    configure(f"url = {nobody()}\n")
    configure(f"url = {url(server)}\n", folder="elsewhere")
    assert tool.run("list")[0] == 0


def test_no_file_is_no_mistake(tool):
    for home in "/no/such/folder", "":
        tool.env["HOME"] = home
        assert tool.run("list") == (0, "", "")


@pytest.mark.parametrize("line, complaint", [
    ("nonsense", "line 2: not of the form"), ("lease = long", "line 2: lease: not a time"),
    ("colour = red", "line 2: colour: not a known key"), ("session = maybe", "yes or no")])
def test_a_mistake_in_the_file(tool, configure, line, complaint):
    configure(f"# one\n{line}\n")
    code, out, complaints = tool.run("list")
    assert (code, out) == (CONFIG, "") and complaint in complaints


def test_a_file_that_cannot_be_read_is_a_mistake(tool, configure):
    path = configure("")
    path.unlink()
    path.mkdir()
    assert tool.run("list") == (CONFIG, "", f"dlock: {path}: Is a directory\n")


@pytest.mark.parametrize("text, words", [
    ("session = yes\nat_least = 1m", ["run", "lock", "--", "true"]),
    ("grace = 20s", ["run", "lock", "--", "true"]), ("slots = 0", ["acquire", "lock"]),
    ("lease = 1ms", ["extend", "lock", "t"]), ("conflict_exit_code = 256", ["wait", "lock"]),
    ("interval = 1ms", ["top"]), ("threads = 0", ["bench"]), ("duration = 1ms", ["bench"]),
    ("http = yes\noutput = /dev/null", ["metrics"])])
def test_only_commands_that_use_a_wrong_value_complain(tool, configure, server, text, words):
    configure(f"url = {url(server)}\n{text}\n")
    assert tool.run("list") == (0, "", "")
    assert tool.run(*words)[0] == 64


@pytest.mark.parametrize("key", ["force", "yes"])
@pytest.mark.parametrize("value", ["yes", "no"])
def test_what_is_only_for_the_command_line(tool, configure, key, value):
    path = configure(f"# one\n{key} = {value}\n")
    complaint = f"{path}, line 2: {key}: not allowed in a file, only on the command line"
    assert tool.run("list") == (CONFIG, "", f"dlock: {complaint}\n")


# -- passwords -------------------------------------------------------------------------------------


@pytest.fixture
def locked(server, client):
    client.config_set("requirepass", PASSWORD)
    return server


def test_a_password_in_the_file(tool, configure, locked):
    configure(f"url = {url(locked)}\npassword = {PASSWORD}\n")
    assert tool.run("list") == (0, "", "")


@pytest.mark.parametrize("user", ["", "default:@"])
def test_a_password_in_a_file_of_its_own(tool, locked, user):
    path = tool.home / "password"
    path.write_text(PASSWORD + "\n")
    path.chmod(0o600)
    tool.env["DLOCK_URL"] = url(locked).replace("//", "//" + user)
    assert tool.run("list", "--password-file", path) == (0, "", "")
    path.chmod(0o644)
    code, _, complaints = tool.run("list", "--password-file", path)
    assert code == 0 and "warning: others may read" in complaints
    path.write_text("wrong-5678\n")
    code, _, complaints = tool.run("list", "--password-file", path)
    assert code == 77 and "5678" not in complaints
    assert tool.run("list", "--password-file", tool.home / "none")[0] == CONFIG


@pytest.mark.parametrize("text", ["url = redis://:secret@127.0.0.1:1\n",
                                  "url = redis+sentinel://h/m?sentinel_password=secret\n",
                                  "url = redis://127.0.0.1:1\npassword = secret\n"])
def test_a_file_that_others_can_read_is_warned_about(tool, configure, text):
    path = configure(text, mode=0o640)
    complaints = tool.run("list")[2]
    assert f"warning: others may read {path}" in complaints and "secret" not in complaints
    path.chmod(0o600)
    assert "warning" not in tool.run("list")[2]


def test_a_file_without_a_password_may_be_read_by_all(tool, configure, server):
    for text in f"url = {url(server)}\n", "url = redis://user:@h\n" + f"url = {url(server)}\n":
        configure(text, mode=0o644)
        assert "warning" not in tool.run("list", "-u", url(server))[2]


def test_no_process_shows_the_password(tool, lock, client, server):
    """Not even if it was on the command line; and the command does not inherit it."""
    lock.acquire("another", 60_000)
    client.config_set("requirepass", "secret-1234")
    process = tool.start("run", "--url", f"redis://:secret-1234@127.0.0.1:{server.port}", "lock",
                         "true")
    wait_for_waiters(client, 1)
    shown = subprocess.run(["ps", "-eo", "args"], stdout=subprocess.PIPE, text=True).stdout
    assert "dlock run" not in shown or "secret-1234" not in shown
    mine = pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert b"secret-1234" not in mine and b"true" in mine
    lock.release("another")
    wait_until(lambda: process.poll() == 0, "the end")


def test_errors_do_not_show_a_password(tool):
    for text in "redis://user:secret@127.0.0.1:1", "redis://:secret@:x", "http://:secret@h":
        complaints = tool.run("list", "--url", text)[2]
        assert complaints and "secret" not in complaints
