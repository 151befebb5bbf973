"""The models of the protocol, checked by spin; the long runs are left to "make model"."""

import subprocess
import sys

import check
import pytest


@pytest.mark.limit(600, "spin checks all models and their mutants, one after the other")
def test_every_model_holds_and_every_mutant_is_caught():
    done = subprocess.run([sys.executable, check.__file__, "--quick"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("caught") == len(check.MUTANTS)


def test_a_mutant_without_its_mistake_is_not_caught():
    line, is_good = check.check("failover", "-DCASE=1", False, "NO_SUCH_MISTAKE", check.FENCE)
    assert not is_good
    assert line.startswith("NOT CAUGHT")


def test_a_model_with_a_mistake_fails():
    line, is_good = check.check("failover", "-DCASE=3 -DFENCE_WITHOUT_CLOCK", False)
    assert not is_good
    assert line.startswith("FAILS")
