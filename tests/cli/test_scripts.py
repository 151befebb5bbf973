"""dlock acquire, release, extend, wait, info and list, as a script uses them."""

import json
import os
import signal
import subprocess
import time

import pytest

from support.cluster import slot_of, url_of
from support.commands import Lock, served, stats
from support.fake_server import CUT, SILENCE, naming, resp
from support.sentinel import Sentinel
from support.server import free_port, wait_until
from support.tool import TOOL
from support.waiting import A_DAY, queue_up, wait_for_waiters

BUSY, USAGE, UNREACHABLE, PROTOCOL, REFUSED = 1, 64, 69, 76, 77
CLUSTER_HINT = "the server is a node of a cluster: use redis+cluster://"


def run_json(tool, *words, code=0, complaint=""):
    got, out, complaints = tool.run(*words, "--json")
    assert (got, complaints) == (code, complaint), complaints
    return json.loads(out)


# -- acquire, extend, release ----------------------------------------------------------------------


def test_a_lock_outlives_the_process_that_took_it(tool, lock):
    code, out, complaints = tool.run("acquire", "--lease", "1m", "lock")
    assert (code, complaints) == (0, "")
    token = out.strip()
    info = lock.info()
    assert info["token"].decode() == token and info["lease"] == 60_000 and info["ttl"] > 30_000
    assert tool.run("extend", "--lease", "2m", "lock", token) == (0, "", "")
    assert lock.info()["lease"] == 120_000
    assert tool.run("release", "lock", token) == (0, "", "")
    assert lock.info() is None


@pytest.mark.parametrize("renewal", ["renew=yes", "renew_every_ms=20000"])
def test_a_lock_has_a_lease_whatever_the_url_says(server, make_tool, lock, renewal):
    """Programs and scripts may share one URL. The session of the process that took the lock is no
    use to the script."""
    tool = make_tool(f"redis://127.0.0.1:{server.port}?lease_ms=60000&{renewal}")
    token = tool.run("acquire", "lock")[1].strip()
    assert lock.info()["token"].decode() == token and lock.info()["lease"] == 60_000
    assert tool.run("extend", "--lease", "2m", "lock", token) == (0, "", "")
    assert lock.info()["lease"] == 120_000
    assert tool.run("release", "lock", token) == (0, "", "")


def test_the_fence_is_in_the_json(tool, lock):
    granted = run_json(tool, "acquire", "lock")
    assert granted == {"name": "lock", "token": lock.info()["token"].decode(),
                       "fence": lock.info()["fence"], "lease_ms": 30_000}
    assert run_json(tool, "extend", "lock", granted["token"]) == {"name": "lock", "extended": True}
    assert run_json(tool, "release", "lock", granted["token"]) == {"name": "lock",
                                                                   "released": True}


def test_a_stranger_changes_nothing(tool, lock):
    """Neither of a held lock nor of a free one."""
    for held in True, False:
        if held:
            lock.acquire("another", 60_000)
        before = lock.info()
        for word in "release", "extend":
            code, out, complaints = tool.run(word, "lock", "stranger")
            assert (code, out) == (BUSY, "") and "does not hold it" in complaints
            assert run_json(tool, word, "lock", "stranger", code=BUSY) == \
                {"name": "lock", f"{word}{'d' if word == 'release' else 'ed'}": False}
        after = lock.info()
        assert (after and after["fence"]) == (before and before["fence"])
        lock.release("another")


def test_a_lock_that_a_session_keeps_has_no_lease_to_extend(tool, client):
    client.execute_command("DLOCK.SESSION", "session-number-1", "PX", 60_000)
    client.execute_command("DLOCK.ACQUIRE", "lock", "t", "VIA", "session-number-1", "SESSION")
    for options in [], ["--json"]:
        assert tool.run("extend", *options, "lock", "t") == (
            USAGE, "", "dlock: lock: held as long as its holder's session, which renews it: "
                       "nothing to extend\n")
    assert tool.run("release", "lock", "t") == (0, "", "")


