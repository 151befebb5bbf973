"""mutants.py [NAME...]: break dlock on purpose, in a copy, and see whether the torture notices.

Each mutant is one change of the source and the promise that it must break. A mutant that survives
means that the workload is too gentle, or that the checker sleeps.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What is built already is copied, too: then only what a mutant changes is built again.
TREE = ("Makefile", "client", "module", "scripts", "tests", "build")
LEFT_OUT = [str(ROOT / "build" / name) for name in ("servers", "torture")]
BUILT = ("build/dlock.so", "build/tests/torture/worker", "build/tests/torture/crowd",
         "build/tests/clock.so")

# name: file, old text, new text, scenario, the promise
MUTANTS = {
    "validity": ("client/src/base/deadline.h", "asked_us + lease_us - drift_us :",
                 "asked_us + lease_us + 150000 :", "single", "exclusion"),
    "session": ("client/src/deployment/life.c", "validity_lead_us(life->timeout_ms);",
                "validity_lead_us(life->timeout_ms) + 700000;", "crowd-network", "exclusion"),
    "permits": ("module/lock_state.c", "holder_count >= request->max_holders",
                "holder_count > request->max_holders", "single", "exclusion"),
    "fence": ("module/fence.c", "last = larger(larger(at_least, clock_us), last + 1) + count - 1;",
              "last = larger(at_least, now.wall_us) + count - 1;", "clock", "fences"),
    "loss": ("client/src/lease/notifier.c",
             "news == DLOCK_STATE_LOST ? DLOCK_EVENT_LOST : DLOCK_EVENT_SUSPECT",
             "DLOCK_EVENT_SUSPECT",
             "single", "told"),
    "wake-up": ("client/src/net/loop.c", "    waiter->is_woken = true;",
                "    static int n; if (++n % 1000 == 0) return;\n    waiter->is_woken = true;",
                "single", "bounds"),
    "replicas": ("client/src/protocol/lock_commands.c", "reply->integer < (int64_t)needed",
                 "reply->integer + (int64_t)needed < 0", "partition", "exclusion or fences"),
    "guard": ("module/guard.c", "return is_held ? GUARD_HELD : GUARD_NOT_HELD;",
              "return is_held ? GUARD_HELD : GUARD_HELD;", "guarded", "updates"),
    "guard-names": ("module/guard.c", "return is_held ? GUARD_HELD : GUARD_NOT_HELD;",
                    "return is_held ? GUARD_HELD : GUARD_HELD;", "names", "updates"),
}


def is_caught(folder, name):
    file, old, new, scenario, promise = MUTANTS[name]
    path = folder / file
    source = path.read_text()
    if old not in source:
        print(f"{name}: the text to change is not in {file} any more")
        return False
    path.write_text(source.replace(old, new, 1))
    try:
        subprocess.run(["make", "-s", *BUILT], cwd=folder, check=True)
        seconds = "60" if scenario == "partition" else "15"
        run = subprocess.run(
            ["scripts/python", "tests/torture/torture.py", "--scenario", scenario, "--seconds",
             seconds, "--seed", "1"], cwd=folder, stdout=subprocess.PIPE, text=True)
    finally:
        path.write_text(source)
    is_found = any(f"VIOLATED: {each}" in run.stdout for each in promise.split(" or "))
    print(f"{name}: {'caught' if is_found else 'SURVIVED'}, {scenario}, {promise}", flush=True)
    if not is_found:
        print(run.stdout)
    return is_found


def left_out(folder, names):
    return [name for name in names if str(pathlib.Path(folder) / name) in LEFT_OUT]


def main():
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    with tempfile.TemporaryDirectory(prefix="dlock-mutants-") as folder:
        folder = pathlib.Path(folder)
        for name in TREE:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=left_out)
            else:
                shutil.copy(ROOT / name, folder / name)
        results = [is_caught(folder, name) for name in sys.argv[1:] or MUTANTS]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
