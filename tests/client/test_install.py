"""What "make install" puts there, and how pkg-config, CMake and compilers find it, in a folder with
a blank in its name. The examples are in test_examples.py."""

import os
import platform
import re
import shutil
import subprocess

import pytest

from support.installed import STRICT, make, output, pkg_config
from support.program import run_python
from support.server import ROOT

EXAMPLES = ROOT / "client/examples"
CMAKE_PROJECT = ROOT / "tests/client/cmake"
RUNS_CMAKE = pytest.mark.long("CMake takes seconds to look at the machine")


def files_in(folder):
    """Files and links, by their path in the folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir()}


def version():
    return re.search(r"^VERSION := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1]


def client_files():
    return {f"lib/libdlock.so.{version()}", "lib/libdlock.so.1", "lib/libdlock.so",
            "lib/libdlock.a", "lib/pkgconfig/dlock.pc", "lib/cmake/dlock/dlockConfig.cmake",
            "lib/cmake/dlock/dlockConfigVersion.cmake", "include/dlock.h", "include/dlock_spi.h",
            "include/dlock.hpp", "include/dlock_types.hpp", "share/man/man3/dlock.3",
            *(f"share/man/man3/{name.split('@')[0]}.3" for name in listed_symbols())}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("an installation")
    make("install", f"PREFIX={folder}")
    return folder


# -- the files -----------------------------------------------------------------------------------


def test_everything_is_where_it_is_looked_for(prefix):
    assert client_files() <= files_in(prefix)
    library = prefix / "lib/libdlock.so"
    assert os.readlink(library) == "libdlock.so.1"
    assert os.readlink(f"{library}.1") == f"libdlock.so.{version()}"
    assert "soname: [libdlock.so.1]" in output("readelf", "-d", library)


def test_uninstall_removes_what_was_installed_and_nothing_else(tmp_path):
    others = {"lib/libother.so", "lib/pkgconfig/other.pc", "include/other.h", "share/doc/other"}
    for path in others:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    make("install", f"PREFIX={tmp_path}")
    assert files_in(tmp_path) > others | client_files()
    make("uninstall", f"PREFIX={tmp_path}")
    assert files_in(tmp_path) == others


def test_the_client_compiles_with_another_c_library(tmp_path):
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-tools is not installed")
    kernel = {"linux": "/usr/include/linux", "asm-generic": "/usr/include/asm-generic",
              "asm": f"/usr/include/{platform.machine()}-linux-gnu/asm"}
    for name, folder in kernel.items():
        (tmp_path / name).symlink_to(folder)
    sources = [source for source in sorted((ROOT / "client/src").glob("*/*.c"))
               if source.name != "tls.c"]  # OpenSSL is built for the other library
    subprocess.run(["musl-gcc", "-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror",
                    '-DDLOCK_VERSION="1"', "-DDLOCK_VERSION_NUMBER=1", "-fsyntax-only",
                    f"-I{ROOT}/client/include", f"-I{ROOT}/client/src", "-idirafter", tmp_path,
                    *sources], check=True)


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
    make("install-client", f"DESTDIR={folder}/stage", "PREFIX=/opt/dlock",
         "libdir=/opt/dlock/lib/some-machine", "includedir=/opt/dlock/include/here")
    (folder / "stage/opt/dlock").rename(folder / "moved")
    code, said = cmake(folder / "build", f"{folder}/moved/lib/some-machine/cmake",
                       "-DCOMPONENTS=static")
    assert code == 0, said
    return folder / "build"


@RUNS_CMAKE
@pytest.mark.parametrize("kind", ["dlock", "static"])
def test_a_project_of_cmake_finds_the_library_where_it_is(cmake_built, server, kind):
    program, url = cmake_built / f"quick_start_{kind}", f"redis://127.0.0.1:{server.port}"
    assert ("[libdlock.so.1]" in output("readelf", "-d", program)) == (kind == "dlock")
    assert "it is given back" in output(program, url)
    assert "page 3 of today" in output(cmake_built / f"nightly_report_{kind}", url,
                                       "today")


@RUNS_CMAKE
@pytest.mark.parametrize("wanted, is_found", [("1.0", True), ("1", True), (None, True),
                                              ("0.1", False), ("1.99", False), ("2.0", False)])
def test_cmake_gets_the_version_that_it_asked_for(prefix, tmp_path, wanted, is_found):
    wanted = version() if wanted is None else wanted
    code, said = cmake(tmp_path / "build", prefix, f"-DWANTED_VERSION={wanted}", "-DCOMPONENTS=")
    assert (code == 0) == is_found, said
    assert is_found or f"version: {version()}" in said


@RUNS_CMAKE
def test_a_component_that_there_is_not_is_refused(prefix, tmp_path):
    code, said = cmake(tmp_path / "build", prefix, "-DCOMPONENTS=other")
    assert code != 0
    assert "dlock has no component other" in said


@RUNS_CMAKE
def test_cmake_finds_a_static_library_without_tls_without_openssl(prefix_without_tls, tmp_path):
    code, said = cmake(tmp_path / "build", prefix_without_tls, "-DCOMPONENTS=static",
                       "-DCMAKE_DISABLE_FIND_PACKAGE_OpenSSL=TRUE")
    assert code == 0, said


# -- without TLS ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prefix_without_tls(tmp_path_factory):
    """Built with -flto, too, as some distributions do."""
    folder = tmp_path_factory.mktemp("without")
    make("install-client", "-j2", "TLS=no", "CFLAGS=-O0 -flto", f"OUT={folder}/build",
         f"PREFIX={folder}/all")
    return folder / "all"


def test_a_library_without_tls_does_not_need_openssl(prefix_without_tls):
    assert files_in(prefix_without_tls) == client_files()
    for name in "libssl", "libcrypto":
        assert name not in output("readelf", "-d", prefix_without_tls / "lib/libdlock.so")
    static = pkg_config(prefix_without_tls, "--static", "--libs", "dlock")
    assert "-ldlock" in static and "-lssl" not in static


def test_a_library_without_tls_says_so_and_does_all_else(prefix_without_tls, server):
    env = {"DLOCK_LIBRARY": str(prefix_without_tls / "lib/libdlock.so")}
    assert run_python("""
