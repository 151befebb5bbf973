"""dlock top, on a terminal and elsewhere."""

import json
import os
import re
import signal
import termios
import time

import pytest

from support.commands import Lock
from support.server import wait_until
from support.tool import TOOL
from support.waiting import queue_up

LEAVES = "\x1b[?1049l"  # the page of its own


@pytest.fixture
def locks(server, client):
    for name in "quiet", "hot:1", "warm":
        Lock(client, name).acquire(f"t-{name}", 600_000)
    waiting = queue_up(server, ["a", "b"], key="hot:1") + queue_up(server, ["c"], key="warm")
    yield waiting


@pytest.fixture
def start_top(open_terminal):
    def start(*words, **more):
        terminal = open_terminal(TOOL, "top", "--interval", "200ms", *words, **more)
        terminal.wait_for("q quit")
        return terminal
    return start


def page_of(terminal):
    """The last whole page, as lines without the sequences."""
    pages = terminal.shown.split("\x1b[H")
    whole = [page for page in pages if "q quit" in page][-1]
    return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", whole).split("\r\n")


def names_in(terminal):
    terminal.shown = ""
    terminal.wait_for("q quit")
    terminal.wait_for("\x1b[H", after=terminal.shown.index("q quit"))
    terminal.wait_for("q quit", after=terminal.shown.rindex("\x1b[H"))
    return [line.split()[0] for line in page_of(terminal)[4:-1] if line.strip()]


# -- on a terminal ---------------------------------------------------------------------------------


def test_the_hottest_are_first(start_top, locks):
    terminal = start_top()
    assert names_in(terminal) == ["hot:1", "warm", "quiet"]
    page = page_of(terminal)
    assert page[0].startswith("3 held, 3 waiting on 1 server")
    assert "grants/s" in page[1] and "p99" in page[1]
    assert page[3].split() == ["NAME", "HOLDER", "AGE", "TTL", "WAITERS"]
    assert "t-hot:1" in page[4] and page[4].split()[-1] == "2"


@pytest.mark.parametrize("columns", [80, 50, 132])
def test_it_fits(start_top, locks, columns):
    terminal = start_top(columns=columns, rows=12)
    names_in(terminal)
    page = page_of(terminal)
    assert len(page) == 12 and max(map(len, page)) == columns


def test_it_follows(start_top, locks, client):
    terminal = start_top()
    Lock(client, "hot:1").release("t-hot:1")
    wait_until(lambda: names_in(terminal) and "2 waiting" in page_of(terminal)[0], "one less")


def look_again(terminal):
    """The second line of the page after another look."""
    shown = len(terminal.shown)
    terminal.type(" ")
    terminal.wait_for("q quit", after=shown)
    return page_of(terminal)[1]


def test_waits_are_those_between_two_looks(start_top, server, client):
    """What is shown is a bound: the wait took at least half of it."""
    lock = Lock(client, "lock")
    lock.acquire("t", 60_000)
    terminal = start_top("--interval", "1h")
    begun = time.monotonic()
    waiting = queue_up(server, ["next"])
    queued = time.monotonic()
    time.sleep(0.1)
    least_ms = (time.monotonic() - queued) * 1000
    lock.release("t")
    assert waiting[0].answer()
    most_ms = (time.monotonic() - begun) * 1000
    p50, p99 = re.search(r"p50 <(\S+)ms, p99 <(\S+)ms", look_again(terminal)).groups()
    assert p50 == p99
    assert least_ms - 0.5 <= float(p50) <= 2 * most_ms + 0.5, "the bound is rounded"
    assert "wait p50 -, p99 -" in look_again(terminal), "there was none since"


def test_keys_sort_and_filter(start_top, locks):
    terminal = start_top()
    terminal.type("sss")
    wait_until(lambda: names_in(terminal) == ["hot:1", "quiet", "warm"], "the order of names")
    assert "sort: name" in page_of(terminal)[-1]
    terminal.type("w")
    wait_until(lambda: names_in(terminal) == ["hot:1", "warm"], "those that are waited for")
    terminal.type("/ot:\r")
    wait_until(lambda: names_in(terminal) == ["hot:1"], "the filter")
    assert page_of(terminal)[2].strip() == "name has: ot:"


def test_escape_ends_a_filter(start_top, locks):
    terminal = start_top()
    terminal.type("/ot:")
    wait_until(lambda: names_in(terminal) == ["hot:1"], "the filter")
    terminal.type("\x1b")
    wait_until(lambda: len(names_in(terminal)) == 3, "all of them")
    terminal.type("q")  # which is no letter of a filter any more
    assert terminal.wait() == 0


@pytest.mark.parametrize("how, code", [
    ("q", 0), ("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)])
def test_every_way_out_restores_the_terminal(start_top, how, code):
    terminal = start_top()
    during = terminal.modes()
    if isinstance(how, str):
        terminal.type(how)
    else:
        os.kill(terminal.pid, how)
    assert terminal.wait() == code
    assert terminal.shown.rstrip().endswith(LEAVES)
    assert "\x1b[?25h" in terminal.shown[-60:], "the cursor is there again"
    assert not during[3] & termios.ICANON and terminal.modes()[3] & termios.ICANON
    assert terminal.modes()[3] & termios.ECHO


def test_stop_and_go_on(open_terminal, server):
    shell = open_terminal("bash", "--norc", "--noprofile", "-i")
    shell.wait_for("$ ")
    shell.type(f"{TOOL} top --interval 200ms\n")
    after = shell.wait_for("q quit")
    shell.type("\x1a")
    after = shell.wait_for("Stopped", after=shell.wait_for(LEAVES, after=after))
    shell.type("fg\n")
    after = shell.wait_for("q quit", after=after)
    shell.type("q")
    shell.wait_for(LEAVES, after=after)


def test_a_server_that_goes_and_comes_back(start_top, server):
    terminal = start_top()
    server.kill()
    terminal.wait_for("could not be reached")
    server.start(server.port)
    terminal.shown = ""
    terminal.wait_for("0 held, 0 waiting")
    terminal.type("q")
    assert terminal.wait() == 0


# -- elsewhere -------------------------------------------------------------------------------------


def test_one_print_where_there_is_no_terminal(tool, locks):
    code, out, complaints = tool.run("top", "--interval", "100ms")
    assert (code, complaints) == (0, "") and "\x1b" not in out
    lines = out.splitlines()
    assert lines[0].startswith("3 held, 3 waiting")
    assert [line.split()[0] for line in lines[3:]] == ["hot:1", "warm", "quiet"]
    assert max(map(len, lines)) <= 80


def test_json_with_rates(tool, client):
    process = tool.start("top", "--interval", "3s", "--json")
    lock = Lock(client, "lock")
    while process.poll() is None:
        assert lock.acquire("t") and lock.release("t")
        time.sleep(0.005)
    got = json.loads(process.stdout.read())
    assert got["grants_per_s"] > 1 and got["wait_p50_ms"] == -1 and got["servers"] == 1


def test_sort_by_what(tool, locks):
    assert tool.run("top", "--sort", "colour")[0] == 64
    out = tool.run("top", "--interval", "50ms", "--sort", "name", "--waiters", "--json")[1]
    assert [lock["name"] for lock in json.loads(out)["locks"]] == ["hot:1", "warm"]
