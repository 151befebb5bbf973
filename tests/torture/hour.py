"""hour.py [--seconds TOTAL] [--jobs N] [--seed N] [--scenarios a,b] [--servers x,y]

Every scenario on every server of scripts/get-servers, two runs at a time. TOTAL is the sum of their
lengths (default: an hour), of which each run has the same part; start and check of each run come
on top of that. At the end the tables for README.md, "What was run".

No run ends the hour: one that cannot be set up, breaks off or hangs is tried once more at the end,
and is then a line below the tables, as is one that this machine cannot do. Each result is written
as it comes, so the tables of an hour that was interrupted can be had at any time:

    scripts/python tests/torture/results.py build/torture/hour.jsonl

Exit status 1 if a promise is broken, or if a run has left nothing to judge. What is skipped is no
failure.
"""

import argparse
import concurrent.futures
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "build/torture/hour.jsonl"
os.environ["DLOCK_TORTURE_RESULTS"] = str(RESULTS)  # before results.py is imported
sys.path[:0] = [str(ROOT / "tests"), str(HERE)]

import results  # noqa: E402
import torture  # noqa: E402
from support.server import DIE_WITH_PARENT  # noqa: E402

PATIENCE_S = 600  # for start, healing, leftovers and check of one run
TRIES = 2


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--scenarios", default="")
    parser.add_argument("--servers", default="")
    return parser.parse_args()


def all_servers():
    names = (path.name for path in (ROOT / "build/servers").glob("*-server"))
    return sorted(name.removesuffix("-server") for name in names)


class Hour:
    """The runs that are still to do, and those that are under way."""

    def __init__(self, seconds):
        self.seconds = seconds  # of each run
        self.mutex = threading.Lock()
        self.under_way = set()
        self.is_over = False

    def go(self, pairs, jobs):
        """pairs: (server, scenario, seed). Returns those without a result."""
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            runs = [pool.submit(self._run, *pair) for pair in pairs]
            try:
                return [pair for pair, run in zip(pairs, runs) if not run.result()]
            except KeyboardInterrupt:
                self._break_off()
                raise

    def _run(self, server, scenario, seed):
        """Whether there is a result, or a reason to skip."""
        process = self._start(["--scenario", scenario, "--server", server, "--seconds",
                               f"{self.seconds:.1f}", "--seed", str(seed)])
        if process is None:
            return False
        try:
            said = process.communicate(timeout=self.seconds + PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()  # its servers and workers end with it
            said = f"{process.communicate()[0]}\nthe run hangs"
        with self.mutex:
            self.under_way.discard(process)
            print(said, flush=True)
            runs = [run for run in results.read(RESULTS)
                    if results.dice(run) == (server, scenario, seed)]
            if not runs and not self.is_over:
                last = ([""] + said.strip().splitlines())[-1]
                results.add_missing("failed", f"no result, status {process.returncode}: {last}",
                                    scenario, server, seed, "")
        return any("failed" not in run for run in runs)

    def _start(self, words):
        with self.mutex:
            if self.is_over:
                return None
            process = subprocess.Popen(
                [*DIE_WITH_PARENT, sys.executable, HERE / "torture.py", *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace")
            self.under_way.add(process)
        return process

    def _break_off(self):
        with self.mutex:
            self.is_over = True
            for process in self.under_way:
                process.kill()


def main():
    arguments = parse()
    scenarios = arguments.scenarios.split(",") if arguments.scenarios else torture.all_scenarios()
    servers = arguments.servers.split(",") if arguments.servers else all_servers()
    if not servers:
        sys.exit("hour.py: no servers: scripts/get-servers fetches them")
    pairs = [(server, scenario, arguments.seed + number) for number, (server, scenario)
             in enumerate(itertools.product(servers, scenarios))]
    print(f"{len(pairs)} runs with seeds from {arguments.seed} on, results in "
          f"{RESULTS.relative_to(ROOT)}", flush=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("")
    hour = Hour(arguments.seconds / len(pairs))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    left = pairs
    try:
        for _ in range(TRIES):
            left = hour.go(left, arguments.jobs)
    except KeyboardInterrupt:
        print("interrupted: the tables have what was done until then")
    runs = results.read(RESULTS)
    results.print_all(runs)
    missing = len(pairs) - len(runs)
    if missing:
        print(f"{missing} of {len(pairs)} runs were not done")
    return int(missing > 0 or any(run["violations"] or "failed" in run for run in runs))


if __name__ == "__main__":
    sys.exit(main())
