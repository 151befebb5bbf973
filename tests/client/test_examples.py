"""The examples, built with what pkg-config says of an installation, linked both ways, and run."""

import functools
import os
import re
import subprocess
import time

import pytest

from support.commands import fence_at
from support.installed import STRICT, make, output, pkg_config
from support.server import ROOT, free_port, wait_until
from support.waiting import outlive_the_lease, wait_for_waiters

EXAMPLES = ROOT / "client/examples"
CPP = {"usable_from_cpp": ("-std=c++11", ROOT / "tests/client/usable_from_cpp.cpp"),
       "nightly_report": ("-std=c++17", EXAMPLES / "nightly_report.cpp"),
       "coroutine": ("-std=c++20", EXAMPLES / "coroutine.cpp")}
FENCED = ["fenced_file", "fenced_sqlite", "fenced_redis"]
PROGRAMS = ["quick_start", "flash_sale", *FENCED, "guarded_counter", "shared_cache", "export_slots",
            "rate_limit", "call_metrics", "memory_store", "nested_scopes", "transfer", "leader",
            "poll_loop", "libuv_loop", "libev_loop", *CPP]
NEEDS = {"flash_sale": "hiredis", "fenced_redis": "hiredis", "fenced_sqlite": "sqlite3",
         "libuv_loop": "libuv"}
NEEDS_FLAGS = {"libev_loop": ["-lev", "-lm"]}  # has no file for pkg-config
KINDS = ["shared", "static"]
# One program for each set of libraries that it may be linked with statically.
STATIC = ["quick_start", "flash_sale", "fenced_sqlite", "libuv_loop", "libev_loop", "coroutine"]
BUILT = [*((name, "shared") for name in PROGRAMS), *((name, "static") for name in STATIC)]
PATIENCE_S = 50
PATIENT = "io_timeout_ms=20000&connect_timeout_ms=20000"  # a slow machine is no silent server


def packages_of(name):
    return ["dlock", NEEDS[name]] if name in NEEDS else ["dlock"]


def compile_one(prefix, folder, name):
    """The compiler with its flags, and the objects. Users need no option of ours."""
    compiler, sources = ["cc"], [EXAMPLES / f"{name}.c"]
    if name in CPP:
        standard, source = CPP[name]
        compiler, sources = ["c++", standard], [source]
    elif name in FENCED:
        sources.append(EXAMPLES / "fenced_writer.c")
    folder.mkdir()
    subprocess.run([*compiler, *STRICT, "-c", *sources,
                    *pkg_config(prefix, "--cflags", *packages_of(name))], cwd=folder, check=True)
    return compiler, list(folder.iterdir())


def link(prefix, path, name, kind, compiler, objects):
    """Users need libraries of others only for what they do themselves."""
    static = ["--static"] if kind == "static" else []
    packages = [f"{each}-static" if static and each == "libuv" else each
                for each in packages_of(name)]
    flags = pkg_config(prefix, *static, "--libs", *packages)
    # What the static libc says about getaddrinfo() is no concern of ours.
    subprocess.run([*compiler, *(["-static"] if static else []), "-o", path, *objects, *flags,
                    *NEEDS_FLAGS.get(name, [])], check=True,
                   stderr=subprocess.DEVNULL if static else None)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("an installation")
    make("install-client", f"PREFIX={folder}")
    return folder


@pytest.fixture(scope="module")
def built(prefix, tmp_path_factory):
    """built(name, kind): the program that is linked this way. Each is built when it is needed."""
    folders = {kind: tmp_path_factory.mktemp(f"{kind} programs") for kind in (*KINDS, "compiled")}
    compiled = functools.cache(
        lambda name: compile_one(prefix, folders["compiled"] / name, name))

    @functools.cache
    def path_of(name, kind):
        link(prefix, folders[kind] / name, name, kind, *compiled(name))
        return folders[kind] / name
    return path_of


