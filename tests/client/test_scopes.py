"""Scopes give the lock back on every way out, and are re-entrant. The cases are in scopes.c and
reentry.c."""

import os
import re
import subprocess

import pytest

from support.server import ROOT

BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")
CASES = [(program, case) for program in ("scopes", "reentry") for case in
         re.findall(r'^ *(?:\} cases\[\] = \{)?\{"(\w+)", \w+\}',
                    (ROOT / f"tests/client/{program}.c").read_text(), re.M)]


@pytest.mark.parametrize("program, case", CASES)
def test_the_lock_is_given_back_and_the_body_is_told(server, client, program, case):
    url = f"redis://127.0.0.1:{server.port}"
    done = subprocess.run([BUILD / f"tests/client/{program}", url, case],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "")
    assert client.dbsize() == 0


def test_every_case_is_run():
    assert len(CASES) == len(set(CASES)) == 12 + 20
