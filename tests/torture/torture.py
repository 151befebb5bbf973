"""torture.py [--scenario NAME|all] [--seconds N] [--seed N] [--server NAME|PATH] [--way WAY]
           [--python]

Workers take locks of every kind, faults fall on them and on the servers, and the checker judges
the histories. Exit status 1 if a promise is broken; then the folder with the histories, the logs
and the list of faults stays, and the command that runs it again is printed.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/torture")]
FOLDER = ROOT / "build/torture"
PROGRAMS = ROOT / os.environ.get("DLOCK_BUILD", "build") / "tests/torture"
MEMORY, ROOM = "/dev/shm", 4 << 30  # bytes that must be free there


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", default="all")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--server", default="")
    parser.add_argument("--way", default="guard", choices=("guard", "fence", "bare"))
    parser.add_argument("--python", action="store_true",
                        help="every second worker is python_worker.py")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a good run too")
    return parser.parse_args()


def choose_server(name):
    """A name of scripts/get-servers, a path, or "" for the installed server."""
    if name:
        path = ROOT / "build/servers" / f"{name}-server"
        os.environ["REDIS_SERVER"] = str(path if path.exists() else pathlib.Path(name).resolve())
    return name or "installed"


def all_scenarios():
    from deployments import DEPLOYMENTS
    from partition import PARTITIONS
    from scenarios import SCENARIOS
    return {**SCENARIOS, **DEPLOYMENTS, **PARTITIONS}


def find_scenario(name):
    from scenarios import CONTESTS
    return {**all_scenarios(), **CONTESTS}[name]


def use_memory():
    """Servers keep their files in memory, if there is room: a process that is killed loses nothing
    that it has written, wherever that is, and a slow disk would only make the test thin."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    space = os.statvfs(MEMORY)
    if space.f_bavail * space.f_frsize > ROOM:
        tempfile.tempdir = MEMORY


class NotSetUp(Exception):
    """The servers of a scenario did not start, so there is nothing to judge."""


