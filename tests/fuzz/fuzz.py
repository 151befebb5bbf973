#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""fuzz.py [--seconds N] [TARGET...]: run the fuzz targets that "make fuzz-build" has built.

The seconds are shared among the targets, as many of which run at a time as there are processors.
The corpus of a target is tests/fuzz/corpus/TARGET; what a run finds beside it goes to
build/fuzz/found/TARGET, where the next run begins. An input that breaks a rule is left as
build/fuzz/TARGET-crash-..., and "build/fuzz/TARGET FILE" shows it again. The exit status is 1 then.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "fuzz"
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
TARGETS = sorted(path.name for path in CORPUS.iterdir())


def run(target, seconds):
    """A line for people, and whether no rule was broken."""
    found = BUILD / "found" / target
    found.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [BUILD / target, f"-max_total_time={seconds}", "-timeout=10", "-print_final_stats=1",
         f"-artifact_prefix={BUILD}/{target}-", found, CORPUS / target],
        text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        return f"FAILED {target}\n{done.stdout[-4000:]}", False
    executions = int(re.search(r"stat::number_of_executed_units: *(\d+)", done.stdout)[1])
    coverage = re.findall(r" cov: (\d+) ", done.stdout)[-1]
    return f"ok     {target:8} {executions:12,} inputs, {coverage:>5} edges covered", True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("targets", nargs="*", default=TARGETS)
    options = parser.parse_args()
    jobs = min(len(os.sched_getaffinity(0)), len(options.targets))
    seconds = max(1, options.seconds * jobs // len(options.targets))
    is_good = True
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for line, is_target_good in pool.map(lambda name: run(name, seconds), options.targets):
            print(line, flush=True)
            is_good = is_good and is_target_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
