"""What a lock costs, against the alternatives; --help shows the options.

Runs the scenarios, prints a table or two for each, then all bars, and writes everything to
build/bench/results.json, or quick.json after a quick run. Exit status 1: a bar was not met.

To add a scenario: a file with NAME, a docstring that begins "Scenario: ", and run(quick, progress)
that returns a list of report.Table; and its place in SCENARIOS.
"""

import argparse
import datetime
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # for support

import breakdown  # noqa: E402
import client  # noqa: E402
import endings  # noqa: E402
import handover  # noqa: E402
import hot  # noqa: E402
import hotspot  # noqa: E402
import instructions  # noqa: E402
import latency  # noqa: E402
import machine  # noqa: E402
import memory  # noqa: E402
import peers  # noqa: E402
import redlock  # noqa: E402
import renewal  # noqa: E402
import results  # noqa: E402
import throughput  # noqa: E402
import waiters  # noqa: E402
from support.server import ROOT  # noqa: E402

SCENARIOS = [instructions, throughput, memory, hot, peers, handover, latency, endings, client,
             hotspot, renewal, waiters, redlock]
FULL, QUICK = ROOT / "build/bench/results.json", ROOT / "build/bench/quick.json"


def _parse_arguments():
    parser = argparse.ArgumentParser(description="What a lock costs, against the alternatives.")
    parser.add_argument("--only", metavar="NAME", action="append",
                        choices=[scenario.NAME for scenario in SCENARIOS],
                        help="run this scenario and keep the results of the others; may be given "
                        "several times")
    parser.add_argument("--quick", action="store_true",
                        help="only what has a bar, fewer repetitions, rougher figures")
    parser.add_argument("--list", action="store_true", help="name the scenarios and do nothing")
    parser.add_argument("--profile", action="store_true",
                        help="instead, show in which functions the server spends its instructions")
    return parser.parse_args()


def _now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _run(scenario, quick, found):
    date, begin = _now(), time.monotonic()

    def progress(step):
        print(f"[{time.monotonic() - begin:5.1f} s] {scenario.NAME}: {step}", file=sys.stderr)

    tables = scenario.run(quick, progress)
    progress("done")
    found.add(scenario.NAME, tables, date=date, seconds=round(time.monotonic() - begin, 1),
              commit=found.data["versions"]["commit"])
    for table in tables:
        table.show()
    print(flush=True)


def _run_all(scenarios, quick):
    about = {"date": _now(), "quick": quick, **machine.describe()}
    for group in ("machine", "versions"):
        print(f"{group}: " + ", ".join(f"{k} {v}" for k, v in about[group].items()))
    found = results.Results(QUICK if quick else FULL, about)
    if found.dropped:
        print(f"not kept, as of another machine or server: {', '.join(found.dropped)}")
    for scenario in scenarios:
        _run(scenario, quick, found)
    print("The bars:")
    is_met = found.show_bars()
    print(f"\nAll figures: {found.path.relative_to(ROOT)}"
          + (f"; kept from before: {', '.join(found.kept())}" if found.kept() else ""))
    return is_met


def main():
    arguments = _parse_arguments()
    if arguments.list:
        for scenario in SCENARIOS:
            summary = scenario.__doc__.splitlines()[0].removeprefix("Scenario: ")
            print(f"{scenario.NAME:14} {summary}")
    elif arguments.profile:
        breakdown.show()
    else:
        names = arguments.only or [scenario.NAME for scenario in SCENARIOS]
        sys.exit(not _run_all([s for s in SCENARIOS if s.NAME in names], arguments.quick))


if __name__ == "__main__":
    main()