@pytest.fixture
def start(prefix, built):
    """start(program, argument...) runs an example."""
    started = []

    def start_one(name, *arguments, kind="shared"):
        env = {**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}
        started.append(subprocess.Popen(
            [built(name, kind), *map(str, arguments)], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def finish(process):
    """Exit code, output and complaints."""
    out, complaints = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, complaints


@pytest.fixture
def run(start):
    return lambda *words, **more: finish(start(*words, **more))


def url_of(server):
    return f"redis://127.0.0.1:{server.port}?{PATIENT}"


@pytest.mark.parametrize("name, kind", BUILT)
def test_a_program_can_be_linked_in_both_ways(built, name, kind):
    needed = output("readelf", "-d", built(name, kind))
    assert "[libdlock.so.1]" in needed if kind == "shared" else "NEEDED" not in needed


@pytest.mark.parametrize("kind", KINDS)
def test_quick_start(run, server, kind):
    code, out, complaints = run("quick_start", url_of(server), kind=kind)
    assert (code, complaints) == (0, "")
    found = re.fullmatch("it is ours, with fence (\\d+)\nit stays ours for (\\d+) ms\n"
                         "it is given back\n", out)
    assert found, out
    assert int(found[1]) > 0
    assert 5000 < int(found[2]) < 10_000
    assert server.client().dbsize() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_quick_start_over_tls(run, tls_server, authority, monkeypatch, kind):
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca)
    code, _, complaints = run("quick_start", f"{tls_server.url}?{PATIENT}", kind=kind)
    assert (code, complaints) == (0, "")


def test_quick_start_on_a_lock_that_is_held(run, server, client):
    client.execute_command("DLOCK.ACQUIRE", "quick-start", "somebody", "PX", 60_000)
    code, out, complaints = run("quick_start", url_of(server))
    assert (code, out) == (1, "")
    assert "the answer is no" in complaints
    assert "DLOCK_TIMEOUT" in complaints


def test_quick_start_in_plain_redis(run, start_server):
    server = start_server(module=None)
    code, out, complaints = run("quick_start", url_of(server) + "&module=none")
    assert (code, complaints) == (0, "")
    assert out.startswith("it is ours, with fence 0\n")
    assert server.client().dbsize() == 0


def test_quick_start_at_a_server_without_the_module(run, start_server):
    code, out, complaints = run("quick_start", url_of(start_server(module=None)))
    assert (code, out) == (1, "")
    assert "it could not be done" in complaints
    assert "DLOCK_NO_MODULE" in complaints


def test_quick_start_with_an_address_that_is_none(run):
    code, out, complaints = run("quick_start", "http://127.0.0.1")
    assert (code, out) == (2, "")
    assert "no client" in complaints
    assert complaints.count("\n") == 1


@pytest.mark.parametrize("stock, buyers, result", [
    (100, 2000, "sold 100, refused 1900, failed 0, left 0\n"),
    (100, 60, "sold 60, refused 0, failed 0, left 40\n"),
    (0, 10, "sold 0, refused 10, failed 0, left 0\n")])
def test_a_flash_sale_sells_what_there_is(run, server, client, stock, buyers, result):
    assert run("flash_sale", url_of(server), stock, buyers) == (0, result, "")
    assert int(client.get("flash-sale:stock")) == max(stock - buyers, 0)
    assert not client.exists("flash-sale:lock")


@pytest.mark.parametrize("name", FENCED)
def test_a_fenced_writer_writes(run, server, tmp_path, name):
    """What it refuses is in test_fencing.py."""
    store = f"127.0.0.1:{server.port}/notes" if name == "fenced_redis" else tmp_path / "store"
    code, out, complaints = run(name, url_of(server), store, "some text")
    assert (code, complaints) == (0, "")
    assert re.fullmatch("holding, fence [1-9]\\d*\nwritten\n", out), out


def test_transfers_in_both_directions_keep_the_sum(start, server, client):
    owners = ["alice", "bob", "carol"]
    pairs = [(one, two) for one in owners for two in owners if one != two]
    processes = [start("transfer", url_of(server), "bank", *pair, i + 1, 30)
                 for i, pair in enumerate(pairs)]
    assert [finish(each) for each in processes] == [(0, "30 transfers\n", "")] * len(pairs)
    moved = {owner: 30 * sum((i + 1) * ((owner == to) - (owner == by))
                             for i, (by, to) in enumerate(pairs)) for owner in owners}
    assert {owner: int(client.get(f"{{bank}}balance:{owner}")) for owner in owners} == moved
    assert client.dbsize() == len(owners)


def test_a_transfer_to_the_same_account_is_refused(run, server):
    code, out, complaints = run("transfer", url_of(server), "bank", "alice", "alice", 1)
    assert (code, out) == (2, "")
    assert complaints == "transfer: names: the same name is given twice\n"


def test_guarded_counters_count_right(start, server, client):
    processes = [start("guarded_counter", url_of(server), "visits", 30) for _ in range(4)]
    outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
    assert all(re.fullmatch("counted 30, refused \\d+\n", out) for out, _ in outputs), outputs
    assert client.hget("{visits}count", "value") == b"120"


def test_a_guarded_counter_that_lost_the_lock_counts_again(start, server, client):
    slow = start("guarded_counter", url_of(server), "visits", 4, 1000)
    assert slow.stdout.readline() == "holding\n"
    client.delete("{visits}lock")  # or seconds later: it holds the lock nearly all the time
    quick = start("guarded_counter", url_of(server), "visits", 3)
    # On a slow machine a lease may end before the write.
    assert re.fullmatch("counted 3, refused \\d+\n", quick.communicate(timeout=PATIENCE_S)[0])
    assert re.fullmatch("(holding\n)+counted 4, refused [1-9]\\d*\n",
                        slow.communicate(timeout=PATIENCE_S)[0])
    assert client.hget("{visits}count", "value") == b"7"


def test_a_cache_is_filled_once_and_read_by_all(start, server, client, tmp_path):
    cache = tmp_path / "prices"
    client.execute_command("DLOCK.ACQUIRE", "cache:prices", "somebody", "PX", 600_000)
    processes = [start("shared_cache", url_of(server), cache) for _ in range(6)]
    wait_for_waiters(client, 6)
    client.execute_command("DLOCK.RELEASE", "cache:prices", "somebody")
    outputs = [process.communicate(timeout=PATIENCE_S) for process in processes]
    assert sorted(outputs) == [("filled\nread 1000 lines\n", "")] + [("read 1000 lines\n", "")] * 5
    assert client.dbsize() == 0


def test_at_most_five_exports_at_a_time(start, server, client):
    def in_use():
        info = client.info("dlock")
        return info["dlock_holders"], info["dlock_waiters"]

    processes = [start("export_slots", url_of(server), f"table-{i}", 600_000) for i in range(5)]
    assert [process.stdout.readline() for process in processes] == \
        [f"exporting table-{i}\n" for i in range(5)]
    late = start("export_slots", url_of(server), "late", 1)
    wait_until(lambda: in_use() == (5, 1), "the sixth in the queue")
    processes[0].kill()
    assert late.communicate(timeout=PATIENCE_S) == ("exporting late\nexported late\n", "")
    assert late.returncode == 0
    wait_until(lambda: in_use() == (4, 0), "a free slot")
    for process in processes:
        process.kill()
    wait_until(lambda: client.dbsize() == 0, "that nothing is left behind")


def read_until(process, wanted):
    """Lines until this one, or one that begins so."""
    line = "-"
    while line and not line.startswith(wanted):
        line = process.stdout.readline()
    assert line.startswith(wanted), process.stderr.read()


def read_both(process, *wanted):
    """Lines until one begins with each of these."""
    missing = set(wanted)
    while missing and (line := process.stdout.readline()):
        missing -= {text for text in missing if line.startswith(text)}
    assert not missing, process.stderr.read()


def test_a_leader_is_elected_and_found_and_replaced(start, server, client):
    anna, bert = start("leader", url_of(server), "anna"), None
    read_both(anna, "I lead", "anna leads")  # told by two threads, in any order
    bert = start("leader", url_of(server), "bert")
    read_until(bert, "anna leads")
    wait_for_waiters(client, 1)
    anna.terminate()
    read_until(anna, "I do not lead any more: ok")
    assert anna.wait(60) == 0
    read_until(bert, "I lead")
    cleo = start("leader", url_of(server), "cleo")
    read_until(cleo, "bert leads")
    wait_for_waiters(client, 1)
    bert.kill()
    read_until(cleo, "I lead")
    client.delete("leader")
    read_until(cleo, "I do not lead any more: the lock was lost")
    read_until(cleo, "I lead")
    cleo.terminate()
    assert cleo.wait(60) == 0


def test_a_rate_limiter_lets_in_so_many_and_the_server_hears_of_no_more(run, server, client):
    begin = time.monotonic()
    code, out, complaints = run("rate_limit", url_of(server), 5, 200)
    seconds = time.monotonic() - begin
    assert (code, complaints) == (0, "")
    found = re.fullmatch("limited: too many acquires per second\n"
                         "granted (\\d+), refused (\\d+)\n", out)
    assert found, out
    granted, refused = map(int, found.groups())
    assert granted + refused == 200
    assert 5 <= granted <= 5 + 5 * seconds, "five at once, and five for every second"
    assert client.info("commandstats")["cmdstat_dlock.acquire"]["calls"] == granted
    assert client.dbsize() == 0


def test_a_rate_limiter_that_allows_enough_refuses_nobody(run, server):
    assert run("rate_limit", url_of(server), 1000, 1000) == (0, "granted 1000, refused 0\n", "")


@pytest.mark.parametrize("threads, rounds, how", [(1, 10, []), (40, 100, []), (8, 500, ["spin"])])
def test_a_store_in_memory_needs_no_server(run, threads, rounds, how):
    total = threads * rounds
    assert run("memory_store", threads, rounds, *how) == (0, f"counted to {total} of {total}\n", "")


def test_a_metrics_handler_tells_answers_from_failures(run, server, client):
    client.execute_command("DLOCK.ACQUIRE", "held", "somebody", "PX", 60_000)
    unreachable = f"redis://127.0.0.1:{free_port()}"
    code, out, complaints = run("call_metrics", url_of(server), unreachable)
    assert (code, complaints) == (0, "")
    shown = dict(line.split() for line in out.splitlines())
    assert shown["acquire_ok"] == "1" and shown["release_ok"] == "1"
    assert shown["acquire_no"] == "1" and shown["acquire_failed"] == "1"
    assert shown["undone"] == "2"
    assert float(shown["acquire_ms"]) > 0


def test_scopes_inside_scopes_share_the_lock_of_their_thread(run, server, client):
    """Two transfers take two locks each, however often they are locked inside."""
    code, out, complaints = run("nested_scopes", url_of(server))
    assert (code, complaints) == (0, "")
    assert out.splitlines()[-1] == "anna has 80, bela has 20"
    assert client.info("commandstats")["cmdstat_dlock.acquire"]["calls"] == 4
    assert client.dbsize() == 0


def test_a_program_in_cpp(run, server):
    code, out, complaints = run("usable_from_cpp", url_of(server))
    assert (code, complaints) == (0, "")
    assert re.fullmatch("fence [1-9]\\d*\nDLOCK_OK\n", out)
    assert server.client().dbsize() == 0


def test_one_machine_writes_the_nightly_report(run, server, client):
    code, out, complaints = run("nightly_report", url_of(server), "monday")
    assert (code, complaints) == (0, "")
    pages = "".join(f"page {i} of monday, fence ([1-9]\\d*)\n" for i in (1, 2, 3))
    found = re.fullmatch(pages, out)
    assert found and len(set(found.groups())) == 1, out
    assert client.dbsize() == 0


def test_another_machine_does_not_write_the_nightly_report(run, server, client):
    client.execute_command("DLOCK.ACQUIRE", "nightly-report:monday", "somebody", "PX", 60_000)
    assert run("nightly_report", url_of(server), "monday") == \
        (1, "another machine writes the report of monday\n", "")


def test_without_a_server_every_program_says_where_it_looked(start, tmp_path):
    """Each waits as long as it would wait for the lock, so all of them wait at a time."""
    address, store = f"127.0.0.1:{free_port()}", tmp_path / "store"
    processes = [start(name, f"redis://{address}", *arguments) for name, *arguments in (
        ["quick_start"], ["flash_sale", 10, 10], ["fenced_file", store, "text"],
        ["rate_limit", 5, 5], ["nested_scopes"], ["usable_from_cpp"], ["nightly_report", "monday"])]
    for code, _, complaints in map(finish, processes):
        assert code == 1
        assert address in complaints
    assert not store.exists()


def test_a_guarded_counter_that_is_let_in_nowhere_says_where_it_looked(run, fake_server):
    """It would wait for a server for a minute."""
    server = fake_server(lambda words: b"-NOAUTH Authentication required.\r\n")
    code, _, complaints = run("guarded_counter", server.url, "visits", 1)
    assert code == 1
    assert f"127.0.0.1:{server.port}" in complaints


@pytest.mark.parametrize("name, kind", BUILT)
def test_a_program_that_is_called_in_a_wrong_way_says_so_by_its_exit_code(run, name, kind):
    assert run(name, kind=kind)[0] == 2


# -- event loops ----------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["poll_loop", "coroutine"])
def test_locks_are_taken_all_at_a_time_in_one_thread(run, server, client, program):
    code, out, complaints = run(program, url_of(server), "red", "green", "blue")
    assert (code, complaints) == (0, "")
    assert sorted(re.findall(r"^(\w+) is ours, with fence \d+$", out, re.M)) == \
        ["blue", "green", "red"]
    assert client.dbsize() == 0


@pytest.mark.parametrize("program", ["poll_loop", "coroutine"])
def test_a_lock_that_is_freed_in_time_is_awaited_beside_others(start, server, client, program):
    client.execute_command("DLOCK.ACQUIRE", "red", "another", "PX", 60_000)
    process = start(program, url_of(server), "red", "green")
    assert process.stdout.readline().startswith("green is ours")
    client.execute_command("DLOCK.RELEASE", "red", "another")
    out, complaints = process.communicate(timeout=PATIENCE_S)
    assert "red is ours" in out and complaints == ""
    assert process.returncode == 0


def test_a_lock_is_kept_in_the_loop_of_another_library(start, server, client):
    """For longer than its lease, by the server's clock."""
    processes = {program: start(program, url_of(server), program, 6000)
                 for program in ("libuv_loop", "libev_loop")}
    for process in processes.values():
        assert process.stdout.readline().startswith("it is ours")
    fences = {program: fence_at(client, program) for program in processes}
    outlive_the_lease(server, 6, holders=len(processes))
    assert {program: fence_at(client, program) for program in processes} == fences
    for code, _, complaints in map(finish, processes.values()):
        assert (code, complaints) == (0, "")
    assert client.dbsize() == 0


def test_an_event_loop_is_told_of_a_server_that_is_not_there(start):
    url = f"redis://127.0.0.1:{free_port()}"
    processes = [start(name, url, "kept", *more) for name, *more in (
        ["poll_loop"], ["coroutine"], ["libuv_loop", 10], ["libev_loop", 10])]
    for code, out, complaints in map(finish, processes):
        assert (code, out) == (1, "")
        assert "Connection refused" in complaints
