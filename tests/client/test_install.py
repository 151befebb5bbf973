"""What "make install" puts there is all that a program in C or C++ needs.

Everything is built with what pkg-config says, from a folder with a blank in its name.
"""

import os
import re
import shlex
import subprocess
import sys
import time

import pytest

from support.server import ROOT, free_port, wait_until

EXAMPLES = ROOT / "client/examples"
CMAKE_PROJECT = ROOT / "tests/client/cmake"
CPP = {"usable_from_cpp": ("-std=c++11", ROOT / "tests/client/usable_from_cpp.cpp"),
       "nightly_report": ("-std=c++17", EXAMPLES / "nightly_report.cpp"),
       "coroutine": ("-std=c++20", EXAMPLES / "coroutine.cpp")}
FENCED = ["fenced_file", "fenced_sqlite", "fenced_redis"]
PROGRAMS = ["quick_start", "flash_sale", *FENCED, "guarded_counter", "shared_cache", "export_slots",
            "rate_limit", "call_metrics", "memory_store", "nested_scopes", "leader", "poll_loop",
            "libuv_loop", "libev_loop", *CPP]
NEEDS = {"flash_sale": "hiredis", "fenced_redis": "hiredis", "fenced_sqlite": "sqlite3",
         "libuv_loop": "libuv"}
NEEDS_FLAGS = {"libev_loop": ["-lev", "-lm"]}  # has no file for pkg-config
KINDS = ["shared", "static"]
STRICT = ["-Wall", "-Wextra", "-Werror"]


def make(*words):
    """What called us must not decide what is made, or where."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "SANITIZE", "TLS", "PREFIX",
                           "DESTDIR")}
    return subprocess.run(["make", "-s", *words], cwd=ROOT, env=env, check=True)


def output(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, text=True,
                          stdout=subprocess.PIPE, **more).stdout


def files_in(folder):
    """Files and links, by their path in the folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir()}


