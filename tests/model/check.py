#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""check.py [--quick] [MODEL...]: let spin check the models of this folder, and their mutants.

A model must have no error in any of its runs. A mutant, the same model with one mistake, must have
the error that its row names: else the model does not watch what it says it watches. --quick leaves
out the long runs, and no mutant. The exit status is 1 if anything is not as it must be.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
EXCLUSION = "certain"  # a part of the assertion that fails
KNOWS = "knows[0]"  # exclusion, too
NOBODY = "nobody"
FIFO = "line"
FENCE = "highest_fence"
PART = "holds_a_part"
FORGOTTEN = "assertion violated 0"  # of the process watch
STUCK = "invalid end state"
TWO, THREE = "-DPRESENT=2", "-DPRESENT=3 -DFAULTY=1"
ONCE, TWICE = "-DABSENCES=0", "-DREQUESTS=2 -DLEAVES=0 -DABSENCES=0"
MIXED = "-DPRESENT=3 -DFAULTY=1 -DSHARED=6"  # two of them shared

# The model, its macros, and whether the run is left out by --quick.
RUNS = [
    ("queue", TWO, True),
    ("queue", THREE, True),
    ("queue", MIXED, False),
    ("names", ONCE, False),
    ("names", "", True),
    ("names", TWICE, True),
    ("lease", "", True),
    ("failover", "-DCASE=1", False),
    ("failover", "-DCASE=2", False),
    ("failover", "-DCASE=3", False),
    ("sessions", "", True),
    ("fence_clock", "", False),
    ("fence_clock", "-DCHANGES_MAX=3", True),
]
# The model, the macros, the mutant, and the error to be found.
MUTANTS = [
    ("queue", TWO, "WAKE_UP_LOST", FORGOTTEN),
    ("queue", MIXED, "GIVE_UP_UNNOTICED", FORGOTTEN),
    ("queue", TWO, "TOLD_TOO_EARLY", FORGOTTEN),
    ("queue", TWO, "TOLD_TOO_LATE", EXCLUSION),
    ("queue", TWO, "HOLD_KEEPS_ID", EXCLUSION),
    ("queue", THREE, "RELEASE_BY_ANYBODY", EXCLUSION),
    ("queue", TWO, "CLOSE_ENDS_NEWER_WAIT", STUCK),
    ("queue", MIXED, "REWAIT_LOSES_PLACE", FIFO),
    ("queue", MIXED, "OVERTAKE", FIFO),
    ("names", ONCE, "SERVE_BY_ONE_QUEUE", FIFO),
    ("names", ONCE, "OVERTAKE", FIFO),
    ("names", ONCE, "TURN_PER_NAME", FIFO),
    ("names", ONCE, "TAKE_A_PART", PART),
    ("names", ONCE, "LEAVE_UNNOTICED", FORGOTTEN),
    ("lease", "", "EXTEND_SHORTENS", "valid_until"),
    ("lease", "", "VALIDITY_FROM_REPLY", "valid_until"),
    ("lease", "", "RELEASE_BY_ANYBODY", "valid_until"),
    ("lease", "", "TOKEN_REUSED", FENCE),
    ("lease", "", "FENCE_REPEATED", FENCE),
    ("failover", "-DCASE=1", "NO_ACKNOWLEDGEMENT", "valid_until"),
    ("failover", "-DCASE=2", "TAKE_OVER_KEEPS_END", "valid_until"),
    ("failover", "-DCASE=3", "FENCE_WITHOUT_CLOCK", FENCE),
    ("sessions", "", "FORGET_WHEN_WRITTEN", NOBODY),
    ("sessions", "", "END_KEEPS_HOLD", NOBODY),
    ("sessions", "", "PARKED_CALL_COUNTS", NOBODY),
    ("sessions", "", "HOLD_KEEPS_ID", KNOWS),
    ("sessions", "", "VALIDITY_FROM_REPLY", KNOWS),
    ("sessions", "", "RENEWED_THOUGH_FORGOTTEN", KNOWS),
    ("sessions", "", "OLD_REPLY_COUNTS", KNOWS),
    ("sessions", "", "GRANT_KEPT_WHILE_AWAY", FORGOTTEN),
    ("sessions", "", "AWAY_IS_GRANTED", FORGOTTEN),
    ("sessions", "", "COMES_BACK_ASIDE", FORGOTTEN),
    ("fence_clock", "", "WALL_CLOCK_ALONE", FENCE),
    ("fence_clock", "", "NOT_HEARD", FENCE),
    ("fence_clock", "-DCHANGES_MAX=3", "NO_JUMP", FENCE),
    ("fence_clock", "", "NO_TRANSIT", FENCE),
    ("fence_clock", "", "JUMPS_ADD_UP", "top_wall"),
    ("fence_clock", "", "PROMOTIONS_ADD_UP", "top_wall"),
    ("fence_clock", "", "FLAPS_ADD_UP", "promotions"),
    ("fence_clock", "", "OLD_TIME_SETS_CLOCK", "top_wall"),
    ("fence_clock", "", "STEP_NOT_HEARD", FENCE),
    ("fence_clock", "", "MOVE_FASTER_THAN_MESSAGE", FENCE),
]


def run(model, macros, is_long):
    """What the checker says."""
    with tempfile.TemporaryDirectory(prefix="dlock-model-") as folder:
        def call(*command):
            return subprocess.run(command, cwd=folder, check=True, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

        call("spin", *macros.split(), "-a", str(FOLDER / f"{model}.pml"))
        optimized = "-O2" if is_long else "-O0"  # the compiler takes longer than most runs
        call("cc", "-w", optimized, "-DSAFETY", "-DMEMLIM=2048", "-o", "pan", "pan.c")
        return call("./pan", "-m10000")


def check(model, macros, is_long, mutant=None, error=None):
    """A line for people, and whether all is as it must be."""
    begin = time.monotonic()
    output = run(model, f"{macros} -D{mutant}" if mutant else macros, is_long)
    states = re.search(r"(\d+) states, stored", output)
    found = re.search(r"^pan:1: (.*?)(?: \(at depth \d+\))?$", output, re.M)
    is_whole = "errors: 0" in output and "Search not completed" not in output
    if mutant:
        is_good = found is not None and error in found[1]
        verdict = "caught" if is_good else "NOT CAUGHT"
    else:
        is_good = is_whole and found is None
        verdict = "holds" if is_good else "FAILS"
    seconds = time.monotonic() - begin
    line = (f"{verdict:10} {model:11} {mutant or macros:35} "
            f"{int(states[1]) if states else 0:9,} states {seconds:5.1f} s")
    if not is_good:
        line += f"\n           {found[1] if found else output}"
    return line, is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    rows = [row for row in RUNS if not (row[2] and options.quick)]
    rows += [(model, macros, False, *mutant) for model, macros, *mutant in MUTANTS]
    rows = [row for row in rows if not options.models or row[0] in options.models]
    jobs = min(len(os.sched_getaffinity(0)), 4)
    is_good = True
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for line, is_row_good in pool.map(lambda row: check(*row), rows):
            print(line, flush=True)
            is_good = is_good and is_row_good
    return 0 if is_good and rows else 1


if __name__ == "__main__":
    sys.exit(main())
