"""The Makefile builds again what has to be built again, and scripts/run-tests explains itself."""

import os
import subprocess

from support.server import ROOT


def build(folder, *words):
    """Lines of the commands that build one object of the module."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "SANITIZE", "TLS", "CFLAGS")}
    done = subprocess.run(["make", f"OUT={folder}", *words, f"{folder}/module/args.o"], cwd=ROOT,
                          env=env, check=True, text=True, stdout=subprocess.PIPE)
    return [line for line in done.stdout.splitlines() if " -c -o " in line]


def test_an_object_is_built_again_only_when_a_flag_has_changed(tmp_path):
    quoted = """CFLAGS=-O1 -DTEXT='"it is $$5"'"""
    assert len(build(tmp_path, "CFLAGS=-O0")) == 1
    assert build(tmp_path, "CFLAGS=-O0") == []
    assert len(build(tmp_path, quoted)) == 1
    assert build(tmp_path, quoted) == []
    assert len(build(tmp_path, quoted, "CPPFLAGS=-DNDEBUG")) == 1
    assert len(build(tmp_path, quoted)) == 1


def test_run_tests_explains_itself():
    done = subprocess.run([ROOT / "scripts/run-tests", "--help"], check=True, text=True,
                          stdout=subprocess.PIPE, timeout=30)
    assert done.stdout.startswith("usage: scripts/run-tests ")
    for word in "--help", "DLOCK_TEST_JOBS", "pytest", "tests/pytest.ini":
        assert word in done.stdout


def test_run_tests_names_what_it_does_not_know():
    done = subprocess.run([ROOT / "scripts/run-tests", "--part", "no such part"], text=True,
                          stderr=subprocess.PIPE, timeout=30)
    assert done.returncode == 2 and "no such part" in done.stderr
