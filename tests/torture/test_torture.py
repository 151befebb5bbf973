"""Some seconds of the torture in every scenario, on the installed server.

Environment:
    DLOCK_TORTURE_SCENARIOS only these, in the blocking form, or as in network+python (default: all,
                            in more forms)
    DLOCK_TORTURE_SECONDS   of each scenario (default 6; with partitions 12)
    DLOCK_TORTURE_SLACK_MS  added to every bound, since other tests run beside (default 2000)
    DLOCK_SEED              the dice (default: new ones; printed by a run that fails)
"""

import os
import subprocess
import sys

import pytest

from support.figures import tell
from support.server import ROOT

SECONDS = os.environ.get("DLOCK_TORTURE_SECONDS", "")
SEED = os.environ.get("DLOCK_SEED")
SCENARIOS = os.environ.get("DLOCK_TORTURE_SCENARIOS", "").split()
FORMS = [(*scenario.split("+"), "blocking")[:2] for scenario in SCENARIOS] or [
    *((scenario, "blocking") for scenario in ("single", "restart", "clock", "guarded", "plain",
                                              "network", "sentinel", "cluster", "redlock",
                                              "crowd", "crowd-network", "crowd-sentinel", "names",
                                              "skew", "skew-cluster", "partition",
                                              "partition-cluster")),
    ("single", "async"), ("network", "async"), ("redlock", "async"), ("restart", "loop"),
    ("network", "loop"), *((scenario, "python") for scenario in ("single", "restart", "clock",
                                                                 "guarded", "network"))]


@pytest.mark.parametrize("scenario, form", FORMS)
def test_no_promise_is_broken(scenario, form):
    """The forms are those of either_form.h: blocking calls, started ones, no thread at all. python:
    blocking ones, beside workers with client/python."""
    seconds = SECONDS or ("12" if scenario.startswith("partition") else "6")
    words = ["--scenario", scenario, "--seconds", seconds, *(["--seed", SEED] if SEED else [])]
    if form == "python":
        words, form = [*words, "--python"], "blocking"
    run = subprocess.run([sys.executable, ROOT / "tests/torture/torture.py", *words],
                         env={"DLOCK_TORTURE_SLACK_MS": "2000", **os.environ,
                              "DLOCK_FORM": form}, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, run.stdout
    if ": skipped, " in run.stdout:
        pytest.skip(run.stdout.strip())
    counted = next(line for line in run.stdout.splitlines() if line.startswith("counted"))
    tell(f"torture, {scenario}, {form}: {counted}")
