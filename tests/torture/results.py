"""results.py [FILE]: what all runs of the torture have found together, as tables of Markdown.

Each run adds a line to build/torture/results.jsonl, or to the file DLOCK_TORTURE_RESULTS:
scenario, server, seconds, grants, faults, violations. One that this machine cannot do leaves a line
with "skipped", one that broke off before there was anything to judge a line with "failed"; both say
why. This prints the sums, by scenario and by server, the faults by kind, what was skipped or has
failed, and the commands of runs that have found something.
"""

import collections
import json
import os
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "build/torture"
FILE = pathlib.Path(os.environ.get("DLOCK_TORTURE_RESULTS", FOLDER / "results.jsonl"))
COLUMNS = {"locks taken": "grants", "faults": "faults", "guarded updates": "updates",
           "losses told": "losses told",
           "held twice where not promised": "held twice, not promised",
           "fences back where not promised": "fences back, not promised"}


def add(run, report):
    """After a run."""
    line = {"scenario": run.name, "server": run.server, "version": getattr(run, "version", "?"),
            "seconds": run.seconds, "seed": run.seed, "way": run.way,
            "counts": dict(report.counts), "worst": dict(report.worst),
            "faults": getattr(run, "faults", {}), "command": run.command(),
            "violations": {name: len(each) for name, each in report.violations.items()}}
    _write(line)


def add_missing(how, why, scenario, server, seed, command):
    """Instead of a result. how: "skipped" or "failed"."""
    _write({"scenario": scenario, "server": server, "seconds": 0, "seed": seed, "counts": {},
            "faults": {}, "violations": {}, "command": command, how: why})


def _write(line):
    with open(FILE, "a") as file:
        file.write(json.dumps(line) + "\n")


def read(path):
    """All but a last line that is not whole, and runs that failed and were tried again."""
    runs = []
    with open(path) as file:
        for line in file:
            if line.endswith("\n"):
                run = json.loads(line)
                runs = [each for each in runs if "failed" not in each or dice(each) != dice(run)]
                runs.append(run)
    return runs


def dice(run):
    return run["server"], run["scenario"], run["seed"]


def is_judged(run):
    return "skipped" not in run and "failed" not in run


def table(runs, by):
    """Lines of Markdown: a row for each scenario or server, and one for all."""
    groups = collections.defaultdict(collections.Counter)
    for run in sorted(runs, key=lambda run: run[by]):
        sums = groups[run[by]]
        sums.update(run["counts"])
        if run["scenario"] == "plain":  # has no fences, so all of them are the same
            sums["fences back, not promised"] -= run["counts"].get("fences back, not promised", 0)
        sums["runs"] += is_judged(run)
        sums["skipped"] += "skipped" in run
        sums["failed"] += "failed" in run
        sums["seconds"] += run["seconds"]
        sums["judges"] += is_judged(run) and "judges" not in run["violations"]
        sums["violations"] += sum(run["violations"].values())
    groups["all"] = sum(groups.values(), collections.Counter())
    yield f"| {by} | | {' | '.join(COLUMNS)} | both judges agree | violations |"
    yield "|---" * (len(COLUMNS) + 4) + "|"
    for group, sums in groups.items():
        name = f"`{group}`" if by == "scenario" and group != "all" else group
        counts = " | ".join(f"{sums[count]:,}" for count in COLUMNS.values())
        missing = "".join(f", {sums[how]} {how}" for how in ("skipped", "failed") if sums[how])
        yield (f"| {name} | {sums['runs']} runs, {sums['seconds']:,.0f} s{missing} | {counts} | "
               f"{sums['judges']} of {sums['runs']} | {sums['violations']} |")


def print_missing(runs, how):
    """A line for each reason."""
    by_reason = collections.defaultdict(list)
    for run in runs:
        if how in run:
            by_reason[run[how]].append(f"{run['scenario']} on {run['server']}")
    for reason, which in by_reason.items():
        print(f"{how.capitalize()}: {', '.join(which)}: {reason}")


def print_all(runs):
    for by in "scenario", "server":
        print("\n".join(table(runs, by)), end="\n\n")
    kinds = collections.Counter()
    for run in runs:
        kinds.update(run["faults"])
    print("Faults without those of the proxy:",
          ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common()))
    print_missing(runs, "skipped")
    print_missing(runs, "failed")
    for run in runs:
        if run["violations"]:
            print(f"VIOLATED: {run['violations']} by {run['command']}")


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    print_all(read(sys.argv[1] if len(sys.argv) > 1 else FILE))


if __name__ == "__main__":
    sys.exit(main())
