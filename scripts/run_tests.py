"""Runs the tests. Started by scripts/run-tests; the parts are in test_parts.py.

A job is some files of a part, in a process of its own. Many jobs run at a time, as most tests wait
most of the time. The longest begin first, as tests/durations tells; short files share a job. Tests
that are marked "alone" need the processor for themselves: they run after all others, one job at a
time. What has to be built is built meanwhile, and a job begins when its build is done.

Nothing is repeated: a failure is a failure. A test has 60 seconds (tests/pytest.ini), a program
too: SLOWER times as long here, where jobs share the processors. The output of a job is shown if it
fails. Each job has a line; at the end, each part has one, and each test that failed, with its
reason. An interrupt ends the jobs, and they end their servers.
"""

import argparse
import collections
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import test_parts
from test_parts import ROOT

DURATIONS = ROOT / "tests/durations"
MARKS = {mark: f"pytest.mark.{mark}" for mark in ("alone", "long")}
PATIENCE_S = 30  # for jobs that are told to end
SLOWER = 4  # as so many jobs run at a time for each processor
PROGRAM_LIMIT_S = 60 * SLOWER
JOB_LIMIT_S = 1800  # if the limit of a test fails, as when a call of the library never returns
SHARED_S = 30  # short files share a job of this length: to start Python takes most of a second
UNKNOWN_S = 3  # for a file of which tests/durations says nothing
NO_TESTS = 5  # as pytest exits
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped|xfailed|xpassed)")
FAILURE = re.compile(r"^(?:FAILED|ERROR) (tests/.{1,400})", re.M)  # and the reason
DURATION = re.compile(r"^([\d.]+)s \w+ +(\S+?\.py)::", re.M)

HELP = """\
exit status:
  0    every test passed, or was skipped for a reason that is printed
  1    a test failed
  130  interrupted

environment:
  DLOCK_TEST_JOBS       jobs at a time (default: four for each processor, at most 24)
  DLOCK_SEED            the random numbers of fuzz and stress; each failure prints its seed
  REDIS_SERVER          the server to test with

examples:
  scripts/run-tests --part tool                the parts that test the tool
  scripts/run-tests --part client -k failover  only tests with "failover" in their name

One file or one test, without parts and sanitizers:
  make test-build
  scripts/python -m pytest -c tests/pytest.ini tests/client/test_replicas.py -k failover
"""


