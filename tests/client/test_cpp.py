"""dlock.hpp with GCC and Clang, with and without exceptions, one fact of cpp_lock.cpp a test.

Run again under the sanitizers, see scripts/run-tests: then once, with GCC, as the library was.
"""

import os
import re
import signal
import subprocess

import pytest

from support.server import ROOT

pytestmark = pytest.mark.limit(300, "compiles C++ with sanitizers, maybe on a busy machine")
BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")
SOURCE = ROOT / "tests/client/cpp_lock.cpp"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow",
          "-Werror"]
BARE = ["-fno-exceptions", "-fno-rtti"]
KINDS = {"gcc": ["g++", "-std=c++17"], "clang, bare": ["clang++", "-std=c++20", *BARE],
         "gcc, bare": ["g++", "-std=c++20", *BARE], "clang": ["clang++", "-std=c++17"]}
MORE = pytest.mark.long("each takes seconds to compile")
COMPILED = ["gcc"] if BUILD != ROOT / "build" else [
    "gcc", "clang, bare", *(pytest.param(kind, marks=MORE) for kind in ("gcc, bare", "clang"))]
FACTS = re.findall(r"^FACT\((\w+)\)", SOURCE.read_text(), re.M)
THROWS = ["errors_can_be_thrown", "without_memory_functions_fail_and_nothing_ends"]
ENDS = "a_value_that_is_not_there_ends_the_program"


def build(made, kind, source):
    sanitizers = BUILD.name.partition("sanitize-")[2].replace("-", ",")
    flags = [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"] if sanitizers else []
    tls = ["-lssl", "-lcrypto"] if "TLS=yes" in (BUILD / "flags").read_text() else []
    subprocess.run([*KINDS[kind], "-g", *STRICT, *flags, "-pthread", "-o", made,
                    f"-I{ROOT}/client/include", source, BUILD / "libdlock.a", *tls], check=True)


@pytest.fixture(scope="module", params=COMPILED)
def program(request, tmp_path_factory):
    """cpp_lock as this compiler makes it, and whether it has no exceptions."""
    made = tmp_path_factory.mktemp("cpp") / "cpp_lock"
    build(made, request.param, SOURCE)
    return made, "bare" in request.param


def run(program, server, fact):
    url = f"redis://127.0.0.1:{server.port}"
    return subprocess.run([program, url, fact], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120,
                          env={**os.environ, "DLOCK_URL": f"{url}?io_timeout_ms=20000&prefix=e:"})


@pytest.mark.parametrize("fact", [fact for fact in FACTS if fact not in (*THROWS, ENDS)])
def test_dlock_hpp(program, server, fact):
    done = run(program[0], server, fact)
    assert (done.returncode, done.stderr) == (0, "")
    assert server.observer.dbsize() == 0


@pytest.mark.parametrize("fact", THROWS)
def test_where_there_are_exceptions(program, server, fact):
    done = run(program[0], server, fact)
    assert done.returncode == (2 if program[1] else 0), done.stderr


def test_a_value_that_is_not_there_ends_the_program(program, server):
    done = run(program[0], server, ENDS)
    assert done.returncode == -signal.SIGABRT
    assert "URL" in done.stderr


def test_the_program_of_the_page(server, tmp_path):
    page = (ROOT / "client/README.md").read_text()
    source = tmp_path / "program.cpp"
    source.write_text(re.search(r"^```cpp\n(.*?)^```$", page, re.M | re.S)[1])
    build(tmp_path / "program", "gcc", source)
    done = subprocess.run([tmp_path / "program", f"redis://127.0.0.1:{server.port}"], text=True,
                          stdout=subprocess.PIPE, check=True)
    assert re.fullmatch(r"held, with fence [1-9]\d*\n", done.stdout)
