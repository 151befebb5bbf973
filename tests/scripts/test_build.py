"""The Makefile builds what it should and says what is missing; run-tests explains itself."""

import os
import shutil
import subprocess

from support.server import ROOT


def make(*words, folder=ROOT, **more):
    """What called us must not decide what is made. The result is the exit code and the output."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "SANITIZE", "TLS", "CFLAGS",
                           "WERROR")}
    done = subprocess.run(["make", *words], cwd=folder, env={**env, **more}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def build(folder, *words):
    """Lines of the commands that build one object of the module."""
    code, said = make(f"OUT={folder}", *words, f"{folder}/module/args.o")
    assert code == 0, said
    return [line for line in said.splitlines() if " -c -o " in line]


def test_an_object_is_built_again_only_when_a_flag_has_changed(tmp_path):
    quoted = """CFLAGS=-O1 -DTEXT='"it is $$5"'"""
    assert len(build(tmp_path, "CFLAGS=-O0")) == 1
    assert build(tmp_path, "CFLAGS=-O0") == []
    assert len(build(tmp_path, quoted)) == 1
    assert build(tmp_path, quoted) == []
    assert len(build(tmp_path, quoted, "CPPFLAGS=-DNDEBUG")) == 1
    assert len(build(tmp_path, quoted)) == 1


def test_a_header_that_is_not_there_is_named(tmp_path):
    for header in tmp_path / "redismodule.h", ROOT / "Makefile":
        code, said = make("module", f"REDISMODULE_H={header}")
        assert code != 0
        assert f"REDISMODULE_H={header}" in said


def test_warnings_are_errors_only_if_that_is_asked_for(tmp_path):
    assert "-Werror" in build(tmp_path / "1", "WERROR=1")[0]
    assert "-Werror" not in build(tmp_path / "2", "CI=true")[0]


def test_a_build_without_openssl_says_so_unless_it_was_asked_for(tmp_path):
    (tmp_path / "openssl").mkdir()
    (tmp_path / "openssl/ssl.h").write_text("#error it is missing\n")
    missing = f"CPPFLAGS=-I{tmp_path}"
    code, said = make("openssl", missing)
    assert code == 0 and "without TLS" in said and "libssl-dev" in said
    assert "without TLS" not in make("openssl", missing, "TLS=no")[1]
    assert make("openssl", missing, "TLS=yes")[0] != 0


def test_clean_keeps_what_was_fetched_and_distclean_does_not(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in "include", "servers", "client":
        (tmp_path / "build" / name).mkdir(parents=True)
    make("clean", folder=tmp_path)
    assert sorted(path.name for path in (tmp_path / "build").iterdir()) == ["include", "servers"]
    make("distclean", folder=tmp_path)
    assert not (tmp_path / "build").exists()


def test_missing_packages_are_installed_by_a_command_that_is_shown(tmp_path):
    scripts = {"redis-server": "exit 1", "sudo": 'exec "$@"',
               "apt-get": f'echo "$@" >>{tmp_path}/done'}
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "REDIS_SERVER": ""}
    done = subprocess.run([ROOT / "scripts/bootstrap", "run"], env=env, text=True, check=True,
                          stderr=subprocess.PIPE)
    update, install = (tmp_path / "done").read_text().splitlines()
    assert "redis-tools" in install
    assert f"apt-get {update}\n" in done.stderr and f"apt-get {install}\n" in done.stderr


def test_nothing_is_installed_twice(tmp_path):
    """These tests run after the same command: the second time must need no network."""
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "apt-get").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([ROOT / "scripts/bootstrap", "test"], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert (done.returncode, done.stdout) == (0, "")


def test_run_tests_explains_itself():
    done = subprocess.run([ROOT / "scripts/run-tests", "--help"], check=True, text=True,
                          stdout=subprocess.PIPE, timeout=300)
    assert done.stdout.startswith("usage: scripts/run-tests ")
    for word in "--help", "DLOCK_TEST_JOBS", "pytest", "tests/pytest.ini":
        assert word in done.stdout


def test_run_tests_names_what_it_does_not_know():
    done = subprocess.run([ROOT / "scripts/run-tests", "--part", "no such part"], text=True,
                          stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 2 and "no such part" in done.stderr
