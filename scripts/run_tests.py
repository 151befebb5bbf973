"""Runs every test, on what "make test" has built. Started by scripts/run-tests.

A part is a set of test files and the environment that they run in. A job is one file of a part, in
a process of its own. Several jobs run at a time, as most wait most of the time. Tests that are
marked "alone" need the processor for themselves: they run after all others, one job at a time.
A server that get-servers could not fetch is skipped.

A test may fail because the machine was busy. So a job that failed is run once more at the end,
when nothing else runs; but not a job of FINDERS, for which one failure is a finding. Its first
output stays in view, and the summary names it, whether it fails again or not: a fault that shows
now and then is a fault all the same.

The output of a job is shown if it fails. Each job has a line; at the end, each part has one, and
each test that failed. An interrupt ends the jobs, and they end their servers.
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

ROOT = pathlib.Path(__file__).resolve().parents[1]
ALONE = "pytest.mark.alone"
SANITIZED = "build/sanitize-address-undefined"
SANITIZERS = "ASan and UBSan"
SERVERS = ["redis-8.0", "redis-8.6", "valkey-8.0", "valkey-8.1", "valkey-9.1", "redict-7.3"]
PATIENCE_S = 30  # for jobs that are told to end
NO_TESTS = 5  # as pytest exits
FINDERS = ["unit tests", "torture", "models", "fuzz targets"]  # titles of parts
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped|xfailed|xpassed)")
FAILURE = re.compile(r"^(?:FAILED|ERROR) (tests/\S+)", re.M)

HELP = """\
exit status:
  0    every test passed, or was skipped for a reason that is printed
  1    a test failed
  130  interrupted

environment:
  DLOCK_TEST_JOBS       jobs at a time (default: three for each processor, at most 24)
  DLOCK_SEED            the random numbers of fuzz and stress; each failure prints its seed
  REDIS_SERVER          the server to test with

examples:
  scripts/run-tests --part "command line"     the parts that test the tool
  scripts/run-tests --part client -k failover only tests with "failover" in their name

One file or one test, without parts and sanitizers:
  make test-build
  scripts/python -m pytest -c tests/pytest.ini tests/client/test_replicas.py -k failover