import sys
from support.libdlock import Client
print(Client(sys.argv[1]).lock().acquire().name)
try:
    Client("rediss://127.0.0.1")
except ValueError as error:
    print(error.args[0].name, error.args[1])
""", f"redis://127.0.0.1:{server.port}", env=env) == \
        "OK\nINVALID this library was built without TLS (make TLS=yes needs libssl-dev)\n"


# -- the symbols and the header --------------------------------------------------------------------


def symbols(library, *how):
    """What a program can link to, without the names of the version nodes themselves."""
    listed = output("gcc-nm", *how, "--defined-only", library)
    lines = [line.split() for line in listed.splitlines()]
    return sorted(words[2] for words in lines if len(words) == 3 and words[1] != "A")


def listed_symbols():
    """name@@NODE, of client/libdlock.map."""
    text = (ROOT / "client/libdlock.map").read_text()
    nodes = re.findall(r"^(DLOCK_[\d.]+) \{(.*?)^\}", text, re.M | re.S)
    return sorted(f"{name}@@{node}" for node, body in nodes
                  for name in re.findall(r"(dlock_\w+);", body))


def test_the_shared_library_has_the_listed_symbols_with_their_versions(prefix):
    """A function that is new has to be in client/libdlock.map; one that was released stays."""
    assert symbols(prefix / "lib/libdlock.so", "-D") == listed_symbols()


def test_only_what_the_header_declares_can_be_seen(prefix, prefix_without_tls):
    headers = "".join(path.read_text() for path in (prefix / "include").glob("*.h"))
    declared = sorted(re.findall(r"^DLOCK_API [^;]*?(dlock_\w+)\(", headers, re.M))
    assert len(declared) > 15
    assert [name.split("@")[0] for name in listed_symbols()] == declared
    assert symbols(prefix / "lib/libdlock.a", "-g") == declared
    assert symbols(prefix_without_tls / "lib/libdlock.a", "-g") == declared  # with -flto


@pytest.mark.parametrize("compiler", ["cc -std=c99 -x c", "cc -std=c11 -x c",
                                      "c++ -std=c++11 -x c++", "c++ -std=c++20 -x c++"])
@pytest.mark.parametrize("header", ["dlock.h", "dlock_spi.h"])
def test_a_header_needs_nothing_before_it(prefix, compiler, header):
    """dlock.hpp is the first that cpp_lock.cpp includes, see test_cpp.py."""
    subprocess.run([*compiler.split(), "-pedantic", *STRICT, "-fsyntax-only", "-I",
                    prefix / "include", "-"], input=f"#include <{header}>\n".encode(), check=True)
