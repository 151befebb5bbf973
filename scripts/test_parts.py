"""The parts of the tests: which files, in which environment, on which build.

"make test" runs the test files of each part, "make test-rest" the rest, "make test-all" both.
"""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
SERVERS = ["redis-8.0", "redis-8.6", "valkey-8.0", "valkey-8.1", "valkey-9.1", "redict-7.3"]
# These differ most from the one that "make test" uses. Redis runs with ASan: Valkey cannot.
NEWEST_REDIS, NEWEST_VALKEY = "redis-8.6", "valkey-9.1"
ASAN_BUILD, TSAN_BUILD = "build/sanitize-address-undefined", "build/sanitize-thread"

# A build is a command, and a part that needs it begins when it is done.
BUILDS = {
    "plain": ["make", "test-build"],
    "ASan": ["make", "test-build-sanitized", "SANITIZE=address,undefined"],
    "ASan programs": ["make", "test-build-client", "cli", "SANITIZE=address,undefined"],
    "TSan": ["make", "test-build-client", "SANITIZE=thread"],
    "fuzz": ["make", "fuzz-build"],
    "servers": ["scripts/get-servers", *SERVERS],
}
SKIPPED = 3  # as get-servers exits if some server cannot be had


class Part:
    """A file is a test file in Python, or a program and its arguments. needs: some of BUILDS."""

    def __init__(self, title, test=(), rest=(), env=None, needs=("plain",)):
        self.title, self.test, self.rest = title, list(test), list(rest)
        self.env, self.needs = env or {}, frozenset(needs)


def files_in(folder, *without):
    names = sorted(path.stem[len("test_"):] for path in (ROOT / "tests" / folder).glob("test_*.py"))
    return files_of(folder, *(name for name in names if name not in without))


def files_of(folder, *names):
    return [f"tests/{folder}/test_{name}.py" for name in names]


def without(files, those):
    return [file for file in files if file not in those]


def unit_tests():
    sources = sorted((ROOT / "tests/unit").rglob("*_test.c"))
    return [f"{ASAN_BUILD}/{source.relative_to(ROOT).with_suffix('')}" for source in sources]