def test_acquire_waits_as_long_as_it_is_told(tool, lock, client):
    lock.acquire("another", 60_000)
    assert tool.run("acquire", "-n", "lock") == (BUSY, "", "")
    assert tool.run("acquire", "-qw", "100ms", "-E", "9", "lock") == (9, "", "")
    waiting = tool.start("acquire", "lock")
    wait_for_waiters(client, 1)
    lock.release("another")
    token, _ = waiting.communicate(timeout=300)
    assert lock.info()["token"].decode() == token.strip()


def test_a_signal_ends_the_wait_and_leaves_no_lock(tool, lock, client):
    lock.acquire("another", 60_000)
    waiting = tool.start("acquire", "lock")
    wait_for_waiters(client, 1)
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(50) == 128 + signal.SIGINT
    wait_for_waiters(client, 0)


def pipe_without_a_reader():
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


@pytest.mark.parametrize("open_file, cause", [
    (lambda: open("/dev/full", "w"), "No space left on device"),
    (lambda: open("/dev/null"), "Bad file descriptor"), (pipe_without_a_reader, "Broken pipe")])
def test_a_token_that_cannot_be_written_releases_the_lock(tool, client, open_file, cause):
    with open_file() as file:
        assert tool.run("acquire", "lock", stdout=file) == (
            70, None, f"dlock: lock: the token cannot be written ({cause}): the lock is released\n")
    assert not client.exists("lock")


def test_a_closed_stdout_is_no_place_for_a_token(tool, client):
    words = ["sh", "-c", f"exec {TOOL} acquire lock >&-"]
    assert subprocess.run(words, env=tool.env, timeout=300).returncode == 70
    assert not client.exists("lock")


@pytest.mark.parametrize("words", [
    ["list"], ["list", "--json"], ["list", "--names"], ["info", "lock"], ["info", "--json", "lock"],
    ["info", "free"], ["info", "--json", "free"], ["wait", "-qnE", "5", "--json", "lock"],
    ["wait", "--json", "free"], ["extend", "--json", "lock", "t"],
    ["release", "--json", "lock", "t"], ["release", "--force", "--yes", "--json", "lock"],
    ["top", "--interval", "50ms"], ["top", "--interval", "50ms", "--json"],
    ["bench", "--duration", "100ms", "--threads", "2"], ["metrics"], ["watch", "lock"],
    ["session"], ["session", "--json"],
    ["list", "--help"], ["--help"], ["--version"]], ids=" ".join)
def test_output_to_a_full_disk_is_an_error(tool, client, words):
    for name in "lock", *("x" * 100 + str(i) for i in range(50)):  # more than a buffer
        Lock(client, name).acquire("t", 60_000)
    with open("/dev/full", "w") as full:
        code, _, complaints = tool.run(*words, stdout=full)
    assert (code, complaints) == (70, "dlock: stdout: No space left on device\n")


# -- wait ------------------------------------------------------------------------------------------


def test_wait_until_it_is_free(tool, lock, client):
    assert tool.run("wait", "lock") == (0, "", "")
    lock.acquire("another", 60_000)
    assert run_json(tool, "wait", "-qw", "100ms", "lock", code=BUSY) == {"name": "lock",
                                                                      "free": False}
    assert tool.run("wait", "-n", "-E", "5", "lock")[0] == 5
    looks = served(client, "info")
    waiting = tool.start("wait", "lock")
    wait_until(lambda: served(client, "info") > looks, "a look")
    assert waiting.poll() is None
    assert stats(client)["waiters"] == 0, "it is not in the queue"
    lock.release("another")
    assert waiting.wait(50) == 0
    assert stats(client)["granted"] == 1, "nor does it take the lock"


HELD, FREE = resp(["holders", [["token", "t"]]]), b"*-1\r\n"


@pytest.fixture
def wait_with(make_tool, fake_server):
    """wait_with(replies): the end of a wait whose looks get these replies; the last one again and
    again."""
    def run(replies, *options):
        server = fake_server(lambda words: replies.pop(0) if len(replies) > 1 else replies[0])
        return make_tool(server.url).run("wait", *options, "lock")
    return run