class Run:
    """One scenario, once."""

    program = [PROGRAMS / "worker"]
    python_program = [sys.executable, ROOT / "tests/torture/python_worker.py"]
    has_python = False  # every second worker is one of Python
    is_ours = True  # else only counted, see contest.py

    def __init__(self, name, seconds, seed, server, way):
        self.name, self.seconds, self.seed = name, seconds, seed
        self.server, self.way = server, way
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(
            prefix=f"{name}-{pathlib.Path(server).name}-{seed}-", dir=FOLDER))

    def command(self):
        words = f"make torture SCENARIO={self.name} SECONDS={self.seconds:g} SEED={self.seed}"
        words += f" SERVER={self.server}" if self.server != "installed" else ""
        words += " PYTHON_WORKERS=yes" if self.has_python else ""
        return words + (f" WAY={self.way}" if self.way != "guard" else "")

    def go(self):
        """The report of the checker. A judge that disagrees with it is a violation, too. Raises
        NotSetUp if there is nothing to judge."""
        import export
        from checker import check_folder
        scenario = find_scenario(self.name)()
        self.troubles = []
        try:
            self._set_up(scenario)
            self._torture(scenario)
        except (AssertionError, OSError, redis.RedisError) as failure:
            self.troubles.append(f"the run broke off: {failure!r}")
        finally:
            self._tear_down(scenario)
        self._write_run(scenario)
        report = check_folder(self.folder)
        for sentence in export.compare(report, export.operations_of(self.folder)):
            report.add("judges", sentence)
        return report

    def _set_up(self, scenario):
        try:
            scenario.start(self.folder)
            scenario.prepare(self.folder, self.seed)
            self.version = scenario.version()
        except Exception as failure:
            raise NotSetUp(repr(failure)[:500]) from failure

    def _tear_down(self, scenario):
        """Also of servers of which only some have started."""
        try:
            for name, log in scenario.logs().items():
                (self.folder / name).write_text(log)
        except Exception as failure:
            self.troubles.append(f"the logs cannot be read: {failure!r}")
        try:
            scenario.destroy()
        except Exception as failure:
            self.troubles.append(str(failure)[-2000:])

    def settings(self, scenario):
        return scenario.settings()

    def program_of(self, scenario, number):
        if scenario.program:
            return [PROGRAMS / scenario.program]
        return self.python_program if self.has_python and number % 2 else self.program

    def _torture(self, scenario):
        from workers import Workers
        words = [*self.settings(scenario), f"seed={self.seed}", f"way={self.way}"]
        workers = Workers(lambda number, history: [*self.program_of(scenario, number), *words,
                                                   *scenario.settings_of(number),
                                                   f"process={number}", f"history={history}"],
                          self.folder, scenario.processes)
        try:
            self._throw_faults(scenario, workers)
            workers.end()
        finally:
            workers.kill()
            self.workers = workers.started
            self.troubles += workers.troubles
        if self.is_ours:
            self.troubles += scenario.leftovers()
        self.values = scenario.values()

    def _throw_faults(self, scenario, workers):
        from faults import Injector, WorkerFaults
        injector = Injector(self.folder / "faults.jsonl", self.seed)
        scenario.add_faults(injector)
        worker_faults = WorkerFaults(injector, workers)
        for name, every in scenario.worker_faults.items():
            injector.add(getattr(worker_faults, name), every)
        injector.start()
        time.sleep(self.seconds)
        injector.stop()
        self.faults = injector.counts
        self.troubles += injector.failures
        scenario.settle()
        time.sleep(1)  # everybody works for a moment before the end

    def _write_run(self, scenario):
        rules = scenario.rules()
        rules.are_updates_safe = self.way != "bare"
        rules.is_judged = self.is_ours
        (self.folder / "run.json").write_text(json.dumps({
            "scenario": self.name, "seed": self.seed, "seconds": self.seconds,
            "server": self.server, "command": self.command(), "way": self.way,
            "rules": dataclasses.asdict(rules), "workers": getattr(self, "workers", 0),
            "values": getattr(self, "values", None), "troubles": self.troubles}, indent=1))

    def finish(self, report, is_kept):
        from checker import print_report
        import results
        print_report(report)
        results.add(self, report)
        if report.total() == 0 and not is_kept:
            shutil.rmtree(self.folder)
            return
        where = self.folder.relative_to(ROOT)
        print(f"the histories are in {where}; judge them again:\n"
              f"    scripts/python tests/torture/checker.py {where}\n"
              f"run it again:\n    {self.command()}")

    def give_up(self, failure):
        """Instead of go() and finish()."""
        import results
        where = self.folder.relative_to(ROOT)
        print(f"torture: {self.name}: not set up, see the logs in {where}: {failure}")
        results.add_missing("failed", f"not set up: {failure}", self.name, self.server, self.seed,
                            self.command())


def run_inside(name, seed, server):
    """Whether a scenario with a network of its own succeeds; also if this machine cannot run it."""
    import partition
    import results
    reason = partition.why_not()
    if reason:
        print(f"torture: {name}: skipped, this machine cannot cut servers off: {reason}")
        results.add_missing("skipped", f"this machine cannot cut servers off: {reason}", name,
                            server, seed, "")
        return True
    return partition.run_inside(*sys.argv[1:], "--scenario", name, "--seed", str(seed))


def run_here(name, seed, server, arguments):
    """Whether a scenario succeeds."""
    print(f"torture: {name}, {arguments.seconds:g} s, seed {seed}, server {server}", flush=True)
    run = Run(name, arguments.seconds, seed, server, arguments.way)
    run.has_python = arguments.python
    try:
        report = run.go()
    except NotSetUp as failure:
        run.give_up(failure)
        return False
    run.finish(report, arguments.keep)
    return report.total() == 0


def main():
    arguments = parse()
    server = choose_server(arguments.server)
    use_memory()
    names = list(all_scenarios()) if arguments.scenario == "all" else arguments.scenario.split(",")
    seed = arguments.seed
    if seed is None:
        seed = random.SystemRandom().randrange(10**6)
    is_failed = False
    for name in names:
        if find_scenario(name).has_own_network and "DLOCK_TORTURE_NAMESPACE" not in os.environ:
            is_failed |= not run_inside(name, seed, server)
        else:
            is_failed |= not run_here(name, seed, server, arguments)
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main())