def version():
    return re.search(r"^VERSION := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1]


def client_files():
    return {f"lib/libdlock.so.{version()}", "lib/libdlock.so.0", "lib/libdlock.so",
            "lib/libdlock.a", "lib/pkgconfig/dlock.pc", "lib/cmake/dlock/dlockConfig.cmake",
            "lib/cmake/dlock/dlockConfigVersion.cmake", "include/dlock.h", "include/dlock_spi.h",
            "include/dlock.hpp", "include/dlock_types.hpp"}


def pkg_config(prefix, *words):
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    return shlex.split(output("pkg-config", *words, env=env))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("an installation")
    make("install", f"PREFIX={folder}")
    return folder


def build(prefix, folder, name, kind):
    """Users need no option of ours, and libraries of others only for what they do themselves."""
    packages = ["dlock", NEEDS[name]] if name in NEEDS else ["dlock"]
    static = ["--static"] if kind == "static" else []
    packages = [f"{each}-static" if static and each == "libuv" else each for each in packages]
    flags = pkg_config(prefix, *static, "--cflags", "--libs", *packages)
    if name in CPP:
        standard, source = CPP[name]
        compiler, sources = ["c++", standard], [source]
    else:
        common = [EXAMPLES / "fenced_writer.c"] if name in FENCED else []
        compiler, sources = ["cc"], [*common, EXAMPLES / f"{name}.c"]
    # What the static libc says about getaddrinfo() is no concern of ours.
    subprocess.run([*compiler, *STRICT, *(["-static"] if static else []), "-o", folder / name,
                    *sources, *flags, *NEEDS_FLAGS.get(name, [])], check=True,
                   stderr=subprocess.DEVNULL if static else None)


@pytest.fixture(scope="module")
def built(prefix, tmp_path_factory):
    """built[kind]: where the programs are that are linked this way."""
    folders = {}
    for kind in KINDS:
        folders[kind] = tmp_path_factory.mktemp(f"{kind} programs")
        for name in PROGRAMS:
            build(prefix, folders[kind], name, kind)
    return folders


@pytest.fixture(params=KINDS)
def start(request, prefix, built):
    """start(program, argument...) runs an example, linked in both ways."""
    started = []

    def start_one(name, *arguments):
        env = {**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}
        started.append(subprocess.Popen(
            [built[request.param] / name, *map(str, arguments)], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    """run(program, argument...): exit code, output and complaints. The examples wait as long for an
    answer as the library does by default, and a slow machine is slower than that now and then: they
    say so, and are run again, after prepare()."""

    def run_one(name, *arguments, prepare=lambda: None):
        for _ in range(10):
            prepare()
            process = start(name, *arguments)
            out, complaints = process.communicate(timeout=120)
            if "no reply in time" not in complaints and "no connection in time" not in complaints:
                break
        return process.returncode, out, complaints

    return run_one


def url_of(server):
    return f"redis://127.0.0.1:{server.port}"


# -- the files -----------------------------------------------------------------------------------


def test_everything_is_where_it_is_looked_for(prefix):
    assert client_files() <= files_in(prefix)
    library = prefix / "lib/libdlock.so"
    assert os.readlink(library) == "libdlock.so.0"
    assert os.readlink(f"{library}.0") == f"libdlock.so.{version()}"
    assert "soname: [libdlock.so.0]" in output("readelf", "-d", library)


def test_uninstall_removes_what_was_installed_and_nothing_else(tmp_path):
    others = {"lib/libother.so", "lib/pkgconfig/other.pc", "include/other.h", "share/doc/other"}
    for path in others:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    make("install", f"PREFIX={tmp_path}")
    assert files_in(tmp_path) > others | client_files()
    make("uninstall", f"PREFIX={tmp_path}")
    assert files_in(tmp_path) == others


def test_the_client_alone_can_be_installed(tmp_path):
    make("install-client", f"PREFIX={tmp_path}")
    assert files_in(tmp_path) == client_files()


def test_a_package_is_staged_without_a_trace_of_where(tmp_path):
    stage = tmp_path / "a stage"
    make("install-client", f"DESTDIR={stage}", "PREFIX=/opt/my own")
    assert files_in(stage / "opt/my own") == client_files() == \
        {name.removeprefix("opt/my own/") for name in files_in(stage)}
    description = (stage / "opt/my own/lib/pkgconfig/dlock.pc").read_text()
    assert "prefix=/opt/my own\n" in description
    assert str(tmp_path) not in description
    make("uninstall", f"DESTDIR={stage}", "PREFIX=/opt/my own")
    assert files_in(stage) == set()


def test_a_prefix_that_depends_on_the_working_directory_is_refused():
    with pytest.raises(subprocess.CalledProcessError):
        make("install-client", "PREFIX=here")
    assert not (ROOT / "here").exists()


def test_an_installation_that_was_moved_is_found_where_it_is(tmp_path):
    make("install-client", f"PREFIX={tmp_path}/before")
    (tmp_path / "before").rename(tmp_path / "after")
    flags = pkg_config(tmp_path / "after", "--define-prefix", "--cflags", "--libs", "dlock")
    assert f"-I{tmp_path}/after/include" in flags
    assert f"-L{tmp_path}/after/lib" in flags


def test_what_it_needs_is_named_only_to_those_who_link_statically(prefix):
    needed = ["-lssl", "-lcrypto"]
    assert not set(needed) & set(pkg_config(prefix, "--libs", "dlock"))
    static = pkg_config(prefix, "--static", "--libs", "dlock")
    assert all(static.index("-ldlock") < static.index(library) for library in needed)
    assert "-pthread" in static


def test_the_versions_agree(prefix):
    assert pkg_config(prefix, "--modversion", "dlock") == [version()]


# -- CMake -----------------------------------------------------------------------------------------


def cmake(folder, found_at, *settings):
    """Configures and builds the project in the folder; the result is what CMake says."""
    done = subprocess.run(
        ["cmake", "-S", CMAKE_PROJECT, "-B", folder, f"-DCMAKE_PREFIX_PATH={found_at}",
         f"-DEXAMPLES={EXAMPLES}", *settings], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True)
    if done.returncode == 0:
        done = subprocess.run(["cmake", "--build", folder], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def cmake_built(tmp_path_factory):
    """Built with an installation that was moved after it was made, in a folder of two levels."""
    folder = tmp_path_factory.mktemp("for CMake")
    make("install-client", f"DESTDIR={folder}/stage", "PREFIX=/opt/dlock", "LIB=lib/some-machine")
    (folder / "stage/opt/dlock").rename(folder / "moved")
    code, said = cmake(folder / "build", f"{folder}/moved/lib/some-machine/cmake",
                       "-DCOMPONENTS=static")
    assert code == 0, said
    return folder / "build"


@pytest.mark.parametrize("kind", ["dlock", "static"])
def test_a_project_of_cmake_finds_the_library_where_it_is(cmake_built, server, kind):
    program = cmake_built / f"quick_start_{kind}"
    assert ("[libdlock.so.0]" in output("readelf", "-d", program)) == (kind == "dlock")
    assert "it is given back" in output(program, url_of(server))
    assert "page 3 of today" in output(cmake_built / f"nightly_report_{kind}", url_of(server),
                                       "today")


@pytest.mark.parametrize("wanted, is_found", [("0.1", True), (None, True), ("0.0.9", False),
                                              ("0.99", False), ("1.0", False)])
def test_cmake_gets_the_version_that_it_asked_for(prefix, tmp_path, wanted, is_found):
    wanted = version() if wanted is None else wanted
    code, said = cmake(tmp_path / "build", prefix, f"-DWANTED_VERSION={wanted}", "-DCOMPONENTS=")
    assert (code == 0) == is_found, said
    assert is_found or f"version: {version()}" in said


def test_a_component_that_there_is_not_is_refused(prefix, tmp_path):
    code, said = cmake(tmp_path / "build", prefix, "-DCOMPONENTS=other")
    assert code != 0
    assert "dlock has no component other" in said


def test_cmake_finds_a_static_library_without_tls_without_openssl(prefix_without_tls, tmp_path):
    code, said = cmake(tmp_path / "build", prefix_without_tls, "-DCOMPONENTS=static",
                       "-DCMAKE_DISABLE_FIND_PACKAGE_OpenSSL=TRUE")
    assert code == 0, said


# -- without TLS ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prefix_without_tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("without")
    make("install-client", "TLS=no", "CFLAGS=-O0", f"OUT={folder}/build", f"PREFIX={folder}/all")
    return folder / "all"


def test_a_library_without_tls_does_not_need_openssl(prefix_without_tls):
    assert files_in(prefix_without_tls) == client_files()
    for name in "libssl", "libcrypto":
        assert name not in output("readelf", "-d", prefix_without_tls / "lib/libdlock.so")
    static = pkg_config(prefix_without_tls, "--static", "--libs", "dlock")
    assert "-ldlock" in static and "-lssl" not in static


def test_a_library_without_tls_says_so_and_does_all_else(prefix_without_tls, server):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests"),
           "DLOCK_LIBRARY": str(prefix_without_tls / "lib/libdlock.so")}
    assert output(sys.executable, "-c", """
import sys
from support.libdlock import Client
print(Client(sys.argv[1]).lock().acquire().name)
try:
    Client("rediss://127.0.0.1")
except ValueError as error:
    print(error.args[0].name, error.args[1])
""", url_of(server), env=env) == \
        "OK\nINVALID this library was built without TLS (make TLS=yes needs libssl-dev)\n"


# -- the symbols and the header --------------------------------------------------------------------


@pytest.mark.parametrize("how", [["-D", "libdlock.so"], ["-g", "libdlock.a"]])
def test_only_what_the_header_declares_can_be_seen(prefix, how):
    headers = "".join(path.read_text() for path in (prefix / "include").glob("*.h"))
    declared = re.findall(r"^DLOCK_API [^;]*?(dlock_\w+)\(", headers, re.M)
    assert len(declared) > 15
    lines = output("nm", how[0], "--defined-only", prefix / "lib" / how[1]).splitlines()
    seen = [line.split()[-1] for line in lines if len(line.split()) == 3]
    assert sorted(seen) == sorted(declared)


@pytest.mark.parametrize("compiler", ["cc -std=c99 -x c", "cc -std=c11 -x c",
                                      "c++ -std=c++11 -x c++", "c++ -std=c++20 -x c++"])
@pytest.mark.parametrize("header", ["dlock.h", "dlock_spi.h"])
def test_a_header_needs_nothing_before_it(prefix, compiler, header):
    include_alone(prefix, compiler, header)


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("header", ["dlock.hpp", "dlock_types.hpp"])
def test_a_header_of_cpp_needs_nothing_before_it(prefix, compiler, standard, header):
    include_alone(prefix, f"{compiler} -std={standard} -x c++", header)


def include_alone(prefix, compiler, header):
    subprocess.run([*compiler.split(), "-pedantic", *STRICT, "-fsyntax-only", "-I",
                    prefix / "include", "-"], input=f"#include <{header}>\n".encode(), check=True)


# -- the programs --------------------------------------------------------------------------------


def test_the_programs_are_linked_as_they_should_be(built):
    for name in PROGRAMS:
        assert "[libdlock.so.0]" in output("readelf", "-d", built["shared"] / name)
        assert "NEEDED" not in output("readelf", "-d", built["static"] / name)


def test_quick_start(run, server):
    code, out, complaints = run("quick_start", url_of(server))
    assert (code, complaints) == (0, "")
    found = re.fullmatch("it is ours, with fence (\\d+)\nit stays ours for (\\d+) ms\n"
                         "it is given back\n", out)
    assert found, out
    assert int(found[1]) > 0
    assert 5000 < int(found[2]) < 10_000
    assert server.client().dbsize() == 0


def test_quick_start_over_tls(run, tls_server, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca)
    code, _, complaints = run("quick_start", tls_server.url)
    assert (code, complaints) == (0, "")


def test_quick_start_on_a_lock_that_is_held(run, server, client):
    client.execute_command("DLOCK.ACQUIRE", "quick-start", "somebody", "PX", 60_000)
    code, out, complaints = run("quick_start", url_of(server))
    assert (code, out) == (1, "")
    assert "the answer is no" in complaints
    assert "DLOCK_TIMEOUT" in complaints


def test_quick_start_in_plain_redis(run, start_server):
    server = start_server(module=None)
    code, out, complaints = run("quick_start", url_of(server) + "?module=none")
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


def test_guarded_counters_count_right(start, server, client):
    processes = [start("guarded_counter", url_of(server), "visits", 30) for _ in range(4)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert all(re.fullmatch("counted 30, refused \\d+\n", out) for out, _ in outputs), outputs
    assert client.hget("{visits}count", "value") == b"120"


def test_a_guarded_counter_that_lost_the_lock_counts_again(start, server, client):
    slow = start("guarded_counter", url_of(server), "visits", 1, 1000)
    assert slow.stdout.readline() == "holding\n"
    client.delete("{visits}lock")
    quick = start("guarded_counter", url_of(server), "visits", 3)
    assert quick.communicate(timeout=120)[0] == "counted 3, refused 0\n"
    assert slow.communicate(timeout=120)[0] == "holding\ncounted 1, refused 1\n"
    assert client.hget("{visits}count", "value") == b"4"


def test_a_cache_is_filled_once_and_read_by_all(start, server, client, tmp_path):
    cache = tmp_path / "prices"
    client.execute_command("DLOCK.ACQUIRE", "cache:prices", "somebody", "PX", 600_000)
    processes = [start("shared_cache", url_of(server), cache) for _ in range(6)]
    wait_until(lambda: client.info("dlock")["dlock_waiters"] == 6, "all of them in the queue")
    client.execute_command("DLOCK.RELEASE", "cache:prices", "somebody")
    outputs = [process.communicate(timeout=120) for process in processes]
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
    assert late.communicate(timeout=120) == ("exporting late\nexported late\n", "")
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
    wait_until(lambda: client.info("dlock")["dlock_waiters"] == 1, "bert in the queue")
    anna.terminate()
    read_until(anna, "I do not lead any more: ok")
    assert anna.wait(60) == 0
    read_until(bert, "I lead")
    cleo = start("leader", url_of(server), "cleo")
    read_until(cleo, "bert leads")
    wait_until(lambda: client.info("dlock")["dlock_waiters"] == 1, "cleo in the queue")
    bert.kill()
    read_until(cleo, "I lead")
    client.delete("leader")
    read_until(cleo, "I do not lead any more: the lock was lost")
    read_until(cleo, "I lead")
    cleo.terminate()
    assert cleo.wait(60) == 0


def test_a_rate_limiter_lets_in_so_many_and_the_server_hears_of_no_more(run, server, client):
    code, out, complaints = run("rate_limit", url_of(server), 5, 200,
                                prepare=client.config_resetstat)
    assert (code, complaints) == (0, "")
    found = re.fullmatch("limited: too many acquires per second\n"
                         "granted (\\d+), refused (\\d+)\n", out)
    assert found, out
    granted, refused = map(int, found.groups())
    assert granted + refused == 200
    assert 5 <= granted < 50  # five at once, and five for every second that it took
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
    code, out, complaints = run("nested_scopes", url_of(server), prepare=client.config_resetstat)
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


@pytest.mark.parametrize("name, arguments", [
    ("quick_start", []), ("flash_sale", [10, 10]), ("fenced_file", ["store", "text"]),
    ("guarded_counter", ["visits", 1]), ("rate_limit", [5, 5]), ("nested_scopes", []),
    ("usable_from_cpp", []), ("nightly_report", ["monday"])])
def test_without_a_server_every_program_says_where_it_looked(run, tmp_path, name, arguments):
    address = f"127.0.0.1:{free_port()}"
    arguments = [tmp_path / word if word == "store" else word for word in arguments]
    code, _, complaints = run(name, f"redis://{address}", *arguments)
    assert code == 1
    assert address in complaints
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_called_in_a_wrong_way_says_so_by_its_exit_code(run, name):
    assert run(name)[0] == 2


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
    out, complaints = process.communicate(timeout=60)
    assert "red is ours" in out and complaints == ""
    assert process.returncode == 0


@pytest.mark.parametrize("program", ["libuv_loop", "libev_loop"])
def test_a_lock_is_kept_in_the_loop_of_another_library(start, server, client, program):
    """For longer than its lease."""
    process = start(program, url_of(server), "kept", 2500)
    assert process.stdout.readline().startswith("it is ours")
    begin = time.monotonic()
    while process.poll() is None and time.monotonic() < begin + 2:
        assert client.exists("kept")
        time.sleep(0.05)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0
    assert not client.exists("kept")


@pytest.mark.parametrize("program", ["poll_loop", "coroutine", "libuv_loop", "libev_loop"])
def test_an_event_loop_is_told_of_a_server_that_is_not_there(run, program):
    arguments = ["kept", 10] if program.startswith("lib") else ["kept"]
    code, out, complaints = run(program, f"redis://127.0.0.1:{free_port()}", *arguments)
    assert (code, out) == (1, "")
    assert "Connection refused" in complaints