def library(name):
    return subprocess.run(["cc", f"-print-file-name=lib{name}.so"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


def on_server(name):
    return {"REDIS_SERVER": f"build/servers/{name}-server"}


def module_parts(sanitizers):
    # The failovers are long, and judge what many runs have in common.
    long = files_of("module", "failover")
    files = without(files_in("module"), long)
    finders = files_of("module", "fuzz", "property")
    sessions = files_of("module", "sessions", "session_waits", "session_holds", "watches")
    names = files_of("module", "names", "names_sessions", "names_stream")
    again = files_of("module", "session_property") + sessions + names
    first = finders + again
    # What "make test" runs under ASan need not run without it, too, on the same server.
    yield Part("module", without(files, again),
               env={"DLOCK_FUZZ_CALLS": "20000", "DLOCK_STRESS_SECONDS": "5"})
    asan = {"DLOCK_PRELOAD": f"{sanitizers} {ROOT}/{ASAN_BUILD}/plain_malloc.so",
            "DLOCK_MODULE": f"{ASAN_BUILD}/dlock.so",
            "LSAN_OPTIONS": f"suppressions={ROOT}/tests/lsan.supp:print_suppressions=0"}
    yield Part("module under ASan", first, env=asan, needs=["ASan"])
    yield Part(f"module under ASan on {NEWEST_REDIS}", rest=files, needs=["ASan", "servers"],
               env={**asan, **on_server(NEWEST_REDIS), "DLOCK_STRESS_SECONDS": "10"})
    yield Part("module, long runs", rest=finders + long + files_of("module", "guard_random"),
               env={"DLOCK_GUARD_SECONDS": "15", "DLOCK_FUZZ_CALLS": "1000000",
                    "DLOCK_STEPS": "200000"})
    # What may depend on the server; random commands find mistakes of ours, on any server.
    core = files_of("module", "commands", "replication", "session", "wait", "wait_end", "told",
                    "idempotence", "leases", "fence", "clock", "guard", "guard_rules",
                    "other_module", "info_sessions") + sessions + names
    for server in SERVERS:
        what, tests = ("module", files) if server == NEWEST_VALKEY else ("core of the module", core)
        if server != NEWEST_REDIS:
            yield Part(f"{what} on {server}", rest=tests, needs=["servers"], env=on_server(server))


def client_parts(sanitizers):
    # These run programs of their own, or look at descriptors and threads of the test itself.
    programs = files_of("client", "programs", "install", "examples", "fencing", "cpp")
    itself = files_of("client", "descriptors", "async")
    long = files_of("client", "cluster_failover")
    files = without(files_in("client"), programs + long)
    # Python itself leaks; the programs are checked for leaks.
    asan = {"LD_PRELOAD": sanitizers, "ASAN_OPTIONS": "detect_leaks=0",
            "DLOCK_LIBRARY": f"{ROOT}/{ASAN_BUILD}/libdlock.so"}
    yield Part("client's programs", programs + itself, env={"DLOCK_STRESS_SECONDS": "1"})
    yield Part("client under ASan", without(files, itself), itself, asan, ["ASan"])
    # What starts, waits, renews and ends differently without the library's own threads.
    differ = files_of("client", "lock", "acquire_for", "renewal", "failures", "deployments",
                      "watch", "hotspot", "guarded", "names")
    same = without(files, differ + itself)
    # Bytes and settings are the same in every form. TLS has bytes that poll(2) does not know of,
    # which matters to a client that is polled by its user.
    bytes = files_of("client", "hostile_server", "sigpipe", "url", "permissions", "operators",
                     "diagnostics", "reasons", "unload")
    yield Part("client, asynchronous", differ, without(same, bytes + files_of("client", "tls")),
               {"DLOCK_FORM": "async"})
    yield Part("client without threads under ASan", differ, without(same, bytes),
               {**asan, "DLOCK_FORM": "loop"}, ["ASan"])
    yield Part("client, long runs", rest=long)
    threads = files_of("client", "programs", "fencing", "cpp")
    some = {"DLOCK_STRESS_SECONDS": "3"}  # of each of nine tests, in four parts
    yield Part("client's threads under ASan", rest=threads,
               env={**some, "DLOCK_BUILD": ASAN_BUILD}, needs=["ASan programs"])
    tsan = {**some, "DLOCK_BUILD": TSAN_BUILD,
            "TSAN_OPTIONS": f"suppressions={ROOT}/tests/tsan.supp"}
    yield Part("client's threads under TSan", rest=threads, env=tsan, needs=["TSan"])
    for form in "async", "loop":
        yield Part(f"client's threads under TSan, {form}", rest=files_of("client", "programs"),
                   env={**tsan, "DLOCK_FORM": form}, needs=["TSan"])


def parts():
    sanitizers = f"{library('asan')} {library('ubsan')}"
    yield Part("unit tests", unit_tests(), needs=["ASan"])
    yield from module_parts(sanitizers)
    yield from client_parts(sanitizers)
    yield Part("Python package", files_in("python"))
    yield Part("tool", files_in("cli"))
    yield Part("tool under ASan", rest=files_of("cli", "run", "run_safety", "scripts", "config",
                                                "operators", "metrics", "shared"),
               env={"DLOCK_BUILD": ASAN_BUILD}, needs=["ASan programs"])
    yield Part("pages, scripts and benchmark",
               files_in("docs") + files_in("scripts") + files_in("bench"))
    torture = files_in("torture")
    yield Part("torture, three scenarios", torture,
               env={"DLOCK_TORTURE_SCENARIOS": "network redlock restart+python",
                    "DLOCK_TORTURE_SECONDS": "4"})
    yield Part("torture", rest=torture, env={"DLOCK_TORTURE_SECONDS": "4"})
    yield Part("models", rest=files_in("model"), needs=())
    yield Part("fuzz targets", rest=files_in("fuzz"), needs=["fuzz"])
    yield Part("packages", rest=["scripts/test-dist"], needs=["plain"])


def is_there(part):
    """Whether the server of the part is; the others are always there."""
    program = part.env.get("REDIS_SERVER")
    return program is None or os.access(ROOT / program, os.X_OK)