@pytest.mark.parametrize("options", [[], ["-w", "60s"]])
def test_a_server_that_fails_meanwhile_does_not_end_the_wait(wait_with, options):
    loading = b"-LOADING Redis is loading the dataset in memory\r\n"
    replies = [HELD, CUT, CUT, loading, HELD, FREE]
    assert wait_with(replies, *options) == (0, "", "")


def test_a_limited_wait_goes_on_without_a_server_until_its_end(wait_with):
    assert wait_with([CUT, CUT, FREE], "-w", "60s") == (0, "", "")
    assert wait_with([CUT], "-w", "300ms")[0] == UNREACHABLE
    assert wait_with([HELD, CUT], "-w", "3s")[0] == UNREACHABLE


def test_a_wait_ends_at_once_where_waiting_does_not_help(wait_with):
    assert wait_with([CUT, FREE])[0] == UNREACHABLE, "nobody at first"
    assert wait_with([CUT, FREE], "-n")[0] == UNREACHABLE
    assert wait_with([HELD, b"-NOPERM no\r\n", FREE], "-w", "60s")[0] == 77


# -- info ------------------------------------------------------------------------------------------


def test_info_of_a_held_lock(tool, server, lock):
    fence = lock.acquire("alice", 60_000)
    waiting = queue_up(server, ["bob", "carol"])
    got = run_json(tool, "info", "lock")
    assert 0 < got.pop("ttl_ms") <= 60_000
    assert abs(got.pop("since_ms") - time.time() * 1000) < 60_000
    queue = got.pop("queue")
    assert [(each["token"], each["client"]) for each in queue] == [
        (each.token, each.id) for each in waiting]
    assert all(0 < each["left_ms"] <= A_DAY and each["waited_ms"] >= 0 for each in queue)
    assert got == {"name": "lock", "token": "alice", "fence": fence, "lease_ms": 60_000,
                   "waiters": 2, "session": 0, "kind": "lock", "mode": "exclusive", "holders": 1,
                   "server": f"127.0.0.1:{server.port}", "held_on": 1, "servers": 1, "no_result": 0}
    code, out, _ = tool.run("info", "lock")
    assert code == 0
    assert "holder   alice\n" in out and f"fence    {fence}\n" in out
    assert "waiters  2\n      1  bob, waits for " in out and "\n      2  carol, waits " in out


def test_a_token_in_json_is_the_token(tool, server, lock):
    """Of a holder and of a waiter."""
    token = 'a\x00b\n\\x41"\u202e'
    lock.acquire(token, 60_000)
    queue_up(server, [token + "2"])
    got = run_json(tool, "info", "lock")
    assert got["token"] == token and [each["token"] for each in got["queue"]] == [token + "2"]


def test_a_waiter_by_a_session_has_no_client(tool, client, lock):
    lock.acquire("alice", 60_000)
    client.execute_command("DLOCK.SESSION", "session-number-1", "PX", 60_000)
    client.execute_command("DLOCK.ACQUIRE", "lock", "bob", "PX", 60_000, "WAIT", 60_000, "VIA",
                           "session-number-1")
    assert "more, by its session\n" in tool.run("info", "lock")[1]
    assert run_json(tool, "info", "lock")["queue"][0]["client"] == 0


def test_info_of_a_free_lock(tool):
    assert tool.run("info", "lock") == (BUSY, "free\n", "")
    assert run_json(tool, "info", "lock", code=BUSY) == {"name": "lock", "free": True}


def test_info_of_somebodys_string(tool, client):
    client.set("lock", "their-token", px=60_000)
    got = run_json(tool, "info", "lock")
    assert (got["token"], got["kind"]) == ("their-token", "string")
    assert "SET NX PX" in tool.run("info", "lock")[1]


@pytest.mark.parametrize("words", [["info"], ["acquire"], ["wait"], ["watch"],
                                   ["run", "lock", "--", "echo"], ["release", "--force", "--yes"]],
                         ids=lambda words: words[0])
