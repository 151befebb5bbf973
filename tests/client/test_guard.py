"""The guard and the scope give the lock back on every way out. The cases are in guard.c."""

import os
import re
import subprocess

import pytest

from support.server import ROOT

BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")
CASES = re.findall(r'^ *(?:\} cases\[\] = \{)?\{"(\w+)", \w+\}',
                   (ROOT / "tests/client/guard.c").read_text(), re.M)


@pytest.mark.parametrize("case", CASES)
def test_the_lock_is_given_back_and_the_body_is_told(server, client, case):
    done = subprocess.run([BUILD / "tests/client/guard", f"redis://127.0.0.1:{server.port}", case],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    assert client.dbsize() == 0


def test_every_case_is_run():
    assert len(CASES) == len(set(CASES)) == 12
