"""contest.py [SECONDS] [SEED]: the same faults for different locks, as a table.

Each contender does read, modify, write on values in Redis under its locks, while workers sleep
through their leases and die, connections end and the server is killed and started again; and once
more while the wall clock of the server jumps. See README.md for what the columns mean.
"""

import json
import shutil
import sys

import torture
from torture import FOLDER, PROGRAMS, ROOT, Run

MODULE_NONE = "?module=none"


class Contender(Run):
    def __init__(self, label, way, program, name, seconds, seed, options=""):
        super().__init__(name, seconds, seed, "installed", way)
        self.label, self.options = label, options
        self.program = program
        self.is_ours = program[0] == PROGRAMS / "worker" and not options

    def settings(self, scenario):
        return [word + self.options if word.startswith("url=") else word
                for word in scenario.settings()]


def contenders(name, seconds, seed):
    worker, recipe = [PROGRAMS / "worker"], [PROGRAMS / "recipe"]
    python = [sys.executable, ROOT / "tests/torture/redis_py_worker.py"]
    for label, way, program, options in (
            ("SET NX PX and a script, in C", "bare", recipe, ""),
            ("redis-py's Lock", "bare", python, ""),
            ("dlock without the module", "bare", worker, MODULE_NONE),
            ("dlock", "bare", worker, ""),
            ("dlock, with a fence at the data", "fence", worker, ""),
            ("dlock, with guarded writes", "guard", worker, "")):
        yield Contender(label, way, program, name, seconds, seed, options)


def row(label, report):
    counts = report.counts
    return (f"| {label} | {counts['updates lost']:,} | {counts['held twice']:,} | "
            f"{report.worst['name without a holder, ms'] / 1000:.1f} s | "
            f"{counts['updates']:,} | {counts['grants']:,} | {counts['faults']:,} |")


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torture.use_memory()
    violations = 0
    for name in "contest", "contest-clock":
        print(f"\n{name}, {seconds:g} s each, seed {seed}\n")
        print("| lock | updates lost | locks held twice | longest stuck | updates | locks taken | "
              "faults |\n|---|---|---|---|---|---|---|", flush=True)
        for run in contenders(name, seconds, seed):
            report = run.go()
            print(row(run.label, report), flush=True)
            violations += report.total()
            for promise, sentences in report.violations.items():
                print(f"VIOLATED: {promise}: {sentences[0]}; see {run.folder}")
            with open(FOLDER / "contest.jsonl", "a") as file:
                file.write(json.dumps({"contest": name, "lock": run.label, "seconds": seconds,
                                       "seed": seed, "counts": dict(report.counts),
                                       "worst": dict(report.worst), "faults": run.faults}) + "\n")
            if not report.total():
                shutil.rmtree(run.folder)
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