def test_what_is_no_lock(tool, client, words):
    client.lpush("lock", "x")
    code, out, complaints = tool.run(*words, *[] if words[0] == "run" else ["lock"])
    assert code == USAGE and out == "" and "WRONGTYPE" in complaints
    assert ": the key of this name is not a lock (" in complaints
    assert client.lrange("lock", 0, -1) == [b"x"]


def test_names_in_any_language_are_shown_as_they_are(tool, client):
    name = "größe 名前"
    Lock(client, name).acquire("Ünï", 60_000)
    assert f"name     {name}\nholder   Ünï\n" in tool.run("info", name)[1]
    title, line = tool.run("list")[1].splitlines()
    assert line.startswith(f"{name}{' ' * 18} Ünï ") and title.index("HOLDER") == 29
    assert " held Ünï fence " in tool.run("watch", "--rounds", "1", name)[1]


def test_bytes_that_could_do_harm_are_not_shown_as_they_are(tool, lock):
    lock.acquire(b"\x1b[2J\xff\"\\", 60_000)
    code, out, _ = tool.run("info", "lock")
    assert code == 0 and "\x1b" not in out and "\\x1b[2J\\xff" in out
    assert run_json(tool, "info", "lock")["token"] == "\x1b[2J\ufffd\"\\"


# -- list ------------------------------------------------------------------------------------------


def test_an_empty_list(tool):
    assert tool.run("list") == (0, "", "")
    assert run_json(tool, "list") == []


def test_all_locks_and_nothing_else(tool, client):
    client.set("a string", "x")
    client.lpush("a list", "x")
    names = {f"job:{i}" for i in range(2500)}
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.execute_command("DLOCK.ACQUIRE", name, f"t-{name}", "PX", 60_000)
        pipe.execute()
    found = run_json(tool, "list")
    assert {(lock["name"], lock["token"]) for lock in found} == {(n, f"t-{n}") for n in names}
    assert [lock["name"] for lock in found] == sorted(lock["name"] for lock in found)
    assert {lock["name"] for lock in run_json(tool, "list", "job:11*")} == \
        {name for name in names if name.startswith("job:11")}
    out = tool.run("list", "job:7")[1]
    assert out.splitlines()[0].split() == ["NAME", "HOLDER", "AGE", "TTL", "WAITERS"]
    assert out.splitlines()[1].split()[:2] == ["job:7", "t-job:7"]
    assert max(map(len, out.splitlines())) <= 80


def test_names_that_differ_behind_a_zero_byte_are_different(tool, client):
    names = ["a", "a\0", "a\0b", "a\0c"]
    for name in names:
        Lock(client, name).acquire("t", 60_000)
    assert [lock["name"] for lock in run_json(tool, "list")] == names


def test_a_prefix_is_a_prefix_and_no_pattern(tool, client):
    for name in "a*:x", "ab:x", "a*:y":
        Lock(client, name).acquire(f"t-{name}", 60_000)
    assert [lock["token"] for lock in run_json(tool, "list", "--prefix", "a*:")] == \
        ["t-a*:x", "t-a*:y"]


def test_filters(tool, server, client):
    Lock(client, "old").acquire("t", 600_000)
    server.clock.advance(100)
    for name in "young", "wanted":
        Lock(client, name).acquire("t", 600_000)
    waiting = queue_up(server, ["w"], key="wanted")
    held_long = run_json(tool, "list", "--held-longer", "50s")
    assert [lock["name"] for lock in held_long] == ["old"]
    assert run_json(tool, "list", "--held-longer", "10m") == []
    assert [lock["name"] for lock in run_json(tool, "list", "--waiters")] == ["wanted"]
    waiting[0].close()


# -- all of them -----------------------------------------------------------------------------------


COMMANDS = [["acquire", "lock"], ["release", "lock", "t"], ["extend", "lock", "t"],
            ["wait", "lock"], ["info", "lock"], ["list"]]


@pytest.mark.parametrize("words", [*COMMANDS, ["bench"], ["watch", "lock"],
                                   ["run", "lock", "--", "echo", "never"]], ids=" ".join)
