"""What is installed with the tool says what the tool does."""

import os
import re
import shutil
import subprocess

import pytest

from support.server import ROOT
from support.tool import TOOL

COMMANDS = ["run", "acquire", "extend", "release", "wait", "info", "list", "top", "bench"]
FILES = {"bin/dlock", "share/man/man1/dlock.1", "share/bash-completion/completions/dlock"}
MANUAL = (ROOT / "client/cli/dlock.1").read_text()


def make(*words):
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "SANITIZE", "PREFIX", "DESTDIR")}
    subprocess.run(["make", "-s", *words], cwd=ROOT, env=env, check=True)


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a prefix")
    make("install-cli", f"PREFIX={folder}")
    return folder


def test_install_and_uninstall(prefix, tmp_path):
    assert files_in(prefix) == FILES
    version = subprocess.run([prefix / "bin/dlock", "--version"], stdout=subprocess.PIPE, text=True)
    number = version.stdout.split()[1]
    assert f'"dlock {number}"' in (prefix / "share/man/man1/dlock.1").read_text()
    make("install-cli", f"PREFIX={tmp_path}")
    make("uninstall", f"PREFIX={tmp_path}")
    assert files_in(tmp_path) == set()


def test_every_exit_code_is_in_the_manual():
    codes = re.findall(r"EXIT_CODE_\w+ = (\d+)", (ROOT / "client/cli/exit_code.h").read_text())
    assert len(codes) > 10
    for code in codes:
        assert re.search(rf"\b{code}\b", MANUAL), code


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_the_manual_can_be_read(prefix):
    page = prefix / "share/man/man1/dlock.1"
    done = subprocess.run(["groff", "-man", "-Tutf8", "-P-cbou", "-ww", page], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and "THE COMMAND AND ITS LOCK" in done.stdout
    assert done.stderr == ""


def complete(prefix, *words):
    """What <tab> offers behind these words."""
    script = f"""
        PATH={TOOL.parent}:$PATH
        source '{prefix}/share/bash-completion/completions/dlock'
        COMP_WORDS=({' '.join(repr(word) for word in words)})
        COMP_CWORD={len(words) - 1}
        _dlock
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", script], stdout=subprocess.PIPE, text=True,
                          check=True)
    return set(done.stdout.split())


def test_completion(prefix):
    assert set(COMMANDS) <= complete(prefix, "dlock", "")
    assert complete(prefix, "dlock", "re") == {"release"}
    assert {"--wait", "--lease", "--session"} <= complete(prefix, "dlock", "run", "--")
    assert complete(prefix, "dlock", "list", "--wa") == {"--waiters"}
    assert complete(prefix, "dlock", "top", "--sort", "a") == {"age"}
    assert "true" in complete(prefix, "dlock", "run", "lock", "--", "tru")