class Job:
    """One process. What it prints goes to a file, and so do the figures that it has to tell."""

    def __init__(self, part, files, command, folder, good=(0,), limit_s=JOB_LIMIT_S):
        self.part, self.files, self.command, self.folder = part, files, command, folder
        self.good, self.limit_s = good, limit_s
        self.env, self.needs = part.env, part.needs
        self.name = ", ".join("/".join(pathlib.Path(file).parts[-2:]) for file in files)
        self.process = None
        self.is_late = False

    def start(self):
        self.folder.mkdir()
        self.begin = time.monotonic()
        env = {**os.environ, "DLOCK_FIGURES": str(self.folder / "figures"),
               "DLOCK_TEST_SLOWER": str(SLOWER), **self.env}
        for name in "MAKEFLAGS", "MFLAGS", "MAKELEVEL":
            env.pop(name, None)
        with open(self.folder / "output", "wb") as output:
            # Of a session of its own: the keyboard interrupts us, and we interrupt it, once.
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=set_signals)

    def has_ended(self):
        """If so, its times are known too: those of its children are part of them."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if not pid:
            if time.monotonic() > self.begin + self.limit_s and not self.is_late:
                self.is_late = True
                self.process.kill()
            return False
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self.begin
        self.processor_s = usage.ru_utime + usage.ru_stime
        self.output = self._read("output").strip()
        self.figures = self._read("figures")
        shutil.rmtree(self.folder, ignore_errors=True)
        return True

    @property
    def is_good(self):
        return self.process.returncode in self.good and not self.is_late

    def tell(self):
        if not self.is_good:
            late = f": killed after {self.limit_s} s" if self.is_late else ""
            print(f"{self.output}\nexit status {self.process.returncode}{late}")
        tell(self.is_good, f"{self.seconds:5.1f} s, {self.processor_s:5.1f} s of a processor  "
                           f"{self.part.title}: {self.name}")
        print(self.figures, end="", flush=True)

    def failures(self):
        return [] if self.is_good else FAILURE.findall(self.output) or [self.name]

    def _read(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""


def set_signals():
    """A job hears an interrupt, whoever started us, and does not outlive us."""
    PR_SET_PDEATHSIG = 1
    for number in signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def tell(is_good, what):
    print(f"{'ok' if is_good else 'FAILED':6} {what}", flush=True)


# -- how long each file takes ---------------------------------------------------------------------


def read_durations():
    """Seconds of each file."""
    lines = DURATIONS.read_text().splitlines() if DURATIONS.exists() else []
    return {file: float(seconds) for seconds, file in (line.split() for line in lines)}


def write_durations(learned):
    """A file that was not run keeps what is known of it."""
    known = {**read_durations(), **learned}
    rows = sorted(((round(seconds) or 1, file) for file, seconds in known.items()
                   if (ROOT / file).exists()), reverse=True)
    DURATIONS.write_text("".join(f"{seconds} {file}\n" for seconds, file in rows))


# -- which jobs there are -------------------------------------------------------------------------


class Plan:
    """The jobs of a run: those that run beside others, longest first, and those that run alone."""

    def __init__(self, parts, scope, arguments, folder):
        """scope: test, rest or all."""
        self.scope, self.arguments, self.folder = scope, arguments, folder
        self.durations = read_durations()
        self.count = 0
        self.beside, self.alone = [], []
        for part in parts:
            self._add(part)
        self.beside.sort(key=lambda job: -sum(map(self._seconds, job.files)))

    def _seconds(self, file):
        return self.durations.get(file, UNKNOWN_S if file.endswith(".py") else 0.1)

    def _add(self, part):
        """Long tests run once, in the part whose file "make test" runs."""
        test, rest = part.test, part.rest
        if self.scope == "test":
            self._add_files(part, test, "not long")
            return
        if self.scope == "rest":
            self._add_files(part, [file for file in test if has_mark(file, "long")], "long")
        else:
            self._add_files(part, test)
        self._add_files(part, rest, "not long")

    def _add_files(self, part, files, which=None):
        tests = [file for file in files if file.endswith(".py")]
        for file in files:
            if file not in tests:
                limit_s = JOB_LIMIT_S if file.startswith("scripts/") else PROGRAM_LIMIT_S
                self.beside.append(Job(part, [file], [file], self._next_folder(),
                                       limit_s=limit_s))
        also = [which] if which else []
        for together in self._shared(tests):
            self.beside.append(self._job(part, together, ["not alone", *also]))
        lonely = [file for file in tests if has_mark(file, "alone")]
        if lonely:
            self.alone.append(self._job(part, lonely, ["alone", *also]))

    def _shared(self, files):
        """Long files one by one, short ones together: each process costs a part of a second."""
        together, seconds = [], 0
        for file in sorted(files, key=lambda file: -self._seconds(file)):
            if together and seconds + self._seconds(file) > SHARED_S:
                yield together
                together, seconds = [], 0
            together.append(file)
            seconds += self._seconds(file)
        if together:
            yield together

    def _job(self, part, files, which):
        folder = self._next_folder()
        command = [sys.executable, "-m", "pytest", "-c", "tests/pytest.ini", "--durations=0",
                   "--durations-min=0.05", "-m", " and ".join(which), f"--basetemp={folder}/temp",
                   *files, *self.arguments]
        is_maybe_empty = self.arguments or any(has_mark(file, mark) for mark in MARKS
                                               for file in files)
        return Job(part, files, command, folder, (0, NO_TESTS) if is_maybe_empty else (0,))

    def _next_folder(self):
        self.count += 1
        return self.folder / str(self.count)


def has_mark(file, mark):
    """A file may also be a program."""
    return file.endswith(".py") and MARKS[mark] in (ROOT / file).read_text()


# -- running them ---------------------------------------------------------------------------------


class Run:
    def __init__(self, parts, plan, folder):
        self.parts, self.plan, self.folder = parts, plan, folder
        self.running, self.ended = [], []
        self.skipped = {}  # part: why
        self.not_built = set()

    def all(self):
        jobs = [*self.plan.beside, *self.plan.alone]
        assert all(job.needs <= test_parts.BUILDS.keys() for job in jobs)
        self.to_build = [build for build in test_parts.BUILDS
                         if any(build in job.needs for job in jobs)]
        self.built = set()
        self.building = []
        at_once = min(4 * len(os.sched_getaffinity(0)), 24)
        self._run(self.plan.beside, int(os.environ.get("DLOCK_TEST_JOBS", at_once)))
        self._run(self.plan.alone, 1)

    def _run(self, waiting, at_once):
        while waiting or self.running or self.building:
            self._build()
            ready = [job for job in waiting if job.needs <= self.built]
            for job in ready[:at_once - len(self.running)]:
                waiting.remove(job)
                self._begin(job)
            time.sleep(0.02)
            for job in [job for job in self.running if job.has_ended()]:
                self.running.remove(job)
                self.ended.append(job)
                job.tell()

    def _begin(self, job):
        if failed := ", ".join(job.needs & self.not_built):
            self.skipped[job.part] = f"it needs the build \"{failed}\", which failed"
        elif not test_parts.is_there(job.part):
            self.skipped[job.part] = "it is not in build/servers, see scripts/get-servers"
        else:
            self.running.append(job)
            job.start()

    def _build(self):
        """One after the other, each on all processors; what is fetched, beside them."""
        for job in [job for job in self.building if job.has_ended()]:
            self.building.remove(job)
            job.tell()
            self.built.add(job.name)
            if not job.is_good:
                self.not_built.add(job.name)
        for name in list(self.to_build):
            command = list(test_parts.BUILDS[name])
            if any(job.command[0] == command[0] for job in self.building):
                continue
            if command[0] == "make":
                command[1:1] = ["-s", f"-j{len(os.sched_getaffinity(0))}"]
            part = test_parts.Part("build", needs=())
            job = Job(part, [name], command, self.folder / f"build {name}",
                      (0, test_parts.SKIPPED))
            self.to_build.remove(name)
            self.building.append(job)
            job.start()

    def stop(self):
        """Who is interrupted ends its servers. Who does not end is killed, and they with it."""
        started = [job for job in [*self.running, *self.building] if job.process]
        for job in started:
            job.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + PATIENCE_S
        for job in started:
            try:
                job.process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()

    def learned(self):
        """The seconds of each file, at most, of all parts."""
        learned = collections.Counter()
        for job in self.ended:
            here = collections.Counter()
            for seconds, file in DURATION.findall(job.output):
                here[f"tests/{file}"] += float(seconds)
            for file in here:
                learned[file] = max(learned[file], here[file])
        return learned

    def summary(self, seconds):
        """Whether all is well."""
        print("\nin all:")
        is_good = not self.not_built
        for part in self.parts:
            jobs = [job for job in self.ended if job.part is part]
            if part in self.skipped:
                print(f"skip   {part.title}: {self.skipped[part]}")
            if jobs:
                is_good &= self._tell_part(part, jobs)
        tell(is_good, f"everything, after {seconds:.0f} s")
        return is_good

    @staticmethod
    def _tell_part(part, jobs):
        counts = collections.Counter()
        for job in jobs:
            for count, what in COUNT.findall(job.output.rpartition("\n")[2]):
                counts[what] += int(count)
        counted = ", ".join(f"{count} {what}" for what, count in counts.items())
        failures = [failure for job in jobs for failure in job.failures()]
        tell(not failures, f"{part.title}: {counted}; {sum(job.seconds for job in jobs):.0f} s, "
                           f"{sum(job.processor_s for job in jobs):.0f} s of a processor")
        for name in failures:
            print(f"       {name}")
        return not failures


def interrupt(*_):
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def read_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/run-tests", formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="%(prog)s [--rest | --all] [--list] [--part WORDS]... [PYTEST-ARGUMENT...]",
        description="Builds and runs the tests of \"make test\".", epilog=HELP)
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--rest", dest="scope", action="store_const", const="rest",
                       help="run what \"make test\" leaves to \"make test-all\"")
    scope.add_argument("--all", dest="scope", action="store_const", const="all", help="run both")
    parser.set_defaults(scope="test")
    parser.add_argument("--list", action="store_true", help="list the parts and end")
    parser.add_argument("--part", action="append", default=[], metavar="WORDS",
                        help="run only the parts with these words in their title")
    parser.add_argument("--record", action="store_true",
                        help="write tests/durations, by which later runs are planned")
    chosen, rest = parser.parse_known_args()
    parts = list(test_parts.parts())
    for words in chosen.part:
        if not any(words in part.title for part in parts):
            parser.error(f"no part has \"{words}\" in its title; --list lists them")
    chosen.parts = [part for part in parts if not chosen.part
                    or any(words in part.title for words in chosen.part)]
    return chosen, rest


def main():
    chosen, rest = read_arguments()
    if chosen.list:
        for part in chosen.parts:
            print(f"{part.title}: {len(part.test)} files, {len(part.rest)} in the rest")
        return 0
    if not any(part.test if chosen.scope == "test" else part.rest for part in chosen.parts):
        print("run-tests: nothing to run; --list tells what the rest is (--rest)", file=sys.stderr)
        return 2
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, interrupt)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dlock-tests-", ignore_cleanup_errors=True) as folder:
        folder = pathlib.Path(folder)
        run = Run(chosen.parts, Plan(chosen.parts, chosen.scope, rest, folder), folder)
        try:
            run.all()
        except KeyboardInterrupt:
            run.stop()
            print("run-tests: interrupted", file=sys.stderr)
            return 130
    is_good = run.summary(time.monotonic() - begin)
    if chosen.record:
        write_durations(run.learned())
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