def test_nobody_answers(nobody, words):
    code, out, complaints = nobody.run(*words)
    assert (code, out) == (UNREACHABLE, "") and complaints.startswith("dlock: ")
    assert "127.0.0.1" in complaints and "Connection refused" in complaints


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_server_without_the_module(make_tool, start_server, words):
    tool = make_tool(f"redis://127.0.0.1:{start_server(module=None).port}")
    code, out, complaints = tool.run(*words)
    assert (code, out) == (PROTOCOL, "")
    assert (": the server has no dlock module: loadmodule in redis.conf (on Debian: dlock-module "
            "enable), or ?module=none in the URL (") in complaints


@pytest.mark.parametrize("words", [["acquire"], ["acquire", "a", "b"], ["release", "lock"],
                                   ["info"], ["list", "a", "b"], ["info", ""], []])
def test_usage(tool, words):
    code, out, complaints = tool.run(*words)
    assert (code, out) == (USAGE, "") and complaints.startswith("dlock: ")


def test_too_many_options_are_named(tool):
    assert tool.run("list", *["--json"] * 64)[0] == 0
    assert tool.run("list", *["--json"] * 65) == (USAGE, "", "dlock: more than 64 options\n")


def test_a_wrong_command_is_named(tool):
    assert tool.run("relese", "lock") == (USAGE, "", "dlock: relese: no such command; see dlock "
                                                     "--help\n")
    assert tool.run("session", "x")[2] == \
        "dlock: usage: dlock session [option...]; see dlock session --help\n"


def test_help_names_every_option(tool):
    code, out, _ = tool.run("--help")
    assert code == 0
    for name in "run", "acquire", "release", "extend", "wait", "info", "list", "watch", "session":
        assert f"  {name} " in out
        code, text, complaints = tool.run(name, "--help")
        assert (code, complaints) == (0, "")
        assert text.startswith(f"usage: dlock {name} ") and "--url" in text
        assert max(map(len, text.splitlines())) <= 80
    assert tool.run("--version")[1].startswith("dlock ")


# -- where the service is more than one server ----------------------------------------------------


def use_locks(tool, complaint=""):
    """Takes some, and finds each of them once; the result is where they are. complaint: of list."""
    tokens = {name: run_json(tool, "acquire", name)["token"] for name in "abcdefgh"}
    found = run_json(tool, "list", complaint=complaint)
    assert {lock["name"]: lock["token"] for lock in found} == tokens
    assert len(found) == len(tokens)
    for name, token in tokens.items():
        assert run_json(tool, "info", name)["token"] == token
        assert tool.run("extend", name, token)[0] == 0
        assert tool.run("release", name, token)[0] == 0
    assert run_json(tool, "list", complaint=complaint) == [] and tool.run("wait", "a")[0] == 0
    assert tool.run("run", "a", "--", "true") == (0, "", "")
    return {lock["server"] for lock in found}


def test_on_a_cluster(make_tool, cluster):
    tool = make_tool(url_of(cluster.nodes[0]))
    assert use_locks(tool) == {f"127.0.0.1:{node.port}" for node in cluster.nodes}
    got = json.loads(tool.run("top", "--interval", "50ms", "--json")[1])
    assert got["servers"] == 3
    node = make_tool(f"redis://127.0.0.1:{cluster.nodes[0].port}")
    for words in ["acquire"], ["info"], ["release", "--force", "--yes"]:
        ends = [node.run(*words, name) for name in "abcdefgh"]
        assert any(code == PROTOCOL and CLUSTER_HINT in text for code, _, text in ends)
        assert all(code != PROTOCOL or CLUSTER_HINT in text for code, _, text in ends)


