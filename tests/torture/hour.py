"""hour.py [--seconds TOTAL] [--jobs N] [--seed N] [--scenarios a,b] [--servers x,y]

Every scenario on every server of scripts/get-servers, two runs at a time. TOTAL is the sum of their
lengths (default: an hour), of which each run has the same part; start and check of each run come
on top of that. At the end the tables for README.md, "What was run". Exit status 1 if a promise is
broken, or if a run has left no result.
"""

import argparse
import concurrent.futures
import itertools
import os
import pathlib
import random
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "build/torture/hour.jsonl"


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


def all_scenarios():
    os.environ["DLOCK_TORTURE_RESULTS"] = str(RESULTS)  # before results.py is imported
    sys.path[:0] = [str(ROOT / "tests"), str(HERE)]
    import torture
    return list(torture.all_scenarios())


def run(scenario, server, seconds, seed):
    done = subprocess.run(
        [sys.executable, HERE / "torture.py", "--scenario", scenario, "--server", server,
         "--seconds", f"{seconds:.1f}", "--seed", str(seed)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, end="", flush=True)


def main():
    arguments = parse()
    scenarios = all_scenarios()
    if arguments.scenarios:
        scenarios = arguments.scenarios.split(",")
    servers = arguments.servers.split(",") if arguments.servers else all_servers()
    if not servers:
        sys.exit("hour.py: no servers: scripts/get-servers fetches them")
    pairs = list(itertools.product(servers, scenarios))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("")
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for number, (server, scenario) in enumerate(pairs):
            pool.submit(run, scenario, server, arguments.seconds / len(pairs),
                        arguments.seed + number)
    import results
    runs = results.read(RESULTS)
    results.print_all(runs)
    missing = len(pairs) - len(runs)
    if missing:
        print(f"{missing} of {len(pairs)} runs have left no result")
    return int(missing > 0 or any(run["violations"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
