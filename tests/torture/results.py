"""results.py: what all runs of "make torture" have found together.

Each run adds a line to build/torture/results.jsonl: scenario, server, seconds, grants, faults,
violations. Without arguments this prints their sum, by scenario and by server.
"""

import collections
import json
import pathlib
import sys

FILE = pathlib.Path(__file__).resolve().parents[2] / "build/torture/results.jsonl"
COUNTS = ("grants", "faults", "updates", "updates lost", "losses")


def add(run, report):
    """After a run."""
    line = {"scenario": run.name, "server": run.server, "version": getattr(run, "version", "?"),
            "seconds": run.seconds, "seed": run.seed, "way": run.way,
            "counts": dict(report.counts), "worst": dict(report.worst),
            "faults": getattr(run, "faults", {}), "command": run.command(),
            "violations": {name: len(each) for name, each in report.violations.items()}}
    with open(FILE, "a") as file:
        file.write(json.dumps(line) + "\n")


def read():
    with open(FILE) as file:
        return [json.loads(line) for line in file]


def table(runs, by):
    """Rows: the group, then its sums."""
    groups = collections.defaultdict(collections.Counter)
    for run in runs:
        for group in (run[by], "all"):
            sums = groups[group]
            sums["runs"] += 1
            sums["seconds"] += run["seconds"]
            sums["violations"] += sum(run["violations"].values())
            for name in COUNTS:
                sums[name] += run["counts"].get(name, 0)
    columns = ("runs", "seconds", *COUNTS, "violations")
    yield " | ".join((by, *columns))
    for group, sums in groups.items():
        yield " | ".join((group, *(f"{sums[name]:.0f}" for name in columns)))


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    runs = read()
    for by in "scenario", "server":
        print("\n".join(table(runs, by)), end="\n\n")
    kinds = collections.Counter()
    for run in runs:
        kinds.update(run["faults"])
    print(", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))


if __name__ == "__main__":
    sys.exit(main())