def test_the_hint_about_clusters_is_for_other_urls(make_tool, cluster):
    key, node = cluster.key_on(0), cluster.nodes[0]
    node.observer.execute_command("CLUSTER", "DELSLOTS", slot_of(key))
    for url, is_hinted in (f"redis://127.0.0.1:{node.port}", True), (url_of(node), False):
        code, _, text = make_tool(url).run("acquire", "-n", key)
        assert code == REFUSED and "CLUSTERDOWN" in text
        assert (CLUSTER_HINT in text) == is_hinted
    node.observer.execute_command("CLUSTER", "ADDSLOTS", slot_of(key))
    cluster.wait_until_ready()


def test_on_several_servers(several):
    """Also when one of them is away."""
    tool, servers = several
    assert len(use_locks(tool)) == 1
    token = tool.run("acquire", "lock")[1].strip()
    servers[0].observer.delete("lock")
    assert "servers  held on 2 of 3\n" in tool.run("info", "lock")[1]
    got = run_json(tool, "info", "lock")
    assert (got["token"], got["held_on"], got["servers"]) == (token, 2, 3)
    assert tool.run("release", "lock", token)[0] == 0
    servers[1].kill()
    gone = f"127.0.0.1:{servers[1].port}: Connection refused\n"
    use_locks(tool, complaint=f"dlock: list: no result from {gone}")
    servers[2].kill()
    assert tool.run("list")[0] == UNREACHABLE


@pytest.mark.parametrize("options", [[], ["--wait", "60s"], ["--wait", "forever"]], ids=" ".join)
def test_a_split_vote_does_not_end_the_wait(several, options):
    """One server is away, one grants, and one has another holder: nobody has a majority."""
    tool, (away, held, free) = several
    away.kill()
    Lock(held.observer, "lock").acquire("another", 600_000)
    process = tool.start("run", *options, "lock", "--", "echo", "run")
    wait_until(lambda: process.poll() is not None
               or free.observer.info("dlock")["dlock_granted"] > 5, "several votes")
    assert process.poll() is None, process.stderr.read()
    Lock(held.observer, "lock").release("another")
    assert process.communicate(timeout=300) == ("run\n", "") and process.returncode == 0


@pytest.mark.parametrize("words", [["run", "lock", "--", "true"], ["acquire", "lock"]],
                         ids=lambda words: words[0])
@pytest.mark.parametrize("count", [0, 1])
def test_servers_without_a_majority_are_not_waited_for(make_tool, start_server, words, count):
    ports = [start_server().port if i < count else free_port() for i in range(3)]
    tool = make_tool(*(f"redis://127.0.0.1:{port}" for port in ports))
    code, _, complaints = tool.run(*words)
    assert code == 75 and f"{3 - count} unreachable" in complaints


def test_a_single_try_does_not_take_a_split_vote_for_an_answer_at_once(several):
    tool, (away, held, free) = several
    away.kill()
    Lock(held.observer, "lock").acquire("another", 600_000)
    assert tool.run("run", "-n", "lock", "--", "true")[0] == 75
    assert free.observer.info("dlock")["dlock_granted"] > 4, "as often as the library votes"


def test_a_server_that_gives_no_result_is_not_one_without_the_lock(several):
    tool, servers = several
    for each in servers[1:]:
        Lock(each.observer, "lock").acquire("alice", 60_000)
    assert run_json(tool, "info", "lock")["no_result"] == 0
    servers[1].kill()
    assert "servers  held on 1 of 3, no result from 1\n" in tool.run("info", "lock")[1]
    got = run_json(tool, "info", "lock")
    assert (got["held_on"], got["servers"], got["no_result"]) == (1, 3, 1)
    servers[2].observer.delete("lock")
    assert tool.run("info", "lock") == (BUSY, "free\n", "")
    assert tool.run("release", "--force", "--yes", "lock") == (
        BUSY, "", "dlock: lock: the lock is free\n")


def test_a_server_has_one_line_whatever_it_says(make_tool, start_server, fake_server):
    liar = fake_server(lambda words: b"-ERR one\n127.0.0.1:1: two\r\n")
    complaint = f"dlock: list: no result from 127.0.0.1:{liar.port}: ERR one 127.0.0.1:1: two\n"
    assert make_tool(liar, start_server(), start_server()).run("list") == (0, "", complaint)