"""

# These take longest, so they begin first.
LONG = ["clock", "redlock", "redlock_healing", "redlock_fences", "redlock_votes", "install",
        "programs", "leases", "fuzz", "disruption", "role_change", "certainty", "tls", "run",
        "crash", "wait", "renewal", "lock", "scripts"]


class Part:
    def __init__(self, title, files, env=None, has_alone=True):
        """has_alone: tests that are marked "alone" are run as well."""
        self.title, self.files, self.env, self.has_alone = title, files, env or {}, has_alone
        self.counts = collections.Counter()
        self.seconds = 0.0
        self.failures = []
        self.repeated = []  # failed, and passed when they were run once more


class Job:
    """One process. What it prints goes to a file, and so do the figures that it has to tell."""

    def __init__(self, part, file, command, folder, may_be_empty):
        self.part, self.file, self.command, self.folder = part, file, command, folder
        self.may_be_empty = may_be_empty
        self.good = (0, NO_TESTS) if may_be_empty else (0,)
        self.process = None
        self.failures = []

    def start(self):
        self.folder.mkdir(exist_ok=True)  # it may be run once more
        self.begin = time.monotonic()
        env = {**os.environ, "DLOCK_FIGURES": str(self.folder / "figures"), **self.part.env}
        with open(self.folder / "output", "wb") as output:
            # Of a session of its own: the keyboard interrupts us, and we interrupt it, once.
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=set_signals)

    def has_ended(self):
        return self.process.poll() is not None

    def finish(self):
        """Count it and tell of it."""
        seconds = time.monotonic() - self.begin
        output = self._read("output").strip()
        last_line = output.rpartition("\n")[2]
        for count, what in COUNT.findall(last_line):
            self.part.counts[what] += int(count)
        self.part.seconds += seconds
        is_failed = self.process.returncode not in self.good
        if is_failed:
            print(f"{output}\nexit status {self.process.returncode}")
            self.failures = FAILURE.findall(output) or [self.file]
            self.part.failures += self.failures
        where = pathlib.Path(self.file)
        tell(is_failed, f"{seconds:5.1f} s  {self.part.title}: {where.parent.name}/{where.name}")
        print(self._read("figures"), end="", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""


def set_signals():
    """A job hears an interrupt, whoever started us, and does not outlive us."""
    PR_SET_PDEATHSIG = 1
    for number in signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def tell(is_failed, what):
    print(f"{'FAILED' if is_failed else 'ok':6} {what}", flush=True)


# -- what there is to run -------------------------------------------------------------------------


def files_in(folder, *without):
    names = sorted(path.stem[len("test_"):] for path in (ROOT / "tests" / folder).glob("test_*.py"))
    return files_of(folder, *(name for name in names if name not in without))


def files_of(folder, *names):
    return [f"tests/{folder}/test_{name}.py" for name in names]


def library(name):
    return subprocess.run(["cc", f"-print-file-name=lib{name}.so"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def plain_malloc(folder):
    """See tests/support/plain_malloc.c."""
    library = folder / "plain_malloc.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library,
                    ROOT / "tests/support/plain_malloc.c"], check=True)
    return library


def parts(folder):
    sanitizers = f"{library('asan')} {library('ubsan')}"
    yield Part("unit tests", sorted(f"{SANITIZED}/{path.relative_to(ROOT).with_suffix('')}"
                                    for path in (ROOT / "tests/unit").rglob("*_test.c")))
    # The long failovers are for test-servers; most of the fuzz and of the stress is done below.
    yield Part("module", files_in("module", "failover"),
               {"DLOCK_FUZZ_CALLS": "100000", "DLOCK_STRESS_SECONDS": "15"})
    yield Part(f"module under {SANITIZERS}", files_in("module", "failover"),
               {"DLOCK_PRELOAD": f"{sanitizers} {plain_malloc(folder)}",
                "DLOCK_MODULE": f"{SANITIZED}/dlock.so", "DLOCK_STRESS_SECONDS": "15"})
    # What runs programs of its own, and what looks at descriptors and threads of the test itself.
    programs = ["programs", "install", "fencing", "cpp"]
    itself = ["descriptors", "async"]
    yield Part("client's programs", files_of("client", *programs, *itself),
               {"DLOCK_STRESS_SECONDS": "2"})
    # Python itself leaks; the programs are checked.
    yield Part(f"client under {SANITIZERS}", files_in("client", *programs, "cluster_failover"),
               {"LD_PRELOAD": sanitizers, "ASAN_OPTIONS": "detect_leaks=0",
                "DLOCK_LIBRARY": str(ROOT / SANITIZED / "libdlock.so")})
    forms = files_in("client", *programs, *itself, "cluster_failover")
    yield Part("client, asynchronous", forms, {"DLOCK_FORM": "async"})
    yield Part(f"client without threads under {SANITIZERS}", forms,
               {"DLOCK_FORM": "loop", "LD_PRELOAD": sanitizers, "ASAN_OPTIONS": "detect_leaks=0",
                "DLOCK_LIBRARY": str(ROOT / SANITIZED / "libdlock.so"), "DLOCK_BUILD": SANITIZED},
               has_alone=False)
    yield Part("command line", files_in("cli"))
    yield Part(f"command line under {SANITIZERS}",
               files_of("cli", "run", "run_safety", "scripts", "config", "operators", "metrics",
                        "shared"),
               {"DLOCK_BUILD": SANITIZED})
    yield Part("models", files_in("model"))
    yield Part("fuzz targets", files_in("fuzz"))
    yield Part("pages, scripts and benchmark",
               files_in("docs") + files_in("scripts") + files_in("bench"))
    yield Part("torture", files_in("torture"))
    threads = files_of("client", "programs", "guard", "fencing", "cpp")
    yield Part(f"client's threads under {SANITIZERS}", threads, {"DLOCK_BUILD": SANITIZED})
    yield Part("client's threads under TSan", threads,
               {"DLOCK_BUILD": "build/sanitize-thread",
                "TSAN_OPTIONS": f"suppressions={ROOT}/tests/tsan.supp"})
    for form in "async", "loop":
        yield Part(f"client's threads under TSan, {form}", files_of("client", "programs"),
                   {"DLOCK_BUILD": "build/sanitize-thread", "DLOCK_FORM": form,
                    "TSAN_OPTIONS": f"suppressions={ROOT}/tests/tsan.supp"})
    core = files_of("module", "commands", "replication", "session", "wait", "wait_end", "told",
                    "idempotence", "leases", "fence", "clock")
    for server in SERVERS:
        program = f"build/servers/{server}-server"
        yield Part(f"core of the module on {server}",
                   core if os.access(ROOT / program, os.X_OK) else [], {"REDIS_SERVER": program})


# -- running it -----------------------------------------------------------------------------------


class Run:
    def __init__(self, wanted, arguments, folder):
        """wanted: words of the titles of parts; none: all parts."""
        self.arguments, self.folder = arguments, folder
        self.parts = [part for part in parts(folder)
                      if not wanted or any(word in part.title for word in wanted)]
        self.count = 0
        self.running = []

    def all(self):
        beside, alone = [], []
        for part in self.parts:
            for file in part.files:
                is_mixed = file.endswith(".py") and ALONE in (ROOT / file).read_text()
                beside.append(self._job(part, file, "not alone", is_mixed))
                if is_mixed and part.has_alone:
                    alone.append(self._job(part, file, "alone", is_mixed))
        beside.sort(key=order)
        at_once = min(3 * len(os.sched_getaffinity(0)), 24)
        self._run(beside, int(os.environ.get("DLOCK_TEST_JOBS", at_once)))
        self._run(alone, 1)
        for job in [*beside, *alone]:
            if job.failures and job.part.title not in FINDERS:
                self._repeat(job)

    def _repeat(self, failed):
        print(f"run once more: {failed.part.title}: {failed.file}", flush=True)
        again = Job(failed.part, failed.file, failed.command, failed.folder, failed.may_be_empty)
        self._run([again], 1)
        if again.failures:
            return
        failed.part.failures = [each for each in failed.part.failures
                                if each not in failed.failures]
        failed.part.repeated += failed.failures

    def _job(self, part, file, which, is_mixed):
        self.count += 1
        folder = self.folder / str(self.count)
        command = [file]
        if file.endswith(".py"):
            command = [sys.executable, "-m", "pytest", "-c", "tests/pytest.ini", "--durations=3",
                       "-m", which, f"--basetemp={folder}/temp", file, *self.arguments]
        return Job(part, file, command, folder, is_mixed or self.arguments)

    def _run(self, jobs, at_once):
        jobs = collections.deque(jobs)
        while jobs or self.running:
            while jobs and len(self.running) < at_once:
                self.running.append(jobs.popleft())
                self.running[-1].start()
            time.sleep(0.05)
            for job in [job for job in self.running if job.has_ended()]:
                self.running.remove(job)
                job.finish()

    def stop(self):
        """Who is interrupted ends its servers. Who does not end is killed, and they with it."""
        started = [job for job in self.running if job.process is not None]
        for job in started:
            job.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + PATIENCE_S
        for job in started:
            try:
                job.process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()

    def summary(self, seconds):
        print("\nin all, with the seconds that its files took one by one:")
        for part in self.parts:
            if not part.files:
                print(f"skip   {part.title}: it is not in build/servers, see scripts/get-servers")
                continue
            counts = ", ".join(f"{count} {what}" for what, count in part.counts.items() if count)
            tell(part.failures, f"{part.title}: {counts}; {part.seconds:.0f} s")
            for name in part.failures:
                print(f"       {name}")
            for name in part.repeated:
                print(f"       failed, and passed when it was run once more: {name}")
        is_failed = any(part.failures for part in self.parts)
        tell(is_failed, f"everything, after {seconds:.0f} s")
        return int(is_failed)


def order(job):
    """The unit tests take no time. Then the longest."""
    name = pathlib.Path(job.file).stem
    if not name.startswith("test_"):
        return -1
    return LONG.index(name[len("test_"):]) if name[len("test_"):] in LONG else len(LONG)


def interrupt(*_):
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def read_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/run-tests", formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False, usage="%(prog)s [--list] [--part WORDS]... [PYTEST-ARGUMENT...]",
        description="Runs every test on what is built; \"make test\" builds it first.",
        epilog=HELP)
    parser.add_argument("--list", action="store_true", help="list the parts and end")
    parser.add_argument("--part", action="append", default=[], metavar="WORDS",
                        help="run only the parts with these words in their title")
    chosen, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="dlock-tests-") as folder:
        titles = [part.title for part in parts(pathlib.Path(folder))]
    for words in chosen.part:
        if not any(words in title for title in titles):
            parser.error(f"no part has \"{words}\" in its title; --list lists them")
    return chosen, rest, titles


def main():
    chosen, rest, titles = read_arguments()
    if chosen.list:
        print("\n".join(titles))
        return 0
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, interrupt)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dlock-tests-", ignore_cleanup_errors=True) as folder:
        run = Run(chosen.part, rest, pathlib.Path(folder))
        try:
            run.all()
        except KeyboardInterrupt:
            run.stop()
            print("run-tests: interrupted", file=sys.stderr)
            return 130
    return run.summary(time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())