def test_behind_sentinels(make_tool, server, fake_server):
    sentinel = fake_server(naming(server.port))
    tool = make_tool(f"redis+sentinel://127.0.0.1:{sentinel.port}/locks")
    assert use_locks(tool) == {f"127.0.0.1:{server.port}"}


def test_a_sentinel_is_no_server_without_the_module(make_tool, server):
    sentinel = Sentinel(server)
    try:
        sentinel.start()
        tool = make_tool(sentinel)
        for words in COMMANDS:
            code, out, complaints = tool.run(*words)
            assert (code, out) == (PROTOCOL, "")
            assert ": the server is a Sentinel: use redis+sentinel://host/master (" in complaints
    finally:
        sentinel.destroy()


@pytest.mark.parametrize("scheme, path, hint", [
    ("redis+sentinel", "/locks", "the server is not a Sentinel: use redis://"),
    ("redis+cluster", "", "the server is not a node of a cluster: use redis://")])
def test_a_server_of_another_kind_than_the_url_says_gets_a_hint(make_tool, server, scheme, path,
                                                                hint):
    tool = make_tool(f"{scheme}://127.0.0.1:{server.port}{path}")
    for words in COMMANDS:
        code, out, complaints = tool.run(*words)
        assert (code, out) == (PROTOCOL, "") and f": {hint} (" in complaints


def test_a_replica_gets_a_hint(make_tool, fake_server):
    replica = fake_server(lambda words: b"-READONLY You can't write against a replica.\r\n")
    code, out, complaints = make_tool(replica).run("acquire", "-n", "lock")
    assert (code, out) == (REFUSED, "")
    assert ": the server is a replica: use its master (" in complaints


# -- a server that lies ----------------------------------------------------------------------------


LIES = [resp("text"), resp(7), resp([]), resp(["token"]), resp(["token", 7]), resp([["token"]]),
        resp(["ttl", "soon", "token", "t"]), b"*-1\r\n", b"+\r\n", b"$0\r\n\r\n", b"nonsense\r\n",
        resp(["7"]), resp(["7", "no array"]), resp([7, []]), resp(["0", [7]]), resp(["0", [[]]]),
        b"-ERR unknown\r\n", b"-\r\n"]


@pytest.mark.parametrize("lie", LIES, ids=repr)
def test_nonsense_is_a_failure_and_nothing_worse(make_tool, lie, fake_server):
    server = fake_server(lambda words: lie)
    tool = make_tool(server.url)
    for words in ["info", "lock"], ["list"], ["top", "--interval", "50ms"], ["wait", "lock"], \
            ["release", "lock", "t"], ["acquire", "-n", "lock"]:
        code, out, complaints = tool.run(*words, "--io-timeout", "5s")
        if code == 1:  # null
            assert lie == b"*-1\r\n", words
        elif code == 0:
            assert out == "" or words[0] in ("acquire", "wait"), (words, out)
        else:
            assert code in (64, 69, 76, 77) and complaints.startswith("dlock: "), (words, code)


def test_a_name_without_the_prefix(make_tool, fake_server):
    server = fake_server(lambda words: resp(["0", ["x"]] if words[0] == b"SCAN"
                                           else ["holders", [["token", "t"]]]))
    tool = make_tool(server.url)
    assert [lock["name"] for lock in run_json(tool, "list")] == ["x"]
    assert tool.run("list", "--prefix", "a long prefix:")[0] == PROTOCOL


@pytest.mark.parametrize("what", [SILENCE, CUT], ids=["silence", "cut"])
def test_no_answer(make_tool, what, fake_server):
    server = fake_server(lambda words: what)
    tool = make_tool(server.url)
    for words in ["info", "lock"], ["list"], ["top", "--interval", "50ms"]:
        code, out, complaints = tool.run(*words, "--io-timeout", "300ms")
        assert (code, out) == (UNREACHABLE, "") and "127.0.0.1" in complaints
    assert tool.run("release", "lock", "t", "--io-timeout", "300ms")[0] == 75
